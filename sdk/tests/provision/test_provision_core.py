"""The policy of a provisioner: what it starts, what it lets go, and what it does when things fail."""

from __future__ import annotations

from typing import Any, List

import pytest
from provision.provision_bench import Bench, State, pool

from scaler.provision.core.pool import FAILURES_OF_A_PAUSE, PoolSettings
from scaler.provision.core.provision_core import ListedUnit, ProvisionCore, SendMessage, StartUnits, StopUnit
from scaler_protocol import messages as m


def test_as_many_units_are_started_as_have_the_missing_slots() -> None:
    assert len(Bench(pool(slots=4)).started(9)) == 3
    assert len(Bench(pool(slots=4, maximum=2)).started(9)) == 2
    assert Bench(pool()).started(0) == []


def test_no_unit_is_started_twice_for_the_same_tasks() -> None:
    bench = Bench(pool())
    assert len(bench.started(2)) == 2
    assert bench.states() == {"p-run-1": State.PENDING, "p-run-2": State.PENDING}

    stale = m.Demand(demands=[m.SlotDemand(slots_missing=2, tasks_unmeasured=1)], units_sequence=1)
    bench.core.on_demand(bench.now, stale)

    assert bench.effects() == [] and bench.tick() == []


def test_a_demand_is_good_enough_if_it_counts_all_units_that_were_started() -> None:
    bench = Bench(pool())
    (name,) = bench.started(1)
    bench.demand(0, name)
    assert bench.states() == {name: State.RUNNING}, "which is told, too, and changes nothing about what is missing"

    before = bench.units[-1].sequence - 1
    missing = m.SlotDemand(slots_missing=2, slots_wanted=3, tasks_unmeasured=1)
    uses = [m.UnitUse(unit=name, slots=1)]
    bench.core.on_demand(bench.now, m.Demand(demands=[missing], units=uses, units_sequence=before))

    assert bench.effects() == [StartUnits("p", ["p-run-2", "p-run-3"])]


def test_slots_that_some_tasks_leave_are_for_others_without_needs() -> None:
    def started(slots: int, *demands: m.SlotDemand, **fields: Any) -> int:
        bench = Bench(pool(slots=slots, **fields))
        bench.tick(0.0)
        bench.core.on_demand(bench.now, m.Demand(demands=list(demands), units_sequence=bench.units[-1].sequence))
        return sum(len(each.units) for each in bench.effects() if isinstance(each, StartUnits))

    def missing(count: int, seconds: int = 0, **needs: float) -> m.SlotDemand:
        amounts = [m.Capability(name=name, amount=amount) for name, amount in needs.items()]
        wanted = m.SlotDemand(capabilities=amounts, slots_missing=count, slots_wanted=count, tasks_unmeasured=1)
        wanted.time_request_milliseconds = 1000 * seconds
        return wanted

    assert started(16, missing(3), missing(2, 8), missing(1, 64)) == 1
    assert started(4, missing(3), missing(2, 8)) == 2
    assert started(4, missing(3), missing(1, gpu=1.0), capabilities={"gpu": 1.0}) == 1
    assert started(4, missing(1, gpu=1.0), missing(1, gpu=1.0, big=1.0), capabilities={"gpu": 1.0, "big": 1.0}) == 2


def test_units_are_started_only_when_slots_have_been_missing_for_a_while() -> None:
    bench = Bench(pool(sustain_seconds=3.0))
    assert bench.demand(1) == []
    assert bench.tick(2.0) == []
    assert len(bench.tick(1.0)) == 1

    bench = Bench(pool(sustain_seconds=3.0))
    bench.demand(1)
    bench.now += 2.0
    bench.demand(0)
    bench.now += 2.0
    assert bench.demand(1) == []


def test_units_of_a_pool_that_start_together_are_one_effect_with_consecutive_numbers() -> None:
    bench = Bench(pool("a", maximum=2), pool("b"))
    assert bench.demand(5) == [
        StartUnits("a", ["a-run-1", "a-run-2"]),
        StartUnits("b", ["b-run-3", "b-run-4", "b-run-5"]),
    ]


def test_units_that_are_refused_together_are_one_failure_told_once() -> None:
    bench = Bench(pool(maximum=20))
    names = bench.started(20)
    bench.effects()
    told = len(bench.units)
    bench.core.on_start_failed(bench.now, [*names, "p-run-99"], "no quota")
    bench.effects()
    assert len(bench.units) == told + 1 and bench.core.pools["p"].failures == 1
    assert bench.states() == dict.fromkeys(names, State.FAILED)


def test_the_minimum_is_there_without_tasks() -> None:
    bench = Bench(pool(minimum=2))
    assert len(bench.started(0)) == 2
    assert bench.started(0) == []


def test_pools_are_used_in_order_and_only_where_tasks_can_run() -> None:
    cheap, dear = pool("cheap", cost=1.0, maximum=2), pool("dear", cost=5.0)
    gpu = pool("gpu", capabilities={"gpu": 2.0}, slots=8, cost=9.0, maximum=3)
    bench = Bench(dear, gpu, cheap)

    names = [each.rsplit("-", 2)[0] for each in bench.started(4)]
    assert names == ["cheap", "cheap", "dear", "dear"]

    bench = Bench(dear, gpu, cheap)
    names = [each.rsplit("-", 2)[0] for each in bench.started(3, needs={"gpu": 1.0})]
    assert names == ["gpu", "gpu"]  # two tasks each


def test_a_pool_with_priority_comes_first_and_long_tasks_need_a_long_life() -> None:
    short = pool("short", priority=5, lifetime_seconds=60.0)
    bench = Bench(pool("long"), short)
    assert bench.started(1) == ["short-run-1"]
    assert bench.started(1, time_request_milliseconds=120_000) == ["long-run-2"]


def test_pools_are_described_in_the_order_of_their_use() -> None:
    bench = Bench(pool("dear", cost=5.0, maximum=7), pool("gpu", priority=1, slots=8, capabilities={"gpu": 2.0}))
    bench.demand(0)

    gpu = m.UnitPool(pool="gpu", slots=8, maximum_units=10, capabilities=[m.Capability(name="gpu", amount=2.0)])
    assert bench.units[-1].pools == [gpu, m.UnitPool(pool="dear", slots=1, maximum_units=7)]


def test_a_task_that_asks_for_the_whole_life_of_a_unit_starts_none() -> None:
    bench = Bench(pool("short", lifetime_seconds=600.0))

    assert bench.started(1, time_request_milliseconds=600_000) == []  # it takes a while to connect, and to leave

    assert bench.units[-1].notes == ["no pool has units for tasks that need no capabilities for 600 s"]
    assert bench.started(1, time_request_milliseconds=570_000) == ["short-run-1"]
    assert [each.lifetime_milliseconds for each in bench.units[-1].units] == [570_000]


def test_tasks_that_no_pool_can_run_start_nothing_and_are_named_once() -> None:
    bench = Bench(pool())
    assert bench.started(3, needs={"fpga": 1.0}) == []
    assert bench.started(3, needs={"fpga": 1.0}) == []
    assert [text for text in bench.logs if "fpga=1" in text] == bench.logs and len(bench.logs) == 1
    assert bench.units[-1].notes == ["no pool has units for tasks that need fpga=1"]
    bench.demand(0)
    assert bench.units[-1].notes == [], "they have gone"


def test_work_that_ends_before_a_unit_is_there_is_not_worth_one() -> None:
    bench = Bench(pool())
    bench.started(1)
    bench.now += 60.0
    bench.demand(0, "p-run-1")  # it took a minute

    fields = {"tasks_unmeasured": 0, "wanted": 10}
    assert bench.started(9, work_microseconds=60_000_000, **fields) == []
    assert len(bench.started(9, work_microseconds=300_000_000, **fields)) == 4


def test_idle_units_go_down_to_the_minimum_and_the_scheduler_chooses() -> None:
    bench = Bench(pool(minimum=1, idle_seconds=30.0))
    names = bench.started(3)
    bench.now += 5.0
    bench.demand(0, *names)
    bench.demand(0, *names)
    (request,) = bench.requests
    assert (request.units, request.count, request.idle_milliseconds) == (names, 2, 30_000)
    assert not request.may_be_busy

    bench.core.on_release(bench.now, m.Release(request_id=request.request_id, units=names[:1]))
    bench.effects()
    assert bench.states()[names[0]] == State.STOPPING
    assert bench.demand(0, *names[1:]) == []
    bench.listing("p", **{name.replace("-", "_"): ListedUnit(State.STARTING) for name in names[1:]})

    assert list(bench.states()) == names[1:]


def test_a_unit_that_stops_is_replaced_only_when_it_has_ended() -> None:
    bench = Bench(pool(minimum=2, maximum=2))
    names = bench.started(0)
    bench.now += 60.0
    bench.demand(0, *names)

    assert bench.demand(5, names[1]) == [], "the first one has no workers any more, and is still there"
    assert bench.states() == {names[0]: State.STOPPING, names[1]: State.RUNNING}

    bench.now += 5.0
    bench.listing("p", **{names[1].replace("-", "_"): ListedUnit(State.RUNNING)})
    assert [each.units for each in bench.demand(5, names[1]) if isinstance(each, StartUnits)] == [["p-run-3"]]


def test_a_unit_whose_workers_have_left_is_stopped_if_it_does_not_end() -> None:
    bench = Bench(pool())
    (name,) = bench.started(1)
    bench.demand(0, name)
    bench.demand(0)

    assert bench.tick(5.0) == []
    assert bench.tick(6.0) == [] and bench.demand(0) == [StopUnit("p", name)]
    assert bench.tick(11.0) == [] and bench.demand(0) == [StopUnit("p", name)], "again, if it is still there"


def test_starts_that_fail_are_delayed_longer_each_time_and_the_pool_is_paused() -> None:
    bench = Bench(pool())
    waits: List[float] = []
    for _ in range(6):
        begin = bench.now
        while not (names := bench.started(5)):
            bench.now += 0.5
        waits.append(bench.now - begin)
        bench.fail(names, "no quota")

    assert waits[0] == 0.0 and waits[-1] >= 32.0 and waits == sorted(waits)
    assert len(bench.core.units) == 0
    (note,) = bench.units[-1].notes
    assert note.startswith("the pool p is paused") and note.endswith("no quota")
    assert all(state == State.FAILED for state in bench.states().values())


def test_starts_that_are_refused_at_once_are_one_failure() -> None:
    bench = Bench(pool(maximum=20))
    names = bench.started(20)
    bench.now += 0.1
    for name in names:
        bench.core.on_start_failed(bench.now, [name], "the API server is away")
        bench.now += 0.1
    assert bench.core.pools["p"].failures == 1 and bench.units[-1].notes == []

    bench.fail([], "")
    bench.now += 2.0
    (probe,) = bench.started(20)
    bench.now += 0.1
    bench.fail([probe], "the API server is away")
    assert bench.core.pools["p"].failures == 2


def test_a_unit_that_connects_ends_the_pause() -> None:
    bench = Bench(pool())
    for _ in range(FAILURES_OF_A_PAUSE):
        bench.now += 3600.0
        bench.fail(bench.started(3), "no quota")
    bench.now += 3600.0
    (probe,) = bench.started(5)  # one is tried

    bench.demand(0, probe)

    assert len(bench.started(4)) == 4 and bench.units[-1].notes == []


def test_a_unit_that_ends_before_it_connects_has_failed_with_the_reason_of_its_adapter() -> None:
    bench = Bench(pool())
    (name,) = bench.started(1)

    bench.listing(p_run_1=ListedUnit(State.FAILED, "exit code 9"))

    assert bench.states() == {name: State.FAILED}
    assert bench.units[-1].units[0].reason == "exit code 9"
    bench.tick(100.0)
    assert bench.states() == {}


def test_a_unit_that_is_not_listed_any_more_is_gone_but_not_one_that_was_started_since() -> None:
    bench = Bench(pool())
    (name,) = bench.started(1)
    asked = bench.now - 1.0
    bench.core.on_listing(bench.now, "p", asked, {})
    bench.effects()
    assert bench.states() == {name: State.PENDING}

    bench.listing()

    assert bench.states() == {name: State.FAILED}


def test_the_reason_why_a_unit_waits_is_passed_on() -> None:
    bench = Bench(pool())
    bench.started(1)
    bench.listing(p_run_1=ListedUnit(State.PENDING, "Resources"))
    assert (bench.units[-1].units[0].state, bench.units[-1].units[0].reason) == (State.PENDING, "Resources")


def test_a_unit_that_does_not_connect_in_time_has_failed_and_is_stopped() -> None:
    bench = Bench(pool(start_timeout_seconds=60.0))
    (name,) = bench.started(1)
    bench.listing(p_run_1=ListedUnit(State.STARTING))
    assert bench.tick(30.0) == []
    assert bench.tick(30.0) == [], "its worker may have come just now: the scheduler is asked"
    assert bench.demand(0) == [StopUnit("p", name)]
    assert bench.states() == {name: State.FAILED}
    assert bench.units[-1].units[0].reason == f"no worker with --unit {name} was connected within 60 s"


def test_a_unit_whose_worker_came_while_the_scheduler_was_silent_is_not_stopped() -> None:
    """The scheduler says what has changed: what it said before the worker came looks as if nothing had."""
    bench = Bench(pool(start_timeout_seconds=60.0))
    (name,) = bench.started(1)
    bench.listing(p_run_1=ListedUnit(State.STARTING))
    before = bench.units[-1].sequence
    assert bench.tick(60.0) == [] and bench.units[-1].sequence == before + 1
    assert bench.tick(60.0) == [] and bench.units[-1].sequence == before + 1, "it is asked once"
    bench.core.on_demand(bench.now, m.Demand(units_sequence=before))
    assert bench.effects() == [], "which the scheduler said before it was asked"

    assert bench.demand(0, name) == [] and bench.states() == {name: State.RUNNING}

    bench.demand(0)
    assert bench.tick(11.0) == [] and bench.demand(0, name) == [], "it had left, and is back"
    assert bench.states() == {name: State.RUNNING}


def test_the_time_to_connect_and_to_end_counts_only_while_the_scheduler_is_there() -> None:
    bench = Bench(pool(start_timeout_seconds=60.0))
    (name,) = bench.started(1)
    bench.listing(p_run_1=ListedUnit(State.STARTING))
    bench.core.on_lost()
    assert bench.tick(100.0) == [], (
        "its worker may be looking for the scheduler, and have tasks before this program does"
    )
    bench.core.on_opened(bench.now)
    assert bench.tick(0.0) == [] and bench.demand(0) == []
    assert bench.tick(59.0) == []
    assert bench.tick(1.0) == [] and bench.demand(0) == [StopUnit("p", name)]

    bench = Bench(pool())
    (name,) = bench.started(1)
    bench.demand(0, name)
    bench.demand(0)
    bench.core.on_lost()
    assert bench.tick(100.0) == [], "it has left, or has another connection"
    bench.core.on_opened(bench.now)
    bench.tick(0.0)
    assert bench.demand(0, name) == [] and bench.tick(100.0) == []


def test_units_of_an_earlier_run_are_found_and_count() -> None:
    bench = Bench(pool(maximum=2))
    bench.demand(0)
    bench.listing(p_old_1=ListedUnit(State.STARTING), p_old_2=ListedUnit(State.FAILED))
    assert bench.states() == {"p-old-1": State.STARTING}

    assert len(bench.started(5)) == 1
    bench.demand(0, "p-old-1")

    assert bench.states()["p-old-1"] == State.RUNNING
    assert bench.core.pools["p"].boot_seconds == 0.0


def test_without_a_session_nothing_is_started_or_asked() -> None:
    bench = Bench(pool(minimum=2), is_open=False)
    assert bench.tick() == [] and not bench.units
    bench.core.on_opened(bench.now)
    bench.started(0)
    bench.core.on_lost()
    sent = len(bench.units)

    bench.listing(p_run_1=ListedUnit(State.STARTING), p_run_2=ListedUnit(State.STARTING))
    bench.tick(60.0)

    assert len(bench.units) == sent and not bench.requests
    bench.core.on_opened(bench.now)
    bench.tick()
    assert bench.units[-1].sequence == 1 and len(bench.units[-1].units) == 2


def test_no_unit_is_started_before_those_that_there_are_were_listed() -> None:
    bench = Bench(pool(maximum=2), is_listed=False)
    assert bench.started(3) == []

    bench.core.on_listing_failed(bench.now, "p", "nothing answers")
    assert bench.tick() == []
    (note,) = bench.units[-1].notes
    assert note == "the pool p starts none while its units cannot be listed: nothing answers"

    bench.listing(p_old_1=ListedUnit(State.PENDING))
    assert bench.units[-1].notes == []
    assert len(bench.started(3)) == 1


def test_a_start_that_failed_and_is_listed_counts_until_it_is_gone() -> None:
    bench = Bench(pool(maximum=1, slots=5))
    (name,) = bench.started(1)
    bench.core.on_start_failed(bench.now, [name], "no answer in time")
    bench.now += 10.0
    assert bench.started(1) == []  # there might be one

    bench.listing(p_run_1=ListedUnit(State.PENDING))  # there is
    assert bench.states() == {name: State.FAILED} and bench.started(1) == []

    bench.listing()
    assert len(bench.started(1)) == 1


def test_a_start_that_failed_and_is_listed_counts_also_for_a_pool_below_its_minimum() -> None:
    bench = Bench(pool(minimum=1, maximum=1))
    (name,) = bench.started(0)
    bench.core.on_start_failed(bench.now, [name], "no answer in time")
    bench.now += 10.0
    bench.listing(p_run_1=ListedUnit(State.PENDING))

    assert bench.started(0) == []  # it would be the second of at most one

    bench.listing()
    assert len(bench.started(0)) == 1


def test_a_start_that_failed_and_connects_is_a_unit_as_any_other() -> None:
    bench = Bench(pool(maximum=1))
    (name,) = bench.started(1)
    bench.core.on_start_failed(bench.now, [name], "no answer in time")
    bench.listing(p_run_1=ListedUnit(State.STARTING))

    bench.demand(0, name)

    assert bench.states() == {name: State.RUNNING} and bench.core.pools["p"].failures == 0


def test_the_time_in_which_a_unit_waits_for_its_turn_is_not_that_in_which_it_should_connect() -> None:
    bench = Bench(pool(start_timeout_seconds=60.0))
    (name,) = bench.started(1)
    bench.listing(p_run_1=ListedUnit(State.PENDING, "Resources"))
    assert bench.tick(3600.0) == []

    bench.listing(p_run_1=ListedUnit(State.STARTING))

    assert bench.tick(59.0) == [] and bench.tick(1.0) == []
    assert bench.demand(0) == [StopUnit("p", name)]


@pytest.mark.parametrize("minimum, missing", [(1, 0), (0, 1)])
def test_after_a_restart_of_the_scheduler_no_unit_is_started_while_workers_are_on_their_way_back(
    minimum: int, missing: int
) -> None:
    bench = Bench(pool(minimum=minimum, maximum=2))
    (name,) = bench.started(1)
    bench.demand(0, name)
    bench.core.on_lost()
    bench.core.on_opened(bench.now)
    bench.tick(0.0)

    assert bench.demand(missing) == [] and bench.tick(9.0) == [], "its worker may be on its way"
    bench.demand(0, name)
    assert bench.states() == {name: State.RUNNING}

    bench.core.on_lost()
    bench.core.on_opened(bench.now)
    bench.tick(0.0)
    bench.demand(missing)
    effects = bench.tick(10.0)
    assert StartUnits("p", ["p-run-2"]) in effects, "its worker has not come back in time"


def test_a_pool_that_others_could_have_is_claimed_before_anything_starts() -> None:
    pools = [PoolSettings("cpu", maximum=5), PoolSettings("near", maximum=5)]
    core = ProvisionCore(pools, "run", {"cpu": "Slurm"})
    for each in pools:
        core.on_listing(0.0, each.name, 0.0, {})
    core.on_opened(0.0)
    core.on_demand(0.0, m.Demand(demands=[m.SlotDemand(tasks=1, slots_wanted=1, slots_missing=1)]))

    (effect,) = core.take_effects()

    assert isinstance(effect, SendMessage) and isinstance(effect.message, m.Units)
    claim = m.Unit(unit="all of cpu in Slurm", pool="cpu", state=State.STOPPING)
    assert (effect.message.units, effect.message.sequence) == ([claim], 1)
    core.on_time(60.0)
    assert core.take_effects() == [], "nothing is started before the scheduler has taken it"

    demand = m.Demand(demands=[m.SlotDemand(tasks=1, slots_wanted=1, slots_missing=1)], units_sequence=1)
    core.on_demand(61.0, demand)
    core.on_time(62.0)

    effects = core.take_effects()
    assert [each for each in effects if isinstance(each, StartUnits)] == [StartUnits("cpu", ["cpu-run-1"])]
    told = [each.message for each in effects if isinstance(each, SendMessage)][-1]
    assert isinstance(told, m.Units) and [each.unit for each in told.units] == [claim.unit, "cpu-run-1"]
