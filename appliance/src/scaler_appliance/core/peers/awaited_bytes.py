"""Tasks of a worker that wait there for bytes which others keep. Meanwhile they take no slot.

Rules:
- A task waits from when it is sent until its worker has said of each of these objects that it is there, or is not
  fetched any more; and no longer than until it ends.
- Only what the scheduler itself does not have counts: it is not told when that has arrived.
"""

from __future__ import annotations

from typing import Dict, Set


class AwaitedBytes:
    """Of one worker."""

    __slots__ = ("_missing", "_tasks")

    def __init__(self) -> None:
        self._missing: Dict[int, Set[int]] = {}  # objects, by the dispatch of the task
        self._tasks: Dict[int, Set[int]] = {}  # dispatches, by object

    @property
    def tasks(self) -> int:
        """How many wait."""
        return len(self._missing)

    def add(self, task: int, object_ids: Set[int]) -> None:
        """A task waits for some objects.

        Parameters:
            task: the number of its dispatch.
        """
        self._missing[task] = set(object_ids)
        for object_id in object_ids:
            self._tasks.setdefault(object_id, set()).add(task)

    def on_object(self, object_id: int) -> bool:
        """An object is there, or will not be; returns whether any task waits no longer."""
        is_any = False
        for task in self._tasks.pop(object_id, ()):
            missing = self._missing[task]
            missing.discard(object_id)
            if not missing:
                del self._missing[task]
                is_any = True
        return is_any

    def on_task(self, task: int) -> bool:
        """A task has ended; returns whether it waited."""
        missing = self._missing.pop(task, None)
        for object_id in missing or ():
            tasks = self._tasks[object_id]
            tasks.discard(task)
            if not tasks:
                del self._tasks[object_id]
        return missing is not None

    def check_invariants(self, tasks: Set[int]) -> None:
        """Check that both indexes agree.

        Parameters:
            tasks: the dispatches at the worker.
        """
        assert self._missing.keys() <= tasks, "tasks wait for bytes that are not there any more"
        pairs = {(task, object_id) for task, missing in self._missing.items() for object_id in missing}
        assert pairs == {(task, object_id) for object_id, tasks in self._tasks.items() for task in tasks}
        assert all(self._missing.values()) and all(self._tasks.values())
