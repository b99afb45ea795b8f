"""In which slot of its worker a processor runs tasks, so that a successor takes the slot of its predecessor.

    heartbeats (who is there), runs (who ended tasks) ─▶ ProcessorSlots ─▶ slot of (worker, process id)

Rules:
- A worker has as many slots as it offers, however many processes it has had.
- A new processor takes the lowest slot whose processors are all gone. While a task waits for nested tasks, a spare
  processor runs in its slot: then two processors share one.
- A processor's slot never changes, so that what was shown stays valid.
- Everything is bounded: only the newest of the processors and workers that are gone are kept.
"""

from __future__ import annotations

from typing import Dict, Iterable, Set

KEPT_PROCESSORS = 256
"""How many processors to keep per worker, in addition to eight per slot."""

KEPT_WORKERS = 2000
"""How many workers that are gone to keep."""

MOST_SLOTS = 4096
"""The limit per worker, because the number that it reports is untrusted."""


class _WorkerSlots:
    def __init__(self, slots: int) -> None:
        self.slots = min(max(1, slots), MOST_SLOTS)
        self.by_process: Dict[int, int] = {}  # the newest last
        self.present: Set[int] = set()
        self.reported: Set[int] = set()  # by the last heartbeat

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
        there = self.reported = {each for each in process_ids if each}
        self.present &= there
        for process_id in sorted(there.difference(self.present)):
            if process_id in self.by_process:
                self.present.add(process_id)
            else:
                self.place(process_id)

    def _forget_oldest(self) -> None:
        oldest = list(self.by_process)[: len(self.by_process) // 2]
        # A worker of another kind may say which processor ran a task, and never which ones are there.
        gone = [each for each in oldest if each not in self.present]
        for process_id in gone or [each for each in oldest if each not in self.reported]:
            del self.by_process[process_id]
            self.present.discard(process_id)


class ProcessorSlots:
    """The slots of all workers, by session."""

    def __init__(self) -> None:
        self._workers: Dict[int, _WorkerSlots] = {}
        self._gone: Dict[int, None] = {}

    def add_worker(self, session: int, slots: int) -> None:
        self._workers.setdefault(session, _WorkerSlots(slots))

    def remove_worker(self, session: int) -> None:
        """A worker is gone; the slots of its processors are kept for a while."""
        if session in self._workers:
            self._gone[session] = None
        while len(self._gone) > KEPT_WORKERS:
            oldest = next(iter(self._gone))
            del self._gone[oldest]
            self._workers.pop(oldest, None)

    def set_present(self, session: int, process_ids: Iterable[int]) -> None:
        """Update the processors of a worker from its last heartbeat."""
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
        """The number of slots of a worker; 1 for one that was never named."""
        worker = self._workers.get(session)
        return 1 if worker is None else worker.slots

    def slot(self, session: int, process_id: int) -> int:
        """The slot of a processor, which may be new."""
        worker = self._workers.get(session)
        return 0 if worker is None or not process_id else worker.place(process_id)

    def processor(self, session: int, slot: int) -> int:
        """The current process of a slot, the newest if there are several; 0 if none is known."""
        worker = self._workers.get(session)
        found = 0
        for process_id, place in worker.by_process.items() if worker is not None else ():
            if place == slot and process_id in worker.present:  # type: ignore[union-attr]
                found = process_id
        return found
