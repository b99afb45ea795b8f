"""How workers that serve all tenants are shared between them: by weight, and up to quotas.

    waiting tasks of several tenants ──▶ next(tenants) ──▶ whose turn it is ──a few tasks are placed──▶ charge(…)

Rules:
- A tenant is charged the estimated work that it gets at shared workers, divided by its weight. The turn is that of the
  tenant with the smallest sum. What it gets at workers of its own is not counted: no other tenant could have had it.
- What comes back without an outcome, because its worker is lost or gives it back, is not charged.
- Time without waiting tasks gives no credit: a tenant that returns begins where the one that has had least is now.
- Priorities are compared within a tenant only, also where a worker with blocked tasks is to have some that are more
  urgent: otherwise the tenant that names the largest numbers has the places of the others' nested tasks.
- A worker runs what it has by priority, of whichever tenant. So a task that waits at a shared worker is passed by more
  urgent tasks of other tenants that come later, but by those of one prefetch only: then the worker gets no more of them
  before that task has begun. Otherwise it would wait for as long as others have more urgent tasks. What workers with
  blocked tasks get for these is an exception.
- A task that waits for nested ones does not count as running: they could not run otherwise. If it is not known whose
  task it is, it counts for none of the tenants that its worker serves.
- Calls of an actor run one at a time, and those behind a call that waits for nested tasks run after these. Whose call
  waits may not be known, so at a worker where a task of the tenant waits, all calls of an actor count as one.
- Without a second tenant nothing is charged, and without quotas nothing is counted.
"""

from __future__ import annotations

from typing import Callable, Dict, Iterable, List, Mapping, NamedTuple, Protocol, Sequence, Tuple

from scaler_appliance.core.large_tables import Table
from scaler_appliance.core.tasks.batches import Dispatch, Requirement
from scaler_protocol.keys.allow_list import ANY_TENANT

NO_LIMIT = -1
UNLIMITED = 1 << 62  # tasks


class TenantLimits(NamedTuple):
    """What one tenant may have.

    Attributes:
        weight: of its share; twice as much gets twice the work.
        maximum_waiting: tasks that are not at a worker; NO_LIMIT: as many as the scheduler takes.
        maximum_running: tasks at workers.
        maximum_object_bytes: of its objects, results included.
    """

    weight: float = 1.0
    maximum_waiting: int = NO_LIMIT
    maximum_running: int = NO_LIMIT
    maximum_object_bytes: int = NO_LIMIT


DEFAULT_LIMITS = TenantLimits()


def limits_of(settings: Iterable[Sequence[object]]) -> Dict[str, TenantLimits]:
    """The limits of tenants by name, from `Settings.tenants`: names, each with the attributes of TenantLimits."""
    found: Dict[str, TenantLimits] = {}
    for name, *values in settings:
        found[str(name)] = TenantLimits(*values)  # type: ignore[arg-type]  # as the settings were made of one
    return found


def _has_quotas(limits: Mapping[str, TenantLimits]) -> bool:
    return any(each._replace(weight=1.0) != DEFAULT_LIMITS for each in limits.values())


class WorkerWithTasks(Protocol):
    """What matters here of a worker's session."""

    @property
    def dispatches(self) -> Table[Dispatch]: ...

    @property
    def assigned(self) -> int: ...

    @property
    def slots(self) -> int: ...

    @property
    def distance_microseconds(self) -> float: ...

    @property
    def given_microseconds(self) -> float: ...


class TenantShares:
    """Whose turn it is, and how many more tasks each tenant may have at workers.

    Parameters:
        limits: by tenant; others have weight 1, and no limits.
    """

    def __init__(self, limits: Mapping[str, TenantLimits]) -> None:
        self.limits = limits
        self.has_quotas = _has_quotas(limits)
        self.running: Dict[str, int] = {}  # tasks at workers, of tenants with limits
        self._blocked: Dict[WorkerWithTasks, Dict[str, int]] = {}  # of these, those that wait for nested tasks
        self._work: Dict[str, float] = {}  # microseconds, divided by the weight
        self._waiting: Tuple[str, ...] = ()  # tenants that had waiting tasks when last looked at

    def change_limits(self, limits: Mapping[str, TenantLimits], running_of: Callable[[str], int]) -> None:
        """From now on these limits hold; what tenants were charged before, and what they have, stays.

        Parameters:
            running_of: how many tasks of a tenant are at workers.
        """
        self.limits = limits
        self.has_quotas = _has_quotas(limits)
        self.running = {tenant: running_of(tenant) for tenant in limits} if self.has_quotas else {}
        if not self.has_quotas:
            self._blocked.clear()

    def begin(self, tenants: List[str]) -> None:
        """These tenants have tasks that may be placed."""
        work = self._work
        others = [work.get(each, 0.0) for each in tenants if each in self._waiting]
        # If none of them had to wait until now, none has a claim to more than the others.
        least = min(others) if others else max(work.values(), default=0.0)
        for each in tenants:
            if work.get(each, 0.0) < least:
                work[each] = least
        self._waiting = tuple(tenants)

    def work_of(self, tenant: str) -> float:
        """What a tenant was charged, divided by its weight; the smallest has the turn."""
        return self._work.get(tenant, 0.0)

    def charge_for(self, dispatch: Dispatch, microseconds: float) -> None:
        """A tenant got tasks placed at a shared worker, each of so much work on average."""
        dispatch.charged_microseconds = microseconds
        self.charge(dispatch.batch.tenant, dispatch.open_count * microseconds)

    def charge(self, tenant: str, microseconds: float) -> None:
        """A tenant got so much work done at shared workers."""
        weight = self.limits.get(tenant, DEFAULT_LIMITS).weight
        self._work[tenant] = self._work.get(tenant, 0.0) + microseconds / weight

    def give_back(self, dispatch: Dispatch, count: int) -> None:
        """Tasks come back from a worker without an outcome: their tenant has not had what it was charged for them."""
        if dispatch.charged_microseconds:
            self.charge(dispatch.batch.tenant, -count * dispatch.charged_microseconds)

    def count_running(self, tenant: str, count: int) -> None:
        """A tenant got tasks at workers, or with a negative `count` has fewer there."""
        if tenant in self.limits:
            self.running[tenant] = self.running.get(tenant, 0) + count

    def running_of(self, tenant: str) -> int:
        """How many tasks of a tenant with limits are at workers."""
        return self.running.get(tenant, 0)

    def set_blocked(self, worker: WorkerWithTasks, tenants: Iterable[str]) -> None:
        """So many tasks of a worker wait for nested ones.

        Parameters:
            tenants: of each; ANY_TENANT: it is not known.
        """
        counts: Dict[str, int] = {}
        for tenant in tenants:
            counts[tenant] = counts.get(tenant, 0) + 1
        self._blocked.pop(worker, None)
        if counts:
            self._blocked[worker] = counts

    def _blocked_of(self, tenant: str) -> int:
        """How many tasks of a tenant wait for nested ones or behind such calls, as far as they are at workers still."""
        counts = [(worker, each.get(tenant, 0) + each.get(ANY_TENANT, 0)) for worker, each in self._blocked.items()]
        return sum([_waiting_at(worker, tenant, count) for worker, count in counts if count])

    def room_of(self, tenant: str) -> int:
        """How many more tasks of a tenant may be at workers."""
        most = self.limits.get(tenant, DEFAULT_LIMITS).maximum_running
        if most < 0:
            return UNLIMITED
        return max(0, most - self.running.get(tenant, 0) + self._blocked_of(tenant))


def count_as_urgent(worker: WorkerWithTasks, requirement: Requirement) -> int:
    """How many tasks a worker holds that count as no less urgent than those of a class.

    Of their own tenant, by priority. Those of other tenants all do, whatever their priorities, unless the tasks of the
    class may be nested ones, for which a blocked task waits: then none does. Nested tasks have a priority above that of
    their parent. This may be here, or be of another tenant, as clients in tasks have keys of their own: so tasks with
    more than the usual priority may be nested ones, too.
    """
    urgent, of_others, has_less_urgent = 0, 0, False
    negative_priority, needs, _ = requirement
    for dispatch in worker.dispatches.values():
        held_priority, held_needs, _ = dispatch.batch.requirement
        if held_needs is not needs and held_needs.tenant != needs.tenant:
            of_others += dispatch.open_count
        elif held_priority <= negative_priority:
            urgent += dispatch.open_count
        else:
            has_less_urgent = True
    may_be_nested = has_less_urgent or negative_priority < 0
    return urgent if may_be_nested else urgent + of_others


def would_pass(worker: WorkerWithTasks, requirement: Requirement, target_microseconds: float) -> bool:
    """Whether tasks of a class would pass one of another tenant that was passed already by a prefetch of work.

    Parameters:
        target_microseconds: what a near worker prefetches for each slot.

    A worker whose tasks have all begun has none that can be passed. What calls of actors wait for is not known.
    """
    if worker.assigned <= worker.slots:
        return False
    negative_priority, needs, _ = requirement
    prefetched_microseconds = (target_microseconds + 2.0 * worker.distance_microseconds) * worker.slots
    newest = worker.given_microseconds - prefetched_microseconds
    for dispatch in worker.dispatches.values():  # the oldest first
        if dispatch.given_before_microseconds > newest:
            return False
        held_priority, held_needs, _ = dispatch.batch.requirement
        if held_priority > negative_priority and held_needs.tenant != needs.tenant and not dispatch.is_of_actor:
            return True
    return False


def _waiting_at(worker: WorkerWithTasks, tenant: str, blocked: int) -> int:
    """How many tasks of a tenant at a worker do not count, if so many wait for nested ones."""
    tasks, calls, actors = 0, 0, set()
    for each in worker.dispatches.values():
        if each.batch.tenant == tenant:
            tasks += each.open_count
            if each.is_of_actor:
                calls += each.open_count
                actors.add(each.batch.function)
    return min(blocked + calls - len(actors), tasks)
