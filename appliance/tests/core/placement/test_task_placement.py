"""Which worker gets what, and how much."""

from __future__ import annotations

from collections import Counter
from typing import Any, List

from scheduler_harness import Client, Harness, Worker, options, task

from scaler_appliance.core.placement.task_placement import BURST_BYTES
from scaler_protocol import messages as m


def measure(client: Client, worker: Worker, microseconds: int, task_id: int = 0, **fields: Any) -> None:
    """Let the scheduler see how long a task takes."""
    client.submit([task_id], **fields)
    worker.finish(worker.take_tasks(), busy_microseconds=microseconds)
    client.take_results()


def take_numbers(worker: Worker) -> List[int]:
    """The tasks (not instances) of all messages."""
    numbers: List[int] = []
    while worker.inbox:
        worker.take_tasks()
        numbers += [int(payload) for payload in worker.payloads]
    return numbers


def test_a_function_that_was_never_measured_gets_two_tasks_a_slot(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=3)
    client.submit(range(100))
    assert len(worker.take_all_tasks()) == 6
    harness.nothing_else_was_sent()


def test_idle_slots_come_before_work_ahead(harness: Harness) -> None:
    client = harness.client()
    workers = [harness.worker() for _ in range(4)]
    client.submit(range(5))
    assert sorted(len(worker.take_all_tasks()) for worker in workers) == [1, 1, 1, 2]
    harness.nothing_else_was_sent()


def test_short_tasks_travel_by_the_thousand_and_evenly(harness: Harness) -> None:
    client = harness.client()
    first = harness.worker(slots=2)
    measure(client, first, 10)
    second = harness.worker(slots=2)
    client.submit(range(1, 1001))
    assert [len(first.take_all_tasks()), len(second.take_all_tasks())] == [500, 500]
    harness.nothing_else_was_sent()


def test_long_tasks_spread_one_by_one(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    measure(client, worker, 10_000_000)
    client.submit(range(1, 10))
    assert len(worker.take_all_tasks()) == 1
    harness.nothing_else_was_sent()


def test_about_as_much_is_sent_ahead_as_the_setting_says() -> None:
    harness = Harness(prefetch_seconds=0.1)
    client, worker = harness.client(), harness.worker()
    measure(client, worker, 5_000)
    client.submit(range(1, 100))
    assert len(worker.take_all_tasks()) == 20
    harness.nothing_else_was_sent()


def test_a_worker_never_holds_more_than_its_queue(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=2, queue_size=7)
    measure(client, worker, 1)
    client.submit(range(1, 1000))
    instances = worker.take_all_tasks()
    assert len(instances) == 14
    worker.finish(instances[:1], busy_microseconds=1)
    client.take_results()
    worker.finish(instances[1:8], busy_microseconds=1)
    client.take_results()
    assert len(worker.take_all_tasks()) == 8, "refilled when half of it is worked off"
    harness.nothing_else_was_sent()


def test_the_schedulers_own_limit_holds_too() -> None:
    harness = Harness(per_worker_queue_size=3)
    client, worker = harness.client(), harness.worker(queue_size=1000)
    measure(client, worker, 1)
    client.submit(range(1, 100))
    assert len(worker.take_all_tasks()) == 3
    harness.nothing_else_was_sent()


def test_a_tick_dispatches_no_more_bytes_than_can_be_noticed_to_be_unread(harness: Harness) -> None:
    client, workers = harness.client(), [harness.worker(slots=10) for _ in range(2)]
    size = BURST_BYTES // 4
    client.post(*task(range(12), [bytes(size)] * 12))
    harness.step()
    assert sum(len(worker.take_all_tasks()) for worker in workers) <= 4
    assert harness.core.has_work
    harness.core.on_congestion(harness.now, workers[0].name, True)
    harness.tick()
    assert workers[0].take_all_tasks() == [] and len(workers[1].take_all_tasks()) >= 8
    harness.nothing_else_was_sent()


def test_higher_priority_goes_first(harness: Harness) -> None:
    client = harness.client()
    client.submit([0, 1], options=options(priority=-1))
    client.submit([2, 3])
    client.submit([4, 5], options=options(priority=9))
    assert take_numbers(harness.worker(slots=3)) == [4, 5, 2, 3, 0, 1]
    harness.nothing_else_was_sent()


def test_a_task_goes_only_where_its_capabilities_are(harness: Harness) -> None:
    client = harness.client()
    plain, gpu = harness.worker(slots=4), harness.worker(slots=4, gpu=2)
    client.submit([0, 1], options=options(gpu=1))
    client.submit([2], options=options(gpu=3))
    assert take_numbers(plain) == []
    assert take_numbers(gpu) == [0, 1]
    harness.nothing_else_was_sent()


def test_a_capability_without_amount_is_a_name_that_a_worker_has_or_not(harness: Harness) -> None:
    client = harness.client()
    plain, named = harness.worker(slots=4), harness.worker(slots=2, linux=0)
    client.submit(range(4), options=options(linux=0))
    assert take_numbers(plain) == []
    assert take_numbers(named) == [0, 1, 2, 3]
    harness.nothing_else_was_sent()


def test_capabilities_are_counted_and_come_back_with_the_result(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=8, gpu=2)
    client.submit(range(5), options=options(gpu=0.5))
    client.submit(range(5, 8), options=options(gpu=1))
    held = worker.take_all_tasks()
    assert len(held) in (3, 4)
    done = 0
    while held:
        worker.finish(held)
        while client.inbox:
            done += len(client.take_results())
        held = worker.take_all_tasks()
    assert done == 8
    harness.nothing_else_was_sent()


def test_a_tiny_amount_does_not_limit_tasks(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=2, gpu=1)
    client.submit([0], options=options(gpu=5e-324))
    client.submit([1], options=options(gpu=1))
    assert len(worker.take_all_tasks()) == 2
    harness.nothing_else_was_sent()


def test_a_capability_without_amount_is_free_when_all_of_it_is_in_use(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=4, gpu=0.3)
    client.submit(range(3), options=options(gpu=0.1))
    client.submit([3], options=options(gpu=0))
    assert len(worker.take_all_tasks()) == 4  # though 0.3 less three times 0.1 is less than nothing
    harness.nothing_else_was_sent()


def test_a_worker_whose_capability_is_in_use_does_not_hide_one_that_has_it_free(harness: Harness) -> None:
    client, first = harness.client(), harness.worker(slots=2, gpu=1)
    client.submit([0], options=options(gpu=1))
    assert take_numbers(first) == [0]
    second = harness.worker(slots=2, gpu=1)
    client.submit([1], options=options(gpu=1))
    assert take_numbers(second) == [1]
    harness.nothing_else_was_sent()


def test_tasks_that_no_worker_can_run_block_no_others_and_are_reported_once(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    client.submit(range(10), options=options(priority=5, quantum=2))
    client.submit([10])
    assert take_numbers(worker) == [10]
    harness.wait(1)
    harness.wait(1)
    said = "10 tasks wait because no connected worker offers quantum=2 (no worker has any quantum): start one that does"
    assert client.take(m.Explanation).text == said
    assert [said in line for line in harness.logs].count(True) == 1
    able = harness.worker(slots=5, quantum=20)
    assert len(take_numbers(able)) == 10
    harness.nothing_else_was_sent()


def test_one_clients_million_does_not_starve_anothers_ten(harness: Harness) -> None:
    rich, poor = harness.client(), harness.client()
    worker = harness.worker()
    for number in range(50):
        rich.submit(range(number * 20, number * 20 + 20))
    poor.submit(range(10))
    finished: Counter[int] = Counter()
    while finished[poor.session] < 10:
        while worker.inbox:
            instances = worker.take_tasks()
            worker.post(*worker.result(instances, busy_microseconds=50_000 * len(instances)))
            finished[worker.task.client] += len(worker.payloads)
        harness.tick()
    assert finished[rich.session] < 50


def test_clients_that_come_later_wait_behind_those_who_wait(harness: Harness) -> None:
    first, second, third = (harness.client() for _ in range(3))
    worker = harness.worker(slots=1, queue_size=1)
    first.submit([0], [b"0"])
    second.submit([0], [b"1"])
    third.submit([0], [b"2"])
    order = []
    while worker.inbox:
        instances = worker.take_tasks()
        order += worker.payloads
        worker.finish(instances)
    assert order == [b"0", b"1", b"2"]


def test_classes_of_one_priority_take_turns(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(gpu=0)
    client.submit(range(1000))
    client.submit(range(1000, 1010), options=options(gpu=0))
    seen: List[int] = []
    while not any(number >= 1000 for number in seen):
        assert len(seen) < 20, "tasks that need more wait behind all that need nothing"
        instances = worker.take_tasks()
        seen += [int(payload) for payload in worker.payloads]
        worker.finish(instances, busy_microseconds=10_000_000)


def test_classes_that_are_empty_do_not_exist(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    for priority in range(50):
        client.submit([priority], options=options(priority=priority))
        worker.finish(worker.take_tasks())
    harness.tick()
    assert not harness.state.ready.waiting() and not harness.state.ready._classes


# Nested tasks ---------------------------------------------------------------------------------------------------


def test_a_processor_that_waits_for_nested_tasks_frees_its_slot(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=2, queue_size=1)
    client.submit(range(2))
    parents = worker.take_all_tasks()
    client.submit([10, 11, 12], function_name="child")
    harness.nothing_else_was_sent()
    worker.suspend(1)
    (child,) = worker.take_tasks()
    worker.suspend(2)
    (other,) = worker.take_tasks()
    worker.finish([child])
    client.take_results()
    (last,) = worker.take_tasks()
    worker.suspend(0)
    worker.finish([other, last, *parents])
    assert set(client.take_results()) == {0, 1, 11, 12}
    harness.nothing_else_was_sent()


def test_a_nested_task_is_sent_although_its_worker_holds_enough_siblings_of_its_parent(harness: Harness) -> None:
    """Otherwise the freed slot would go to the next parent, and its slot to the next one: a process for each."""
    client, worker = harness.client(), harness.worker()
    measure(client, worker, 10_000_000)
    client.submit(range(1, 10))
    worker.take_tasks()
    worker.suspend(1)
    worker.take_tasks()  # the next parent is there before the first one's children
    client.submit([10, 11], options=options(priority=1))
    (child,) = worker.take_tasks()
    harness.nothing_else_was_sent()
    client.submit([20], options=options(priority=2))
    (grandchild,) = worker.take_tasks()
    worker.finish([grandchild, child])
    assert set(client.take_results()) == {20, 10}
    worker.take_tasks()
    harness.nothing_else_was_sent()


def test_freed_slots_are_used_again_by_their_tasks(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(queue_size=1)
    client.submit(range(3))
    (parent,) = worker.take_tasks()
    worker.suspend(1)
    (child,) = worker.take_tasks()
    worker.suspend(0)
    worker.finish([child])
    client.take_results()
    harness.nothing_else_was_sent()
    worker.finish([parent])
    client.take_results()
    worker.take_tasks()
    harness.nothing_else_was_sent()


def test_a_worker_whose_blocked_tasks_resumed_is_not_idle(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    client.submit(range(2))
    worker.take_tasks()
    worker.suspend(2)
    worker.suspend(0)
    harness.wait(1)
    client.submit([2])
    assert list(harness.core._placement.idle_workers()) == []
    harness.nothing_else_was_sent()
