"""Graphs as the core holds them: columns, with one entry per node, until nodes are ready to be queued.

    GraphTask ──▶ Graph: WAITING nodes ──last predecessor succeeded──▶ TaskBatch of the nodes ready now ──▶ queue
                    ▲                                                        │
                    └────────── results, until the last dependant has them ──┘

Rules:
- A node is a position in its graph's columns, not an object. Predecessors precede their dependants, so there are no
  cycles. How many predecessors are missing, and how many dependants still wait, are counts in an array.
- Nodes that become ready together and share a function become one TaskBatch, wherever they stood in the graph; from
  then on they are tasks like all others. Their payloads begin with the results of their predecessors.
- A result is kept while a dependant waits for it: a small one as bytes, a large one as the id of its object.
- Data and small accessors only: decisions are made in `graph_reactions`.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from itertools import accumulate
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from scaler_appliance.core.effects import Buffer
from scaler_appliance.core.monitoring.counters import GraphCounters
from scaler_appliance.core.tasks.batches import TaskBatch
from scaler_appliance.core.tasks.task_states import FINAL_STATES, TaskEvent, TaskState, apply, follow
from scaler_protocol import messages as m

RESULTS_MARK = 4  # the first word of a payload that begins with results
IS_OBJECT = 0xFFFFFFFF  # in the place of a result's size


class NodeFailure(NamedTuple):
    """Why a node, and all that depends on it, has no result."""

    status: int  # TaskStatus
    payload: bytes
    codec: str
    origin: int  # id of the node that failed


class Graph:
    """The nodes of one GraphTask.

    Parameters:
        client: session.
        message: with columns that fit each other.
        counters: how many of its nodes are in which state.
    """

    __slots__ = (
        "client", "ids", "functions", "codec", "options", "payload", "offsets", "dependencies", "dependency_offsets",
        "predecessors", "predecessor_offsets", "successors", "successor_offsets", "states", "missing", "dependants",
        "is_target", "batches", "results", "failures", "ended", "unneeded", "unfinished", "is_forced", "held_functions",
        "counters", "largest_result_bytes",
    )  # fmt: skip

    def __init__(self, client: int, message: m.GraphTask, payload: bytes, counters: GraphCounters) -> None:
        count = len(message.ids)
        self.client = client
        self.counters = counters
        self.ids: array[int] = message.ids
        self.functions: array[int] = message.functions
        self.codec = message.codec
        self.options = message.options
        self.payload = memoryview(payload)
        self.offsets = array("Q", accumulate(message.payload_sizes, initial=0))
        self.dependencies: array[int] = message.dependencies
        counts: Sequence[int] = message.dependency_counts or bytes(count)
        self.dependency_offsets = array("Q", accumulate(counts, initial=0))
        self.predecessors: array[int] = message.predecessors
        self.predecessor_offsets: array[int] = message.predecessor_offsets or array("I", bytes(4 * (count + 1)))
        offsets = self.predecessor_offsets
        self.missing = array("I", [offsets[node + 1] - offsets[node] for node in range(count)])
        self.dependants = array("I", bytes(4 * count))  # edges to nodes that are WAITING
        for node in self.predecessors:
            self.dependants[node] += 1
        self.successor_offsets = array("Q", accumulate(self.dependants, initial=0))
        self.successors = self._transposed()
        self.is_target = bytearray(count)
        for node in message.targets:
            self.is_target[node] = 1
        self.states = bytearray([TaskState.WAITING]) * count  # QUEUED: its batch knows more
        self.batches: List[Optional[GraphBatch]] = [None] * count
        self.results: Dict[int, Union[bytes, int]] = {}  # content, or the id of the object that has it
        self.largest_result_bytes = 0  # of those whose content was kept
        self.failures: Dict[int, NodeFailure] = {}  # of nodes in `ended`
        self.ended: List[int] = []  # nodes whose end has had no consequences yet
        self.unneeded: List[int] = []  # nodes without outcome that no target needs any more
        self.unfinished = count
        self.is_forced = False  # a forced cancel was requested: nodes that are no longer needed are stopped
        self.held_functions: List[int] = []  # objects that it has a reference to until its end

    def __len__(self) -> int:
        return len(self.ids)

    def _transposed(self) -> array[int]:
        """The dependants of each node, at `successor_offsets`."""
        places = array("Q", self.successor_offsets)
        successors = array("I", bytes(4 * len(self.predecessors)))
        offsets = self.predecessor_offsets
        for node in range(len(self.ids)):
            for predecessor in self.predecessors[offsets[node] : offsets[node + 1]]:
                successors[places[predecessor]] = node
                places[predecessor] += 1
        return successors

    def predecessors_of(self, node: int) -> array[int]:
        return self.predecessors[self.predecessor_offsets[node] : self.predecessor_offsets[node + 1]]

    def successors_of(self, node: int) -> array[int]:
        return self.successors[self.successor_offsets[node] : self.successor_offsets[node + 1]]

    def dependencies_of(self, node: int) -> array[int]:
        """The object ids that the client said the node needs."""
        return self.dependencies[self.dependency_offsets[node] : self.dependency_offsets[node + 1]]

    def find(self, task_id: int) -> Optional[int]:
        """The node with this task id."""
        node = bisect_left(self.ids, task_id)
        return node if node < len(self.ids) and self.ids[node] == task_id else None

    def place_of(self, node: int) -> Tuple[GraphBatch, int]:
        """The batch of a node that is not WAITING and has no outcome, and its position there."""
        batch = self.batches[node]
        assert batch is not None, f"node {node} is in no batch"
        return batch, bisect_left(batch.nodes, node)

    def record_ended(self, batch: GraphBatch, start: int, stop: int) -> None:
        """Nodes in tasks [start, stop) of a batch have their outcome."""
        for index in range(start, stop):
            node = batch.nodes[index]
            state = batch.states[index]
            follow(self.states, node, state)
            self.counters.ended[state] += 1
            self.batches[node] = None
            self.ended.append(node)
        self.unfinished -= stop - start

    # Making batches -------------------------------------------------------------------------------------------------

    def release(self, function: int, nodes: List[int]) -> GraphBatch:
        """Make a batch of waiting nodes, ascending, whose predecessors have all succeeded."""
        payloads: List[Buffer] = []
        sizes = array("I")
        counts = array("H")
        dependencies = array("Q")
        self.counters.waiting -= len(nodes)
        for node in nodes:
            apply(self.states, node, node + 1, TaskEvent.RELEASE)
            before, objects_before = len(payloads), len(dependencies)
            dependencies += self.dependencies_of(node)
            dependencies.extend(self._add_results(node, payloads))
            payloads.append(self.payload[self.offsets[node] : self.offsets[node + 1]])
            sizes.append(sum(map(len, payloads[before:])))
            counts.append(len(dependencies) - objects_before)
        message = m.Task(
            ids=array("Q", [self.ids[node] for node in nodes]),
            payload_sizes=sizes,
            function=function,
            codec=self.codec,
            options=self.options,
        )
        if dependencies:
            message.dependency_counts, message.dependencies = counts, dependencies
        batch = GraphBatch(self.client, message, b"".join(payloads), self, array("I", nodes))
        for node in nodes:
            self.batches[node] = batch
        return batch

    def _add_results(self, node: int, payloads: List[Buffer]) -> List[int]:
        """Begin the node's payload with its predecessors' results; returns the ids of results that are objects."""
        predecessors = self.predecessors_of(node)
        if not predecessors:
            return []
        results = [self.results[each] for each in predecessors]
        sizes = [IS_OBJECT if isinstance(result, int) else len(result) for result in results]
        # SCL-SCH-029
        payloads.append(struct.pack(f"<{len(sizes) + 2}I", RESULTS_MARK, len(sizes), *sizes))
        payloads += [result for result in results if not isinstance(result, int)]
        for predecessor in predecessors:
            self.forget_dependant(predecessor)
        return [result for result in results if isinstance(result, int)]

    def forget_dependant(self, node: int) -> bool:
        """A dependant of the node no longer waits; returns whether it was the last one."""
        self.dependants[node] -= 1
        if self.dependants[node]:
            return False
        self.results.pop(node, None)
        return True

    def too_much_for(self, node: int, most_bytes: int, most_objects: int) -> bool:
        """Whether the results that the node needs are too many or too large for one task."""
        predecessors = self.predecessors_of(node)
        own_objects = self.dependency_offsets[node + 1] - self.dependency_offsets[node]
        if (
            len(predecessors) + own_objects <= most_objects
            and len(predecessors) * self.largest_result_bytes <= most_bytes
        ):
            return False
        results = [self.results[each] for each in predecessors]
        objects = sum(isinstance(result, int) for result in results)
        total_bytes = sum(len(result) for result in results if not isinstance(result, int))
        return total_bytes > most_bytes or objects + own_objects > most_objects

    def references(self) -> Iterator[int]:
        """The objects that it keeps alive, each as often as it refers to it."""
        yield from self.held_functions
        for node, state in enumerate(self.states):
            if state == TaskState.WAITING:
                yield from self.dependencies_of(node)
                results = [self.results.get(each) for each in self.predecessors_of(node)]
                yield from (result for result in results if isinstance(result, int))

    # Checking -------------------------------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Check that the counts match the states; called by State.check_invariants."""
        waiting = TaskState.WAITING
        untold = set(self.ended)
        counters = self.counters
        assert counters.waiting == self.states.count(waiting) and counters.nodes == len(self)
        assert counters.ended == [self.states.count(state) if state in FINAL_STATES else 0 for state in TaskState]
        assert 0 <= counters.running <= counters.running + counters.queued == self.states.count(TaskState.QUEUED)
        for node, state in enumerate(self.states):
            succeeded = [
                self.states[each] == TaskState.SUCCEEDED and each not in untold for each in self.predecessors_of(node)
            ]
            if state == waiting:
                assert self.missing[node] == succeeded.count(False) > 0, f"node {node} waits for nothing"
            waiting_dependants = [each for each in self.successors_of(node) if self.states[each] == waiting]
            assert self.dependants[node] == len(waiting_dependants)
            is_kept = state == TaskState.SUCCEEDED and bool(waiting_dependants)
            assert (node in self.results) == is_kept, f"the result of node {node} is kept too long, or too short"
            assert (self.batches[node] is not None) == (state == TaskState.QUEUED)
        assert untold.issuperset(self.failures)
        open_states = (TaskState.WAITING, TaskState.QUEUED)
        assert self.unfinished == sum(state in open_states for state in self.states)


class GraphBatch(TaskBatch):
    """Nodes of a graph that were released together.

    Parameters:
        graph, nodes: which ones, ascending.
    """

    __slots__ = ("graph", "nodes")

    def __init__(self, client: int, message: m.Task, payload: bytes, graph: Graph, nodes: array[int]) -> None:
        super().__init__(client, message, payload)
        self.graph = graph
        self.nodes = nodes
