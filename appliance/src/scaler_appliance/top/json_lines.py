"""A cluster as JSON, for programs: what `scaler_top --json` prints, one object on a line for each publication.

Rules:
- SCHEMA changes when a key is removed or changes its meaning; keys may be added without that. docs/monitoring.md lists
  them, and a test compares.
- Units stand in the keys, as everywhere; processor time is in percent of one core.
"""

from __future__ import annotations

from typing import Any, Dict

from scaler_appliance.feed.cluster_entities import (
    ActorFigures,
    ClientRecord,
    FunctionFigures,
    GraphRecord,
    ProcessorRecord,
    SchedulerFigures,
    WorkerRecord,
)
from scaler_appliance.feed.cluster_model import ClusterModel

SCHEMA = 1


def describe(cluster: ClusterModel, address: str) -> Dict[str, Any]:
    """The state of a cluster as plain values, after a first publication."""
    scheduler = cluster.scheduler
    assert scheduler is not None
    return {
        "schema": SCHEMA,
        "monitor_address": address,
        "generation": cluster.generation,
        "unix_seconds": scheduler.unix_microseconds / 1e6,
        "scheduler": _scheduler(scheduler),
        "tasks": dict(cluster.tasks),
        "sent": dict(cluster.sent),
        "received": dict(cluster.received),
        "rates": {name: round(rate, 3) for name, rate in cluster.rates.items()},
        "waiting_reasons": list(cluster.waiting_reasons),
        "unit_notes": list(cluster.unit_notes),
        "workers": [_worker(each, cluster.functions, scheduler.unix_microseconds) for each in cluster.workers.values()],
        "clients": [_client(each) for each in cluster.clients.values()],
        "functions": [_function(each) for each in cluster.functions.values() if not each.has_gone],
        "graphs": [_graph(each) for each in cluster.graphs.values() if not each.has_gone],
        "actors": [_actor(each) for each in cluster.actors.values()],
    }


def _scheduler(scheduler: SchedulerFigures) -> Dict[str, Any]:
    return {
        "id": scheduler.scheduler_id.hex(),
        "address": scheduler.address,
        "host": scheduler.host,
        "process_id": scheduler.process_id,
        "version": scheduler.implementation.version,
        "language": scheduler.implementation.language,
        "is_protected": scheduler.is_protected,
        "is_insecure": scheduler.is_insecure,
        "started_unix_seconds": scheduler.started_unix_microseconds / 1e6,
        "cpu_percent": scheduler.cpu_permille / 10,
        "resident_bytes": scheduler.resident_bytes,
        "status_share": round(scheduler.status_share, 6),
        "slots": scheduler.slots,
        "objects": scheduler.objects,
        "object_bytes": scheduler.object_bytes,
        "object_bytes_on_disk": scheduler.object_bytes_on_disk,
    }


def _worker(worker: WorkerRecord, functions: Dict[int, FunctionFigures], now: int) -> Dict[str, Any]:
    return {
        "session": worker.session,
        "name": worker.name,
        "host": worker.host,
        "process_id": worker.process_id,
        "slots": worker.slots,
        "capabilities": dict(worker.capabilities),
        "tasks": worker.tasks,
        "queued": worker.waiting,
        "tasks_sent": worker.sent,
        "tasks_finished": worker.finished,
        "tasks_failed": worker.failed,
        "finished_per_second": round(worker.finished_per_second, 3),
        "agent_cpu_percent": worker.cpu_permille / 10,
        "agent_resident_bytes": worker.resident_bytes,
        "host_free_bytes": worker.free_bytes,
        "latency_microseconds": worker.latency_microseconds,
        "is_congested": worker.is_congested,
        "is_leaving": worker.is_leaving,
        "drain_cause": worker.drain_cause,
        "processors": [_processor(each, functions, now) for each in worker.processors],
    }


def _processor(processor: ProcessorRecord, functions: Dict[int, FunctionFigures], now: int) -> Dict[str, Any]:
    function = functions.get(processor.task_function)
    return {
        "process_id": processor.process_id,
        "is_initialized": processor.is_initialized,
        "has_task": processor.has_task,
        "is_suspended": processor.is_suspended,
        "cpu_percent": processor.cpu_permille / 10,
        "resident_bytes": processor.resident_bytes,
        "queued": processor.queued,
        "task_function": function.name if function is not None and processor.task_client else None,
        "task_microseconds": processor.task_microseconds(now),
    }


def _client(client: ClientRecord) -> Dict[str, Any]:
    return {
        "session": client.session,
        "name": client.name,
        "host": client.host,
        "process_id": client.process_id,
        "tasks": client.tasks,
        "tasks_finished": client.finished,
        "tasks_failed": client.failed,
        "tasks_canceled": client.canceled,
        "bytes_in_flight": client.bytes_in_flight,
        "objects": client.objects,
        "object_bytes": client.object_bytes,
    }


def _function(function: FunctionFigures) -> Dict[str, Any]:
    return {
        "number": function.number,
        "name": function.name,
        "client": function.client,
        "running": function.running,
        "waiting": function.waiting,
        "tasks_finished": function.finished,
        "tasks_failed": function.failed,
        "finished_per_second": round(function.finished_per_second, 3),
        "busy_microseconds": function.busy_microseconds,
        "median_microseconds": round(function.quantile_microseconds(0.5)),
        "p95_microseconds": round(function.quantile_microseconds(0.95)),
    }


def _graph(graph: GraphRecord) -> Dict[str, Any]:
    return {
        "number": graph.number,
        "client": graph.client,
        "nodes": graph.nodes,
        "waiting": graph.waiting,
        "queued": graph.queued,
        "running": graph.running,
        "succeeded": graph.succeeded,
        "failed": graph.failed,
        "canceled": graph.canceled,
        "started_unix_seconds": graph.started_unix_microseconds / 1e6,
    }


def _actor(actor: ActorFigures) -> Dict[str, Any]:
    return {
        "id": actor.actor_id,
        "name": actor.name,
        "client": actor.client,
        "worker": actor.worker,
        "state": actor.state,
        "why_lost": actor.why_lost,
        "waiting": actor.waiting,
        "running": actor.running,
        "calls_finished": actor.finished,
        "calls_failed": actor.failed,
    }
