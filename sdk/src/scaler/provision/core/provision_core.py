"""Which units to start, to let go and to stop.

    on_demand, on_listing, on_release, on_time … ──▶ StartUnits, StopUnit, SendMessage ──▶ take_effects()

Rules:
- A unit is started only for slots that the last Demand misses, and only if that Demand counts all units that were
  started: so none is started twice for the same tasks. What else has changed since does not matter: a unit that the
  Demand still counts makes it miss fewer slots, and waiting for another one costs a second each time.
- A pool whose units another program could list has a unit that is none, which stands for the whole pool and is told
  first of all. As a unit is one provisioner's, the scheduler refuses the second program before either starts anything:
  starting begins with a Demand that counts the first Units.
- A unit goes when it is idle, and the scheduler chooses which. It is stopped here only if it has not connected, or when
  its workers have left.
- A unit that waits and that no task has needed for the idle time is withdrawn: see `unneeded_units`.
- Without a session nothing is started and nothing is stopped: units go on. Nor does the time count in which they should
  connect or end: their workers look for the scheduler, too.
- Nor is one started in the first STOP_GRACE_SECONDS of a session while units that had workers have none: a scheduler
  that was started again hears of tasks before all workers are back.
- A listing that fails is no listing: units are not lost because a command had a bad day, and none is started until it
  works again.
- A unit that has failed and is still listed counts for the maximum.
"""

from __future__ import annotations

from itertools import islice
from math import ceil, inf
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Union

from scaler.provision.core.pool import Pool, PoolSettings
from scaler_protocol import messages as m

RELEASE_INTERVAL_SECONDS = 2.0  # between two questions which units can go
STOP_GRACE_SECONDS = 10.0  # for a unit to end by itself, after its workers have left
FORGET_SECONDS = 60.0  # after which a failed unit is not told any more
REFUSALS_TOLD = 2  # sets of needs that no pool has
_TO_COME_OR_HERE = (m.UnitState.PENDING, m.UnitState.STARTING, m.UnitState.RUNNING)


class StartUnits(NamedTuple):
    """Start units, whose numbers follow one another; `on_started` or `on_start_failed` follows for each of them."""

    pool: str
    units: Sequence[str]


class StopUnit(NamedTuple):
    """Stop a unit, whose workers have left or never came."""

    pool: str
    unit: str


class SendMessage(NamedTuple):
    """Send a message to the scheduler."""

    message: Union[m.Units, m.ReleaseRequest]


class Log(NamedTuple):
    """Something that people should know."""

    level: str
    text: str


Effect = Union[StartUnits, StopUnit, SendMessage, Log]


class ListedUnit(NamedTuple):
    """A unit that an adapter has found.

    Attributes:
        state: PENDING or STARTING; FAILED: it has ended with this reason, and not as it should.
    """

    state: m.UnitState
    reason: str = ""


class _Unit:
    """One unit."""

    __slots__ = (
        *("name", "pool", "state", "reason", "begun", "started", "runs_since"),
        *("connected", "is_leaving", "left", "is_listed", "is_withdrawn", "unneeded_since", "asked"),
    )

    def __init__(self, name: str, pool: Pool, now: float) -> None:
        self.name = name
        self.pool = pool
        self.state = m.UnitState.PENDING
        self.reason = ""
        self.begun = now  # when it was started, or found
        self.runs_since = now  # when it was started, found, or seen to wait no longer
        self.started = inf  # when the adapter had done so: later listings have it; -inf: it was found
        self.connected = inf  # when its first worker was connected
        self.is_leaving = False  # its workers drain
        self.left = inf  # when it was asked to end, its last worker was gone, or it had failed
        self.is_listed = False  # by the last listing
        self.is_withdrawn = False  # it was asked to end while it waited
        self.unneeded_since = inf  # while it waits; `inf`: there are tasks for it
        self.asked = 0  # the Units to which the scheduler is to answer before it is stopped; 0: none

    @property
    def slots(self) -> int:
        """That it has, or will have."""
        return self.pool.settings.slots

    def slots_for(self, needs: Mapping[str, float], time_request_seconds: float) -> int:
        """How many tasks with these needs it runs at once."""
        return self.pool.settings.slots_for(needs, time_request_seconds)


def unneeded_units(units: Sequence[_Unit], demand: m.Demand) -> List[_Unit]:
    """The units that wait at their machines and that no task is for: those with workers come first, then the oldest.

    Workers that belong to no unit are unknown here, so their tasks keep units waiting, which do no harm. For the same
    reason a unit is for one kind of needs only, if they have capabilities.
    """
    waiting = [each for each in units if each.state == m.UnitState.PENDING and each.is_listed]
    if not waiting:
        return []
    there = [each for each in units if each.state in _TO_COME_OR_HERE and each not in waiting]
    ordered = [*there, *sorted(waiting, key=lambda each: each.begun)]
    left = {each.name: each.slots for each in ordered}
    used = set()
    for wanted in sorted(demand.demands, key=lambda each: -len(each.capabilities)):
        needs = {each.name: each.amount for each in wanted.capabilities}
        slots = wanted.slots_wanted
        for unit in ordered:
            offered = min(left[unit.name], unit.slots_for(needs, wanted.time_request_milliseconds / 1000))
            if slots > 0 and offered > 0:
                slots -= offered
                left[unit.name] = 0 if needs else max(0, -slots)
                used.add(unit.name)
    return [each for each in waiting if each.name not in used]


class ProvisionCore:
    """
    Parameters:
        pools: of the user; their names differ.
        instance: of this program, a word that no other one has had: a part of the ids of units.
        places: of pools that another program could have, too: where their units are, by pool.
    """

    def __init__(self, pools: Sequence[PoolSettings], instance: str, places: Mapping[str, str] = {}) -> None:
        self.pools: Dict[str, Pool] = {each.name: Pool(each) for each in pools}
        self._order = sorted(self.pools.values(), key=lambda each: (-each.settings.priority, each.settings.cost))
        self._instance = instance
        self._claims = [
            m.Unit(unit=f"all of {name} in {place}", pool=name, state=m.UnitState.STOPPING)
            for name, place in places.items()
        ]
        self._numbers = 0
        self._units: Dict[str, _Unit] = {}
        self._effects: List[Effect] = []
        self._demand: Optional[m.Demand] = None
        self._is_open = False  # there is a session
        self._opened_at = -inf
        self._sequence = 0
        self._last_start = 1  # the first Units that have all units that were started
        self._told: Optional[m.Units] = None
        self._is_asking = False  # whether what it said last is still so
        self._requests: Dict[int, Pool] = {}  # that are not answered yet
        self._last_request = 0
        self._next_release = -inf
        self._refused: Dict[str, None] = {}  # needs that no pool has, as text

    # Events ---------------------------------------------------------------------------------------------------------

    def on_opened(self, now: float) -> None:
        """A session has begun."""
        self._is_open, self._demand, self._told, self._sequence = True, None, None, 0
        self._opened_at, self._last_start = now, 1
        self._requests.clear()
        for unit in self._units.values():
            unit.unneeded_since, unit.asked = inf, 0
        for pool in self._order:
            pool.is_asking = False

    def on_lost(self) -> None:
        """The session has ended."""
        self._is_open, self._demand = False, None

    def on_demand(self, now: float, demand: m.Demand) -> None:
        """The scheduler says what tasks could use, and which units have workers."""
        self._demand = demand
        self._compare(now, demand)
        self.on_time(now)

    def _compare(self, now: float, demand: m.Demand) -> None:
        """Note which units have workers."""
        connected = {each.unit: each for each in demand.units}
        for unit in list(self._units.values()):
            use = connected.get(unit.name)
            if use is not None:
                if unit.is_withdrawn:  # it was faster: whether it leaves, the scheduler knows
                    unit.is_withdrawn = unit.is_leaving = False
                if unit.connected == inf:
                    unit.connected = now
                    if unit.started > -inf and not unit.is_leaving:
                        unit.pool.on_connected(now - unit.begun, now - unit.runs_since)
                unit.is_leaving |= use.is_leaving
                unit.state = m.UnitState.STOPPING if unit.is_leaving else m.UnitState.RUNNING
                unit.reason, unit.left, unit.asked = "", inf, 0
            elif unit.connected < inf and unit.left == inf:
                unit.state, unit.left = m.UnitState.STOPPING, now  # its workers have left

    def on_release(self, now: float, release: m.Release) -> None:
        """The scheduler has chosen units that go."""
        pool = self._requests.pop(release.request_id, None)
        if pool is not None:
            pool.is_asking = False
        for name in release.units:
            unit = self._units.get(name)
            if unit is not None:
                unit.is_leaving, unit.state = True, m.UnitState.STOPPING
                self._log("INFO", f"unit {name} is idle and leaves")
        self._tell(now)

    def on_started(self, now: float, names: Sequence[str]) -> None:
        """Units are started: they wait, or begin."""
        for unit in self._known(names):
            unit.started = now

    def on_start_failed(self, now: float, names: Sequence[str], reason: str) -> None:
        """Units could not be started, for the same reason."""
        for unit in self._known(names):
            self._fail(now, unit, reason)
            unit.pool.on_start_failed(now)
        self._tell(now)

    def on_listing_failed(self, now: float, pool_name: str, reason: str) -> None:
        """An adapter could not list the units of a pool."""
        self.pools[pool_name].on_listing_failed(reason)
        self._tell(now)

    def on_listing(self, now: float, pool_name: str, asked: float, found: Mapping[str, ListedUnit]) -> None:
        """An adapter has listed the units of a pool.

        Parameters:
            asked: when the listing began: units that were started later may not be in it.
        """
        pool = self.pools[pool_name]
        pool.on_listing(asked)
        for name, listed in found.items():
            unit = self._units.get(name)
            if unit is None:
                if listed.state == m.UnitState.FAILED:
                    continue
                unit = self._units[name] = _Unit(name, pool, now)  # of an earlier run of this program
                unit.started = -inf
            if listed.state == m.UnitState.FAILED:
                if unit.left == inf or unit.connected < inf or unit.is_withdrawn:
                    self._end(now, unit, listed.reason)
            elif unit.connected == inf and unit.left == inf:
                if unit.state == m.UnitState.PENDING:
                    unit.runs_since = now
                unit.state, unit.reason = listed.state, listed.reason
        for unit in [each for each in self._units.values() if each.pool is pool]:
            unit.is_listed = unit.name in found and found[unit.name].state != m.UnitState.FAILED
            if unit.name in found:
                continue
            if unit.started < asked and unit.state != m.UnitState.FAILED:
                self._end(now, unit, "it has ended before its worker was connected")
        if self._demand is not None:
            self._compare(now, self._demand)
        self._tell(now)

    def on_time(self, now: float) -> None:
        """Decide; to be called once a second."""
        self._expire(now)
        if not self._is_open:
            return
        if self._told is None:
            self._tell(now)  # also without units: the scheduler's Demand then counts what there is
            return
        demand = self._demand
        if demand is not None and demand.units_sequence >= self._last_start:
            self._start(now, demand)
            self._withdraw(now, demand)
            self._release(now)
        self._tell(now)

    def take_effects(self) -> List[Effect]:
        """The effects since the last call, in order."""
        effects, self._effects = self._effects, []
        return effects

    @property
    def units(self) -> List[str]:
        """The ids of all units that have not failed."""
        return [each.name for each in self._units.values() if each.state != m.UnitState.FAILED]

    # Starting -------------------------------------------------------------------------------------------------------

    def _start(self, now: float, demand: m.Demand) -> None:
        counts = self._counts(now)
        refused: Dict[str, None] = {}
        spare = dict.fromkeys(self.pools, 0)  # slots of units that are started now, which tasks without needs can use
        for wanted in sorted(demand.demands, key=lambda each: -len(each.capabilities)):
            needs = {each.name: each.amount for each in wanted.capabilities}
            time_seconds = wanted.time_request_milliseconds / 1000
            left = wanted.slots_missing
            able = [pool for pool in self._order if pool.settings.slots_for(needs, time_seconds)]
            if left and not able:
                text = ", ".join(f"{name}={amount:g}" for name, amount in sorted(needs.items())) or "no capabilities"
                refused[f"{text}{f' for {time_seconds:.0f} s' if time_seconds else ''}"] = None
            there = wanted.slots_wanted - wanted.slots_missing
            for pool in able:
                each = pool.settings.slots_for(needs, time_seconds)
                name, settings = pool.settings.name, pool.settings
                used = 0 if needs else min(left, spare[name])
                spare[name] -= used
                left -= used
                worth = pool.worth_starting(left, there, wanted.work_microseconds / 1e6, wanted.tasks_unmeasured)
                units = min(ceil(worth / each), max(0, settings.maximum - counts[name].present))
                counts[name].wanted += units
                counts[name].present += units
                spare[name] += max(0, units * settings.slots - worth)
                left = max(0, left - units * each)
        for text in refused.keys() - self._refused.keys():
            self._log("WARNING", f"no pool has units for tasks that need {text}: change a pool, or the tasks wait")
        self._refused = refused
        for pool in self._order:
            self._start_of(now, pool, counts[pool.settings.name])

    def _counts(self, now: float) -> Dict[str, _Counts]:
        counts = {name: _Counts() for name in self.pools}
        for unit in self._units.values():
            of = counts[unit.pool.settings.name]
            has_failed = unit.state == m.UnitState.FAILED
            of.present += unit.is_listed or not has_failed
            of.held += unit.is_listed and has_failed
            if not has_failed:
                of.there += 1
                of.to_come += unit.state in (m.UnitState.PENDING, m.UnitState.STARTING)
                of.leaving += unit.state == m.UnitState.STOPPING
                may_return = unit.left < inf and not unit.is_leaving
                of.returning += may_return and now < self._opened_at + STOP_GRACE_SECONDS
        return counts

    def _start_of(self, now: float, pool: Pool, counts: _Counts) -> None:
        if counts.returning:
            return
        lacking = max(0, pool.settings.minimum - (counts.there - counts.leaving))
        if not counts.wanted:
            pool.wanted_since = inf
        elif pool.wanted_since == inf:
            pool.wanted_since = now
        is_sustained = now >= pool.wanted_since + pool.settings.sustain_seconds
        wanted = max(lacking, counts.wanted if is_sustained else 0)
        names: List[str] = []
        for _ in range(min(wanted, pool.may_start(now, counts.there + counts.held, counts.to_come))):
            self._numbers += 1
            names.append(f"{pool.settings.name}-{self._instance}-{self._numbers}")
            self._units[names[-1]] = _Unit(names[-1], pool, now)
        if names:
            self._effects.append(StartUnits(pool.settings.name, names))
            self._last_start = self._sequence + 1

    # Letting go -----------------------------------------------------------------------------------------------------

    def _release(self, now: float) -> None:
        """Ask which units can go, of pools that have more than their minimum."""
        if now < self._next_release:
            return
        self._next_release = now + RELEASE_INTERVAL_SECONDS
        for pool in reversed(self._order):  # those go first that are used last
            units = [each for each in self._units.values() if each.pool is pool]
            running = [each.name for each in units if each.state == m.UnitState.RUNNING]
            surplus = len(running) - pool.settings.minimum
            if surplus <= 0 or pool.is_asking:
                continue
            pool.is_asking = True
            self._last_request += 1
            self._requests[self._last_request] = pool
            idle = int(pool.idle_seconds * 1000)
            request = m.ReleaseRequest(request_id=self._last_request, units=running, count=surplus)
            request.idle_milliseconds = idle
            self._effects.append(SendMessage(request))

    def _withdraw(self, now: float, demand: m.Demand) -> None:
        """Stop units that wait and that no task needs, the newest first: the others are nearer to their turn."""
        counts = self._counts(now)
        unneeded = unneeded_units(list(self._units.values()), demand)
        newest_first = sorted(self._units.values(), key=lambda each: each.begun)[::-1]  # of equals, the last one
        for unit in newest_first:
            of, settings = counts[unit.pool.settings.name], unit.pool.settings
            if unit not in unneeded:
                unit.unneeded_since = inf
                continue
            unit.unneeded_since = min(unit.unneeded_since, now)
            is_surplus = of.there - of.leaving > settings.minimum
            if is_surplus and now >= unit.unneeded_since + unit.pool.idle_seconds:
                of.leaving += 1
                unit.is_withdrawn = unit.is_leaving = True
                unit.state, unit.reason, unit.left = m.UnitState.STOPPING, "", now
                self._log("INFO", f"unit {unit.name} is withdrawn: it waits, and the tasks for it have gone")
                self._effects.append(StopUnit(settings.name, unit.name))

    def _expire(self, now: float) -> None:
        """Stop units that did not come, and those whose workers have left; forget failed ones."""
        demand = self._demand if self._is_open else None  # which says what units have workers
        for unit in list(self._units.values()):
            settings = unit.pool.settings
            if unit.state == m.UnitState.FAILED:
                if now >= unit.left + FORGET_SECONDS:
                    del self._units[unit.name]
            elif demand is None:
                continue
            elif unit.connected == inf and not unit.is_withdrawn:
                since = max(unit.runs_since, self._opened_at)
                is_late = now >= since + settings.start_timeout_seconds and unit.state == m.UnitState.STARTING
                if is_late and self._is_confirmed(demand, unit):
                    text = (
                        f"no worker with --unit {unit.name} was connected within {settings.start_timeout_seconds:g} s"
                    )
                    self._fail(now, unit, text)
                    self._effects.append(StopUnit(settings.name, unit.name))
            elif now >= max(unit.left, self._opened_at) + STOP_GRACE_SECONDS and self._is_confirmed(demand, unit):
                unit.left, unit.asked = now, 0  # again, if it is still there then
                self._effects.append(StopUnit(settings.name, unit.name))

    def _is_confirmed(self, demand: m.Demand, unit: _Unit) -> bool:
        """Whether the scheduler has been asked again, and still knows no worker of the unit.

        It says only what has changed, so what it has said last may be older than a worker that has come meanwhile.
        """
        if not unit.asked:
            unit.asked, self._is_asking = self._sequence + 1, True
        return demand.units_sequence >= unit.asked

    def _known(self, names: Sequence[str]) -> List[_Unit]:
        return [self._units[name] for name in names if name in self._units]

    def _end(self, now: float, unit: _Unit, reason: str) -> None:
        """A unit is not there any more."""
        if unit.connected == inf and not unit.is_leaving:
            self._fail(now, unit, reason or "it has ended before its worker was connected")
        else:
            del self._units[unit.name]

    def _fail(self, now: float, unit: _Unit, reason: str) -> None:
        unit.state, unit.reason, unit.left = m.UnitState.FAILED, reason, now
        unit.pool.on_failed(now, unit.begun, reason)
        wait = max(0.0, unit.pool.next_start - now)
        self._log("ERROR", f"unit {unit.name} has failed: {reason}; the pool starts the next one after {wait:.0f} s")

    # Telling ----------------------------------------------------------------------------------------------------------

    def _tell(self, now: float) -> None:
        """SendMessage the scheduler which units there are, if that has changed."""
        if not self._is_open:
            return
        units = m.Units(
            units=[*self._claims, *(self._described(each) for each in self._units.values())],
            notes=[*(note for note in (pool.note(now) for pool in self._order) if note), *self._impossible()],
            sequence=self._sequence,
            pools=[_pool_described(each.settings) for each in self._order],
        )
        if units == self._told and not self._is_asking:
            return
        self._is_asking = False
        self._sequence += 1
        units.sequence = self._sequence
        self._told = units
        self._effects.append(SendMessage(units))

    def _impossible(self) -> List[str]:
        """For people whose tasks wait for what no pool has."""
        return [f"no pool has units for tasks that need {text}" for text in islice(self._refused, REFUSALS_TOLD)]

    def _described(self, unit: _Unit) -> m.Unit:
        settings = unit.pool.settings
        return m.Unit(
            unit=unit.name,
            pool=settings.name,
            state=unit.state,
            reason=unit.reason,
            lifetime_milliseconds=int(settings.longest_task_seconds * 1000),
            slots=settings.slots,
            capabilities=_capabilities(settings),
        )

    def _log(self, level: str, text: str) -> None:
        self._effects.append(Log(level, text))


def _pool_described(settings: PoolSettings) -> m.UnitPool:
    return m.UnitPool(
        pool=settings.name,
        slots=settings.slots,
        maximum_units=settings.maximum,
        capabilities=_capabilities(settings),
        lifetime_milliseconds=int(settings.longest_task_seconds * 1000),
    )


def _capabilities(settings: PoolSettings) -> List[m.Capability]:
    return [m.Capability(name=name, amount=amount) for name, amount in settings.capabilities.items()]


class _Counts:
    """Units of a pool."""

    __slots__ = ("present", "there", "held", "to_come", "leaving", "returning", "wanted")

    def __init__(self) -> None:
        self.present = self.there = self.held = self.to_come = self.leaving = self.returning = self.wanted = 0
