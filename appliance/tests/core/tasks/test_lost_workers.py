"""Workers that are lost, leave, or give tasks back."""

from __future__ import annotations

from array import array
from typing import List

from scheduler_harness import Harness, Worker, options

from scaler_protocol import messages as m


def test_tasks_of_a_lost_worker_go_first_in_their_order_and_count_the_attempt(harness: Harness) -> None:
    client, lost = harness.client(), harness.worker(slots=3)
    client.submit(range(3))
    client.submit(range(3, 6))
    client.submit(range(6, 9))
    lost.take_all_tasks()
    lost.vanish()
    worker = harness.worker(slots=9)
    order, attempts = [], []
    while worker.inbox:
        worker.take_tasks()
        order += [int(payload) for payload in worker.payloads]
        attempts += [worker.task.attempt] * len(worker.payloads)
    assert order == list(range(9))
    assert attempts == [2] * 6 + [1] * 3, "only the first two tasks a slot were sent ahead"
    harness.nothing_else_was_sent()


def test_finished_tasks_of_a_lost_worker_stay_finished(harness: Harness) -> None:
    client, lost = harness.client(), harness.worker(slots=5)
    client.submit(range(5))
    instances = lost.take_tasks()
    lost.finish([instances[1], instances[3]])
    assert set(client.take_results()) == {1, 3}
    lost.vanish()
    worker = harness.worker(slots=5)
    instances = worker.take_all_tasks()
    assert len(instances) == 3
    worker.finish(instances)
    assert set(client.take_results()) == {0, 2, 4}
    harness.nothing_else_was_sent()


def test_a_task_that_loses_worker_after_worker_is_given_up_with_the_reason() -> None:
    harness = Harness(maximum_attempts=3)
    client = harness.client()
    client.submit([0])
    for attempt in (1, 2, 3):
        worker = harness.worker()
        worker.take_tasks()
        assert worker.task.attempt == attempt
        worker.vanish()
    ((task_id, failure),) = client.take_losses().items()
    assert (task_id, failure.kind, failure.attempts) == (0, m.FailureKind.WORKER_LOST, 3)
    assert "3 times" in failure.message and failure.message.count("its connection was lost") == 3
    harness.nothing_else_was_sent()


def test_a_task_that_lost_two_workers_is_sent_only_to_free_slots(harness: Harness) -> None:
    client = harness.client()
    client.submit(range(4))
    for _ in range(2):
        worker = harness.worker(slots=2)
        assert len(worker.take_tasks()) == 4
        worker.vanish()
    worker = harness.worker(slots=2)
    assert len(worker.take_tasks()) == 2
    client.submit([9])
    worker.vanish()
    worker = harness.worker(slots=5)
    assert [len(worker.take_tasks()) for _ in range(3)] == [2, 2, 1], "one message is of one attempt"
    harness.nothing_else_was_sent()


def test_a_task_that_may_run_once_is_never_run_again(harness: Harness) -> None:
    client, lost = harness.client(), harness.worker()
    client.submit([0], options=options(at_most_once=True))
    lost.take_tasks()
    lost.vanish()
    (failure,) = client.take_losses().values()
    assert failure.kind == m.FailureKind.WORKER_LOST and "once" in failure.message
    harness.worker()
    harness.nothing_else_was_sent()


def test_a_task_that_may_run_once_is_lost_with_a_leaving_worker_too(harness: Harness) -> None:
    client, leaving = harness.client(), harness.worker()
    client.submit([0], options=options(at_most_once=True))
    leaving.take_tasks()
    leaving.send(m.DisconnectRequest())
    leaving.take(m.DisconnectResponse)
    assert list(client.take_losses()) == [0]
    harness.nothing_else_was_sent()


def test_a_task_that_may_run_once_may_be_given_back_before_it_starts(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    client.submit([0], options=options(at_most_once=True))
    worker.give_back(worker.take_tasks())
    worker.finish(worker.take_tasks())
    assert set(client.take_results()) == {0}
    harness.nothing_else_was_sent()


def test_a_worker_that_leaves_costs_its_tasks_no_attempt() -> None:
    harness = Harness(maximum_attempts=1)
    client, leaving = harness.client(), harness.worker()
    client.submit([0, 1])
    leaving.take_tasks()
    leaving.send(m.DisconnectRequest())
    leaving.take(m.DisconnectResponse)
    worker = harness.worker()
    instances = worker.take_tasks()
    assert worker.task.attempt == 1
    worker.finish(instances)
    assert set(client.take_results()) == {0, 1}
    harness.nothing_else_was_sent()


def test_a_silent_workers_tasks_run_elsewhere(harness: Harness) -> None:
    client, silent = harness.client(), harness.worker()
    client.submit([0])
    before = silent.take_tasks()
    client.send(m.Heartbeat())
    client.take(m.HeartbeatEcho)
    harness.now += 59
    client.post(m.HeartbeatEcho())
    worker = harness.worker()
    silent.take(m.Heartbeat)
    harness.wait(2)
    silent.take_refusal(m.RefusalReason.NOT_GREETED)
    worker.finish(worker.take_tasks())
    assert set(client.take_results()) == {0}
    silent.finish(before)
    silent.take_refusal(m.RefusalReason.NOT_GREETED)
    harness.nothing_else_was_sent()


def test_a_worker_whose_tasks_clients_are_all_gone_is_lost_quietly(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    client.submit([0])
    worker.take_tasks()
    client.vanish()
    worker.take(m.TaskCancel)
    worker.vanish()
    harness.nothing_else_was_sent()


def take_payloads(worker: Worker) -> List[bytes]:
    """Of all messages that came."""
    payloads: List[bytes] = []
    while worker.inbox:
        worker.take_tasks()
        payloads += worker.payloads
    return payloads


def test_tasks_given_back_go_first_in_their_order(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=2)
    client.submit(range(6))
    instances = worker.take_all_tasks()
    assert len(instances) == 4
    other = harness.worker()
    other.take_tasks()
    worker.post(m.BalanceResponse(ids=array("Q", [instances[3], instances[1]])))
    third = harness.worker(slots=2)
    assert [int(payload) for payload in take_payloads(third)] == [1, 3]
    harness.nothing_else_was_sent()


def test_tasks_given_back_together_with_an_unknown_id_run_elsewhere(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=2)
    client.submit(range(2))
    given = worker.take_all_tasks()[0]
    worker.post(m.BalanceResponse(ids=array("Q", [given, 1 << 60])))
    harness.tick()
    worker.take_refusal(m.RefusalReason.PROTOCOL_VIOLATION)
    other = harness.worker(slots=2)
    other.finish(other.take_all_tasks())
    assert client.take_results().keys() == {0, 1}
    harness.nothing_else_was_sent()


# Balancing ------------------------------------------------------------------------------------------------------


def test_work_sent_ahead_is_asked_back_when_slots_are_free_elsewhere(harness: Harness) -> None:
    client, slow = harness.client(), harness.worker()
    client.submit([0])
    slow.finish(slow.take_tasks(), busy_microseconds=1000)
    client.take_results()
    client.submit(range(1, 101))
    instances = slow.take_tasks()
    assert len(instances) == 100
    idle = harness.worker(slots=3)
    harness.wait(1)
    request = slow.take(m.BalanceRequest)
    assert request.count == 75
    harness.wait(1)
    slow.give_back(instances[-30:-10] + instances[-10:], request.request_id)
    given = idle.take_all_tasks()
    assert [int(payload) for payload in idle.payloads] == list(range(71, 101))
    idle.finish(given)
    slow.finish(instances[:-30])
    assert len(client.take_results()) == 30
    assert len(client.take_results()) == 70
    harness.nothing_else_was_sent()


def test_no_worker_is_asked_for_tasks_that_no_other_can_run(harness: Harness) -> None:
    client, gpu = harness.client(), harness.worker(gpu=0)
    client.submit([0, 1], options=options(gpu=0))
    gpu.take_tasks()
    harness.worker()
    harness.wait(1)
    harness.nothing_else_was_sent()


def test_a_stale_answer_to_a_balance_request_is_ignored(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    client.submit([0])
    instances = worker.take_tasks()
    worker.finish(instances)
    client.take_results()
    worker.give_back(instances)
    harness.nothing_else_was_sent()
