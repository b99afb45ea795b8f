"""Single workers that are to leave: a client asks for it, or the worker itself."""

from __future__ import annotations

import pytest
from scheduler_harness import Client, Harness, Worker, hello

from scaler_protocol import messages as m
from scaler_protocol.session.features import DRAIN_REQUESTS, KEPT_RESULTS

Cause = m.DrainCause
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


def test_a_protected_scheduler_refuses_to_stop_a_worker_and_lets_it_drain() -> None:
    harness = Harness()
    client, worker = harness.client(), harness.worker()
    assert "or let it drain" in ask(client, worker.session, drain=False).message
    client.submit([1])
    worker.take_tasks()
    harness.nothing_else_was_sent()
    assert ask(client, worker.session).accepted
    assert worker.take(m.DisconnectRequest).reason == Reason.DRAINING


# Workers that ask for it ----------------------------------------------------------------------------------------------


def joined(harness: Harness, *features: str, remaining_seconds: float = 0.0) -> Worker:
    """A worker with one slot, and a queue."""
    worker = Worker(harness, f"peer {len(harness.peers)}".encode())
    harness.peers[worker.name] = worker
    milliseconds = int(remaining_seconds * 1000)
    worker.greet(
        hello(m.Role.WORKER, slots=1, queue_size=10, features=list(features), remaining_milliseconds=milliseconds)
    )
    return worker


def request(cause: int = Cause.SIGNAL) -> m.DisconnectRequest:
    return m.DisconnectRequest(reason=Reason.DRAINING, message="asked to stop by SIGTERM", drain_cause=cause)


def test_a_worker_that_asks_to_be_drained_keeps_its_session_and_gets_no_more_tasks(harness: Harness) -> None:
    client, worker = harness.client(), joined(harness, DRAIN_REQUESTS)
    client.submit([1, 2])
    first, second = worker.take_tasks()
    worker.send(request())
    answer = worker.take(m.DisconnectRequest)
    assert (answer.reason, answer.drain_cause, answer.message) == (
        Reason.DRAINING,
        Cause.SIGNAL,
        "asked to stop by SIGTERM",
    )
    worker.give_back([second])
    client.submit([3])
    worker.finish([first])
    assert set(client.take_results()) == {1}
    harness.nothing_else_was_sent()
    worker.send(m.DisconnectResponse())
    other = harness.worker(slots=4)
    assert len(other.take_all_tasks()) == 2 and other.task.attempt == 1


def test_a_worker_whose_time_to_drain_ends_loses_no_attempt_of_its_tasks(harness: Harness) -> None:
    client, worker = harness.client(), joined(harness, DRAIN_REQUESTS)
    client.submit([1])
    worker.take_tasks()
    worker.send(request())
    worker.take(m.DisconnectRequest)
    worker.send(m.DisconnectRequest(reason=Reason.LEAVING, message="its time is over"))
    worker.take(m.DisconnectResponse)
    other = harness.worker()
    other.take_tasks()
    assert other.task.attempt == 1
    harness.nothing_else_was_sent()


def test_a_task_that_may_run_once_says_with_which_worker_it_was_lost_and_why(harness: Harness) -> None:
    client, worker = harness.client(), joined(harness, DRAIN_REQUESTS)
    client.submit([1], options=m.TaskOptions(at_most_once=True))
    worker.take_tasks()
    worker.send(request())
    worker.take(m.DisconnectRequest)
    worker.send(m.DisconnectRequest(reason=Reason.LEAVING, message="its time is over"))
    worker.take(m.DisconnectResponse)
    failure = client.take_losses()[1]
    assert failure.kind == m.FailureKind.WORKER_LOST and "its time is over" in failure.message


def test_a_worker_of_an_older_version_that_says_so_has_left(harness: Harness) -> None:
    client, worker = harness.client(), joined(harness)
    client.submit([1])
    worker.take_tasks()
    worker.send(request())
    worker.take(m.DisconnectResponse)
    assert not harness.state.workers


def test_a_client_that_asks_to_be_drained_has_left(harness: Harness) -> None:
    client = harness.unregistered_peer()
    client.greet(hello(m.Role.CLIENT, features=[DRAIN_REQUESTS]))
    client.send(request())
    client.take(m.DisconnectResponse)
    assert not harness.state.clients


def test_a_worker_that_drains_already_is_answered_too_and_the_first_cause_remains(harness: Harness) -> None:
    client, worker = harness.client(), joined(harness, DRAIN_REQUESTS, KEPT_RESULTS)
    assert ask(client, worker.session).accepted
    assert worker.take(m.DisconnectRequest).drain_cause == Cause.OPERATOR
    worker.send(request())
    assert worker.take(m.DisconnectRequest).drain_cause == Cause.OPERATOR
    worker.send(m.DisconnectResponse())
    assert not harness.state.workers


def test_a_cause_of_a_newer_version_is_unknown(harness: Harness) -> None:
    worker = joined(harness, DRAIN_REQUESTS)
    worker.send(request(cause=77))
    assert worker.take(m.DisconnectRequest).drain_cause == Cause.UNKNOWN


def test_monitors_learn_why_a_worker_drains(harness: Harness) -> None:
    worker = joined(harness, DRAIN_REQUESTS)
    harness.core.watch(True, False)
    worker.send(request(Cause.LIFETIME))
    status = harness.core.take_status(harness.now, is_snapshot=True)
    assert status is not None
    assert list(status.workers.states) == [2 | Cause.LIFETIME << 2]


def test_tasks_that_only_a_leaving_worker_could_run_say_what_they_wait_for(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    ask(client, worker.session)
    worker.take(m.DisconnectRequest)
    client.submit([1])
    client.send(m.ExplanationRequest(request_id=1, task_id=1))
    assert "leaving" in client.take(m.Explanation).text
