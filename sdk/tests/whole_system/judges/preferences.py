"""Whether a slot may stay free while tasks wait, because other workers are preferred.

Rules:
- What the scheduler says of the pace of its workers is believed: it follows from which tasks came together.
- A worker that offers what a task has needed may be taken to be a little slower.
- A slot of a worker may stay free for tasks that a preferred one can run, which is near and takes tasks. What else all
  workers can run, or not, is not looked at.
- Which function is the next one of a class is not looked at: what holds for one function may be so for any.
- It may for no longer than the longest task would have taken there, from when one of the class was placed last. The
  scheduler looks at its timer at the latest.
"""

from __future__ import annotations

from typing import Container, Dict, Iterable, Set

from whole_system.judges.judged_peers import JudgedWorker, TaskClass

TIMERS_SECONDS = 2.0
RELUCTANCE = 1.25
USUAL: Dict[object, float] = {None: 1.0}


class Preferences:
    """
    Parameters:
        workers: all that are there.
        longest_seconds: of a task that no worker has reported yet.
    """

    def __init__(self, workers: Dict[bytes, JudgedWorker], longest_seconds: float) -> None:
        self._workers = workers
        self._longest_seconds = longest_seconds
        self._wanted: Set[str] = set()  # capabilities; histories are shorter than they are remembered
        self._spared_since: Dict[TaskClass, float] = {}
        self._before: Dict[int, Dict[object, float]] = {}  # prices when the last tick ended, by identity

    def on_submitted(self, task_class: TaskClass) -> None:
        """A task came."""
        self._wanted.update(name for name, _ in task_class.needs)

    def on_measured(self, seconds: float) -> None:
        """Tasks took so long on average, at a worker whose pace is 1.0."""
        self._longest_seconds = max(self._longest_seconds, seconds)

    def on_placed(self, task_class: TaskClass) -> None:
        """A worker got tasks; nodes of graphs have not been seen before."""
        self.on_submitted(task_class)
        self._spared_since.pop(task_class, None)

    @property
    def depend_on_functions(self) -> bool:
        """Whether some worker is quick, or slow, at some functions only: who waits for it is passed by others."""
        return any(len(each.paces) > 1 or len(self._earlier(each)) > 1 for each in self._workers.values())

    def _prices_of(self, worker: JudgedWorker) -> Dict[object, float]:
        paces = worker.paces
        if self._wanted.isdisjoint(worker.capabilities):
            return paces
        return {function: pace * RELUCTANCE for function, pace in paces.items()}

    def _earlier(self, worker: JudgedWorker) -> Dict[object, float]:
        return self._before.get(id(worker), USUAL)

    def is_second_choice(self, worker: JudgedWorker) -> bool:
        """Whether others are preferred to it, or were when the last tick ended."""
        return any(self._is_preferred(each, worker) for each in self._workers.values())

    def may_spare(self, worker: JudgedWorker, task_class: TaskClass, now: float) -> bool:
        """Whether a task of a class may wait though a slot of the worker is free."""
        if not any(self._is_preferred(each, worker) and each.is_near for each in self._workers.values()):
            return False
        since = self._spared_since.setdefault(task_class, now)
        price = max(*self._prices_of(worker).values(), *self._earlier(worker).values())
        return now <= since + self._longest_seconds * price + TIMERS_SECONDS

    def _is_preferred(self, worker: JudgedWorker, other: JudgedWorker) -> bool:
        now = self._prices_of(worker), self._prices_of(other)
        return _are_less(*now) or _are_less(self._earlier(worker), self._earlier(other))

    def on_tick(self, waiting: Container[TaskClass], workers: Iterable[JudgedWorker]) -> None:
        """A tick has ended; these classes wait."""
        self._spared_since = {each: since for each, since in self._spared_since.items() if each in waiting}
        self._before = {id(worker): self._prices_of(worker) for worker in workers}


def _are_less(prices: Dict[object, float], others: Dict[object, float]) -> bool:
    """Whether prices of one worker are less than those of another, for any function."""
    if len(prices) == len(others) == 1:  # so it is nearly always
        return prices[None] < others[None]
    return any(
        prices.get(function, prices[None]) < others.get(function, others[None])
        for function in prices.keys() | others.keys()
    )
