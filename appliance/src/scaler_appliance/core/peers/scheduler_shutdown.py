"""The end of the scheduler: all peers are asked to leave, and it stops when they have, or after a grace period.

Rule: peers are asked in parts. Their answers are handled meanwhile, but no peer is accepted any more.
"""

from __future__ import annotations

from math import inf
from typing import Callable, List, Optional

from scaler_appliance.core.effects import Stop
from scaler_appliance.core.peers.sessions import ClientSession, Session
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.state import SchedulerState
from scaler_protocol import messages as m

GRACE_SECONDS = 5.0
UNITS_OF_A_PEER = 16


class SchedulerShutdown:
    """Ends one scheduler.

    Parameters:
        remove: ends the session of a client.
    """

    def __init__(self, state: SchedulerState, remove: Callable[[Session, str], None]) -> None:
        self._state = state
        self._remove = remove
        self._stops_at: Optional[float] = None
        self._why = ""
        self._left: List[Session] = []  # that have not been asked to leave, the next one last

    @property
    def has_begun(self) -> bool:
        """Whether no peer is accepted any more."""
        return self._stops_at is not None

    @property
    def is_unfinished(self) -> bool:
        """Whether `go_on` has more to do."""
        return bool(self._left)

    def begin(self, now: float, why: str) -> None:
        """Ask the first peers to leave."""
        self._state.log("INFO", f"Scheduler: shutting down: {why}")
        self._stops_at = now + GRACE_SECONDS
        self._why = why
        self._left = list(self._state.sessions.values())
        self._left.reverse()
        self.go_on()

    def go_on(self) -> None:
        """Ask some more peers."""
        for _ in range(min(len(self._left), max(1, self._state.part // UNITS_OF_A_PEER))):
            session = self._left.pop()
            if session.is_gone:
                continue  # with it went the order of its client to shut down, too
            request = m.DisconnectRequest(reason=m.DisconnectReason.SHUTDOWN, message=self._why)
            self._state.send(session.peer, request)
            if isinstance(session, ClientSession):
                self._remove(session, "the scheduler shuts down")
            else:
                session.leaving = True
                self._state.touch_session(session)
        self.stop_if_alone()

    def watch(self, now: float) -> None:
        """Stop if peers were given time enough."""
        if self._stops_at is not None and now >= self._stops_at:
            self._stop("not all workers left in time")

    def stop_if_alone(self) -> None:
        """Stop if all peers have left."""
        sessions = self._state.sessions.values()
        is_asking = self._stops_at is None or self._left
        if not (is_asking or any(isinstance(each, WorkerSession) for each in sessions)):
            self._stop("all peers have left")

    def _stop(self, reason: str) -> None:
        if self._stops_at != inf:
            self._stops_at = inf
            self._state.effects.append(Stop(reason))
