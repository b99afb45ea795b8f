"""Schedulers that each break one requirement: connections, sessions, and malformed messages."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Optional, Tuple

from mutants import mutant
from mutants.scheduler.reference_scheduler import ANSWERS, ReferenceScheduler
from mutants.scheduler.scheduler_state import Peer, Refused, Worker
from mutants.servers.zmtp_server import Connection, ZmtpError, ZmtpServer
from scaler_conformance.codec.schema_codec import SCHEMA, Message, UnreadableMessageError


class _Zmtp31Server(ZmtpServer):
    def check_greeting(self, greeting: bytes) -> None:
        super().check_greeting(greeting)
        if greeting[11] == 0:
            raise ZmtpError("too old")


@mutant(breaks="SCL-TRN-001", caught_by="scheduler/transport/zmtp-3-0-and-3-1-are-supported")
class CutsZmtp30(ReferenceScheduler):
    server_class = _Zmtp31Server


class _AnyMechanismServer(ZmtpServer):
    def check_mechanism(self, mechanism: bytes) -> None:
        pass


@mutant(breaks="SCL-TRN-002", caught_by="scheduler/transport/other-mechanisms-close-the-connection")
class TakesAnyMechanism(ReferenceScheduler):
    server_class = _AnyMechanismServer


class _AnySocketServer(ZmtpServer):
    def check_socket_type(self, kind: bytes) -> None:
        pass


@mutant(breaks="SCL-TRN-002", caught_by="scheduler/transport/incompatible-sockets-close-the-connection")
class TakesAnySocketType(ReferenceScheduler):
    server_class = _AnySocketServer


@mutant(breaks="SCL-TRN-003", caught_by="scheduler/transport/messages-have-one-or-two-frames")
class SendsAFrameMore(ReferenceScheduler):
    def frames_of(self, type_: str, payload: bytes, fields: Dict[str, Any]) -> List[bytes]:
        frames = super().frames_of(type_, payload, fields)
        return [*frames, b""] if type_ == "Task" else frames


@mutant(breaks="SCL-TRN-004", caught_by="scheduler/transport/empty-payload-frame-equals-no-frame")
class RefusesEmptyPayloadFrames(ReferenceScheduler):
    def check_frames(self, frames: List[bytes]) -> None:
        super().check_frames(frames)
        if b"" in frames[1:]:
            raise Refused("malformed", "an empty frame")


@mutant(breaks="SCL-TRN-005", caught_by="scheduler/transport/segmented-headers-are-read")
class ReadsOneSegment(ReferenceScheduler):
    def check_segments(self, frame: bytes) -> None:
        super().check_segments(frame)
        if frame[0] and len(frame) < 1 << 16:  # larger ones have several segments in other cases, too
            raise UnreadableMessageError("several segments")


@mutant(breaks="SCL-TRN-006", caught_by="scheduler/transport/structs-may-be-longer-and-shorter")
class RefusesUnknownFields(ReferenceScheduler):
    def decode(self, frame: bytes) -> Tuple[str, Dict[str, Any]]:
        type_, fields = super().decode(frame)
        if b"new\0" in frame:
            raise UnreadableMessageError("fields that the schema does not have")
        return type_, fields


class _IdentityServer(ZmtpServer):
    def on_ready(self, connection: Connection, identity: bytes) -> None:
        for each in list(self.connections.values()):
            if identity and getattr(each, "identity", b"") == identity:
                self.close_connection(each)
        connection.identity = identity  # type: ignore[attr-defined]  # mutants may


@mutant(breaks="SCL-TRN-007", caught_by="scheduler/transport/peers-with-the-same-identity-are-served")
class HandsIdentitiesOver(ReferenceScheduler):
    server_class = _IdentityServer


class _DeafToPingServer(ZmtpServer):
    def on_ping(self, connection: Connection, context: bytes) -> None:
        self.send_command(connection, b"PONG", b"")


@mutant(breaks="SCL-TRN-008", caught_by="scheduler/transport/ping-is-answered")
class ForgetsThePingsContext(ReferenceScheduler):
    server_class = _DeafToPingServer


@mutant(breaks="SCL-VER-001", caught_by="scheduler/transport/unknown-messages-are-ignored")
class RefusesUnknownMessages(ReferenceScheduler):
    def on_unknown(self, connection: Connection) -> None:
        raise Refused("malformed", "a message that is not known")


# Sessions -----------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-SES-002", caught_by="scheduler/session/hello-is-welcomed")
class WelcomesTwice(ReferenceScheduler):
    def welcome(self, peer: Peer) -> None:
        super().welcome(peer)
        super().welcome(peer)


@mutant(breaks="SCL-SES-002", caught_by="scheduler/session/refusal-says-versions")
class KeepsItsVersionsSecret(ReferenceScheduler):
    def versions(self) -> Dict[str, Any]:
        return {}


@mutant(breaks="SCL-SES-003", caught_by="scheduler/session/other-major-is-refused")
class TakesAnyMajor(ReferenceScheduler):
    def check_major(self, hello: Message) -> None:
        pass


@mutant(breaks="SCL-SES-003", caught_by="scheduler/session/no-common-minor-is-refused")
class TakesAnyMinor(ReferenceScheduler):
    def check_minors(self, hello: Message) -> None:
        pass


@mutant(breaks="SCL-SES-004", caught_by="scheduler/session/highest-common-minor-is-chosen")
class ChoosesTheirHighestMinor(ReferenceScheduler):
    def agreed_minor(self, hello: Message) -> int:
        return int(hello.minorMax)


@mutant(breaks="SCL-SES-005", caught_by="scheduler/session/other-roles-are-refused")
class TakesEveryRoleForAClient(ReferenceScheduler):
    def check_hello_role(self, hello: Message) -> None:
        pass


@mutant(breaks="SCL-SES-006", caught_by="scheduler/session/worker-without-slots-is-refused")
class TakesWorkersWithoutSlots(ReferenceScheduler):
    def check_slots(self, hello: Message) -> None:
        pass


@mutant(breaks="SCL-SES-006", caught_by="scheduler/session/invalid-amounts-are-refused")
class TakesAnyAmount(ReferenceScheduler):
    def check_amounts(self, said: Any) -> None:
        pass


@mutant(breaks="SCL-SES-022", caught_by="scheduler/session/hello-is-refused-while-shutting-down")
class WelcomesWhileItStops(ReferenceScheduler):
    def check_shutting_down(self) -> None:
        pass


@mutant(breaks="SCL-SES-007", caught_by="scheduler/session/session-numbers-are-unique")
class GrantsNumbersAgain(ReferenceScheduler):
    def new_number(self) -> int:
        taken = {each.number for each in self.sessions.values()}
        return next(number for number in range(1, 1 << 24) if number not in taken)


@mutant(breaks="SCL-SES-010", caught_by="scheduler/session/hello-begins-a-new-session")
class KeepsTasksAtANewHello(ReferenceScheduler):
    def end_before_hello(self, connection: Connection) -> None:
        pass


@mutant(breaks="SCL-SES-011", caught_by="scheduler/session/requests-without-a-session-are-refused")
class IgnoresUnknownIds(ReferenceScheduler):
    def on_message_without_session(self, connection: Connection, message: Message) -> None:
        pass


@mutant(breaks="SCL-SES-011", caught_by="scheduler/session/late-answers-without-a-session-are-ignored")
class RefusesLateAnswers(ReferenceScheduler):
    def on_message_without_session(self, connection: Connection, message: Message) -> None:
        if message.type in ANSWERS:
            raise Refused("notGreeted", "say Hello first")
        super().on_message_without_session(connection, message)


@mutant(breaks="SCL-SES-012", caught_by="scheduler/session/disconnect-request-is-answered")
class AnswersNoFarewellWithoutSession(ReferenceScheduler):
    def on_disconnect_request(self, connection: Connection, message: Message) -> None:
        if connection in self.sessions:
            super().on_disconnect_request(connection, message)


@mutant(breaks="SCL-SES-012", caught_by="scheduler/session/disconnect-request-is-answered")
class KeepsSessionsThatLeft(ReferenceScheduler):
    def on_disconnect_request(self, connection: Connection, message: Message) -> None:
        self.send_to(connection, "DisconnectResponse")


@mutant(breaks="SCL-SES-014", caught_by="scheduler/session/heartbeat-is-echoed")
class EchoesAnotherSequence(ReferenceScheduler):
    def on_heartbeat(self, peer: Peer, message: Message) -> None:
        self.send(peer, "HeartbeatEcho", sequence=message.sequence // 2)


@mutant(breaks="SCL-SES-015", caught_by="scheduler/session/silent-peer-is-refused")
class WaitsForTheSilent(ReferenceScheduler):
    def on_silence(self, peer: Peer) -> None:
        pass


@mutant(breaks="SCL-SES-015", caught_by="scheduler/session/any-message-keeps-the-session-alive")
class CountsHeartbeatsAlone(ReferenceScheduler):
    def sign_of_life(self, peer: Peer, frames: Any) -> None:
        if SCHEMA.type_of(frames[0]) == "Heartbeat":
            super().sign_of_life(peer, frames)


@mutant(breaks="SCL-SES-017", caught_by="scheduler/session/end-of-a-connection-ends-the-session")
class WaitsForConnectionsToComeBack(ReferenceScheduler):
    def on_connection_end(self, connection: Connection) -> None:
        if self.shutdown_ends is not None or isinstance(self.sessions.get(connection), Worker) is False:
            super().on_connection_end(connection)


@mutant(breaks="SCL-SES-024", caught_by="scheduler/session/messages-of-other-roles-are-refused")
class IgnoresMessagesOfOtherRoles(ReferenceScheduler):
    def check_role(self, peer: Peer, message: Message) -> None:
        if message.type == "Welcome":
            message.type = "HeartbeatEcho"
        super().check_role(peer, message)


# What is malformed --------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-SEC-002", caught_by="scheduler/security/invalid-messages-are-malformed")
class TakesManyFrames(ReferenceScheduler):
    def check_frames(self, frames: List[bytes]) -> None:
        pass


@mutant(breaks="SCL-SEC-002", caught_by="scheduler/security/invalid-messages-are-malformed")
class KeepsSessionsOfTheMalformed(ReferenceScheduler):
    def refuse(self, connection: Connection, refused: Refused) -> None:
        self.send_to(connection, "Refusal", reason=refused.reason, message=str(refused), **self.versions())
        if refused.reason != "malformed":
            self.end_session(connection)


@mutant(breaks="SCL-SEC-003", caught_by="scheduler/security/invalid-pointers-are-malformed")
class IgnoresWrongPointers(ReferenceScheduler):
    def on_unreadable(self, reason: str) -> Optional[Message]:
        if "regardless of schema" in reason or "pointer" in reason:
            return None
        raise Refused("malformed", reason)


@mutant(breaks="SCL-SEC-004", caught_by="scheduler/security/invalid-segment-tables-are-malformed")
class CountsNoSegments(ReferenceScheduler):
    def check_segments(self, frame: bytes) -> None:
        pass


@mutant(breaks="SCL-SEC-005", caught_by="scheduler/security/amplified-and-deep-headers-are-malformed")
class ReadsWithoutALimit(ReferenceScheduler):
    def decode(self, frame: bytes) -> Tuple[str, Dict[str, Any]]:
        try:
            return super().decode(frame)
        except UnreadableMessageError as error:
            if "traversal" in str(error).lower() or "amplif" in str(error).lower():
                return "", {}
            raise


@mutant(breaks="SCL-SEC-001", caught_by="scheduler/security/mutated-frames-do-no-harm")
class DiesOfManyFaults(ReferenceScheduler):
    def on_unreadable(self, reason: str) -> Optional[Message]:
        self.faults = getattr(self, "faults", 0) + 1
        assert self.faults < 40, "too many faults"
        raise Refused("malformed", reason)


class _AnyHeaderServer(ZmtpServer):
    def check_header_size(self, size: int) -> None:
        pass

    def check_message_size(self, size: int) -> None:
        pass


@mutant(breaks="SCL-SEC-006", caught_by="scheduler/security/oversized-headers-close-the-connection")
class TakesAnyHeader(ReferenceScheduler):
    server_class = _AnyHeaderServer


class _AnyMessageServer(ZmtpServer):
    def check_size(self, connection: Connection, size: int) -> None:
        self.check_message_size(size)


@mutant(breaks="SCL-SEC-006", caught_by="scheduler/security/oversized-messages-close-the-connection")
class CountsFramesOneByOne(ReferenceScheduler):
    server_class = _AnyMessageServer


class _UnfairServer(ZmtpServer):
    def read(self, connection: Connection) -> None:
        ends = time.monotonic() + 5
        while not connection.is_closed and time.monotonic() < ends:
            before = len(self.events)
            super().read(connection)
            if len(self.events) == before:
                return


@mutant(breaks="SCL-SEC-008", caught_by="scheduler/security/flooding-peer-does-not-block-others")
class ServesTheLoudest(ReferenceScheduler):
    server_class = _UnfairServer


class _BlockingServer(ZmtpServer):
    """It blocks on a connection with more unread than the variant little-unread allows."""

    def flush(self, connection: Connection) -> None:
        super().flush(connection)
        ends = time.monotonic() + 5
        while len(connection.unsent) > 18 << 20 and time.monotonic() < ends:
            time.sleep(0.01)
            super().flush(connection)


@mutant(breaks="SCL-SEC-008", caught_by="scheduler/security/peer-that-does-not-read-does-not-block-others")
class WaitsForWhoDoesNotRead(ReferenceScheduler):
    server_class = _BlockingServer


@mutant(breaks="SCL-SEC-009", caught_by="scheduler/limits/unfinished-handshakes-are-closed")
class WaitsForReadyForEver(ReferenceScheduler):
    def most_handshake_seconds(self) -> float:
        return 3600.0


class _TrustingServer(ZmtpServer):
    def check_unregistered(self, connection: Connection, size: int) -> None:
        pass


@mutant(breaks="SCL-SEC-012", caught_by="scheduler/limits/large-messages-before-the-welcome-close-the-connection")
class TrustsUnregisteredPeers(ReferenceScheduler):
    server_class = _TrustingServer


@mutant(breaks="SCL-SEC-014", caught_by="scheduler/limits/messages-with-too-many-elements-are-malformed")
class ReadsListsOfAnyLength(ReferenceScheduler):
    def check_elements(self, fields: Dict[str, Any]) -> None:
        pass


@mutant(breaks="SCL-SEC-011", caught_by="scheduler/limits/connections-with-too-much-unread-are-closed")
class KeepsWhatIsNeverRead(ReferenceScheduler):
    def most_unread_bytes(self) -> int:
        return 1 << 40


# Sessions that continue over another connection -----------------------------------------------------------------------


@mutant(breaks="SCL-SES-027", caught_by="scheduler/session/token-is-for-peers-that-list-the-feature")
class TellsAllPeersTokens(ReferenceScheduler):
    def offers(self, hello: Message) -> bool:
        return True


@mutant(breaks="SCL-SES-029", caught_by="scheduler/session/echoes-count-what-was-received")
class CountsNothingInEchoes(ReferenceScheduler):
    def with_count(self, peer: Peer, type_: str, fields: Dict[str, Any]) -> Dict[str, Any]:
        return fields


@mutant(breaks="SCL-SES-031", caught_by="scheduler/session/session-goes-on-over-another-connection")
class SendsNothingAgain(ReferenceScheduler):
    def rest(self, peer: Peer) -> List[List[bytes]]:
        return []


@mutant(breaks="SCL-SES-033", caught_by="scheduler/session/outdated-attempt-resumes-nothing")
class TakesOutdatedAttempts(ReferenceScheduler):
    def is_outdated(self, peer: Peer, hello: Message) -> bool:
        return False


@mutant(breaks="SCL-SEC-033", caught_by="scheduler/session/wrong-token-leaves-the-session-alone")
class TakesTokensThatBeginAlike(ReferenceScheduler):
    def is_its_token(self, peer: Peer, hello: Message) -> bool:
        return bool(peer.token[:31] == hello.resumeToken[:31])
