"""The columns of a SchedulerStatus: a snapshot, or what changed.

Rules:
- `take` costs time in proportion to what changed since the previous call. Many workers may change all the time, so at
  most WORKERS_AT_ONCE of them are published per call, in turn.
- Nothing is decided here, and only the record of what was published is changed.
- The shell adds the figures of the process.
"""

from __future__ import annotations

from array import array
from itertools import chain
from typing import Iterable, List

from scaler_appliance.core.monitoring.counters import FunctionCounters, GraphCounters
from scaler_appliance.core.monitoring.running_tasks import running_now
from scaler_appliance.core.objects.object_records import ObjectPlace, ObjectRecord
from scaler_appliance.core.peers.sessions import ClientSession, WorkerSession
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.tasks.task_states import TaskState
from scaler_protocol import messages as m

WORKERS_AT_ONCE = 2000  # per increment; the others follow in turn
MAXIMUM_TEXT = 256  # characters of a name
LARGEST = (1 << 64) - 1  # the limit of a column: workers may report nonsensical durations
MAXIMUM_CAPABILITIES = 64  # of a worker

_SUCCEEDED, _FAILED, _LOST, _CANCELLED = map(
    int, (TaskState.SUCCEEDED, TaskState.FAILED, TaskState.LOST, TaskState.CANCELLED)
)
_NO_HEARTBEAT = m.Heartbeat()


class StatusColumns:
    """The state in the form for monitors."""

    def __init__(self, state: SchedulerState) -> None:
        self.unix_offset_microseconds = 0  # Unix time at the zero of the scheduler's clock
        self._state = state
        self._sequence = 0

    def take(self, is_snapshot: bool) -> m.SchedulerStatus:
        """The changes since the previous call, or everything for a snapshot; they count as published."""
        # SCL-MON-004
        self._sequence += 1
        # SCL-MON-005
        status = self.snapshot() if is_snapshot else self._increment()
        status.sequence = self._sequence
        self._state.changes.clear(0 if is_snapshot else WORKERS_AT_ONCE)
        return status

    def snapshot(self) -> m.SchedulerStatus:
        """A snapshot, which does not count as published."""
        state = self._state
        status = self._header()
        status.is_snapshot = True
        workers, clients = list(state.workers.values()), list(state.clients.values())
        functions = state.changes.function_counters()
        graphs = [graph.counters for client in clients for graph in client.graphs.values()]
        objects = [record for record in state.objects.records() if state.changes.objects.is_large(record)]
        self._add_columns(status, workers, workers, clients, functions, graphs, objects)
        _add_identities(status, workers, clients, functions, objects)
        return status

    def _increment(self) -> m.SchedulerStatus:
        changes = self._state.changes
        status = self._header()
        status.is_snapshot = False
        workers = changes.workers.first(WORKERS_AT_ONCE)
        self._add_columns(
            status,
            workers,
            [worker for worker in workers if worker.number not in changes.workers.gone],
            changes.clients.dirty.values(),
            changes.functions.dirty.values(),
            changes.graphs.dirty.values(),
            changes.objects.dirty.values(),
        )
        _add_identities(
            status,
            changes.workers.new.values(),
            changes.clients.new.values(),
            changes.functions.new.values(),
            changes.objects.new.values(),
        )
        status.workers_gone = array("I", changes.workers.gone)
        status.clients_gone = array("I", changes.clients.gone)
        status.functions_gone = array("I", changes.functions.gone)
        status.graphs_gone = array("Q", changes.graphs.gone)
        status.objects_gone = array("Q", changes.objects.gone)
        return status

    def _header(self) -> m.SchedulerStatus:
        state = self._state
        ended = state.finished
        tasks = {
            "unassigned": len(state.ready),
            "waiting": state.nodes_waiting,
            "running": state.running,
            "success": ended[_SUCCEEDED],
            "failed": ended[_FAILED],
            "canceled": ended[_CANCELLED],
            "lost": ended[_LOST],
            "stale": state.stale_results,
        }
        return m.SchedulerStatus(
            scheduler_id=state.settings.scheduler_id,
            implementation=state.settings.implementation,
            is_protected=state.settings.protected,
            objects=len(state.objects),
            object_bytes=state.objects.total_bytes,
            object_bytes_on_disk=state.objects.memory.bytes[ObjectPlace.ON_DISK],
            slots=state.total_slots,
            tasks=[m.Count(name=name, value=value) for name, value in tasks.items()],
            waiting_reasons=state.changes.reasons,
        )

    def _add_columns(
        self,
        status: m.SchedulerStatus,
        workers: Iterable[WorkerSession],
        with_processors: Iterable[WorkerSession],
        clients: Iterable[ClientSession],
        functions: Iterable[FunctionCounters],
        graphs: Iterable[GraphCounters],
        objects: Iterable[ObjectRecord],
    ) -> None:
        status.workers = _worker_columns(list(workers))
        status.processors = self._processor_columns(list(with_processors))
        status.clients = _client_columns(list(clients))
        status.functions = _function_columns(list(functions))
        status.graphs = self._graph_columns(list(graphs))
        status.large_objects = _object_columns(list(objects))

    def _processor_columns(self, workers: List[WorkerSession]) -> m.ProcessorColumns:
        """What the processors run now, as far as workers have reported it."""
        known = [(worker, worker.heartbeat.processors) for worker in workers if worker.heartbeat is not None]
        processors = list(chain.from_iterable([processors for _, processors in known]))
        dispatches = self._state.dispatches
        now = list(chain.from_iterable([running_now(worker, dispatches) for worker, _ in known]))
        tasks = [task for _, task in now]
        return m.ProcessorColumns(
            workers=[worker.number for worker, processors in known for _ in processors],
            process_ids=[each.process_id for each in processors],
            states=bytes(
                [each.initialized | has_task << 1 | each.suspended << 2 for each, (has_task, _) in zip(processors, now)]
            ),
            cpu_permille=[each.cpu_permille for each in processors],
            resident_bytes=[each.resident_bytes for each in processors],
            queued=[each.queued if has_task else 0 for each, (has_task, _) in zip(processors, now)],
            task_clients=[task.client for task in tasks],
            task_ids=[task.task_id for task in tasks],
            task_functions=[task.function for task in tasks],
            task_microseconds=[task.microseconds for task in tasks],
        )

    def _graph_columns(self, graphs: List[GraphCounters]) -> m.GraphColumns:
        offset = self.unix_offset_microseconds
        return m.GraphColumns(
            numbers=[each.number for each in graphs],
            clients=[each.client for each in graphs],
            first_tasks=[each.first_task for each in graphs],
            nodes=[each.nodes for each in graphs],
            waiting=[each.waiting for each in graphs],
            queued=[each.queued for each in graphs],
            running=[each.running for each in graphs],
            succeeded=[each.ended[_SUCCEEDED] for each in graphs],
            failed=[each.ended[_FAILED] + each.ended[_LOST] for each in graphs],
            canceled=[each.ended[_CANCELLED] for each in graphs],
            started_unix_microseconds=[offset + int(each.started * 1e6) for each in graphs],
        )


# Columns --------------------------------------------------------------------------------------------------------------


def _worker_columns(workers: List[WorkerSession]) -> m.WorkerColumns:
    beats = [worker.heartbeat or _NO_HEARTBEAT for worker in workers]
    return m.WorkerColumns(
        sessions=[worker.number for worker in workers],
        tasks=[worker.assigned for worker in workers],
        queued=[beat.queued for beat in beats],
        sent=[worker.sent for worker in workers],
        finished=[worker.finished for worker in workers],
        failed=[worker.failed for worker in workers],
        cpu_permille=[beat.cpu_permille for beat in beats],
        resident_bytes=[beat.resident_bytes for beat in beats],
        free_bytes=[beat.free_bytes for beat in beats],
        latency_microseconds=[beat.latency_microseconds for beat in beats],
        states=bytes([worker.is_congested | worker.leaving << 1 for worker in workers]),
        processors=[len(beat.processors) for beat in beats],
    )


def _client_columns(clients: List[ClientSession]) -> m.ClientColumns:
    ended = [client.ended for client in clients]
    return m.ClientColumns(
        sessions=[client.number for client in clients],
        tasks=[client.unfinished for client in clients],
        finished=[sum(each) for each in ended],
        failed=[each[_FAILED] + each[_LOST] for each in ended],
        canceled=[each[_CANCELLED] for each in ended],
        bytes_in_flight=[client.flow.bytes_in_flight for client in clients],
        objects=[len(client.objects) for client in clients],
        object_bytes=[client.object_bytes for client in clients],
    )


def _function_columns(functions: List[FunctionCounters]) -> m.FunctionColumns:
    durations = [sorted(each.durations.items()) for each in functions]
    return m.FunctionColumns(
        numbers=[each.number for each in functions],
        finished=[each.ended[_SUCCEEDED] + each.ended[_FAILED] + each.ended[_LOST] for each in functions],
        failed=[each.ended[_FAILED] + each.ended[_LOST] for each in functions],
        busy_microseconds=[min(int(each.busy_microseconds), LARGEST) for each in functions],
        running=[each.running for each in functions],
        waiting=[each.unfinished - each.running for each in functions],
        duration_counts=[len(each) for each in durations],
        duration_buckets=bytes([bucket for each in durations for bucket, _ in each]),
        duration_tasks=[count for each in durations for _, count in each],
    )


def _object_columns(records: List[ObjectRecord]) -> m.ObjectColumns:
    return m.ObjectColumns(
        ids=[record.object_id for record in records],
        owners=[record.owner for record in records],
        sizes=[record.size for record in records],
        states=bytes(
            [
                (record.place == ObjectPlace.ON_DISK) | (record.arrived < record.size) << 1 | (not record.held) << 2
                for record in records
            ]
        ),
    )


# Names ----------------------------------------------------------------------------------------------------------------


def _add_identities(
    status: m.SchedulerStatus,
    workers: Iterable[WorkerSession],
    clients: Iterable[ClientSession],
    functions: Iterable[FunctionCounters],
    objects: Iterable[ObjectRecord],
) -> None:
    status.new_workers = [
        m.WorkerIdentity(
            session=worker.number,
            name=worker.hello.name[:MAXIMUM_TEXT],
            host=worker.hello.host[:MAXIMUM_TEXT],
            process_id=worker.hello.process_id,
            slots=worker.hello.slots,
            implementation=_shortened(worker.hello.implementation),
            capabilities=[
                m.Capability(name=each.name[:MAXIMUM_TEXT], amount=each.amount)
                for each in worker.hello.capabilities[:MAXIMUM_CAPABILITIES]
            ],
        )
        for worker in workers
    ]
    status.new_clients = [
        m.ClientIdentity(
            session=client.number,
            name=client.hello.name[:MAXIMUM_TEXT],
            host=client.hello.host[:MAXIMUM_TEXT],
            process_id=client.hello.process_id,
            implementation=_shortened(client.hello.implementation),
        )
        for client in clients
    ]
    status.new_functions = [
        m.FunctionIdentity(number=each.number, name=each.name[:MAXIMUM_TEXT], client=each.client) for each in functions
    ]
    status.new_objects = [
        m.ObjectIdentity(id=record.object_id, name=record.name[:MAXIMUM_TEXT], kind=record.kind) for record in objects
    ]


def _shortened(implementation: m.Implementation) -> m.Implementation:
    texts = (implementation.name, implementation.version, implementation.language)
    if max(map(len, texts)) <= MAXIMUM_TEXT:
        return implementation
    name, version, language = (text[:MAXIMUM_TEXT] for text in texts)
    return m.Implementation(name=name, version=version, language=language)
