"""Which workers can run the tasks of a class.

Rule: what most tasks need all workers offer, and the answer is kept. Otherwise workers are compared with what the class
needs, one after the other; how many were is counted, so that a call compares a limited number.
"""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, Optional

from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.placement.ready_class import ReadyClass
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.tasks.batches import Needs

MAXIMUM_NEEDS_KNOWN = 1024
CAPABILITIES_PER_UNIT = 8  # of what a class needs


class AbleWorkers:
    """
    Attributes:
        compared: units of work: workers, and for those with many capabilities more.
    """

    def __init__(self, state: SchedulerState) -> None:
        self.compared = 0
        self._state = state
        self._suiting: Dict[Needs, bool] = {}  # whether every worker can run them; emptied when one joins
        self._changes = 0  # of which workers there are

    def on_workers_changed(self) -> None:
        """A worker has come, or gone."""
        self._suiting.clear()
        self._changes += 1

    def is_offered(self, ready_class: ReadyClass) -> bool:
        """Whether any worker could run tasks of the class if it had room."""
        if ready_class.offered != self._changes:
            needs, workers = ready_class.requirement.needs, self._state.workers
            self.compared += len(workers) * (1 + len(needs.capabilities) // CAPABILITIES_PER_UNIT)
            if not any(worker.offers(needs, self._state.now) for worker in workers.values()):
                return False
            if not needs.time_request_seconds:  # which the passing of time changes, too
                ready_class.offered = self._changes
        return True

    def of(
        self, candidates: Dict[int, WorkerSession], ready_class: ReadyClass, is_distant: Optional[bool] = None
    ) -> Iterator[WorkerSession]:
        """The candidates that can take a task of the class now; only those that are distant, or near, if given."""
        needs = ready_class.requirement.needs
        workers: Iterable[WorkerSession] = candidates.values()
        if is_distant is not None:
            workers = [worker for worker in workers if bool(worker.distance_microseconds) == is_distant]
        if self.suit_everyone(needs):
            return iter(workers)
        self.compared += len(candidates) * (1 + len(needs.capabilities) // CAPABILITIES_PER_UNIT)
        now = self._state.now
        return (worker for worker in workers if worker.offers(needs, now) and worker.room_for(needs.capabilities))

    def suit_everyone(self, needs: Needs) -> bool:
        """Whether every connected worker can run tasks with these needs: most can, and the answer is kept."""
        if needs.capabilities or needs.time_request_seconds:
            return False
        suit = self._suiting.get(needs)
        if suit is None:
            if len(self._suiting) >= MAXIMUM_NEEDS_KNOWN:
                self._suiting.clear()
            self.compared += len(self._state.workers)
            suit = self._suiting[needs] = all(worker.understands(needs) for worker in self._state.workers.values())
        return suit
