"""The task stream: lanes and runs, at once and then live."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Set, Tuple

import pytest
from monitoring.played_status import PlayedScheduler
from ui.browsing import START, query, told_state

from scaler_appliance.ui.queries import QueryError
from scaler_appliance.ui.timeline import MAXIMUM_PAST_RUNS, MAXIMUM_RUNS, stream

Told = Tuple[int, str]


def told(body: Dict[str, Any]) -> List[Told]:
    return list(zip(body["runs"]["lane"], body["runs"]["task"]))


def test_a_browser_gets_the_window_and_then_what_is_new() -> None:
    state, feed = told_state(steps=5)
    body, cursor = stream(state, query())
    assert body["is_reset"]
    assert len(body["runs"]["lane"]) == state.task_log.kept
    assert set(body["functions"]) <= set(map(str, range(1, 7)))
    seen: Set[Told] = set(told(body))

    for _ in range(5):
        before = state.task_log.kept
        feed.step()
        body, cursor = stream(state, query(), cursor)
        new = told(body)
        assert not body["is_reset"]
        assert len(new) == state.task_log.kept - before
        assert seen.isdisjoint(new)
        seen.update(new)
    body, cursor = stream(state, query(), cursor)
    assert told(body) == []
    assert len(seen) == state.task_log.kept
    assert json.loads(json.dumps(body)) == body


def test_lanes_are_the_processors_in_order() -> None:
    state, _ = told_state(workers=3, slots=2)

    body, _ = stream(state, query())

    assert [(lane["worker"], lane["processor"]) for lane in body["lanes"]] == [
        (session, session * 100 + slot) for session in (1000, 1001, 1002) for slot in (0, 1)
    ]
    assert len({lane["id"] for lane in body["lanes"]}) == 6
    assert max(lane["id"] for lane in body["lanes"]) < 2**53
    assert body["lanes"][0]["title"] == "worker-1000 · 100000"


def test_only_lanes_in_view_are_told_of() -> None:
    state, _ = told_state(workers=50)

    body, _ = stream(state, query(lanes_offset=10, lanes_limit=4))

    shown = {lane["id"] for lane in body["lanes"]}
    assert len(shown) == 4
    assert body["lanes_total"] == 100
    assert set(body["runs"]["lane"]) <= shown
    assert set(body["running"]["lane"]) == shown


def test_times_are_microseconds_after_the_base() -> None:
    state, feed = told_state(steps=2)
    runs = {str(run.first_task): run for run in state.task_log.between(0, 1e12)}

    body, _ = stream(state, query())

    for task_id, start, end in zip(body["runs"]["task"], body["runs"]["start"], body["runs"]["end"]):
        assert abs(body["base"] + end / 1e6 - runs[task_id].end) < 1e-5
        assert abs(body["base"] + start / 1e6 - runs[task_id].start) < 1e-5
    assert abs(body["to"] - feed.scheduler.now) < 0.01
    assert abs(body["to"] - body["from"] - 60) < 0.01


def test_what_runs_is_told_beside_what_ran() -> None:
    state, _ = told_state(workers=1, slots=1)

    body, _ = stream(state, query())

    processor = state.cluster.workers[1000].processors[0]
    assert body["running"]["task"] == [str(processor.task_id)]
    assert body["running"]["function"] == [processor.task_function]


def test_a_worker_that_leaves_keeps_its_lane_until_it_is_out_of_the_window() -> None:
    state, feed = told_state(workers=3)
    _, cursor = stream(state, query(window=10))
    gone = feed.scheduler.lose_worker()
    feed.step()

    body, cursor = stream(state, query(window=10), cursor)
    assert not body["is_reset"]
    assert {lane["worker"] for lane in body["lanes"] if lane["is_gone"]} == {gone}

    feed.step(20)
    body, cursor = stream(state, query(window=10), cursor)
    assert gone not in {lane["worker"] for lane in body["lanes"]}


def test_a_worker_that_comes_gets_a_lane_without_all_being_told_anew() -> None:
    state, feed = told_state(workers=3)
    _, cursor = stream(state, query())
    new = feed.scheduler.add_worker()
    feed.step()

    body, _ = stream(state, query(), cursor)

    assert not body["is_reset"]
    assert new in {lane["worker"] for lane in body["lanes"]}


def test_a_lane_with_a_past_that_comes_into_view_is_told_with_it() -> None:
    state, feed = told_state(workers=3, slots=1)
    body, cursor = stream(state, query(lanes_limit=2, window=10))
    feed.scheduler.sessions.remove(1000)
    feed.scheduler._gone.append(1000)
    feed.step(11)

    body, cursor = stream(state, query(lanes_limit=2, window=10), cursor)

    assert body["is_reset"]
    assert [lane["worker"] for lane in body["lanes"]] == [1001, 1002]


def test_a_restart_of_the_scheduler_begins_anew() -> None:
    state, feed = told_state()
    _, cursor = stream(state, query())
    feed.restart(PlayedScheduler(workers=2, seed=9, started=START + 100))

    body, _ = stream(state, query(), cursor)

    assert body["is_reset"]
    assert len(body["runs"]["lane"]) == state.task_log.kept > 0


def test_a_browser_that_was_slow_misses_nothing_that_is_kept() -> None:
    state, feed = told_state()
    first, cursor = stream(state, query())
    feed.step(5)

    body, _ = stream(state, query(), cursor)

    assert len(told(first)) + len(told(body)) == state.task_log.kept


def test_an_event_is_bounded_and_failures_go_first() -> None:
    state, _ = told_state(steps=60, workers=4, slots=2, rate=50_000.0)
    failed = sum(run.status != 0 for run in state.task_log.between(0, 1e12))
    assert state.task_log.kept > 50 * MAXIMUM_RUNS

    body, _ = stream(state, query())

    assert MAXIMUM_RUNS // 2 < len(body["runs"]["lane"]) <= MAXIMUM_RUNS
    assert body["omitted_runs"] == state.task_log.kept - len(body["runs"]["lane"])
    assert sum(status != 0 for status in body["runs"]["status"]) >= min(failed, MAXIMUM_RUNS // 6)
    ends = sorted(body["runs"]["end"])
    assert max(later - sooner for sooner, later in zip(ends, ends[1:])) < 1_500_000


def test_a_past_window_is_told_in_more_detail() -> None:
    state, _ = told_state(steps=10, rate=50_000.0)

    body, _ = stream(state, query(**{"from": START, "to": START + 60}))

    assert MAXIMUM_PAST_RUNS // 2 < len(body["runs"]["lane"]) <= MAXIMUM_PAST_RUNS
    assert body["omitted_runs"] == state.task_log.kept - len(body["runs"]["lane"])


def test_a_past_window_is_told_once() -> None:
    state, feed = told_state(steps=30)

    body, cursor = stream(state, query(**{"from": START + 10, "to": START + 12}))

    assert body["is_reset"]
    ends = [body["base"] + end / 1e6 for end in body["runs"]["end"]]
    starts = [body["base"] + start / 1e6 for start in body["runs"]["start"]]
    assert ends
    assert min(ends) >= START + 10 - 1e-5
    assert max(starts) <= START + 12 + 1e-5
    assert body["running"]["lane"] == []
    feed.step()
    assert stream(state, query(), cursor)[0] == {}


@pytest.mark.parametrize(
    "parameters",
    [
        {"from": 1},
        {"from": 5, "to": 5},
        {"from": 1, "to": 1e9},
        {"window": "nan"},
        {"window": "-3"},
        {"lanes_limit": 0},
        {"lanes_offset": "x"},
    ],
)
def test_a_window_that_cannot_be_is_named(parameters: Dict[str, Any]) -> None:
    state, _ = told_state()

    with pytest.raises(QueryError):
        stream(state, query(**parameters))
