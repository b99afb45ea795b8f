"""Large tasks go where the memory is that they may use, and wait for it (test_waiting_for_memory.py); how much that is
follows from limits, and from what is seen."""

from __future__ import annotations

import pytest
from hosts_with_memory import GIB, beat, counts, host, see
from scheduler_harness import Client, Harness, options

from scaler_appliance.core.tasks.memory_needs import LARGE_BYTES
from scaler_protocol import messages as m


@pytest.fixture
def client(harness: Harness) -> Client:
    return harness.client()


def test_tasks_with_a_limit_go_where_that_much_is_left(harness: Harness, client: Client) -> None:
    small, large = host(harness, "small", 16), host(harness, "large", 64, slots=8)
    for first in range(0, 6, 2):
        client.submit([first, first + 1], options=options(memory_limit_bytes=12 * GIB))
    assert counts(small, large) == [1, 5], "five fit the large one, and one the small one"


def test_so_do_those_that_have_waited_for_another_task(harness: Harness, client: Client) -> None:
    large, small = host(harness, "large", 64), host(harness, "small", 8)
    client.submit([1])
    running = large.take_tasks()
    client.submit_after(2, 1, options=options(memory_limit_bytes=12 * GIB))
    large.finish(running, [b"result"])
    assert counts(large, small) == [1, 0], "though the other one has waited longer"


def test_what_was_seen_of_a_function_counts(harness: Harness, client: Client) -> None:
    first = host(harness, "first", 64)
    see(client, first, 64, 12)
    first.vanish()
    small, large = host(harness, "small", 16), host(harness, "large", 64)
    client.submit(range(1, 5))
    assert counts(small, large) == [0, 4]


def test_what_was_seen_counts_more_than_a_limit(harness: Harness, client: Client) -> None:
    small, large = host(harness, "small", 16), host(harness, "large", 64)
    see(client, small, 16, 1)
    client.submit([1, 2, 3], options=options(memory_limit_bytes=60 * GIB))
    assert counts(small, large) == [0, 3], "each may have 1 GiB, and more is left there"
    client.submit(range(4, 9), options=options(memory_limit_bytes=60 * GIB))
    assert counts(small, large) == [4, 1]


def test_the_most_that_was_seen_counts(harness: Harness, client: Client) -> None:
    only = host(harness, "only", 64)
    client.submit([0, 1])
    running = only.take_tasks()
    for each_gib in (8, 20, 3):
        beat(only, 40, running, each_gib)
    only.finish(running, busy_microseconds=2_000_000)
    client.take_results()
    beat(only, 64)
    other = host(harness, "other", 42)
    client.submit(range(2, 7))
    assert counts(only, other) == [3, 2]


def test_what_runs_on_a_host_is_counted_before_the_next_heartbeat_and_after_it(
    harness: Harness, client: Client
) -> None:
    small, large, third = host(harness, "small", 16), host(harness, "large", 30), host(harness, "third", 13)
    client.submit([1], options=options(memory_limit_bytes=12 * GIB))
    running = large.take_tasks()
    client.submit([2], options=options(memory_limit_bytes=12 * GIB))
    running += large.take_tasks()
    beat(large, 6, running, 9)  # they will have three each, and another one finds no room
    client.submit([3], options=options(memory_limit_bytes=12 * GIB))
    assert counts(small, large, third) == [1, 0, 0]
    large.finish(running, busy_microseconds=2_000_000)
    client.submit([4], options=options(memory_limit_bytes=12 * GIB))
    assert counts(small, large, third) == [0, 1, 0], "what they had is free again"


def test_workers_on_one_host_share_what_it_has(harness: Harness, client: Client) -> None:
    workers = [host(harness, "one", 20, slots=1) for _ in range(2)]
    other = host(harness, "other", 16)
    client.submit([1, 2], options=options(memory_limit_bytes=12 * GIB))
    assert sorted(counts(*workers)) == [0, 1] and counts(other) == [1]


def test_of_hosts_with_room_the_one_without_a_gpu_comes_first(harness: Harness, client: Client) -> None:
    gpu = harness.worker(4, gpu=1.0)
    beat(gpu, 256)
    small, large = host(harness, "small", 8), host(harness, "large", 30)
    client.submit([1, 2, 3], options=options(memory_limit_bytes=12 * GIB))
    assert counts(gpu, small, large) == [1, 0, 2]


def test_a_limit_counts_no_more_once_a_task_has_ended_that_was_not_seen_to_be_large(
    harness: Harness, client: Client
) -> None:
    only = host(harness, "only", 64)
    careful = options(memory_limit_bytes=60 * GIB)
    client.submit(range(4), options=careful)
    running = only.take_tasks()
    assert len(running) == 1, "each of them may take nearly all"
    only.finish(running, busy_microseconds=2_000_000)
    assert counts(only) == [3]


def test_a_task_for_which_nothing_has_room_runs_all_the_same_where_no_large_one_does(
    harness: Harness, client: Client
) -> None:
    small, large = host(harness, "small", 4), host(harness, "large", 8)
    client.submit([0], options=options(memory_limit_bytes=12 * GIB))
    assert counts(small, large) == [0, 1]
    client.submit([1], options=options(memory_limit_bytes=12 * GIB))
    assert counts(small, large) == [1, 0]
    client.submit([2], options=options(memory_limit_bytes=12 * GIB))
    assert counts(small, large) == [0, 0]


@pytest.mark.parametrize("size", [0, LARGE_BYTES - 1])
def test_small_tasks_go_where_they_have_always_gone(harness: Harness, client: Client, size: int) -> None:
    small, large = host(harness, "small", 16), host(harness, "large", 64)
    client.submit([0], options=options(memory_limit_bytes=LARGE_BYTES))
    large.finish(large.take_tasks())
    client.submit([1], options=options(memory_limit_bytes=size))
    assert counts(small, large) == [1, 0], "the one that has waited longest"


def test_a_worker_that_does_not_say_what_is_left_may_have_enough(harness: Harness, client: Client) -> None:
    small, unknown = host(harness, "small", 16), host(harness, "unknown", 0)
    client.submit([1, 2, 3], options=options(memory_limit_bytes=12 * GIB))
    assert counts(small, unknown) == [0, 3]


def test_a_worker_gets_one_large_task_before_its_first_heartbeat(harness: Harness, client: Client) -> None:
    worker = harness.worker(4)
    client.submit([1, 2, 3], options=options(memory_limit_bytes=12 * GIB))
    assert counts(worker) == [1]
    beat(worker, 25)
    assert counts(worker) == [1]


def test_what_was_seen_is_forgotten_with_the_function(harness: Harness, client: Client) -> None:
    only = host(harness, "only", 64)
    function = client.create(1, b"function")
    client.submit([0], function=function)
    only.take(m.ObjectInstruction)
    running = only.take_tasks()
    beat(only, 40, running, 8)
    assert len(harness.state.memory_needs) == 1
    only.finish(running)
    client.delete(function)
    assert len(harness.state.memory_needs) == 0
