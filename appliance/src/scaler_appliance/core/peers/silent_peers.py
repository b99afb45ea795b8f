"""Peers that have been silent for long: they are probed, and in the end removed.

Rule: all sessions are looked at once a second, but not in one call. A look at one costs little, a probe or a removal as
much as a message.
"""

from __future__ import annotations

from typing import Callable, List

from scaler_appliance.core.peers.sessions import Session
from scaler_appliance.core.state import SchedulerState
from scaler_protocol import messages as m

UNITS_OF_A_PROBE = 16
LOOKS_PER_UNIT = 2


class SilentPeers:
    """Looks for them.

    Parameters:
        is_awaited: whether messages of a session wait for others.
        remove: ends a session that was silent for too long.
    """

    def __init__(
        self, state: SchedulerState, is_awaited: Callable[[Session], bool], remove: Callable[[Session, str], None]
    ) -> None:
        self._state = state
        self._is_awaited = is_awaited
        self._remove = remove
        self._left: List[Session] = []  # that have not been looked at, the next one last

    @property
    def is_unfinished(self) -> bool:
        """Whether `go_on` has more to do."""
        return bool(self._left)

    def begin(self) -> None:
        """Look at all sessions, from now on, unless this is being done."""
        if not self._left:
            self._left = list(self._state.sessions.values())
            self._left.reverse()

    def go_on(self, now: float) -> None:
        """Look at some more."""
        amount = self._state.part * LOOKS_PER_UNIT
        while self._left and amount > 0:
            session = self._left.pop()
            amount -= 1
            if not session.is_gone and self._is_probed(session, now):
                amount -= UNITS_OF_A_PROBE * LOOKS_PER_UNIT

    def _is_probed(self, session: Session, now: float) -> bool:
        """Whether a peer has not been heard of for so long that something was done about it.

        Probing detects a peer whose process died: its connection is gone, which the shell learns by sending.
        """
        if self._is_awaited(session):
            session.last_heard = now  # its heartbeats may wait behind its messages
        silence_seconds = now - session.last_heard
        # SCL-SES-013: it may keep to either
        own_interval_seconds = session.hello.heartbeat_interval_milliseconds / 1000
        interval_seconds = max(own_interval_seconds, session.heartbeat_interval_seconds)
        # SCL-SES-015
        if silence_seconds > session.timeout_seconds:
            self._remove(session, f"no heartbeat for {silence_seconds:.0f} s")
        elif silence_seconds > 1.5 * interval_seconds:
            self._state.send(session.peer, m.Heartbeat())
        else:
            return False
        return True
