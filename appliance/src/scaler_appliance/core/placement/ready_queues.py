"""Tasks that wait for a worker.

Rules:
- One queue per requirement class (priority and capabilities): a task that no worker can run blocks no task behind it.
- Within a class clients take turns: one client's million tasks do not starve another's ten. A turn ends when tasks
  were handed to workers, never before: a client whose tasks no worker has credit for now is the next one to get some.
  Small spans share a turn, so that a client's turns do not get shorter if it submits task by task. A client of which no
  task waited has the next turn, but once only until another one that had to wait has had its turn, and not after its
  own turn until then: so few tasks do not wait for a turn of many, and no client gets more turns by coming again and
  again, whether its tasks were done or it has cancelled them.
- Classes of one priority take turns as well: the one served longest ago comes first. A class is of one tenant; how
  tenants take turns is decided in `tenant_shares`.
- Queues hold spans. Cancelled tasks stay in their span and are skipped, and are not counted as waiting. A class without
  waiting tasks does not exist.
- The tasks of a throttled client are waiting, but have no turn: they are kept apart until it continues.
- A class whose tasks no worker offers to run is parked, and not looked at, until workers come or go.
- A client has tasks in a limited number of classes. Its tasks with still other requirements wait outside
  of the classes until it has fewer: to look at a class takes time, also if all that could run its tasks are busy.
- The calls of an actor are a class of its own, which the passes over the classes do not see: `actor_placement` looks at
  those in `woken`, and their calls are not counted as placeable.
- No operation takes longer the more classes there are, but for those that concern all of a client, and `waiting`.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Deque, Dict, Iterable, List, Optional, Set

from scaler_appliance.core.placement.ready_class import ReadyClass, ReadyTotals, count_waiting
from scaler_appliance.core.tasks.batches import Needs, Requirement, TaskBatch, TaskSpan

MAXIMUM_CLASSES = 8192  # more only if there are very many clients
MAXIMUM_CLASSES_OF_CLIENT = 1024
LEAST_CLASSES_OF_CLIENT = 8  # however many clients there are


class _Later:
    """Tasks of a client with a requirement that has no class yet."""

    __slots__ = ("spans", "count")

    def __init__(self) -> None:
        self.spans: List[TaskSpan] = []
        self.count = 0


class _ClientQueues:
    """Where a client's waiting tasks are: those of a requirement are either in its class, or wait for one."""

    __slots__ = ("classes", "calls", "later")

    def __init__(self) -> None:
        self.classes: Dict[Requirement, ReadyClass] = {}
        self.calls: Dict[Requirement, ReadyClass] = {}  # those of calls of actors, of which there may be any number
        self.later: OrderedDict[Requirement, _Later] = OrderedDict()

    def of(self, requirement: Requirement) -> Dict[Requirement, ReadyClass]:
        """Where the class of a requirement is, if it is one of these."""
        return self.calls if requirement.needs.actor else self.classes


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
        self._totals: Dict[str, ReadyTotals] = {}  # by tenant
        self._call_totals: Dict[str, ReadyTotals] = {}  # the same of the calls of actors
        self._large_totals: Dict[str, ReadyTotals] = {}  # and of large tasks, which may wait though slots are free
        self.woken: Dict[int, ReadyClass] = {}  # by actor: classes of calls with changes, or that might have
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
            if requirement.needs.actor:
                return queues.calls.get(requirement) or self._join_calls(queues, requirement)
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
            ready_class = ReadyClass(requirement, self._totals_of(requirement))
            self._classes[requirement] = self._active[requirement] = ready_class
            ready_class.last_served = self._servings
        queues.classes[requirement] = ready_class
        return ready_class

    def _join_calls(self, queues: _ClientQueues, requirement: Requirement) -> ReadyClass:
        ready_class = self._classes.get(requirement)
        if ready_class is None:
            totals = self._call_totals.setdefault(requirement.needs.tenant, ReadyTotals())
            ready_class = self._classes[requirement] = ReadyClass(requirement, totals)
            ready_class.is_parked = True
            ready_class.last_served = self._servings
        queues.calls[requirement] = ready_class
        return ready_class

    def _totals_of(self, requirement: Requirement) -> ReadyTotals:
        tenant = requirement.needs.tenant
        if requirement.is_large:
            return self._large_totals.setdefault(tenant, ReadyTotals())
        totals = self._totals.get(tenant)
        if totals is None:
            totals = self._totals[tenant] = ReadyTotals()
            self.has_tenants = len(self._totals) > 1
        return totals

    def add(self, span: TaskSpan, *, in_front: bool = False, cancelled: int = 0) -> None:
        """Queue the tasks of a span.

        Parameters:
            cancelled: how many of them were, and are not counted.
        """
        batch = span.batch
        ready_class = self._class_of(batch.client, batch.requirement)
        if ready_class is None:
            self._add_later(span, in_front, cancelled)
        elif batch.client in self._held:
            ready_class.add_held(span, in_front=in_front, cancelled=cancelled)
        else:
            ready_class.add(span, in_front=in_front, cancelled=cancelled)
            if batch.requirement.needs.actor:
                self.woken[batch.requirement.needs.actor] = ready_class

    def large_class_of(self, batch: TaskBatch) -> Optional[ReadyClass]:
        """The class of tasks of its function that wait for memory, if any do."""
        return self._classes.get(batch.requirement._replace(large=batch.function_key))

    def set_large_apart(self, batch: TaskBatch) -> int:
        """Tasks of a batch wait for memory from now on, and none behind them; returns how many spans were looked at.

        Parameters:
            batch: the next one of a class.
        """
        ready_class = self._clients[batch.client].classes[batch.requirement]
        spans, others = ready_class.remove_batch(batch)
        batch.requirement = batch.requirement._replace(large=batch.function_key)
        for span in spans:
            waiting = count_waiting([span])
            if waiting:  # the others of it were cancelled
                self.add(span, cancelled=span.stop - span.start - waiting)
        if ready_class.is_parked:
            self._remove_if_empty(ready_class)
        return len(spans) + others

    def wake(self, requirement: Requirement) -> None:
        """Look at the waiting calls of an actor, if there are any."""
        ready_class = self._classes.get(requirement)
        if ready_class is not None:
            self.woken[requirement.needs.actor] = ready_class

    def class_of_calls(self, requirement: Requirement) -> Optional[ReadyClass]:
        """The class of an actor's calls, if any wait."""
        return self._classes.get(requirement)

    def remove_if_without_calls(self, ready_class: ReadyClass) -> None:
        """Forget a class of calls without waiting ones."""
        self._remove_if_empty(ready_class)

    def _add_later(self, span: TaskSpan, in_front: bool, cancelled: int) -> None:
        batch, start, stop = span
        queues = self._with_later[batch.client] = self._clients[batch.client]
        later = queues.later.get(batch.requirement)
        if later is None:
            later = queues.later[batch.requirement] = _Later()
        later.spans.insert(0 if in_front else len(later.spans), span)
        later.count += stop - start - cancelled
        self._totals_of(batch.requirement).later += stop - start - cancelled

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
            self._active = {key: each for key, each in self._classes.items() if not key.needs.actor}
            for ready_class in self._active.values():
                ready_class.is_parked = False

    def _remove_if_empty(self, ready_class: ReadyClass) -> None:
        if not (ready_class.count or ready_class.held_count):
            requirement = ready_class.requirement
            del self._classes[requirement]
            self._active.pop(requirement, None)
            self.woken.pop(requirement.needs.actor, None)
            for client in ready_class.known_clients():
                self._clients[client].of(requirement).pop(requirement)

    def is_later(self, batch: TaskBatch) -> bool:
        """Whether waiting tasks of a batch are outside of the classes, because their client has so many."""
        queues = self._with_later.get(batch.client)
        return queues is not None and batch.requirement in queues.later

    def count_cancelled(self, batch: TaskBatch, count: int) -> None:
        """Record that `count` waiting tasks of a batch were cancelled in their spans."""
        queues = self._clients[batch.client]
        ready_class = queues.of(batch.requirement).get(batch.requirement)
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
            if ready_class.requirement.needs.actor:
                self.woken[ready_class.requirement.needs.actor] = ready_class

    def is_held(self, client: int) -> bool:
        return client in self._held

    def _classes_of(self, client: int) -> Iterable[ReadyClass]:
        queues = self._clients.get(client)
        if queues is None:
            return ()
        return [*queues.classes.values(), *queues.calls.values()] if queues.calls else queues.classes.values()

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
        """How many tasks wait only for a worker, and not for memory."""
        return sum([totals.placeable for totals in self._totals.values()])

    def needs_of_placeable(self, most: int) -> Optional[Set[Needs]]:
        """What the tasks need that wait only for a worker, and not for memory; None: they are of too many classes.

        Parameters:
            most: classes to look at.
        """
        if not self.placeable():
            return set()
        if len(self._active) > most:
            return None
        return {each.needs for each, waiting in self._active.items() if waiting.count and not each.is_large}

    def waiting_of(self, tenant: str) -> int:
        """How many tasks of a tenant wait for a worker, throttled or not."""
        found = (each.get(tenant) for each in (self._totals, self._large_totals, self._call_totals))
        return sum([totals.placeable + totals.held + totals.later for totals in found if totals is not None])

    def check_invariants(self, clients: Set[int]) -> None:
        """Check all classes, and that only connected clients are throttled."""
        assert self._held <= clients and self._clients.keys() <= clients
        classes = self._classes.values()
        assert self._active == {each.requirement: each for each in classes if not each.is_parked}
        assert all(each.count or each.held_count for each in classes if each.is_parked)
        for ready_class in classes:
            ready_class.check_invariants(self._held)
            for client in ready_class.known_clients():
                assert self._clients[client].of(ready_class.requirement)[ready_class.requirement] is ready_class
        for tenant, totals in self._call_totals.items():
            own = [each for each in classes if each.requirement.needs.tenant == tenant and each.requirement.needs.actor]
            assert totals.placeable == sum([ready_class.count for ready_class in own])
            assert totals.held == sum([ready_class.held_count for ready_class in own]) and not totals.later
        for actor, ready_class in self.woken.items():
            assert (
                self._classes[ready_class.requirement] is ready_class and ready_class.requirement.needs.actor == actor
            )
        for is_large, by_tenant in ((False, self._totals), (True, self._large_totals)):
            plain = [each for each in classes if each.requirement.is_large == is_large]
            laters = [queues.later.items() for queues in self._clients.values()]
            for tenant, totals in by_tenant.items():
                own = [
                    each
                    for each in plain
                    if each.requirement.needs.tenant == tenant and not each.requirement.needs.actor
                ]
                assert totals.placeable == sum([ready_class.count for ready_class in own])
                assert totals.held == sum([ready_class.held_count for ready_class in own])
                mine = [
                    later.count
                    for items in laters
                    for each, later in items
                    if each.is_large == is_large and each.needs.tenant == tenant
                ]
                assert totals.later == sum(mine)
        for client, queues in self._clients.items():
            assert len(queues.classes) <= MAXIMUM_CLASSES_OF_CLIENT and bool(queues.later) <= (
                client in self._with_later
            )
            assert all(client in ready_class.known_clients() for ready_class in self._classes_of(client))
            assert queues.classes.keys().isdisjoint(queues.later)
            assert all(later.count == count_waiting(later.spans) > 0 for later in queues.later.values())

    def __len__(self) -> int:
        """How many tasks wait for a worker, throttled or not."""
        tasks = sum([totals.placeable + totals.held + totals.later for totals in self._totals.values()])
        for others in (self._large_totals, self._call_totals):
            if others:
                tasks += sum([totals.placeable + totals.held + totals.later for totals in others.values()])
        return tasks
