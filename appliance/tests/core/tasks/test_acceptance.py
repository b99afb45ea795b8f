"""Tasks that come in: accepted, rejected, malformed."""

from __future__ import annotations

from array import array
from typing import Any, Dict

import pytest
from scheduler_harness import Harness, options, task

from scaler_protocol import messages as m

Kind = m.FailureKind
Reason = m.RefusalReason
NAN, INFINITE = float("nan"), float("inf")


def test_a_task_reaches_a_worker_as_it_was_sent(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=8)
    function = client.create(1, b"code", codec="pickle")
    client.submit(
        [5, 6],
        [b"a", b"bcd"],
        function=function,
        codec="pickle",
        options=options(priority=3, profiling=True, retries=2),
    )
    announced = worker.take(m.ObjectInstruction)
    assert (list(announced.ids), announced.codec, worker.payload) == ([function], "pickle", b"code")
    instances = worker.take_tasks()
    assert len(set(instances)) == 2
    assert worker.payloads == [b"a", b"bcd"]
    sent = worker.task
    assert (sent.function, sent.codec, sent.attempt, sent.client) == (function, "pickle", 1, client.session)
    assert (sent.options.priority, sent.options.profiling, sent.options.retries) == (3, True, 2)
    harness.nothing_else_was_sent()


def test_an_empty_batch_is_nothing(harness: Harness) -> None:
    client = harness.client()
    client.submit([])
    harness.nothing_else_was_sent()


def test_an_object_is_announced_to_a_worker_once(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=8)
    function = client.create(1, b"code")
    client.submit([1], function=function)
    client.submit([2], function=function)
    worker.take(m.ObjectInstruction)
    worker.take_tasks()
    worker.take_tasks()
    harness.nothing_else_was_sent()


def _malformed() -> Dict[str, Any]:
    def changed(**fields: Any) -> Any:
        message, payload = task([1, 2], [b"a", b"b"])
        for name, value in fields.items():
            setattr(message, name, value)
        return message, payload

    return {
        "fewer sizes than ids": (changed(payload_sizes=array("I", [2])), Reason.MALFORMED),
        "more sizes than ids": (changed(payload_sizes=array("I", [1, 1, 0])), Reason.MALFORMED),
        "sizes beyond the payload": (changed(payload_sizes=array("I", [1, 2])), Reason.MALFORMED),
        "payload beyond the sizes": (changed(payload_sizes=array("I", [1, 0])), Reason.MALFORMED),
        "dependency counts of fewer tasks": (changed(dependency_counts=array("H", [0])), Reason.MALFORMED),
        "more dependencies than counted": (
            changed(dependency_counts=array("H", [0, 1]), dependencies=array("Q", [1, 2])),
            Reason.MALFORMED,
        ),
        "dependencies not counted": (changed(dependencies=array("Q", [1])), Reason.MALFORMED),
        "ids that descend": (changed(ids=array("Q", [2, 1])), Reason.PROTOCOL_VIOLATION),
        "an id twice": (changed(ids=array("Q", [2, 2])), Reason.PROTOCOL_VIOLATION),
        "an id of before": (changed(ids=array("Q", [0, 2])), Reason.PROTOCOL_VIOLATION),
        "a need of nothing countable": (changed(options=options(gpu=NAN)), Reason.MALFORMED),
        "a need beyond all": (changed(options=options(gpu=INFINITE)), Reason.MALFORMED),
        "a need below nothing": (changed(options=options(gpu=-1)), Reason.MALFORMED),
    }


@pytest.mark.parametrize("name", _malformed())
def test_a_malformed_batch_ends_only_its_clients_session(harness: Harness, name: str) -> None:
    (message, payload), reason = _malformed()[name]
    client, other, worker = harness.client(), harness.client(), harness.worker()
    client.submit([0])
    mine = worker.take_tasks()
    other.submit([0])
    (theirs,) = worker.take_tasks()
    client.send(message, payload)
    client.take_refusal(reason)
    assert list(worker.take(m.TaskCancel).ids) == mine
    worker.finish([theirs])
    assert other.take_results() == {0: b"done"}
    harness.nothing_else_was_sent()


def test_ids_may_have_gaps(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=8)
    client.submit([3, 9, 2**64 - 1])
    instances = worker.take_tasks()
    worker.finish(instances)
    assert list(client.take_results()) == [3, 9, 2**64 - 1]
    harness.nothing_else_was_sent()


def test_a_task_without_function_is_rejected_with_the_reason(harness: Harness) -> None:
    client = harness.client()
    client.submit([1], function_name="", function=0)
    (failure,) = client.take_losses().values()
    assert failure.kind == Kind.REJECTED and "function" in failure.message
    harness.nothing_else_was_sent()


def test_tasks_of_a_function_that_does_not_exist_are_lost(harness: Harness) -> None:
    client, _worker = harness.client(), harness.worker()
    client.submit([1, 2], function=client.object_id(9))
    losses = client.take_losses()
    assert list(losses) == [1, 2]
    assert {failure.kind for failure in losses.values()} == {Kind.OBJECT_MISSING}
    harness.nothing_else_was_sent()


def test_a_task_whose_object_is_missing_is_lost_and_its_neighbours_run(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=8)
    there = client.create(1, b"there")
    missing = client.object_id(2)
    client.submit([1, 2, 3], dependency_counts=[1, 2, 0], dependencies=[there, there, missing])
    (lost,) = client.take_losses().items()
    assert lost[0] == 2 and lost[1].kind == Kind.OBJECT_MISSING and f"{missing:016x}" in lost[1].message
    worker.take(m.ObjectInstruction)
    first, last = worker.take_all_tasks()
    worker.finish([last, first])
    assert set(client.take_results()) == {1, 3}
    harness.nothing_else_was_sent()


def test_a_rejected_task_takes_no_reference_from_those_that_wait(harness: Harness) -> None:
    """A rejected batch once released objects that it had never held, and waiting tasks lost theirs."""
    harness = Harness(max_number_of_tasks_waiting=2)
    client = harness.client()
    function, value = client.create(1, b"code"), client.create(2, b"value")
    client.submit([1, 2], function=function, dependency_counts=[1, 1], dependencies=[value, value])
    client.submit([3], function=function, dependency_counts=[1], dependencies=[value])
    assert list(client.take_losses()) == [3]
    client.submit([4], function=function, dependency_counts=[2], dependencies=[value, client.object_id(9)])
    assert list(client.take_losses()) == [4]
    client.delete(function, value)
    worker = harness.worker(slots=2)
    worker.take(m.ObjectInstruction)
    assert len(worker.take_tasks()) == 2
    harness.nothing_else_was_sent()


def test_an_object_that_only_waiting_tasks_keep_is_gone_for_new_ones(harness: Harness) -> None:
    client = harness.client()
    value = client.create(1, b"value")
    client.submit([1], dependency_counts=[1], dependencies=[value])
    client.delete(value)
    client.submit([2], dependency_counts=[1], dependencies=[value])
    assert list(client.take_losses()) == [2]
    harness.nothing_else_was_sent()


def test_no_more_tasks_wait_than_allowed_and_the_rest_of_a_batch_is_rejected() -> None:
    harness = Harness(max_number_of_tasks_waiting=3)
    client = harness.client()
    client.submit(range(5))
    losses = client.take_losses()
    assert list(losses) == [3, 4]
    assert all(failure.kind == Kind.REJECTED and "(3)" in failure.message for failure in losses.values())
    client.submit([5])
    assert list(client.take_losses()) == [5]
    worker = harness.worker(slots=3)
    assert len(worker.take_tasks()) == 3
    client.submit([6, 7, 8])
    worker.take_tasks()
    harness.nothing_else_was_sent()


def test_free_slots_count_as_room_even_when_others_hold_work_ahead() -> None:
    harness = Harness(max_number_of_tasks_waiting=0)
    client, busy = harness.client(), harness.worker()
    client.submit([0])
    busy.take_tasks()
    client.submit([1])
    assert list(client.take_losses()) == [1]
    idle = harness.worker(slots=2)
    client.submit([2, 3, 4])
    assert list(client.take_losses()) == [4]
    idle.take_all_tasks()
    harness.nothing_else_was_sent()
