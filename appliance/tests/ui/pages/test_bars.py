"""Bars stand for runs: whatever ran, a lane is drawn as busy as it was."""

from __future__ import annotations

from collections import Counter
from typing import Dict, List, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from scaler_appliance.ui.pages.bars import BarPart, StreamBar, aggregated, bounded
from scaler_protocol import messages as m

pytestmark = pytest.mark.exhaustive_on_pypy  # pictures are computed alike

SECOND = 1_000_000
Step = Tuple[int, int, int, int, int]  # idle and busy microseconds, function, status, tasks


def lane_of(number: int, steps: List[Step]) -> List[StreamBar]:
    """Runs one after the other."""
    runs: List[StreamBar] = []
    now = 1000 * SECOND
    for task, (idle, busy, function, status, tasks) in enumerate(steps):
        start = now + idle
        now = start + busy
        runs.append(StreamBar(number, now, start, status, (BarPart(function, tasks, busy, 1, task),)))
    return runs


STEPS = some.tuples(
    some.one_of(some.integers(0, 2000), some.integers(0, 3 * SECOND)),
    some.one_of(some.integers(0, 2000), some.integers(0, 3 * SECOND)),
    some.integers(1, 12),
    some.sampled_from(list(map(int, m.TaskStatus))),
    some.integers(1, 1000),
)
LANES = some.lists(some.lists(STEPS, max_size=60), max_size=4).map(
    lambda lanes: [run for number, steps in enumerate(lanes) for run in lane_of(number, steps)]
)
RESOLUTIONS = some.integers(1, 5 * SECOND)


def busy_by_lane(bars: List[StreamBar]) -> Dict[int, int]:
    busy: Counter[int] = Counter()
    for bar in bars:
        busy[bar.lane] += bar.end - bar.start
    return {lane: time for lane, time in busy.items() if time}


def tasks_and_time(bars: List[StreamBar]) -> Dict[Tuple[int, int], Tuple[int, int]]:
    """By function and outcome."""
    tasks: Counter[Tuple[int, int]] = Counter()
    time: Counter[Tuple[int, int]] = Counter()
    for bar in bars:
        for part in bar.parts:
            tasks[part.function, bar.status] += part.tasks
            time[part.function, bar.status] += part.busy_microseconds
    return {key: (tasks[key], time[key]) for key in tasks}


def busy_until(bars: List[StreamBar], lane: int, time: int) -> int:
    return sum(min(bar.end, time) - bar.start for bar in bars if bar.lane == lane and bar.start < time)


@settings(deadline=None, max_examples=40)
@given(runs=LANES, resolution=RESOLUTIONS)
def test_bars_are_as_long_as_the_runs_and_stand_for_the_same_tasks(runs: List[StreamBar], resolution: int) -> None:
    bars = aggregated(runs, resolution)
    for coarser in (bars, aggregated(bars, 2 * resolution), aggregated(bars, 10 * resolution)):
        assert busy_by_lane(coarser) == busy_by_lane(runs)
        assert tasks_and_time(coarser) == tasks_and_time(runs)
        assert all(sum(part.busy_microseconds for part in bar.parts) == bar.end - bar.start for bar in coarser)
        assert len(coarser) <= len(runs)


@settings(deadline=None, max_examples=40)
@given(runs=LANES, resolution=RESOLUTIONS, share=some.floats(0, 1))
def test_at_any_moment_a_lane_was_drawn_busy_for_as_long_as_it_was_to_within_a_cell(
    runs: List[StreamBar], resolution: int, share: float
) -> None:
    bars = aggregated(runs, resolution)

    for lane in {run.lane for run in runs}:
        ends = [run.end for run in runs if run.lane == lane]
        time = int(1000 * SECOND + share * (max(ends) - 1000 * SECOND))
        assert abs(busy_until(bars, lane, time) - busy_until(runs, lane, time)) <= 2 * resolution


@settings(deadline=None, max_examples=40)
@given(runs=LANES, resolution=RESOLUTIONS)
def test_short_bars_of_one_lane_never_lie_over_each_other(runs: List[StreamBar], resolution: int) -> None:
    short = [bar for bar in aggregated(runs, resolution) if bar.end - bar.start < resolution]

    by_time = sorted((bar.lane, bar.start, bar.end) for bar in short)
    for (lane, _, end), (next_lane, start, _) in zip(by_time, by_time[1:]):
        assert lane != next_lane or end <= start


@settings(deadline=None, max_examples=40)
@given(runs=LANES, limit=some.integers(20, 60))
def test_there_are_as_few_bars_as_are_asked_for(runs: List[StreamBar], limit: int) -> None:
    bars, resolution = bounded(runs, 1, limit)

    assert len(bars) <= limit
    assert resolution >= 1
    assert busy_by_lane(bars) == busy_by_lane(runs)


def test_a_failure_among_many_successes_is_a_bar_of_its_own() -> None:
    runs = lane_of(1, [(100, 400, 1, 1 if place == 17 else 0, 1) for place in range(100)])

    bars = aggregated(runs, SECOND)

    assert sorted((bar.status, bar.tasks) for bar in bars) == [(0, 99), (1, 1)]
    assert next(bar.parts[0].task for bar in bars if bar.status == 1) == 17


@settings(deadline=None, max_examples=40)
@given(runs=LANES, resolution=RESOLUTIONS)
def test_the_task_that_a_part_names_is_of_its_function(runs: List[StreamBar], resolution: int) -> None:
    named = {(run.lane, part.task): part.function for run in runs for part in run.parts}

    for bar in aggregated(aggregated(runs, resolution), 3 * resolution):
        assert all(named[bar.lane, part.task] == part.function for part in bar.parts)


def test_durations_that_are_nonsense_do_not_make_bars_without_number() -> None:
    runs = lane_of(1, [(0, 2**60, 1, 0, 1)] * 500)
    here = [run._replace(end=SECOND, start=SECOND - 2**60) for run in runs]

    bars, _ = bounded(here, 1000, 100)

    assert len(bars) == 1
