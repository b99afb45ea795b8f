"""A scheduler's sessions that can be resumed: their tokens, and what was sent in them.

    Hello without a token ──▶ offered ── Welcome ──▶ begin: a token, and a log
    Hello with a token ─────▶ judge: the session goes on over this connection, or it ends, or it is none of this peer's

Rules:
- Sans-IO, below the core, which sees one session of one peer, whichever connection that has.
- A token is told to its peer only, in Welcome, and compared in constant time. It counts together with the key of the
  connection: who has stolen one of them cannot resume a session.
- Connections may deliver late what was sent on them: only a later attempt than all before resumes a session.
- A wrong token leaves the session alone that it was meant for. After the right one, a session that cannot be resumed
  ends: its peer is here, and waits for no more from it.
- What all sessions keep is bounded: beyond that, the one that keeps most forgets it, and cannot be resumed before its
  peer has received all of that.

Source: session.md of the specification, SCL-SES-027 to SCL-SES-034; security.md, SCL-SEC-033.
"""

from __future__ import annotations

from copy import copy
from hmac import compare_digest
from typing import Callable, Dict, NamedTuple, Optional, Union

from scaler_protocol.session.features import RESUME
from scaler_protocol.session.session_log import MAXIMUM_KEPT_BYTES, UNTOLD_BYTES, Frames, SessionLog
from scaler_protocol.wire import messages as m

MAXIMUM_KEPT_BYTES_OF_ALL = 512 * 1024 * 1024
TOKEN_BYTES = 32


class ResumableSession:
    """One of them.

    Parameters:
        peer: its name, which it keeps on every connection.
        key: of the connection on which it began.
        welcome: with the token.
        untold_bytes: kept or received since the last exchange of counts, after which there is another one.
    """

    __slots__ = ("peer", "key", "welcome", "log", "attempt", "received_bytes", "_told_bytes", "_untold_bytes")

    def __init__(self, peer: bytes, key: bytes, welcome: m.Welcome, log: SessionLog, untold_bytes: int) -> None:
        self.peer, self.key, self.welcome, self.log = peer, key, welcome, log
        self._untold_bytes = untold_bytes
        self.attempt = 0  # of its peer to resume it, the last one
        self.received_bytes = 0  # since the peer was told a count
        self._told_bytes = 0  # kept, when it was last asked for a count

    def on_received(self, messages: int, size: int) -> None:
        """Messages have been read, of so many bytes in all."""
        self.log.received += messages
        self.received_bytes += size

    @property
    def is_count_due(self) -> bool:
        """Whether counts are to be exchanged before the next heartbeat."""
        untold = self._untold_bytes
        return self.received_bytes > untold or self.log.kept_bytes - self._told_bytes > untold

    def count(self) -> int:
        """What a message says that is about to be sent, and which is answered with the peer's count."""
        self.received_bytes = 0
        self._told_bytes = self.log.kept_bytes
        return self.log.received

    def acknowledge(self, count: int) -> None:
        """The peer has told its count."""
        self.log.acknowledge(count)
        self._told_bytes = min(self._told_bytes, self.log.kept_bytes)


class Resumed(NamedTuple):
    """The session goes on over the new connection.

    Parameters:
        welcome: to be sent first, and then `session.log.rest()`.
    """

    session: ResumableSession
    welcome: m.Welcome


class CannotResume(NamedTuple):
    """It is the peer of this session, which has to end: not all that is needed was kept."""

    session: ResumableSession


class Outdated(NamedTuple):
    """The peer has tried again since: this connection is of no use to it."""

    session: ResumableSession


Judgement = Union[None, Resumed, CannotResume, Outdated]


class ResumableSessions:
    """Parameters:
    new_token: returns TOKEN_BYTES random bytes.
    most_bytes, most_bytes_of_all: to be kept in one session, and in all of them.
    untold_bytes: see ResumableSession.
    """

    def __init__(
        self,
        new_token: Callable[[], bytes],
        most_bytes: int = MAXIMUM_KEPT_BYTES,
        most_bytes_of_all: int = MAXIMUM_KEPT_BYTES_OF_ALL,
        untold_bytes: int = UNTOLD_BYTES,
    ) -> None:
        self._new_token, self._untold_bytes = new_token, untold_bytes
        self._most_bytes, self._most_bytes_of_all = most_bytes, most_bytes_of_all
        self._kept_bytes = 0  # of all sessions, or more: it is counted again when that is too much
        self._by_peer: Dict[bytes, ResumableSession] = {}
        self._by_number: Dict[int, ResumableSession] = {}
        self._offered: Dict[bytes, None] = {}  # peers whose Hello has offered it, and that have no session yet

    def find(self, peer: bytes) -> Optional[ResumableSession]:
        """The session of a peer, if it is one of these."""
        return self._by_peer.get(peer)

    def on_hello(self, peer: bytes, key: bytes, hello: m.Hello) -> Judgement:
        """A peer without a session says Hello: if that names a session, which one it resumes or ends.

        The token is taken out of it: what is below needs none.
        """
        token, hello.resume_token = bytes(hello.resume_token), b""
        self._offered.pop(peer, None)
        if RESUME not in hello.features:
            return None
        self._offered[peer] = None
        session = self._by_number.get(hello.previous_session) if token else None
        # SCL-SEC-033
        if session is None or not compare_digest(token, session.welcome.resume_token):
            return None
        if not compare_digest(key, session.key):
            return None
        # SCL-SES-033
        if hello.resume_attempt <= session.attempt:
            return Outdated(session)
        if not session.log.can_resume(hello.received):
            return CannotResume(session)
        session.attempt = hello.resume_attempt
        session.acknowledge(hello.received)
        del self._offered[peer]
        # SCL-SES-031
        welcome = copy(session.welcome)
        welcome.is_resumed, welcome.received = True, session.count()
        return Resumed(session, welcome)

    def begin(self, peer: bytes, key: bytes, welcome: m.Welcome) -> m.Welcome:
        """A peer gets a session; returns the Welcome to be sent to it."""
        self.end(peer)
        if peer not in self._offered:
            return welcome
        del self._offered[peer]
        # SCL-SES-027
        welcome = copy(welcome)
        welcome.features = [*welcome.features, RESUME]
        welcome.resume_token = self._new_token()
        session = ResumableSession(peer, key, welcome, SessionLog(self._most_bytes), self._untold_bytes)
        self._by_peer[peer] = self._by_number[welcome.session] = session
        return welcome

    def keep(self, session: ResumableSession, frames: Frames) -> None:
        """A message is sent in a session."""
        log = session.log
        before = log.kept_bytes
        log.add(frames)
        self._kept_bytes += log.kept_bytes - before
        if self._kept_bytes > self._most_bytes_of_all:
            self._make_room()

    # SCL-SES-034
    def _make_room(self) -> None:
        sessions = self._by_peer.values()
        self._kept_bytes = sum(each.log.kept_bytes for each in sessions)
        while self._kept_bytes > self._most_bytes_of_all * 3 // 4:
            largest = max(sessions, key=lambda each: each.log.kept_bytes)
            self._kept_bytes -= largest.log.kept_bytes
            largest.log.forget()

    def end(self, peer: bytes) -> None:
        """A peer has no session any more, or is gone."""
        session = self._by_peer.pop(peer, None)
        if session is not None:
            del self._by_number[session.welcome.session]

    def forget(self, peer: bytes) -> None:
        """The connection of a peer has ended."""
        self.end(peer)
        self._offered.pop(peer, None)
