"""Large tasks go where the memory is that they may use; how much that is follows from limits, and from what is seen."""

from __future__ import annotations

from typing import List, Sequence

import pytest
from scheduler_harness import Client, Harness, Worker, options

from scaler_appliance.core.placement.memory_room import LARGE_BYTES
from scaler_protocol import messages as m

GIB = 1 << 30


@pytest.fixture
def client(harness: Harness) -> Client:
    return harness.client()


def host(harness: Harness, name: str, free_gib: float, slots: int = 4) -> Worker:
    """A worker alone on a host with so much memory left."""
    worker = harness.worker(slots, places={"data_address": f"tcp://{name}:1"})
    beat(worker, free_gib)
    return worker


def beat(worker: Worker, free_gib: float, running: Sequence[int] = (), each_gib: float = 0.0) -> None:
    """A heartbeat: so much is left, and the process of each running task has so much."""
    size = int(each_gib * GIB)
    processors = [m.ProcessorStatus(instance=each, has_task=True, resident_bytes=size) for each in running]
    worker.send(m.Heartbeat(free_bytes=int(free_gib * GIB), processors=processors))
    worker.take(m.HeartbeatEcho)


def counts(*workers: Worker) -> List[int]:
    """How many tasks each has got since last asked."""
    return [len(worker.take_all_tasks()) for worker in workers]


def see(client: Client, worker: Worker, free_gib: float, each_gib: float) -> None:
    """A task has run, and had so much."""
    client.submit([0])
    running = worker.take_tasks()
    beat(worker, free_gib - each_gib, running, each_gib)
    worker.finish(running, busy_microseconds=1_000_000)
    client.take_results()
    beat(worker, free_gib)


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
    client.submit([0])
    running = small.take_tasks()
    beat(small, 15, running, 1)
    client.submit([1, 2, 3], options=options(memory_limit_bytes=60 * GIB))
    assert counts(small, large) == [0, 3], "each may have 1 GiB, and more is left there"
    client.submit(range(4, 8), options=options(memory_limit_bytes=60 * GIB))
    assert counts(small, large) == [3, 1]


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


def test_a_task_for_which_nothing_has_room_runs_all_the_same(harness: Harness, client: Client) -> None:
    small, large = host(harness, "small", 4), host(harness, "large", 8)
    client.submit(range(8), options=options(memory_limit_bytes=12 * GIB))
    assert counts(small, large) == [4, 4]


@pytest.mark.parametrize("size", [0, LARGE_BYTES - 1])
def test_small_tasks_go_where_they_have_always_gone(harness: Harness, client: Client, size: int) -> None:
    small, large = host(harness, "small", 16), host(harness, "large", 64)
    client.submit([0], options=options(memory_limit_bytes=LARGE_BYTES))
    large.finish(large.take_tasks())
    client.submit([1], options=options(memory_limit_bytes=size))
    assert counts(small, large) == [1, 0], "the one that has waited longest"


def test_a_worker_that_does_not_say_what_is_left_may_have_enough(harness: Harness, client: Client) -> None:
    small, unknown = host(harness, "small", 16), harness.worker(4)
    client.submit([1], options=options(memory_limit_bytes=12 * GIB))
    assert counts(small, unknown) == [0, 1]


def test_what_was_seen_is_forgotten_with_the_function(harness: Harness, client: Client) -> None:
    only = host(harness, "only", 64)
    function = client.create(1, b"function")
    client.submit([0], function=function)
    only.take(m.ObjectInstruction)
    running = only.take_tasks()
    beat(only, 40, running, 8)
    assert len(harness.state.peak_bytes) == 1
    only.finish(running)
    client.delete(function)
    assert len(harness.state.peak_bytes) == 0
