"""Distant workers stay busy while results and next tasks travel, and near ones do not wait for them at the end.

The scheduler's core in virtual time: what is asserted is computed, not measured.
"""

from __future__ import annotations

from typing import List

import pytest
from scheduler_harness import Harness, Worker
from virtual_cluster import HOP_SECONDS, VirtualCluster

from scaler_protocol import messages as m

pytestmark = pytest.mark.exhaustive_on_pypy  # decisions in virtual time are the same there

SLOTS = 2
WORK_SECONDS = 12.0  # of each slot
FAR_SECONDS = 0.2  # one way
SUBMITTED_AT_ONCE = 100
CHUNK_SECONDS = 0.05  # of a map


def utilisation(task_seconds: float, hop_seconds: float) -> float:
    """The share of the time for which a worker's slots were busy, from the submission to the last result."""
    count = int(WORK_SECONDS * SLOTS / task_seconds)
    cluster = VirtualCluster([task_seconds] * count)
    worker = cluster.join(slots=SLOTS, hop_seconds=hop_seconds)
    begin = cluster.harness.now
    cluster.submit(range(count), batch=SUBMITTED_AT_ONCE)
    seconds = cluster.run() - begin
    return worker.busy_seconds / (SLOTS * seconds)


@pytest.mark.parametrize("task_seconds", [0.005, CHUNK_SECONDS])
@pytest.mark.parametrize("hop_seconds", [HOP_SECONDS, 0.05, 0.1, FAR_SECONDS])
def test_a_distant_worker_is_busy(task_seconds: float, hop_seconds: float) -> None:
    assert utilisation(task_seconds, hop_seconds) >= 0.9


def makespan(task_seconds: float, count: int, hops: List[float]) -> float:
    """How long some tasks take with such workers, of one slot each; durations were measured before."""
    cluster = VirtualCluster([task_seconds] * (count + 1))
    measured = cluster.join()
    cluster.submit(range(1))
    cluster.advance(task_seconds + 1.0)
    for hop_seconds in hops:
        cluster.join(hop_seconds=hop_seconds)
    measured.peer.congest()  # it was for measuring only
    begin = cluster.harness.now
    cluster.submit(range(1, count + 1))
    return cluster.run() - begin


@pytest.mark.parametrize("task_seconds", [0.005, 0.05])
@pytest.mark.parametrize("count", [1, 2, 10, 100, 400])
def test_a_distant_worker_helps_or_at_least_does_not_harm(task_seconds: float, count: int) -> None:
    near = [HOP_SECONDS] * 2
    alone, together = makespan(task_seconds, count, near), makespan(task_seconds, count, [*near, FAR_SECONDS])
    assert together <= alone + 0.001
    if count * task_seconds > 10.0:  # else there is not enough for it to do until its results have come
        assert together < 0.85 * alone


def test_near_workers_that_are_stuck_leave_the_rest_to_a_distant_one(harness: Harness) -> None:
    client, near = harness.client(), harness.worker()
    client.submit([0])
    near.finish(near.take_tasks(), busy_microseconds=10_000)
    client.take_results()
    distant = harness.worker()
    heard(distant, 100_000)
    client.submit(range(1, 21))
    assert len(near.take_all_tasks()) == 15
    assert distant.take_all_tasks() == [], "the near one will have done it before a distant one's results come"
    harness.wait(0.1)
    assert distant.take_all_tasks() == []
    harness.wait(1.0)
    assert len(distant.take_all_tasks()) == 5
    harness.nothing_else_was_sent()


def heard(worker: Worker, *latencies_microseconds: int) -> None:
    for sequence, microseconds in enumerate(latencies_microseconds, start=1):
        worker.send(m.Heartbeat(sequence=sequence, latency_microseconds=microseconds))
        worker.take(m.HeartbeatEcho)


def held(harness: Harness, *latencies_microseconds: int) -> int:
    """How many tasks of 10 ms a worker of one slot holds, after such heartbeats."""
    client, worker = harness.client(), harness.worker()
    client.submit([0])
    worker.finish(worker.take_tasks(), busy_microseconds=10_000)
    client.take_results()
    heard(worker, *latencies_microseconds)
    client.submit(range(1, 1000))
    return len(worker.take_all_tasks())


def test_the_way_there_and_back_counts_twice(harness: Harness) -> None:
    assert held(harness, 100_000) == 15 + 40  # 0.15 s, and two times 0.2 s


def test_who_is_near_or_has_not_measured_has_the_usual_amount(harness: Harness) -> None:
    assert held(harness, 0, 4_000) == 15


def test_a_heartbeat_that_was_delayed_does_not_make_a_worker_distant(harness: Harness) -> None:
    assert held(harness, 50_000, 900_000, 900_000) == 15 + 20
    assert held(Harness(), 4_000, 900_000) == 15


def test_a_distance_has_a_limit_whatever_a_worker_says(harness: Harness) -> None:
    assert held(harness, 4_000_000_000) == 15 + 400


def test_a_setting_says_how_much_is_in_line() -> None:
    assert held(Harness(prefetch_seconds=0.3), 100_000) == 30 + 40


def test_a_near_worker_gets_a_lone_task_although_a_distant_one_has_waited_longer(harness: Harness) -> None:
    client, distant = harness.client(), harness.worker()
    heard(distant, 100_000)
    near = harness.worker()
    client.submit([1])
    assert len(near.take_all_tasks()) == 1
    harness.nothing_else_was_sent()
