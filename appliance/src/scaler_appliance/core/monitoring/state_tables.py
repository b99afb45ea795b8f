"""The state in tables, for debugging.

Rule: reads the whole state and changes nothing; takes time in proportion to its size.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Sequence

from scaler_appliance.core.peers.sessions import ClientSession
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.tasks.task_states import TaskState

Row = Dict[str, Any]
Tables = Dict[str, List[Row]]


def state_tables(state: SchedulerState) -> Tables:
    """Rows by table; a row is values by column."""
    return {
        "scheduler": [_scheduler(state)],
        "clients": [_client(state, client) for client in state.clients.values()],
        "workers": _workers(state),
        "batches": [row for client in state.clients.values() for row in _batches(client)],
        "dispatches": _dispatches(state),
        "graphs": [row for client in state.clients.values() for row in _graphs(client)],
        "dependants": [row for client in state.clients.values() for row in _dependants(client)],
        "ready queues": _ready(state),
        "objects": _objects(state),
    }


def _ended(counts: Sequence[int]) -> Row:
    states = (TaskState.SUCCEEDED, TaskState.FAILED, TaskState.LOST, TaskState.CANCELLED)
    return {state.name.lower(): counts[state] for state in states}


def _scheduler(state: SchedulerState) -> Row:
    return {
        "time": round(state.now, 6),
        "clients": len(state.clients),
        "workers": len(state.workers),
        "slots": state.total_slots,
        "waiting": state.waiting(),
        "running": state.running,
        **_ended(state.finished),
        "stale_results": state.stale_results,
        "last_session": state.last_session,
        "last_dispatch": state.last_dispatch,
        "objects": len(state.objects),
        "object_bytes": state.objects.total_bytes,
    }


def _client(state: SchedulerState, client: ClientSession) -> Row:
    return {
        "session": client.number,
        "peer": client.peer.hex(),
        "label": client.label,
        "unfinished": client.unfinished,
        **_ended(client.ended),
        "last_task": client.last_task_id,
        "tasks_in_flight": client.flow.tasks_in_flight,
        "bytes_in_flight": client.flow.bytes_in_flight,
        "objects": len(client.objects),
        "object_bytes": client.object_bytes,
        "held": state.ready.is_held(client.number),
        "congested": client.is_congested,
    }


def _workers(state: SchedulerState) -> List[Row]:
    return [
        {
            "session": worker.number,
            "peer": worker.peer.hex(),
            "label": worker.label,
            "slots": worker.slots,
            "assigned": worker.assigned,
            "sent": worker.sent,
            "finished": worker.finished,
            "failed": worker.failed,
            "load_milliseconds": round(worker.load_microseconds / 1000, 3),
            "pace": round(worker.pace.factor, 3),
            "paces_of_functions": _paces_of_functions(state, worker),
            "known_objects": len(worker.known_objects),
            "balance_request": worker.balance_request,
            "leaving": worker.leaving,
            "drain_cause": worker.drain_cause.name.lower(),
            "congested": worker.is_congested,
        }
        for worker in state.workers.values()
    ]


def _paces_of_functions(state: SchedulerState, worker: WorkerSession) -> str:
    """Those that differ from the worker's."""
    texts = []
    for function, factor in worker.pace.exceptions.items():
        record = state.objects.find(function) if isinstance(function, int) else None
        name = record.name if record is not None else function[0] if isinstance(function, tuple) else function
        texts.append(f"{name} {factor:.3f}")
    return ", ".join(texts)


def _batches(client: ClientSession) -> Iterable[Row]:
    for batch in client.batches():
        yield {
            "client": client.number,
            "first_task": batch.ids[0],
            "tasks": len(batch),
            "function": f"{batch.function:016x}" if batch.function else batch.function_name,
            "priority": -batch.requirement.negative_priority,
            "payload_bytes": len(batch.payload),
            **{each.name.lower(): batch.states.count(each) for each in TaskState if each != TaskState.WAITING},
        }


def _dispatches(state: SchedulerState) -> List[Row]:
    return [
        {
            "number": dispatch.number,
            "worker": dispatch.worker,
            "client": dispatch.batch.client,
            "first_task": dispatch.batch.ids[dispatch.start],
            "tasks": dispatch.stop - dispatch.start,
            "open": dispatch.open_count,
            "estimate_milliseconds": round(dispatch.estimate_microseconds / 1000, 3),
        }
        for dispatch in state.dispatches.values()
    ]


def _graphs(client: ClientSession) -> Iterable[Row]:
    for graph in client.graphs.values():
        counters = graph.counters
        yield {
            "client": client.number,
            "first_task": graph.ids[0],
            "nodes": len(graph),
            "waiting": counters.waiting,
            "queued": counters.queued,
            "running": counters.running,
            **_ended(counters.ended),
            "kept_results": len(graph.results),
        }


def _dependants(client: ClientSession) -> Iterable[Row]:
    for dependant in client.dependants.waiting.values():
        missing = [each for each in dependant.predecessors if each not in dependant.results]
        yield {
            "client": client.number,
            "task": dependant.task_id,
            "waits_for": " ".join(map(str, missing)),
            "has_results_of": len(dependant.results),
        }


def _ready(state: SchedulerState) -> List[Row]:
    rows = []
    for ready_class in state.ready.classes():
        needs = ready_class.requirement.needs
        rows.append(
            {
                "priority": -ready_class.requirement.negative_priority,
                "capabilities": " ".join(f"{name}={amount:g}" for name, amount in needs.capabilities),
                "codec": needs.codec,
                "function_name": needs.function_name,
                "waiting": ready_class.count,
                "held": ready_class.held_count,
            }
        )
    return rows


def _objects(state: SchedulerState) -> List[Row]:
    return [
        {
            "id": f"{record.object_id:016x}",
            "name": record.name,
            "owner": record.owner,
            "size": record.size,
            "arrived": record.arrived,
            "place": "core" if record.content is not None else record.place.name.lower(),
            "references": record.references,
            "held": record.held,
            "announced_to": " ".join(map(str, sorted(record.announced_to))),
            "holders": " ".join(map(str, sorted(record.copies.holders))) if record.copies is not None else "",
        }
        for record in state.objects.records()
    ]
