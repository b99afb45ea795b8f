"""Cancelling: every place a task can be at, and every way the answer can cross something."""

from __future__ import annotations

from array import array
from typing import List, Tuple

import pytest
from scheduler_harness import Cancelled, Client, Harness, Worker, options

from scaler_protocol import messages as m


def running(harness: Harness, count: int = 1) -> tuple[Client, Worker, List[int]]:
    client, worker = harness.client(), harness.worker(slots=count)
    client.submit(range(count))
    return client, worker, worker.take_tasks()


def asked(worker: Worker) -> tuple[List[int], bool]:
    message = worker.take(m.TaskCancel)
    return list(message.ids), message.force


def test_a_waiting_task_is_cancelled_at_once_and_never_sent(harness: Harness) -> None:
    client = harness.client()
    client.submit(range(5))
    client.cancel(1, 3)
    assert client.take_confirms() == {1: Cancelled.CANCELLED, 3: Cancelled.CANCELLED}
    worker = harness.worker(slots=5)
    worker.finish(worker.take_all_tasks())
    assert set(client.take_results()) == {0, 2, 4}
    harness.nothing_else_was_sent()


def test_a_task_at_its_worker_is_cancelled_when_the_worker_says_so(harness: Harness) -> None:
    client, worker, instances = running(harness, 2)
    client.cancel(0)
    assert asked(worker) == (instances[:1], False)
    harness.nothing_else_was_sent()
    worker.confirm(instances[0], Cancelled.CANCELLED)
    assert client.take_confirms() == {0: Cancelled.CANCELLED}
    worker.finish(instances[1:])
    assert set(client.take_results()) == {1}
    harness.nothing_else_was_sent()


def test_a_running_task_goes_on_and_its_result_follows(harness: Harness) -> None:
    client, worker, instances = running(harness)
    client.cancel(0)
    asked(worker)
    worker.confirm(instances, Cancelled.RUNNING)
    assert client.take_confirms() == {0: Cancelled.RUNNING}
    worker.finish(instances)
    assert set(client.take_results()) == {0}
    harness.nothing_else_was_sent()


def test_running_is_told_before_a_result_of_the_same_burst(harness: Harness) -> None:
    client, worker, instances = running(harness)
    client.cancel(0)
    asked(worker)
    worker.post(m.TaskCancelConfirm(ids=array("Q", instances), outcomes=bytes([Cancelled.RUNNING])))
    worker.finish(instances)
    assert client.take_confirms() == {0: Cancelled.RUNNING}
    assert set(client.take_results()) == {0}
    harness.nothing_else_was_sent()


def test_a_running_task_that_was_refused_can_be_forced_later(harness: Harness) -> None:
    client, worker, instances = running(harness)
    client.cancel(0)
    asked(worker)
    worker.confirm(instances, Cancelled.RUNNING)
    client.take_confirms()
    client.cancel(0, force=True)
    assert asked(worker) == (instances, True)
    worker.confirm(instances, Cancelled.CANCELLED)
    assert client.take_confirms() == {0: Cancelled.CANCELLED}
    harness.nothing_else_was_sent()


def test_force_after_an_unanswered_cancel_is_passed_on(harness: Harness) -> None:
    client, worker, instances = running(harness)
    client.cancel(0)
    client.cancel(0, force=True)
    assert asked(worker) == (instances, False)
    assert asked(worker) == (instances, True)
    worker.confirm(instances, Cancelled.RUNNING)
    assert client.take_confirms() == {0: Cancelled.RUNNING}
    worker.confirm(instances, Cancelled.CANCELLED)
    assert client.take_confirms() == {0: Cancelled.CANCELLED}
    harness.nothing_else_was_sent()


@pytest.mark.parametrize("others", [(), (1, 2)], ids=["alone", "among others"])
def test_force_is_not_forgotten_with_a_worker_that_has_answered_the_cancel_before(
    harness: Harness, others: Tuple[int, ...]
) -> None:
    client, worker, instances = running(harness, 1 + len(others))
    client.cancel(0)
    client.cancel(0, *others, force=True)
    assert asked(worker) == (instances[:1], False)
    assert asked(worker) == (instances, True)
    worker.confirm(instances[:1], Cancelled.RUNNING)
    assert client.take_confirms() == {0: Cancelled.RUNNING}
    worker.vanish()
    assert client.take_confirms() == dict.fromkeys((0, *others), Cancelled.CANCELLED)
    harness.worker(slots=3)
    harness.nothing_else_was_sent()


def test_an_answer_to_both_cancels_leaves_the_task_to_its_end(harness: Harness) -> None:
    client, worker, instances = running(harness)
    client.cancel(0)
    client.cancel(0, force=True)
    worker.confirm(instances, Cancelled.RUNNING)
    assert client.take_confirms() == {0: Cancelled.RUNNING}
    worker.finish(instances)
    assert set(client.take_results()) == {0}
    assert client.take_confirms() == {0: Cancelled.NOT_FOUND}


def test_a_result_that_crosses_a_cancel_wins_and_the_cancel_is_answered(harness: Harness) -> None:
    client, worker, instances = running(harness)
    client.cancel(0)
    asked(worker)
    worker.finish(instances)
    assert set(client.take_results()) == {0}
    assert client.take_confirms() == {0: Cancelled.NOT_FOUND}
    worker.confirm(instances, Cancelled.NOT_FOUND)
    harness.nothing_else_was_sent()


def test_asking_twice_is_asking_once(harness: Harness) -> None:
    client, worker, instances = running(harness)
    client.cancel(0, 0)
    client.cancel(0)
    assert asked(worker) == (instances, False)
    worker.confirm(instances, Cancelled.CANCELLED)
    assert client.take_confirms() == {0: Cancelled.CANCELLED}
    client.cancel(0)
    assert client.take_confirms() == {0: Cancelled.NOT_FOUND}
    harness.nothing_else_was_sent()


def test_tasks_that_are_unknown_or_done_are_not_found(harness: Harness) -> None:
    client, worker, instances = running(harness, 2)
    worker.finish(instances[:1])
    client.take_results()
    client.cancel(0, 77)
    assert client.take_confirms() == {0: Cancelled.NOT_FOUND, 77: Cancelled.NOT_FOUND}
    worker.finish(instances[1:])
    client.take_results()
    client.cancel(1)
    assert client.take_confirms() == {1: Cancelled.NOT_FOUND}
    harness.nothing_else_was_sent()


def test_a_client_cannot_cancel_anothers_task(harness: Harness) -> None:
    client, worker, instances = running(harness)
    other = harness.client()
    other.cancel(0)
    assert other.take_confirms() == {0: Cancelled.NOT_FOUND}
    worker.finish(instances)
    client.take_results()
    harness.nothing_else_was_sent()


def test_a_worker_lost_meanwhile_is_as_good_as_a_confirmation(harness: Harness) -> None:
    client, worker, _ = running(harness, 3)
    client.cancel(1)
    asked(worker)
    worker.vanish()
    assert client.take_confirms() == {1: Cancelled.CANCELLED}
    other = harness.worker(slots=3)
    other.finish(other.take_all_tasks())
    assert set(client.take_results()) == {0, 2}
    harness.nothing_else_was_sent()


def test_a_task_given_back_meanwhile_is_cancelled_by_it(harness: Harness) -> None:
    client, worker, instances = running(harness, 2)
    client.cancel(0)
    asked(worker)
    worker.give_back(instances[:1])
    assert client.take_confirms() == {0: Cancelled.CANCELLED}
    worker.confirm(instances[0], Cancelled.NOT_FOUND)
    harness.nothing_else_was_sent()


def test_a_worker_that_denies_having_an_open_instance_breaks_the_protocol(harness: Harness) -> None:
    client, worker, instances = running(harness)
    client.cancel(0)
    asked(worker)
    worker.confirm(instances, Cancelled.NOT_FOUND)
    assert "has not reported it" in worker.take_refusal(m.RefusalReason.PROTOCOL_VIOLATION)
    assert client.take_confirms() == {0: Cancelled.CANCELLED}
    harness.nothing_else_was_sent()


def test_a_worker_may_drop_a_task_without_a_request_only_as_cancelled(harness: Harness) -> None:
    """The answer to a forced cancel that came after an unforced one was answered: both are answered."""
    client, worker, instances = running(harness)
    worker.confirm(instances, Cancelled.RUNNING)
    harness.nothing_else_was_sent()
    worker.confirm(instances, Cancelled.CANCELLED)
    assert client.take_confirms() == {0: Cancelled.CANCELLED}
    harness.nothing_else_was_sent()


def test_columns_of_a_confirmation_must_agree(harness: Harness) -> None:
    worker = harness.worker()
    worker.send(m.TaskCancelConfirm(outcomes=b"\0"))
    worker.take_refusal(m.RefusalReason.MALFORMED)
    harness.nothing_else_was_sent()


def test_a_freed_slot_gets_the_next_task(harness: Harness) -> None:
    client, worker, instances = running(harness)
    client.submit([1, 2, 3])
    instances += worker.take_tasks()
    client.cancel(0, 1)
    asked(worker)
    worker.confirm(instances, Cancelled.CANCELLED)
    client.take_confirms()
    assert len(worker.take_tasks()) == 2
    harness.nothing_else_was_sent()


# A client that is gone ------------------------------------------------------------------------------------------


def test_tasks_of_a_client_that_is_gone_are_stopped_even_when_they_run(harness: Harness) -> None:
    client, worker, instances = running(harness, 2)
    client.submit(range(2, 100))
    instances += worker.take_all_tasks()
    client.vanish()
    cancelled, force = asked(worker)
    assert (sorted(cancelled), force) == (sorted(instances), True)
    assert len(harness.state.ready) == 0 and not harness.state.dispatches
    harness.nothing_else_was_sent()
    worker.confirm(instances[1:], Cancelled.CANCELLED)
    worker.finish(instances[:1])
    harness.nothing_else_was_sent()


def test_others_tasks_stay_when_a_client_is_gone(harness: Harness) -> None:
    client, other = harness.client(), harness.client()
    client.submit(range(10), options=options(priority=1))
    other.submit(range(3))
    client.vanish()
    worker = harness.worker(slots=5)
    worker.finish(worker.take_all_tasks())
    assert set(other.take_results()) == {0, 1, 2}
    harness.nothing_else_was_sent()


def test_objects_of_a_client_that_is_gone_are_freed_at_the_workers(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    function = client.create(1, b"code")
    client.create(2, b"never used")
    client.submit([0], function=function)
    worker.take(m.ObjectInstruction)
    instances = worker.take_tasks()
    client.vanish()
    assert asked(worker) == (instances, True)
    deleted = worker.take(m.ObjectInstruction)
    assert (deleted.action, list(deleted.ids)) == (m.ObjectAction.DELETE, [function])
    assert len(harness.state.objects) == 0
    harness.nothing_else_was_sent()
