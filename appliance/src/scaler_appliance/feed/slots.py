"""Which slot of its worker a processor runs tasks in, so that a successor stands where its predecessor stood.

    heartbeats (who is there), runs (who ended tasks) ─▶ ProcessorSlots ─▶ slot of (worker, process id)

Rules:
- A worker has as many slots here as it offers, however many processes it has had.
- A processor that is new takes the lowest slot whose processors have all gone. While a task waits for tasks of its own,
  a spare processor runs in its slot: then two share one.
- A slot, once given, stays: what was shown of a processor is never shown otherwise.
- Everything is bounded: of processors that have gone, and of workers that have gone, the newest are kept.
"""

from __future__ import annotations

from typing import Dict, Iterable, Set

KEPT_PROCESSORS = 256
"""Of one worker, beside eight for each of its slots."""

KEPT_WORKERS = 2000
"""That have gone."""

MOST_SLOTS = 4096
"""Of one worker: how many it offers is what it says, and may be nonsense."""


class _WorkerSlots:
    def __init__(self, slots: int) -> None:
        self.slots = min(max(1, slots), MOST_SLOTS)
        self.by_process: Dict[int, int] = {}  # the newest last
        self.present: Set[int] = set()

    def place(self, process_id: int) -> int:
        slot = self.by_process.get(process_id)
        if slot is not None:
            return slot
        taken = [0] * self.slots
        for each in self.present:
            taken[self.by_process[each]] += 1
        slot = taken.index(min(taken))
        self.by_process[process_id] = slot
        self.present.add(process_id)
        if len(self.by_process) > KEPT_PROCESSORS + 8 * self.slots:
            self._forget_oldest()
        return slot

    def keep_only(self, process_ids: Iterable[int]) -> None:
        there = {each for each in process_ids if each}
        self.present &= there
        for process_id in sorted(there.difference(self.present)):
            if process_id in self.by_process:
                self.present.add(process_id)
            else:
                self.place(process_id)

    def _forget_oldest(self) -> None:
        for process_id in list(self.by_process)[: len(self.by_process) // 2]:
            if process_id not in self.present:
                del self.by_process[process_id]


class ProcessorSlots:
    """The slots of all workers, by session."""

    def __init__(self) -> None:
        self._workers: Dict[int, _WorkerSlots] = {}
        self._gone: Dict[int, None] = {}

    def add_worker(self, session: int, slots: int) -> None:
        self._workers.setdefault(session, _WorkerSlots(slots))

    def remove_worker(self, session: int) -> None:
        """It has gone; where its processors ran is known for a while."""
        if session in self._workers:
            self._gone[session] = None
        while len(self._gone) > KEPT_WORKERS:
            oldest = next(iter(self._gone))
            del self._gone[oldest]
            self._workers.pop(oldest, None)

    def set_present(self, session: int, process_ids: Iterable[int]) -> None:
        """These are all processors of a worker, by its last heartbeat."""
        worker = self._workers.get(session)
        if worker is not None:
            worker.keep_only(process_ids)

    def end_processor(self, session: int, process_id: int) -> None:
        """A processor ended together with its task."""
        worker = self._workers.get(session)
        if worker is not None:
            worker.place(process_id)
            worker.present.discard(process_id)

    def slots(self, session: int) -> int:
        """How many a worker has; 1 for one that was never named."""
        worker = self._workers.get(session)
        return 1 if worker is None else worker.slots

    def slot(self, session: int, process_id: int) -> int:
        """Where a processor runs, which may be heard of for the first time."""
        worker = self._workers.get(session)
        return 0 if worker is None or not process_id else worker.place(process_id)

    def processor(self, session: int, slot: int) -> int:
        """The process that is there now, the newest if there are several; 0: none is known."""
        worker = self._workers.get(session)
        found = 0
        for process_id, place in worker.by_process.items() if worker is not None else ():
            if place == slot and process_id in worker.present:  # type: ignore[union-attr]
                found = process_id
        return found
