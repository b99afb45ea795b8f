"""Which free slots tasks get, and how many.

    three tasks:    plain worker ■ ■    plain worker ■ □    worker with a GPU □ □
    six tasks:      plain worker ■ ■    plain worker ■ ■    worker with a GPU ■ ■

Rules:
- Large tasks go where memory is left for them (`memory_room`); for them, the other rules hold among those workers.
- What counts otherwise is how many capabilities a worker offers, not which, nor how much: of workers that can run a
  task, all offer what it needs. What all workers offer, such as memory, makes no difference.
- Of workers that offer equally many, the quickest come first.
- The first of the quickest workers with the least that any offers are taken without a look at the others.
- Only the choice among free slots is made here: while others are free, these stay free. What waits, and for what, is
  said in `speeds`.
"""

from __future__ import annotations

from itertools import islice
from types import MappingProxyType
from typing import Iterable, Iterator, List, Mapping, NamedTuple, Tuple

from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.placement.memory_room import MemoryRoom
from scaler_appliance.core.placement.ready_class import ReadyClass
from scaler_appliance.core.placement.speeds import Speeds
from scaler_appliance.core.state import SchedulerState

NO_BOUNDS: Mapping[int, int] = MappingProxyType({})


class ChosenWorkers(NamedTuple):
    """
    Attributes:
        workers: in this order.
        is_sparing: each gets as many as it has free slots, and the last ones none; else all get a share.
        most_here: tasks of a worker, by session, if any are bounded.
    """

    workers: List[WorkerSession]
    is_sparing: bool
    most_here: Mapping[int, int] = NO_BOUNDS


class FreeSlots:
    def __init__(self, state: SchedulerState, speeds: Speeds, memory: MemoryRoom) -> None:
        self._state = state
        self._speeds = speeds
        self._memory = memory

    def choose(self, workers: Iterator[WorkerSession], ready_class: ReadyClass) -> ChosenWorkers:
        """Which workers should get tasks of the class.

        Parameters:
            workers: that can run the tasks, and have a free slot.
        """
        need = self._memory.need_of_next(ready_class) if self._memory.is_known else 0.0
        if need:
            most_here = self._memory.most_for(workers, need)
            roomy = [self._state.workers[number] for number in most_here]
            return ChosenWorkers(sorted(roomy, key=self._price_of), True, most_here)
        if len(self._state.offers) > 1 or self._speeds.differ:
            return ChosenWorkers(*least_to_spare(workers, ready_class.count, min(self._state.offers), self._speeds))
        return ChosenWorkers(list(islice(workers, ready_class.count)), False)  # there are no more tasks

    def _price_of(self, worker: WorkerSession) -> Tuple[int, float]:
        """The least goes first."""
        return len(worker.capabilities), self._speeds.price_of(worker)


def least_to_spare(
    workers: Iterable[WorkerSession], task_count: int, fewest_capabilities: int, speeds: Speeds
) -> Tuple[List[WorkerSession], bool]:
    """Workers with free slots, those with least to spare first, of these the quickest, else in their order; and whether
    these slots suffice.

    Parameters:
        workers: that can run the tasks, and have a free slot.
        fewest_capabilities: that any worker offers.
        speeds: of all workers.
    """
    plain: List[WorkerSession] = []
    others: List[WorkerSession] = []
    free_slots = 0
    for worker in workers:
        if len(worker.capabilities) > fewest_capabilities or speeds.price_of(worker) > speeds.cheapest:
            others.append(worker)
            continue
        plain.append(worker)
        free_slots += worker.slots - worker.assigned
        if free_slots >= task_count:
            return plain, True
    others.sort(key=lambda worker: (len(worker.capabilities), speeds.price_of(worker)))
    return plain + others, free_slots + sum([each.slots - each.assigned for each in others]) >= task_count
