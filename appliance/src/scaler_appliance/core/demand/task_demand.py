"""Which slots are wanted, as one looks once a second.

    tick ──▶ watch ──▶ a round, in parts: workers, then ready queues ──▶ TaskLoad by needs ──▶ figures

Rules:
- Nothing is counted when tasks come, go or are placed: a round reads what the core keeps anyway. Without a monitor or a
  provisioner there are no rounds.
- Tasks that wait for others are in no queue, and so not counted; nor are those of clients that do not take their
  results, those beyond the quota of their tenant, those that wait for nested tasks, and calls of an actor that has a
  worker.
- Tasks that new workers could not run either count as nothing: a worker has what they need, and does not serve their
  function or codec. This is remembered while they wait, or one worker after another would be started to find it out.
- Of functions whose tasks have not ended yet, a task that runs for long says that the others may take as long again, or
  as long as those of an earlier function of that name. The name alone says nothing: it may be another function.
- A task that runs on a worker with an end has its slot: for how long it asked is of no account, or another worker would
  be wanted for it as soon as its own has less time left.
- A queue may have millions of spans. A part of each is looked at, and stands for the rest.
"""

from __future__ import annotations

from itertools import islice
from math import exp, inf
from typing import Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Set, Tuple

from scaler_appliance.core.demand.pool_demand import PoolNeed, shared_among
from scaler_appliance.core.demand.slots_wanted import (
    LARGEST_SLOTS,
    NeedsKey,
    Offer,
    Probes,
    TaskLoad,
    lasting,
    missing,
    rounded_time_request,
    wanted,
)
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.placement.ready_class import ReadyClass
from scaler_appliance.core.placement.tenant_shares import UNLIMITED
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.steps import Steps
from scaler_appliance.core.tasks.batches import Needs, TaskBatch
from scaler_appliance.core.tasks.figures_by_function import FiguresByFunction
from scaler_protocol import messages as m
from scaler_protocol.keys.allow_list import ANY_TENANT

MAXIMUM_DEMANDS = 256  # sets of needs that are published, those that want most
CLIENTS_OF_A_CLASS = 64  # that are looked at
SPANS_OF_A_CLIENT = 16  # likewise
KINDS_COMPARED = 256  # of workers, with what tasks need
PAUSE_OF_A_ROUND = 10  # times as long as it took
SHORTEST_SIGN_MICROSECONDS = 0.9e6
"""Of a task that runs, which says how long others take; two rounds are a second apart."""
_LARGEST = (1 << 64) - 1
_LAMBDA = "<lambda>"  # of functions that have no name of their own


class Figures(NamedTuple):
    """What the tasks with the same needs want.

    Attributes:
        wanted: slots, those that there are included.
        missing: so many more than workers and starting units have.
        of_units: of `wanted`, those that workers which belong to no unit do not have.
    """

    key: NeedsKey
    load: TaskLoad
    wanted: int
    missing: int
    of_units: int = 0


class _Kind(NamedTuple):
    """What workers have in common that could run the same tasks."""

    tenant: str
    capabilities: Tuple[Tuple[str, float], ...]
    codecs: Tuple[str, ...]
    functions: Tuple[str, ...]


class _Idle(NamedTuple):
    """A worker as the last rounds have seen it.

    Attributes:
        since: when it was seen like this first.
        sent: how many tasks it had been sent by then.
        was_busy: it had tasks.
    """

    since: float
    sent: int
    was_busy: bool


class TaskDemand:
    """The demand of all tasks of a scheduler.

    Attributes:
        figures: of the last round, those that want most first.
        rounds: how many have ended.
        sequences: by session, of the reports of provisioners that the last one has taken into account.
    """

    def __init__(self, state: SchedulerState) -> None:
        self._state = state
        self.figures: List[Figures] = []
        self.rounds = 0
        self.sequences: Dict[int, int] = {}
        self._round: Optional[Steps] = None  # that goes on
        self._begun = self._next = self._ended = 0.0
        self._kinds: Dict[int, _Kind] = {}  # by session, of workers
        self._mean_occupied: Dict[NeedsKey, float] = {}
        self._idle_since: Dict[int, _Idle] = {}  # by session
        self._seen: Dict[int, float] = {}  # by number: dispatches that are first at their worker, and since when
        self._not_understood: Set[Needs] = set()  # by workers that have the capabilities
        self._probes = Probes()
        self._earlier = FiguresByFunction()  # by tenant and name of the function, of all clients

    def watch(self, now: float, is_wanted: bool) -> None:
        """Begin a round, if one wants to know; to be called periodically."""
        if not is_wanted:
            self._round, self.figures = None, []
            self._kinds.clear()
            self._mean_occupied.clear()
            self._idle_since.clear()
            self._seen.clear()
            self._probes.clear()
        elif self._round is None and now >= self._next:
            self._begun = now
            self._round = self._look(now)

    def idle_seconds(self, worker: WorkerSession) -> float:
        """For how long a worker has had no tasks, as far as rounds have seen it."""
        seen = self._idle_since.get(worker.number)
        if seen is None or seen.was_busy or worker.tasks or worker.actors or seen.sent != worker.sent:
            return 0.0
        return max(0.0, self._state.now - seen.since)

    @property
    def is_unfinished(self) -> bool:
        """Whether `go_on` has more to do."""
        return self._round is not None

    def go_on(self, now: float, amount: int) -> bool:
        """Do this amount of the work of a round; returns whether it has ended with this call."""
        while self._round is not None and amount > 0:
            done = next(self._round, None)
            if done is None:
                self._round = None
                self._next = now + PAUSE_OF_A_ROUND * (now - self._begun)
                self.rounds += 1
                return True
            amount -= done
        return False

    # A round ----------------------------------------------------------------------------------------------------------

    def _look(self, now: float) -> Steps:
        state = self._state
        loads: Dict[NeedsKey, TaskLoad] = {}
        kinds: Dict[_Kind, WorkerSession] = {}  # one worker of each
        offers: Dict[Tuple[_Kind, float], Offer] = {}
        others: Dict[Tuple[_Kind, float], Offer] = {}  # of these, workers that are no provisioner's
        longest: Dict[int, float] = {}  # microseconds for which a task runs, by number of its function
        known, self._kinds = self._kinds, {}
        idle, self._idle_since = self._idle_since, {}
        joined: Set[Tuple[str, str]] = set()  # tenants of workers, with their units
        workers = list(state.workers.values())
        seen, self._seen = self._seen, {}
        for worker in workers:
            if worker.assigned and not worker.is_gone:
                self._note_longest(worker, now, seen, longest)
            yield 1
        for worker in workers:
            if worker.is_gone:
                continue
            self._idle_since[worker.number] = _idle_since(worker, self._state.now, idle.get(worker.number))
            joined.add((worker.tenant, worker.hello.unit))
            kind = self._kinds[worker.number] = known.get(worker.number) or _kind_of(worker)
            if not worker.leaving:
                kinds.setdefault(kind, worker)
                stays = worker.stays_until - now
                bucket = inf if stays == inf else rounded_time_request(max(stays, 1.0))
                for found in [offers] if state.units.has(worker.hello.unit, worker.tenant) else [offers, others]:
                    offer = found.get((kind, bucket))
                    if offer is None:
                        offer = found[kind, bucket] = Offer(worker.tenant, worker.capabilities)
                    offer.add(worker.hello.slots, worker.capabilities, stays)
            self._add_running(worker, loads, longest)
            yield 1 + len(worker.dispatches) // 2
        rooms: Dict[str, int] = {}
        not_understood: Set[Needs] = set()
        for ready_class in state.ready.classes():
            if ready_class.count:
                yield self._add_waiting(ready_class, loads, longest, rooms, kinds.values(), not_understood)
        self._not_understood = not_understood
        yield 1 + len(loads)
        # SCL-SCH-050
        self.sequences = state.units.sequences()
        to_come = [_offer_of(*each) for each in state.units.to_come(joined)]
        yield 1 + len(to_come)
        self._conclude(now, loads, [*offers.values(), *to_come], list(others.values()))

    def _note_longest(
        self, worker: WorkerSession, now: float, seen: Dict[int, float], longest: Dict[int, float]
    ) -> None:
        """For how long its first task has been running, if its function is not measured: no earlier one has ended."""
        dispatch = next(iter(worker.dispatches.values()), None)
        if dispatch is None or self._state.durations.get(dispatch.batch.function_key) is not None:
            return
        since = self._seen[dispatch.number] = seen.get(dispatch.number, now)
        microseconds, number = (now - since) * 1e6, dispatch.batch.counters.number
        if microseconds >= max(SHORTEST_SIGN_MICROSECONDS, longest.get(number, 0.0)):
            longest[number] = microseconds

    def _duration(self, batch: TaskBatch, longest: Dict[int, float]) -> float:
        """How long a task of a batch takes, in microseconds; 0: not known."""
        measured = self._state.durations.get(batch.function_key)
        counters = batch.counters
        name = (counters.tenant, counters.name)
        if measured is not None:
            self._earlier.set(name, measured)
            return max(measured, 1.0)
        seen = longest.get(counters.number)
        if seen is None:
            return 0.0
        has_own_name = bool(counters.name) and not counters.name.endswith(_LAMBDA)
        return max(2.0 * seen, (self._earlier.get(name) or 0.0) if has_own_name else 0.0)

    def _add_running(self, worker: WorkerSession, loads: Dict[NeedsKey, TaskLoad], longest: Dict[int, float]) -> None:
        """Add the tasks of a worker; the first ones are in its slots, and those that wait for nested ones count not."""
        suspended = worker.slots - worker.hello.slots
        free = worker.hello.slots
        for dispatch in worker.dispatches.values():
            count = dispatch.open_count
            blocked = min(suspended, count)
            suspended -= blocked
            count -= blocked
            if dispatch.is_of_actor:
                count = min(count, 1)
            needs = dispatch.batch.requirement.needs
            occupied = min(count, free)
            free -= occupied
            if count:
                request_seconds = needs.time_request_seconds if worker.stays_until == inf else 0.0
                load = _load(loads, needs.tenant, needs.capabilities, request_seconds)
                load.add(count, self._duration(dispatch.batch, longest), occupied)

    def _add_waiting(
        self,
        ready_class: ReadyClass,
        loads: Dict[NeedsKey, TaskLoad],
        longest: Dict[int, float],
        rooms: Dict[str, int],
        kinds: Iterable[WorkerSession],
        not_understood: Set[Needs],
    ) -> int:
        """Add the tasks of a class that could run; returns how much work it was."""
        needs = ready_class.requirement.needs
        actor = self._state.actors.find(needs.actor) if needs.actor else None
        if needs.actor and (actor is None or actor.worker or actor.why_lost):
            return 1
        if (needs.codec or needs.function_name) and self._is_impossible(ready_class, kinds):
            not_understood.add(needs)
            return 1 + KINDS_COMPARED // 8
        tenant = needs.tenant
        if tenant not in rooms:
            rooms[tenant] = self._state.shares.room_of(tenant) if self._state.has_quotas else UNLIMITED
        count = min(1 if needs.actor else ready_class.count, rooms[tenant])
        if not count:
            return 1
        rooms[tenant] -= count
        capabilities = needs.capabilities if actor is None else actor.capabilities
        load = _load(loads, tenant, capabilities, needs.time_request_seconds)
        looked = unmeasured = microseconds = 0.0  # sums, by weight
        for batch, weight in ready_class.samples(CLIENTS_OF_A_CLASS, SPANS_OF_A_CLIENT):
            duration = self._duration(batch, longest)
            looked += weight
            microseconds += duration * weight
            unmeasured += 0.0 if duration else weight
        of_unmeasured = min(count, round(count * unmeasured / looked)) if looked > unmeasured else count
        if of_unmeasured:
            load.add(of_unmeasured, 0.0, is_served=not needs.function_name or _are_served(needs, kinds))
        if count > of_unmeasured:
            load.add(count - of_unmeasured, microseconds / (looked - unmeasured))
        if not (ready_class.requirement.is_large and ready_class.without_memory[0]):
            return 2 + CLIENTS_OF_A_CLASS
        able = [
            each for each in self._state.workers.values() if not each.leaving and each.offers(needs, self._state.now)
        ]
        load.without_memory = max(load.without_memory, sum([max(0, each.slots - each.assigned) for each in able]))
        return 2 + CLIENTS_OF_A_CLASS + len(self._state.workers)

    def _is_impossible(self, ready_class: ReadyClass, kinds: Iterable[WorkerSession]) -> bool:
        """Whether workers have what the tasks need, and do not run them."""
        needs = ready_class.requirement.needs
        is_known = needs in self._not_understood
        if not (is_known or ready_class.is_parked) or needs.actor:
            return False
        able = needs._replace(codec="", function_name="", time_request_seconds=0.0)
        for worker in islice(kinds, KINDS_COMPARED):
            if worker.offers(able, 0.0):
                if worker.understands(needs):
                    return False
                is_known = True
        return is_known

    def _conclude(self, now: float, loads: Dict[NeedsKey, TaskLoad], offers: List[Offer], others: List[Offer]) -> None:
        target_seconds = self._state.settings.demand_target_seconds
        weight = exp(-max(0.0, now - self._ended) / target_seconds)
        self._ended = now
        means = {key: mean * weight for key, mean in self._mean_occupied.items() if mean * weight > 0.01}
        for key, load in loads.items():
            means[key] = means.get(key, 0.0) + load.occupied * (1.0 - weight)
        self._mean_occupied = means
        probes = self._probes.look(now, loads, target_seconds)
        wants = {key: wanted(load, target_seconds, probes.get(key, 1)) for key, load in loads.items()}
        lacks = missing(wants, offers, loads)
        found = []
        for key, mean in means.items():
            load = loads.get(key) or TaskLoad()
            slots = min(max(wants.get(key, 0), lasting(mean)), LARGEST_SLOTS)
            if slots:
                found.append(Figures(key, load, slots, lacks.get(key, 0)))
        found.sort(key=lambda each: (-each.wanted, each.key))
        found = found[:MAXIMUM_DEMANDS]
        of_units = missing({each.key: each.wanted for each in found}, others, loads)
        self.figures = [each._replace(of_units=of_units[each.key]) for each in found]

    # Told -------------------------------------------------------------------------------------------------------------

    # SCL-SEC-030
    def demands(self, tenant: str = ANY_TENANT) -> List[m.SlotDemand]:
        """The figures for those who see a tenant, or all of them: what several tenants need is added."""
        added: Dict[NeedsKey, m.SlotDemand] = {}
        for key, load, slots, lacks, _ in self.figures:
            if not (tenant == ANY_TENANT or key.tenant == tenant):
                continue
            key = key._replace(tenant="")
            entry = added.get(key)
            if entry is None:
                entry = added[key] = m.SlotDemand(
                    capabilities=[m.Capability(name=name, amount=amount) for name, amount in key.capabilities]
                )
            milliseconds = min(int(_request_seconds(key, load) * 1000), _LARGEST)
            entry.time_request_milliseconds = max(entry.time_request_milliseconds, milliseconds)
            entry.tasks += load.tasks
            entry.tasks_unmeasured += load.unmeasured
            entry.work_microseconds = min(entry.work_microseconds + int(load.work_microseconds), _LARGEST)
            entry.slots_wanted = min(entry.slots_wanted + slots, LARGEST_SLOTS)
            entry.slots_missing = min(entry.slots_missing + lacks, LARGEST_SLOTS)
        return list(added.values())

    # SCL-MON-013
    def pools(self, tenant: str = ANY_TENANT) -> List[m.PoolDemand]:
        """What is wanted of the pools of provisioners for a tenant; ANY_TENANT: of all provisioners."""
        reports = self._state.units.of(tenant)
        needs = [
            PoolNeed(each.key.capabilities, _request_seconds(each.key, each.load), each.of_units)
            for each in self.figures
            if tenant in (ANY_TENANT, each.key.tenant)
        ]
        units = [unit for report in reports for unit in report.units]
        return shared_among(needs, [pool for report in reports for pool in report.pools], units)

    def tenants(self, tenant: str = ANY_TENANT) -> FrozenSet[str]:
        """The owners of the tasks that `demands` counts."""
        return frozenset(each.key.tenant for each in self.figures if tenant in (ANY_TENANT, each.key.tenant))


def _load(
    loads: Dict[NeedsKey, TaskLoad], tenant: str, capabilities: Tuple[Tuple[str, float], ...], request_seconds: float
) -> TaskLoad:
    """The load of tasks with these needs."""
    key = NeedsKey(tenant, capabilities, rounded_time_request(request_seconds))
    found = loads.get(key)
    if found is None:
        found = loads[key] = TaskLoad()
    found.longest_request_seconds = max(found.longest_request_seconds, request_seconds)
    return found


def _request_seconds(key: NeedsKey, load: TaskLoad) -> float:
    return load.longest_request_seconds if load.tasks else key.time_request_seconds


def _are_served(needs: Needs, kinds: Iterable[WorkerSession]) -> bool:
    """Whether there is a worker that runs tasks of this named function."""
    return any(worker.understands(needs) for worker in islice(kinds, KINDS_COMPARED))


def _kind_of(worker: WorkerSession) -> _Kind:
    hello = worker.hello
    capabilities = tuple(sorted(worker.capabilities.items()))
    return _Kind(worker.tenant, capabilities, tuple(hello.codecs), tuple(hello.functions))


def _idle_since(worker: WorkerSession, now: float, before: Optional[_Idle]) -> _Idle:
    """Since when a worker has had no tasks: from the first round that saw so, after its last tasks."""
    was_busy = bool(worker.tasks or worker.actors)
    if before is None or was_busy or before.was_busy or worker.sent != before.sent:
        return _Idle(now, worker.sent, was_busy)
    return before


def _offer_of(tenant: str, unit: m.Unit) -> Offer:
    """The slots of a unit that will have workers."""
    capabilities = {each.name: each.amount for each in unit.capabilities}
    offer = Offer(tenant, capabilities, unit.lifetime_milliseconds / 1000 if unit.lifetime_milliseconds else inf)
    offer.add(unit.slots, capabilities)
    return offer
