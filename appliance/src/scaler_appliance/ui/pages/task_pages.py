"""The page `tasks`: running and finished tasks; and the details of one task.

Rule: one row stands for tasks that one processor ran one after the other; `count` says how many.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Set, Tuple

from scaler_appliance.feed.cluster_entities import ProcessorRecord, WorkerRecord
from scaler_appliance.feed.task_history import RecordedRun, RunQuery
from scaler_appliance.ui.pages import failure_texts
from scaler_appliance.ui.pages.queries import Query, one_of
from scaler_appliance.ui.pages.tables import DEFAULT_LIMIT, MAXIMUM_LIMIT, Body
from scaler_appliance.ui.ui_state import UiState
from scaler_protocol import messages as m

RUNNING = "running"
FAILURES = "failures"
"""The statuses that count as failed: tasks that raised, and those that were lost."""

STATES = {
    "success": m.TaskStatus.SUCCESS,
    "failed": m.TaskStatus.FAILED,
    "canceled": m.TaskStatus.CANCELLED,
    "lost": m.TaskStatus.LOST,
}
RUNNING_SHOWN = 10
"""The maximum number of running tasks in the list, so that they do not hide finished ones."""

_STATE_NAMES = {int(status): name for name, status in STATES.items()}


class _Wanted:
    """The query's criteria, in numbers; None: any."""

    def __init__(self, state: UiState, query: Query) -> None:
        cluster = state.cluster
        self.state = query.text("state")
        if self.state:
            one_of("state", self.state, [RUNNING, FAILURES, *STATES])
        self.text = query.text("search").strip()
        function, worker, client = query.text("function"), query.text("worker"), query.text("client")
        functions = {number: function.name for number, function in cluster.functions.items()}
        self.functions = _numbers(function, functions)
        self.workers = _numbers(worker, {session: worker.name for session, worker in cluster.workers.items()})
        self.clients = _numbers(client, {session: client.name for session, client in cluster.clients.items()})
        graph = query.optional_whole("graph")
        self.graph = cluster.graphs.get(graph) if graph is not None else None
        if graph is not None:
            owner = set() if self.graph is None else {self.graph.client}
            self.clients = owner if self.clients is None else self.clients & owner
        self.text_functions = _named(self.text, functions) if self.text else set()
        is_number = self.text.isascii() and self.text.isdigit() and len(self.text) <= 20
        self.text_tasks = {int(self.text)} if is_number else set()

    def run_query(self) -> RunQuery:
        query = RunQuery(statuses=_statuses(self.state), workers=self.workers, clients=self.clients)
        if self.graph is not None:
            first = self.graph.first_task
            query = query._replace(first_tasks=(first, first + self.graph.nodes))
        if not self.text:
            return query._replace(functions=self.functions)
        functions = self.text_functions if self.functions is None else self.text_functions & self.functions
        if self.functions is not None:
            # A text together with a function: other matches of the text must also be of this function.
            return query._replace(functions=self.functions, tasks=self.text_tasks or None, failure=self._failure())
        return query._replace(functions=functions, tasks=self.text_tasks, failure=self._failure(), any_of=True)

    def _failure(self) -> Optional[Callable[[bytes], bool]]:
        return failure_texts.mentions(self.text) if not self.text_tasks else None

    def has(self, worker: WorkerRecord, processor: ProcessorRecord) -> bool:
        for wanted, number in (
            (self.functions, processor.task_function),
            (self.workers, worker.session),
            (self.clients, processor.task_client),
        ):
            if wanted is not None and number not in wanted:
                return False
        if self.graph is not None and not 0 <= processor.task_id - self.graph.first_task < self.graph.nodes:
            return False
        return not self.text or processor.task_function in self.text_functions or processor.task_id in self.text_tasks


def _statuses(state: str) -> Optional[Set[int]]:
    if state == FAILURES:
        return {m.TaskStatus.FAILED, m.TaskStatus.LOST}
    return {STATES[state]} if state else None


def _numbers(text: str, names: Mapping[int, str]) -> Optional[Set[int]]:
    """The entities for a number or a part of a name; None if the query has none."""
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return {int(text[:20])}
    return _named(text, names)


def _named(text: str, names: Mapping[int, str]) -> Set[int]:
    wanted = text.casefold()
    return {number for number, name in names.items() if wanted in name.casefold()}


def tasks(state: UiState, query: Query) -> Body:
    """Matching runs, the newest first. Raises QueryError."""
    wanted = _Wanted(state, query)
    offset = query.whole("offset", 0)
    limit = query.whole("limit", DEFAULT_LIMIT, 1, MAXIMUM_LIMIT)
    running = _running(state, wanted) if wanted.state in ("", RUNNING) else []
    running_total = len(running)
    rows: List[Dict[str, Any]] = []
    matching = running_total
    unknown: List[str] = []
    if wanted.state != RUNNING:
        running = running[:RUNNING_SHOWN]
        found = state.task_log.search(
            wanted.run_query(), max(0, offset - len(running)), limit - len(running[offset : offset + limit])
        )
        rows = [_ended_row(state, run) for run in found.runs]
        matching = len(running) + found.matching
    if not matching:
        unknown = _unknown(state, query)
    shown = [_running_row(state, worker, processor) for worker, processor in running[offset : offset + limit]]
    return {
        "rows": shown + rows,
        "total": state.task_log.kept,
        "matching": matching,
        "offset": offset,
        "limit": limit,
        "running": running_total,
        "kept": state.task_log.kept,
        "omitted": state.task_log.omitted_tasks,
        "unknown": unknown,
    }


def _unknown(state: UiState, query: Query) -> List[str]:
    """Entities in the query that do not exist, or no longer."""
    cluster = state.cluster
    known: Tuple[Tuple[str, Mapping[int, Any]], ...] = (
        ("worker", cluster.workers),
        ("function", cluster.functions),
        ("client", cluster.clients),
        ("graph", cluster.graphs),
    )
    return [
        f"{kind} {query.text(kind)}"
        for kind, entities in known
        if query.text(kind).isascii() and query.text(kind).isdigit() and int(query.text(kind)[:20]) not in entities
    ]


def task(state: UiState, client: int, task_id: int) -> Optional[Dict[str, Any]]:
    """The details of a task, None if it is unknown or no longer kept."""
    for worker, processor in _with_tasks(state):
        if processor.task_client == client and processor.task_id == task_id:
            return {**_running_row(state, worker, processor), **failure_texts.details(b"")}
    run = state.task_log.find(client, task_id)
    if run is None:
        return None
    return {**_ended_row(state, run), **failure_texts.details(run.failure)}


def _with_tasks(state: UiState) -> Iterator[Tuple[WorkerRecord, ProcessorRecord]]:
    for worker in state.cluster.workers.values():
        for processor in worker.processors:
            if processor.task_client:
                yield worker, processor


def _running(state: UiState, wanted: _Wanted) -> List[Tuple[WorkerRecord, ProcessorRecord]]:
    """Running tasks, those that have been running longest first."""
    running = [(worker, processor) for worker, processor in _with_tasks(state) if wanted.has(worker, processor)]
    running.sort(key=lambda pair: pair[1].task_began)
    return running


def _running_row(state: UiState, worker: WorkerRecord, processor: ProcessorRecord) -> Dict[str, Any]:
    microseconds = processor.task_microseconds(state.now) or None  # none: it has just begun
    return {
        "client": processor.task_client,
        "client_name": state.client_name(processor.task_client),
        "task": str(processor.task_id),
        "function": state.function_name(processor.task_function),
        "function_number": processor.task_function,
        "state": RUNNING,
        "worker": worker.session,
        "worker_name": worker.name,
        "processor": processor.process_id,
        "host": worker.host,
        "start": processor.task_began / 1e6,
        "end": None,
        "duration_us": microseconds,
        "mean_us": microseconds,
        "count": 1,
        "peak_bytes": None,
        "attempt": None,
        "error": None,
    }


def _ended_row(state: UiState, run: RecordedRun) -> Dict[str, Any]:
    """The duration of a run; None if no processor ran it, or its worker did not report it."""
    ran = bool(run.processor or run.busy_microseconds)
    worker = state.cluster.workers.get(run.worker)
    return {
        "client": run.client,
        "client_name": state.client_name(run.client),
        "task": str(run.first_task),
        "function": state.function_name(run.function),
        "function_number": run.function,
        "state": state_name(run.status),
        "worker": run.worker,
        "worker_name": worker.name if worker is not None else "",
        "processor": run.processor,
        "host": worker.host if worker is not None else "",
        "start": round(run.start, 6) if ran else None,
        "end": round(run.end, 6),
        "duration_us": run.busy_microseconds if ran else None,
        "mean_us": run.busy_microseconds // max(1, run.tasks) if ran else None,
        "count": run.tasks,
        "peak_bytes": run.peak_memory_bytes or None,
        "attempt": run.attempt,
        "error": failure_texts.summary(run.failure),
    }


def state_name(status: int) -> str:
    return _STATE_NAMES.get(status, f"status {int(status)}")
