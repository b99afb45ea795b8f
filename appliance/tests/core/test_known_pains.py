"""What users of schedulers of this kind suffered from, and no other test is named after."""

from __future__ import annotations

import gc
from collections import Counter
from typing import Any, Dict

from scheduler_harness import Harness

from scaler_appliance.core.graphs.graph_nodes import Graph
from scaler_appliance.core.objects.object_records import ObjectRecord
from scaler_appliance.core.peers.sessions import ClientSession
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.tasks.batches import Dispatch, TaskBatch
from scaler_protocol import messages as m


def test_a_worker_that_dies_while_it_is_asked_for_tasks_orphans_none(harness: Harness) -> None:
    client, slow = harness.client(), harness.worker()
    client.submit([0])
    slow.finish(slow.take_tasks(), busy_microseconds=1000)
    client.take_results()
    client.submit(range(1, 101))
    slow.take_tasks()
    other = harness.worker(slots=100)
    harness.wait(1)
    slow.take(m.BalanceRequest)
    slow.vanish()
    instances = other.take_tasks()
    assert sorted(map(int, other.payloads)) == list(range(1, 101))
    other.finish(instances)
    assert sorted(client.take_results()) == list(range(1, 101))
    harness.nothing_else_was_sent()


def test_balancing_loads_of_0_0_3_3_3_and_4_ends_and_serves_the_idle(harness: Harness) -> None:
    client = harness.client()
    busy = [harness.worker() for _ in range(4)]
    held: Dict[int, Any] = {}
    for index, (worker, load) in enumerate(zip(busy, (3, 3, 3, 4))):
        others = [other for other in busy if other is not worker]
        for other in others:
            other.congest()
        first = 10 * index
        client.submit(range(first, first + 1))
        worker.finish(worker.take_all_tasks(), busy_microseconds=10_000)
        client.take_results()
        client.submit(range(first + 1, first + 1 + load))
        held[index] = worker.take_all_tasks()
        assert len(held[index]) == load
        for other in others:
            other.congest(False)
    idle = [harness.worker() for _ in range(2)]
    given = 0
    for _ in range(3):
        harness.wait(1)
        for index, worker in enumerate(busy):
            if worker.inbox:
                request = worker.take(m.BalanceRequest)
                count = min(request.count, len(held[index]) - 1)
                given += count
                back = held[index][len(held[index]) - count :]
                held[index] = held[index][: len(held[index]) - count]
                worker.give_back(back, request.request_id)
    assert given >= 2
    assert all(worker.take_all_tasks() for worker in idle)


def test_nothing_is_kept_of_peers_that_have_gone(harness: Harness) -> None:
    """However many come and go, with tasks waiting, running and finished."""
    kinds = (ClientSession, WorkerSession, TaskBatch, Dispatch, Graph, ObjectRecord)

    def alive() -> Counter[str]:
        gc.collect()
        return Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, kinds))

    before = alive()
    for _ in range(20):
        client, worker = harness.client(), harness.worker()
        function = client.create(1, b"function")
        client.submit(range(3), function=function)
        worker.take(m.ObjectInstruction)
        instances = worker.take_all_tasks()
        worker.finish(instances[:1], busy_microseconds=10)
        client.take_results()
        worker.vanish()
        client.vanish()
        harness.peers.clear()
    del client, worker
    assert alive() == before
    state = harness.state
    assert not (state.clients or state.workers or state.dispatches or state.durations or state.ready.waiting())
