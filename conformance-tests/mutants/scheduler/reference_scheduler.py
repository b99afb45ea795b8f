"""A scheduler that does all that the specification asks of schedulers, on one thread.

    ZmtpServer ──frames──▶ on_frames ──a message──▶ on_<message> ──▶ settle: place what can be placed, look at the clock

Rules:
- One method, one duty: so that a mutant can break just that. Tasks, graphs and objects are mixins of their own.
- What a peer does wrong raises Refused, which ends its session; nothing of its message is kept.
- `python -m mutants.scheduler.reference_scheduler ADDRESS [VARIANT]` runs it as a process; the suite's tests
  run it on a thread.
"""

from __future__ import annotations

import math
import signal
import socket
import sys
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple, Type

from mutants.handlers import handler_name
from mutants.resuming import RESUME, SessionKeeper
from mutants.scheduler.scheduler_actors import ActorKeeper
from mutants.scheduler.scheduler_dependants import DependantKeeper
from mutants.scheduler.scheduler_frames import UNKNOWN, check_table, decode
from mutants.scheduler.scheduler_graphs import GraphKeeper
from mutants.scheduler.scheduler_keys import KeyChecks
from mutants.scheduler.scheduler_monitors import MonitorKeeper
from mutants.scheduler.scheduler_objects import KEPT_ARGUMENTS, KEPT_RESULTS, PEER_FETCH, ObjectKeeper
from mutants.scheduler.scheduler_provisioning import PROVISIONING, ProvisionerKeeper
from mutants.scheduler.scheduler_state import Client, Peer, Refused, Worker
from mutants.scheduler.scheduler_tasks import TaskKeeper
from mutants.servers.curve_server import CurveServer
from mutants.servers.zmtp_server import Connection, ZmtpServer
from scaler_conformance.codec.schema_codec import SCHEMA, Message, UnreadableMessageError

BOTH = {"Heartbeat", "HeartbeatEcho", "DisconnectRequest", "DisconnectResponse", "Hello",
        "ObjectInstruction", "ObjectRequest", "ObjectResponse"}  # fmt: skip
SENT_BY = {
    "client": BOTH
    | {"ClientShutdown", "Task", "TaskCancel", "GraphTask", "ExplanationRequest", "InfoRequest", "WorkerShutdown"}
    | {"Units", "ReleaseRequest"},
    "worker": BOTH | {"TaskResult", "TaskCancelConfirm", "TaskLog", "BalanceResponse", "TicketRequest"},
}
ANSWERS = {"HeartbeatEcho", "DisconnectResponse", "BalanceResponse", "TaskCancelConfirm", "ObjectResponse"}
MAJOR, MINOR = 1, 0
DRAIN_REQUESTS = "drainRequests"
FAREWELL_SECONDS = 5.0
MAXIMUM_ELEMENTS = 16_384


class ReferenceScheduler(
    SessionKeeper,
    KeyChecks,
    ActorKeeper,
    TaskKeeper,
    GraphKeeper,
    DependantKeeper,
    ObjectKeeper,
    MonitorKeeper,
    ProvisionerKeeper,
):
    """One scheduler.

    Parameters:
        address: where it listens.
        variant: how it is configured; see features.py.
        keys: the folder of its keys, which it then requires.
    """

    server_class: Type[ZmtpServer] = ZmtpServer
    keyed_server_class: Type[CurveServer] = CurveServer
    short_timeout_seconds = 0.4  # for short deadlines of cases

    def __init__(self, address: str, variant: str = "", keys: str = "") -> None:
        super().__init__()
        self.is_protected = variant == "protected"
        self.timeout_seconds = self.short_timeout_seconds if variant == "short-timeout" else 60.0
        self.interval_milliseconds = 100 if variant == "short-timeout" else 2000
        self.handshake_seconds = 0.3 if variant == "short-handshake" else 30.0
        self.unread_limit = 16 << 20 if variant == "little-unread" else 1 << 30
        if variant == "small-limits":
            self.tasks_limit, self.bytes_limit = 16, 256 * 1024
        self.message_limit = 80 << 20
        self.server = self.make_server(address, keys)
        if keys:
            self.publish_at(f"ipc://{keys}/monitor")
        self.sessions: Dict[Connection, Peer] = {}
        self.next_number = 1000
        self.exit_code: Optional[int] = None
        self.shutdown_ends: Optional[float] = None
        self.wake_reader, self.wake_writer = socket.socketpair()
        self.wake_reader.setblocking(False)
        self.server.watch(self.wake_reader)
        self.is_terminated = self.has_new_keys = False

    def make_server(self, address: str, keys: str) -> ZmtpServer:
        if keys:
            return self.keyed_server_class(address, 64 << 20, self.message_limit, keys)
        return self.server_class(address, 64 << 20, self.message_limit)

    # The loop -------------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Serve until told to stop; the exit code."""
        try:
            while self.exit_code is None:
                self.turn()
        finally:
            self.server.close()
            self.close_objects()
            self.close_monitors()
            self.wake_reader.close()
            self.wake_writer.close()
        return self.exit_code

    def turn(self) -> None:
        for connection, frames in self.server.poll(0.05):
            if frames is None:
                self.on_connection_end(connection)
            elif not connection.is_closed:
                self.on_frames(connection, frames)
        if self.has_new_keys:
            self.has_new_keys = False
            self.reload_keys()
        self.look_for_silence(time.monotonic())
        self.server.cut_unfinished(self.most_handshake_seconds())
        self.server.cut_unread(self.most_unread_bytes())
        self.settle()
        self.look_after_monitors(time.monotonic())
        self.look_after_provisioners()
        if self.is_terminated and self.shutdown_ends is None:
            self.begin_shutdown()
        self.see_whether_all_left()

    def most_handshake_seconds(self) -> float:
        return self.handshake_seconds

    def most_unread_bytes(self) -> int:
        return self.unread_limit

    def terminate(self) -> None:
        """Ask it to end, from another thread or a signal handler."""
        self.is_terminated = True
        self.wake()

    def reload_soon(self) -> None:
        """Ask it to read its list of keys again, likewise."""
        self.has_new_keys = True
        self.wake()

    def wake(self) -> None:
        try:
            self.wake_writer.send(b".")
        except OSError:
            pass

    def do_soon(self, action: Any) -> None:
        """For launchers that end it by force."""
        action()
        self.terminate()

    # Messages -------------------------------------------------------------------------------------------------------

    def on_frames(self, connection: Connection, frames: List[bytes]) -> None:
        peer = self.sessions.get(connection)
        if peer is not None:
            self.sign_of_life(peer, frames)
            peer.received += 1
        try:
            message = self.read_message(frames)
            if message is None:
                self.on_unknown(connection)
            elif message.type == "Hello":
                self.on_hello(connection, message)
            elif message.type == "DisconnectRequest":
                self.on_disconnect_request(connection, message)
            elif peer is None:
                self.on_message_without_session(connection, message)
            else:
                self.check_role(peer, message)
                self.check_key_of_message(connection, message)
                getattr(self, handler_name(message.type))(peer, message)
        except Refused as refused:
            self.refuse(connection, refused)

    def read_message(self, frames: List[bytes]) -> Optional[Message]:
        """None: a type that a newer minor may have."""
        self.check_frames(frames)
        try:
            self.check_segments(frames[0])
            type_, fields = self.decode(frames[0])
        except UnreadableMessageError as error:
            return self.on_unreadable(str(error))
        self.check_elements(fields)
        return None if type_ == UNKNOWN else Message(type_, fields, b"".join(frames[1:2]))

    def decode(self, frame: bytes) -> Tuple[str, Dict[str, Any]]:
        return decode(frame, 2 * (len(frame) // 8) + 1024)

    def check_elements(self, fields: Dict[str, Any]) -> None:
        lists = [each for each in fields.values() if isinstance(each, list)]
        if sum(len(each) for each in lists if each and not isinstance(each[0], (int, float))) > MAXIMUM_ELEMENTS:
            raise Refused("malformed", "too many structs and texts")

    def check_segments(self, frame: bytes) -> None:
        check_table(frame)

    def check_frames(self, frames: List[bytes]) -> None:
        if len(frames) > 2:
            raise Refused("malformed", "more than two frames")

    def on_unreadable(self, reason: str) -> Optional[Message]:
        raise Refused("malformed", reason)

    def on_unknown(self, connection: Connection) -> None:
        """Ignored."""

    def check_role(self, peer: Peer, message: Message) -> None:
        if message.type not in SENT_BY[peer.role]:
            raise Refused("protocolViolation", f"a {peer.role} does not send {message.type}")

    def on_message_without_session(self, connection: Connection, message: Message) -> None:
        if message.type not in ANSWERS:
            raise Refused("notGreeted", "say Hello first")

    def refuse(self, connection: Connection, refused: Refused) -> None:
        self.send_to(connection, "Refusal", reason=refused.reason, message=str(refused), **self.versions())
        self.end_refused(connection)

    def end_refused(self, connection: Connection) -> None:
        self.end_session(connection)

    def versions(self) -> Dict[str, Any]:
        return {"major": MAJOR, "minorMin": MINOR, "minorMax": MINOR}

    def send_to(self, connection: Connection, type_: str, payload: bytes = b"", **fields: Any) -> None:
        self.server.send(connection, self.frames_of(type_, payload, fields))

    def frames_of(self, type_: str, payload: bytes, fields: Dict[str, Any]) -> List[bytes]:
        return [SCHEMA.encode(type_, fields), *([payload] if payload else [])]

    def send(self, peer: Optional[Peer], type_: str, payload: bytes = b"", **fields: Any) -> None:
        if peer is not None and not peer.is_gone:
            frames = self.frames_of(type_, payload, self.with_count(peer, type_, fields))
            self.keep_sent(peer, type_, frames)
            self.server.send(peer.connection, frames)

    # Sessions -------------------------------------------------------------------------------------------------------

    def on_hello(self, connection: Connection, hello: Message) -> None:
        self.check_key_of_hello(connection, hello)
        self.check_major(hello)
        self.check_minors(hello)
        self.check_hello_role(hello)
        if hello.role == "worker":
            self.check_slots(hello)
        self.check_amounts(hello)
        self.check_shutting_down()
        if self.resumes(connection, hello):
            return
        self.end_before_hello(connection)
        number = self.new_number()
        peer = (Worker if hello.role == "worker" else Client)(connection, hello, number)
        self.sessions[connection] = peer
        self.welcome(peer)
        if isinstance(peer, Worker):
            self.workers.append(peer)

    def check_major(self, hello: Message) -> None:
        if hello.major != MAJOR:
            raise Refused("versionMismatch", f"this is major version {MAJOR}")

    def check_minors(self, hello: Message) -> None:
        if not hello.minorMin <= MINOR <= hello.minorMax:
            raise Refused("versionMismatch", f"this is minor version {MINOR}")

    def check_hello_role(self, hello: Message) -> None:
        if hello.role not in ("client", "worker"):
            raise Refused("roleNotServed", hello.role)

    def check_slots(self, hello: Message) -> None:
        if not hello.slots:
            raise Refused("protocolViolation", "a worker without slots")

    def check_amounts(self, hello: Message) -> None:
        for each in hello.capabilities:
            if not 0 <= each.amount < math.inf:
                raise Refused("malformed", f"the amount of {each.name}")

    def check_shutting_down(self) -> None:
        if self.shutdown_ends is not None:
            raise Refused("shuttingDown", "try later")

    def end_before_hello(self, connection: Connection) -> None:
        self.end_session(connection, left=True)

    def new_number(self) -> int:
        self.next_number += 1
        return self.next_number

    def welcome(self, peer: Peer) -> None:
        peer.connection.has_session = True
        self.send(peer, "Welcome", **{**self.welcome_fields(peer), **self.token_fields(peer)})

    def welcome_fields(self, peer: Peer) -> Dict[str, Any]:
        return {
            "major": MAJOR,
            "minor": self.agreed_minor(peer.hello),
            "implementation": {"name": "reference scheduler", "version": "1", "language": "Python"},
            "schedulerId": b"0123456789abcdef",
            "session": peer.number,
            "features": [
                "predecessors",
                "actors",
                KEPT_RESULTS,
                KEPT_ARGUMENTS,
                PEER_FETCH,
                DRAIN_REQUESTS,
                PROVISIONING,
            ]
            + [RESUME] * (RESUME in peer.hello.features),
            "limits": {
                "maximumMessageBytes": self.message_limit,
                "maximumObjectBytes": self.object_limit,
                "chunkBytes": self.chunk_bytes,
                "inlineBytes": 64 * 1024,
                "tasksInFlight": self.tasks_limit,
                "bytesInFlight": self.bytes_limit,
            },
            "heartbeatIntervalMilliseconds": self.interval_milliseconds,
            "timeoutMilliseconds": int(self.timeout_seconds * 1000),
            "objectDirectory": self.directory(),
            "objectDirectoryToken": self.token,
            "protected": self.is_protected,
            "monitorAddress": self.monitor_address,
        }

    def agreed_minor(self, hello: Message) -> int:
        return min(int(hello.minorMax), MINOR)

    def end_session(self, connection: Connection, left: bool = False) -> None:
        peer = self.sessions.pop(connection, None)
        if peer is None:
            return
        peer.is_gone = True
        if isinstance(peer, Worker):
            self.workers.remove(peer)
            self.take_back_tickets(peer)
            self.on_worker_gone(peer, left)
        elif isinstance(peer, Client):
            self.on_client_gone(peer)
        self.let_go_all(peer)

    def on_connection_end(self, connection: Connection) -> None:
        self.end_session(connection)

    def on_disconnect_request(self, connection: Connection, message: Message) -> None:
        peer = self.sessions.get(connection)
        if isinstance(peer, Worker) and message.reason == "draining" and self.drains_on_request(peer):
            self.send_away(peer, True)
            return
        self.end_session(connection, left=True)
        self.send_to(connection, "DisconnectResponse")

    def drains_on_request(self, worker: Worker) -> bool:
        return DRAIN_REQUESTS in worker.hello.features

    def on_disconnect_response(self, peer: Peer, message: Message) -> None:
        self.end_session(peer.connection, left=True)

    def on_heartbeat(self, peer: Peer, message: Message) -> None:
        self.acknowledge(peer, message.received)
        if isinstance(peer, Worker):
            peer.suspended = sum(each.suspended for each in message.processors)
        slots = sum(each.slots for each in self.workers)
        fields = {"sequence": message.sequence, "slots": slots, "tasksWaiting": len(self.queue)}
        if isinstance(peer, Worker):
            fields["isWatched"] = self.is_watched(peer)
        self.send(peer, "HeartbeatEcho", **fields)

    def on_heartbeat_echo(self, peer: Peer, message: Message) -> None:
        self.acknowledge(peer, message.received)

    def close_connection(self, connection: Connection) -> None:
        self.server.close_connection(connection)

    def sign_of_life(self, peer: Peer, frames: Sequence[bytes]) -> None:
        peer.last_heard = time.monotonic()

    def look_for_silence(self, now: float) -> None:
        for peer in list(self.sessions.values()):
            if now - peer.last_heard > self.timeout_seconds:
                self.on_silence(peer)

    def on_silence(self, peer: Peer) -> None:
        self.refuse(peer.connection, Refused("notGreeted", "nothing was heard for too long"))

    # Questions and the end ------------------------------------------------------------------------------------------

    def on_explanation_request(self, peer: Peer, message: Message) -> None:
        self.send(peer, "Explanation", requestId=message.requestId, text="It waits for a worker.")

    def on_info_request(self, peer: Peer, message: Message) -> None:
        self.send(peer, "Info", **self.info(message))

    def info(self, request: Message) -> Dict[str, Any]:
        workers = [each for each in self.sessions.values() if isinstance(each, Worker)]
        return {
            "requestId": request.requestId,
            "clients": len(self.sessions) - len(workers),
            "workerCount": len(workers),
            "slots": sum(each.slots for each in workers),
            "slotsFree": sum(max(0, each.slots - len(each.held)) for each in workers),
            "tasksRunning": sum(len(each.held) for each in workers),
            "workers": [
                {"name": each.hello.name, "slots": each.slots, "tasks": len(each.held)}
                for each in workers[: request.maximumWorkers]
            ],
            "actorCount": len(self.living()),
            "actors": [self.describe_actor(each) for each in self.living()[: request.maximumActors]],
        }

    def on_client_shutdown(self, peer: Peer, message: Message) -> None:
        accepted = not self.is_protected and self.may_stop(peer.connection)
        self.send(peer, "ClientShutdownResponse", accepted=accepted)
        if accepted:
            self.begin_shutdown()

    def on_worker_shutdown(self, peer: Peer, message: Message) -> None:
        found = self.find_worker(message)
        accepted = self.obeys(message) and self.may_stop(peer.connection) and len(found) == 1
        text = "" if accepted else "the scheduler is protected, or there is not one such worker"
        self.send(peer, "WorkerShutdownResponse", requestId=message.requestId, accepted=accepted, message=text)
        if accepted:
            self.send_away(found[0], message.isDraining)

    def obeys(self, message: Message) -> bool:
        return message.isDraining or not self.is_protected

    def find_worker(self, message: Message) -> List[Worker]:
        if message.session:
            return [each for each in self.workers if each.number == message.session]
        return [each for each in self.workers if each.hello.name == message.name != ""]

    def send_away(self, worker: Worker, is_draining: bool) -> None:
        worker.is_leaving = True
        self.send(worker, "DisconnectRequest", reason="draining" if is_draining else "shutdown")

    def begin_shutdown(self) -> None:
        self.shutdown_ends = time.monotonic() + FAREWELL_SECONDS
        for peer in list(self.sessions.values()):
            self.send(peer, "DisconnectRequest", reason="shutdown")
            if isinstance(peer, Worker):
                peer.is_leaving = True
            else:
                self.end_session(peer.connection)

    def see_whether_all_left(self) -> None:
        if self.shutdown_ends is not None and self.exit_code is None:
            unsent = any(each.unsent for each in self.server.connections.values())
            if not (self.workers or unsent) or time.monotonic() > self.shutdown_ends:
                self.exit_code = 0


def main(peer: Type[ReferenceScheduler] = ReferenceScheduler) -> int:
    scheduler = peer(*sys.argv[1:3])
    signal.signal(signal.SIGTERM, lambda *_: scheduler.terminate())
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    return scheduler.run()


if __name__ == "__main__":
    sys.exit(main())
