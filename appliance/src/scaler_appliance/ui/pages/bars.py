"""Bars of the task stream: the runs of a lane, in as few pieces as a picture needs.

    runs, as published ─▶ aggregated(runs, resolution) ─▶ bars, of one run or of many short ones

Rules:
- Nothing is dropped: the bars of a lane have the same total length as its runs, and stand for the same tasks. Only the
  exact position of a short run within one cell of `resolution` is lost.
- Runs that are as long as a cell stay as they are. Shorter ones with the same status that end in the same cell become
  one bar, so that a failure is not lost among successes.
- Bars of one cell are side by side, so that they overlap no more than the runs did.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, NamedTuple, Tuple

from scaler_protocol import messages as m

LONGEST_MICROSECONDS = 3_600_000_000
"""A run that claims to have taken longer than any shown time is treated like a short run, because it may be
nonsense."""

_FAILED = (int(m.TaskStatus.FAILED), int(m.TaskStatus.LOST))


class BarPart(NamedTuple):
    """Tasks of one function in a bar, and their total duration; `client` and `task` are those of one of them."""

    function: int
    tasks: int
    busy_microseconds: int
    client: int
    task: int


class StreamBar(NamedTuple):
    """Consecutive tasks of a lane that ended with the same status; times in microseconds.

    Parameters:
        parts: by function, the one that took longest first.
    """

    lane: int
    end: int
    start: int
    status: int
    parts: Tuple[BarPart, ...]

    @property
    def tasks(self) -> int:
        return sum(part.tasks for part in self.parts)


def bounded(runs: List[StreamBar], resolution: int, limit: int) -> Tuple[List[StreamBar], int]:
    """The bars of runs, at most a limit if possible, and the required length of a cell."""
    while resolution < LONGEST_MICROSECONDS and _count(runs, resolution) > limit:
        resolution *= 2
    return aggregated(runs, resolution), resolution


def _count(runs: List[StreamBar], resolution: int) -> int:
    """The number of bars of these runs."""
    short = {
        (run.lane, run.end // resolution, run.status)
        for run in runs
        if not resolution <= run.end - run.start <= LONGEST_MICROSECONDS
    }
    long = sum([resolution <= run.end - run.start <= LONGEST_MICROSECONDS for run in runs])
    return len(short) + long


def aggregated(runs: Iterable[StreamBar], resolution: int) -> List[StreamBar]:
    """The bars of runs, by lane and time, with cells of so many microseconds."""
    bars: List[StreamBar] = []
    cell: List[StreamBar] = []
    place = (0, 0)
    for run in sorted(runs):
        if resolution <= run.end - run.start <= LONGEST_MICROSECONDS:
            bars.append(run)
            continue
        here = run.lane, run.end // resolution
        if here != place:
            _close(cell, bars)
            place = here
        cell.append(run)
    _close(cell, bars)
    return bars


def _close(cell: List[StreamBar], bars: List[StreamBar]) -> None:
    """Make one bar of all runs of a cell with the same status."""
    if len(cell) < 2:
        bars += cell
        cell.clear()
        return
    by_status: Dict[int, List[StreamBar]] = {}
    for run in cell:
        by_status.setdefault(run.status, []).append(run)
    start = min(run.start for run in cell)
    for status in sorted(by_status, key=_FAILED.__contains__):  # failures last, so that they are drawn on top
        merged = _merged(by_status[status], start)
        bars.append(merged)
        start = merged.end
    cell.clear()


def _merged(runs: List[StreamBar], start: int) -> StreamBar:
    if len(runs) == 1:
        (only,) = runs
        return only._replace(start=start, end=start + only.end - only.start)
    parts: Dict[int, BarPart] = {}
    for run in runs:
        for part in run.parts:
            before = parts.get(part.function)
            if before is not None:
                tasks, busy = before.tasks + part.tasks, before.busy_microseconds + part.busy_microseconds
                part = before._replace(tasks=tasks, busy_microseconds=busy)
            parts[part.function] = part
    length = sum(run.end - run.start for run in runs)
    by_time = sorted(parts.values(), key=lambda part: -part.busy_microseconds)
    return StreamBar(runs[0].lane, start + length, start, runs[0].status, tuple(by_time))
