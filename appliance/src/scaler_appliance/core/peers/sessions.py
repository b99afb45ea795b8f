"""Peers that have said Hello.

Rules:
- A session number is granted only once while the scheduler runs; a peer that comes back is a new peer.
- A session ends with its connection: nothing is kept for a peer that might come back (see ADR 0005).
- A session holds what must end with it: a worker's dispatches, a client's batches and objects.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from math import inf
from typing import ClassVar, Deque, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from scaler_appliance.core.actor_calls.actor_table import ACTORS, MAXIMUM_ACTORS_OF_WORKER, ActorRecord
from scaler_appliance.core.graphs.dependants import Dependants
from scaler_appliance.core.graphs.graph_nodes import Graph, GraphBatch
from scaler_appliance.core.large_tables import LARGE, Table, drained, in_chunks
from scaler_appliance.core.objects.object_records import ObjectRecord
from scaler_appliance.core.peers.authority import OWNER_GRANT
from scaler_appliance.core.peers.client_flow import ClientFlow
from scaler_appliance.core.tasks.batches import Dispatch, Needs, TaskBatch
from scaler_appliance.core.tasks.client_results import ClientResults, ResultSpan
from scaler_appliance.core.tasks.first_ids import FirstIds
from scaler_appliance.core.tasks.task_states import TaskState
from scaler_protocol import messages as m
from scaler_protocol.keys.allow_list import ANY_TENANT, Grant

MAXIMUM_LABEL_CHARACTERS = 256  # of a peer's name, and of its host
_ROUNDING = 1e-9  # of sums and quotients of capability amounts
DISTANT_MICROSECONDS = 20_000.0  # for messages there and back: more than a busy worker in the same data centre takes
_LONGEST_ROUND_TRIP_MICROSECONDS = 2e6  # that is believed
_LATENCIES = 4  # the least of so many counts, since large messages in between delay a heartbeat

Capabilities = Tuple[Tuple[str, float], ...]


class RunningTask(NamedTuple):
    """What a processor runs, by its worker's last heartbeat."""

    client: int = 0  # session
    task_id: int = 0  # at the client
    function: int = 0  # number of its counters
    microseconds: int = 0  # how long it had been running by then
    instance: int = 0  # as its worker knows it; 0: none


class Session:
    """What clients and workers have in common."""

    kind: ClassVar[str]

    def __init__(self, number: int, peer: bytes, hello: m.Hello, now: float, touched: Dict[int, Session]) -> None:
        self._touched = touched  # sessions with messages to send at the end of this burst
        self.number = number
        self.peer = peer
        self.hello = hello
        # Where it serves others: by its address, too, as two hosts may have one name. Others have a place of their own.
        self.place = f"{hello.host} {hello.data_address.rpartition(':')[0] or number}"
        self.grant = OWNER_GRANT
        self.tenant = OWNER_GRANT.tenant  # of what it owns
        self.last_heard = now
        self.timeout_seconds = 0.0  # of silence; as its Welcome says, like the next one
        self.heartbeat_interval_seconds = 0.0
        self.leaving = False
        self.is_congested = False  # much of what was sent to it is unread
        self.objects: Table[None] = {}  # ids of objects it owns
        self.object_bytes = 0  # of all of them
        self.is_dirty = False  # for monitors
        self.is_gone = False  # what it held is being released

    def admit(self, grant: Grant) -> None:
        """It is what its key says."""
        self.grant, self.tenant = grant, grant.tenant

    def may_read_of(self, tenant: str) -> bool:
        """Whether it may read the objects of a tenant."""
        return self.tenant == tenant

    def hold_object(self, record: ObjectRecord) -> None:
        """Add an object that it owns."""
        self.objects[record.object_id] = None
        if len(self.objects) == LARGE:
            self.objects = in_chunks(self.objects)
        self.object_bytes += record.size

    def drop_object(self, record: ObjectRecord) -> None:
        """Remove an object that it owned."""
        del self.objects[record.object_id]
        self.object_bytes -= record.size

    @property
    def label(self) -> str:
        """The name of this peer in log lines and errors."""
        hello, most = self.hello, MAXIMUM_LABEL_CHARACTERS
        return f"{self.kind} {hello.name[:most] or self.number} ({hello.host[:most]}, process {hello.process_id})"


class LargeResults:
    """Results that became objects of a client, until it releases them."""

    def __init__(self) -> None:
        self.total_bytes = 0
        self._sizes: Table[int] = {}

    def add(self, object_id: int, size: int) -> None:
        self._sizes[object_id] = size
        if len(self._sizes) == LARGE:
            self._sizes = in_chunks(self._sizes)
        self.total_bytes += size

    def sizes(self) -> Dict[int, int]:
        """In bytes, by object id."""
        return dict(self._sizes)

    def discard(self, object_id: int) -> bool:
        """Whether the object was one of them."""
        size = self._sizes.pop(object_id, None)
        self.total_bytes -= size or 0
        return size is not None


class ClientSession(Session):
    """A client.

    Parameters:
        flow: what it has in flight.
        advancing: clients whose tasks have ended, if others wait for these.
    """

    kind = "client"

    def __init__(
        self,
        number: int,
        peer: bytes,
        hello: m.Hello,
        now: float,
        touched: Dict[int, Session],
        flow: ClientFlow,
        advancing: Dict[int, ClientSession],
    ) -> None:
        super().__init__(number, peer, hello, now, touched)
        self._advancing = advancing
        self.last_task_id = -1
        self.flow = flow
        self.unfinished = 0  # tasks, and nodes of graphs
        self.ended = [0] * len(TaskState)  # tasks and nodes by state
        self.large_results = LargeResults()
        self.outbox = ClientResults()
        self.running_ids: array[int] = array("Q")  # confirmed as running: sent before any result
        self.confirmed_ids: array[int] = array("Q")
        self.confirmed_outcomes = bytearray()
        self.graphs: Table[Graph] = {}  # unfinished ones, by first task id
        self.advancing: Table[Graph] = {}  # those of which nodes have ended, or become ready
        self.dependants = Dependants()
        self.unasked_cancels: Table[None] = {}  # tasks whose cancel no client has asked for
        self.objects_made = 0  # by the scheduler, for its graphs
        self.spilled_objects: array[int] = array("Q")  # of its own: sent at the end of this burst
        self.ended_objects: array[int] = array("Q")  # that it keeps: likewise
        self.unneeded_objects: Deque[array[int]] = deque()  # that its tasks have referred to, to be released in parts
        self.compactable: Table[TaskBatch] = {}  # by first task id: those with finished tasks
        self._batches: Table[TaskBatch] = {}  # by first task id; those of graphs by numbers beyond all of these
        self._last_graph_batch = 1 << 64
        self._batch_starts = FirstIds()  # of batches that are found by ids of their own
        self._graph_starts = FirstIds()

    def add_batch(self, batch: TaskBatch) -> None:
        first = batch.ids[0]
        self._keep_batch(first, batch)
        self._batch_starts.add(first)

    def add_graph_batch(self, batch: GraphBatch) -> None:
        """Add a batch of a graph's nodes, whose ids are found by way of the graph. A node that runs again is in a batch
        of its own, while others of its first batch may be unfinished."""
        batch.key = self._last_graph_batch = self._last_graph_batch + 1
        self._keep_batch(batch.key, batch)

    def _keep_batch(self, key: int, batch: TaskBatch) -> None:
        self._batches[key] = batch
        if len(self._batches) == LARGE:
            self._batches = in_chunks(self._batches)

    def add_released_batch(self, batch: TaskBatch) -> None:
        """Add a batch of tasks that have waited for others, whose ids lie between those of other batches."""
        self._keep_batch(batch.ids[0], batch)
        for index, task_id in enumerate(batch.ids):
            self.dependants.add_released(task_id, batch, index)

    def mark_compactable(self, batch: TaskBatch) -> None:
        """Most of a batch's tasks are finished."""
        self.compactable[batch.ids[0]] = batch
        if len(self.compactable) == LARGE:
            self.compactable = in_chunks(self.compactable)

    def mark_advancing(self, graph: Graph) -> None:
        """Nodes of a graph have ended, or become ready."""
        self.advancing[graph.counters.number] = graph
        if len(self.advancing) == LARGE:
            self.advancing = in_chunks(self.advancing)

    def count_unasked(self, task_ids: Iterable[int]) -> None:
        """Tasks are being cancelled without the client having asked for it."""
        self.unasked_cancels.update(dict.fromkeys(task_ids))
        if len(self.unasked_cancels) >= LARGE:
            self.unasked_cancels = in_chunks(self.unasked_cancels)

    def remove_batch(self, batch: TaskBatch) -> None:
        first = batch.ids[0]
        del self._batches[batch.key if isinstance(batch, GraphBatch) else first]
        self.compactable.pop(first, None)
        if batch.has_results:
            for task_id in batch.ids:
                del self.dependants.released[task_id]
        elif not isinstance(batch, GraphBatch):
            self._batch_starts.remove(first)

    def find_task(self, task_id: int) -> Optional[Tuple[TaskBatch, int]]:
        """The batch and position of an unfinished batch's task."""
        if task_id in self.dependants.released:
            return self.dependants.released[task_id]
        batch = self._batches.get(self._batch_starts.at_most(task_id))
        if batch is None:
            return None
        index = bisect_right(batch.ids, task_id) - 1
        return (batch, index) if batch.ids[index] == task_id else None

    def add_graph(self, graph: Graph) -> None:
        self.graphs[graph.ids[0]] = graph
        if len(self.graphs) == LARGE:
            self.graphs = in_chunks(self.graphs)
        self._graph_starts.add(graph.ids[0])

    def remove_graph(self, graph: Graph) -> None:
        del self.graphs[graph.ids[0]]
        self._graph_starts.remove(graph.ids[0])

    def find_node(self, task_id: int) -> Optional[Tuple[Graph, int]]:
        """The unfinished graph, and node of it, with this task id."""
        graph = self.graphs.get(self._graph_starts.at_most(task_id))
        node = graph.find(task_id) if graph is not None else None
        return None if graph is None or node is None else (graph, node)

    def batches(self) -> Iterator[TaskBatch]:
        return iter(self._batches.values())

    def drained_batches(self) -> Iterator[TaskBatch]:
        """The same batches; none is kept alive after its turn."""
        return drained(self._batches)

    def touch(self) -> None:
        """Visit this session at the end of this burst, because it may have messages to send."""
        self._touched[self.number] = self

    def report(self, ids: array[int], span: ResultSpan) -> None:
        """Send outcomes at the end of this burst."""
        if self.is_gone:
            return
        if self.dependants.followers:
            self.dependants.keep_results(ids, span)
            self._advancing[self.number] = self
        self.outbox.add(ids, span)
        self._touched[self.number] = self

    # SCL-SCH-019
    def confirm_cancel(self, task_id: int, outcome: m.CancelOutcome) -> None:
        """Answer a cancel at the end of this burst, if it was requested."""
        if self.is_gone:
            return
        if outcome == m.CancelOutcome.CANCELLED and self.dependants.followers:
            self.dependants.keep_cancelled(task_id)
            self._advancing[self.number] = self
        if task_id in self.unasked_cancels:
            del self.unasked_cancels[task_id]
            return
        self._touched[self.number] = self
        if outcome == m.CancelOutcome.RUNNING:
            self.running_ids.append(task_id)
        else:
            self.confirmed_ids.append(task_id)
            self.confirmed_outcomes.append(outcome)

    def confirm_cancels(self, task_ids: array[int], outcome: m.CancelOutcome) -> None:
        """Answer cancels of tasks that ended in the same way; `outcome` is not RUNNING."""
        if self.dependants.followers or self.unasked_cancels or len(task_ids) == 1:
            for task_id in task_ids:
                self.confirm_cancel(task_id, outcome)
        elif not self.is_gone:
            self._touched[self.number] = self
            self.confirmed_ids += task_ids
            self.confirmed_outcomes += bytes([outcome]) * len(task_ids)


class WorkerSession(Session):
    """A worker.

    Parameters:
        queue_limit: the scheduler's limit of tasks per slot.
    """

    kind = "worker"

    def __init__(
        self, number: int, peer: bytes, hello: m.Hello, now: float, touched: Dict[int, Session], queue_limit: int
    ) -> None:
        super().__init__(number, peer, hello, now, touched)
        self._queue_size = min(max(1, hello.queue_size), queue_limit)
        self.is_shared = False  # it serves all tenants
        self.slots = hello.slots  # tasks that run at once
        self.capacity = self.slots * self._queue_size  # tasks it may hold
        self.capabilities = {capability.name: capability.amount for capability in hello.capabilities}
        self._prefixes = tuple(name[:-1] for name in hello.functions if name.endswith("*"))  # of functions it serves
        self._free = dict(self.capabilities)  # the amounts that its tasks do not use
        self.has_freed = False  # some of these, since it was last known to have room
        self.dispatches: Table[Dispatch] = {}
        self.assigned = 0  # tasks, of the calls of each actor one: so many slots are taken or spoken for
        self.calls_behind = 0  # the other calls: they wait for one of the same actor
        self.actors: Dict[int, Tuple[Tuple[str, float], ...]] = {}  # what each of its actors uses of capabilities
        self.sent = self.finished = self.failed = 0  # totals of tasks; failed and lost ones are also finished
        self.load_microseconds = 0.0
        self.given_microseconds = 0.0  # of work, in all
        self.known_objects: Table[None] = {}
        self.lost_results: Deque[ObjectRecord] = deque()  # that were lost with it, until it is settled what follows
        self.forgotten_objects: array[int] = array("Q")
        self.cancelled_instances: array[int] = array("Q")
        self.forced_instances: array[int] = array("Q")
        self.heartbeat: Optional[m.Heartbeat] = None
        self.heartbeat_at = 0.0  # by the scheduler's clock
        self.distance_microseconds = 0.0  # for messages there and back; 0: it is near
        self._latencies: Deque[int] = deque(maxlen=_LATENCIES)
        self.processor_tasks: Sequence[RunningTask] = ()  # an entry for each processor of the heartbeat
        self.balance_request: Optional[int] = None  # id of the request it has not answered yet
        self.finished_when_asked = -1  # `finished` when it was last asked to give tasks back
        self.drain_cause = m.DrainCause.UNKNOWN  # why it drains, if it does
        # How long tasks may run there, by the scheduler's clock.
        self.stays_until = now + hello.remaining_milliseconds / 1000 if hello.remaining_milliseconds else inf

    def on_heartbeat(self, now: float, heartbeat: m.Heartbeat, tasks: Sequence[RunningTask]) -> None:
        """Store its figures, and what its processors run.

        A processor whose task waits for nested tasks is blocked, and a spare processor uses its slot.
        """
        self.heartbeat, self.heartbeat_at = heartbeat, now
        self.processor_tasks = tasks
        if heartbeat.latency_microseconds:
            self._latencies.append(heartbeat.latency_microseconds)
            round_trip_microseconds = 2.0 * min(self._latencies)
            is_distant = round_trip_microseconds >= DISTANT_MICROSECONDS
            self.distance_microseconds = (
                min(round_trip_microseconds, _LONGEST_ROUND_TRIP_MICROSECONDS) if is_distant else 0.0
            )
        suspended = sum(processor.suspended for processor in heartbeat.processors)
        self.slots = self.hello.slots + suspended
        self.capacity = self.slots * self._queue_size

    def set_queue_limit(self, limit: int) -> None:
        """From now on it may hold so many tasks for each slot; those that it has beyond that stay."""
        self._queue_size = min(max(1, self.hello.queue_size), limit)
        self.capacity = self.slots * self._queue_size

    def admit(self, grant: Grant) -> None:
        """It is what its key says."""
        super().admit(grant)
        self.is_shared = self.tenant == ANY_TENANT

    def serves(self, tenant: str) -> bool:
        """Whether it runs the tasks of a tenant."""
        return self.tenant == tenant or self.tenant == ANY_TENANT

    def may_read_of(self, tenant: str) -> bool:
        """Whether it may read the objects of a tenant: those that its tasks need."""
        return self.serves(tenant)

    # SCL-SCH-009
    def offers(self, needs: Needs, now: float) -> bool:
        """Whether tasks with these needs can run here, if they begin now or later."""
        own, seconds = self.capabilities, needs.time_request_seconds
        # SCL-SCH-048
        if (seconds and now + seconds > self.stays_until) or not self.understands(needs):
            return False
        return all(name in own and own[name] >= amount for name, amount in needs.capabilities)

    def understands(self, needs: Needs) -> bool:
        """Whether it runs tasks of their tenant, understands the codec, and serves the named function."""
        # SCL-SEC-031
        if not self.serves(needs.tenant):
            return False
        codecs, functions = self.hello.codecs, self.hello.functions
        # SCL-COD-003: a worker that lists none is taken to understand, or to serve, any.
        if codecs and needs.codec and needs.codec not in codecs:
            return False
        name = needs.function_name
        return not name or not functions or any(map(name.startswith, self._prefixes)) or name in functions

    def room_for(self, capabilities: Capabilities) -> int:
        """How many more tasks with these needs it could hold; tasks that only need a name are not limited by it."""
        # SCL-SCH-009, SCL-SCH-010
        room = self.capacity - self.assigned
        for name, amount in capabilities:
            free = self._free.get(name, 0.0)
            # Otherwise the quotient is not needed, and may overflow.
            if amount and free < amount * room:
                room = min(room, int(free / amount + _ROUNDING))
        return room if room > 0 else 0

    def assign(self, dispatch: Dispatch) -> None:
        """Add the tasks of a dispatch."""
        count = dispatch.open_count
        self.dispatches[dispatch.number] = dispatch
        if len(self.dispatches) == LARGE:
            self.dispatches = in_chunks(self.dispatches)
        self.assigned += count
        assert self.assigned <= self.capacity, f"{self.label} was given more than it can hold"
        self.load_microseconds += dispatch.estimate_microseconds * count
        self.given_microseconds += dispatch.estimate_microseconds * count
        dispatch.given_before_microseconds = self.given_microseconds
        for name, amount in dispatch.batch.requirement.needs.capabilities:
            self._free[name] -= amount * count

    def unassign(self, dispatch: Dispatch, count: int) -> None:
        """`count` instances of a dispatch were closed."""
        self.assigned -= count
        self.load_microseconds -= dispatch.estimate_microseconds * count
        if self.load_microseconds < 0.0:
            self.load_microseconds = 0.0
        for name, amount in dispatch.batch.requirement.needs.capabilities:
            self._free[name] += amount * count
            self.has_freed = True
        if dispatch.open_count == 0:
            del self.dispatches[dispatch.number]
        if self.assigned == 0:
            if not self.actors:
                self._free.update(self.capabilities)  # so that rounding errors do not accumulate
            self.load_microseconds = 0.0

    # Actors -----------------------------------------------------------------------------------------------------------

    @property
    def queue_size(self) -> int:
        """How many calls of one actor it may hold."""
        return self._queue_size

    @property
    def tasks(self) -> int:
        """How many tasks it has."""
        return self.assigned + self.calls_behind

    @property
    def runs_actors(self) -> bool:
        """Whether its Hello says so."""
        return ACTORS in self.hello.features

    def has_room_for_actor(self, capabilities: Capabilities) -> bool:
        """Whether another actor with these needs fits."""
        if len(self.actors) >= MAXIMUM_ACTORS_OF_WORKER:
            return False
        return all(self._free.get(name, -1.0) + _ROUNDING >= amount for name, amount in capabilities)

    # SCL-SCH-046
    def add_actor(self, actor: ActorRecord) -> None:
        """An actor is here from now on, and uses what it needs."""
        actor.worker = self.number
        self.actors[actor.function] = actor.capabilities
        for name, amount in actor.capabilities:
            self._free[name] -= amount

    def remove_actor(self, actor: ActorRecord) -> None:
        """An actor has ended."""
        actor.worker = 0
        for name, amount in self.actors.pop(actor.function):
            self._free[name] += amount

    def assign_calls(self, dispatch: Dispatch, actor: ActorRecord) -> None:
        """Add calls of one of its actors."""
        count = dispatch.open_count
        self.dispatches[dispatch.number] = dispatch
        if len(self.dispatches) == LARGE:
            self.dispatches = in_chunks(self.dispatches)
        first = 0 if actor.open_calls else 1
        self.assigned += first
        self.calls_behind += count - first
        actor.open_calls += count
        actor.load_microseconds += dispatch.estimate_microseconds * count
        self.load_microseconds += dispatch.estimate_microseconds * count

    def unassign_calls(self, dispatch: Dispatch, actor: ActorRecord, count: int) -> None:
        """`count` instances of calls of an actor were closed."""
        actor.open_calls -= count
        last = 0 if actor.open_calls else 1
        self.assigned -= last
        self.calls_behind -= count - last
        spent = dispatch.estimate_microseconds * count
        actor.load_microseconds = max(0.0, actor.load_microseconds - spent) if actor.open_calls else 0.0
        self.load_microseconds = max(0.0, self.load_microseconds - spent) if self.assigned else 0.0
        if dispatch.open_count == 0:
            del self.dispatches[dispatch.number]

    def check_invariants(self) -> None:
        """Check that used and free capabilities add up to the offered ones."""
        if not self.capabilities:
            return
        used = dict.fromkeys(self.capabilities, 0.0)
        for dispatch in self.dispatches.values():
            for name, amount in dispatch.batch.requirement.needs.capabilities:
                used[name] += amount * dispatch.open_count
        for capabilities in self.actors.values():
            for name, amount in capabilities:
                used[name] += amount
        for name, amount in self.capabilities.items():
            rounding = _ROUNDING * max(1.0, amount)
            assert -rounding <= used[name] <= amount + rounding, f"{self.label}: {used[name]} {name} in use"
            assert abs(self._free[name] + used[name] - amount) < 1000 * rounding

    def cancel(self, instances: Iterable[int], force: bool) -> None:
        """Ask the worker to drop instances, at the end of this burst."""
        (self.forced_instances if force else self.cancelled_instances).extend(instances)
        self._touched[self.number] = self

    def take_messages(self) -> List[m.Member]:
        """What was gathered for it in this burst."""
        messages: List[m.Member] = []
        if self.cancelled_instances:
            messages.append(m.TaskCancel(ids=self.cancelled_instances))
            self.cancelled_instances = array("Q")
        if self.forced_instances:
            messages.append(m.TaskCancel(ids=self.forced_instances, force=True))
            self.forced_instances = array("Q")
        if self.forgotten_objects:
            messages.append(m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=self.forgotten_objects))
            self.forgotten_objects = array("Q")
        return messages

    def know_object(self, object_id: int) -> None:
        """An object is announced to it."""
        self.known_objects[object_id] = None
        if len(self.known_objects) == LARGE:
            self.known_objects = in_chunks(self.known_objects)

    def forget_object(self, object_id: int) -> None:
        """Notify the worker that an object is gone, at the end of this burst."""
        self.known_objects.pop(object_id, None)
        self.forgotten_objects.append(object_id)
        self._touched[self.number] = self
