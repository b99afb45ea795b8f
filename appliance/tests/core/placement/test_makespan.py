"""How long everything takes: real decisions in virtual time, and workers that do what the agent does.

The ideal is the work divided by the slots that are there, from the moment they are there; nothing can be faster. Tasks
of 10 to 100 ms, as users' are, may take a tenth more.
"""

from __future__ import annotations

from random import Random
from typing import Callable, Dict, List

import pytest
from virtual_cluster import VirtualCluster

pytestmark = pytest.mark.exhaustive_on_pypy  # decisions in virtual time are the same there

TASKS = 1000


def mixed(seed: int) -> List[float]:
    random = Random(seed)
    return [random.uniform(0.01, 0.1) for _ in range(TASKS)]


def ideal_seconds(durations: List[float], joined_at: List[float]) -> float:
    """When the work is done if each slot works from its joining on."""
    left = sum(durations)
    for slots, (start, stop) in enumerate(zip(joined_at, [*joined_at[1:], float("inf")]), 1):
        if left <= slots * (stop - start):
            return start + left / slots
        left -= slots * (stop - start)
    raise AssertionError("the last slot stays for ever")


ORDERS: Dict[str, Callable[[int], List[float]]] = {
    "mixed": mixed,
    "long tasks last": lambda seed: sorted(mixed(seed)),
    "short tasks last": lambda seed: sorted(mixed(seed), reverse=True),
    "short, then long": lambda seed: [0.01] * (TASKS * 9 // 10) + [0.1] * (TASKS // 10),
}


@pytest.mark.parametrize("workers_first", [True, False])
@pytest.mark.parametrize("slots", [1, 2, 10])
@pytest.mark.parametrize("order", ORDERS)
def test_ten_slots_are_done_within_a_tenth_of_the_ideal(order: str, slots: int, workers_first: bool) -> None:
    cluster = VirtualCluster(ORDERS[order](7))
    if not workers_first:
        cluster.submit(range(TASKS))
    for _ in range(10 // slots):
        cluster.join(slots)
    if workers_first:
        cluster.submit(range(TASKS))
    assert cluster.run() <= 1.1 * ideal_seconds(cluster.durations, [0.0] * 10)


@pytest.mark.parametrize("progress", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("order", ORDERS)
def test_a_worker_that_joins_late_takes_its_share(order: str, progress: float) -> None:
    cluster = VirtualCluster(ORDERS[order](8))
    joins_at = progress * ideal_seconds(cluster.durations, [0.0] * 10)
    for _ in range(10):
        cluster.join()
    cluster.submit(range(TASKS))
    cluster.after(joins_at, cluster.join)
    assert cluster.run() <= 1.1 * ideal_seconds(cluster.durations, [0.0] * 10 + [joins_at])


@pytest.mark.parametrize("newcomers", [1, 4])
def test_who_joins_when_nothing_waits_takes_from_the_queue_of_another(newcomers: int) -> None:
    """Tasks were short until now: as many were sent ahead as a worker's queue holds, and these are not."""
    cluster = VirtualCluster([0.0001] * 100 + [0.05] * 900)
    cluster.join()
    cluster.submit(range(TASKS))
    for _ in range(newcomers):
        cluster.after(1.2, cluster.join)
    seconds = cluster.run()
    assert cluster.machines[0].most_queued > 800, "there was something to take"
    assert seconds <= 1.1 * ideal_seconds(cluster.durations, [0.0] + [1.2] * newcomers)


def test_work_is_moved_when_a_slot_becomes_free_and_not_only_periodically() -> None:
    """Half of the tasks take longer than all before: workers that are done with short ones get some of the long
    ones."""
    cluster = VirtualCluster([0.001] * 500 + [0.1, 0.001] * 20)
    cluster.join()
    cluster.join()
    cluster.submit(range(len(cluster.durations)))
    assert cluster.run() <= 1.1 * ideal_seconds(cluster.durations, [0.0, 0.0])


def test_the_end_of_many_short_tasks_is_not_worth_a_message() -> None:
    cluster = VirtualCluster([0.00001] * 5000)
    cluster.join()
    cluster.join()
    cluster.submit(range(5000))
    cluster.run()
    assert cluster.harness.now < 1.0, "there was no periodic rebalancing of all workers"
    assert cluster.requests == 0
