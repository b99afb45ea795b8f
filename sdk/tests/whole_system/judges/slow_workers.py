"""Whether a slot of a slow worker may stay free while tasks wait.

Rules:
- What the scheduler says of the pace of its workers is believed: it follows from which tasks came together.
- A slot of a worker may stay free for tasks that a quicker one can run, which is near and takes tasks. What else all
  workers can run, or not, is not looked at.
- It may for no longer than the longest task would have taken there, from when one of the class was placed last. The
  scheduler looks at its timer at the latest.
"""

from __future__ import annotations

from typing import Container, Dict, Iterable

from whole_system.judges.judged_peers import JudgedWorker, TaskClass

TIMERS_SECONDS = 2.0


class SlowWorkers:
    """
    Parameters:
        workers: all that are there.
        longest_seconds: of a task that no worker has reported yet.
    """

    def __init__(self, workers: Dict[bytes, JudgedWorker], longest_seconds: float) -> None:
        self._workers = workers
        self._longest_seconds = longest_seconds
        self._spared_since: Dict[TaskClass, float] = {}
        self._paces: Dict[int, float] = {}  # when the last tick ended, by identity

    def on_measured(self, seconds: float) -> None:
        """Tasks took so long on average, at a worker whose pace is 1.0."""
        self._longest_seconds = max(self._longest_seconds, seconds)

    def on_placed(self, task_class: TaskClass) -> None:
        """A worker got tasks."""
        self._spared_since.pop(task_class, None)

    def is_slow(self, worker: JudgedWorker) -> bool:
        """Whether it is slower than any other, or was when the last tick ended."""
        paces = [each.pace for each in self._workers.values()]
        before = self._paces.get(id(worker), 1.0)
        return worker.pace > min(paces) or before > min(self._paces.values(), default=1.0)

    def may_spare(self, worker: JudgedWorker, task_class: TaskClass, now: float) -> bool:
        """Whether a task of a class may wait though a slot of the worker is free."""
        if not self.is_slow(worker) or not any(self._is_quicker(each, worker) for each in self._workers.values()):
            return False
        since = self._spared_since.setdefault(task_class, now)
        pace = max(worker.pace, self._paces.get(id(worker), 1.0))
        return now <= since + self._longest_seconds * pace + TIMERS_SECONDS

    def _is_quicker(self, worker: JudgedWorker, other: JudgedWorker) -> bool:
        takes_tasks = not (worker.is_leaving or worker.is_congested or worker.distance_seconds)
        before = self._paces.get(id(worker), 1.0), self._paces.get(id(other), 1.0)
        return takes_tasks and (worker.pace < other.pace or before[0] < before[1])

    def on_tick(self, waiting: Container[TaskClass], workers: Iterable[JudgedWorker]) -> None:
        """A tick has ended; these classes wait."""
        self._spared_since = {each: since for each, since in self._spared_since.items() if each in waiting}
        self._paces = {id(worker): worker.pace for worker in workers}
