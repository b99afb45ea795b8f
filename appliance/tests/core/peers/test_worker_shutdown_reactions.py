"""Clients that ask single workers to leave."""

from __future__ import annotations

import pytest
from scheduler_harness import Client, Harness, hello

from scaler_protocol import messages as m

Reason = m.DisconnectReason


@pytest.fixture
def harness() -> Harness:
    return Harness(protected=False)


def ask(client: Client, session: int = 0, name: str = "", drain: bool = True) -> m.WorkerShutdownResponse:
    client.send(m.WorkerShutdown(request_id=5, session=session, name=name, is_draining=drain))
    response = client.take(m.WorkerShutdownResponse)
    assert response.request_id == 5 and response.accepted is not bool(response.message)
    return response


def test_a_worker_that_drains_is_given_nothing_more_and_leaves_when_it_is_done(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    client.submit([1, 2, 3])
    first, second = worker.take_tasks()
    assert ask(client, worker.session).accepted
    assert worker.take(m.DisconnectRequest).reason == Reason.DRAINING
    worker.give_back([second])
    client.submit([4])
    worker.finish([first])
    assert set(client.take_results()) == {1}
    harness.nothing_else_was_sent()
    worker.send(m.DisconnectResponse())
    other = harness.worker(slots=4)
    tasks = other.take_all_tasks()
    assert other.task.attempt == 1 and len(tasks) == 3, "that it left costs no task an attempt"
    assert list(harness.state.workers) == [other.session]
    harness.nothing_else_was_sent()


def test_a_worker_that_is_stopped_is_asked_to_and_its_tasks_run_elsewhere(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    client.submit([1])
    worker.take_tasks()
    assert ask(client, worker.session, drain=False).accepted
    assert worker.take(m.DisconnectRequest).reason == Reason.SHUTDOWN
    worker.send(m.DisconnectResponse())
    other = harness.worker()
    other.take_tasks()
    assert other.task.attempt == 1
    harness.nothing_else_was_sent()


def test_a_worker_that_takes_too_long_to_drain_can_be_stopped(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    for drain, reason in ((True, Reason.DRAINING), (False, Reason.SHUTDOWN)):
        assert ask(client, worker.session, drain=drain).accepted
        assert worker.take(m.DisconnectRequest).reason == reason


def test_a_worker_that_was_asked_may_break_off_without_blame(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    client.submit([1])
    worker.take_tasks()
    ask(client, worker.session)
    worker.vanish()
    other = harness.worker()
    other.take_tasks()
    assert other.task.attempt == 1


def test_a_worker_is_found_by_its_name_if_that_is_its_own(harness: Harness) -> None:
    client = harness.client()
    workers = [harness.unregistered_peer() for _ in range(3)]
    for worker, name in zip(workers, ("one", "two", "two")):
        worker.greet(hello(m.Role.WORKER, slots=1, queue_size=1, name=name))
    assert ask(client, name="one").accepted
    assert workers[0].take(m.DisconnectRequest).reason == Reason.DRAINING
    response = ask(client, name="two")
    assert "2 workers have the name 'two'" in response.message
    assert str(workers[1].session) in response.message and str(workers[2].session) in response.message
    harness.nothing_else_was_sent()


@pytest.mark.parametrize(("session", "name"), [(99, ""), (0, "unknown"), (0, "")])
def test_a_worker_that_is_not_there_is_named(harness: Harness, session: int, name: str) -> None:
    client = harness.client()
    response = ask(client, session or 0, name)
    assert "no worker with" in response.message and (str(session) if session else name) in response.message
    assert "no worker" in ask(client, client.session).message, "a client is no worker"
    harness.nothing_else_was_sent()


def test_a_protected_scheduler_refuses() -> None:
    harness = Harness()
    client, worker = harness.client(), harness.worker()
    assert "protected" in ask(client, worker.session).message
    client.submit([1])
    worker.take_tasks()
    harness.nothing_else_was_sent()


def test_tasks_that_only_a_leaving_worker_could_run_say_what_they_wait_for(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    ask(client, worker.session)
    worker.take(m.DisconnectRequest)
    client.submit([1])
    client.send(m.ExplanationRequest(request_id=1, task_id=1))
    assert "leaving" in client.take(m.Explanation).text
