"""The columns of a SchedulerStatus: a snapshot, or what changed.

    take() ──▶ entries to be published ──some rows a call──▶ columns and names ──▶ SchedulerStatus

Rules:
- A publication costs time in proportion to what changed since the previous one. Many workers and actors may change all
  the time, so at most WORKERS_AT_ONCE and ACTORS_AT_ONCE of them are published at a time, in turn.
- It is made in parts, so that peers do not wait for it. Which entries it names is known from the beginning; the figures
  of each are of when it was read. What changes after that is in the next publication, too.
- A tenant's view of a publication has the same sequence number, and in it the rows and figures of the tenant alone,
  with the workers that serve it: without what these run for others.
- Nothing is decided here, and only the record of what was published is changed.
- The shell adds the figures of the process.
"""

from __future__ import annotations

from array import array
from itertools import chain
from typing import Any, Callable, Collection, Iterable, Iterator, List, NamedTuple, Optional, Tuple, TypeVar

from scaler_appliance.core.actor_calls.actor_table import ActorRecord
from scaler_appliance.core.demand.task_demand import TaskDemand
from scaler_appliance.core.monitoring.changes import Publishable, TakenChanges
from scaler_appliance.core.monitoring.counters import FunctionCounters, GraphCounters
from scaler_appliance.core.monitoring.running_tasks import NO_TASK, running_now
from scaler_appliance.core.objects.object_records import ObjectPlace, ObjectRecord
from scaler_appliance.core.peers.sessions import ClientSession
from scaler_appliance.core.peers.worker_session import RunningTask, WorkerSession
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.tasks.task_states import TaskState
from scaler_protocol import messages as m
from scaler_protocol.keys.allow_list import ANY_TENANT

WORKERS_AT_ONCE = ACTORS_AT_ONCE = 2000  # per increment; the others follow in turn
MAXIMUM_TEXT = 256  # characters of a name
LARGEST = (1 << 64) - 1  # the limit of a column: workers may report nonsensical durations
MAXIMUM_CAPABILITIES = 64  # of a worker
BUCKETS_PER_UNIT = 8  # of a histogram; about units see `Settings.work_per_call`

_SUCCEEDED, _FAILED, _LOST, _CANCELLED = map(
    int, (TaskState.SUCCEEDED, TaskState.FAILED, TaskState.LOST, TaskState.CANCELLED)
)
_NO_HEARTBEAT = m.Heartbeat()
_Entry = TypeVar("_Entry")
_Published = TypeVar("_Published", bound=Publishable)
_Units = Callable[[_Entry], int]
"""How much work it is to publish an entry."""


class _Contents(NamedTuple):
    """What a publication names."""

    workers: TakenChanges[WorkerSession]
    clients: TakenChanges[ClientSession]
    functions: TakenChanges[FunctionCounters]
    graphs: TakenChanges[GraphCounters]
    objects: TakenChanges[ObjectRecord]
    actors: TakenChanges[ActorRecord]

    def of(self, tenant: str) -> _Contents:
        """What a tenant may see."""
        objects = self.objects.of(lambda each: each.tenant == tenant)
        return _Contents(
            self.workers.of(lambda each: each.serves(tenant)),
            self.clients.of(lambda each: each.tenant == tenant),
            self.functions.of(lambda each: each.tenant == tenant),
            self.graphs.of(lambda each: each.tenant == tenant),
            # A result of a shared worker becomes the tenant's when others have seen its name already.
            TakenChanges(list(objects.entries), objects.entries, objects.gone),
            self.actors.of(lambda each: each.tenant == tenant),
        )


class StatusColumns:
    """The state in the form for monitors."""

    def __init__(self, state: SchedulerState, demand: TaskDemand) -> None:
        self.unix_offset_microseconds = 0  # Unix time at the zero of the scheduler's clock
        self._state = state
        self._demand = demand
        self._sequence = 0
        self._parts: Optional[Iterator[Optional[m.SchedulerStatus]]] = None  # of the publication that is being made
        self._taken: Optional[_Contents] = None  # changes that it publishes, or the last one has published
        self._is_snapshot = False  # that one
        self._view: Optional[Iterator[Optional[m.SchedulerStatus]]] = None  # of it, that is being made

    def take(self, is_snapshot: bool) -> Optional[m.SchedulerStatus]:
        """The changes since the previous publication, or everything for a snapshot; they count as published.

        Makes a part of the publication: None if there is more, which the next calls do, whatever `is_snapshot` is.
        """
        if self._parts is None:
            self._taken, self._is_snapshot = self._take_changes(is_snapshot), is_snapshot
            self._view = None
            # SCL-MON-005
            contents = self._everything() if is_snapshot else self._taken
            self._parts = self._made(contents, is_snapshot)
        status = next(self._parts)
        if status is not None:
            self._parts = None
            # SCL-MON-004
            self._sequence += 1
            status.sequence = self._sequence
        return status

    def take_view(self, tenant: str) -> Optional[m.SchedulerStatus]:
        """What a tenant may see of the publication that was made last; None if there is more, as with `take`."""
        if self._view is None:
            contents = self._everything() if self._is_snapshot or self._taken is None else self._taken
            self._view = self._made(contents.of(tenant), self._is_snapshot, tenant)
        status = next(self._view)
        if status is not None:
            self._view = None
            status.sequence = self._sequence
        return status

    def snapshot(self, tenant: str = ANY_TENANT) -> m.SchedulerStatus:
        """A snapshot, or a tenant's view of it, which does not count as published."""
        contents = self._everything() if tenant == ANY_TENANT else self._everything().of(tenant)
        return next(status for status in self._made(contents, True, tenant) if status is not None)

    def watch(self, is_watched: bool) -> None:
        """Subscribers have come, or the last one has gone: a publication that is being made will not be finished."""
        changes, taken = self._state.changes, self._taken
        if taken is not None and self._parts is not None:
            changes.workers.settle(taken.workers.entries)
            changes.clients.settle(taken.clients.entries)
            changes.functions.settle(taken.functions.entries)
            changes.graphs.settle(taken.graphs.entries)
            changes.objects.settle(taken.objects.entries)
            changes.actors.settle(taken.actors.entries)
        self._parts = self._taken = self._view = None
        changes.watch(is_watched)

    # What is published ----------------------------------------------------------------------------------------------

    def _take_changes(self, is_snapshot: bool) -> _Contents:
        changes = self._state.changes
        return _Contents(
            changes.workers.take(0 if is_snapshot else WORKERS_AT_ONCE),
            changes.clients.take(),
            changes.functions.take(),
            changes.graphs.take(),
            changes.objects.take(),
            changes.actors.take(0 if is_snapshot else ACTORS_AT_ONCE),
        )

    def _everything(self) -> _Contents:
        state = self._state
        clients = list(state.clients.values())
        return _Contents(
            _all(state.workers.values()),
            _all(clients),
            _all(state.changes.function_counters()),
            TakenChanges([], chain.from_iterable(map(_graphs_of, clients)), {}),
            _all(state.changes.objects.large.values()),
            _all(state.actors.known.values()),
        )

    # Making a publication -------------------------------------------------------------------------------------------

    def _made(
        self, contents: _Contents, is_snapshot: bool, tenant: str = ANY_TENANT
    ) -> Iterator[Optional[m.SchedulerStatus]]:
        """None after each part, and then the publication, or a tenant's view of it."""
        status = m.SchedulerStatus(is_snapshot=is_snapshot)
        done = 0
        for units in chain(self._columns(status, contents, tenant), self._identities(status, contents)):
            done += units
            if done >= self._state.part:
                done = 0
                yield None
        status.workers_gone = array("I", contents.workers.gone)
        status.clients_gone = array("I", contents.clients.gone)
        status.functions_gone = array("I", contents.functions.gone)
        status.graphs_gone = array("Q", contents.graphs.gone)
        status.objects_gone = array("Q", contents.objects.gone)
        status.actors_gone = array("Q", contents.actors.gone)
        self._add_figures(status, tenant)
        yield status

    def _columns(self, status: m.SchedulerStatus, contents: _Contents, tenant: str) -> Iterator[int]:
        """Add the figures of all entries, in parts; yields the amounts of work."""
        changes, part = self._state.changes, self._state.part
        gone = contents.workers.gone
        for workers, units in _in_parts(contents.workers.entries, _units_of_worker, part):
            _extend(status.workers, _worker_columns(workers))
            present = [each for each in workers if each.number not in gone]
            _extend(status.processors, self._processor_columns(present, tenant))
            changes.workers.settle(workers)
            yield units
        for clients, units in _in_parts(contents.clients.entries, _units_of_client, part):
            _extend(status.clients, _client_columns(clients))
            changes.clients.settle(clients)
            yield units
        for functions, units in _in_parts(contents.functions.entries, _units_of_function, part):
            _extend(status.functions, _function_columns(functions))
            changes.functions.settle(functions)
            yield units
        for graphs, units in _in_parts(contents.graphs.entries, _units_of_graph, part):
            _extend(status.graphs, self._graph_columns(graphs))
            changes.graphs.settle(graphs)
            yield units
        for objects, units in _in_parts(contents.objects.entries, _units_of_object, part):
            _extend(status.large_objects, _object_columns(objects))
            changes.objects.settle(objects)
            yield units
        # SCL-MON-012
        for actors, units in _in_parts(contents.actors.entries, _units_of_actor, part):
            _extend(status.actors, _actor_columns(actors))
            status.lost_actors += [
                m.LostActor(id=each.number, reason=each.known_loss) for each in actors if each.known_loss
            ]
            changes.actors.settle(actors)
            yield units

    def _identities(self, status: m.SchedulerStatus, contents: _Contents) -> Iterator[int]:
        """Add the names of new entries, in parts; yields the amounts of work."""
        part = self._state.part
        for workers, units in _in_parts(contents.workers.new, _units_of_worker_identity, part):
            status.new_workers += map(_worker_identity, workers)
            yield units
        for clients, units in _in_parts(contents.clients.new, _units_of_client, part):
            status.new_clients += map(_client_identity, clients)
            yield units
        for functions, units in _in_parts(contents.functions.new, _units_of_name, part):
            status.new_functions += [
                m.FunctionIdentity(number=each.number, name=each.name[:MAXIMUM_TEXT], client=each.client)
                for each in functions
            ]
            yield units
        for objects, units in _in_parts(contents.objects.new, _units_of_name, part):
            status.new_objects += [
                m.ObjectIdentity(id=record.object_id, name=record.name[:MAXIMUM_TEXT], kind=record.kind)
                for record in objects
            ]
            yield units
        for actors, units in _in_parts(contents.actors.new, _units_of_name, part):
            status.new_actors += [m.ActorIdentity(id=each.number, name=each.name, client=each.owner) for each in actors]
            yield units

    def _add_figures(self, status: m.SchedulerStatus, tenant: str) -> None:
        state, is_all = self._state, tenant == ANY_TENANT
        ended = state.finished if is_all else state.ended_of(tenant)
        unassigned = state.waiting_for(tenant)
        running = state.running if is_all else state.running_of(tenant)
        tasks = {
            "unassigned": unassigned,
            "waiting": state.nodes_waiting if is_all else state.unfinished_of(tenant) - running - unassigned,
            "running": running,
            "success": ended[_SUCCEEDED],
            "failed": ended[_FAILED],
            "canceled": ended[_CANCELLED],
            "lost": ended[_LOST],
            "stale": state.stale_results if is_all else 0,
        }
        status.scheduler_id = state.settings.scheduler_id
        status.implementation = state.settings.implementation
        status.is_protected = state.settings.protected
        if is_all:
            status.objects, status.object_bytes = len(state.objects), state.objects.total_bytes
            status.object_bytes_on_disk = state.objects.memory.bytes[ObjectPlace.ON_DISK]
        else:
            status.objects, status.object_bytes = state.objects.usage_of(tenant)
            own = [each for each in state.changes.objects.large.values() if each.tenant == tenant]
            status.object_bytes_on_disk = sum([each.size for each in own if each.place == ObjectPlace.ON_DISK])
        status.slots = state.slots_for(tenant)
        status.tasks = [m.Count(name=name, value=value) for name, value in tasks.items()]
        # SCL-MON-010
        status.demands = self._demand.demands(tenant)
        status.pools = self._demand.pools(tenant)
        # SCL-MON-011
        status.unit_notes = state.units.notes_for(tenant)
        status.waiting_reasons = [text for whose, text in state.changes.reasons if is_all or whose == tenant]

    def _processor_columns(self, workers: List[WorkerSession], tenant: str) -> m.ProcessorColumns:
        """What the processors run now, as far as workers have reported it; of other tenants, only that they do."""
        known = [(worker, worker.heartbeat.processors) for worker in workers if worker.heartbeat is not None]
        processors = list(chain.from_iterable([processors for _, processors in known]))
        dispatches = self._state.dispatches
        now = list(chain.from_iterable([running_now(worker, dispatches) for worker, _ in known]))
        tasks = [task if tenant == ANY_TENANT or self._is_of(task, tenant) else NO_TASK for _, task in now]
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

    def _is_of(self, task: RunningTask, tenant: str) -> bool:
        client = self._state.clients.get(task.client)
        return client is not None and client.tenant == tenant

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


# Parts ----------------------------------------------------------------------------------------------------------------


def _all(entries: Collection[_Published]) -> TakenChanges[_Published]:
    everything = list(entries)
    return TakenChanges(everything, everything, {})


def _graphs_of(client: ClientSession) -> List[GraphCounters]:
    """The graphs of a client at the moment when its turn has come."""
    return [graph.counters for graph in client.graphs.values()]


def _in_parts(entries: Iterable[_Entry], units_of: _Units[_Entry], part: int) -> Iterator[Tuple[List[_Entry], int]]:
    """Entries in lists that are about `part` units of work each."""
    some: List[_Entry] = []
    units = 0
    for entry in entries:
        some.append(entry)
        units += units_of(entry)
        if units >= part:
            yield some, units
            some, units = [], 0
    if some:
        yield some, units


def _extend(columns: Any, more: Any) -> None:
    """Append the entries of one struct of columns to those of another."""
    for name in columns.__slots__:
        column = getattr(columns, name)
        column += getattr(more, name)
        setattr(columns, name, column)


def _units_of_worker(worker: WorkerSession) -> int:
    return 3 if worker.heartbeat is None else 3 + 2 * len(worker.heartbeat.processors)


def _units_of_client(client: ClientSession) -> int:
    return 3


def _units_of_function(counters: FunctionCounters) -> int:
    return 2 + len(counters.durations) // BUCKETS_PER_UNIT


def _units_of_graph(counters: GraphCounters) -> int:
    return 2


def _units_of_object(record: ObjectRecord) -> int:
    return 2


def _units_of_actor(actor: ActorRecord) -> int:
    return 3 if actor.known_loss else 2


def _units_of_worker_identity(worker: WorkerSession) -> int:
    return 4 + len(worker.hello.capabilities)


def _units_of_name(entry: object) -> int:
    return 1


# Columns --------------------------------------------------------------------------------------------------------------


def _worker_columns(workers: List[WorkerSession]) -> m.WorkerColumns:
    beats = [worker.heartbeat or _NO_HEARTBEAT for worker in workers]
    return m.WorkerColumns(
        sessions=[worker.number for worker in workers],
        tasks=[worker.tasks for worker in workers],
        queued=[beat.queued for beat in beats],
        sent=[worker.sent for worker in workers],
        finished=[worker.finished for worker in workers],
        failed=[worker.failed for worker in workers],
        cpu_permille=[beat.cpu_permille for beat in beats],
        resident_bytes=[beat.resident_bytes for beat in beats],
        free_bytes=[beat.free_bytes for beat in beats],
        latency_microseconds=[beat.latency_microseconds for beat in beats],
        states=bytes([worker.is_congested | worker.leaving << 1 | worker.drain_cause << 2 for worker in workers]),
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


def _actor_columns(actors: List[ActorRecord]) -> m.ActorColumns:
    return m.ActorColumns(
        ids=[actor.number for actor in actors],
        workers=[actor.worker for actor in actors],
        waiting=[actor.unfinished - actor.open_calls for actor in actors],
        running=[actor.open_calls for actor in actors],
        finished=[actor.finished for actor in actors],
        failed=[actor.failed for actor in actors],
        states=bytes([actor.state for actor in actors]),
    )


# Names ----------------------------------------------------------------------------------------------------------------


def _worker_identity(worker: WorkerSession) -> m.WorkerIdentity:
    hello = worker.hello
    return m.WorkerIdentity(
        session=worker.number,
        name=hello.name[:MAXIMUM_TEXT],
        host=hello.host[:MAXIMUM_TEXT],
        process_id=hello.process_id,
        slots=hello.slots,
        implementation=_shortened(hello.implementation),
        capabilities=[
            m.Capability(name=each.name[:MAXIMUM_TEXT], amount=each.amount)
            for each in hello.capabilities[:MAXIMUM_CAPABILITIES]
        ],
    )


def _client_identity(client: ClientSession) -> m.ClientIdentity:
    return m.ClientIdentity(
        session=client.number,
        name=client.hello.name[:MAXIMUM_TEXT],
        host=client.hello.host[:MAXIMUM_TEXT],
        process_id=client.hello.process_id,
        implementation=_shortened(client.hello.implementation),
    )


def _shortened(implementation: m.Implementation) -> m.Implementation:
    texts = (implementation.name, implementation.version, implementation.language)
    if max(map(len, texts)) <= MAXIMUM_TEXT:
        return implementation
    name, version, language = (text[:MAXIMUM_TEXT] for text in texts)
    return m.Implementation(name=name, version=version, language=language)
