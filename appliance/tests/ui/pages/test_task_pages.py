"""The log of tasks: what runs, what ran, and why it failed."""

from __future__ import annotations

import json
import random
from array import array
from typing import Any, Dict

import pytest
from ui.browsing import ToldFeed, query, told_state

from scaler_appliance.ui.pages import failure_texts
from scaler_appliance.ui.pages.queries import QueryError
from scaler_appliance.ui.pages.task_pages import RUNNING_SHOWN, task, tasks
from scaler_appliance.ui.ui_state import UiState
from scaler_protocol import encode_struct
from scaler_protocol import messages as m


def failing(payload: bytes, **fields: Any) -> UiState:
    """A state that knows one task, which failed for this reason."""
    state, feed = told_state(steps=1)
    tell_failure(feed, payload, **fields)
    return state


def tell_failure(
    feed: ToldFeed,
    payload: bytes,
    task_id: int = 1 << 60,
    entry: int = 0,
    status: m.TaskStatus = m.TaskStatus.FAILED,
    processor: int = 100000,
    busy: int = 1500,
) -> None:
    now = int(feed.scheduler.now * 1e6)
    runs = m.TaskRuns(
        scheduler_id=feed.scheduler.scheduler_id,
        unix_microseconds=now,
        end_microseconds=[500],
        workers=[1000],
        processors=[processor],
        clients=[1],
        functions=[2],
        first_tasks=[task_id],
        counts=[1],
        statuses=bytes([status]),
        busy_microseconds=[busy],
        peak_memory_bytes=[4096],
        attempts=[3],
        failures=[m.FailedRun(entry=entry, failure=payload)],
        one_worker_of=1,
    )
    feed.task_log.append(runs)


FAILURE = m.Failure(
    kind=m.FailureKind.TASK_RAISED,
    type_name="builtins.ZeroDivisionError",
    message="division by zero\nand more",
    traceback="Traceback …\nZeroDivisionError: division by zero",
    worker="worker-7",
    attempts=2,
)


def test_the_longest_running_come_first_and_then_the_newest_that_ended() -> None:
    state, _ = told_state(workers=20, slots=1)

    body = tasks(state, query(limit=RUNNING_SHOWN + 5))

    running, ended = body["rows"][:RUNNING_SHOWN], body["rows"][RUNNING_SHOWN:]
    assert {row["state"] for row in running} == {"running"}
    assert [row["duration_us"] for row in running] == sorted((row["duration_us"] for row in running), reverse=True)
    assert {row["end"] for row in running} == {None}
    assert "running" not in {row["state"] for row in ended}
    assert body["running"] == 20
    assert body["matching"] == RUNNING_SHOWN + body["kept"]
    assert tasks(state, query(state="running"))["matching"] == 20


def test_pages_of_the_log_follow_on_each_other() -> None:
    state, _ = told_state(workers=20, slots=1)
    whole = tasks(state, query(limit=60))["rows"]

    cut = [row for offset in range(0, 60, 7) for row in tasks(state, query(offset=offset, limit=7))["rows"]]

    assert cut[:60] == whole


def test_a_row_says_what_ran_where_and_for_how_long() -> None:
    state = failing(encode_struct(FAILURE))

    (row,) = tasks(state, query(search=1 << 60))["rows"]

    assert row == {
        "client": 1,
        "client_name": "notebook",
        "task": str(1 << 60),
        "function": "prepare",
        "function_number": 2,
        "state": "failed",
        "worker": 1000,
        "worker_name": "worker-1000",
        "processor": 100000,
        "host": "host-00",
        "start": pytest.approx(row["end"] - 0.0015),
        "end": row["end"],
        "duration_us": 1500,
        "mean_us": 1500,
        "count": 1,
        "peak_bytes": 4096,
        "attempt": 3,
        "error": "ZeroDivisionError: division by zero",
    }


@pytest.mark.parametrize(
    ("parameters", "wanted"),
    [
        ({"state": "failed"}, lambda row: row["state"] == "failed"),
        ({"state": "success"}, lambda row: row["state"] == "success"),
        ({"function": "2"}, lambda row: row["function"] == "prepare"),
        ({"function": "SCORE"}, lambda row: row["function"] == "score_model"),
        ({"worker": "1002"}, lambda row: row["worker"] == 1002),
        ({"worker": "worker-1003"}, lambda row: row["worker"] == 1003),
        ({"client": "notebook"}, lambda row: True),
        ({"client": "7"}, lambda row: False),
        ({"search": "svd"}, lambda row: row["function"] == "numpy.linalg.svd" or "svd" in (row["error"] or "")),
        ({"search": "no LUCK"}, lambda row: row["state"] == "failed"),
        ({"state": "running"}, lambda row: row["state"] == "running"),
        ({"search": "no luck", "function": "2"}, lambda row: row["state"] == "failed" and row["function"] == "prepare"),
        ({"state": "lost"}, lambda row: False),
    ],
)
def test_the_log_is_searched_here(parameters: Dict[str, str], wanted: Any) -> None:
    state, _ = told_state(steps=20, workers=4)
    everything = tasks(state, query(limit=1000))["rows"]
    assert len(everything) > 500

    body = tasks(state, query(limit=1000, **parameters))

    names_what_ended = parameters.get("state", "running") != "running"
    expected = [row for row in everything if wanted(row) and not (names_what_ended and row["state"] == "running")]
    assert body["rows"] == expected
    assert body["matching"] == len(expected)


def test_failures_are_those_that_failed_and_those_that_were_lost() -> None:
    state, feed = told_state(steps=20)
    failed = tasks(state, query(state="failed", limit=1))["matching"]
    tell_failure(feed, encode_struct(FAILURE), status=m.TaskStatus.LOST)

    assert tasks(state, query(state="lost"))["matching"] == 1
    assert tasks(state, query(state="failures", limit=1))["matching"] == failed + 1


@pytest.mark.parametrize("kind", ["worker", "function", "client", "graph"])
def test_what_there_is_not_is_named(kind: str) -> None:
    state, _ = told_state()

    body = tasks(state, query(**{kind: 987_654}))

    assert (body["rows"], body["unknown"]) == ([], [f"{kind} 987654"])
    assert tasks(state, query(search="nothing has this"))["unknown"] == []


def test_a_worker_that_has_gone_is_found_as_long_as_its_tasks_are() -> None:
    state, feed = told_state(steps=20)
    gone = feed.scheduler.lose_worker()
    feed.step()

    body = tasks(state, query(worker=gone))

    assert body["rows"] and body["unknown"] == []


def test_tasks_of_a_graph_are_those_with_its_numbers() -> None:
    state, feed = told_state(steps=5)
    for task_id in (1, 1000, 1001):
        tell_failure(feed, encode_struct(FAILURE), task_id=task_id)

    rows = tasks(state, query(graph=1, state="failures"))["rows"]

    assert {"1", "1000"} <= {row["task"] for row in rows}
    assert all(1 <= int(row["task"]) <= 1000 for row in rows)


def test_of_a_task_that_no_processor_had_no_duration_is_told() -> None:
    state, feed = told_state(steps=1)
    tell_failure(feed, encode_struct(FAILURE), processor=0, busy=0)

    (row,) = tasks(state, query(search=1 << 60))["rows"]

    assert (row["duration_us"], row["mean_us"], row["start"]) == (None, None, None)
    assert row["end"]


def test_a_state_that_there_is_not_is_named() -> None:
    state, _ = told_state()

    with pytest.raises(QueryError, match="did you mean failed"):
        tasks(state, query(state="failled"))


def test_a_task_is_found_with_its_traceback() -> None:
    state = failing(encode_struct(FAILURE))

    found = task(state, 1, 1 << 60)

    assert found is not None
    assert found["traceback"] == FAILURE.traceback
    assert found["error_type"] == "ZeroDivisionError"
    assert found["error_message"] == FAILURE.message
    assert found["error_kind"] == "task_raised"
    assert (found["error_worker"], found["attempts"]) == ("worker-7", 2)
    assert task(state, 2, 1 << 60) is None


def test_of_a_task_that_has_just_begun_no_duration_is_told() -> None:
    state, played = told_state(workers=1, slots=1)
    status = played.scheduler.step()[0]
    status.processors.task_microseconds = array("Q", [0])
    state.cluster.apply(status)

    (row,) = tasks(state, query(state="running"))["rows"]

    assert row["duration_us"] is None and row["mean_us"] is None
    assert row["start"] == pytest.approx(state.now / 1e6)


def test_a_task_that_runs_is_found() -> None:
    state, _ = told_state()
    processor = state.cluster.workers[1000].processors[0]

    found = task(state, processor.task_client, processor.task_id)

    assert found is not None
    assert found["state"] == "running"
    assert found["traceback"] is None


@pytest.mark.parametrize(
    "failure",
    [
        m.Failure(kind=999, message="from the future"),
        m.Failure(type_name="\ud800broken".encode("utf-8", "replace").decode(), message="\0\n\u2028</script>"),
        m.Failure(),
    ],
)
def test_strange_failures_are_shown_as_they_are(failure: m.Failure) -> None:
    state = failing(encode_struct(failure))

    (row,) = tasks(state, query(search=1 << 60))["rows"]

    assert isinstance(row["error"], str) and row["error"]
    assert json.loads(json.dumps(task(state, 1, 1 << 60)))["error_message"] == failure.message


def test_a_long_failure_is_cut_in_the_list_and_whole_in_its_page() -> None:
    state = failing(encode_struct(m.Failure(type_name="E", message="x" * 100_000)))

    (row,) = tasks(state, query(search=1 << 60))["rows"]

    assert len(row["error"]) == failure_texts.SUMMARY_LENGTH
    found = task(state, 1, 1 << 60)
    assert found is not None
    assert len(str(found["error_message"])) == 100_000


def test_malformed_failures_break_nothing() -> None:
    state, feed = told_state(steps=1)
    whole = encode_struct(FAILURE)
    chance = random.Random(0)
    for number in range(300):
        broken = bytearray(whole)
        for _ in range(chance.randrange(1, 9)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        tell_failure(feed, bytes(broken[: chance.randrange(len(broken) + 1)]), 1000 + number, chance.randrange(3))

    for search in ("", "division", "é", "17"):
        body = tasks(state, query(search=search, state="failed", limit=1000))
        assert json.loads(json.dumps(body))
    for number in range(300):
        assert json.dumps(task(state, 1, 1000 + number))
