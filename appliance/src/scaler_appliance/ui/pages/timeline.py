"""The page `stream`: a lane for each slot of a worker, with the tasks that ran in it.

Rules:
- While live, a browser gets the window once and then new runs; it gets the whole window again (`is_reset`) when new
  data does not fit what it has.
- An event has about MAXIMUM_BARS bars, a whole window MAXIMUM_WINDOW_BARS: above that, each bar stands for more runs
  (see `bars`). If the scheduler has omitted runs, the page says of which lanes, and when.
- The log is read by columns: a run becomes a bar only when it is sent.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

from scaler_appliance.feed.cluster_entities import ProcessorRecord
from scaler_appliance.feed.slots import ProcessorSlots
from scaler_appliance.ui.pages.bars import BarPart, StreamBar, bounded
from scaler_appliance.ui.pages.queries import Query, QueryError
from scaler_appliance.ui.ui_state import UiState
from scaler_protocol import messages as m

MAXIMUM_BARS = 3000
MAXIMUM_WINDOW_BARS = 40_000
DEFAULT_WINDOW_SECONDS = 60
LONGEST_WINDOW_SECONDS = 3600
DEFAULT_CELLS = 1024
"""The number of cells of a window, unless the browser says how long a cell is, from the size of a pixel."""

DEFAULT_LANES = 60
MAXIMUM_LANES = 500
SLOT_BITS = 16  # of a lane's id
TELLING_SECONDS = 2.0
"""The maximum time that a publication covers."""

NOWHERE = (0, 0)
"""The lane of failures without a processor: of tasks that were rejected, or whose worker was lost."""

_FAILED = (int(m.TaskStatus.FAILED), int(m.TaskStatus.LOST))

Lane = Tuple[int, int]  # session of the worker, slot
Omitted = Tuple[float, float, int]  # from, to, and of how many workers one was published


class Cursor(NamedTuple):
    """What a browser already has.

    Parameters:
        publications: up to which publication of the log.
        last_runs: when lanes had their last run to end, in unix seconds.
        shown: lanes that it shows.
        functions: those whose names it has.
    """

    generation: int
    publications: int
    base: float
    last_runs: Dict[Lane, float]
    shown: Set[Lane]
    functions: Set[int]
    is_over: bool = False


class _Asked(NamedTuple):
    start: float
    end: float
    is_live: bool
    offset: int
    limit: int
    resolution: int  # microseconds


def stream(state: UiState, query: Query, cursor: Optional[Cursor] = None) -> Tuple[Dict[str, Any], Cursor]:
    """Raises QueryError."""
    generation = state.cluster.generation
    if cursor is not None and cursor.generation != generation:
        cursor = None
    if cursor is not None and cursor.is_over:
        return {}, cursor
    asked = _asked(state, query)
    after = 0 if cursor is None else cursor.publications
    publications = list(state.task_log.publications(asked.start, asked.end, after))
    last_runs = {} if cursor is None else cursor.last_runs
    known = set(last_runs)
    slots = state.cluster.slots
    _note_lanes(slots, last_runs, publications)
    lanes = _lanes(state, asked, last_runs)
    page = lanes[asked.offset : asked.offset + asked.limit]
    shown = set(page)
    if cursor is not None and not known.isdisjoint(shown - cursor.shown):
        # A lane with earlier runs, which this browser does not have, comes into view.
        return stream(state, query, None)
    runs = [run for each in publications for run in _runs(slots, each, shown, asked)]
    limit = MAXIMUM_BARS if cursor is not None else MAXIMUM_WINDOW_BARS
    bars, resolution = bounded(runs, asked.resolution, limit)
    base = float(int(asked.start)) if cursor is None else cursor.base
    functions = set() if cursor is None else cursor.functions.intersection(state.cluster.functions)
    columns = _columns(bars, base)
    running = _running(state, shown, base) if asked.is_live else _no_columns(RUNNING_COLUMNS)
    named = {part.function for bar in bars for part in bar.parts}
    new_functions = (named.union(running["function"]) - functions) - {0}
    body = {
        "is_reset": cursor is None,
        "from": asked.start,
        "to": asked.end,
        "base": base,
        "resolution_us": resolution,
        "lanes": [_lane(state, lane) for lane in page],
        "lanes_total": len(lanes),
        "runs": columns,
        "running": running,
        "functions": {str(number): state.function_name(number) for number in sorted(new_functions)},
        "one_worker_of": state.task_log.one_worker_of,
        "untold": _untold(publications),
        "omitted_runs": sum(each.omitted_runs for each in publications if each.one_worker_of <= 1),
    }
    return body, Cursor(
        generation, state.task_log.appended, base, last_runs, shown, functions | new_functions, not asked.is_live
    )


def _asked(state: UiState, query: Query) -> _Asked:
    """The window that follows live, in the scheduler's time."""
    scheduler = state.cluster.scheduler
    now = state.unix_time() if scheduler is None else scheduler.unix_microseconds / 1e6 + state.feed.age_seconds()
    start, end = query.optional_seconds("from"), query.optional_seconds("to")
    offset = query.whole("lanes_offset", 0)
    limit = query.whole("lanes_limit", DEFAULT_LANES, 1, MAXIMUM_LANES)
    if start is not None or end is not None:
        if start is None or end is None or not start < end <= start + LONGEST_WINDOW_SECONDS:
            raise QueryError(f"from, to: give both, the first the smaller, at most {LONGEST_WINDOW_SECONDS} s apart")
        return _Asked(start, end, False, offset, limit, _resolution(query, end - start))
    window = min(query.optional_seconds("window") or DEFAULT_WINDOW_SECONDS, LONGEST_WINDOW_SECONDS)
    start, end = round(now - window, 3), round(now, 3)
    return _Asked(start, end, True, offset, limit, _resolution(query, window))


def _resolution(query: Query, seconds: float) -> int:
    return query.whole("resolution_us", max(1, int(seconds * 1e6 / DEFAULT_CELLS)), 1, LONGEST_WINDOW_SECONDS * 10**6)


def _note_lanes(slots: ProcessorSlots, last_runs: Dict[Lane, float], publications: Iterable[m.TaskRuns]) -> None:
    for each in publications:
        end = each.unix_microseconds / 1e6
        for session, process_id in set(zip(each.workers, each.processors)):
            if process_id or _has_busy_runs(each, session):
                last_runs[session, slots.slot(session, process_id)] = end
        if any(map(each.statuses.count, _FAILED)) and _has_failures_nowhere(each):
            last_runs[NOWHERE] = end


def _has_busy_runs(each: m.TaskRuns, session: int) -> bool:
    """Whether a worker reported runs without their processors."""
    columns = zip(each.workers, each.processors, each.busy_microseconds)
    return session > 0 and any(worker == session and busy and not process for worker, process, busy in columns)


def _has_failures_nowhere(each: m.TaskRuns) -> bool:
    columns = zip(each.statuses, each.processors, each.busy_microseconds)
    return any(status in _FAILED and not process and not busy for status, process, busy in columns)


def _lanes(state: UiState, asked: _Asked, last_runs: Dict[Lane, float]) -> List[Lane]:
    """All slots of workers that had runs in the window, or are connected, and are published; in order."""
    for lane in [lane for lane, end in last_runs.items() if end < asked.start]:
        del last_runs[lane]
    one_of = state.task_log.one_worker_of if asked.is_live else 1
    sessions = {session for session, _ in last_runs}.union(state.cluster.workers)
    slots = state.cluster.slots
    lanes = [
        (session, slot)
        for session in sorted(sessions - {0})
        if session % one_of == 0
        for slot in range(slots.slots(session))
    ]
    return [*lanes, NOWHERE] if NOWHERE in last_runs else lanes


def _lane(state: UiState, lane: Lane) -> Dict[str, Any]:
    session, slot = lane
    if lane == NOWHERE:
        return {
            "id": 0, "worker": 0, "slot": 0, "processor": 0, "title": "at no processor", "host": "", "is_gone": False,
        }  # fmt: skip
    worker = state.cluster.workers.get(session)
    name = worker.name if worker is not None and worker.name else f"worker {session}"
    return {
        "id": _lane_id(lane),
        "worker": session,
        "slot": slot + 1,
        "processor": 0 if worker is None else state.cluster.slots.processor(session, slot),
        "title": f"{name} · {slot + 1}" if state.cluster.slots.slots(session) > 1 else name,
        "host": worker.host if worker is not None else "",
        "is_gone": worker is None,
    }


def _lane_id(lane: Lane) -> int:
    session, slot = lane
    return session << SLOT_BITS | slot


def _untold(publications: Iterable[m.TaskRuns]) -> List[Omitted]:
    """When the scheduler published only some of the workers."""
    omitted: List[Omitted] = []
    before = 0.0
    for each in publications:
        end = each.unix_microseconds / 1e6
        if each.one_worker_of > 1:
            omitted.append((round(max(before, end - TELLING_SECONDS), 3), round(end, 3), each.one_worker_of))
        before = end
    return omitted


def _runs(slots: ProcessorSlots, each: m.TaskRuns, shown: Set[Lane], asked: _Asked) -> List[StreamBar]:
    """The visible runs of a publication, each as a bar."""
    sessions = {session for session, _ in shown}
    nowhere = _lane_id(NOWHERE) if NOWHERE in shown else -1
    lane_ids: Dict[Tuple[int, int], int] = {}  # by worker and process; -1: not shown
    runs: List[StreamBar] = []
    for row in _at_the_time(each, _of_workers(each, sessions), asked):
        status, busy = each.statuses[row], each.busy_microseconds[row]
        where = session, process_id = each.workers[row], each.processors[row]
        if process_id or (busy and session):
            lane_id = lane_ids.get(where)
            if lane_id is None:
                lane = session, slots.slot(session, process_id)
                lane_id = lane_ids[where] = _lane_id(lane) if lane in shown else -1
        elif status in _FAILED:
            lane_id = nowhere
        else:
            continue  # it was cancelled before a processor had it
        if lane_id >= 0:
            end = each.unix_microseconds - each.end_microseconds[row]
            part = BarPart(each.functions[row], each.counts[row], busy, each.clients[row], each.first_tasks[row])
            runs.append(StreamBar(lane_id, end, end - busy, status, (part,)))
    return runs


def _of_workers(each: m.TaskRuns, sessions: Set[int]) -> List[int]:
    """Rows of these workers; for session 0, all without a processor."""
    if 0 not in sessions:
        return [row for row, session in enumerate(each.workers) if session in sessions]
    return [
        row
        for row, (session, process_id) in enumerate(zip(each.workers, each.processors))
        if session in sessions or not process_id
    ]


def _at_the_time(each: m.TaskRuns, rows: List[int], asked: _Asked) -> List[int]:
    """The visible rows. Most publications are visible as a whole, which is decided without reading rows."""
    ends, busy = each.end_microseconds, each.busy_microseconds
    latest = (each.unix_microseconds / 1e6 - asked.start) * 1e6  # ends before that are in view
    earliest = (each.unix_microseconds / 1e6 - asked.end) * 1e6
    if rows and max(ends) > latest:
        rows = [row for row in rows if ends[row] <= latest]
    if earliest > 0:
        rows = [row for row in rows if ends[row] + busy[row] >= earliest]
    return rows


RUNNING_COLUMNS = ("lane", "start", "function", "client", "task")


def _columns(bars: List[StreamBar], base: float) -> Dict[str, Any]:
    """The bars; `parts` has, by position, functions, tasks and microseconds of those with several functions."""
    origin = int(base * 1e6)
    return {
        "lane": [bar.lane for bar in bars],
        "start": [bar.start - origin for bar in bars],
        "end": [bar.end - origin for bar in bars],
        "function": [bar.parts[0].function for bar in bars],
        "status": [bar.status for bar in bars],
        "count": [bar.tasks for bar in bars],
        "client": [bar.parts[0].client for bar in bars],
        "task": [str(bar.parts[0].task) for bar in bars],
        "parts": {str(place): [part[:3] for part in bar.parts] for place, bar in enumerate(bars) if len(bar.parts) > 1},
    }


def _running(state: UiState, shown: Set[Lane], base: float) -> Dict[str, List[Any]]:
    columns = _no_columns(RUNNING_COLUMNS)
    for session in sorted({session for session, _ in shown}):
        worker = state.cluster.workers.get(session)
        for processor in worker.processors if worker is not None else ():
            lane = session, state.cluster.slots.slot(session, processor.process_id)
            if processor.task_client and lane in shown:
                _append_running(columns, lane, processor, int(base * 1e6))
    return columns


def _append_running(columns: Dict[str, List[Any]], lane: Lane, processor: ProcessorRecord, base: int) -> None:
    columns["lane"].append(_lane_id(lane))
    columns["start"].append(processor.task_began - base)
    columns["function"].append(processor.task_function)
    columns["client"].append(processor.task_client)
    columns["task"].append(str(processor.task_id))


def _no_columns(names: Iterable[str]) -> Dict[str, List[Any]]:
    return {name: [] for name in names}
