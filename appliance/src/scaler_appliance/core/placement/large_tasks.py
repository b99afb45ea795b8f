"""Which workers get large tasks, and when these wait apart from others.

    next task of a class is large ──▶ workers with room for it ──▶ it goes there
                                          none ──▶ its batch goes to the class of its function's large tasks

Rules:
- A worker with room, but without credit for a long task, gets no others until it has: as with any long task.
- If the class of its function waits for memory, no worker is looked at for the next batch of these either.
- After one that goes behind other tasks, as no host with a free slot has room, the free slots are offered to the next.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import Dict, List, Mapping, Optional, Tuple

from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.placement.able_workers import AbleWorkers
from scaler_appliance.core.placement.free_slots import NO_BOUNDS, FreeSlots
from scaler_appliance.core.placement.memory_room import ENOUGH_HOSTS, LOOKED_AT, MemoryRoom
from scaler_appliance.core.placement.prices import Prices
from scaler_appliance.core.placement.ready_class import ReadyClass
from scaler_appliance.core.placement.workers_with_room import WorkersWithRoom
from scaler_appliance.core.state import SchedulerState


class LargePlacement:
    """
    Attributes:
        apart: tasks that were moved from the current class to another one.
    """

    def __init__(
        self,
        state: SchedulerState,
        memory: MemoryRoom,
        free_slots: FreeSlots,
        able: AbleWorkers,
        workers: WorkersWithRoom,
    ) -> None:
        self.apart = 0
        self._state = state
        self._memory = memory
        self._free_slots = free_slots
        self._able = able
        self._workers = workers
        self._has_room = False  # some worker
        self._before = 0  # tasks of the class
        self._looked_at = 0  # hosts, before that
        self._need_behind = 0.0  # bytes of the large task that was last offered to workers without a free slot

    def begin(self, ready_class: ReadyClass) -> None:
        """Tasks of a class are placed now."""
        self._has_room, self._before = False, ready_class.count
        self._need_behind, self._looked_at = 0.0, self._memory.looked_at

    def _end(self, ready_class: ReadyClass) -> None:
        """All workers were offered what is left of the class."""
        if ready_class.requirement.is_large and not (self._has_room or ready_class.count < self._before):
            self._memory.note_without(ready_class, bool(self._workers.idle))

    def workers_for(
        self,
        ready_class: ReadyClass,
        candidates: Dict[int, WorkerSession],
        is_distant: Optional[bool],
        prices: Prices,
        need: float,
    ) -> Tuple[List[WorkerSession], Mapping[int, int]]:
        """The candidates that have the memory for the next task, which is large; and how many each may get."""
        batch = ready_class.next_batch()
        apart = None if batch is None or ready_class.requirement.is_large else self._state.ready.large_class_of(batch)
        if apart is not None and not self._memory.is_looked_at(apart):
            return [], NO_BOUNDS
        looked_at = self._memory.looked_at
        self._need_behind = 0.0 if candidates is self._workers.idle else need
        able = self._able.of(candidates, ready_class, is_distant)
        most_here: Mapping[int, int]
        if candidates is self._workers.idle:
            freed = {number: candidates[number] for number in self._memory.freed if number in candidates}
            self._memory.freed.clear()
            first = self._able.of(freed, ready_class, is_distant) if freed else iter(())
            workers, most_here = self._free_slots.choose_large(chain(first, able), ready_class, prices, need)
            if not workers:
                self._workers.rotate(LOOKED_AT)
        else:
            workers = [each for each in islice(able, LOOKED_AT) if self._memory.has_room(each, need)][:ENOUGH_HOSTS]
            most_here = {each.number: 1 for each in workers}
        self._able.compared += self._memory.looked_at - looked_at
        self._has_room |= bool(workers)
        return workers, most_here

    def has_gone_behind(self, ready_class: ReadyClass) -> bool:
        """Whether a large task went behind others, and what is next may have room at free slots."""
        return self._need_behind > 0 and self._memory.need_of_next(ready_class) != self._need_behind

    def make_way(self, ready_class: ReadyClass) -> int:
        """If large tasks kept others of the class from free slots, these come next; returns how many hosts, or spans,
        were looked at, 0: it is not so."""
        if self.has_gone_behind(ready_class):
            return max(1, self._memory.looked_at - self._looked_at)
        batch = ready_class.batch_of_turn()
        if batch is None or ready_class.requirement.is_large or not self._state.memory_needs.of(batch):
            self._end(ready_class)
            return 0
        count = ready_class.count
        looked_at = self._state.ready.set_large_apart(batch)
        self.apart += count - ready_class.count
        return looked_at
