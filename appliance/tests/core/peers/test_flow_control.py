"""What a client may have in flight, and what happens to peers that do not take what they are sent."""

from __future__ import annotations

from typing import List, Tuple

import pytest
from scheduler_harness import Client, Harness, options

from scaler_protocol import messages as m

ARGUMENTS = m.ObjectKind.ARGUMENTS
SHARED = m.ObjectStorage.SHARED


def take_released(client: Client) -> Tuple[int, int]:
    """Tasks and bytes that the scheduler has told to have released."""
    echo = client.take(m.TaskEcho)
    return echo.tasks_released, echo.bytes_released


def take_ids(client: Client) -> List[int]:
    return sorted(client.take_results())


# What is granted ------------------------------------------------------------------------------------------------------


def test_the_welcome_says_what_a_client_may_have_in_flight() -> None:
    harness = Harness(client_tasks_in_flight=7, client_bytes_in_flight=70)
    limits = harness.client().greet(m.Hello(major=1, minor_max=9, role=m.Role.CLIENT)).limits
    assert (limits.tasks_in_flight, limits.bytes_in_flight) == (7, 70)


def test_releases_are_reported_rarely_and_before_a_client_would_have_to_stop() -> None:
    harness = Harness(client_tasks_in_flight=80)
    client, worker = harness.client(), harness.worker(slots=100)
    client.submit(range(80))
    instances = worker.take_all_tasks()
    worker.finish(instances[:9])
    assert len(take_ids(client)) == 9
    harness.nothing_else_was_sent()
    worker.finish(instances[9:12])
    assert take_ids(client) == [9, 10, 11]
    assert take_released(client)[0] == 12
    client.submit(range(80, 92))
    assert len(worker.take_all_tasks()) == 12
    harness.nothing_else_was_sent()


def test_tasks_beyond_the_grant_are_rejected_one_by_one_and_the_client_lives_on() -> None:
    harness = Harness(client_tasks_in_flight=3)
    client, worker = harness.client(), harness.worker(slots=9)
    client.submit(range(5))
    losses = client.take_losses()
    assert list(losses) == [3, 4]
    assert {failure.kind for failure in losses.values()} == {m.FailureKind.REJECTED}
    assert "granted" in losses[3].message
    assert take_released(client)[0] == 2
    worker.finish(worker.take_all_tasks())
    assert take_ids(client) == [0, 1, 2]
    assert take_released(client)[0] == 5
    harness.nothing_else_was_sent()


def test_a_task_may_be_submitted_while_less_than_the_limit_is_in_flight_however_large_it_is() -> None:
    harness = Harness(client_bytes_in_flight=10)
    client, worker = harness.client(), harness.worker(slots=9)
    client.submit([0, 1], [b"123456789", b"x" * 1000])
    assert len(worker.take_all_tasks()) == 2
    client.submit([2])
    assert list(client.take_losses()) == [2]
    harness.nothing_else_was_sent()


def test_a_large_last_task_of_a_batch_leaves_room_for_those_before_it_that_need_others() -> None:
    harness = Harness(client_bytes_in_flight=10)
    client, worker = harness.client(), harness.worker(slots=9)
    client.submit([0], [b"1"])
    first = worker.take_all_tasks()
    client.submit([1, 2], [b"12", b"x" * 1000], predecessor_counts=[1, 0], predecessors=[0])
    worker.finish([*first, *worker.take_all_tasks()])
    assert take_ids(client) == [0, 2]
    assert len(worker.take_all_tasks()) == 1
    client.take(m.TaskEcho)
    harness.nothing_else_was_sent()


def test_no_limit_is_a_limit_of_nothing() -> None:
    harness = Harness(client_tasks_in_flight=0, client_bytes_in_flight=0)
    client, worker = harness.client(), harness.worker(slots=9)
    client.submit(range(5), [b"x" * 1000] * 5)
    worker.finish(worker.take_all_tasks())
    assert len(take_ids(client)) == 5
    harness.nothing_else_was_sent()


def test_whatever_the_outcome_what_was_in_flight_is_released() -> None:
    harness = Harness(client_tasks_in_flight=4, client_bytes_in_flight=100)
    client, worker = harness.client(), harness.worker(slots=3, queue_size=1)
    client.submit([0, 1, 2, 3], [b"12345"] * 4)
    client.cancel(3)
    client.take_confirms()
    assert take_released(client) == (1, 0)  # bytes are released with the last task of a batch
    first, second, third = worker.take_all_tasks()
    worker.finish([first], statuses=[m.TaskStatus.FAILED])
    client.take(m.TaskResult)
    assert take_released(client) == (2, 0)
    cancelled, running = (instance for instance in (second, third))
    client.cancel(*range(3))
    client.take_confirms()
    worker.take(m.TaskCancel)
    worker.confirm(cancelled, m.CancelOutcome.CANCELLED)
    client.take_confirms()
    assert take_released(client) == (3, 0)
    worker.confirm(running, m.CancelOutcome.RUNNING)
    client.take_confirms()
    worker.vanish()
    again = harness.worker()
    again.finish(again.take_tasks())
    assert len(take_ids(client)) == 1
    assert take_released(client) == (4, 20)
    harness.nothing_else_was_sent()


def test_a_straggler_does_not_keep_the_payloads_of_its_batch() -> None:
    harness = Harness(client_bytes_in_flight=1600)
    client, worker = harness.client(), harness.worker(slots=16)
    client.submit(range(16), [b"%02d" % number * 50 for number in range(16)])
    instances = worker.take_all_tasks()
    worker.finish(instances[:13])
    assert len(take_ids(client)) == 13
    harness.wait(1)
    assert take_released(client) == (13, 1300)
    worker.vanish()
    again = harness.worker(slots=20)
    again.take_all_tasks()
    assert again.payloads == [b"13" * 50, b"14" * 50, b"15" * 50]
    harness.nothing_else_was_sent()


def test_a_large_argument_counts_once_its_client_has_let_go_of_it_and_until_its_task_is_done() -> None:
    harness = Harness(client_bytes_in_flight=100)
    client, worker = harness.client(), harness.worker(slots=9)
    arguments = client.announce(1, 500, SHARED, ARGUMENTS)
    client.submit([0], [b""], dependency_counts=[1], dependencies=[arguments])
    client.delete(arguments)
    worker.take(m.ObjectInstruction)
    client.submit([1])
    assert list(client.take_losses()) == [1]
    worker.finish(worker.take_all_tasks())
    assert take_ids(client) == [0]
    worker.take(m.ObjectInstruction)
    harness.effects.clear()
    assert take_released(client) == (2, 501)
    client.submit([2])
    worker.take_tasks()
    harness.nothing_else_was_sent()


def test_a_large_argument_that_its_client_lost_counts_when_the_client_lets_go_of_it() -> None:
    harness = Harness(client_bytes_in_flight=100)
    client = harness.client()
    arguments = client.announce(1, 500, m.ObjectStorage.REMOTE, ARGUMENTS)
    client.take(m.ObjectRequest)
    client.send(m.ObjectResponse(id=arguments, status=m.ObjectResponseStatus.MISSING))
    harness.effects.clear()
    harness.nothing_else_was_sent()
    client.delete(arguments)
    harness.effects.clear()
    assert take_released(client) == (0, 500)
    harness.nothing_else_was_sent()


def test_objects_that_a_client_keeps_are_not_in_flight() -> None:
    harness = Harness(client_bytes_in_flight=100)
    client, worker = harness.client(), harness.worker()
    value = client.announce(1, 500, SHARED)
    client.submit([0], [b""], dependency_counts=[1], dependencies=[value])
    worker.take(m.ObjectInstruction)
    worker.finish(worker.take_all_tasks())
    assert take_ids(client) == [0]
    client.submit([1])
    worker.take_all_tasks()
    harness.nothing_else_was_sent()


# Peers that do not read -----------------------------------------------------------------------------------------------


def test_tasks_of_a_client_that_does_not_read_wait_and_others_do_not_notice(harness: Harness) -> None:
    slow, other, worker = harness.client(), harness.client(), harness.worker(slots=2)
    slow.congest()
    slow.submit(range(3))
    other.submit([0])
    assert worker.take_tasks() and worker.task.client == other.session
    harness.nothing_else_was_sent()
    slow.congest(False)
    instances = worker.take_all_tasks()
    assert len(instances) == 3
    worker.finish(instances)
    assert take_ids(slow) == [0, 1, 2]
    harness.nothing_else_was_sent()


def test_what_was_on_its_way_already_still_arrives(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    client.submit(range(5))
    client.congest()
    worker.finish(worker.take_all_tasks())
    assert take_ids(client) == [0, 1]
    harness.nothing_else_was_sent()


def test_a_lost_workers_tasks_wait_for_their_client_to_read(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=2)
    client.submit([0, 1])
    worker.take_all_tasks()
    client.congest()
    worker.vanish()
    other = harness.worker(slots=2)
    harness.nothing_else_was_sent()
    client.congest(False)
    assert len(other.take_all_tasks()) == 2


def test_tasks_of_a_client_that_does_not_read_can_be_cancelled(harness: Harness) -> None:
    client = harness.client()
    client.submit([0, 1])
    client.congest()
    client.cancel(0)
    assert client.take_confirms() == {0: m.CancelOutcome.CANCELLED}
    client.vanish()
    harness.worker()
    harness.nothing_else_was_sent()


def test_a_client_that_leaves_while_it_does_not_read_leaves_nothing_behind(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=2)
    client.submit([0, 1])
    instances = worker.take_all_tasks()
    result = worker.announce(1, 100, SHARED)
    worker.finish(instances[:1], objects=[result])
    client.take(m.TaskResult)
    client.congest()
    client.vanish()
    worker.take(m.TaskCancel)
    assert len(harness.state.ready) == 0 and not harness.state.clients


def test_a_client_that_keeps_large_results_untaken_gets_no_more_made() -> None:
    harness = Harness(client_bytes_in_flight=1000)
    client, worker = harness.client(), harness.worker()
    client.submit([0])
    large = worker.announce(1, 2000, SHARED)
    worker.finish(worker.take_all_tasks(), objects=[large])
    client.take(m.TaskResult)
    client.submit([1])
    harness.nothing_else_was_sent()
    client.delete(large)
    assert len(worker.take_all_tasks()) == 1


@pytest.mark.parametrize("is_below_target", [False, True])
def test_a_worker_that_does_not_read_gets_nothing_until_it_does(harness: Harness, is_below_target: bool) -> None:
    client, worker = harness.client(), harness.worker(slots=2)
    client.submit([0])
    worker.finish(worker.take_tasks(), busy_microseconds=10_000)
    client.take_results()
    if is_below_target:
        client.submit([1, 2])
        worker.take_all_tasks()
    worker.congest()
    client.submit([3, 4])
    harness.nothing_else_was_sent()
    worker.congest(False)
    assert len(worker.take_all_tasks()) == 2
    harness.nothing_else_was_sent()


def test_a_worker_that_answers_nothing_holds_no_more_than_its_credit(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=2, queue_size=50)
    client.submit([0])
    worker.finish(worker.take_all_tasks(), busy_microseconds=1)
    take_ids(client)
    for first in range(1, 1001, 100):
        client.submit(range(first, first + 100))
        harness.wait(0.1)
    assert len(worker.take_all_tasks()) == 100
    harness.nothing_else_was_sent()


def test_cancelled_tasks_of_a_held_client_are_counted_in_their_class(harness: Harness) -> None:
    client = harness.client()
    client.congest()
    client.submit([0, 1], options=options(priority=3))
    client.submit([2], options=options(gpu=1))
    client.cancel(0)
    client.take_confirms()
    assert len(harness.state.ready) == 2 and harness.state.ready.placeable() == 0
    client.congest(False)
    assert harness.state.ready.placeable() == 2
