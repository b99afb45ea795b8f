"""Tasks that wait for a worker.

Rules:
- One queue per requirement class (priority and capabilities): a task that no worker can run blocks no task behind it.
- Within a class clients take turns: one client's million tasks do not starve another's ten. A turn ends when tasks
  were handed to workers, never before: a client whose tasks no worker has credit for now is the next one to get some.
  Small spans share a turn, so that a client's turns do not get shorter if it submits task by task. A client of which no
  task waited has the next turn, but once only until another one that had to wait has had its turn: so few tasks do not
  wait for a turn of many, and no client gets more turns by coming again and again.
- Classes of one priority take turns as well: the one served longest ago comes first. A class is of one tenant; how
  tenants take turns is decided in `tenant_shares`.
- Queues hold spans. Cancelled tasks stay in their span and are skipped, and are not counted as waiting. A class without
  waiting tasks does not exist.
- The tasks of a throttled client are waiting, but have no turn: they are kept apart until it continues.
- A class whose tasks no worker offers to run is parked, and not looked at, until workers come or go.
- A client has tasks in a limited number of classes. Its tasks with still other requirements wait outside
  of the classes until it has fewer: to look at a class takes time, also if all that could run its tasks are busy.
- No operation takes longer the more classes there are, but for those that concern all of a client, and `waiting`.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Deque, Dict, Iterable, List, Optional, Set

from scaler_appliance.core.tasks.batches import Requirement, TaskBatch, TaskSpan
from scaler_appliance.core.tasks.task_states import TaskState, first_run

MAXIMUM_CLASSES = 8192  # more only if there are very many clients
MAXIMUM_CLASSES_OF_CLIENT = 1024
LEAST_CLASSES_OF_CLIENT = 8  # however many clients there are


class _Totals:
    """Waiting tasks of all classes of a tenant."""

    __slots__ = ("placeable", "held", "later")

    def __init__(self) -> None:
        self.placeable = 0  # wait only for a worker
        self.held = 0  # their client is throttled
        self.later = 0  # outside of the classes


class ReadyClass:
    """The waiting tasks of one requirement class.

    Parameters:
        totals: of all classes of its tenant.
    """

    __slots__ = (
        "requirement",
        "count",
        "held_count",
        "last_served",
        "offered",
        "is_parked",
        "_spans",
        "_turns",
        "_turn_microseconds",
        "_preferred",
        "_held",
        "_counts",
        "_totals",
    )

    def __init__(self, requirement: Requirement, totals: _Totals) -> None:
        self.requirement = requirement
        self._totals = totals
        self.count = 0  # tasks in state QUEUED whose client is not throttled
        self.held_count = 0  # those whose client is throttled
        self.last_served = 0
        self.offered = -1  # at which change of the workers one was known to offer to run its tasks
        self.is_parked = False
        self._spans: Dict[int, Deque[TaskSpan]] = {}
        self._turns: Deque[int] = deque()
        self._turn_microseconds = 0.0  # of work that was handed out in the turn of the first of them
        self._preferred: Set[int] = set()  # clients that came, and got the next turn, since another one had its turn
        self._held: Dict[int, Deque[TaskSpan]] = {}
        self._counts: Dict[int, int] = {}  # of each client's tasks; also those that had some

    def add(self, span: TaskSpan, *, in_front: bool = False) -> None:
        """Queue the tasks of a span, all of them QUEUED."""
        client = span.batch.client
        spans = self._spans.get(client)
        if spans is None:
            spans = self._spans[client] = deque()
            self._join_turns(client)
        if in_front:
            spans.appendleft(span)
        else:
            spans.append(span)
        count = span.stop - span.start
        self.count += count
        self._totals.placeable += count
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
        self._totals.held += count
        self._counts[client] = self._counts.get(client, 0) + count

    def take_over(self, client: int, spans: Deque[TaskSpan], count: int, is_held: bool) -> None:
        """Queue tasks of a client that has had none here."""
        self._counts[client] = count
        if is_held:
            self._held[client] = spans
            self.held_count += count
            self._totals.held += count
        else:
            self._spans[client] = spans
            self._turns.append(client)
            self.count += count
            self._totals.placeable += count

    def hold(self, client: int) -> None:
        """Keep the client's tasks apart."""
        if client in self._spans:
            self._held[client] = self._spans.pop(client)
            self._leave_turns(client)
            count = self._counts.get(client, 0)
            self.count -= count
            self.held_count += count
            self._totals.placeable -= count
            self._totals.held += count

    def resume(self, client: int) -> None:
        """Give the client turns again, after the others."""
        spans = self._held.pop(client, None)
        if spans is not None:
            self._spans[client] = spans
            self._turns.append(client)
            count = self._counts.get(client, 0)
            self.held_count -= count
            self.count += count
            self._totals.held -= count
            self._totals.placeable += count

    def discount(self, client: int, count: int, is_held: bool) -> Optional[Deque[TaskSpan]]:
        """Waiting tasks were cancelled in their spans; if none is left, returns the spans, which are dropped."""
        if is_held:
            self.held_count -= count
            self._totals.held -= count
        else:
            self.count -= count
            self._totals.placeable -= count
        left = self._counts[client] - count
        self._counts[client] = left
        return None if left else self._remove_spans(client)

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
                self._totals.placeable -= count
                self._counts[client] -= count
                return span
            del self._spans[client]
            self._leave_turns(client)
        assert self.count == 0, f"{self.count} tasks are counted but in no span"
        return None

    def next_batch(self) -> Optional[TaskBatch]:
        """The batch at the front of the current client's tasks, some of which may have been cancelled."""
        spans = self._spans[self._turns[0]] if self._turns else None
        return spans[0].batch if spans else None

    def count_turn(self, microseconds: float, limit_microseconds: float) -> None:
        """Count tasks of the current client that were dispatched; with enough work its turn is over."""
        self._turn_microseconds += microseconds
        if self._turn_microseconds >= limit_microseconds:
            self._turn_microseconds = 0.0
            client = self._turns[0]
            if client not in self._preferred:
                self._preferred.clear()
            elif self._counts[client]:  # it has more: from now on it is one of those that wait
                self._preferred.discard(client)
            self._turns.rotate(-1)

    def left_of_turn(self, each_microseconds: float, limit_microseconds: float) -> Optional[int]:
        """How many more tasks of the current client belong to its turn; None: no other waits, or this one just came."""
        if len(self._turns) < 2 or self._turns[0] in self._preferred:
            return None
        left = int((limit_microseconds - self._turn_microseconds) / each_microseconds)
        return left if left > 0 else 1

    def _join_turns(self, client: int) -> None:
        if client in self._preferred:
            self._turns.append(client)
            return
        place = 1 if self._turn_microseconds else 0  # not within the turn of another one
        while place < len(self._turns) and self._turns[place] in self._preferred:
            place += 1
        self._preferred.add(client)
        self._turns.insert(place, client)

    def _leave_turns(self, client: int) -> None:
        if self._turns[0] == client:
            self._turn_microseconds = 0.0
        self._turns.remove(client)

    def remove_client(self, client: int) -> Optional[Deque[TaskSpan]]:
        """Drop and return the spans of a client whose tasks are all cancelled and no longer counted."""
        self._counts.pop(client, None)
        return self._remove_spans(client)

    def _remove_spans(self, client: int) -> Optional[Deque[TaskSpan]]:
        if client in self._spans:
            self._leave_turns(client)
            return self._spans.pop(client)
        return self._held.pop(client, None)

    def known_clients(self) -> Iterable[int]:
        """Clients that have, or had, tasks here."""
        return self._counts

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


class _Later:
    """Tasks of a client with a requirement that has no class yet."""

    __slots__ = ("spans", "count")

    def __init__(self) -> None:
        self.spans: List[TaskSpan] = []
        self.count = 0


class _ClientQueues:
    """Where a client's waiting tasks are: those of a requirement are either in its class, or wait for one."""

    __slots__ = ("classes", "later")

    def __init__(self) -> None:
        self.classes: Dict[Requirement, ReadyClass] = {}
        self.later: OrderedDict[Requirement, _Later] = OrderedDict()


class ReadyQueues:
    """All requirement classes, served by priority.

    Attributes:
        has_tenants: whether there are, or were, tasks of more than one tenant.
    """

    def __init__(self) -> None:
        self.has_tenants = False
        self._classes: Dict[Requirement, ReadyClass] = {}
        self._active: Dict[Requirement, ReadyClass] = {}  # those that are not parked
        self._clients: Dict[int, _ClientQueues] = {}
        self._with_later: Dict[int, _ClientQueues] = {}  # those with tasks outside of the classes
        self._totals: Dict[str, _Totals] = {}  # by tenant
        self._servings = 0
        self._held: Set[int] = set()  # throttled clients
        self._dropped: List[Deque[TaskSpan]] = []  # those without waiting tasks, to be freed

    def _class_of(self, client: int, requirement: Requirement) -> Optional[ReadyClass]:
        """The class for tasks of a client; None if it has too many others."""
        queues = self._clients.get(client)
        if queues is None:
            queues = self._clients[client] = _ClientQueues()
        ready_class = queues.classes.get(requirement)
        if ready_class is None:
            if len(queues.classes) >= self._limit() or (queues.later and requirement in queues.later):
                return None
            ready_class = self._join_class(queues, requirement)
        return ready_class

    def _limit(self) -> int:
        """In how many classes a client may have tasks."""
        return min(MAXIMUM_CLASSES_OF_CLIENT, max(LEAST_CLASSES_OF_CLIENT, MAXIMUM_CLASSES // len(self._clients)))

    def _join_class(self, queues: _ClientQueues, requirement: Requirement) -> ReadyClass:
        ready_class = self._classes.get(requirement)
        if ready_class is None:
            totals = self._totals.get(requirement.needs.tenant) or self._totals_of(requirement)
            ready_class = ReadyClass(requirement, totals)
            self._classes[requirement] = self._active[requirement] = ready_class
            ready_class.last_served = self._servings
        queues.classes[requirement] = ready_class
        return ready_class

    def _totals_of(self, requirement: Requirement) -> _Totals:
        tenant = requirement.needs.tenant
        totals = self._totals.get(tenant)
        if totals is None:
            totals = self._totals[tenant] = _Totals()
            self.has_tenants = len(self._totals) > 1
        return totals

    def add(self, span: TaskSpan, *, in_front: bool = False) -> None:
        batch = span.batch
        ready_class = self._class_of(batch.client, batch.requirement)
        if ready_class is None:
            self._add_later(span, in_front)
        elif batch.client in self._held:
            ready_class.add_held(span, in_front=in_front)
        else:
            ready_class.add(span, in_front=in_front)

    def _add_later(self, span: TaskSpan, in_front: bool) -> None:
        batch, start, stop = span
        queues = self._with_later[batch.client] = self._clients[batch.client]
        later = queues.later.get(batch.requirement)
        if later is None:
            later = queues.later[batch.requirement] = _Later()
        later.spans.insert(0 if in_front else len(later.spans), span)
        later.count += stop - start
        self._totals_of(batch.requirement).later += stop - start

    def admit_some(self, amount: int) -> bool:
        """Let up to `amount` requirements have classes whose client has fewer now; returns whether any does."""
        has_admitted, limit = False, self._limit()
        for client, queues in list(self._with_later.items()):
            if len(queues.classes) >= limit:
                self._leave_classes(client, queues)
            while queues.later and amount > 0 and len(queues.classes) < limit:
                requirement, later = queues.later.popitem(last=False)
                self._totals_of(requirement).later -= later.count
                ready_class = self._join_class(queues, requirement)
                ready_class.take_over(client, deque(later.spans), later.count, client in self._held)
                has_admitted = True
                amount -= 1
            if not queues.later:
                del self._with_later[client]
        return has_admitted

    def _leave_classes(self, client: int, queues: _ClientQueues) -> None:
        """Forget the classes in which a client has no task any more, but others do."""
        for ready_class in [each for each in queues.classes.values() if not each.count_of(client)]:
            del queues.classes[ready_class.requirement]
            ready_class.remove_client(client)

    def park(self, ready_class: ReadyClass) -> None:
        """No worker offers to run its tasks."""
        ready_class.is_parked = True
        del self._active[ready_class.requirement]

    def unpark_all(self) -> None:
        """Workers have come or gone."""
        if len(self._active) < len(self._classes):
            self._active = dict(self._classes)
            for ready_class in self._classes.values():
                ready_class.is_parked = False

    def _remove_if_empty(self, ready_class: ReadyClass) -> None:
        if not (ready_class.count or ready_class.held_count):
            requirement = ready_class.requirement
            del self._classes[requirement]
            self._active.pop(requirement, None)
            for client in ready_class.known_clients():
                del self._clients[client].classes[requirement]

    def is_later(self, batch: TaskBatch) -> bool:
        """Whether waiting tasks of a batch are outside of the classes, because their client has so many."""
        queues = self._with_later.get(batch.client)
        return queues is not None and batch.requirement in queues.later

    def count_cancelled(self, batch: TaskBatch, count: int) -> None:
        """Record that `count` waiting tasks of a batch were cancelled in their spans."""
        queues = self._clients[batch.client]
        ready_class = queues.classes.get(batch.requirement)
        spans: Optional[Deque[TaskSpan]] = None
        if ready_class is not None:
            spans = ready_class.discount(batch.client, count, batch.client in self._held)
            if ready_class.is_parked:
                self._remove_if_empty(ready_class)
        else:
            later = queues.later[batch.requirement]
            later.count -= count
            self._totals_of(batch.requirement).later -= count
            if not later.count:
                spans = deque(later.spans)
                del queues.later[batch.requirement]
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
        for ready_class in self._classes_of(client):
            ready_class.hold(client)

    def resume(self, client: int) -> None:
        self._held.discard(client)
        for ready_class in self._classes_of(client):
            ready_class.resume(client)

    def is_held(self, client: int) -> bool:
        return client in self._held

    def _classes_of(self, client: int) -> Iterable[ReadyClass]:
        queues = self._clients.get(client)
        return () if queues is None else queues.classes.values()

    def remove_client(self, client: int) -> None:
        """A client is gone, whose tasks have all been cancelled."""
        for ready_class in list(self._classes_of(client)):
            spans = ready_class.remove_client(client)
            if spans:
                self._dropped.append(spans)
            if ready_class.is_parked:
                self._remove_if_empty(ready_class)
        self._clients.pop(client, None)
        self._with_later.pop(client, None)
        self._held.discard(client)

    def waiting(self) -> List[ReadyClass]:
        """Classes with tasks that may be placed: highest priority first, then the one served longest ago."""
        if not self._active:
            return []
        self.remove_empty()
        classes = [each for each in self._active.values() if each.count]
        if len(classes) > 1:
            classes.sort(key=lambda each: (each.requirement.negative_priority, each.last_served))
        return classes

    def remove_empty(self) -> None:
        """Remove classes without waiting tasks."""
        for ready_class in [each for each in self._active.values() if not each.count and not each.held_count]:
            self._remove_if_empty(ready_class)

    @property
    def has_later(self) -> bool:
        """Whether tasks wait outside of the classes."""
        return bool(self._with_later)

    def classes(self) -> List[ReadyClass]:
        """All classes that may have waiting tasks, in no order."""
        return list(self._classes.values())

    def count_served(self, ready_class: ReadyClass) -> None:
        """The class had its turn."""
        self._servings += 1
        ready_class.last_served = self._servings

    def placeable(self) -> int:
        """How many tasks wait only for a worker."""
        return sum([totals.placeable for totals in self._totals.values()])

    def tenants_with_placeable(self) -> List[str]:
        """The tenants of which tasks wait only for a worker."""
        return [tenant for tenant, totals in self._totals.items() if totals.placeable]

    def waiting_of(self, tenant: str) -> int:
        """How many tasks of a tenant wait for a worker, throttled or not."""
        totals = self._totals.get(tenant)
        return 0 if totals is None else totals.placeable + totals.held + totals.later

    def check_invariants(self, clients: Set[int]) -> None:
        """Check all classes, and that only connected clients are throttled."""
        assert self._held <= clients and self._clients.keys() <= clients
        classes = self._classes.values()
        assert self._active == {each.requirement: each for each in classes if not each.is_parked}
        assert all(each.count or each.held_count for each in classes if each.is_parked)
        for ready_class in classes:
            ready_class.check_invariants(self._held)
            for client in ready_class.known_clients():
                assert self._clients[client].classes[ready_class.requirement] is ready_class
        for tenant, totals in self._totals.items():
            own = [ready_class for ready_class in classes if ready_class.requirement.needs.tenant == tenant]
            assert totals.placeable == sum([ready_class.count for ready_class in own])
            assert totals.held == sum([ready_class.held_count for ready_class in own])
            laters = [queues.later.items() for queues in self._clients.values()]
            mine = [later.count for items in laters for each, later in items if each.needs.tenant == tenant]
            assert totals.later == sum(mine)
        for client, queues in self._clients.items():
            assert len(queues.classes) <= MAXIMUM_CLASSES_OF_CLIENT and bool(queues.later) <= (
                client in self._with_later
            )
            assert all(client in ready_class.known_clients() for ready_class in queues.classes.values())
            assert queues.classes.keys().isdisjoint(queues.later)
            assert all(later.count == _count(later.spans) > 0 for later in queues.later.values())

    def __len__(self) -> int:
        """How many tasks wait for a worker, throttled or not."""
        return sum([totals.placeable + totals.held + totals.later for totals in self._totals.values()])
