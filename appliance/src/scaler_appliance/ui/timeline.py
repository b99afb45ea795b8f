"""The page `stream`: a lane for each processor, with the tasks that it ran.

Rules:
- Live, a browser gets the window once and then what is new; it is told all anew (`is_reset`) when what it has does not
  go together with that.
- An event has at most MAXIMUM_RUNS runs, and a past window MAXIMUM_PAST_RUNS: beyond that the longest are told, and
  every so-manieth of the others, but failures before all.
- Columns of the log are read as columns: a run becomes a row only when it is told.
"""

from __future__ import annotations

import heapq
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

from scaler_appliance.monitoring.entities import Processor
from scaler_appliance.ui.queries import Query, QueryError
from scaler_appliance.ui.state import State
from scaler_protocol import messages as m

MAXIMUM_RUNS = 1500
MAXIMUM_PAST_RUNS = 5000
DEFAULT_WINDOW_SECONDS = 60
LONGEST_WINDOW_SECONDS = 3600
DEFAULT_LANES = 60
MAXIMUM_LANES = 500
PROCESS_ID_BITS = 28  # bits of a process id in a lane's id

Lane = Tuple[int, int]  # session of the worker, process id
Row = Tuple[m.TaskRuns, int]


class Cursor(NamedTuple):
    """What a browser has been told.

    Parameters:
        publications: of the log, up to which.
        last_runs: when lanes that are known had their last run to end, in unix seconds.
        shown: lanes that it shows.
        functions: whose names it has.
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


def stream(state: State, query: Query, cursor: Optional[Cursor] = None) -> Tuple[Dict[str, Any], Cursor]:
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
    _note_lanes(last_runs, publications)
    lanes = _lanes(state, asked, last_runs)
    page = lanes[asked.offset : asked.offset + asked.limit]
    shown = set(page)
    if cursor is not None and not known.isdisjoint(shown - cursor.shown):
        # A lane comes into view that has a past, of which this browser knows nothing.
        return stream(state, query, None)
    told, omitted = _told(publications, lanes, asked)
    base = float(int(asked.start)) if cursor is None else cursor.base
    functions = set() if cursor is None else cursor.functions.intersection(state.cluster.functions)
    runs = _columns(told, base)
    running = (
        _running(state, shown, base) if asked.is_live else _no_columns(("lane", "start", "function", "client", "task"))
    )
    new_functions = ({*runs["function"], *running["function"]} - functions) - {0}
    body = {
        "is_reset": cursor is None,
        "from": asked.start,
        "to": asked.end,
        "base": base,
        "lanes": [_lane(state, lane) for lane in page],
        "lanes_total": len(lanes),
        "runs": runs,
        "running": running,
        "functions": {str(number): state.function_name(number) for number in sorted(new_functions)},
        "one_worker_of": state.task_log.one_worker_of,
        "omitted_runs": omitted,
    }
    return body, Cursor(
        generation, state.task_log.appended, base, last_runs, shown, functions | new_functions, not asked.is_live
    )


def _asked(state: State, query: Query) -> _Asked:
    """The times are the scheduler's."""
    scheduler = state.cluster.scheduler
    now = state.unix_time() if scheduler is None else scheduler.unix_microseconds / 1e6 + state.feed.age_seconds()
    start, end = query.optional_seconds("from"), query.optional_seconds("to")
    offset = query.whole("lanes_offset", 0)
    limit = query.whole("lanes_limit", DEFAULT_LANES, 1, MAXIMUM_LANES)
    if start is not None or end is not None:
        if start is None or end is None or not start < end <= start + LONGEST_WINDOW_SECONDS:
            raise QueryError(f"from, to: give both, the first the smaller, at most {LONGEST_WINDOW_SECONDS} s apart")
        return _Asked(start, end, False, offset, limit)
    window = query.optional_seconds("window") or DEFAULT_WINDOW_SECONDS
    return _Asked(round(now - min(window, LONGEST_WINDOW_SECONDS), 3), round(now, 3), True, offset, limit)


def _note_lanes(last_runs: Dict[Lane, float], publications: Iterable[m.TaskRuns]) -> None:
    for each in publications:
        end = each.unix_microseconds / 1e6
        last_runs.update(dict.fromkeys(zip(each.workers, each.processors), end))


def _lanes(state: State, asked: _Asked, last_runs: Dict[Lane, float]) -> List[Lane]:
    """Processors that had runs in the window, and those that are there and would be told of, in order."""
    for lane in [lane for lane, end in last_runs.items() if end < asked.start]:
        del last_runs[lane]
    lanes = set(last_runs)
    if asked.is_live:
        one_of = state.task_log.one_worker_of
        for session, worker in state.cluster.workers.items():
            if session % one_of == 0:
                lanes.update([(session, processor.process_id) for processor in worker.processors])
    return sorted(lanes)


def _lane(state: State, lane: Lane) -> Dict[str, Any]:
    session, process_id = lane
    worker = state.cluster.workers.get(session)
    is_there = worker is not None and any(each.process_id == process_id for each in worker.processors)
    name = worker.name if worker is not None and worker.name else f"worker {session}"
    return {
        "id": _lane_id(lane),
        "worker": session,
        "processor": process_id,
        "title": f"{name} · {process_id}" if process_id else name,
        "host": worker.host if worker is not None else "",
        "is_gone": not is_there,
    }


def _lane_id(lane: Lane) -> int:
    session, process_id = lane
    return session << PROCESS_ID_BITS | process_id & (1 << PROCESS_ID_BITS) - 1


def _told(publications: List[m.TaskRuns], lanes: List[Lane], asked: _Asked) -> Tuple[List[Row], int]:
    """Which runs are told, and how many of those in view are not: by the scheduler or here."""
    shown = set(lanes[asked.offset : asked.offset + asked.limit])
    cut = {session for session, _ in shown}.intersection(lane[0] for lane in lanes if lane not in shown)
    sessions = {session for session, _ in shown}
    failed: List[Row] = []
    others: List[Row] = []
    lengths: List[int] = []  # of the others
    omitted = 0
    success = int(m.TaskStatus.SUCCESS)
    for each in publications:
        omitted += each.omitted_runs
        rows = _at_the_time(each, _of_lanes(each, shown, sessions, cut), asked)
        statuses, busy = each.statuses, each.busy_microseconds
        if statuses.count(success) < len(statuses):
            failed += [(each, row) for row in rows if statuses[row] != success]
            rows = [row for row in rows if statuses[row] == success]
        others += [(each, row) for row in rows]
        lengths += [busy[row] for row in rows]
    limit = MAXIMUM_RUNS if asked.is_live else MAXIMUM_PAST_RUNS
    shown_failed = _every_so_many(failed, limit // 3)
    told = shown_failed + _most_to_see(others, lengths, limit - len(shown_failed))
    return told, omitted + len(failed) + len(others) - len(told)


def _of_lanes(each: m.TaskRuns, shown: Set[Lane], sessions: Set[int], cut: Set[int]) -> List[int]:
    """Rows of these lanes; `cut` are sessions of which other lanes are not shown."""
    workers, processors = each.workers, each.processors
    rows = [row for row, session in enumerate(workers) if session in sessions]
    if cut:
        rows = [row for row in rows if workers[row] not in cut or (workers[row], processors[row]) in shown]
    return rows


def _at_the_time(each: m.TaskRuns, rows: List[int], asked: _Asked) -> List[int]:
    """Of these rows those in view. Most publications are as a whole, and no row is looked at for that."""
    ends, busy = each.end_microseconds, each.busy_microseconds
    latest = (each.unix_microseconds / 1e6 - asked.start) * 1e6  # ends before that are in view
    earliest = (each.unix_microseconds / 1e6 - asked.end) * 1e6
    if rows and max(ends) > latest:
        rows = [row for row in rows if ends[row] <= latest]
    if earliest > 0:
        rows = [row for row in rows if ends[row] + busy[row] >= earliest]
    return rows


def _every_so_many(rows: List[Row], limit: int) -> List[Row]:
    return rows[:: -(-len(rows) // limit)] if len(rows) > limit else rows


def _most_to_see(rows: List[Row], lengths: List[int], limit: int) -> List[Row]:
    """The longest, which fill a picture, and for the other half every so-manieth of the rest; in their order."""
    if len(rows) <= limit:
        return rows
    longest = set(heapq.nlargest(limit // 2, range(len(rows)), key=lengths.__getitem__))
    rest = [each for each in range(len(rows)) if each not in longest]
    told = [*longest, *rest[:: -(-len(rest) // (limit - len(longest)))]]
    return [rows[each] for each in sorted(told)]


def _columns(rows: List[Row], base: float) -> Dict[str, List[Any]]:
    columns = _no_columns(("lane", "start", "end", "function", "status", "count", "client", "task"))
    for each, row in rows:
        end = each.unix_microseconds - each.end_microseconds[row] - int(base * 1e6)
        columns["lane"].append(_lane_id((each.workers[row], each.processors[row])))
        columns["start"].append(end - each.busy_microseconds[row])
        columns["end"].append(end)
        columns["function"].append(each.functions[row])
        columns["status"].append(each.statuses[row])
        columns["count"].append(each.counts[row])
        columns["client"].append(each.clients[row])
        columns["task"].append(str(each.first_tasks[row]))
    return columns


def _running(state: State, shown: Set[Lane], base: float) -> Dict[str, List[Any]]:
    columns = _no_columns(("lane", "start", "function", "client", "task"))
    for session, process_id in sorted(shown):
        worker = state.cluster.workers.get(session)
        for processor in worker.processors if worker is not None else ():
            if processor.process_id == process_id and processor.task_client:
                _append_running(columns, (session, process_id), processor, int(base * 1e6))
    return columns


def _append_running(columns: Dict[str, List[Any]], lane: Lane, processor: Processor, base: int) -> None:
    columns["lane"].append(_lane_id(lane))
    columns["start"].append(processor.task_began - base)
    columns["function"].append(processor.task_function)
    columns["client"].append(processor.task_client)
    columns["task"].append(str(processor.task_id))


def _no_columns(names: Iterable[str]) -> Dict[str, List[Any]]:
    return {name: [] for name in names}
