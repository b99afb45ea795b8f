"""How much work a distant worker gets: enough while messages travel, and none for which the others would have to wait.

    near workers:    |----- what they hold -----|------ their part of the rest ------|
    distant worker:  |-- to it --|-- what it gets, of the rest --|-- its results ----|   ends no later

Rules:
- Half of what it holds, when it is refilled, lasts for a message there and one back. So it holds twice that, and what
  all workers hold, for each slot.
- When little is left, it gets only what it will have done when the near workers have done the remainder. Of short tasks
  that may be nothing. A task that takes longer than the way there and back is worth the way.
- Estimates may be wrong: the near workers may be busy for long with what they hold. If nothing was placed there for as
  long as the way takes, distant workers get what is left.
- Without a near worker that can run the tasks there is no such limit.
"""

from __future__ import annotations

from typing import Dict

from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.state import SchedulerState


class Distance:
    """Which workers are distant.

    Attributes:
        is_known: whether any is.
    """

    def __init__(self, state: SchedulerState) -> None:
        self.is_known = False
        self._state = state
        self._workers: Dict[int, WorkerSession] = {}
        self._placed_near_at = 0.0  # when a near worker got tasks, by the caller's clock

    def update(self, worker: WorkerSession) -> None:
        """A worker has become distant, or near."""
        if worker.distance_microseconds:
            self._workers[worker.number] = worker
            self.is_known = True
        else:
            self.remove(worker)

    def remove(self, worker: WorkerSession) -> None:
        """A worker has gone, or has become near."""
        self._workers.pop(worker.number, None)
        self.is_known = bool(self._workers)

    def on_placed_near(self) -> None:
        """A near worker has got tasks."""
        self._placed_near_at = self._state.now

    def target_microseconds(
        self,
        worker: WorkerSession,
        usual_microseconds: float,
        rest_microseconds: float,
        estimate_microseconds: float,
        suits_everyone: bool,
    ) -> float:
        """How much a distant worker should hold for each slot.

        Parameters:
            usual_microseconds: what others hold.
            rest_microseconds: the work of the tasks that wait.
            estimate_microseconds: of one of them.
            suits_everyone: whether all workers can run them.
        """
        round_trip_microseconds = worker.distance_microseconds
        wanted_microseconds = usual_microseconds + 2.0 * round_trip_microseconds
        distant_slots = sum([each.slots for each in self._workers.values()]) or 1
        near_slots = self._state.total_slots - distant_slots
        if near_slots <= 0 or not suits_everyone:
            return wanted_microseconds
        slots = near_slots + distant_slots
        if estimate_microseconds >= round_trip_microseconds:
            return min(wanted_microseconds, usual_microseconds + rest_microseconds / slots)
        left_microseconds = usual_microseconds * near_slots + rest_microseconds
        share_microseconds = (left_microseconds - round_trip_microseconds * near_slots) / slots
        is_stuck = (self._state.now - self._placed_near_at) * 1e6 > round_trip_microseconds
        if share_microseconds < estimate_microseconds and is_stuck:
            return max(usual_microseconds, estimate_microseconds)
        return min(wanted_microseconds, share_microseconds)
