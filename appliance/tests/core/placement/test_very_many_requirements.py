"""Tasks with very many different requirements, or very many batches: others do not wait while they are placed."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest
from scheduler_harness import SMALL_WORK as WORK
from scheduler_harness import Client, Harness, Worker, options, task

from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.placement import ready_queues
from scaler_appliance.core.tasks.batches import Needs
from scaler_protocol import messages as m

SETTINGS = {"work_per_call": WORK}
COUNT = 60


@pytest.fixture
def comparisons(monkeypatch: pytest.MonkeyPatch) -> List[object]:
    """Grows with each comparison of a worker with what tasks need."""
    made: List[object] = []
    offers = WorkerSession.offers

    def counted(worker: WorkerSession, needs: Needs, now: float) -> bool:
        made.append(needs)
        return offers(worker, needs, now)

    monkeypatch.setattr(WorkerSession, "offers", counted)
    return made


def run_all(worker: Worker) -> List[int]:
    """Run tasks until none is left; the payloads, in order."""
    seen: List[int] = []
    while worker.inbox:
        instances = []
        while worker.inbox:
            instances += worker.take_tasks()
            seen += [int(payload) for payload in worker.payloads]
        worker.finish(instances, busy_microseconds=len(instances) * 10)
    return seen


def test_very_many_batches_are_placed_some_at_a_time(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=COUNT)
    for number in range(COUNT):
        client.post(*task([number]))
    assert max(harness.steps(lambda: harness.state.last_dispatch)) <= WORK // 10
    assert len(worker.take_all_tasks()) == COUNT
    harness.nothing_else_was_sent()


def test_very_many_workers_get_tasks_some_at_a_time(harness: Harness) -> None:
    client, workers = harness.client(), [harness.worker() for _ in range(COUNT)]
    client.post(*task(range(2 * COUNT)))
    assert max(harness.steps(lambda: harness.state.last_dispatch)) <= WORK // 10
    assert {len(worker.take_all_tasks()) for worker in workers} == {2}


def test_requirements_that_no_worker_meets_are_looked_at_some_at_a_time_and_once(
    harness: Harness, comparisons: List[object]
) -> None:
    client, workers = harness.client(), [harness.worker() for _ in range(4)]
    for number in range(COUNT):
        client.post(*task([number], options=options(priority=number, **{f"capability {number}": 1.0})))
    assert 4 <= max(harness.steps(lambda: len(comparisons))) <= WORK // 2
    comparisons.clear()
    client.submit([COUNT])
    assert not comparisons, "they are not looked at again"
    assert sum(len(worker.take_all_tasks()) for worker in workers) == 1
    offered: Dict[str, Any] = {"capability 7": 1.0}
    last = harness.worker(1, 1000, **offered)
    assert last.take_tasks() and last.payloads == [b"7"], "they are, when a worker comes"


def test_requirements_whose_workers_are_busy_are_looked_at_some_at_a_time(
    harness: Harness, comparisons: List[object]
) -> None:
    client, busy, _ = harness.client(), harness.worker(gpu=1), harness.worker()
    client.submit([0], options=options(gpu=1))
    instance = busy.take_tasks()
    for number in range(1, COUNT):
        client.post(*task([number], options=options(gpu=0.5 + number / 1000)))
    assert 0 < max(harness.steps(lambda: len(comparisons))) <= WORK // 2
    busy.finish(instance)
    assert sorted(run_all(busy)) == list(range(1, COUNT))


def test_who_gets_room_while_requirements_are_looked_at_gets_a_task_that_was_passed_over(harness: Harness) -> None:
    client, busy, _ = harness.client(), harness.worker(gpu=1), harness.worker()
    client.submit([0], options=options(gpu=1))
    instance = busy.take_tasks()
    client.post(*task([1], options=options(priority=1, gpu=1)))
    for number in range(COUNT):
        client.post(*task([2 + number], options=options(**{f"capability {number}": 1.0})))
    harness.step()
    assert harness.core.has_work, "the others are looked at in later calls"
    busy.finish(instance)
    assert busy.take_tasks() and busy.payloads == [b"1"]


def test_clients_learn_why_very_many_tasks_wait_some_at_a_time(harness: Harness) -> None:
    client = harness.client()
    for _ in range(5):
        harness.worker()
    for number in range(COUNT):
        client.submit([number], options=options(**{f"capability {number}": 1.0}))
    client.inbox.clear()
    harness.logs.clear()
    harness.now += 2
    assert max(harness.steps(lambda: len(harness.logs))) <= 2
    assert len(harness.logs) + sum("capability" in str(text) for text in client.inbox) >= COUNT


def test_a_client_with_more_requirements_than_are_looked_at_gets_all_its_tasks_done(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready_queues, "MAXIMUM_CLASSES_OF_CLIENT", 4)
    client, worker = harness.client(), harness.worker()
    for number in range(COUNT):
        client.post(*task([number], options=options(priority=number)))
    assert len(harness.state.ready.classes()) == 4 and len(harness.state.ready) == COUNT
    harness.tick()
    assert sorted(run_all(worker)) == list(range(COUNT))
    assert not harness.state.ready.has_later


def test_tasks_of_other_clients_are_not_behind_very_many_requirements(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready_queues, "MAXIMUM_CLASSES_OF_CLIENT", 4)
    client, other, worker = harness.client(), harness.client(), harness.worker()
    for number in range(COUNT):
        client.post(*task([number], options=options(missing=1 + number)))
    other.submit([7])
    assert worker.take_tasks() and worker.payloads == [b"7"]


def test_tasks_behind_very_many_requirements_are_cancelled_explained_and_held(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready_queues, "MAXIMUM_CLASSES_OF_CLIENT", 4)
    client = harness.client()
    for number in range(8):
        client.submit([number], options=options(priority=number))
    client.send(m.ExplanationRequest(request_id=1, task_id=7))
    assert "very many other requirements" in client.take(m.Explanation).text
    client.cancel(6)
    assert client.take_confirms() == {6: m.CancelOutcome.CANCELLED}
    client.congest()
    worker = harness.worker()
    assert not worker.inbox, "its client does not read"
    client.congest(False)
    assert sorted(run_all(worker)) == [0, 1, 2, 3, 4, 5, 7]


@pytest.mark.parametrize("limit", [4, 1000])
def test_a_client_that_leaves_takes_very_many_requirements_along(
    harness: Harness, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready_queues, "MAXIMUM_CLASSES_OF_CLIENT", limit)
    client = harness.client()
    for number in range(COUNT):
        client.post(*task([number], options=options(missing=1 + number)))
    harness.worker()
    client.vanish()
    assert not harness.state.clients and not len(harness.state.ready) and not harness.state.ready.classes()


def test_many_clients_share_the_requirements_that_are_looked_at(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready_queues, "MAXIMUM_CLASSES", 10)
    monkeypatch.setattr(ready_queues, "LEAST_CLASSES_OF_CLIENT", 2)
    clients: List[Client] = [harness.client() for _ in range(5)]
    for client in clients:
        for number in range(COUNT):
            client.post(*task([number], options=options(priority=client.session * COUNT + number)))
    counts = [len(harness.state.ready._clients[client.session].classes) for client in clients]
    assert counts == [10, 5, 3, 2, 2]
