"""Which workers may get tasks, and why.

    free slot ─▶ idle    free only until bytes are there ─▶ awaiting    little in line ─▶ below_prefetch_target

Rules:
- A worker is in one of these at most. If it has much to do, it is in none of them until it has worked off half of it.
- Besides, it may be among those that fetch ahead, at which tasks are in line for their bytes, or some are blocked.
- One that leaves, or is congested, is in none.
- No others are offered tasks: so the cost of placing follows what has changed, not the number of workers.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import Dict, Iterator

from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.state import SchedulerState


class WorkersWithRoom:
    """
    Parameters:
        target_microseconds: of work that a worker is to have for each slot.

    Attributes:
        idle: have a free slot, longest waiting first.
        awaiting: have none but those of tasks that wait for bytes.
        below_prefetch_target: slots are busy, little is queued behind them.
        fetching_ahead: may have a task more, if they have to fetch for it.
        lined_up: tasks are in line there because of their bytes, however long they take.
        blocked: some of their tasks wait for nested ones.
    """

    def __init__(self, state: SchedulerState, target_microseconds: float) -> None:
        self._state = state
        self._target_microseconds = target_microseconds
        self.idle: Dict[int, WorkerSession] = {}
        self.awaiting: Dict[int, WorkerSession] = {}
        self.below_prefetch_target: Dict[int, WorkerSession] = {}
        self.fetching_ahead: Dict[int, WorkerSession] = {}
        self.lined_up: Dict[int, WorkerSession] = {}
        self.blocked: Dict[int, WorkerSession] = {}

    @property
    def is_any(self) -> bool:
        """Whether any of them can get a task, apart from blocked ones."""
        is_usual = self.idle or self.awaiting or self.below_prefetch_target
        return bool(is_usual or self.fetching_ahead or self.lined_up)

    def of_short_wait(self) -> Iterator[WorkerSession]:
        """Workers with a free slot, then those that have little to do."""
        return chain(self.idle.values(), self.awaiting.values(), self.below_prefetch_target.values())

    def add(self, worker: WorkerSession) -> None:
        """A worker has come."""
        self._let_in(self.idle, worker)

    def remove(self, worker: WorkerSession) -> None:
        """A worker is gone, leaves, or is congested."""
        usual = self.idle, self.awaiting, self.below_prefetch_target
        for candidates in (*usual, self.fetching_ahead, self.lined_up, self.blocked):
            candidates.pop(worker.number, None)

    def on_load_changed(self, worker: WorkerSession) -> None:
        """A worker finished tasks, or its number of free slots changed."""
        if worker.slots > worker.hello.slots:
            self.blocked[worker.number] = worker
        else:
            self.blocked.pop(worker.number, None)
        if self.lined_up and worker.assigned <= worker.slots:
            self.lined_up.pop(worker.number, None)
        if worker.leaving or worker.is_congested:
            return
        if worker.slots_ahead or self.fetching_ahead:
            self._let_fetch_ahead(worker)
        if worker.assigned < worker.slots + worker.slots_given_up:
            self.below_prefetch_target.pop(worker.number, None)
            is_idle = worker.assigned < worker.slots
            (self.awaiting if is_idle else self.idle).pop(worker.number, None)
            self._let_in(self.idle if is_idle else self.awaiting, worker)
            return
        self.idle.pop(worker.number, None)  # its blocked tasks may have resumed and use its slots again
        self.awaiting.pop(worker.number, None)
        target_microseconds = self._target_microseconds + 2.0 * worker.distance_microseconds
        if worker.load_microseconds * 2 < target_microseconds * worker.slots and worker.assigned * 2 <= worker.capacity:
            self._let_in(self.below_prefetch_target, worker)

    def _let_in(self, candidates: Dict[int, WorkerSession], worker: WorkerSession) -> None:
        if worker.has_freed or worker.number not in candidates:
            worker.has_freed = False
            self._state.actors.room_changes += 1  # there may be room for an actor that there was none for before
        candidates[worker.number] = worker

    def on_placed(self, worker: WorkerSession) -> None:
        """A worker with a free slot, also of a task that waits for bytes, has got tasks."""
        if worker.assigned >= worker.slots:
            self.idle.pop(worker.number, None)
            is_full = worker.assigned >= worker.slots + worker.slots_given_up
            (self.awaiting if is_full else self.below_prefetch_target).pop(worker.number, None)
            (self.below_prefetch_target if is_full else self.awaiting)[worker.number] = worker

    def rotate(self, count: int) -> None:
        """Others with a free slot are looked at first from now on."""
        for worker in list(islice(self.idle.values(), count if len(self.idle) > count else 0)):
            self.idle[worker.number] = self.idle.pop(worker.number)

    def on_fetches(self, worker: WorkerSession) -> None:
        """A worker has got a task for which it has to fetch."""
        self.lined_up[worker.number] = worker
        self._let_fetch_ahead(worker)

    def _let_fetch_ahead(self, worker: WorkerSession) -> None:
        if worker.slots_ahead and worker.assigned < worker.slots + worker.slots_ahead:
            self.fetching_ahead[worker.number] = worker
        else:
            self.fetching_ahead.pop(worker.number, None)
