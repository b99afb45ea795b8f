"""Tasks that wait behind others go to a free slot, unless a task that waits for a worker could have it."""

from __future__ import annotations

from typing import Any, Dict

import pytest
from scheduler_harness import Client, Harness, Worker, options

from scaler_appliance.core.peers.worker_session import WorkerSession
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
    for _ in range(2 * COMPARISONS // len(tapes)):
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
    assert COMPARISONS <= compared <= COMPARISONS + 10
