"""How the reference peers and the reference scheduler resume a session on another connection: mixins of theirs.

Rules:
- The first connection is left as it is when the second is opened: a reference need not wait until that is up.
- One method, one duty: so that a mutant can break just that.
"""

from __future__ import annotations

import hmac
import secrets
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

import zmq

from mutants.scheduler.scheduler_state import Peer
from mutants.servers.zmtp_server import Connection, ZmtpServer
from scaler_conformance.codec.schema_codec import SCHEMA, Message

RESUME = "resume"
MISSED_HEARTBEATS = 3
COUNTED = ("Heartbeat", "HeartbeatEcho")


class Resuming:
    """What both loops have for it."""

    socket: Any
    monitor: Any
    session: int
    welcome: Any
    last_heard: float

    def __init__(self) -> None:
        self.token = b""
        self.unacknowledged: List[Sequence[bytes]] = []
        self.received = self.acknowledged = self.resume_attempts = 0
        self.is_resuming = False
        self.former: List[Tuple[Any, Any]] = []  # connections on which the session was

    # What the loop calls ----------------------------------------------------------------------------------------------

    def begin_counting(self, welcome: Message) -> None:
        """A session has begun."""
        self.stop_resuming()
        if RESUME in welcome.features:
            self.token = welcome.resumeToken

    def stop_resuming(self) -> None:
        """There is no session any more."""
        self.token = b""
        self.unacknowledged.clear()
        self.received = self.acknowledged = self.resume_attempts = 0
        self.is_resuming = False
        self.close_former()

    def close_former(self) -> None:
        for each, monitor in self.former:
            each.disable_monitor()
            monitor.close(0)
            each.close(0)
        self.former.clear()

    def with_count(self, type_: str, fields: Dict[str, Any]) -> Dict[str, Any]:
        """The fields of a message that is about to be sent."""
        return {**fields, "received": self.received_count()} if self.token and type_ in COUNTED else fields

    def received_count(self) -> int:
        return self.received

    def keep_sent(self, frames: Sequence[bytes]) -> bool:
        """Keep what is sent; returns whether it is sent later."""
        if self.token:
            self.unacknowledged.append(frames)
        return self.is_resuming

    def on_received(self, message: Message) -> bool:
        """A message has come; returns whether it is none of the session."""
        if self.is_resuming:
            if message.type == "Welcome":
                self.on_answer(message)
            return True
        if self.token:
            self.received += 1
            if message.type in COUNTED:
                self.acknowledge(message.received)
        return False

    def acknowledge(self, count: int) -> None:
        while self.acknowledged < count and self.unacknowledged:
            self.unacknowledged.pop(0)
            self.acknowledged += 1

    def listen_for_silence(self, now: float, interval_seconds: float) -> None:
        """To be called often."""
        if self.token and now - self.last_heard > MISSED_HEARTBEATS * interval_seconds:
            self.resume()

    # Resuming ---------------------------------------------------------------------------------------------------------

    def resume(self) -> None:
        """Try another connection."""
        self.resume_attempts += 1
        self.former.append((self.socket, self.monitor))
        self.open_connection()
        self.last_heard = time.monotonic()
        self.is_resuming = True
        self.socket.send(SCHEMA.encode("Hello", {**self.hello(), **self.resuming_hello()}), zmq.NOBLOCK)

    def resuming_hello(self) -> Dict[str, Any]:
        return {
            "previousSession": self.session,
            "resumeToken": self.token,
            "received": self.received,
            "resumeAttempt": self.resume_attempts,
        }

    def on_answer(self, welcome: Message) -> None:
        self.close_former()
        self.is_resuming = False
        if welcome.isResumed:
            self.acknowledge(welcome.received)
            self.send_rest()
        else:
            self.end_session()
            self.on_welcome(welcome)

    def send_rest(self) -> None:
        for frames in self.unacknowledged:
            self.socket.send_multipart(frames, zmq.NOBLOCK)

    # What the loop has ------------------------------------------------------------------------------------------------

    def open_connection(self) -> None:
        raise NotImplementedError

    def hello(self) -> Dict[str, Any]:
        raise NotImplementedError

    def end_session(self) -> None:
        raise NotImplementedError

    def on_welcome(self, message: Message) -> None:
        raise NotImplementedError


class SessionKeeper:
    """What was sent in sessions, and how they are resumed."""

    server: ZmtpServer
    sessions: Dict[Connection, Peer]

    # Counting ---------------------------------------------------------------------------------------------------------

    def token_fields(self, peer: Peer) -> Dict[str, Any]:
        """What a Welcome has more for a peer that can resume its session."""
        if not self.offers(peer.hello):
            return {}
        peer.token = secrets.token_bytes(32)
        return {"resumeToken": peer.token}

    def offers(self, hello: Message) -> bool:
        return RESUME in hello.features

    def with_count(self, peer: Peer, type_: str, fields: Dict[str, Any]) -> Dict[str, Any]:
        """The fields of a message that is about to be sent."""
        return {**fields, "received": self.received_count(peer)} if peer.token and type_ in COUNTED else fields

    def received_count(self, peer: Peer) -> int:
        return peer.received

    def keep_sent(self, peer: Peer, type_: str, frames: List[bytes]) -> None:
        if peer.token and type_ != "Welcome":
            peer.kept.append(frames)

    def acknowledge(self, peer: Peer, count: int) -> None:
        while peer.acknowledged < count and peer.kept:
            peer.kept.pop(0)
            peer.acknowledged += 1

    # Resuming ---------------------------------------------------------------------------------------------------------

    def resumes(self, connection: Connection, hello: Message) -> bool:
        """Whether a Hello resumes a session, or is outdated: then it is answered."""
        peer = self.session_of(connection, hello)
        if peer is None:
            return False
        if self.is_outdated(peer, hello):
            self.close_connection(connection)
            return True
        peer.attempt = hello.resumeAttempt
        if not peer.acknowledged <= hello.received <= peer.acknowledged + len(peer.kept):
            self.end_session(peer.connection)
            return False
        self.acknowledge(peer, hello.received)
        self.move(peer, connection)
        return True

    def session_of(self, connection: Connection, hello: Message) -> Optional[Peer]:
        found = [each for each in self.sessions.values() if each.number == hello.previousSession and each.token]
        if not found or not self.is_its_token(found[0], hello) or not self.is_its_key(found[0], connection):
            return None
        return found[0]

    def is_its_token(self, peer: Peer, hello: Message) -> bool:
        return hmac.compare_digest(peer.token, hello.resumeToken)

    def is_its_key(self, peer: Peer, connection: Connection) -> bool:
        keys: Dict[Connection, bytes] = getattr(self.server, "peer_keys", {})
        return keys.get(peer.connection) == keys.get(connection)

    def is_outdated(self, peer: Peer, hello: Message) -> bool:
        return bool(hello.resumeAttempt <= peer.attempt)

    def move(self, peer: Peer, connection: Connection) -> None:
        """The session of a peer is on this connection now."""
        former, peer.connection = peer.connection, connection
        del self.sessions[former]
        self.close_connection(former)
        self.sessions[connection] = peer
        connection.has_session = True
        fields = {**self.welcome_fields(peer), **self.resumed_fields(peer)}
        self.server.send(connection, self.frames_of("Welcome", b"", fields))
        for frames in self.rest(peer):
            self.server.send(connection, frames)

    def resumed_fields(self, peer: Peer) -> Dict[str, Any]:
        return {"resumeToken": peer.token, "isResumed": True, "received": self.received_count(peer)}

    def rest(self, peer: Peer) -> List[List[bytes]]:
        return peer.kept

    # What the scheduler has -------------------------------------------------------------------------------------------

    def close_connection(self, connection: Connection) -> None:
        raise NotImplementedError

    def end_session(self, connection: Connection, left: bool = False) -> None:
        raise NotImplementedError

    def welcome_fields(self, peer: Peer) -> Dict[str, Any]:
        raise NotImplementedError

    def frames_of(self, type_: str, payload: bytes, fields: Dict[str, Any]) -> List[bytes]:
        raise NotImplementedError
