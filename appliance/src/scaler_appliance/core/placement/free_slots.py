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
  said in `speeds` and in `memory_room`.
"""

from __future__ import annotations

from itertools import islice
from types import MappingProxyType
from typing import Iterator, List, Mapping, NamedTuple, Tuple

from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.placement.memory_room import MemoryRoom
from scaler_appliance.core.placement.prices import Prices
from scaler_appliance.core.placement.ready_class import ReadyClass
from scaler_appliance.core.state import SchedulerState

NO_BOUNDS: Mapping[int, int] = MappingProxyType({})


class ChosenWorkers(NamedTuple):
    """
    Attributes:
        workers: in this order.
        is_sparing: each gets as many as it has free slots, and the last ones none; else all get a share.
    """

    workers: List[WorkerSession]
    is_sparing: bool


class FreeSlots:
    def __init__(self, state: SchedulerState, memory: MemoryRoom) -> None:
        self._state = state
        self._memory = memory

    def choose(self, workers: Iterator[WorkerSession], ready_class: ReadyClass, prices: Prices) -> ChosenWorkers:
        """Which workers should get tasks of the class.

        Parameters:
            workers: that can run the tasks, and have a free slot.
            prices: for the next of these tasks.
        """
        if len(self._state.offers) > 1 or prices.differ:
            count = ready_class.count if prices.are_usual else ready_class.run_of_turn()
            return self._least_to_spare(workers, count, prices)
        return ChosenWorkers(list(islice(workers, ready_class.count)), False)  # there are no more tasks

    def choose_large(
        self, workers: Iterator[WorkerSession], ready_class: ReadyClass, prices: Prices, need: float
    ) -> Tuple[List[WorkerSession], Mapping[int, int]]:
        """The same where the next task needs so many bytes; and how many each should get at most."""
        most_here = self._memory.most_for(workers, ready_class, need)
        return _ranked([self._state.workers[number] for number in most_here], prices), most_here

    def _least_to_spare(self, workers: Iterator[WorkerSession], task_count: int, prices: Prices) -> ChosenWorkers:
        """Those with least to spare first, of these the quickest, else in their order; sparing if the slots suffice."""
        fewest, cheapest = min(self._state.offers), prices.cheapest
        plain: List[WorkerSession] = []
        others: List[WorkerSession] = []
        free_slots = 0
        for worker in workers:
            if len(worker.capabilities) > fewest or prices.of(worker) > cheapest:
                others.append(worker)
                continue
            plain.append(worker)
            free_slots += worker.slots - worker.assigned
            if free_slots >= task_count:
                return ChosenWorkers(plain, True)
        free_slots += sum([each.slots - each.assigned for each in others])
        return ChosenWorkers(plain + _ranked(others, prices), free_slots >= task_count)


def _ranked(workers: List[WorkerSession], prices: Prices) -> List[WorkerSession]:
    """Workers, those that offer least first, of these the quickest."""
    return sorted(workers, key=lambda worker: (len(worker.capabilities), prices.of(worker)))
