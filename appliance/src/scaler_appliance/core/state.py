"""Everything the scheduler knows, in one place; reactions are methods of the modules beside this one.

Rules:
- Data and small accessors only: no decision is taken here.
- `check_invariants` holds between any two events; tests and simulations call it after each one.
"""

from __future__ import annotations

from collections import Counter
from operator import add
from typing import Any, Dict, List, NamedTuple, Sequence
from typing import Counter as Counts

from scaler_appliance.core.actor_calls.actor_table import ActorRecord, ActorTable
from scaler_appliance.core.demand.unit_table import UnitTable
from scaler_appliance.core.effects import Buffer, Effect, Log, Send
from scaler_appliance.core.graphs.graph_nodes import Graph, GraphBatch
from scaler_appliance.core.large_tables import Table
from scaler_appliance.core.memory_budget import MemoryBudget
from scaler_appliance.core.monitoring.counters import FunctionCounters
from scaler_appliance.core.monitoring.run_entries import RunEntries
from scaler_appliance.core.monitoring.status_changes import StatusChanges
from scaler_appliance.core.objects.object_memory import ObjectMemory
from scaler_appliance.core.objects.object_table import ObjectTable
from scaler_appliance.core.objects.object_transfers import ObjectTransfers, fetches_from_workers
from scaler_appliance.core.objects.transfer_rates import TransferRates
from scaler_appliance.core.peers.sessions import ClientSession, Session
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.placement.ready_queues import ReadyQueues
from scaler_appliance.core.placement.tenant_shares import TenantShares, limits_of
from scaler_appliance.core.steps import PARTS_PER_CALL
from scaler_appliance.core.tasks.batches import Dispatch, TaskBatch
from scaler_appliance.core.tasks.figures_by_function import FiguresByFunction
from scaler_appliance.core.tasks.held_results import HeldResults
from scaler_appliance.core.tasks.memory_needs import MemoryNeeds
from scaler_appliance.core.tasks.task_states import FINAL_STATES, TaskState, runs
from scaler_protocol import messages as m
from scaler_protocol.keys.allow_list import ANY_TENANT, Grant
from scaler_protocol.session.fetching import FETCH_WINDOW_CHUNKS
from scaler_protocol.session.object_numbers import object_numbers

BACKLOG_TASKS = 32_768  # of one client: some 0.1 s of the shortest tasks


class Settings(NamedTuple):
    """Options of the scheduler that its decisions depend on. Times in seconds, sizes in bytes."""

    client_timeout_seconds: float = 300.0
    worker_timeout_seconds: float = 60.0
    heartbeat_interval_seconds: float = 2.0
    per_worker_queue_size: int = 1000
    max_number_of_tasks_waiting: int = -1
    protected: bool = True
    prefetch_seconds: float = 0.15
    transfer_bytes_per_second: float = 200e6  # that one worker gets from another, before that was measured
    demand_target_seconds: float = 10.0  # in which all work should be done: see `slots_wanted`
    maximum_attempts: int = 4
    maximum_peers: int = 0  # 0: no limit
    client_tasks_in_flight: int = 1024 * 1024
    client_bytes_in_flight: int = 256 * 1024 * 1024
    maximum_message_bytes: int = 512 * 1024 * 1024
    maximum_object_bytes: int = 1 << 40
    memory_limit_bytes: int = 0  # of the heap and of object files in memory; 0: no limit
    object_memory_limit_bytes: int = 0  # of object files in memory; 0: no limit
    smallest_file_bytes: int = 1024  # whose name, which is kept in memory, takes about as much there as a content
    object_spill_directory: str = ""  # where they are spilled to above it
    chunk_bytes: int = 1024 * 1024
    spread_bytes: int = 1024 * 1024  # of an object that workers fetch from one another, though it is here
    inline_bytes: int = 64 * 1024
    implementation: m.Implementation = m.Implementation(name="scaler-appliance")
    scheduler_id: bytes = bytes(16)
    last_session: int = 0  # session numbers begin above it: two schedulers at an address must not share any
    object_directory: str = ""
    object_directory_token: bytes = b""
    monitor_address: str = ""
    ticket_seed: bytes = bytes(32)  # random, for tickets of transfers between workers, and numbers of objects
    requires_grants: bool = False  # of each peer, see `on_authenticated`; without it, all are owners
    tenants: Sequence[Sequence[Any]] = ()  # see `tenant_shares.limits_of`
    work_per_call: int = 4000  # units, of what may be done in parts: see `pending_work`


class SchedulerState:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.part = max(1, settings.work_per_call // PARTS_PER_CALL)  # units of work between two steps
        self.now = 0.0  # by the caller's clock, at the last event
        self.is_watched = False  # by monitors
        self.effects: List[Effect] = []
        self.sessions: Dict[bytes, Session] = {}  # by peer
        self.grants: Dict[bytes, Grant] = {}  # by peer, with a session or without
        self.clients: Dict[int, ClientSession] = {}  # by session number
        self.workers: Dict[int, WorkerSession] = {}
        self.workers_by_place: Dict[str, Dict[int, WorkerSession]] = {}
        self.worker_hosts: Counts[str] = Counter()  # how many workers are on each host, as they call it
        self.sharing: Dict[int, WorkerSession] = {}  # workers that are known to see our files of objects
        self.apart: Dict[int, WorkerSession] = {}  # those that are known not to, and fetch from one another
        self.offers: Counts[int] = Counter()  # how many workers offer so many capabilities
        self.over_committed: Dict[int, WorkerSession] = {}  # hold more tasks than slots, or did when last looked at
        self.total_slots = 0  # of all workers
        self.slots: Dict[str, int] = {}  # of the workers of each tenant
        self.last_session = settings.last_session
        self.touched: Dict[int, Session] = {}  # with messages to send at the end of this burst
        self.changes = StatusChanges(settings.inline_bytes)
        self.runs = RunEntries()
        directory = settings.object_spill_directory
        memory = ObjectMemory(self.effects, settings.object_memory_limit_bytes, directory, self.changes.objects)
        self.budget = MemoryBudget(settings.memory_limit_bytes)
        self.transfers = ObjectTransfers(
            self.effects,
            self.workers,
            self.clients,
            settings.ticket_seed,
            now=lambda: self.now,
            rates=TransferRates(settings.transfer_bytes_per_second, settings.chunk_bytes),
            window_bytes=FETCH_WINDOW_CHUNKS * settings.chunk_bytes,
        )
        self.object_numbers = object_numbers(settings.ticket_seed)  # that the scheduler makes for clients
        self.objects = ObjectTable(
            self.effects,
            settings.chunk_bytes,
            memory,
            self.changes.objects,
            self.budget,
            settings.smallest_file_bytes,
            self.is_current,
            self.transfers,
            settings.spread_bytes,
        )
        self.ready = ReadyQueues()
        self.actors = ActorTable()
        self.rid_of_actors: Dict[int, WorkerSession] = {}  # hear of it before they get tasks with what these have used
        self.shares = TenantShares(limits_of(settings.tenants))
        self.has_quotas = self.shares.has_quotas
        self.advancing: Dict[int, ClientSession] = {}  # clients with graphs of which nodes have ended
        self.departing: Dict[int, Session] = {}  # that are gone, and still hold something
        self.nodes_waiting = 0  # nodes of graphs, and other tasks, that wait for others
        self.dispatches: Table[Dispatch] = {}
        self.last_dispatch = 0
        self.durations = FiguresByFunction()  # microseconds, on average, at a worker whose pace is 1.0
        self.memory_needs = MemoryNeeds(self.durations)
        self.held_results = HeldResults()
        self.ended_of_tenants: Dict[str, List[int]] = {}  # tasks by state, of clients that are gone
        self.finished = [0] * len(TaskState)  # how many tasks ended in each state
        self.stale_results = 0
        self.useless: Dict[bytes, int] = {}  # work that has led to nothing, in units, by peer; until the shell takes it
        self.running = 0  # tasks at workers
        self.units = UnitTable()  # of provisioners

    @property
    def has_actors(self) -> bool:
        """Whether there are actors, or workers have to hear of their end."""
        return bool(self.actors.known or self.rid_of_actors)

    def log(self, level: str, text: str) -> None:
        self.effects.append(Log(level, text))

    def send(self, peer: bytes, message: m.Member, payload: Sequence[Buffer] = ()) -> None:
        self.effects.append(Send(peer, message, payload))

    def is_current(self, peer: bytes, number: int) -> bool:
        """Whether the session of a peer has this number."""
        session = self.sessions.get(peer)
        return session is not None and session.number == number

    def count_useless(self, session: Session, units: int) -> None:
        """A peer has caused work that leads to nothing."""
        self.useless[session.peer] = self.useless.get(session.peer, 0) + units

    def add_worker(self, worker: WorkerSession) -> None:
        """A worker has joined."""
        self.workers[worker.number] = worker
        self.workers_by_place.setdefault(worker.place, {})[worker.number] = worker
        self.offers[len(worker.capabilities)] += 1

    def remove_worker(self, worker: WorkerSession) -> None:
        """A worker is gone, and holds nothing any more."""
        del self.workers[worker.number], self.workers_by_place[worker.place][worker.number]
        if not self.workers_by_place[worker.place]:
            del self.workers_by_place[worker.place]
        self.sharing.pop(worker.number, None)
        self.apart.pop(worker.number, None)
        offered = len(worker.capabilities)
        self.offers[offered] -= 1
        if not self.offers[offered]:
            del self.offers[offered]

    def note_sharing(self, worker: WorkerSession) -> None:
        """A heartbeat says whether a worker sees our files."""
        sees, others = (self.apart, self.sharing) if worker.is_apart else (self.sharing, self.apart)
        others.pop(worker.number, None)
        if not worker.is_apart or fetches_from_workers(worker):
            sees[worker.number] = worker

    @property
    def moves_bytes(self) -> bool:
        """Whether tasks may need objects that some workers have to fetch, which takes time."""
        return self.objects.has_kept or bool(self.apart and self.objects.spread)

    def add_slots(self, worker: WorkerSession, count: int) -> None:
        """A worker has come, or with a negative `count` gone."""
        host = worker.hello.host
        self.worker_hosts[host] += 1 if count > 0 else -1
        if not self.worker_hosts[host]:
            del self.worker_hosts[host]
        self.total_slots += count
        self.slots[worker.tenant] = self.slots.get(worker.tenant, 0) + count

    def slots_for(self, tenant: str) -> int:
        """The slots of all workers that run tasks of a tenant."""
        if tenant == ANY_TENANT:
            return self.total_slots
        return self.slots.get(tenant, 0) + self.slots.get(ANY_TENANT, 0)

    def waiting_for(self, tenant: str) -> int:
        """How many tasks wait for a worker of a tenant."""
        return len(self.ready) if tenant == ANY_TENANT else self.ready.waiting_of(tenant)

    def forget_figures(self, client: ClientSession) -> None:
        """A client is gone: what its tasks came to counts for its tenant."""
        before = self.ended_of_tenants.get(client.tenant, [0] * len(TaskState))
        self.ended_of_tenants[client.tenant] = list(map(add, before, client.ended))

    def ended_of(self, tenant: str) -> List[int]:
        """How many tasks of a tenant ended in each state; takes one pass over all clients."""
        ended = self.ended_of_tenants.get(tenant, [0] * len(TaskState))
        for client in self.clients.values():
            if client.tenant == tenant:
                ended = list(map(add, ended, client.ended))
        return ended

    def unfinished_of(self, tenant: str) -> int:
        """How many tasks of a tenant have no outcome yet; takes one pass over all clients."""
        return sum([client.unfinished for client in self.clients.values() if client.tenant == tenant])

    def running_of(self, tenant: str) -> int:
        """How many tasks of a tenant are at workers; takes one pass over all functions."""
        return sum([each.running for each in self.changes.function_counters() if each.tenant == tenant])

    def has_backlog(self, peer: bytes) -> bool:
        """Whether a peer is a client of which so many tasks wait that more of them could only wait."""
        session = self.sessions.get(peer)
        return isinstance(session, ClientSession) and session.unfinished > BACKLOG_TASKS + 2 * self.running

    def waiting(self) -> int:
        """How many tasks have not been sent to a worker: they wait for one, or for other tasks."""
        return len(self.ready) + self.nodes_waiting

    def free_and_answer(self) -> None:
        """Free a part of what queues have dropped, and answer some requests that have waited."""
        if self.ready.has_dropped:
            self.ready.free_some(self.settings.work_per_call)
        if self.objects.to_answer:
            self.objects.answer_some(self.part)

    def advance(self, client: ClientSession, graph: Graph) -> None:
        """Nodes of a graph have ended or become ready: the consequences follow after the burst."""
        if not client.is_gone:
            client.mark_advancing(graph)
            self.advancing[client.number] = client

    # Totals, and changes for monitors -----------------------------------------------------------------------------

    def count_assigned(self, dispatch: Dispatch, worker: WorkerSession, count: int) -> None:
        """A worker got tasks; with a negative `count`, it no longer has them."""
        batch = dispatch.batch
        counters = batch.counters
        self.running += count
        counters.running += count
        if self.has_quotas:
            self.shares.count_running(batch.tenant, count)
        if not worker.is_dirty:
            self.changes.workers.touch(worker.number, worker)
        if not counters.is_dirty:
            self.changes.functions.touch(counters.number, counters)
        if isinstance(batch, GraphBatch):
            batch.graph.counters.running += count
            self.touch_graph(batch.graph)

    def count_ended(self, client: ClientSession, counters: FunctionCounters, state: int, count: int) -> None:
        """Tasks of batches ended in `state`."""
        self.finished[state] += count
        client.ended[state] += count
        counters.ended[state] += count
        client.unfinished -= count
        counters.unfinished -= count
        if not (counters.unfinished or counters.is_listed):
            self.changes.list_idle(counters)
        if not counters.is_dirty:
            self.changes.functions.touch(counters.number, counters)
        if not client.is_dirty:
            self.changes.clients.touch(client.number, client)

    def note_load(self, worker: WorkerSession) -> None:
        """The tasks of a worker, or its slots, changed."""
        if worker.assigned > worker.slots:
            self.over_committed[worker.number] = worker

    def touch_actor(self, actor: ActorRecord) -> None:
        """Figures of an actor changed."""
        if not actor.is_dirty:
            self.changes.actors.touch(actor.number, actor)

    def touch_graph(self, graph: Graph) -> None:
        """Figures of a graph changed."""
        self.changes.graphs.touch(graph.counters.number, graph.counters)

    def touch_session(self, session: Session) -> None:
        """Figures of a peer changed."""
        if session.is_dirty:
            return
        if isinstance(session, ClientSession):
            self.changes.clients.touch(session.number, session)
        elif isinstance(session, WorkerSession):
            self.changes.workers.touch(session.number, session)

    # Checking -------------------------------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Cross-check all indexes; takes time in proportion to the whole state."""
        queued = 0
        by_place = [worker for workers in self.workers_by_place.values() for worker in workers.values()]
        assert sorted(self.workers) == sorted(worker.number for worker in by_place)
        assert self.offers == Counter(len(worker.capabilities) for worker in by_place)
        hosts = Counter(worker.hello.host for worker in by_place if not worker.is_gone)
        assert dict(self.worker_hosts) == hosts, "hosts of workers are not counted right"
        references: Dict[int, int] = {}  # by object
        charged_bytes = dict.fromkeys(self.clients, 0)
        for record in self.objects.records():
            if record.charged_to in charged_bytes:
                charged_bytes[record.charged_to] += record.size
        for number, client in self.clients.items():
            tasks_in_flight, bytes_in_flight = 0, charged_bytes[number]
            for batch in client.batches():
                assert batch.client == number
                queued += self._check_batch(batch)
                if batch.is_charged:
                    tasks_in_flight += batch.unfinished
                    bytes_in_flight += batch.charged_bytes
                if batch.function:
                    references[batch.function] = references.get(batch.function, 0) + 1
                if batch.dependency_counts:
                    for start, stop in runs(batch.states.translate(_IS_FINAL), 0, len(batch), False):
                        for object_id in batch.dependencies_of(start, stop):
                            references[object_id] = references.get(object_id, 0) + 1
            client.dependants.check_invariants()
            for dependant in client.dependants.waiting.values():
                tasks_in_flight += 1
                bytes_in_flight += len(dependant.payload)
                for object_id in dependant.references():
                    references[object_id] = references.get(object_id, 0) + 1
            for object_id in client.dependants.references():
                references[object_id] = references.get(object_id, 0) + 1
            for unneeded in client.unneeded_objects:
                for object_id in unneeded:
                    references[object_id] = references.get(object_id, 0) + 1
            self._check_client(client, tasks_in_flight, bytes_in_flight)
        self.ready.check_invariants(set(self.clients))
        self._check_actors()
        assert queued == len(self.ready), f"{queued} tasks are QUEUED, {len(self.ready)} are waiting"
        self._check_workers()
        assert len(self.sessions) == len(self.clients) + len(self.workers) - len(self.departing)
        for number, session in self.departing.items():
            assert session.is_gone and (number in self.clients or number in self.workers)
        self._check_graphs(references)
        self._check_objects(references)
        self._check_totals()

    def _check_totals(self) -> None:
        """Check the counters for monitors."""
        changes = self.changes
        changes.check_invariants()
        unfinished: Dict[int, int] = {}
        running: Dict[int, int] = {}
        ended = [0] * len(TaskState)
        for client in self.clients.values():
            ended = [before + more for before, more in zip(ended, client.ended)]
            open_nodes = sum(graph.unfinished for graph in client.graphs.values())
            open_tasks = sum(batch.unfinished for batch in client.batches() if not isinstance(batch, GraphBatch))
            open_tasks += len(client.dependants.waiting)
            assert client.unfinished == open_tasks + open_nodes, f"{client.label}: {client.unfinished} counted"
            for batch in client.batches():
                at_workers = sum(dispatch.open_count for dispatch in batch.dispatches.values())
                number = batch.counters.number
                unfinished[number] = unfinished.get(number, 0) + batch.unfinished
                running[number] = running.get(number, 0) + at_workers
            for graph in client.graphs.values():
                dispatches = {
                    id(each): each for _, batch in graph.batches.values() for each in batch.dispatches.values()
                }
                assert graph.counters.running == sum(dispatch.open_count for dispatch in dispatches.values())
        assert all(total >= known for total, known in zip(self.finished, ended))
        for counters in changes.function_counters():
            assert counters.unfinished == unfinished.get(counters.number, 0), (
                f"{counters.name}: {counters.unfinished} unfinished"
            )
            assert counters.running == running.get(counters.number, 0), (
                f"{counters.name}: {counters.running} at workers"
            )
        assert self.running == sum(worker.tasks for worker in self.workers.values())
        self.objects.check_usage()
        for tenant, count in self.shares.running.items():
            assert 0 <= count == self.running_of(tenant), f"{count} tasks of {tenant} are counted"
        for worker in self.workers.values():
            assert 0 <= worker.failed <= worker.finished <= worker.sent - worker.tasks
        for session in self.sessions.values():
            sizes = [record.size for record in map(self.objects.find, session.objects) if record is not None]
            assert session.object_bytes == sum(sizes), f"{session.label}: {session.object_bytes} bytes counted"

    def _check_batch(self, batch: TaskBatch) -> int:
        """Check that each task at a worker is an open instance of one dispatch; returns how many are QUEUED."""
        states = batch.states
        queued = states.count(_QUEUED)
        held = open_tasks = 0
        for number, dispatch in batch.dispatches.items():
            assert self.dispatches[number] is dispatch
            open_tasks += dispatch.open_count
            held += int.from_bytes(dispatch.open, "little") << 8 * dispatch.start  # one byte a task: counts of holders
        at_workers = int.from_bytes(states.translate(_IS_AT_WORKER), "little")
        assert held == at_workers, f"tasks at workers {at_workers:x}, held {held:x}"
        open_tasks += queued
        assert batch.unfinished == open_tasks > 0, f"{batch.unfinished} counted, {open_tasks} open"
        return queued

    def _check_client(self, client: ClientSession, tasks_in_flight: int, bytes_in_flight: int) -> None:
        flow = client.flow
        assert flow.tasks_in_flight == tasks_in_flight, f"{flow.tasks_in_flight} tasks charged, not {tasks_in_flight}"
        assert flow.bytes_in_flight == bytes_in_flight, f"{flow.bytes_in_flight} bytes charged, not {bytes_in_flight}"
        large = client.large_results.sizes()
        assert client.large_results.total_bytes == sum(large.values()) and client.objects.keys() >= large.keys()

    def _check_workers(self) -> None:
        total_slots = dispatches = 0
        for number, worker in self.workers.items():
            assigned = 0
            calls: Dict[int, int] = {}
            for dispatch in worker.dispatches.values():
                assert dispatch.worker == number and self.dispatches[dispatch.number] is dispatch
                assert dispatch.batch.dispatches[dispatch.number] is dispatch
                assert dispatch.open_count == dispatch.open.count(True) > 0
                assigned += dispatch.open_count
                if dispatch.is_of_actor:
                    calls[dispatch.batch.function] = calls.get(dispatch.batch.function, 0) + dispatch.open_count
            actors = {each.function: each.open_calls for each in self.actors.at(number)}
            assert actors.keys() == worker.actors.keys(), f"{worker.label} has other actors than the table says"
            assert {function: count for function, count in actors.items() if count} == calls
            assert worker.calls_behind == sum(calls.values()) - len(calls), f"{worker.calls_behind} calls counted"
            is_known = worker.assigned <= worker.slots or number in self.over_committed or worker.is_gone
            assert is_known, f"{worker.label} is over-committed"
            assert worker.tasks == assigned, f"{worker.label}: {worker.tasks} counted, {assigned} open"
            worker.check_invariants()
            total_slots += 0 if worker.is_gone else worker.hello.slots
            dispatches += len(worker.dispatches)
        assert self.total_slots == total_slots == sum(self.slots.values())
        assert self.workers.keys() >= self.over_committed.keys()
        assert len(self.dispatches) == dispatches

    def _check_actors(self) -> None:
        self.actors.check_invariants()
        unfinished: Dict[int, int] = {}
        for client in self.clients.values() if len(self.actors) else ():
            for batch in client.batches():
                if batch.options.actor:
                    unfinished[batch.function] = unfinished.get(batch.function, 0) + batch.unfinished
        for actor in self.actors:
            assert actor.unfinished == unfinished.get(actor.function, 0), f"{actor.label}: {actor.unfinished} counted"
            record = self.objects.find(actor.function)
            assert record is not None and record.owner == actor.owner, f"the actor {actor.function:x} has no object"
            assert not actor.worker or actor.worker in self.workers
            assert not (actor.worker and actor.why_lost) or self.workers[actor.worker].is_gone

    def _check_graphs(self, references: Dict[int, int]) -> None:
        """Check that the columns of graphs agree with their batches; adds the references of waiting nodes."""
        nodes_waiting = 0
        for client in self.clients.values():
            nodes_waiting += len(client.dependants.waiting)
            for graph in client.graphs.values():
                graph.check_invariants(client.is_gone)
                nodes_waiting += graph.states.count(TaskState.WAITING)
                is_settled = graph.unfinished and not graph.has_consequences
                assert (
                    is_settled
                    or graph.counters.number in client.advancing
                    or graph.checked < len(graph)
                    or client.is_gone
                )
                for node, batch in graph.batches.values():
                    assert batch.states[graph.place_of(node)[1]] not in FINAL_STATES
                for object_id in graph.references():
                    references[object_id] = references.get(object_id, 0) + 1
            for task_id in client.unasked_cancels:
                found = client.find_node(task_id)
                assert found is not None, f"a cancel without a request: {task_id} is not a node"
                batch, index = found[0].place_of(found[1])
                assert batch.states[index] == TaskState.CANCELLING
            for number, graph in client.advancing.items():
                assert client.graphs[graph.ids[0]] is graph and graph.counters.number == number
        assert self.nodes_waiting == nodes_waiting, f"{self.nodes_waiting} counted, {nodes_waiting} wait for others"

    def _check_objects(self, references: Dict[int, int]) -> None:
        total_bytes = 0
        for record in self.objects.records():
            object_id = record.object_id
            assert record.references == references.get(object_id, 0), f"object {object_id:x}"
            if record.held:
                owner = self.clients.get(record.owner) or self.workers.get(record.owner)
                assert owner is not None and object_id in owner.objects
            else:
                assert record.references > 0
            for number in record.announced_to:
                assert object_id in self.workers[number].known_objects
            total_bytes += record.size
        assert self.objects.total_bytes == total_bytes
        self.objects.memory.check_invariants(self.objects.records())
        self.transfers.check_invariants(self.objects.records())


_QUEUED = int(TaskState.QUEUED)
_IS_AT_WORKER = bytes(state in (TaskState.ASSIGNED, TaskState.CANCELLING) for state in range(256))
_IS_FINAL = bytes(state in FINAL_STATES for state in range(256))
