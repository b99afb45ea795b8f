"""Tasks that wait for a worker.

Rules:
- One queue per requirement class (priority and capabilities), so that a task nobody can run blocks nobody behind it.
- Within a class clients take turns, span by span: one client's million tasks do not starve another's ten.
- Queues hold spans. Tasks cancelled meanwhile stay in their span and are passed over, but are never counted as waiting.
"""

from __future__ import annotations

from collections import deque
from typing import Deque, Dict, Iterator, List, NamedTuple, Optional, Tuple

from scaler_appliance.core.batches import Span, TaskBatch
from scaler_appliance.core.task_states import TaskState, first_run
from scaler_protocol import messages as m


class Requirement(NamedTuple):
    """What a task needs, in the order in which classes are served: smaller first."""

    negative_priority: int
    capabilities: Tuple[Tuple[str, float], ...]

    @staticmethod
    def of(options: m.TaskOptions) -> Requirement:
        return Requirement(-options.priority, tuple(sorted((c.name, c.amount) for c in options.capabilities)))


class ReadyClass:
    """The waiting tasks of one requirement class."""

    __slots__ = ("requirement", "count", "_spans", "_turns")

    def __init__(self, requirement: Requirement) -> None:
        self.requirement = requirement
        self.count = 0  # tasks in state QUEUED
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

    def spans(self) -> Iterator[Span]:
        for spans in self._spans.values():
            yield from spans


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
        self._ordered: List[ReadyClass] = []

    def class_of(self, batch: TaskBatch) -> ReadyClass:
        requirement = Requirement.of(batch.options)
        ready_class = self._classes.get(requirement)
        if ready_class is None:
            ready_class = self._classes[requirement] = ReadyClass(requirement)
            self._ordered = [self._classes[key] for key in sorted(self._classes)]
        return ready_class

    def add(self, span: Span, *, in_front: bool = False) -> None:
        self.class_of(span.batch).add(span, in_front=in_front)

    def count_cancelled(self, batch: TaskBatch, count: int) -> None:
        """Note that `count` waiting tasks of a batch were cancelled in their spans."""
        self.class_of(batch).count -= count

    def remove_client(self, client: int) -> None:
        for ready_class in self._ordered:
            ready_class.remove_client(client)

    def waiting(self) -> Iterator[ReadyClass]:
        """Classes with waiting tasks, highest priority first."""
        return (ready_class for ready_class in self._ordered if ready_class.count)

    def __len__(self) -> int:
        return sum(ready_class.count for ready_class in self._ordered)
