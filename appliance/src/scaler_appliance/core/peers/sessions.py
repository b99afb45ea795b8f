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
from typing import ClassVar, Deque, Dict, Iterable, Iterator, Optional, Tuple

from scaler_appliance.core.graphs.dependants import Dependants
from scaler_appliance.core.graphs.graph_nodes import Graph, GraphBatch
from scaler_appliance.core.large_tables import LARGE, Table, drained, in_chunks
from scaler_appliance.core.objects.object_records import ObjectRecord
from scaler_appliance.core.peers.authority import OWNER_GRANT
from scaler_appliance.core.peers.client_flow import ClientFlow
from scaler_appliance.core.tasks.batches import TaskBatch
from scaler_appliance.core.tasks.client_results import ClientResults, ResultSpan
from scaler_appliance.core.tasks.first_ids import FirstIds
from scaler_appliance.core.tasks.task_states import TaskState
from scaler_protocol import messages as m
from scaler_protocol.keys.allow_list import Grant

MAXIMUM_LABEL_CHARACTERS = 256  # of a peer's name, and of its host


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
