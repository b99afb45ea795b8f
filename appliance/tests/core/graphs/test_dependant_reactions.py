"""Tasks that need the results of tasks submitted before them."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

import pytest
from scheduler_harness import Cancelled, Client, Harness, Status, Worker, options, split, task

from scaler_appliance.core.graphs import dependant_reactions
from scaler_appliance.core.graphs.shared_results import FAN_OUT_BYTES, SHARED_RESULT_BYTES
from scaler_protocol import decode_struct
from scaler_protocol import messages as m


def results_of(payload: bytes) -> List[bytes]:
    """What a task's payload begins with, and what follows."""
    words = memoryview(payload)[: len(payload) // 4 * 4].cast("I")
    assert words[0] == 4, "it begins with results"
    sizes = [0 if size == 0xFFFFFFFF else size for size in words[2 : 2 + words[1]]]
    rest = payload[8 + 4 * len(sizes) :]
    return split(rest, [*sizes, len(rest) - sum(sizes)])


@pytest.fixture
def client(harness: Harness) -> Client:
    return harness.client()


@pytest.fixture
def worker(harness: Harness) -> Worker:
    return harness.worker(slots=4)


def test_a_task_runs_when_the_task_that_it_needs_is_done(harness: Harness, client: Client, worker: Worker) -> None:
    client.submit([0])
    client.submit_after(1, 0)
    (first,) = worker.take_tasks()
    harness.nothing_else_was_sent()
    worker.finish([first], [b"value"])
    assert client.take_results() == {0: b"value"}
    (second,) = worker.take_tasks()
    assert results_of(worker.payload) == [b"value", b"1"]
    worker.finish([second])
    assert client.take_results() == {1: b"done"}
    harness.nothing_else_was_sent()


def test_results_come_in_the_order_of_the_predecessors(harness: Harness, client: Client, worker: Worker) -> None:
    client.submit([0, 1, 2])
    client.submit_after(3, 2, 0, 1)
    instances = worker.take_all_tasks()
    worker.finish(instances, [b"a", b"b", b"c"])
    client.take_results()
    worker.take_tasks()
    assert results_of(worker.payload) == [b"c", b"a", b"b", b"3"]


def test_a_batch_may_hold_tasks_with_and_without_predecessors(harness: Harness, client: Client, worker: Worker) -> None:
    client.submit(range(4), predecessor_counts=[0, 1, 0, 2], predecessors=[0, 0, 1])
    first, third = worker.take_all_tasks()
    worker.finish([third])
    worker.finish([first], [b"x"])
    assert client.take_results() == {2: b"done"}
    assert client.take_results() == {0: b"x"}
    (second,) = worker.take_tasks()
    assert results_of(worker.payload) == [b"x", b"1"]
    worker.finish([second], [b"y"])
    assert client.take_results() == {1: b"y"}
    worker.take_tasks()
    assert results_of(worker.payload) == [b"x", b"y", b"3"]
    harness.nothing_else_was_sent()


def test_tasks_that_become_ready_in_one_burst_travel_together(harness: Harness, client: Client, worker: Worker) -> None:
    client.submit([0])
    client.submit(range(1, 4), predecessor_counts=[1, 1, 1], predecessors=[0, 0, 0])
    worker.finish(worker.take_tasks())
    client.take_results()
    assert len(worker.take_tasks()) == 3
    harness.nothing_else_was_sent()


def test_a_large_result_stays_an_object_until_its_dependants_are_done(
    harness: Harness, client: Client, worker: Worker
) -> None:
    client.submit([0])
    client.submit_after(1, 0)
    large = worker.create(1, b"large")
    worker.finish(worker.take_tasks(), [b""], objects=[large])
    assert client.take(m.TaskResult).objects[0] == large
    client.delete(large)
    assert list(worker.take(m.ObjectInstruction).ids) == [large], "it is announced to the worker as any other"
    (instance,) = worker.take_tasks()
    assert list(worker.task.dependencies) == [large]
    assert results_of(worker.payload) == [b"", b"1"]
    assert harness.state.objects.find(large) is not None
    worker.finish([instance])
    assert harness.state.objects.find(large) is None


def test_nothing_stays_of_a_large_result_that_was_lost_before_its_dependant_had_it(
    harness: Harness, client: Client, worker: Worker
) -> None:
    client.submit([0])
    client.submit_after(1, 0)
    instances = worker.take_tasks()
    large = worker.announce(1, 5, m.ObjectStorage.REMOTE)
    worker.take(m.ObjectRequest)
    worker.send(m.ObjectResponse(id=large, size=5), b"large")
    harness.core.on_object_unreadable(harness.now, large, "no room", True)
    worker.finish(instances, [b""], objects=[large])
    assert list(client.take(m.TaskResult).ids) == [0, 1], "the second one is lost"
    failure = decode_struct(m.Failure, client.payload)
    assert failure.missing_reason == m.MissingReason.NO_ROOM and "no room for object" in failure.message
    client.delete(large)
    assert harness.state.objects.find(large) is None


def test_a_result_that_many_need_is_kept_once(harness: Harness, client: Client, worker: Worker) -> None:
    count = FAN_OUT_BYTES // SHARED_RESULT_BYTES
    client.submit([0])
    client.submit(range(1, count + 1), predecessor_counts=[1] * count, predecessors=[0] * count)
    worker.finish(worker.take_tasks(), [bytes(SHARED_RESULT_BYTES)], busy_microseconds=1)
    client.take_results()
    instruction = worker.take(m.ObjectInstruction)
    assert worker.payload == bytes(SHARED_RESULT_BYTES)
    instances = worker.take_all_tasks()
    assert set(worker.task.dependencies) == set(instruction.ids)
    worker.finish(instances)
    while worker.inbox:
        if isinstance(worker.inbox[0][0], m.Task):
            worker.finish(worker.take_tasks())
        else:
            worker.inbox.popleft()
    assert harness.state.objects.find(instruction.ids[0]) is None


@pytest.mark.parametrize("status", [Status.FAILED, Status.LOST])
def test_a_failure_is_passed_on_with_its_origin(
    harness: Harness, client: Client, worker: Worker, status: m.TaskStatus
) -> None:
    client.submit([0])
    client.submit_after(1, 0)
    client.submit_after(2, 1)
    worker.finish(worker.take_tasks(), [b"broken"], [status])
    result = client.take(m.TaskResult)
    assert list(result.ids) == [0, 1, 2]
    assert set(result.statuses) == {status}
    assert list(result.causes) == [0, 1, 1]
    assert client.payload == b"broken" * 3
    harness.nothing_else_was_sent()


def test_a_task_that_needs_a_failed_one_does_not_wait_for_its_others(
    harness: Harness, client: Client, worker: Worker
) -> None:
    client.submit([0, 1])
    client.submit_after(2, 0, 1)
    first, second = worker.take_all_tasks()
    worker.finish([first], [b"broken"], [Status.FAILED])
    assert list(client.take(m.TaskResult).ids) == [0, 2]
    worker.finish([second])
    assert client.take_results() == {1: b"done"}
    harness.nothing_else_was_sent()


def test_what_needs_a_cancelled_task_is_cancelled(harness: Harness, client: Client) -> None:
    client.submit([0])
    client.submit_after(1, 0)
    client.submit_after(2, 1)
    client.cancel(0)
    assert client.take_confirms() == dict.fromkeys([0, 1, 2], Cancelled.CANCELLED)
    harness.nothing_else_was_sent()


def test_a_task_that_waits_for_another_can_be_cancelled(harness: Harness, client: Client, worker: Worker) -> None:
    client.submit([0])
    client.submit_after(1, 0)
    client.cancel(1)
    assert client.take_confirms() == {1: Cancelled.CANCELLED}
    worker.finish(worker.take_tasks())
    assert client.take_results() == {0: b"done"}
    harness.nothing_else_was_sent()


def test_a_released_task_can_be_cancelled(harness: Harness, client: Client) -> None:
    worker = harness.worker()
    client.submit([0, 1])
    client.submit_after(2, 0)
    first, _ = worker.take_all_tasks()
    worker.finish([first], busy_microseconds=10_000_000)
    client.take_results()
    client.cancel(2)
    assert client.take_confirms() == {2: Cancelled.CANCELLED}
    harness.nothing_else_was_sent()


def gone_before(client: Client, worker: Worker) -> None:
    """Task 0 ends."""
    client.submit([0])
    worker.finish(worker.take_tasks())
    client.take_results()


def gone_in_a_batch_with_stragglers(client: Client, worker: Worker) -> None:
    client.submit([0, 1])
    worker.finish(worker.take_all_tasks()[:1])
    client.take_results()


def cancelled_before(client: Client, worker: Worker) -> None:
    worker.vanish()
    client.submit([0])
    client.cancel(0)
    client.take_confirms()


def never_submitted(client: Client, worker: Worker) -> None:
    """As in a session that follows another."""


@pytest.mark.parametrize("before", [gone_before, gone_in_a_batch_with_stragglers, cancelled_before, never_submitted])
def test_a_task_whose_predecessor_has_no_outcome_to_come_is_given_back(
    harness: Harness, client: Client, worker: Worker, before: Callable[[Client, Worker], None]
) -> None:
    before(client, worker)
    client.submit_after(7, 0)
    client.submit_after(8, 7)
    (lost,) = client.take_losses().values()
    assert lost.kind == m.FailureKind.PREDECESSOR_GONE and "task 0" in lost.message
    (lost,) = client.take_losses().values()
    assert lost.kind == m.FailureKind.PREDECESSOR_GONE and "task 7" in lost.message
    harness.nothing_else_was_sent()


def test_an_outcome_and_a_task_that_needs_it_cross(harness: Harness, client: Client, worker: Worker) -> None:
    client.submit([0])
    worker.post(*worker.result(worker.take_tasks(), [b"value"]))
    client.submit_after(1, 0)
    result = client.take(m.TaskResult)
    assert list(result.ids) == [0, 1], "its client hears of the outcome first"
    assert decode_struct(m.Failure, client.payload[len(b"value") :]).kind == m.FailureKind.PREDECESSOR_GONE
    harness.nothing_else_was_sent()


def test_a_target_of_a_graph_may_be_a_predecessor(harness: Harness, client: Client, worker: Worker) -> None:
    function = client.create(1, b"")
    columns: Dict[str, Any] = {"functions": [function], "payload_sizes": [1], "targets": [0]}
    client.send(m.GraphTask(ids=[0], **columns), b"n")
    client.submit_after(1, 0)
    worker.take(m.ObjectInstruction)
    worker.finish(worker.take_tasks(), [b"value"])
    assert client.take_results() == {0: b"value"}
    worker.take_tasks()
    assert results_of(worker.payload) == [b"value", b"1"]
    harness.nothing_else_was_sent()


def test_a_lost_workers_task_runs_again_with_its_results(harness: Harness, client: Client, worker: Worker) -> None:
    client.submit([0])
    client.submit_after(1, 0)
    worker.finish(worker.take_tasks(), [b"value"])
    client.take_results()
    worker.take_tasks()
    worker.vanish()
    other = harness.worker()
    other.take_tasks()
    assert other.task.attempt == 2
    assert results_of(other.payload) == [b"value", b"1"]
    harness.nothing_else_was_sent()


def test_a_predecessor_that_may_run_once_fails_its_dependants_when_its_worker_is_lost(
    harness: Harness, client: Client, worker: Worker
) -> None:
    client.submit([0], options=options(at_most_once=True))
    client.submit_after(1, 0)
    worker.take_tasks()
    worker.vanish()
    losses = client.take_losses()
    assert [loss.kind for loss in losses.values()] == [m.FailureKind.WORKER_LOST] * 2
    assert client.causes == {0: 0, 1: 1}
    harness.nothing_else_was_sent()


def test_the_tasks_of_a_client_that_leaves_leave_nothing_behind(
    harness: Harness, client: Client, worker: Worker
) -> None:
    needed = client.create(1, b"content")
    client.submit([0])
    client.submit(
        [1, 2], predecessor_counts=[1, 2], predecessors=[0, 0, 1], dependency_counts=[1, 0], dependencies=[needed]
    )
    client.vanish()
    assert harness.state.objects.find(needed) is None
    assert not harness.state.waiting()


def test_what_waits_for_others_counts_as_in_flight_and_as_waiting() -> None:
    harness = Harness(client_tasks_in_flight=3)
    client = harness.client()
    client.submit([0])
    client.submit(range(1, 4), predecessor_counts=[1, 1, 1], predecessors=[0, 0, 0])
    (lost,) = client.take_losses().items()
    assert lost[0] == 3 and lost[1].kind == m.FailureKind.REJECTED
    assert harness.state.waiting() == 3
    worker = harness.worker()
    while worker.inbox:
        worker.finish(worker.take_tasks())
        client.inbox.clear()
    assert harness.state.waiting() == 0
    harness.nothing_else_was_sent()


def test_an_explanation_names_the_task_that_is_waited_for(harness: Harness, client: Client) -> None:
    client.submit([0, 1])
    client.submit_after(2, 0)
    client.submit_after(3, 2, 1)

    def explained(task_id: int) -> str:
        client.send(m.ExplanationRequest(request_id=1, task_id=task_id))
        return client.take(m.Explanation).text

    assert explained(2) == "the task waits for task 0 of f"
    assert explained(3) == "the task waits for task 2 of f and 1 other task"


def test_results_that_are_too_much_for_one_task_lose_it_and_what_needs_it(
    harness: Harness, client: Client, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dependant_reactions, "MAXIMUM_RESULTS_BYTES", 5)
    client.submit([0])
    client.submit_after(1, 0)
    client.submit_after(2, 1)
    worker.finish(worker.take_tasks(), [b"value!"])
    result = client.take(m.TaskResult)
    assert list(result.ids) == [0, 1, 2] and list(result.causes) == [0, 0, 2]
    harness.nothing_else_was_sent()


def test_a_missing_object_is_told_before_anything_is_waited_for(harness: Harness, client: Client) -> None:
    client.submit([0])
    client.submit_after(1, 0, dependency_counts=[1], dependencies=[client.object_id(9)])
    (lost,) = client.take_losses().values()
    assert lost.kind == m.FailureKind.OBJECT_MISSING


@pytest.mark.parametrize(
    "columns",
    [
        {"predecessor_counts": [1], "predecessors": []},
        {"predecessor_counts": [1, 1], "predecessors": [0, 0]},
        {"predecessors": [0]},
        {"predecessor_counts": [1], "predecessors": [1]},
        {"predecessor_counts": [1], "predecessors": [2]},
        {"predecessor_counts": [2], "predecessors": [0, 0]},
    ],
    ids=["too few", "too many counts", "uncounted", "itself", "a later one", "one twice"],
)
def test_invalid_predecessors_end_the_session(harness: Harness, client: Client, columns: Any) -> None:
    client.submit([0])
    client.send(*task([1], **columns))
    client.take_refusal(m.RefusalReason.MALFORMED)
    harness.nothing_else_was_sent()
