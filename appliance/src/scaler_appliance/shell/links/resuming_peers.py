"""Sessions that go on over another connection, between the connections and the core, which learns nothing of it.

    connections ── messages ──▶ ResumingPeers ──▶ CoreInputs: a Hello that resumes a session is answered here
         ▲                           │
         └──── Welcome, the rest ◀───┘

Rules:
- Neither the core nor a recording gets a token: it is added to a Welcome that is about to be sent, and taken out of a
  Hello that was received.
- A scheduler that is shutting down resumes nothing: such a Hello is refused by the core, like any other.
"""

from __future__ import annotations

import logging
from typing import Callable, List, Optional, Sequence

from scaler_appliance.core.effects import Send
from scaler_appliance.shell.connections import Connections
from scaler_appliance.shell.core_inputs import MAXIMUM_ELEMENTS, CoreInputs, Reception
from scaler_protocol import MalformedMessageError, decode, encode
from scaler_protocol import messages as m
from scaler_protocol.session.resumable_sessions import CannotResume, Outdated, Resumed
from scaler_protocol.wire.zmtp import Buffer

logger = logging.getLogger("scaler")


class ResumingPeers:
    """Parameters:
    is_stopping: whether the scheduler is shutting down.
    """

    def __init__(self, peers: Connections, inputs: CoreInputs, is_stopping: Callable[[], bool]) -> None:
        self._peers, self._inputs, self._is_stopping = peers, inputs, is_stopping
        inputs.on_count = self._on_count

    def frames(self, now: float, peer: bytes, frames: Sequence[bytes]) -> Reception:
        """A peer has sent a message of these frames, which may be wrong."""
        if not self._peers.has_session(peer) and len(frames) == 1:
            found = self._on_first_message(peer, frames)
            if found is None:
                return Reception.NO_WORK
            frames = found
        return self._inputs.frames(now, peer, frames)

    def _on_first_message(self, peer: bytes, frames: Sequence[bytes]) -> Optional[Sequence[bytes]]:
        """What the core gets of a message of a peer without a session; None: nothing."""
        try:
            hello = decode(frames[0], MAXIMUM_ELEMENTS)
        except (MalformedMessageError, MemoryError):
            return frames  # the core answers it
        if not isinstance(hello, m.Hello):
            return frames
        peers, has_token = self._peers, bool(hello.resume_token)
        if has_token and peers.is_ending(peer):
            return None  # its answer would find no connection
        if self._is_stopping():
            hello.previous_session = 0  # of which nothing is left
        judgement = peers.sessions.on_hello(peer, peers.key_of(peer), hello)
        if isinstance(judgement, Resumed):
            session = judgement.session
            rest = session.log.sent - session.log.acknowledged
            text = "Scheduler: session %d goes on over another connection, %d messages are sent again"
            logger.info(text, session.welcome.session, rest)
            peers.take_over(session.peer, peer, encode(judgement.welcome))
            return None
        if isinstance(judgement, Outdated):
            peers.lose(peer, OSError("its peer has connected again since"))
            return None
        if isinstance(judgement, CannotResume):
            peers.lose(judgement.session.peer, OSError("its peer has connected again, and the session cannot go on"))
        return [encode(hello)] if has_token else frames

    def _on_count(self, peer: bytes, count: int) -> None:
        """A Heartbeat or HeartbeatEcho of a peer has come, which says how many messages it has received."""
        session = self._peers.sessions.find(peer)
        if session is not None:
            session.acknowledge(count)

    def send(self, effect: Send) -> None:
        """Send a message of the core."""
        message, peers = effect.message, self._peers
        is_welcome = isinstance(message, m.Welcome)
        if isinstance(message, m.Welcome):
            message = peers.sessions.begin(effect.peer, peers.key_of(effect.peer), message)
        elif isinstance(message, (m.HeartbeatEcho, m.Heartbeat)):
            session = peers.sessions.find(effect.peer)
            if session is not None:
                message.received = session.count()
        try:
            # SCL-TRN-003
            frames: List[Buffer] = [encode(message)]
            if effect.payload:
                frames.append(effect.payload[0] if len(effect.payload) == 1 else b"".join(effect.payload))
        except MemoryError as error:
            peers.lose(effect.peer, error)
            return
        peers.send(effect.peer, frames)
        if is_welcome:
            peers.greet(effect.peer)
