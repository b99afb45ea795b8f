"""A cluster that grows and shrinks, simulated: the real core of a provisioner, and a scheduler that is a few formulas.

    tasks ──▶ played scheduler ──Demand──▶ ProvisionCore ──StartUnits──▶ units, after their boot time ──▶ slots

Rules:
- Time goes in steps of TICK_SECONDS. All chance comes from the seed.
- The demand is computed by the real arithmetic, `slots_wanted`, and told with a delay of a round, as by a scheduler.
- The tasks of each stage are of a function of their own.
"""

from __future__ import annotations

import random
from math import inf
from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from scaler.provision.core.pool import PoolSettings
from scaler.provision.core.provision_core import ListedUnit, ProvisionCore, SendMessage, StartUnits, StopUnit
from scaler_appliance.core.demand.slots_wanted import NeedsKey, Probes, TaskLoad, wanted
from scaler_protocol import messages as m

TICK_SECONDS = 1.0
LISTING_SECONDS = 2.0
KEY = NeedsKey("", ())


class Stage(NamedTuple):
    """Tasks that come at once."""

    at: float
    tasks: int
    seconds: float


class _Task(NamedTuple):
    function: int
    seconds: float


class _SimulatedUnit:
    def __init__(self, begins: float, fails: bool, slots: int) -> None:
        self.begins = begins  # when its worker connects, or when it fails
        self.fails = fails
        self.is_leaving = False
        self.idle_since = begins
        self.running: List[Tuple[float, _Task]] = []  # when they end
        self.slots = slots
        self.ran = 0


class Figures(NamedTuple):
    """What came of it.

    Attributes:
        done_at: when the last task had ended.
        utilisation: of the time of connected slots, the share in which they had tasks.
        over_request: of all units that were connected, the share that never had a task.
        flaps: units that were started less than a minute after another one had been let go, without new work between.
        most: units at a time.
    """

    done_at: float
    utilisation: float
    over_request: float
    flaps: int
    most: int
    started: int
    left_at: float


class Scene:
    """One run.

    Parameters:
        boot_seconds: from start to connection, at least and at most.
        failure_share: of starts.
        target_seconds: of the scheduler.
        is_measured: how long tasks take is known before the first one of their stage has ended.
    """

    def __init__(
        self,
        pool: PoolSettings,
        stages: Sequence[Stage],
        boot_seconds: Tuple[float, float],
        seed: int = 0,
        failure_share: float = 0.0,
        target_seconds: float = 10.0,
        is_measured: bool = True,
    ) -> None:
        self._pool, self._boot_seconds, self._failure_share = pool, boot_seconds, failure_share
        self._stages = sorted(stages)
        self._random = random.Random(seed)
        self._target_seconds = target_seconds
        self._measured: Set[int] = set(range(len(stages))) if is_measured else set()  # functions
        self._probes = Probes()
        self._core = ProvisionCore([pool], "run")
        self._units: Dict[str, _SimulatedUnit] = {}
        self._reported: List[m.Unit] = []
        self._sequence = 0
        self._told: Optional[m.Demand] = None
        self._waiting: List[_Task] = []
        self._busy_seconds = self._slot_seconds = 0.0
        self._all: List[_SimulatedUnit] = []
        self._released: List[float] = []
        self._flaps = self._most = 0
        self._functions = -1
        self._work_came = 0.0

    def run(self, until: float) -> Figures:
        """Until there are no tasks and only the minimum of units, or for so long."""
        now, done_at, next_listing, next_round = 0.0, 0.0, 0.0, 0.0
        self._core.on_opened(now)
        while now < until:
            self._advance(now)
            if not self._is_over:
                done_at = now
            elif self._stages == [] and len(self._units) <= self._pool.minimum:
                break
            if now >= next_round:
                next_round = now + 1.0
                demand = self._demand(now)
                if demand != self._told:
                    self._told = demand
                    self._core.on_demand(now, demand)
            if now >= next_listing:
                next_listing = now + LISTING_SECONDS
                self._core.on_listing(now, self._pool.name, now, self._listing(now))
            self._core.on_time(now)
            self._perform(now)
            self._most = max(self._most, len(self._units))
            assert len(self._units) <= self._pool.maximum, "more units than the maximum"
            now += TICK_SECONDS
        connected = [each for each in self._all if not each.fails]
        useless = sum(not each.ran for each in connected)
        return Figures(
            done_at=done_at,
            utilisation=self._busy_seconds / self._slot_seconds if self._slot_seconds else 1.0,
            over_request=useless / len(connected) if connected else 0.0,
            flaps=self._flaps,
            most=self._most,
            started=len(self._all),
            left_at=now,
        )

    @property
    def _is_over(self) -> bool:
        return not (self._stages or self._waiting or any(each.running for each in self._units.values()))

    # The cluster ----------------------------------------------------------------------------------------------------

    def _advance(self, now: float) -> None:
        while self._stages and self._stages[0].at <= now:
            stage = self._stages.pop(0)
            self._work_came = now
            self._functions += 1
            self._waiting += [_Task(self._functions, stage.seconds)] * stage.tasks
        for name, unit in list(self._units.items()):
            if now < unit.begins or unit.fails:
                continue
            self._measured |= {task.function for end, task in unit.running if end <= now}
            unit.running = [each for each in unit.running if each[0] > now]
            while self._waiting and not unit.is_leaving and len(unit.running) < unit.slots:
                task = self._waiting.pop()
                unit.running.append((now + task.seconds, task))
                unit.ran += 1
            if unit.running:
                unit.idle_since = now
            self._slot_seconds += unit.slots * TICK_SECONDS
            self._busy_seconds += len(unit.running) * TICK_SECONDS
            if unit.is_leaving and not unit.running:
                del self._units[name]

    def _demand(self, now: float) -> m.Demand:
        here = {name: each for name, each in self._units.items() if now >= each.begins and not each.fails}
        running = [each for unit in here.values() for each in unit.running]
        longest: Dict[int, float] = {}
        for end, task in running:
            longest[task.function] = max(longest.get(task.function, 0.0), now - (end - task.seconds))
        load = TaskLoad()
        for task, occupied in [*((each, 0) for each in self._waiting), *((each, 1) for _, each in running)]:
            seen = longest.get(task.function, 0.0)
            seconds = task.seconds if task.function in self._measured else 2.0 * seen if seen >= 1.0 else 0.0
            load.add(1, seconds * 1e6, occupied)
        probe = self._probes.look(now, {KEY: load}, self._target_seconds).get(KEY, 1)
        tasks, slots = load.tasks, wanted(load, self._target_seconds, probe)
        offered = sum(each.slots for each in here.values() if not each.is_leaving)
        to_come = [each for each in self._reported if each.state <= m.UnitState.STARTING and each.unit not in here]
        offered += sum(each.slots for each in to_come)
        needed = m.SlotDemand(tasks=tasks, tasks_unmeasured=load.unmeasured, slots_wanted=slots)
        needed.work_microseconds = int(load.work_microseconds)
        needed.slots_missing = max(0, slots - offered)
        uses = [m.UnitUse(unit=name, slots=each.slots, is_leaving=each.is_leaving) for name, each in here.items()]
        return m.Demand(demands=[needed] if tasks else [], units=uses, units_sequence=self._sequence)

    def _listing(self, now: float) -> Dict[str, ListedUnit]:
        found: Dict[str, ListedUnit] = {}
        for name, unit in list(self._units.items()):
            if unit.fails and now >= unit.begins:
                found[name] = ListedUnit(m.UnitState.FAILED, "no luck")
                del self._units[name]
            else:
                found[name] = ListedUnit(m.UnitState.PENDING if now < unit.begins else m.UnitState.STARTING)
        return found

    def _perform(self, now: float) -> None:
        for effect in self._core.take_effects():
            if isinstance(effect, StartUnits):
                for name in effect.units:
                    fails = self._random.random() < self._failure_share
                    boot = self._random.uniform(*self._boot_seconds)
                    unit = self._units[name] = _SimulatedUnit(now + boot, fails, self._pool.slots)
                    self._all.append(unit)
                    self._flaps += any(now - at < 60.0 and at >= self._work_came for at in self._released)
                self._core.on_started(now, effect.units)
            elif isinstance(effect, StopUnit):
                self._units.pop(effect.unit, None)
            elif isinstance(effect, SendMessage) and isinstance(effect.message, m.Units):
                self._reported, self._sequence = effect.message.units, effect.message.sequence
            elif isinstance(effect, SendMessage):
                self._release(now, effect.message)  # type: ignore[arg-type]  # the other kind

    def _release(self, now: float, request: m.ReleaseRequest) -> None:
        def idle(name: str) -> float:
            unit = self._units.get(name)
            if unit is None or unit.running or now < unit.begins or unit.is_leaving:
                return -inf
            return now - max(unit.idle_since, unit.begins)

        able = [each for each in request.units if idle(each) >= request.idle_milliseconds / 1000]
        chosen = sorted(able, key=idle, reverse=True)[: request.count]
        for name in chosen:
            self._units[name].is_leaving = True
            self._released.append(now)
        self._core.on_release(now, m.Release(request_id=request.request_id, units=chosen))
