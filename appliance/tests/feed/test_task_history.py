"""Runs of tasks: kept, bounded, found."""

from __future__ import annotations

from array import array

import pytest
from feed.played_status import PlayedScheduler

from scaler_appliance.feed.task_history import RecordedRun, RunQuery, TaskHistory
from scaler_protocol import MalformedMessageError
from scaler_protocol import messages as m

FAILED = {int(m.TaskStatus.FAILED), int(m.TaskStatus.LOST)}


def message(*rows: tuple[int, int, int, int, int], at: float = 100.0, **others: object) -> m.TaskRuns:
    """Runs of (worker, function, first task, tasks, status), each of which ended at `at` and took a second."""
    count = len(rows)
    failures = [m.FailedRun(entry=i, failure=b"broken") for i, row in enumerate(rows) if row[4] in FAILED]
    return m.TaskRuns(
        unix_microseconds=int(at * 1e6),
        end_microseconds=[0] * count,
        workers=[row[0] for row in rows],
        processors=[7] * count,
        clients=[1] * count,
        functions=[row[1] for row in rows],
        first_tasks=[row[2] for row in rows],
        counts=[row[3] for row in rows],
        statuses=bytes(row[4] for row in rows),
        busy_microseconds=[1_000_000] * count,
        peak_memory_bytes=[0] * count,
        attempts=array("H", [1] * count),
        failures=failures,
        **others,  # type: ignore[arg-type]  # named as the fields are
    )


def firsts(runs: list[RecordedRun]) -> list[int]:
    return [run.first_task for run in runs]


def test_runs_are_found_newest_first_and_page_by_page() -> None:
    log = TaskHistory()
    for step in range(10):
        log.append(message(*((1, 1, 10 * step + i, 1, 0) for i in range(10)), at=step))
    found = log.search(RunQuery(), offset=0, limit=3)
    assert (firsts(found.runs), found.matching) == ([99, 98, 97], 100)
    assert firsts(log.search(RunQuery(), offset=8, limit=4).runs) == [91, 90, 89, 88]
    assert log.search(RunQuery(), offset=100).runs == []


def test_a_run_says_what_ran_where_and_when() -> None:
    log = TaskHistory()
    log.append(message((4, 2, 17, 5, 0), at=50.0))
    run = log.search(RunQuery()).runs[0]
    assert (run.worker, run.processor, run.client, run.function, run.first_task, run.tasks) == (4, 7, 1, 2, 17, 5)
    assert (run.start, run.end, run.failure) == (49.0, 50.0, b"")


def test_each_criterion_narrows_the_search() -> None:
    log = TaskHistory()
    log.append(message((1, 1, 0, 10, 0), (2, 1, 10, 10, 0), (2, 2, 20, 10, 0), (3, 2, 30, 1, 1)))
    assert firsts(log.search(RunQuery(workers={2})).runs) == [20, 10]
    assert firsts(log.search(RunQuery(functions={2})).runs) == [30, 20]
    assert firsts(log.search(RunQuery(workers={2}, functions={2})).runs) == [20]
    assert firsts(log.search(RunQuery(statuses=FAILED)).runs) == [30]
    assert firsts(log.search(RunQuery(tasks={15})).runs) == [10]
    assert firsts(log.search(RunQuery(failure=lambda payload: b"rok" in payload)).runs) == [30]
    assert log.search(RunQuery(clients={2})).matching == 0


def test_a_text_may_be_a_task_or_a_function_or_in_a_failure() -> None:
    log = TaskHistory()
    log.append(message((1, 1, 0, 10, 0), (2, 5, 10, 10, 0), (3, 2, 20, 1, 1), (3, 3, 30, 1, 0)))
    query = RunQuery(functions={5}, tasks={5}, failure=lambda payload: b"broken" in payload, any_of=True)
    assert firsts(log.search(query).runs) == [20, 10, 0]


def test_a_task_is_found_by_its_client_and_id() -> None:
    log = TaskHistory()
    log.append(message((1, 1, 100, 50, 0)))
    run = log.find(1, 149)
    assert run is not None and run.first_task == 100
    assert log.find(1, 150) is None and log.find(2, 149) is None


def test_a_task_that_failed_is_found_among_others_that_did_not() -> None:
    log = TaskHistory()
    log.append(message((1, 1, 107, 1, 1), (1, 1, 100, 50, 0)))
    log.append(message((2, 1, 90, 60, 0), at=60.0))
    run = log.find(1, 107)
    assert run is not None and (run.first_task, run.status, run.failure) == (107, 1, b"broken")


def test_runs_of_a_span_of_time() -> None:
    log = TaskHistory()
    for second in range(10, 20):
        log.append(message((1, 1, second, 1, 0), at=second))
    assert [run.end for run in log.between(12.5, 14.5)] == [13, 14, 15]  # the last one began at 14


def test_the_ring_is_bounded_and_failures_outlive_their_block() -> None:
    log = TaskHistory(limit_bytes=200_000)
    log.append(message((1, 1, 7, 1, 1), at=1))
    for step in range(1000):
        log.append(message(*((1, 1, 1000 + step, 1, 0) for _ in range(10)), at=2 + step))
        assert log.bytes < 220_000
    assert log.kept < 1000
    assert firsts(log.search(RunQuery(statuses=FAILED)).runs) == [7]
    assert log.search(RunQuery()).matching == log.kept + 1
    assert log.find(1, 7) is not None


def test_failures_are_bounded_too() -> None:
    log = TaskHistory(limit_bytes=200_000)
    for step in range(1000):
        log.append(message((1, 1, step, 1, 1), at=step))
    assert log.bytes < 220_000
    newest = log.search(RunQuery(statuses=FAILED), limit=1)
    assert firsts(newest.runs) == [999] and newest.matching < 1000


def test_what_was_not_told_is_counted() -> None:
    log = TaskHistory()
    log.append(message((1, 1, 0, 1, 0), omitted_runs=5, omitted_tasks=50, one_worker_of=4))
    log.append(message(omitted_runs=1, omitted_tasks=10, one_worker_of=8))
    assert (log.omitted_runs, log.omitted_tasks, log.one_worker_of, log.kept) == (6, 60, 8, 1)


def test_columns_of_different_lengths_are_malformed() -> None:
    broken = message((1, 1, 0, 1, 0))
    broken.workers = array("I")
    with pytest.raises(MalformedMessageError, match="TaskRuns"):
        TaskHistory().append(broken)


def test_a_clear_log_is_empty() -> None:
    log = TaskHistory()
    played = PlayedScheduler()
    log.append(played.step()[1])
    assert log.kept > 0 and log.bytes > 0
    log.clear()
    assert (log.kept, log.bytes, log.search(RunQuery()).matching) == (0, 0, 0)
