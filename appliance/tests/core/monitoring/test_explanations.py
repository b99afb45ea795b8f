"""Why a task waits: asked, and unasked."""

from __future__ import annotations

from typing import List

import pytest
from scheduler_harness import Client, Harness, options

from scaler_appliance.core.monitoring import explanations
from scaler_protocol import messages as m


def ask(client: Client, task_id: int) -> str:
    client.send(m.ExplanationRequest(request_id=3, task_id=task_id))
    explanation = client.take(m.Explanation)
    assert explanation.request_id == 3
    return explanation.text


def wait(harness: Harness, seconds: int) -> None:
    """Let seconds pass, during which all peers send heartbeats."""
    for _ in range(seconds):
        for peer in list(harness.peers.values()):
            harness.core.on_message(harness.now, peer.name, m.HeartbeatEcho())
        harness.wait(1)


def take_warnings(client: Client) -> List[str]:
    warnings = []
    while client.inbox:
        explanation = client.take(m.Explanation)
        assert explanation.request_id == 0
        warnings.append(explanation.text)
    return warnings


def test_tasks_wait_for_workers_to_connect(harness: Harness) -> None:
    client = harness.client()
    client.submit([0, 1])
    assert ask(client, 1) == "the task waits because no worker is connected: start some with `scaler_cluster`"
    wait(harness, 5)
    assert take_warnings(client) == []  # they may be about to
    wait(harness, 10)
    assert take_warnings(client) == ["2 tasks wait because no worker is connected: start some with `scaler_cluster`"]
    assert [line for line in harness.logs if "no worker is connected" in line] == [
        "client 1 (here, process 7): 2 tasks wait because no worker is connected: start some with `scaler_cluster`"
    ]
    harness.nothing_else_was_sent()


def test_a_reason_that_comes_back_is_told_again(harness: Harness) -> None:
    client = harness.client()
    client.submit([0, 1, 2])
    wait(harness, 7)
    assert len(take_warnings(client)) == 1
    worker = harness.worker()
    worker.take_all_tasks()
    wait(harness, 2)
    worker.vanish()
    wait(harness, 7)
    assert len(take_warnings(client)) == 1


def test_each_client_is_told_once_a_reason_however_many_tasks_wait_and_come(harness: Harness) -> None:
    first, second, worker = harness.client(), harness.client(), harness.worker(gpu=1)
    for task_id in range(50):
        first.submit([task_id], options=options(gpu=2, priority=task_id % 3))
        wait(harness, 1)
    (warning,) = take_warnings(first)
    assert warning == ("1 task waits because no connected worker offers gpu=2 (gpu=1 is the most): start one that does")
    second.submit([1], options=options(gpu=2))
    second.submit([2], options=options(tpu=1))
    wait(harness, 2)
    assert sorted(take_warnings(second)) == [
        "1 task waits because no connected worker offers gpu=2 (gpu=1 is the most): start one that does",
        "1 task waits because no connected worker offers tpu=1 (no worker has any tpu): start one that does",
    ]
    assert len([line for line in harness.logs if "wait" in line]) == 3
    assert not worker.inbox
    harness.nothing_else_was_sent()


def test_capabilities_that_no_worker_has_all_of(harness: Harness) -> None:
    client = harness.client()
    harness.worker(gpu=1)
    harness.worker(tpu=1)
    client.submit([0], options=options(gpu=1, tpu=1))
    assert ask(client, 0) == (
        "the task waits because no connected worker offers gpu=1, tpu=1 together: start one that does"
    )


def test_capabilities_in_use_while_others_are_idle(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=4, gpu=1)
    harness.worker()
    client.submit([0, 1], options=options(gpu=1))
    worker.take_all_tasks()
    text = "because 1 worker can run what needs gpu=1, and other tasks keep all of them busy"
    assert ask(client, 1) == f"the task waits {text}"
    wait(harness, 10)
    assert take_warnings(client) == [f"1 task waits {text}"]


def test_busy_workers_are_nothing_to_warn_of(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    client.submit(range(10))
    worker.take_all_tasks()
    assert ask(client, 9) == ("the task waits because 1 slot of 1 worker are busy, and 8 tasks in line")
    wait(harness, 20)
    harness.nothing_else_was_sent()


def test_a_task_at_a_worker(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=2)
    client.submit([0])
    assert ask(client, 0) == "the task is at worker 2 (here, process 7): it runs, or is next in line there"
    client.submit([1, 2])
    assert ask(client, 2) == (
        "the task is at worker 2 (here, process 7), one of 3 on 2 slots: it runs or waits in line"
    )
    client.cancel(2)
    assert ask(client, 2) == "the task is being cancelled: worker 2 (here, process 7) has not answered yet"
    instances = worker.take_all_tasks()
    worker.take(m.TaskCancel)
    worker.finish(instances[:1])
    client.take_results()
    assert ask(client, 0) == "the task has ended: its outcome has left the scheduler"
    assert ask(client, 99) == "the scheduler has not received the task yet"


def test_a_task_whose_object_is_on_its_way(harness: Harness) -> None:
    client = harness.client()
    harness.worker()
    value = client.announce(1, 3_000_000, m.ObjectStorage.REMOTE)
    client.inbox.clear()
    client.submit([0], dependency_counts=[1], dependencies=[value])
    assert "of an object that it needs, 0 of 3000000 bytes have arrived" in ask(client, 0)


def test_a_client_that_does_not_take_its_results(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    client.congest()
    client.submit([0])
    assert ask(client, 0) == "the task waits because its client does not read the results that are ready for it"
    wait(harness, 10)
    assert len(take_warnings(client)) == 1
    assert not worker.inbox


def test_a_worker_that_is_connected_and_takes_nothing(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    worker.congest()
    client.submit([0])
    wait(harness, 10)
    (warning,) = take_warnings(client)
    assert "it is leaving, or does not read messages" in warning


def test_a_suspect_is_said_to_be_one(harness: Harness) -> None:
    client = harness.client()
    client.submit([0])
    for _ in range(2):
        worker = harness.worker()
        worker.take_all_tasks()
        worker.vanish()
    assert "lost with its worker 2 times" in ask(client, 0)


def test_what_clients_were_told_is_forgotten_beyond_a_maximum_and_when_they_leave(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explanations, "MAXIMUM_TOLD", 3)
    client = harness.client()
    harness.worker()
    told = harness.core._explanations
    for task_id in range(10):
        client.submit([task_id], options=options(**{f"thing-{task_id}": 1}))
        wait(harness, 2)
        assert len(take_warnings(client)) == 1
        assert 1 <= len(told._told) <= 3
        client.cancel(task_id)
        client.inbox.clear()
    client.vanish()
    harness.tick()
    assert not told._told
