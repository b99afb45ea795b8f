"""Tasks whose objects are not on this host yet. They wait here without blocking other tasks.

Rules:
- A task waits for its missing objects, and goes to the queue when the last of them is here.
- A batch that waits for its function waits as a whole; one whose tasks wait for different things is cut into
  single tasks.
"""

from __future__ import annotations

from typing import Dict, List, Set

from scaler.worker.agent.core.task_queue import HeldTasks


class _Waiting:
    __slots__ = ("batch", "missing")

    def __init__(self, batch: HeldTasks, missing: Set[int]) -> None:
        self.batch = batch
        self.missing = missing


class WaitingTasks:
    """Batches by the objects they wait for."""

    def __init__(self) -> None:
        self.count = 0  # tasks
        self._by_object: Dict[int, List[_Waiting]] = {}

    def add(self, batch: HeldTasks, missing: Set[int]) -> List[HeldTasks]:
        """Let the tasks of a batch that need `missing` objects wait; returns the others."""
        if batch.traits.function in missing or len(batch) == 1:
            self.add_whole(batch, missing)
            return []
        ready = []
        for task in batch.singles():
            needed = missing & task.needed_objects()
            if needed:
                self.add_whole(task, needed)
            else:
                ready.append(task)
        return ready

    def add_whole(self, batch: HeldTasks, missing: Set[int]) -> None:
        """Let all tasks of a batch wait."""
        waiting = _Waiting(batch, set(missing))
        self.count += len(batch)
        for object_id in missing:
            self._by_object.setdefault(object_id, []).append(waiting)

    def arrived(self, object_id: int) -> List[HeldTasks]:
        """An object is here; returns the batches that have all their objects now."""
        ready = []
        for waiting in self._by_object.pop(object_id, ()):
            waiting.missing.discard(object_id)
            if not waiting.missing and len(waiting.batch):
                self.count -= len(waiting.batch)
                ready.append(waiting.batch)
        return ready

    def lost(self, object_id: int) -> List[HeldTasks]:
        """An object cannot be fetched; returns the batches that need it."""
        failed = []
        for waiting in self._by_object.pop(object_id, ()):
            for other in waiting.missing - {object_id}:
                self._forget(other, waiting)
            if len(waiting.batch):
                self.count -= len(waiting.batch)
                failed.append(waiting.batch)
        return failed

    def _forget(self, object_id: int, waiting: _Waiting) -> None:
        others = self._by_object[object_id]
        others.remove(waiting)
        if not others:
            del self._by_object[object_id]

    def remove(self, wanted: Set[int]) -> List[int]:
        """Take tasks out by id; returns those found."""
        found: List[int] = []
        for waiting in {id(entry): entry for entries in self._by_object.values() for entry in entries}.values():
            found += waiting.batch.remove(wanted)
            if not len(waiting.batch):
                for object_id in waiting.missing:
                    self._forget(object_id, waiting)
        self.count -= len(found)
        return found

    def take_all(self) -> List[int]:
        """Take all tasks out; returns their ids."""
        entries = {id(entry): entry for entries in self._by_object.values() for entry in entries}.values()
        ids = [task_id for entry in entries for task_id in entry.batch.ids[entry.batch.start :]]
        self.clear()
        return ids

    def needed_objects(self) -> Set[int]:
        """The objects that waiting tasks need, including those that are already here."""
        return {i for entries in self._by_object.values() for entry in entries for i in entry.batch.needed_objects()}

    def clear(self) -> None:
        self._by_object.clear()
        self.count = 0
