"""How many slots tasks want, as monitors are told."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest
from hosts_with_memory import counts, host, see
from scheduler_harness import SMALL_WORK, Client, Harness, Worker, options, task

from scaler_protocol import messages as m

SECOND = 1_000_000  # microseconds


def watched(**settings: Any) -> Harness:
    harness = Harness(demand_target_seconds=10.0, **settings)
    harness.core.watch(True, False)
    return harness


def demands(harness: Harness, seconds: float = 1.0) -> List[m.SlotDemand]:
    """What is published at the end of the next round."""
    harness.wait(seconds)
    return harness.core.status.snapshot().demands


def slots(harness: Harness) -> Dict[str, int]:
    """Wanted slots by the names of what tasks need."""
    return {",".join(each.name for each in every.capabilities): every.slots_wanted for every in demands(harness)}


def measure(harness: Harness, client: Client, worker: Worker, seconds: float, task_id: int = 0) -> None:
    """A task of the function `f` takes so long."""
    client.submit([task_id])
    worker.finish(worker.take_tasks(), busy_microseconds=int(seconds * SECOND))
    client.take_results()


def test_measured_work_wants_as_many_slots_as_do_it_in_the_target_time() -> None:
    harness = watched()
    client, worker = harness.client(), harness.worker(queue_size=1)
    measure(harness, client, worker, seconds=2.0)

    client.submit(range(1, 51))

    (demand,) = demands(harness)
    assert (demand.tasks, demand.tasks_unmeasured, demand.work_microseconds) == (50, 0, 100 * SECOND)
    assert (demand.slots_wanted, demand.slots_missing) == (10, 9)


def test_no_more_slots_are_wanted_than_there_are_tasks() -> None:
    harness = watched()
    client, worker = harness.client(), harness.worker(queue_size=1)
    measure(harness, client, worker, seconds=3600.0)

    client.submit(range(1, 6))

    (demand,) = demands(harness)
    assert (demand.slots_wanted, demand.slots_missing) == (5, 4)


def test_tasks_of_which_nothing_is_known_want_one_slot() -> None:
    harness = watched()

    harness.client().submit(range(100_000))

    (demand,) = demands(harness)
    assert (demand.tasks, demand.tasks_unmeasured) == (100_000, 100_000)
    assert (demand.slots_wanted, demand.slots_missing) == (1, 1)


def wanted_slots(harness: Harness, rounds: int) -> List[int]:
    """Of each of these rounds, all wanted slots together."""
    return [sum(each.slots_wanted for each in demands(harness)) for _ in range(rounds)]


def submit_code(client: Client, tasks: range, name: str = "work", **fields: Any) -> None:
    """Tasks of a function that the client has just made, so that nothing is known of it."""
    client.submit(tasks, function=client.create(tasks[0] + 1, b"code"), function_name=name, **fields)


def test_if_no_worker_comes_within_a_look_unknown_tasks_want_more_and_never_a_storm() -> None:
    harness = watched()
    submit_code(harness.client(), range(100_000))

    assert wanted_slots(harness, 5) == [1, 16, 16, 16, 16]


def test_a_few_unknown_tasks_want_no_more_slots_than_there_are_of_them() -> None:
    harness = watched()
    submit_code(harness.client(), range(3))

    assert wanted_slots(harness, 3) == [1, 3, 3]


def test_unknown_tasks_that_say_that_they_may_take_long_want_more_at_once() -> None:
    harness = watched()
    client = harness.client()
    submit_code(client, range(50), options=options(time_request_milliseconds=60_000))

    assert wanted_slots(harness, 2) == [16, 16]


def test_a_named_function_that_no_worker_serves_wants_one_slot_until_one_does() -> None:
    harness = watched()
    client = harness.client()
    client.submit(range(50), function_name="f", options=options(gpu=1))
    assert wanted_slots(harness, 3) == [1, 1, 1]

    harness.worker(places={"functions": ["f"]})  # without a GPU, but another one with it would serve it, too

    assert wanted_slots(harness, 2)[-1] == 16


@pytest.mark.parametrize("name, later_name, slots", [("f", "f", 40), ("f", "g", 8), ("<lambda>", "<lambda>", 8)])
def test_an_earlier_function_of_that_name_is_believed_when_a_task_has_run_for_a_second(
    name: str, later_name: str, slots: int
) -> None:
    harness = watched()
    client, worker = harness.client(), harness.worker(queue_size=1)
    submit_code(client, range(3), name)
    worker.take(m.ObjectInstruction)
    for _ in range(2):
        worker.finish(worker.take_tasks(), busy_microseconds=100 * SECOND)
        harness.wait(1.0)  # for a look while tasks of it are there
    worker.finish(worker.take_tasks())
    harness.wait(1.0)
    later = harness.client()

    submit_code(later, range(40), later_name)

    assert wanted_slots(harness, 2) == [1, slots]


def test_a_first_task_that_runs_for_long_says_how_long_the_others_take() -> None:
    harness = watched()
    client, worker = harness.client(), harness.worker(queue_size=1)
    client.submit(range(15))
    worker.take_tasks()
    assert [each.slots_wanted for each in demands(harness)] == [1]

    (demand,) = demands(harness, seconds=3.0)

    assert (demand.slots_wanted, demand.tasks_unmeasured) == (9, 0)  # 15 tasks of twice 3 s, as long as it was seen


def test_tasks_that_run_want_the_slots_that_they_are_in() -> None:
    harness = watched()
    client, worker = harness.client(), harness.worker(slots=4, queue_size=1)
    client.submit(range(4))
    worker.take_all_tasks()

    (demand,) = demands(harness)

    assert (demand.slots_wanted, demand.slots_missing) == (4, 0)


def test_work_that_is_done_as_fast_as_it_comes_wants_what_it_uses_for_a_while() -> None:
    harness = watched()
    client, worker = harness.client(), harness.worker(slots=4, queue_size=1)
    measure(harness, client, worker, seconds=0.5)
    for step in range(40):
        client.submit(range(1 + 4 * step, 5 + 4 * step))
        harness.wait(1.0)
        worker.finish(worker.take_all_tasks(), busy_microseconds=2 * SECOND)
        client.take_results()

    assert slots(harness) == {"": 4}
    harness.wait(120.0)
    assert demands(harness) == []


def test_tasks_that_wait_for_others_want_nothing() -> None:
    harness = watched()
    client = harness.client()
    client.submit([0])
    client.submit_after(1, 0)

    (demand,) = demands(harness)

    assert (demand.tasks, demand.slots_wanted) == (1, 1)


def test_tasks_that_wait_for_nested_ones_want_nothing() -> None:
    harness = watched()
    client, worker = harness.client(), harness.worker(slots=2, queue_size=1)
    client.submit(range(2))
    worker.take_all_tasks()
    worker.suspend(2)

    assert demands(harness) == []


def test_tasks_that_need_different_things_are_counted_apart() -> None:
    harness = watched()
    client = harness.client()
    client.submit([0], options=options(gpu=1))
    client.submit([1], options=options(gpu=1, priority=5))
    client.submit([2], options=options(time_request_milliseconds=50_000))
    client.submit([3], options=options(time_request_milliseconds=60_000))
    client.submit([4])

    found = {(every.time_request_milliseconds, len(every.capabilities)): every.tasks for every in demands(harness)}

    assert found == {(0, 1): 2, (60_000, 0): 2, (0, 0): 1}


def test_slots_with_a_gpu_are_for_those_who_need_one() -> None:
    harness = watched()
    client = harness.client()
    measure(harness, client, harness.worker(slots=3, queue_size=1, gpu=2), seconds=100.0)
    client.submit(range(1, 5), options=options(gpu=1))
    client.submit(range(5, 8))

    found = {len(each.capabilities): (each.slots_wanted, each.slots_missing) for each in demands(harness)}

    assert found == {1: (4, 2), 0: (3, 2)}


def test_a_worker_that_ends_before_is_no_slot_for_a_long_task() -> None:
    harness = watched()
    client = harness.client()
    harness.worker(slots=2, places={"remaining_milliseconds": 60_000})
    client.submit([0], options=options(time_request_milliseconds=600_000))

    assert [each.slots_missing for each in demands(harness)] == [1]


def test_a_long_task_that_runs_wants_no_other_worker_when_its_own_has_less_time_left() -> None:
    harness = watched()
    client = harness.client()
    worker = harness.worker(places={"remaining_milliseconds": 600_500})
    client.submit([0], options=options(time_request_milliseconds=600_000))
    assert len(worker.take_tasks()) == 1

    (demand,) = demands(harness, seconds=2.0)

    assert (demand.slots_wanted, demand.slots_missing) == (1, 0)


def test_a_worker_that_stays_just_long_enough_is_a_slot_and_is_told_so() -> None:
    harness = watched()
    client = harness.client()
    five_hours = 18_000_000
    client.submit([0], options=options(time_request_milliseconds=five_hours))
    assert [(each.time_request_milliseconds, each.slots_missing) for each in demands(harness)] == [(five_hours, 1)]

    harness.worker(places={"remaining_milliseconds": five_hours + 60_000})

    assert [each.slots_missing for each in demands(harness)] == [0]


def test_what_leaves_is_no_slot() -> None:
    harness = watched()
    client, worker = harness.client(), harness.worker()
    client.submit([0])
    client.send(m.WorkerShutdown(request_id=1, session=worker.session, is_draining=True))

    assert [each.slots_missing for each in demands(harness)] == [1]


def test_tasks_that_no_such_worker_runs_want_nothing_until_one_does() -> None:
    harness = watched()
    client = harness.client()
    client.submit([0], codec="strange")
    assert slots(harness) == {"": 1}  # no worker has refused it yet
    probe = harness.worker(places={"codecs": ["cloudpickle"]})
    assert slots(harness) == {}
    probe.vanish()
    assert slots(harness) == {}  # another one would not help either

    able = harness.worker(places={"codecs": ["strange"]})
    able.take_tasks()

    assert slots(harness) == {"": 1}


def test_tasks_beyond_the_quota_of_a_tenant_want_nothing() -> None:
    harness = watched(tenants=[["a", 1.0, -1, 2, -1]])
    client, worker = harness.client("a"), harness.worker(slots=1, queue_size=1, tenant="a")
    measure(harness, client, worker, seconds=100.0)

    client.submit(range(1, 10))

    assert [(each.slots_wanted, each.slots_missing) for each in demands(harness)] == [(2, 1)]


def test_a_monitor_of_a_tenant_sees_its_tasks() -> None:
    harness = watched()
    harness.client("a").submit([0], options=options(gpu=1))
    harness.client("b").submit([0], options=options(fpga=1))
    harness.wait(1.0)

    (own,) = harness.core.status.snapshot("a").demands

    assert own.capabilities == [m.Capability(name="gpu", amount=1.0)]
    assert len(harness.core.status.snapshot().demands) == 2


def test_an_actor_that_has_no_worker_wants_a_slot_and_its_later_calls_none() -> None:
    harness = watched()
    client = harness.client()
    function = client.create(1, b"actor")
    client.submit(range(5), function=function, options=options(actor=True, gpu=1))

    (demand,) = demands(harness)
    assert (demand.tasks, demand.slots_wanted, demand.capabilities[0].name) == (1, 1, "gpu")
    harness.worker(slots=4, gpu=1, features=["actors"])

    (demand,) = demands(harness)
    assert (demand.tasks, demand.slots_missing) == (1, 0)


def test_without_monitors_nothing_is_counted() -> None:
    harness = Harness()
    harness.client().submit(range(10))
    harness.wait(1.0)
    assert harness.core.status.snapshot().demands == []

    harness.core.watch(True, False)
    assert slots(harness) == {"": 1}
    harness.core.watch(False, False)
    harness.wait(1.0)
    assert harness.core.status.snapshot().demands == []


def test_a_round_over_very_many_workers_and_classes_is_done_in_parts() -> None:
    harness = watched(work_per_call=SMALL_WORK)
    client = harness.client()
    for number in range(60):
        harness.worker(queue_size=1)
        client.post(*task([number], options=options(**{f"c{number}": 1})))
    harness.tick()

    harness.now += 1.0
    made = harness.steps(lambda: len(harness.core.status.snapshot().demands))

    assert made[:3] == [0, 0, 0] and sum(made) == 60


def test_free_slots_without_the_memory_for_large_tasks_are_no_slots_for_them() -> None:
    harness = watched()
    client, only = harness.client(), host(harness, "only", 4, slots=4)
    see(client, only, 4, 3, seconds=100.0)
    client.submit(range(1, 4))
    assert counts(only) == [1]

    (demand,) = demands(harness)
    assert (demand.tasks, demand.slots_wanted, demand.slots_missing) == (3, 6, 2)
    host(harness, "other", 7, slots=4)
    (demand,) = demands(harness)
    assert (demand.tasks, demand.slots_wanted, demand.slots_missing) == (3, 3, 0)
