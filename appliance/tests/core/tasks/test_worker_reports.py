"""Results: the fast path, every odd order, and everything that is stale."""

from __future__ import annotations

from array import array
from typing import Any, Dict, List

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scheduler_harness import Harness, Status, task

from scaler_appliance.core.tasks.task_states import TaskState
from scaler_protocol import messages as m

Reason = m.RefusalReason


def test_a_whole_batch_comes_back_in_one_message(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=500)
    client.submit(range(1000))
    instances = worker.take_tasks()
    assert len(instances) == 1000
    worker.finish(instances, [b"%d" % i for i in range(1000)])
    assert client.take_results() == {i: b"%d" % i for i in range(1000)}
    assert harness.state.finished[TaskState.SUCCEEDED] == 1000
    assert not harness.state.dispatches and not list(harness.state.clients[client.session].batches())
    harness.nothing_else_was_sent()


@given(st.permutations(range(12)), st.lists(st.integers(1, 5), min_size=12, max_size=12))
def test_results_in_any_order_and_in_any_parts_reach_their_tasks(order: List[int], cuts: List[int]) -> None:
    harness = Harness()
    client, other = harness.client(), harness.client()
    client.submit(range(6))
    other.submit(range(6))
    worker = harness.worker(slots=12)
    tasks = {
        instance: (worker.task.client, worker.payloads[position])
        for _ in range(2)
        for position, instance in enumerate(worker.take_tasks())
    }
    instances = [list(tasks)[place] for place in order]
    got: Dict[int, Dict[int, bytes]] = {client.session: {}, other.session: {}}
    while instances:
        count = cuts.pop()
        part, instances = instances[:count], instances[count:]
        worker.finish(part, [tasks[instance][1] for instance in part])
        for peer in (client, other):
            if peer.inbox:
                got[peer.session].update(peer.take_results())
        if not cuts:
            cuts = [12]
    assert got == {peer.session: {i: b"%d" % i for i in range(6)} for peer in (client, other)}
    harness.nothing_else_was_sent()


def test_results_of_one_burst_are_one_message(harness: Harness) -> None:
    client = harness.client()
    workers = [harness.worker(), harness.worker()]
    client.submit([1, 2])
    for worker in workers:
        worker.post(*worker.result(worker.take_tasks()))
    harness.tick()
    assert set(client.take_results()) == {1, 2}
    harness.nothing_else_was_sent()


def test_results_of_different_codecs_are_different_messages(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=2)
    client.submit([1, 2])
    first, second = worker.take_tasks()
    for instance, codec in ((first, "json"), (second, "pickle")):
        message, payload = worker.result([instance])
        message.codec = codec
        worker.post(message, payload)
    harness.tick()
    assert [client.take(m.TaskResult).codec for _ in range(2)] == ["json", "pickle"]
    harness.nothing_else_was_sent()


def test_statuses_reach_the_client_and_the_counts(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=6)
    client.submit(range(6))
    statuses = [Status.SUCCESS, Status.FAILED, Status.FAILED, Status.LOST, Status.SUCCESS, Status.SUCCESS]
    worker.finish(worker.take_tasks(), statuses=statuses)
    result = client.take(m.TaskResult)
    assert (list(result.ids), list(result.statuses)) == (list(range(6)), statuses)
    finished = harness.state.finished
    assert [finished[s] for s in (TaskState.SUCCEEDED, TaskState.FAILED, TaskState.LOST)] == [3, 2, 1]
    harness.nothing_else_was_sent()


def test_columns_that_only_some_results_have_are_filled_up(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=4)
    client.submit(range(4))
    a, b, c, d = worker.take_tasks()
    worker.post(*worker.result([a]))
    worker.post(*worker.result([b, c], durations_microseconds=[20, 30], statuses=[Status.SUCCESS, Status.FAILED]))
    worker.post(*worker.result([d], peak_memory_bytes=[4]))
    harness.tick()
    result = client.take(m.TaskResult)
    assert list(result.durations_microseconds) == [0, 20, 30, 0]
    assert list(result.peak_memory_bytes) == [0, 0, 0, 4]
    assert list(result.cpu_microseconds) == []
    assert list(result.statuses) == [0, 0, 1, 0]
    harness.nothing_else_was_sent()


def test_a_second_result_of_an_instance_is_stale(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=3)
    client.submit([1, 2, 3])
    a, b, c = worker.take_tasks()
    worker.finish([a])
    worker.finish([a, b, b], [b"again", b"first", b"second"])
    assert client.take_results() == {1: b"done"}
    assert client.take_results() == {2: b"first"}
    worker.finish([c])
    assert client.take_results() == {3: b"done"}
    worker.finish([a, b, c])
    assert harness.state.stale_results == 5
    harness.nothing_else_was_sent()


def test_a_result_of_a_worker_that_was_lost_and_came_back_is_stale(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    client.submit([1])
    before = worker.take_tasks()
    worker.greet(hello_again(worker))
    after = worker.take_tasks()
    assert before != after
    worker.finish(before, [b"old"])
    worker.finish(after, [b"new"])
    assert client.take_results() == {1: b"new"}
    harness.nothing_else_was_sent()


def hello_again(worker: Any) -> m.Hello:
    return m.Hello(major=1, minor_max=99, role=m.Role.WORKER, slots=1, queue_size=1000)


@pytest.mark.parametrize(
    ("foreign", "text"),
    [
        (lambda mine: mine + (1 << 20), "never given"),
        (lambda mine: mine + 1, "never given"),
        (lambda mine: 0, "never given"),
    ],
)
def test_an_instance_that_does_not_exist_costs_the_worker_its_session(
    harness: Harness, foreign: Any, text: str
) -> None:
    client, worker = harness.client(), harness.worker()
    client.submit([1])
    (mine,) = worker.take_tasks()
    worker.finish([foreign(mine)])
    assert text in worker.take_refusal(Reason.PROTOCOL_VIOLATION)
    other = harness.worker()
    other.finish(other.take_tasks())
    assert client.take_results() == {1: b"done"}
    harness.nothing_else_was_sent()


def test_results_before_a_foreign_instance_count_and_its_owner_keeps_the_task(harness: Harness) -> None:
    client, thief, owner = harness.client(), harness.worker(), harness.worker()
    client.submit([1, 2])
    (mine,), (theirs,) = thief.take_tasks(), owner.take_tasks()
    thief.finish([mine, theirs])
    assert "another worker" in thief.take_refusal(Reason.PROTOCOL_VIOLATION)
    assert client.take_results() == {1: b"done"}
    owner.finish([theirs])
    assert client.take_results() == {2: b"done"}
    harness.nothing_else_was_sent()


@pytest.mark.parametrize(
    "fields",
    [
        {"payload_sizes": array("I", [4])},
        {"payload_sizes": array("I", [4, 5])},
        {"statuses": bytes([0])},
        {"statuses": bytes([0, 9])},
        {"statuses": bytes([0, Status.CANCELLED])},
        {"objects": array("Q", [0])},
        {"durations_microseconds": array("Q", [1, 2, 3])},
        {"cpu_microseconds": array("Q", [1])},
        {"peak_memory_bytes": array("Q", [1])},
    ],
)
def test_a_malformed_result_costs_the_worker_its_session_and_no_task(harness: Harness, fields: Dict[str, Any]) -> None:
    client, worker = harness.client(), harness.worker(slots=2)
    client.submit([1, 2])
    message, payload = worker.result(worker.take_tasks())
    for name, value in fields.items():
        setattr(message, name, value)
    worker.send(message, payload)
    worker.take_refusal(Reason.MALFORMED)
    other = harness.worker(slots=2)
    other.finish(other.take_tasks())
    assert set(client.take_results()) == {1, 2}
    harness.nothing_else_was_sent()


def test_what_a_task_prints_reaches_its_client_under_the_clients_id(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    client.submit([17])
    (instance,) = worker.take_tasks()
    worker.send(m.TaskLog(id=instance, stream=2, text="warning"))
    log = client.take(m.TaskLog)
    assert (log.id, log.stream, log.text) == (17, 2, "warning")
    worker.finish([instance])
    client.take_results()
    worker.send(m.TaskLog(id=instance, stream=1, text="too late"))
    harness.nothing_else_was_sent()


def test_an_empty_result_is_nothing(harness: Harness) -> None:
    worker = harness.worker()
    worker.finish([])
    harness.nothing_else_was_sent()


def test_finished_batches_are_forgotten_while_others_last(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=1000)
    client.submit([0])
    kept = worker.take_tasks()
    for number in range(1, 500):
        client.send(*task([number]))
        worker.finish(worker.take_tasks())
        assert list(client.take_results()) == [number]
    session = harness.state.clients[client.session]
    assert len(list(session.batches())) == 1 and len(session._batch_starts) < 200
    worker.finish(kept)
    client.take_results()
    harness.nothing_else_was_sent()
