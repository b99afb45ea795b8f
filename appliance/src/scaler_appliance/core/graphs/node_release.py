"""Queueing nodes that have the results of all their predecessors.

Rule: nodes go before other tasks of their client, so that graphs run depth first. The results of a node with very many
predecessors are gathered in parts, before anything changes.
"""

from __future__ import annotations

from array import array
from sys import byteorder
from typing import Callable, Dict, List

from scaler_appliance.core.effects import Buffer
from scaler_appliance.core.graphs.graph_building import EDGES_PER_UNIT
from scaler_appliance.core.graphs.graph_nodes import IS_OBJECT, RESULTS_MARK, Graph, GraphBatch
from scaler_appliance.core.graphs.shared_results import MAXIMUM_OBJECTS, MAXIMUM_RESULTS_BYTES
from scaler_appliance.core.peers.sessions import ClientSession
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.steps import Steps, parts
from scaler_appliance.core.tasks.batches import TaskSpan
from scaler_appliance.core.tasks.task_states import TaskState

UNITS_OF_A_RUN = 4  # of nodes that end or are released together, besides the nodes


class NodeRelease:
    """Releases nodes of graphs.

    Parameters:
        lose: ends a node whose predecessors have more results than a task may have.
    """

    def __init__(self, state: SchedulerState, lose: Callable[[ClientSession, Graph, int], None]) -> None:
        self._state = state
        self._lose = lose

    def release_some(self, client: ClientSession, graph: Graph) -> Steps:
        """Queue nodes that have all results, before other tasks of the client: depth first."""
        nodes: List[int] = []
        done, edges, states, part = 0, graph.predecessor_offsets, graph.states, self._state.part
        most, taken = part * EDGES_PER_UNIT, 0
        ready = graph.ready.front(most // 2)
        for node in ready:
            count = edges[node + 1] - edges[node]
            if count > part or done >= most:
                break
            taken += 1
            done += 2 + 4 * count
            if states[node] != TaskState.WAITING:
                continue  # no longer needed
            if count and graph.too_much_for(node, count, MAXIMUM_RESULTS_BYTES, MAXIMUM_OBJECTS):
                self._lose(client, graph, node)
                continue
            nodes.append(node)
        graph.ready.drop(taken)
        if nodes:
            self._release(client, graph, sorted(nodes))
        elif not done:
            yield from self._release_largest(client, graph, ready[0])
        yield done // EDGES_PER_UNIT + UNITS_OF_A_RUN

    def _release(self, client: ClientSession, graph: Graph, nodes: List[int]) -> None:
        functions = graph.functions[nodes[0] : nodes[-1] + 1] if len(nodes) > nodes[-1] - nodes[0] else ()
        if functions and functions.count(functions[0]) == len(nodes):
            self._queue(client, graph, graph.release(functions[0], nodes))
            return
        by_function: Dict[int, List[int]] = {}
        for node in nodes:
            by_function.setdefault(graph.functions[node], []).append(node)
        for function, members in reversed(by_function.items()):  # each goes before the others
            self._queue(client, graph, graph.release(function, members))

    def _queue(self, client: ClientSession, graph: Graph, batch: GraphBatch) -> None:
        self._state.nodes_waiting -= len(batch)
        record = self._state.objects.find(batch.function)
        assert record is not None, f"function {batch.function:x} of a graph is gone"
        record.references += 1
        self._state.changes.begin(batch, record.name)
        self._state.touch_graph(graph)
        client.add_graph_batch(batch)
        self._state.ready.add(TaskSpan(batch, 0, len(batch)), in_front=True)

    def _release_largest(self, client: ClientSession, graph: Graph, node: int) -> Steps:
        """Queue a node with very many predecessors, whose results are gathered in parts before anything changes."""
        start, stop = graph.predecessor_offsets[node], graph.predecessor_offsets[node + 1]
        sizes, objects = array("I", [RESULTS_MARK, stop - start]), array("Q")
        contents: List[Buffer] = []
        for low, high in parts(stop - start, self._state.part):
            if graph.states[node] != TaskState.WAITING:
                break
            results = [graph.results[each] for each in graph.predecessors[start + low : start + high]]
            sizes.extend([IS_OBJECT if isinstance(result, int) else len(result) for result in results])
            objects.extend([result for result in results if isinstance(result, int)])
            contents.append(b"".join([result for result in results if not isinstance(result, int)]))
            yield (high - low) // EDGES_PER_UNIT + 1
        assert graph.ready.front(1)[0] == node, "only this work takes nodes from the front"
        graph.ready.drop(1)
        if graph.states[node] != TaskState.WAITING:
            return  # no longer needed
        own_objects = graph.dependency_offsets[node + 1] - graph.dependency_offsets[node]
        if sum(map(len, contents)) > MAXIMUM_RESULTS_BYTES or len(objects) + own_objects > MAXIMUM_OBJECTS:
            self._lose(client, graph, node)
            return
        # SCL-SCH-029
        if byteorder == "big":
            sizes.byteswap()
        front: List[Buffer] = [sizes.tobytes(), *contents]
        batch = graph.release_alone(node, front, sum(map(len, front)), objects)
        self._queue(client, graph, batch)
