"""Tasks that say how long they may run, and workers that say how long they stay."""

from __future__ import annotations

from typing import Any

import pytest
from scheduler_harness import Client, Harness, Worker, hello

from scaler_protocol import messages as m

HOUR = 3600.0


def worker_for(harness: Harness, seconds: float, slots: int = 1, **fields: object) -> Worker:
    """A worker that stays for so long; 0: no end is known."""
    worker = Worker(harness, f"peer {len(harness.peers)}".encode())
    harness.peers[worker.name] = worker
    worker.greet(
        hello(m.Role.WORKER, slots=slots, queue_size=100, remaining_milliseconds=int(seconds * 1000), **fields)
    )
    return worker


def submit(client: Client, *ids: int, seconds: float, **options: Any) -> None:
    client.submit(ids, options=m.TaskOptions(time_request_milliseconds=int(seconds * 1000), **options))


def why(client: Client, task_id: int) -> str:
    client.send(m.ExplanationRequest(request_id=1, task_id=task_id))
    return client.take(m.Explanation).text


@pytest.mark.parametrize("seconds", [0.0, 60.0, 61.0])
def test_a_task_goes_to_a_worker_that_stays_as_long_as_it_may_run(seconds: float) -> None:
    harness = Harness()
    client, worker = harness.client(), worker_for(harness, seconds)
    submit(client, 1, seconds=60.0)
    assert len(worker.take_tasks()) == 1
    assert worker.task.options.time_request_milliseconds == 60_000
    harness.nothing_else_was_sent()


def test_a_task_waits_if_every_worker_would_leave_before_its_end_and_its_client_learns_why() -> None:
    harness = Harness()
    client, short = harness.client(), worker_for(harness, 600.0)
    submit(client, 1, seconds=HOUR)
    assert "no worker that could run it stays so long: the one that stays longest has 600 s left" in why(client, 1)
    harness.wait(1.0)
    assert "it may take 3600 s (time_request)" in client.take(m.Explanation).text
    client.submit([2])
    assert len(short.take_tasks()) == 1, "other tasks do not wait behind it"
    long = worker_for(harness, 2 * HOUR)
    assert len(long.take_tasks()) == 1
    harness.nothing_else_was_sent()


def test_time_that_has_passed_counts() -> None:
    harness = Harness()
    client, worker = harness.client(), worker_for(harness, 2.0)
    submit(client, 1, seconds=1.2)
    worker.finish(worker.take_tasks())
    client.take_results()
    harness.wait(1.0)
    submit(client, 2, seconds=1.2)
    assert "has 1 s left" in why(client, 2)
    submit(client, 3, seconds=0.8)
    assert len(worker.take_tasks()) == 1


def test_a_task_that_has_to_begin_now_does_not_wait_in_a_worker_s_queue() -> None:
    harness = Harness()
    client, worker = harness.client(), worker_for(harness, 100.0)
    submit(client, 1, 2, 3, seconds=60.0)
    [first] = worker.take_tasks()
    assert "1 worker can run what needs" in why(client, 2) and "stays for 60 s" in why(client, 2)
    worker.finish([first])
    assert len(worker.take_tasks()) == 1
    assert set(client.take_results()) == {1}
    harness.nothing_else_was_sent()


def test_where_no_end_is_known_such_tasks_are_sent_ahead_like_others() -> None:
    harness = Harness()
    client, worker = harness.client(), worker_for(harness, 0.0)
    submit(client, 1, 2, seconds=60.0)
    assert len(worker.take_tasks()) == 2


def test_a_worker_that_lacks_a_capability_is_not_told_to_live_longer() -> None:
    harness = Harness()
    client = harness.client()
    worker_for(harness, 10.0)
    submit(client, 1, seconds=60.0, capabilities=[m.Capability(name="gpu", amount=1)])
    assert "gpu" in why(client, 1) and "time_request" not in why(client, 1)


def test_tasks_are_not_asked_back_for_an_idle_worker_that_leaves_too_soon() -> None:
    harness = Harness()
    client, busy = harness.client(), worker_for(harness, 0.0)
    submit(client, 1, 2, seconds=60.0)
    busy.take_tasks()
    worker_for(harness, 30.0)
    harness.wait(5.0)
    assert not [message for message, _ in busy.inbox if isinstance(message, m.BalanceRequest)]
