"""The pages that are one table each: workers, functions, clients, objects, graphs, actors.

Rule: this module defines what is shown of an entity; `tables` sorts, filters and cuts.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from scaler_appliance.feed.cluster_entities import (
    ActorFigures,
    ClientRecord,
    FunctionFigures,
    GraphRecord,
    ProcessorRecord,
    SharedObjectRecord,
    WorkerRecord,
)
from scaler_appliance.ui.pages.queries import Query, QueryError
from scaler_appliance.ui.pages.tables import BigNumber, Body, EntityTable
from scaler_appliance.ui.ui_state import UiState
from scaler_protocol import messages as m

MAXIMUM_EXPANDED = 100
UNCOUNTED_AMOUNT = 1e9
"""At least this much of a capability means unlimited: it is shown without an amount."""


def workers(state: UiState, query: Query) -> Body:
    body = workers_table(state).body(state.cluster.workers.values(), query)
    body["expanded"] = _expanded(state, query.text("expand"))
    return body


def workers_table(state: UiState) -> EntityTable[WorkerRecord]:
    return EntityTable(
        {
            "session": lambda worker: worker.session,
            "name": lambda worker: worker.name,
            "host": lambda worker: worker.host,
            "process_id": lambda worker: worker.process_id,
            "slots": lambda worker: worker.slots,
            "implementation": lambda worker: _implementation(worker.implementation),
            "capabilities": lambda worker: _capabilities(worker),
            "tasks": lambda worker: worker.tasks,
            "queued": lambda worker: worker.waiting,
            "sent": lambda worker: worker.sent,
            "finished": lambda worker: worker.finished,
            "failed": lambda worker: worker.failed,
            "finished_per_second": lambda worker: round(worker.finished_per_second, 1),
            "cpu": lambda worker: worker.cpu_permille / 10,
            "rss": lambda worker: worker.resident_bytes,
            "free": lambda worker: worker.free_bytes,
            "latency_us": lambda worker: worker.latency_microseconds,
            "is_congested": lambda worker: worker.is_congested,
            "is_leaving": lambda worker: worker.is_leaving,
            "drain_cause": lambda worker: worker.drain_cause,
            "processors": lambda worker: len(worker.processors),
            "busy": lambda worker: worker.busy,
            "suspended": lambda worker: worker.suspended,
            "processors_cpu": lambda worker: sum([each.cpu_permille for each in worker.processors]) / 10,
            "processors_rss": lambda worker: sum([each.resident_bytes for each in worker.processors]),
            "function": lambda worker: _longest_function(state, worker),
        },
        "session",
        ("name", "host", "session", "capabilities", "function"),
    )


def _longest_function(state: UiState, worker: WorkerRecord) -> Optional[str]:
    """The name of the function that one of its processors has been running longest."""
    with_function = [processor for processor in worker.processors if processor.task_function]
    if not with_function:
        return None
    longest = min(with_function, key=lambda processor: processor.task_began)
    return state.function_name(longest.task_function)


def _expanded(state: UiState, sessions: str) -> Dict[str, List[Dict[str, Any]]]:
    expanded: Dict[str, List[Dict[str, Any]]] = {}
    for session in sessions.split(",") if sessions else ():
        if not session.isascii() or not session.isdigit() or len(expanded) == MAXIMUM_EXPANDED:
            raise QueryError(f"expand: {session[:40]!r}; at most {MAXIMUM_EXPANDED} sessions, separated by commas")
        worker = state.cluster.workers.get(int(session))
        if worker is not None:
            expanded[session] = [_processor(state, processor) for processor in worker.processors]
    return expanded


def _processor(state: UiState, processor: ProcessorRecord) -> Dict[str, Any]:
    return {
        "process_id": processor.process_id,
        "is_initialized": processor.is_initialized,
        "has_task": processor.has_task,
        "is_suspended": processor.is_suspended,
        "cpu": processor.cpu_permille / 10,
        "rss": processor.resident_bytes,
        "queued": processor.queued,
        "function": state.function_name(processor.task_function) or None,
        "client": processor.task_client or None,
        "task": str(processor.task_id) if processor.task_client else None,
        "task_us": processor.task_microseconds(state.now) or None,
    }


def functions(state: UiState, query: Query) -> Body:
    return functions_table(state).body(state.cluster.functions.values(), query)


def functions_table(state: UiState) -> EntityTable[FunctionFigures]:
    return EntityTable(
        {
            "function": lambda function: function.number,
            "name": lambda function: function.name,
            "client": lambda function: function.client,
            "client_name": lambda function: state.client_name(function.client),
            "finished": lambda function: function.finished,
            "failed": lambda function: function.failed,
            "running": lambda function: function.running,
            "waiting": lambda function: function.waiting,
            "per_second": lambda function: round(function.finished_per_second, 1),
            "mean_us": lambda function: function.busy_microseconds // function.finished if function.finished else None,
            "p50_us": lambda function: _quantile(function, 0.5),
            "p95_us": lambda function: _quantile(function, 0.95),
            "busy_s": lambda function: round(function.busy_microseconds / 1e6, 3),
            "has_gone": lambda function: function.has_gone,
        },
        "-busy_s",
        ("name", "function", "client", "client_name"),
    )


def _quantile(function: FunctionFigures, share: float) -> Optional[int]:
    return round(function.quantile_microseconds(share)) if function.durations else None


def clients(state: UiState, query: Query) -> Body:
    table: EntityTable[ClientRecord] = EntityTable(
        {
            "session": lambda client: client.session,
            "name": lambda client: client.name,
            "host": lambda client: client.host,
            "process_id": lambda client: client.process_id,
            "implementation": lambda client: _implementation(client.implementation),
            "tasks": lambda client: client.tasks,
            "finished": lambda client: client.finished,
            "failed": lambda client: client.failed,
            "canceled": lambda client: client.canceled,
            "bytes_in_flight": lambda client: client.bytes_in_flight,
            "objects": lambda client: client.objects,
            "object_bytes": lambda client: client.object_bytes,
        },
        "-tasks",
        ("name", "host", "session", "implementation"),
    )
    return table.body(state.cluster.clients.values(), query)


def objects(state: UiState, query: Query) -> Body:
    table: EntityTable[SharedObjectRecord] = EntityTable(
        {
            "object": lambda each: BigNumber(each.object_id),
            "name": lambda each: each.name,
            "kind": lambda each: _kind(each.kind),
            "owner": lambda each: each.owner,
            "owner_name": lambda each: state.client_name(each.owner),
            "bytes": lambda each: each.size,
            "is_on_disk": lambda each: each.is_on_disk,
            "is_arriving": lambda each: each.is_arriving,
            "is_released": lambda each: each.is_let_go,
        },
        "-bytes",
        ("name", "object", "kind", "owner", "owner_name"),
    )
    return table.body(state.cluster.objects.values(), query)


def _kind(kind: int) -> str:
    try:
        return m.ObjectKind(kind).name.lower()
    except ValueError:
        return f"kind {kind}"


def graphs(state: UiState, query: Query) -> Body:
    table: EntityTable[GraphRecord] = EntityTable(
        {
            "graph": lambda graph: BigNumber(graph.number),
            "client": lambda graph: graph.client,
            "client_name": lambda graph: state.client_name(graph.client),
            "first_task": lambda graph: BigNumber(graph.first_task),
            "nodes": lambda graph: graph.nodes,
            "waiting": lambda graph: graph.waiting,
            "queued": lambda graph: graph.queued,
            "running": lambda graph: graph.running,
            "succeeded": lambda graph: graph.succeeded,
            "failed": lambda graph: graph.failed,
            "canceled": lambda graph: graph.canceled,
            "started": lambda graph: graph.started_unix_microseconds / 1e6,
            "has_gone": lambda graph: graph.has_gone,
        },
        "-started",
        ("graph", "client", "client_name", "first_task"),
    )
    return table.body(state.cluster.graphs.values(), query)


def actors(state: UiState, query: Query) -> Body:
    table: EntityTable[ActorFigures] = EntityTable(
        {
            "actor": lambda actor: BigNumber(actor.actor_id),
            "name": lambda actor: actor.name,
            "client": lambda actor: actor.client,
            "client_name": lambda actor: state.client_name(actor.client),
            "worker": lambda actor: actor.worker,
            "worker_name": lambda actor: _worker_name(state, actor.worker),
            "state": lambda actor: actor.state,
            "why_lost": lambda actor: actor.why_lost,
            "waiting": lambda actor: actor.waiting,
            "running": lambda actor: actor.running,
            "finished": lambda actor: actor.finished,
            "failed": lambda actor: actor.failed,
        },
        "-running",
        ("name", "client_name", "worker_name", "state", "why_lost"),
    )
    return table.body(state.cluster.actors.values(), query)


def _worker_name(state: UiState, session: int) -> str:
    worker = state.cluster.workers.get(session)
    return "" if worker is None else worker.name or f"worker {session}"


def _implementation(implementation: m.Implementation) -> str:
    return " ".join(filter(None, (implementation.name, implementation.version, implementation.language)))


def _capabilities(worker: WorkerRecord) -> str:
    """Such as `gpu=2, linux`: a name alone is not counted."""
    return ", ".join(
        name if amount <= 0 or amount >= UNCOUNTED_AMOUNT else f"{name}={amount:g}"
        for name, amount in worker.capabilities.items()
    )
