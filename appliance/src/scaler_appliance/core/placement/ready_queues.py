"""Tasks that wait for a worker.

Rules:
- One queue per requirement class (priority and capabilities): a task that no worker can run blocks no task behind it.
- Within a class clients take turns: one client's million tasks do not starve another's ten. A turn ends when tasks
  were handed to workers, never before: a client whose tasks no worker has credit for now is the next one to get some.
  Small spans share a turn, so that a client's turns do not get shorter if it submits task by task.
- Classes of one priority take turns as well: the one served longest ago comes first.
- Queues hold spans. Cancelled tasks stay in their span and are skipped, and are not counted as waiting. A class without
  waiting tasks does not exist.
- The tasks of a throttled client are waiting, but have no turn: they are kept apart until it continues.
"""

from __future__ import annotations

from collections import deque
from typing import Deque, Dict, Iterable, List, Optional, Set

from scaler_appliance.core.tasks.batches import Requirement, TaskBatch, TaskSpan
from scaler_appliance.core.tasks.task_states import TaskState, first_run


class ReadyClass:
    """The waiting tasks of one requirement class."""

    __slots__ = (
        "requirement",
        "count",
        "held_count",
        "last_served",
        "_spans",
        "_turns",
        "_turn_microseconds",
        "_held",
        "_counts",
    )

    def __init__(self, requirement: Requirement) -> None:
        self.requirement = requirement
        self.count = 0  # tasks in state QUEUED whose client is not throttled
        self.held_count = 0  # those whose client is throttled
        self.last_served = 0
        self._spans: Dict[int, Deque[TaskSpan]] = {}
        self._turns: Deque[int] = deque()
        self._turn_microseconds = 0.0  # of work that was handed out in the turn of the first of them
        self._held: Dict[int, Deque[TaskSpan]] = {}
        self._counts: Dict[int, int] = {}  # of each client's tasks

    def add(self, span: TaskSpan, *, in_front: bool = False) -> None:
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
        count = span.stop - span.start
        self.count += count
        self._counts[client] = self._counts.get(client, 0) + count

    def add_held(self, span: TaskSpan, *, in_front: bool) -> None:
        """Queue tasks of a throttled client."""
        client = span.batch.client
        spans = self._held.setdefault(client, deque())
        if in_front:
            spans.appendleft(span)
        else:
            spans.append(span)
        count = span.stop - span.start
        self.held_count += count
        self._counts[client] = self._counts.get(client, 0) + count

    def hold(self, client: int) -> None:
        """Keep the client's tasks apart."""
        if client in self._spans:
            self._held[client] = self._spans.pop(client)
            self._leave_turns(client)
            count = self._counts.get(client, 0)
            self.count -= count
            self.held_count += count

    def resume(self, client: int) -> None:
        """Give the client turns again, after the others."""
        spans = self._held.pop(client, None)
        if spans is not None:
            self._spans[client] = spans
            self._turns.append(client)
            count = self._counts.get(client, 0)
            self.held_count -= count
            self.count += count

    def discount(self, client: int, count: int, is_held: bool) -> Optional[Deque[TaskSpan]]:
        """Waiting tasks were cancelled in their spans; if none is left, returns the spans, which are dropped."""
        if is_held:
            self.held_count -= count
        else:
            self.count -= count
        left = self._counts[client] - count
        self._counts[client] = left
        return None if left else self.remove_client(client)

    def take(self, limit: int) -> Optional[TaskSpan]:
        """Remove and return up to `limit` waiting tasks of the client whose turn it is.

        It stays this client's turn: tasks that are not dispatched are put back with `add`, the others are reported with
        `count_turn`.
        """
        while self._turns:
            client = self._turns[0]
            span = _take_from(self._spans[client], limit)
            if span is not None:
                count = span.stop - span.start
                self.count -= count
                self._counts[client] -= count
                return span
            del self._spans[client]
            self._counts.pop(client, None)
            self._leave_turns(client)
        assert self.count == 0, f"{self.count} tasks are counted but in no span"
        return None

    def count_turn(self, microseconds: float, limit_microseconds: float) -> None:
        """Count tasks of the current client that were dispatched; with enough work its turn is over."""
        self._turn_microseconds += microseconds
        if self._turn_microseconds >= limit_microseconds:
            self._turn_microseconds = 0.0
            self._turns.rotate(-1)

    def _leave_turns(self, client: int) -> None:
        if self._turns[0] == client:
            self._turn_microseconds = 0.0
        self._turns.remove(client)

    def remove_client(self, client: int) -> Optional[Deque[TaskSpan]]:
        """Drop and return the spans of a client whose tasks are all cancelled and no longer counted."""
        self._counts.pop(client, None)
        if client in self._spans:
            self._leave_turns(client)
            return self._spans.pop(client)
        return self._held.pop(client, None)

    def clients(self) -> List[int]:
        """Clients that may have waiting tasks, throttled or not."""
        return [*self._turns, *self._held]

    def count_of(self, client: int) -> int:
        """The client's waiting tasks."""
        return self._counts.get(client, 0)

    def check_invariants(self, held: Set[int]) -> None:
        """Check that throttled clients have no turn and others do, and that the counts are right."""
        assert set(self._turns) == set(self._spans) and held.isdisjoint(self._spans) and held.issuperset(self._held)
        assert self.count == sum(map(_count, self._spans.values())), f"{self.count} are counted"
        assert self.held_count == sum(map(_count, self._held.values())), f"{self.held_count} are counted as held up"
        for client, spans in (*self._spans.items(), *self._held.items()):
            assert self._counts[client] == _count(spans), f"{self._counts[client]} are counted of client {client}"
        assert all(client in self._spans or client in self._held for client, count in self._counts.items() if count)


def _count(spans: Iterable[TaskSpan]) -> int:
    """The waiting tasks of spans."""
    return sum([batch.states.count(TaskState.QUEUED, start, stop) for batch, start, stop in spans])


def _take_from(spans: Deque[TaskSpan], limit: int) -> Optional[TaskSpan]:
    while spans:
        span = spans[0]
        batch, start, stop = span
        run = first_run(batch.states, start, stop, TaskState.QUEUED)
        if run is None:
            spans.popleft()
            continue
        first, end = run
        if end - first > limit:
            end = first + limit
        if end < stop:
            spans[0] = TaskSpan(batch, end, stop)
        else:
            spans.popleft()
        return span if first == start and end == stop else TaskSpan(batch, first, end)
    return None


class ReadyQueues:
    """All requirement classes, served by priority."""

    def __init__(self) -> None:
        self._classes: Dict[Requirement, ReadyClass] = {}
        self._servings = 0
        self._held: Set[int] = set()  # throttled clients
        self._dropped: List[Deque[TaskSpan]] = []  # those without waiting tasks, to be freed

    def _class_of(self, batch: TaskBatch) -> ReadyClass:
        ready_class = self._classes.get(batch.requirement)
        if ready_class is None:
            ready_class = self._classes[batch.requirement] = ReadyClass(batch.requirement)
            ready_class.last_served = self._servings
        return ready_class

    def add(self, span: TaskSpan, *, in_front: bool = False) -> None:
        if span.batch.client in self._held:
            self._class_of(span.batch).add_held(span, in_front=in_front)
        else:
            self._class_of(span.batch).add(span, in_front=in_front)

    def count_cancelled(self, batch: TaskBatch, count: int) -> None:
        """Record that `count` waiting tasks of a batch were cancelled in their spans."""
        spans = self._class_of(batch).discount(batch.client, count, batch.client in self._held)
        if spans:
            self._dropped.append(spans)

    def free_some(self, amount: int) -> bool:
        """Free dropped spans, a part at a time, because there may be millions; returns whether there are more."""
        while self._dropped and amount > 0:
            spans = self._dropped[-1]
            for _ in range(min(len(spans), amount)):
                spans.pop()
                amount -= 1
            if not spans:
                self._dropped.pop()
        return bool(self._dropped)

    @property
    def has_dropped(self) -> bool:
        """Whether there are spans to free."""
        return bool(self._dropped)

    def hold(self, client: int) -> None:
        """Throttle a client: its tasks wait until it continues."""
        self._held.add(client)
        for ready_class in self._classes.values():
            ready_class.hold(client)

    def resume(self, client: int) -> None:
        self._held.discard(client)
        for ready_class in self._classes.values():
            ready_class.resume(client)

    def is_held(self, client: int) -> bool:
        return client in self._held

    def remove_client(self, client: int) -> None:
        for ready_class in self._classes.values():
            spans = ready_class.remove_client(client)
            if spans:
                self._dropped.append(spans)
        self._held.discard(client)

    def waiting(self) -> List[ReadyClass]:
        """Classes with tasks that may be placed: highest priority first, then the one served longest ago."""
        if not self._classes:
            return []
        for ready_class in [each for each in self._classes.values() if not each.count and not each.held_count]:
            del self._classes[ready_class.requirement]
        classes = [each for each in self._classes.values() if each.count]
        if len(classes) > 1:
            classes.sort(key=lambda each: (each.requirement.negative_priority, each.last_served))
        return classes

    def classes(self) -> List[ReadyClass]:
        """All classes that may have waiting tasks, in no order."""
        return list(self._classes.values())

    def count_served(self, ready_class: ReadyClass) -> None:
        """The class had its turn."""
        self._servings += 1
        ready_class.last_served = self._servings

    def placeable(self) -> int:
        """How many tasks wait only for a worker."""
        return sum(ready_class.count for ready_class in self._classes.values())

    def check_invariants(self, clients: Set[int]) -> None:
        """Check all classes, and that only connected clients are throttled."""
        assert self._held <= clients
        for ready_class in self._classes.values():
            ready_class.check_invariants(self._held)

    def __len__(self) -> int:
        return sum(ready_class.count + ready_class.held_count for ready_class in self._classes.values())
