"""Tasks that wait behind others go to a free slot, unless a task that waits for a worker could have it."""

from __future__ import annotations

from typing import Any, Dict

import pytest
from scheduler_harness import Client, Harness, Worker, options
from virtual_cluster import VirtualCluster

from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.placement import rebalance
from scaler_appliance.core.placement.rebalance import CLASSES_LOOKED_AT, COMPARISONS
from scaler_appliance.core.tasks.batches import Needs
from scaler_protocol import messages as m

WITH_GPU: Any = {"options": options(gpu=1.0)}


@pytest.fixture
def client(harness: Harness) -> Client:
    return harness.client()


@pytest.fixture
def loaded(harness: Harness, client: Client) -> Worker:
    """A worker with a GPU, at which a plain task waits behind one that keeps the GPU busy."""
    worker = harness.worker(queue_size=2, gpu=1.0)
    client.submit([1], **WITH_GPU)
    client.submit([2])
    assert len(worker.take_all_tasks()) == 2
    return worker


def is_asked(worker: Worker) -> bool:
    """Whether it was asked for tasks."""
    return any(isinstance(message, m.BalanceRequest) for message, _ in worker.inbox)


def test_a_task_behind_another_goes_to_a_worker_that_has_come(harness: Harness, loaded: Worker) -> None:
    harness.worker()
    harness.wait(1.0)
    assert is_asked(loaded)


@pytest.mark.parametrize("needs", [{"gpu": 1.0}, {"tape": 1.0}])
def test_a_task_that_waits_for_what_no_free_slot_has_keeps_no_slot_free(
    harness: Harness, client: Client, loaded: Worker, needs: Any
) -> None:
    client.submit([3], options=options(**needs))
    harness.worker()
    harness.wait(1.0)
    assert is_asked(loaded)


def test_a_slot_is_left_to_a_task_that_waits_and_could_have_it(
    harness: Harness, client: Client, loaded: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may wait for a better one, as for one that is near or quick."""
    harness.worker(slots=2, gpu=1.0)
    client.submit([3], **WITH_GPU)
    monkeypatch.setattr(harness.core._placement, "place", lambda amount, is_changed: None)
    client.submit([4], options=options(gpu=0.0))
    harness.wait(1.0)
    assert not is_asked(loaded)


def test_very_many_kinds_of_tasks_that_wait_are_not_looked_at(harness: Harness, client: Client, loaded: Worker) -> None:
    for number in range(CLASSES_LOOKED_AT + 1):
        client.submit([10 + number], options=options(priority=-number, gpu=1.0))
    harness.worker()
    harness.wait(1.0)
    assert not is_asked(loaded)


def test_free_slots_are_compared_with_what_waits_a_limited_number_of_times(
    harness: Harness, client: Client, loaded: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    tapes: Dict[str, Any] = {f"tape-{number}": 1.0 for number in range(64)}
    harness.worker(gpu=1.0, **tapes)
    client.submit([3], **WITH_GPU)
    for number, tape in enumerate(tapes):
        client.submit([10 + number], options=options(**{"gpu": 1.0, tape: 1.0}))
    workers = 2 * COMPARISONS // len(tapes)
    for _ in range(workers):
        harness.worker()
    compared = 0
    offers = WorkerSession.offers

    def count_offers(worker: WorkerSession, needs: Needs, now: float) -> bool:
        nonlocal compared
        compared += 1
        return offers(worker, needs, now)

    monkeypatch.setattr(WorkerSession, "offers", count_offers)
    for session in harness.state.workers.values():
        session.balance_request = None
    harness.core._rebalance.rebalance()
    assert harness.core.take_effects()
    assert COMPARISONS <= compared <= COMPARISONS + 2 * workers


def test_if_the_first_free_slots_are_for_tasks_that_wait_the_next_ones_are_looked_at(
    harness: Harness, client: Client, loaded: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebalance, "COMPARISONS", 2)
    for _ in range(4):
        harness.worker(gpu=1.0)
    monkeypatch.setattr(harness.core._placement, "place", lambda amount, is_changed: None)
    client.submit([3], **WITH_GPU)
    harness.worker()
    harness.wait(1.0)
    assert not is_asked(loaded)
    harness.wait(1.0)
    harness.wait(1.0)
    assert is_asked(loaded)


SHORT, LONG = 0.001, 50.0
MEASURED = 100  # tasks, half of which need a GPU


def misjudged(plain: int, with_gpu: int) -> VirtualCluster:
    """A worker with GPUs that holds tasks of which those before took no time: first plain ones, and the first of these
    takes long; then some that no other worker can run."""
    cluster = VirtualCluster([SHORT] * MEASURED + [LONG] + [1.0] * (plain + with_gpu - 1))
    cluster.join(gpu=100.0)
    cluster.submit(range(MEASURED // 2))
    cluster.submit(range(MEASURED // 2, MEASURED), **WITH_GPU)
    cluster.run_until(range(MEASURED))
    first_with_gpu = MEASURED + plain
    cluster.submit(range(MEASURED, first_with_gpu))
    cluster.submit(range(first_with_gpu, first_with_gpu + with_gpu), **WITH_GPU)
    cluster.advance(5 * SHORT)
    assert cluster.starts[MEASURED:] == [MEASURED]
    return cluster


@pytest.mark.parametrize("with_gpu", [1, 10, 40])
def test_tasks_move_from_behind_a_long_one_though_those_that_came_last_cannot(with_gpu: int) -> None:
    cluster = misjudged(4, with_gpu)
    cluster.join()
    begun = cluster.harness.now
    cluster.run_until(range(MEASURED + 1, MEASURED + 4))
    assert cluster.harness.now - begun < 10.0


def test_a_worker_whose_tasks_no_one_else_can_run_is_asked_less_and_less_often() -> None:
    cluster = misjudged(1, 10)
    cluster.join()
    before = cluster.requests
    cluster.advance(40.0)
    assert 10 < cluster.requests - before <= 22


def test_after_an_answer_that_was_of_use_a_worker_is_asked_for_few_tasks(
    harness: Harness, client: Client, loaded: Worker
) -> None:
    harness.worker()
    session = next(each for each in harness.state.workers.values() if each.capabilities)
    session.useless_answers = 5
    harness.wait(1.0)
    request = loaded.take(m.BalanceRequest)
    assert request.count == 1, "no more than wait there"
    loaded.give_back([2 << 20], request.request_id)
    assert (session.useless_answers, session.not_asked_until) == (0, harness.now)
