"""Graphs as the core holds them: columns, with one entry per node, until nodes are ready to be queued.

    GraphTask ──▶ Graph: WAITING nodes ──last predecessor succeeded──▶ TaskBatch of the nodes ready now ──▶ queue
                    ▲                                                        │
                    └────────── results, until the last dependant has them ──┘

Rules:
- A node is a position in its graph's columns, not an object. Predecessors precede their dependants, so there are no
  cycles. How many predecessors are missing, and how many dependants still wait, are counts in an array.
- Nodes that become ready together and share a function become one TaskBatch, wherever they stood in the graph; from
  then on they are tasks like all others. Their payloads begin with the results of their predecessors.
- A result is kept while a dependant waits for it: a small one as bytes, a large one as the id of its object. If only
  workers have its bytes, the objects that its node needs are kept with it, because the node may have to run again.
- Data and small accessors only: decisions are made in `graph_reactions`.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections import deque
from itertools import repeat
from typing import Deque, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple, Union

from scaler_appliance.core.effects import Buffer
from scaler_appliance.core.graphs.node_columns import NodeQueue, NodeValues
from scaler_appliance.core.monitoring.counters import NO_GRAPH_COUNTERS, GraphCounters
from scaler_appliance.core.tasks.batches import TaskBatch
from scaler_appliance.core.tasks.task_states import FINAL_STATES, TaskEvent, TaskState, apply, follow
from scaler_protocol import messages as m
from scaler_protocol.keys.allow_list import DEFAULT_TENANT

RESULTS_MARK = 4  # the first word of a payload that begins with results
IS_OBJECT = 0xFFFFFFFF  # in the place of a result's size


class NodeFailure(NamedTuple):
    """Why a node, and all that depends on it, has no result."""

    status: int  # TaskStatus
    payload: bytes
    codec: str
    origin: int  # id of the node that failed; OWN: the node itself


OWN = -1


class Unlinking(NamedTuple):
    """Edges [start, stop) of the predecessors' column that lead to nodes that wait no longer."""

    start: int
    stop: int
    is_released: bool  # the batch of the node refers to the results that are objects


class Inputs(NamedTuple):
    """What the predecessors of a node have given it.

    Attributes:
        given: small results, and objects that the scheduler has and are referred to, by predecessor.
        remade: predecessors whose results only workers have: these are made again if they are needed.
    """

    given: Dict[int, Union[bytes, int]]
    remade: Sequence[int]

    @property
    def held(self) -> array[int]:
        """The objects that are referred to."""
        return array("Q", [each for each in self.given.values() if isinstance(each, int)])


_NO_INPUTS = Inputs({}, ())


class Graph:
    """The nodes of one GraphTask; `graph_building` fills in the columns that follow from those of the message.

    Parameters:
        client: session.
        message: with columns of the same lengths.
        tenant: who owns the nodes.
    """

    __slots__ = (
        "client", "tenant", "ids", "functions", "codec", "options", "payload", "sizes", "offsets", "dependencies",
        "dependency_offsets", "predecessors", "predecessor_offsets", "successors", "successor_offsets", "states",
        "missing", "dependants", "is_target", "batches", "results", "failures", "checked", "ready", "ended", "passed",
        "unneeded", "unlinking", "unfinished", "is_forced", "held_functions", "counters", "largest_result_bytes",
        "is_dropped", "lost", "reruns", "told", "kept_for_reruns", "inputs", "recipe_users",
    )  # fmt: skip

    def __init__(self, client: int, message: m.GraphTask, payload: bytes, tenant: str = DEFAULT_TENANT) -> None:
        count = len(message.ids)
        self.client = client
        self.tenant = tenant
        self.counters: GraphCounters = NO_GRAPH_COUNTERS  # of its nodes by state
        self.ids: array[int] = message.ids
        self.functions: array[int] = message.functions
        self.codec = message.codec
        self.options = message.options
        self.payload = memoryview(payload)
        self.sizes: array[int] = message.payload_sizes
        self.offsets: array[int] = array("Q", [0])
        self.dependencies: array[int] = message.dependencies
        self.dependency_offsets: array[int] = array("Q", [0])
        self.predecessors: array[int] = message.predecessors
        self.predecessor_offsets: array[int] = message.predecessor_offsets or array("I", [0]) * (count + 1)
        self.missing: array[int] = array("I")  # predecessors that have not succeeded
        self.dependants: array[int] = array("I", [0]) * count  # edges to WAITING nodes, and those in `unlinking`
        self.successor_offsets: array[int] = array("Q", [0])
        self.successors: array[int] = array("I")
        self.is_target = bytearray(count)
        self.states = bytearray([TaskState.WAITING]) * count  # QUEUED: its batch knows more
        self.batches: NodeValues[GraphBatch] = NodeValues(count)
        self.results: NodeValues[Union[bytes, int]] = NodeValues(count)  # content, or id of the object that has it
        self.largest_result_bytes = 0  # of those whose content was kept
        self.failures: NodeValues[NodeFailure] = NodeValues(count)  # of nodes in `ended`
        self.checked = 0  # nodes whose objects were looked for; those of others are not referred to
        self.ready = NodeQueue()  # nodes whose predecessors have succeeded, to be released
        self.ended = NodeQueue()  # nodes whose end has had no consequences yet
        self.passed = 0  # successors of the first of them for which it has
        self.unneeded = NodeQueue()  # nodes without outcome that no target needs any more
        self.unlinking: Deque[Unlinking] = deque()  # edges of nodes that wait no longer, if these are many
        self.unfinished = count
        self.is_forced = False  # a forced cancel was requested: nodes that are no longer needed are stopped
        self.held_functions: List[int] = []  # objects that it has a reference to until its end
        self.is_dropped = False  # its client is gone: there are no consequences any more
        self.lost: Deque[Tuple[int, int]] = deque()  # nodes whose result, an object, was lost with its maker
        self.told: Set[int] = set()  # nodes that were targets, were reported, and have begun again
        # What nodes need to run again is kept while only workers have their result, or one that was made from it.
        self.kept_for_reruns: Dict[int, int] = {}  # by node its result, or 0: that has ended; its objects are kept
        self.inputs: Dict[int, Inputs] = {}  # of these
        self.recipe_users: Dict[int, int] = {}  # how many of these were made from a large result, by its node
        self.reruns: Dict[int, int] = {}  # how often nodes that have begun again did so because of their own result

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def has_consequences(self) -> bool:
        """Whether something has ended, or become ready, that others need to learn."""
        return bool(self.ended or self.unneeded or self.ready or self.unlinking or self.lost)

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
        return batch, bisect_left(batch.nodes, node)

    def record_ended(self, batch: GraphBatch, start: int, stop: int) -> None:
        """Nodes in tasks [start, stop) of a batch have their outcome."""
        nodes = batch.nodes[start:stop]
        for first, end in consecutive_parts(nodes):
            node, after = nodes[first], nodes[end - 1] + 1
            states = batch.states[start + first : start + end]
            follow(self.states, node, states)
            for state in set(states):
                self.counters.ended[state] += states.count(state)
            self.batches.clear_run(node, after)
            self.ended.extend(range(node, after))
        self.unfinished -= stop - start

    def free(self, part: int) -> Iterator[None]:
        """Free its columns one by one, because even that takes long if there are millions of nodes."""
        if len(self) <= part:
            return
        for column in (self.ended, self.ready, self.unneeded, self.batches, self.results, self.failures):
            yield from column.free()
        for name, empty in _EMPTY.items():
            setattr(self, name, empty)
            yield

    # Making batches -------------------------------------------------------------------------------------------------

    def release(self, function: int, nodes: List[int]) -> GraphBatch:
        """Make a batch of waiting nodes, ascending, whose predecessors have all succeeded."""
        payloads: List[Buffer] = []
        sizes, counts, dependencies = array("I"), array("H"), array("Q")
        self.counters.waiting -= len(nodes)
        for first, end in consecutive_parts(nodes):
            start, stop = nodes[first], nodes[end - 1] + 1
            apply(self.states, start, stop, TaskEvent.RELEASE)
            if self.predecessor_offsets[start] == self.predecessor_offsets[stop]:
                payloads.append(self.payload[self.offsets[start] : self.offsets[stop]])
                sizes += self.sizes[start:stop]
                if self.dependencies:
                    ends = self.dependency_offsets
                    counts.extend([ends[node + 1] - ends[node] for node in range(start, stop)])
                    dependencies += self.dependencies[ends[start] : ends[stop]]
                else:
                    counts.frombytes(bytes(2 * (stop - start)))
            else:
                self._release_run(start, stop, sizes, payloads, counts, dependencies)
        return self._add_batch(function, nodes, sizes, payloads, counts, dependencies)

    def release_alone(self, node: int, results: List[Buffer], total_bytes: int, objects: array[int]) -> GraphBatch:
        """Make a batch of one node with very many predecessors.

        Parameters:
            results, total_bytes, objects: what is in front of its payload, and the results that are objects.
        """
        self.counters.waiting -= 1
        apply(self.states, node, node + 1, TaskEvent.RELEASE)
        edges = self.predecessor_offsets
        self.unlinking.append(Unlinking(edges[node], edges[node + 1], is_released=True))
        dependencies = self.dependencies_of(node) + objects
        payload = self.payload[self.offsets[node] : self.offsets[node + 1]]
        sizes, counts = array("I", [total_bytes + self.sizes[node]]), array("H", [len(dependencies)])
        return self._add_batch(self.functions[node], [node], sizes, [*results, payload], counts, dependencies)

    def _add_batch(
        self,
        function: int,
        nodes: List[int],
        sizes: array[int],
        payloads: List[Buffer],
        counts: array[int],
        dependencies: array[int],
    ) -> GraphBatch:
        first, last = nodes[0], nodes[-1]
        is_one_run = last - first == len(nodes) - 1
        ids = self.ids[first : last + 1] if is_one_run else array("Q", [self.ids[node] for node in nodes])
        message = m.Task(
            ids=ids,
            payload_sizes=sizes,
            function=function,
            codec=self.codec,
            options=self.options,
        )
        if dependencies:
            message.dependency_counts, message.dependencies = counts, dependencies
        batch = GraphBatch(self.client, message, b"".join(payloads), self, array("I", nodes))
        if is_one_run:
            self.batches.set_run(first, last + 1, batch)
        else:
            for node in nodes:
                self.batches[node] = batch
        return batch

    def _release_run(
        self,
        start: int,
        stop: int,
        sizes: array[int],
        payloads: List[Buffer],
        counts: array[int],
        dependencies: array[int],
    ) -> None:
        """Add nodes [start, stop), some of which have predecessors, to the columns of a batch."""
        edges, predecessors, results, dependants = (
            self.predecessor_offsets, self.predecessors, self.results, self.dependants,
        )  # fmt: skip
        payload, offsets, own_sizes = self.payload, self.offsets, self.sizes
        sources = self.dependencies
        for node in range(start, stop):
            objects_before = len(dependencies)
            if sources:
                dependencies += self.dependencies_of(node)
            first, end = edges[node], edges[node + 1]
            size = own_sizes[node]
            if end - first == 1:
                predecessor = predecessors[first]
                result = results[predecessor]
                left = dependants[predecessor] - 1
                dependants[predecessor] = left
                if not left:
                    results.pop(predecessor)
                # SCL-SCH-029
                if isinstance(result, int):
                    payloads.append(_ONE_RESULT.pack(RESULTS_MARK, 1, IS_OBJECT))
                    dependencies.append(result)
                    size += _ONE_RESULT.size
                else:
                    payloads.append(_ONE_RESULT.pack(RESULTS_MARK, 1, len(result)) + result)
                    size += _ONE_RESULT.size + len(result)
            elif end > first:
                size += self._add_results(predecessors[first:end], payloads, dependencies)
            payloads.append(payload[offsets[node] : offsets[node + 1]])
            sizes.append(size)
            counts.append(len(dependencies) - objects_before)

    def _add_results(self, predecessors: array[int], payloads: List[Buffer], dependencies: array[int]) -> int:
        """Begin a node's payload with its predecessors' results; returns their size."""
        results = [self.results[each] for each in predecessors]
        sizes = [IS_OBJECT if isinstance(result, int) else len(result) for result in results]
        contents = [result for result in results if not isinstance(result, int)]
        # SCL-SCH-029
        payloads.append(struct.pack(f"<{len(sizes) + 2}I", RESULTS_MARK, len(sizes), *sizes))
        payloads += contents
        dependencies.extend([result for result in results if isinstance(result, int)])
        for predecessor in predecessors:
            self.forget_dependant(predecessor)
        return 4 * (len(sizes) + 2) + sum(map(len, contents))

    def forget_dependant(self, node: int) -> bool:
        """A dependant of the node no longer waits; returns whether it was the last one."""
        left = self.dependants[node] - 1
        self.dependants[node] = left
        if left:
            return False
        self.results.pop(node)
        return True

    def too_much_for(self, node: int, count: int, most_bytes: int, most_objects: int) -> bool:
        """Whether the results of its `count` predecessors, which the node needs, are too many or too large."""
        own_objects = self.dependency_offsets[node + 1] - self.dependency_offsets[node] if self.dependencies else 0
        if count + own_objects <= most_objects and count * self.largest_result_bytes <= most_bytes:
            return False
        results = [self.results[each] for each in self.predecessors_of(node)]
        objects = sum(isinstance(result, int) for result in results)
        total_bytes = sum(len(result) for result in results if not isinstance(result, int))
        return total_bytes > most_bytes or objects + own_objects > most_objects

    def keep_inputs(self, node: int, inputs: Inputs) -> None:
        """What a node was called with is kept, and what leads to it."""
        self.inputs[node] = inputs
        for predecessor in inputs.remade:
            self.recipe_users[predecessor] = self.recipe_users.get(predecessor, 0) + 1

    def take_inputs(self, node: int) -> Tuple[Inputs, List[int]]:
        """What was kept for a node, and is not any more; and the predecessors whose results have ended, and which
        nothing that is kept was made from now."""
        inputs = self.inputs.pop(node, _NO_INPUTS)
        unused: List[int] = []
        for predecessor in inputs.remade:
            users = self.recipe_users.pop(predecessor) - 1
            if users:
                self.recipe_users[predecessor] = users
            elif self.kept_for_reruns.get(predecessor) == 0:
                unused.append(predecessor)
        return inputs, unused

    def references(self) -> Iterator[int]:
        """The objects that it keeps alive, each as often as it refers to it."""
        yield from self.held_functions
        for node, state in enumerate(self.states[: self.checked]):
            if state == TaskState.WAITING:
                yield from self.dependencies_of(node)
        for node in self.kept_for_reruns:
            yield from self.dependencies_of(node)
        for inputs in self.inputs.values():
            yield from inputs.held
        released: Dict[int, int] = {}  # results that batches refer to
        for start, stop, is_released in self.unlinking:
            for predecessor in self.predecessors[start:stop] if is_released else ():
                released[predecessor] = released.get(predecessor, 0) + 1
        for node, result in self.results.values():
            if isinstance(result, int):
                yield from repeat(result, self.dependants[node] - released.get(node, 0))

    # Checking -------------------------------------------------------------------------------------------------------

    def check_invariants(self, is_left: bool) -> None:
        """Check that the counts match the states; called by State.check_invariants.

        Parameters:
            is_left: its client has gone: results that still come are not kept.
        """
        waiting, states = TaskState.WAITING, self.states
        counters = self.counters
        assert counters.waiting == states.count(waiting) and counters.nodes == len(self)
        assert counters.ended == [states.count(state) if state in FINAL_STATES else 0 for state in TaskState]
        queued = states.count(TaskState.QUEUED)
        assert 0 <= counters.running <= counters.running + counters.queued == queued
        assert self.unfinished == counters.waiting + queued
        if not self.is_dropped:
            self._check_edges(is_left)
            assert set(self.ended).issuperset([node for node, _ in self.failures.values()])
        in_batches = [node for node, _ in self.batches.values()]
        assert in_batches == [node for node, state in enumerate(states) if state == TaskState.QUEUED]

    def _check_edges(self, is_left: bool) -> None:
        states, predecessors = bytes(self.states), self.predecessors
        ready, untold = set(self.ready), set(self.ended)
        unlinking: Dict[int, int] = {}
        for start, stop, _ in self.unlinking:
            for predecessor in predecessors[start:stop]:
                unlinking[predecessor] = unlinking.get(predecessor, 0) + 1
        told: Dict[int, int] = {}  # edges of which the dependant has learned, before the others of its predecessor
        for current in self.ended.front(1):
            for successor in self.successors_of(current)[: self.passed]:
                told[successor] = told.get(successor, 0) + (states[current] == _SUCCEEDED)
        has_succeeded = bytearray(states.translate(_IS_SUCCEEDED))  # and its dependants know it
        for node in untold:
            has_succeeded[node] = False
        with_results = {node for node, _ in self.results.values()}
        for node, state in enumerate(states):
            if state == _WAITING:
                missing = self.missing[node]
                open_edges = [each for each in self.predecessors_of(node) if not has_succeeded[each]]
                assert missing == len(open_edges) - told.get(node, 0), f"node {node} is miscounted"
                is_known = missing or node in ready or node >= self.checked
                assert is_known, f"node {node} waits for nothing"
            edges = unlinking.get(node, 0)
            for each in self.successors_of(node):
                edges += states[each] == _WAITING
            assert self.dependants[node] == edges, f"node {node} has {edges} edges, {self.dependants[node]} counted"
            is_kept = state == _SUCCEEDED and edges > 0
            assert (node in with_results) == is_kept or (is_left and is_kept), (
                f"the result of node {node} is kept too long, or too short"
            )


_WAITING, _SUCCEEDED = int(TaskState.WAITING), int(TaskState.SUCCEEDED)
_IS_SUCCEEDED = bytes(state == _SUCCEEDED for state in range(256))
_ONE_RESULT = struct.Struct("<3I")
_EMPTY: Dict[str, object] = {
    **dict.fromkeys(("offsets", "dependency_offsets", "successor_offsets", "ids", "functions"), array("Q")),
    **dict.fromkeys(("successors", "predecessors", "predecessor_offsets", "missing", "dependants"), array("I")),
}


def consecutive_parts(nodes: Sequence[int]) -> Iterator[Tuple[int, int]]:
    """[start, stop) of the runs of ascending nodes that follow each other."""
    count = len(nodes)
    if nodes[-1] - nodes[0] == count - 1:
        yield 0, count
        return
    start = 0
    for position in range(1, count):
        if nodes[position] != nodes[position - 1] + 1:
            yield start, position
            start = position
    yield start, count


class GraphBatch(TaskBatch):
    """Nodes of a graph that were released together.

    Parameters:
        graph, nodes: which ones, ascending.
    """

    __slots__ = ("graph", "nodes", "key")

    def __init__(self, client: int, message: m.Task, payload: bytes, graph: Graph, nodes: array[int]) -> None:
        super().__init__(client, message, payload, graph.tenant)
        self.graph = graph
        self.nodes = nodes
        self.key = 0  # at its client

    @property
    def has_costly_ends(self) -> bool:
        return True

    def end_of_run(self, index: int, limit: int) -> int:
        """The end of the tasks from `index` on, at most `limit`, whose nodes follow each other."""
        nodes = self.nodes
        end = min(len(nodes), index + limit)
        first = nodes[index] - index
        if nodes[end - 1] - (end - 1) == first:
            return end
        for position in range(index + 1, end):
            if nodes[position] - position != first:
                return position
        raise AssertionError("nodes ascend")
