"""Units that wait at their machines, and that no task needs any more, and the time that waiting takes."""

from __future__ import annotations

from provision.provision_bench import Bench, State, pool

from scaler.provision.core.provision_core import ListedUnit, StopUnit

PENDING = ListedUnit(State.PENDING, "Resources")


def test_units_that_wait_without_tasks_are_withdrawn_after_the_idle_time_and_down_to_the_minimum() -> None:
    bench = Bench(pool(minimum=1, idle_seconds=30.0))
    names = bench.started(3)
    bench.listing(p_run_1=PENDING, p_run_2=PENDING, p_run_3=PENDING)
    assert bench.demand(0, wanted=3) == [] and bench.tick(60.0) == []

    assert bench.demand(0) == []
    assert bench.tick(29.0) == []
    assert bench.tick(1.0) == [StopUnit("p", names[2]), StopUnit("p", names[1])]
    assert bench.states() == {names[0]: State.PENDING, names[1]: State.STOPPING, names[2]: State.STOPPING}

    cancelled = ListedUnit(State.FAILED, "it was cancelled")
    bench.listing(p_run_1=PENDING, p_run_2=cancelled)

    assert bench.states() == {names[0]: State.PENDING} and bench.core.pools["p"].failures == 0


def test_units_that_wait_stay_as_far_as_tasks_could_use_them() -> None:
    bench = Bench(pool(slots=2, idle_seconds=30.0))
    names = bench.started(8)
    bench.listing(p_run_1=ListedUnit(State.STARTING), p_run_2=PENDING, p_run_3=PENDING, p_run_4=PENDING)
    bench.demand(0, names[0], wanted=3)
    bench.demand(0, names[0], wanted=3)  # which counts that one is connected

    assert bench.tick(30.0) == [StopUnit("p", names[3]), StopUnit("p", names[2])]


def test_tasks_that_come_again_let_units_wait_on() -> None:
    bench = Bench(pool(idle_seconds=30.0))
    bench.started(1)
    bench.listing(p_run_1=PENDING)
    for _ in range(5):
        assert bench.demand(0) == [] and bench.tick(20.0) == []
        assert bench.demand(0, wanted=1) == [] and bench.tick(20.0) == []


def test_units_wait_for_tasks_that_their_pool_can_run() -> None:
    gpu = pool("g", slots=2, capabilities={"gpu": 1.0}, idle_seconds=30.0)
    bench = Bench(gpu)
    assert bench.started(1, needs={"gpu": 1.0}) == ["g-run-1"]
    bench.listing("g", g_run_1=PENDING)
    bench.demand(0, wanted=1, needs={"gpu": 1.0})
    assert bench.tick(60.0) == []

    bench.demand(0, wanted=1, needs={"fpga": 1.0})
    assert bench.tick(0.0) == [] and bench.tick(30.0) == [StopUnit("g", "g-run-1")]


def test_a_unit_is_withdrawn_only_while_it_waits_and_when_its_adapter_has_it() -> None:
    bench = Bench(pool(idle_seconds=0.0))
    bench.started(2)
    assert bench.demand(0) == [] and bench.tick(60.0) == [], "nothing says yet that they wait"

    bench.listing(p_run_1=ListedUnit(State.STARTING), p_run_2=ListedUnit(State.STARTING))
    assert bench.demand(0) == [] and bench.tick(60.0) == []


def test_a_unit_that_is_faster_than_its_withdrawal_is_a_unit_as_any_other() -> None:
    bench = Bench(pool(idle_seconds=0.0))
    (name,) = bench.started(1)
    bench.listing(p_run_1=PENDING)
    assert bench.demand(0) == [StopUnit("p", name)]

    bench.demand(0, name)
    assert bench.states() == {name: State.RUNNING}
    bench.demand(0, name)

    assert bench.tick(60.0) == []
    assert bench.requests[-1].units == [name]


def test_a_withdrawal_is_repeated_until_the_unit_is_gone() -> None:
    bench = Bench(pool(idle_seconds=0.0))
    (name,) = bench.started(1)
    bench.listing(p_run_1=PENDING)
    assert bench.demand(0) == [StopUnit("p", name)]
    bench.listing(p_run_1=PENDING)
    assert bench.tick(10.0) == [] and bench.demand(0) == [StopUnit("p", name)]
    bench.listing()
    assert bench.states() == {}


def test_time_in_a_queue_is_no_reason_to_keep_idle_units_longer() -> None:
    bench = Bench(pool(idle_seconds=30.0))
    (name,) = bench.started(1)
    bench.listing(p_run_1=PENDING)
    bench.now += 3600.0
    bench.listing(p_run_1=PENDING)
    bench.listing(p_run_1=ListedUnit(State.STARTING))
    bench.now += 40.0
    bench.demand(0, name)
    bench.demand(0, name)

    assert bench.requests[-1].idle_milliseconds == 40_000 and bench.core.pools["p"].boot_seconds > 3600.0
