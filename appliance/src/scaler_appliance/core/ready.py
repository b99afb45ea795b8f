"""Tasks that wait for a worker.

Rules:
- One queue per requirement class (priority and capabilities), so that a task nobody can run blocks nobody behind it.
- Within a class clients take turns, span by span: one client's million tasks do not starve another's ten. Classes of
  one priority take turns as well: the one served longest ago comes first.
- Queues hold spans. Tasks cancelled meanwhile stay in their span and are passed over, but are never counted as
  waiting. A class without waiting tasks does not exist.
"""

from __future__ import annotations

from collections import deque
from typing import Deque, Dict, List, Optional

from scaler_appliance.core.batches import Requirement, Span, TaskBatch
from scaler_appliance.core.task_states import TaskState, first_run


class ReadyClass:
    """The waiting tasks of one requirement class."""

    __slots__ = ("requirement", "count", "last_served", "is_reported", "_spans", "_turns")

    def __init__(self, requirement: Requirement) -> None:
        self.requirement = requirement
        self.count = 0  # tasks in state QUEUED
        self.last_served = 0
        self.is_reported = False  # that no worker can run its tasks
        self._spans: Dict[int, Deque[Span]] = {}
        self._turns: Deque[int] = deque()

    def add(self, span: Span, *, in_front: bool = False) -> None:
        """Queue the tasks of a span, all of them QUEUED."""
        client = span.batch.client
        spans = self._spans.get(client)
        if spans is None:
            spans = self._spans[client] = deque()
            self._turns.append(client)
        if in_front:
            spans.appendleft(span)
        else:
            spans.append(span)
        self.count += span.stop - span.start

    def take(self, limit: int) -> Optional[Span]:
        """Remove and return up to `limit` waiting tasks of the client whose turn it is."""
        while self._turns:
            client = self._turns[0]
            span = _take_from(self._spans[client], limit)
            if span is not None:
                self.count -= span.stop - span.start
                self._turns.rotate(-1)
                return span
            del self._spans[client]
            self._turns.popleft()
        assert self.count == 0, f"{self.count} tasks are counted but in no span"
        return None

    def remove_client(self, client: int) -> None:
        """Forget the spans of a client that left; its tasks are cancelled and no longer counted."""
        if self._spans.pop(client, None) is not None:
            self._turns.remove(client)


def _take_from(spans: Deque[Span], limit: int) -> Optional[Span]:
    while spans:
        batch, start, stop = spans[0]
        run = first_run(batch.states, start, stop, TaskState.QUEUED)
        if run is None:
            spans.popleft()
            continue
        first, end = run[0], min(run[1], run[0] + limit)
        if end < stop:
            spans[0] = Span(batch, end, stop)
        else:
            spans.popleft()
        return Span(batch, first, end)
    return None


class ReadyQueues:
    """All requirement classes, served by priority."""

    def __init__(self) -> None:
        self._classes: Dict[Requirement, ReadyClass] = {}
        self._servings = 0

    def _class_of(self, batch: TaskBatch) -> ReadyClass:
        ready_class = self._classes.get(batch.requirement)
        if ready_class is None:
            ready_class = self._classes[batch.requirement] = ReadyClass(batch.requirement)
            ready_class.last_served = self._servings
        return ready_class

    def add(self, span: Span, *, in_front: bool = False) -> None:
        self._class_of(span.batch).add(span, in_front=in_front)

    def count_cancelled(self, batch: TaskBatch, count: int) -> None:
        """Note that `count` waiting tasks of a batch were cancelled in their spans."""
        self._class_of(batch).count -= count

    def remove_client(self, client: int) -> None:
        for ready_class in self._classes.values():
            ready_class.remove_client(client)

    def waiting(self) -> List[ReadyClass]:
        """Classes with waiting tasks: highest priority first, then the one served longest ago."""
        if not self._classes:
            return []
        for ready_class in [each for each in self._classes.values() if not each.count]:
            del self._classes[ready_class.requirement]
        classes = list(self._classes.values())
        if len(classes) > 1:
            classes.sort(key=lambda each: (each.requirement.negative_priority, each.last_served))
        return classes

    def note_served(self, ready_class: ReadyClass) -> None:
        """The class had its turn."""
        self._servings += 1
        ready_class.last_served = self._servings

    def __len__(self) -> int:
        return sum(ready_class.count for ready_class in self._classes.values())
