"""Sessions that go on over another connection, at the simulated scheduler: what its shell does.

Rules:
- The core sees none of it: a peer keeps its name, and a token is neither in what the core gets nor in what it sends.
- All that is sent in such a session arrives once and in order, whichever connections it takes: see `LinkJudge`.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any, Deque, Dict, Optional, Set, Tuple

from scaler_protocol.session.resumable_sessions import (
    TOKEN_BYTES,
    CannotResume,
    Outdated,
    ResumableSessions,
    Resumed,
)
from scaler_protocol.wire import messages as m
from scaler_protocol.wire.codec import decode, encode

if TYPE_CHECKING:
    from whole_system.network import Network
    from whole_system.simulated_world import World

MOST_KEPT_BYTES = (1 << 26, 1 << 26, 20_000)
MOST_KEPT_BYTES_OF_ALL = (1 << 28, 1 << 28, 30_000)
UNTOLD_BYTES = (1 << 22, 2000)


class LinkJudge:
    """All that is sent in a session that can be resumed arrives as it was sent, once and in order.

    The code counts messages; here they are compared.
    """

    def __init__(self) -> None:
        self._under_way: Dict[Tuple[str, int, bool], Deque[Tuple[bytes, bytes]]] = {}
        self._unkept: Set[Tuple[str, int, bool]] = set()  # of which the sender keeps nothing

    def on_sent(self, peer: str, session: int, is_up: bool, frames: Tuple[bytes, bytes]) -> None:
        self._under_way.setdefault((peer, session, is_up), deque()).append(frames)

    def on_arrived(self, peer: str, session: int, is_up: bool, frames: Tuple[bytes, bytes]) -> None:
        key = peer, session, is_up
        way = self._under_way.get(key)
        # SCL-SES-036: who says so before its Welcome keeps nothing of what it sends, as that session is not resumed.
        if way is None and (key in self._unkept or isinstance(decode(frames[0]), m.DisconnectRequest)):
            self._unkept.add(key)
            return
        sent = way.popleft() if way else None
        if sent != frames:  # only then is there anything to say
            where = f"{'from' if is_up else 'at'} {peer} in session {session}"
            assert sent is not None, f"a message arrives twice, or was not sent, {where}: {decode(frames[0])!r:.200}"
            text = f"{decode(frames[0])!r:.200} instead of {decode(sent[0])!r:.200}"
            raise AssertionError(f"messages are lost or out of order {where}: {text}")


class ResumedSessions:
    """Parameters:
    generation: of the scheduler.
    """

    def __init__(self, world: World, network: Network, generation: int) -> None:
        chance = Random(f"resumed: {world.plan.seed} {generation}")
        self.is_there = world.rates["resume"] > 0.0
        self._world, self._network = world, network
        self._sessions = ResumableSessions(
            lambda: chance.randbytes(TOKEN_BYTES),
            chance.choice(MOST_KEPT_BYTES),
            chance.choice(MOST_KEPT_BYTES_OF_ALL),
            chance.choice(UNTOLD_BYTES),
        )

    def on_message(self, name: bytes, message: Any, size: int, has_session: bool, is_stopping: bool) -> Optional[bytes]:
        """A message has come; returns the name of a newcomer whose connection has another name now, or of a peer that
        is gone."""
        if not self.is_there:
            return None
        if isinstance(message, m.Hello) and not has_session:
            return self._on_hello(name, message, is_stopping)
        session = self._sessions.find(name)
        if session is not None:
            session.on_received(1, size)
            if isinstance(message, (m.Heartbeat, m.HeartbeatEcho)):
                session.acknowledge(message.received)
            self._exchange_counts(name)
        return None

    def _on_hello(self, name: bytes, hello: m.Hello, is_stopping: bool) -> Optional[bytes]:
        if is_stopping:
            hello.previous_session = 0
        key = self._network.connections[name].peer.name.encode()
        judgement = self._sessions.on_hello(name, key, hello)
        assert not hello.resume_token, "a token reaches the core"
        if isinstance(judgement, Resumed):
            session = judgement.session
            self._world.say("session", session.welcome.session, "goes on")
            self._network.take_over(session.peer, name)
            self._network.send_down(session.peer, encode(judgement.welcome), b"")
            for frames in session.log.rest():
                self._network.send_down(session.peer, bytes(frames[0]), bytes(frames[1]))
            return name
        if isinstance(judgement, Outdated):
            return name
        if isinstance(judgement, CannotResume):
            self._world.say("session", judgement.session.welcome.session, "cannot go on")
            return judgement.session.peer
        return None

    def _exchange_counts(self, name: bytes) -> None:
        session = self._sessions.find(name)
        if session is not None and session.is_count_due:
            self._send(name, m.Heartbeat(received=session.count()), b"")

    def send(self, name: bytes, message: Any, payload: bytes) -> bytes:
        """The core sends a message; returns its bytes on the wire."""
        if not self.is_there or name not in self._network.connections:
            header = encode(message)
            self._network.send_down(name, header, payload)
            return header
        session = self._sessions.find(name)
        if isinstance(message, m.Welcome):
            message = self._sessions.begin(name, self._network.connections[name].peer.name.encode(), message)
            header = encode(message)
            self._network.send_down(name, header, payload)
            return header
        if session is not None and isinstance(message, (m.Heartbeat, m.HeartbeatEcho)):
            message.received = session.count()
        header = self._send(name, message, payload)
        self._exchange_counts(name)
        return header

    def _send(self, name: bytes, message: Any, payload: bytes) -> bytes:
        frames: Tuple[bytes, bytes] = encode(message), payload
        session = self._sessions.find(name)
        if session is not None:
            peer = self._network.connections[name].peer.name
            self._network.judge.on_sent(peer, session.welcome.session, False, frames)
            self._sessions.keep(session, frames)
        self._network.send_down(name, *frames)
        return frames[0]

    def on_arrived(self, name: bytes, frames: Tuple[bytes, bytes]) -> None:
        """The frames of a message, before it is passed on."""
        session = self._sessions.find(name) if self.is_there else None
        if session is not None:
            peer = self._network.connections[name].peer.name
            self._network.judge.on_arrived(peer, session.welcome.session, True, frames)

    def on_gone(self, name: bytes) -> None:
        self._sessions.forget(name)

    def on_forgotten(self, name: bytes) -> None:
        self._sessions.end(name)
