"""A peer of the scheduler, as `connections` sees it: its connection, which may be replaced, and its state."""

from __future__ import annotations

from typing import List, Optional

from scaler_appliance.shell.admission import Caller
from scaler_protocol.host import readiness
from scaler_protocol.host.connection import Connection
from scaler_protocol.session.resumable_sessions import ResumableSession, ResumableSessions
from scaler_protocol.wire import messages as m
from scaler_protocol.wire.codec import encode
from scaler_protocol.wire.secure_zmtp import SecureZmtp
from scaler_protocol.wire.zmtp import Buffer


class PeerConnection:
    """One connection and its state."""

    __slots__ = (
        "name", "label", "origin", "connection", "caller", "hello_deadline", "events", "is_congested", "is_paused",
        "counted_bytes", "is_ending", "session",
    )  # fmt: skip

    def __init__(
        self, name: bytes, label: str, origin: str, connection: Connection, caller: Caller, hello_deadline: float
    ) -> None:
        self.name = name
        self.label = label  # for the log
        self.origin = origin
        self.connection = connection
        self.caller = caller
        self.hello_deadline: Optional[float] = hello_deadline  # None: it has a session
        self.events = readiness.EPOLLIN
        self.is_congested = False
        self.is_paused = False  # it is not read for a while
        self.is_ending = False  # what it has sent is read, and then it is gone
        self.counted_bytes = 0  # of messages that have been sent or received in part
        self.session: Optional[ResumableSession] = None  # if it can be resumed

    @property
    def may_be_answered(self) -> bool:
        """Whether what is sent may reach it: over this connection, or over the next one of its session."""
        return not self.is_ending or self.session is not None

    @property
    def key(self) -> bytes:
        """Its public key; empty: it needs none."""
        protocol = self.caller.protocol
        return protocol.peer_key if isinstance(protocol, SecureZmtp) else b""

    def move_to(self, other: PeerConnection) -> None:
        """It has the connection of another one from now on."""
        self.label, self.origin, self.connection, self.caller = (
            other.label,
            other.origin,
            other.connection,
            other.caller,
        )
        self.events, self.counted_bytes, self.is_ending = other.events, other.counted_bytes, False

    def count_received(self, session: ResumableSession, messages: int, sessions: ResumableSessions) -> None:
        """So many messages of its session have been read now. Raises OSError or MemoryError if it has ended."""
        session.on_received(messages, self.connection.read_bytes)
        if session.is_count_due:
            self.tell_count(session, sessions)

    # SCL-SES-029
    def tell_count(self, session: ResumableSession, sessions: ResumableSessions) -> None:
        """Say how many messages were received, and ask for the same. Raises OSError or MemoryError if it has ended."""
        frames: List[Buffer] = [encode(m.Heartbeat(received=session.count()))]
        sessions.keep(session, frames)
        self.connection.send(frames)

    def send_rest(self, welcome: Buffer) -> None:
        """Its session goes on: send this Welcome, and what it has not received. Raises OSError or MemoryError."""
        self.connection.send([welcome])
        for frames in self.session.log.rest() if self.session is not None else ():
            self.connection.send(frames)
