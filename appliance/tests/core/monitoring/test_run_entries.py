"""Which tasks ended, where and when, as monitors are told."""

from __future__ import annotations

from array import array
from typing import Any, List, Tuple

import pytest
from scheduler_harness import Harness, Status

from scaler_appliance.core.monitoring.run_entries import ENTRIES_AT_MOST, FAILURE_BYTES, FAILURES_AT_MOST, RunEntries
from scaler_protocol import decode, decode_struct, encode
from scaler_protocol import messages as m

RUN_COLUMNS = ("workers", "processors", "clients", "functions", "first_tasks", "counts", "statuses")


@pytest.fixture
def watched(harness: Harness) -> Harness:
    harness.core.watch(False, True)
    return harness


def take(harness: Harness) -> m.TaskRuns:
    runs = decode(encode(harness.state.runs.take(harness.now, b"id", 5_000_000)))
    assert isinstance(runs, m.TaskRuns)
    return runs


def rows(runs: m.TaskRuns) -> List[Tuple[Any, ...]]:
    return list(zip(*(getattr(runs, name) for name in RUN_COLUMNS)))


def test_a_run_of_tasks_is_one_entry(watched: Harness) -> None:
    client, worker = watched.client(), watched.worker(slots=4)
    client.submit([5, 6, 7])
    worker.finish(worker.take_tasks(), busy_microseconds=300, peak_memory_bytes=[1, 9, 2])
    watched.now += 0.5
    runs = take(watched)
    assert rows(runs) == [(worker.session, 0, client.session, 1, 5, 3, Status.SUCCESS)]
    assert list(runs.busy_microseconds) == [300] and list(runs.peak_memory_bytes) == [9]
    assert list(runs.end_microseconds) == [500_000] and runs.unix_microseconds == 5_000_000
    assert not len(watched.state.runs)


def test_a_worker_may_tell_which_processor_ran_what(watched: Harness) -> None:
    client, worker = watched.client(), watched.worker(slots=4)
    client.submit([5, 6, 7])
    message, payload = worker.result(worker.take_tasks(), busy_microseconds=999)
    message.runs = array("Q", [1, 71, 100, 2, 72, 30])
    worker.send(message, payload)
    runs = take(watched)
    assert [row[1] for row in rows(runs)] == [71, 72] and [row[4:6] for row in rows(runs)] == [(5, 1), (6, 2)]
    assert list(runs.busy_microseconds) == [100, 30]
    (counters,) = watched.state.changes.function_counters()
    assert counters.busy_microseconds == 130, "what processors say is better than a mean"


@pytest.mark.parametrize("runs", [[1, 7, 1, 1, 8, 1], [1, 7], [2, 7, 1], [0, 7, 1]])
def test_runs_that_do_not_fit_cost_the_session(harness: Harness, runs: List[int]) -> None:
    client, worker = harness.client(), harness.worker()
    client.submit([1])
    message, payload = worker.result(worker.take_tasks())
    message.runs = array("Q", runs)
    worker.send(message, payload)
    worker.take_refusal(m.RefusalReason.MALFORMED)
    harness.nothing_else_was_sent()


def test_runs_of_nothing_do_no_harm(watched: Harness) -> None:
    client, worker = watched.client(), watched.worker()
    client.submit([1])
    message, payload = worker.result(worker.take_tasks())
    message.runs = array("Q", [0, 7, 1, 1, (1 << 40) + 8, 5, 0, 0, 0])
    worker.send(message, payload)
    assert [row[1] for row in rows(take(watched))] == [8]


def test_failures_are_told_with_their_reason(watched: Harness) -> None:
    client, worker = watched.client(), watched.worker(slots=4)
    client.submit([1, 2, 3])
    statuses = [Status.SUCCESS, Status.FAILED, Status.FAILED]
    worker.finish(worker.take_tasks(), [b"fine", b"first", b"second"], statuses)
    runs = take(watched)
    assert [row[4:] for row in rows(runs)] == [(1, 1, Status.SUCCESS), (2, 2, Status.FAILED)]
    assert [(each.entry, each.failure) for each in runs.failures] == [(1, b"first")]
    assert list(runs.attempts) == [1, 1]


def test_a_failure_too_long_to_be_told_is_told_without(watched: Harness) -> None:
    client, worker = watched.client(), watched.worker()
    client.submit([1])
    worker.finish(worker.take_tasks(), [bytes(FAILURE_BYTES + 1)], [Status.FAILED])
    runs = take(watched)
    assert len(rows(runs)) == 1 and not runs.failures


def test_tasks_that_no_worker_ended_are_told_as_well(watched: Harness) -> None:
    client = watched.client()
    client.submit([1, 2])
    client.cancel(1, 2)
    client.submit([3], function=client.object_id(77))
    runs = take(watched)
    assert [(row[0], *row[4:]) for row in rows(runs)] == [(0, 1, 2, Status.CANCELLED), (0, 3, 1, Status.LOST)]
    (failed,) = runs.failures
    assert decode_struct(m.Failure, failed.failure).kind == m.FailureKind.OBJECT_MISSING


def test_a_cancel_that_its_worker_confirms_is_told_with_the_worker(watched: Harness) -> None:
    client, worker = watched.client(), watched.worker()
    client.submit([1])
    (instance,) = worker.take_tasks()
    client.cancel(1)
    worker.confirm(instance, m.CancelOutcome.CANCELLED)
    assert [(row[0], row[6]) for row in rows(take(watched))] == [(worker.session, Status.CANCELLED)]


def test_a_task_that_ran_again_is_told_with_its_attempt(watched: Harness) -> None:
    client, worker = watched.client(), watched.worker()
    client.submit([1])
    worker.take_tasks()
    worker.vanish()
    other = watched.worker()
    other.finish(other.take_tasks())
    assert list(take(watched).attempts) == [2]


def test_runs_that_follow_closely_are_one_entry(watched: Harness) -> None:
    client, worker = watched.client(), watched.worker()
    for number in range(100):
        client.submit([number])
        worker.finish(worker.take_tasks(), busy_microseconds=10)
        watched.now += 0.001
    counts = [row[5] for row in rows(take(watched))]
    assert sum(counts) == 100 and 5 <= len(counts) <= 6


def test_without_subscribers_no_runs_are_kept(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    client.submit([1])
    worker.finish(worker.take_tasks())
    assert not len(harness.state.runs)


# Under load -----------------------------------------------------------------------------------------------------------


def note(runs: RunEntries, worker: int, status: int = 0, processor: int = 0, now: float = 0.0) -> None:
    if status or not worker & runs.mask:
        entry = runs.record(now, (worker, processor, 1, 1, status), 1, 1, 1.0)
        if status:
            runs.record_failure(entry, b"why")
    else:
        runs.omit(1)


def test_under_load_some_workers_are_published_with_all_their_runs() -> None:
    runs = RunEntries()
    workers = ENTRIES_AT_MOST * 3
    for second in range(2):
        for worker in range(1, workers + 1):
            note(runs, worker, now=float(second))
        told = runs.take(float(second), b"", 0)
        assert told.one_worker_of == 4
        assert list(told.workers) == list(range(4, workers + 1, 4)), "lanes are whole"
        assert sum(told.counts) + told.omitted_tasks == workers
        assert told.omitted_runs == told.omitted_tasks


def test_when_the_load_is_gone_all_workers_are_published_again() -> None:
    runs = RunEntries()
    for worker in range(ENTRIES_AT_MOST * 3):
        note(runs, worker)
    assert runs.take(0.0, b"", 0).one_worker_of == 4
    assert [runs.take(0.0, b"", 0).one_worker_of for _ in range(4)] == [4, 2, 1, 1]


def test_failures_of_all_workers_are_published_up_to_a_number() -> None:
    runs = RunEntries()
    for worker in range(ENTRIES_AT_MOST * 3):
        note(runs, worker)
        note(runs, worker, Status.FAILED)
    told = runs.take(0.0, b"", 0)
    assert [bytes(told.statuses).count(status) for status in (Status.SUCCESS, Status.FAILED)] == [
        ENTRIES_AT_MOST * 3 // 4,
        FAILURES_AT_MOST,
    ]
    assert sum(told.counts) + told.omitted_tasks == ENTRIES_AT_MOST * 6
    assert len(told.failures) == FAILURES_AT_MOST


def test_one_worker_with_more_runs_than_can_be_told_is_told_in_larger_pieces() -> None:
    runs = RunEntries()
    processors, rounds = 200, 50
    for round_number in range(rounds):
        for processor in range(processors):
            lane = (3, processor, 1, 1, int(Status.SUCCESS))
            runs.record(round_number / rounds, lane, round_number, 1, 10_000.0)
    told = runs.take(1.0, b"", 0)
    assert told.one_worker_of == 1, "none other would be left"
    assert told.omitted_runs == told.omitted_tasks == 0
    assert len(told.counts) <= ENTRIES_AT_MOST
    busy = dict.fromkeys(range(processors), 0)
    for processor, microseconds in zip(told.processors, told.busy_microseconds):
        busy[processor] += microseconds
    assert set(busy.values()) == {rounds * 10_000}


def test_more_processors_than_there_may_be_entries_are_all_published() -> None:
    runs = RunEntries()
    for processor in range(ENTRIES_AT_MOST + 10):
        note(runs, 3, processor=processor)
    told = runs.take(0.0, b"", 0)
    assert sorted(told.processors) == list(range(ENTRIES_AT_MOST + 10)) and told.omitted_runs == 0


def test_where_there_are_too_many_entries_those_that_are_there_stand_for_more() -> None:
    runs = RunEntries()
    for number in range(2):
        for processor in range(FAILURES_AT_MOST):
            runs.record(float(number), (3, processor, 1, 1, int(Status.FAILED)), number, 1, 5.0)
    told = runs.take(2.0, b"", 0)
    assert list(told.counts) == [2] * FAILURES_AT_MOST and told.omitted_tasks == 0


def test_failures_in_bulk_are_told_up_to_a_size() -> None:
    runs = RunEntries()
    for worker in range(100):
        entry = runs.record(0.0, (worker, 0, 1, 1, int(Status.FAILED)), 1, 1, 1.0)
        runs.record_failure(entry, bytes(FAILURE_BYTES))
    assert len(runs.take(0.0, b"", 0).failures) == 16


def test_a_task_that_was_stopped_took_the_time_that_it_had_run(watched: Harness) -> None:
    client, worker = watched.client(), watched.worker()
    client.submit([5])
    (instance,) = worker.take_tasks()
    running = m.ProcessorStatus(process_id=77, has_task=True, instance=instance, task_microseconds=1_000_000)
    worker.send(m.Heartbeat(processors=[running]))
    client.cancel(5, force=True)
    watched.now += 0.5
    worker.confirm(instance, m.CancelOutcome.CANCELLED)
    runs = take(watched)
    assert rows(runs) == [(worker.session, 77, client.session, 1, 5, 1, Status.CANCELLED)]
    assert list(runs.busy_microseconds) == [1_500_000]
