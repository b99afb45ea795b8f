"""Tasks of a worker that wait there for bytes which others keep. Meanwhile they take no slot.

Rules:
- A task waits from when it is sent until its worker has said of each of these objects that it is there, or is not
  fetched any more; and no longer than until it ends.
- Only what the scheduler itself does not have counts: it is not told when that has arrived.
"""

from __future__ import annotations

from typing import Dict, Set


class AwaitedBytes:
    """Of one worker.

    Attributes:
        waiting: how many tasks wait.
    """

    __slots__ = ("waiting", "_missing", "_tasks")

    def __init__(self) -> None:
        self.waiting = 0
        self._missing: Dict[int, Set[int]] = {}  # objects, by the dispatch of a task that waits, or has waited
        self._tasks: Dict[int, Set[int]] = {}  # dispatches, by object

    def __len__(self) -> int:
        """How many tasks wait, or have waited and not ended."""
        return len(self._missing)

    def add(self, task: int, object_ids: Set[int]) -> None:
        """A task waits for some objects.

        Parameters:
            task: the number of its dispatch.
        """
        self.waiting += 1
        self._missing[task] = set(object_ids)
        for object_id in object_ids:
            self._tasks.setdefault(object_id, set()).add(task)

    def on_object(self, object_id: int) -> None:
        """An object is there, or will not be."""
        for task in self._tasks.pop(object_id, ()):
            missing = self._missing[task]
            missing.discard(object_id)
            if not missing:
                self.waiting -= 1

    def on_task(self, task: int) -> None:
        """A task has ended."""
        missing = self._missing.pop(task, None)
        if missing:
            self.waiting -= 1
        for object_id in missing or ():
            tasks = self._tasks[object_id]
            tasks.discard(task)
            if not tasks:
                del self._tasks[object_id]

    def check_invariants(self, tasks: Set[int]) -> None:
        """Check that both indexes agree.

        Parameters:
            tasks: the dispatches at the worker.
        """
        assert self._missing.keys() <= tasks, "tasks wait for bytes that are not there any more"
        pairs = {(task, object_id) for task, missing in self._missing.items() for object_id in missing}
        assert pairs == {(task, object_id) for object_id, tasks in self._tasks.items() for task in tasks}
        assert self.waiting == sum(map(bool, self._missing.values()))
        assert all(self._tasks.values())
