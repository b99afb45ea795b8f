"""The task stream: lanes and runs, at once and then live."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Set, Tuple

import pytest
from feed.played_status import PlayedScheduler
from ui.browsing import START, ToldFeed, query, told_state

from scaler_appliance.ui.pages import timeline
from scaler_appliance.ui.pages.queries import QueryError
from scaler_appliance.ui.pages.timeline import stream
from scaler_appliance.ui.ui_state import UiState
from scaler_protocol import messages as m

Told = Tuple[int, str]


FINE = {"resolution_us": 1}  # each run is a bar


def told(body: Dict[str, Any]) -> List[Told]:
    return list(zip(body["runs"]["lane"], body["runs"]["task"]))


def busy(body: Dict[str, Any]) -> Dict[int, int]:
    """Microseconds by lane, as they are drawn."""
    lanes: Dict[int, int] = {}
    columns = body["runs"]
    for lane, start, end in zip(columns["lane"], columns["start"], columns["end"]):
        lanes[lane] = lanes.get(lane, 0) + end - start
    return lanes


def truly_busy(state: UiState) -> Dict[int, int]:
    """Microseconds by lane, of all that is kept; of played workers, whose processors stay."""
    lanes: Dict[int, int] = {}
    for run in state.task_log.between(0, 1e12):
        lane = run.worker << 16 | run.processor % 100
        lanes[lane] = lanes.get(lane, 0) + run.busy_microseconds
    return lanes


def apply_processors(state: UiState, session: int, *process_ids: int) -> None:
    """A heartbeat of a worker with these processors is told."""
    count = len(process_ids)
    scheduler = state.cluster.scheduler
    assert scheduler is not None
    columns = m.ProcessorColumns(
        workers=[session] * count,
        process_ids=process_ids,
        states=bytes([1] * count),
        cpu_permille=[0] * count,
        resident_bytes=[0] * count,
        queued=[0] * count,
        task_clients=[0] * count,
        task_ids=[0] * count,
        task_functions=[0] * count,
        task_microseconds=[0] * count,
    )
    status = m.SchedulerStatus(
        scheduler_id=scheduler.scheduler_id, unix_microseconds=scheduler.unix_microseconds, processors=columns
    )
    state.cluster.apply(status)


def test_a_browser_gets_the_window_and_then_what_is_new() -> None:
    state, feed = told_state(steps=5)
    body, cursor = stream(state, query(**FINE))
    assert body["is_reset"]
    assert len(body["runs"]["lane"]) == state.task_log.kept
    assert set(body["functions"]) <= set(map(str, range(1, 7)))
    seen: Set[Told] = set(told(body))

    for _ in range(5):
        before = state.task_log.kept
        feed.step()
        body, cursor = stream(state, query(**FINE), cursor)
        new = told(body)
        assert not body["is_reset"]
        assert len(new) == state.task_log.kept - before
        assert seen.isdisjoint(new)
        seen.update(new)
    body, cursor = stream(state, query(**FINE), cursor)
    assert told(body) == []
    assert len(seen) == state.task_log.kept
    assert json.loads(json.dumps(body)) == body


def test_lanes_are_the_slots_of_workers_in_order() -> None:
    state, _ = told_state(workers=3, slots=2)

    body, _ = stream(state, query())

    assert [(lane["worker"], lane["slot"], lane["processor"]) for lane in body["lanes"]] == [
        (session, slot + 1, session * 100 + slot) for session in (1000, 1001, 1002) for slot in (0, 1)
    ]
    assert len({lane["id"] for lane in body["lanes"]}) == 6
    assert max(lane["id"] for lane in body["lanes"]) < 2**53
    assert body["lanes"][0]["title"] == "worker-1000 · 1"


def test_a_successor_takes_the_lane_of_the_processor_that_it_replaces() -> None:
    state, _ = told_state(workers=1, slots=3)
    for process_ids in ((1, 2, 3), (1, 3, 20), (1, 20, 30), (10, 20, 30)):
        apply_processors(state, 1000, *process_ids)

    body, _ = stream(state, query())

    assert [lane["processor"] for lane in body["lanes"]] == [10, 20, 30]


def test_a_spare_processor_runs_in_the_lane_of_one_that_waits() -> None:
    state, _ = told_state(workers=1, slots=2, steps=1)
    apply_processors(state, 1000, *range(1, 12))

    body, _ = stream(state, query())

    assert len(body["lanes"]) == body["lanes_total"] == 2
    assert busy(body).keys() <= {lane["id"] for lane in body["lanes"]}


def lost(feed: ToldFeed, worker: int, processor: int) -> m.TaskRuns:
    runs = m.TaskRuns(
        scheduler_id=feed.scheduler.scheduler_id,
        unix_microseconds=int(feed.scheduler.now * 1e6),
        end_microseconds=[500_000],
        workers=[worker],
        processors=[processor],
        clients=[1],
        functions=[2],
        first_tasks=[1 << 60],
        counts=[1],
        statuses=bytes([m.TaskStatus.LOST]),
        busy_microseconds=[90_000 if processor else 0],
        peak_memory_bytes=[0],
        attempts=[1],
        one_worker_of=1,
    )
    feed.tell(runs)
    return runs


def test_a_processor_that_died_of_its_task_makes_room_at_once() -> None:
    state, feed = told_state(workers=1, slots=2)
    lost(feed, 1000, 100001)
    apply_processors(state, 1000, 100000, 77)

    body, _ = stream(state, query())

    assert [lane["processor"] for lane in body["lanes"]] == [100000, 77]


def test_failures_that_no_processor_had_have_one_lane_together() -> None:
    state, feed = told_state(workers=2, slots=1)
    for worker in (0, 1000, 1001):
        lost(feed, worker, 0)

    body, _ = stream(state, query())

    assert [lane["title"] for lane in body["lanes"]] == ["worker-1000", "worker-1001", "at no processor"]
    assert [tasks for lane, tasks in zip(body["runs"]["lane"], body["runs"]["count"]) if not lane] == [3]


def test_what_the_scheduler_omitted_is_not_idle_time() -> None:
    state, feed = told_state(workers=4, slots=1)
    _, runs = feed.scheduler.step()
    runs.one_worker_of = 4
    feed.tell(runs)

    body, _ = stream(state, query())

    assert [lane["worker"] for lane in body["lanes"]] == [1000]
    ((start, end, one_of),) = body["untold"]
    assert one_of == 4
    assert end == round(feed.scheduler.now, 3) and 0 < end - start <= 2


def test_only_visible_lanes_are_sent() -> None:
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

    body, _ = stream(state, query(**FINE))

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


def test_a_new_worker_gets_a_lane_without_a_reset() -> None:
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


def test_a_restart_of_the_scheduler_resets_the_page() -> None:
    state, feed = told_state()
    _, cursor = stream(state, query(**FINE))
    feed.restart(PlayedScheduler(workers=2, seed=9, started=START + 100))

    body, _ = stream(state, query(**FINE), cursor)

    assert body["is_reset"]
    assert len(body["runs"]["lane"]) == state.task_log.kept > 0


def test_a_browser_that_was_slow_misses_nothing_that_is_kept() -> None:
    state, feed = told_state()
    first, cursor = stream(state, query(**FINE))
    feed.step(5)

    body, _ = stream(state, query(**FINE), cursor)

    assert len(told(first)) + len(told(body)) == state.task_log.kept


def test_an_event_is_bounded_and_every_lane_as_busy_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MAXIMUM_WINDOW_BARS", 2000)
    monkeypatch.setattr(timeline, "MAXIMUM_BARS", 500)
    state, feed = told_state(steps=6, workers=4, slots=2, rate=50_000.0)
    runs = list(state.task_log.between(0, 1e12))
    assert len(runs) > 10_000

    body, cursor = stream(state, query(window=100))

    assert len(body["runs"]["lane"]) <= 2000
    assert busy(body) == truly_busy(state)
    assert sum(body["runs"]["count"]) == sum(run.tasks for run in runs)
    failed = [tasks for tasks, status in zip(body["runs"]["count"], body["runs"]["status"]) if status]
    assert sum(failed) == sum(run.tasks for run in runs if run.status)
    assert body["omitted_runs"] == 0

    before = truly_busy(state)
    feed.step()
    body, _ = stream(state, query(window=100), cursor)
    assert len(body["runs"]["lane"]) <= 500
    assert {lane: before[lane] + more for lane, more in busy(body).items()} == truly_busy(state)


def test_a_bar_says_how_many_tasks_of_which_functions_it_stands_for() -> None:
    state, _ = told_state(steps=3, workers=1, slots=1, rate=5000.0)
    runs = list(state.task_log.between(0, 1e12))
    tasks: Dict[int, int] = {}
    for run in runs:
        tasks[run.function] = tasks.get(run.function, 0) + run.tasks

    body, _ = stream(state, query(resolution_us=500_000))

    columns = body["runs"]
    assert len(columns["lane"]) < 40 and columns["parts"]
    stood_for: Dict[int, int] = {}
    for place in range(len(columns["lane"])):
        whole = [(columns["function"][place], columns["count"][place], 0)]
        for function, count, _ in columns["parts"].get(str(place), whole):
            stood_for[function] = stood_for.get(function, 0) + count
    assert stood_for == tasks


def test_a_past_window_is_told_as_finely_as_is_asked() -> None:
    state, _ = told_state(steps=10, rate=5_000.0)

    coarse, fine = (
        stream(state, query(**{"from": START, "to": START + 60, "resolution_us": resolution}))[0]
        for resolution in (60_000, 1)
    )

    assert len(coarse["runs"]["lane"]) < len(fine["runs"]["lane"]) == state.task_log.kept
    assert busy(coarse) == busy(fine) == truly_busy(state)


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
        {"resolution_us": 0},
    ],
)
def test_a_window_that_cannot_be_is_named(parameters: Dict[str, Any]) -> None:
    state, _ = told_state()

    with pytest.raises(QueryError):
        stream(state, query(**parameters))
