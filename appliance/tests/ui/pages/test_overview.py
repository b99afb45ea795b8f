"""The head that every page has, and the overview with its history."""

from __future__ import annotations

import json

from feed.played_status import PlayedScheduler
from ui.browsing import START, query, told_state

from scaler_appliance.top.rows import BY_TITLE, Row
from scaler_appliance.ui.metrics import Metrics
from scaler_appliance.ui.pages.entity_pages import workers
from scaler_appliance.ui.pages.figure_history import COARSE_SAMPLES, COLUMNS, FINE_A_COARSE, FINE_SAMPLES, FigureHistory
from scaler_appliance.ui.pages.overview import HOSTS_SHOWN, overview
from scaler_appliance.ui.ui_state import hosts


def test_the_head_says_who_speaks_and_what_there_is() -> None:
    state, feed = told_state(workers=4, slots=2)

    head = state.head()

    assert head["address"] == "tcp://127.0.0.1:2345"
    assert head["scheduler_id"] == feed.scheduler.scheduler_id.hex()
    assert (head["workers"], head["slots"], head["busy"], head["clients"]) == (4, 8, 8, 1)
    assert head["is_connected"]
    assert head["uptime_seconds"] == 3.0
    assert head["rates"]["finished"] == head["rates"]["task.success"] + head["rates"]["task.failed"]
    assert json.loads(json.dumps(head)) == head


def test_the_head_is_whole_before_anything_is_known() -> None:
    known, _ = told_state()
    state, _ = told_state(steps=0)

    head = state.head()

    assert head.keys() == known.head().keys()
    assert head["age_seconds"] is None
    assert not head["is_connected"]


def test_a_browser_gets_the_history_once_and_then_what_is_new() -> None:
    state, feed = told_state(steps=5)
    body, cursor = overview(state, query())
    assert body["is_reset"]
    assert body["series"]["time"] == [START + second for second in range(1, 6)]

    body, cursor = overview(state, query(), cursor)
    assert not body["is_reset"]
    assert body["series"]["time"] == []

    feed.step()
    state.sample()
    body, cursor = overview(state, query(), cursor)
    assert body["series"]["time"] == [START + 6]
    assert set(body["series"]) == {"time", *COLUMNS}
    assert all(len(values) == 1 for values in body["series"].values())


def test_a_browser_that_was_away_for_long_or_has_many_samples_gets_all_again() -> None:
    state, feed = told_state(steps=2)
    _, cursor = overview(state, query())
    told = []
    for _ in range(FINE_SAMPLES + 1):
        feed.step()
        state.sample()
        body, cursor = overview(state, query(), cursor)
        told.append(body["is_reset"])

    assert told.index(True) == FINE_SAMPLES - 1
    away, _ = overview(state, query(), (0, cursor[0]))
    assert away["is_reset"]


def test_silence_is_a_gap_and_not_a_line() -> None:
    state, feed = told_state(steps=2)
    feed.age = 10.0
    for _ in range(3):
        state.sample()
    feed.restart(PlayedScheduler(seed=1, started=START + 60))
    state.sample()

    series = overview(state, query())[0]["series"]

    assert series["workers"] == [4, 4, None, 4]
    assert series["time"] == sorted(series["time"])


def test_an_hour_is_kept_in_a_few_hundred_points_and_a_day_takes_no_more() -> None:
    history = FigureHistory()
    figures = list(range(len(COLUMNS)))
    before = history.bytes
    for second in range(24 * 3600):
        history.append(second, figures)

    series = history.whole()

    assert history.bytes == before < 100_000
    assert len(series["time"]) <= FINE_SAMPLES + COARSE_SAMPLES
    times = [time for time in series["time"] if time is not None]
    assert len(times) == len(series["time"])
    covered = times[-1] - times[0]
    assert 3500 < covered < 3700
    assert series["time"][-FINE_SAMPLES:] == list(range(24 * 3600 - FINE_SAMPLES, 24 * 3600))
    assert series["slots"] == [COLUMNS.index("slots")] * len(series["time"])
    assert max(later - sooner for sooner, later in zip(times, times[1:])) <= 2 * FINE_A_COARSE


def test_the_busiest_functions_and_the_hosts_are_beside_it() -> None:
    state, _ = told_state(workers=200)

    body, _ = overview(state, query())

    busy = [row["busy_s"] for row in body["functions"]]
    assert busy == sorted(busy, reverse=True)
    assert len(body["hosts"]) == body["hosts_total"] == HOSTS_SHOWN
    assert sum(host["workers"] for host in body["hosts"]) == 200
    assert {host["slots"] for host in body["hosts"]} == {8}


def test_figures_of_one_moment_agree_wherever_they_stand() -> None:
    state, _ = told_state(workers=5, slots=3)
    head, metrics = state.head(), Metrics(state)
    body = workers(state, query(expand=",".join(map(str, state.cluster.workers))))
    rows = body["rows"]

    busy = sum(row["busy"] for row in rows)
    assert head["busy"] == busy == sum(host["busy"] for host in hosts(state, 100)) == 15
    assert metrics.value("scaler_slots_busy") == busy
    at_workers = sum(row["busy"] + row["suspended"] + row["queued"] for row in rows)
    assert head["tasks"]["running"] == at_workers == sum(row["tasks"] for row in rows)
    assert metrics.value("scaler_tasks_running") == at_workers
    assert metrics.value("scaler_worker_tasks_queued") == at_workers - busy
    for row in rows:
        processors = body["expanded"][str(row["session"])]
        assert sum(processor["has_task"] for processor in processors) == row["busy"]
    shown_by_top = [BY_TITLE["free"].write(Row(each, None, 0)) for each in state.cluster.workers.values()]
    assert sum(map(int, shown_by_top)) == head["slots"] - busy
