"""How graphs run: which nodes are ready, where their results go, and how a node's end affects others.

Rules:
- A node's end is recorded when it happens (`TaskOutcomes.finish`), and its consequences are processed once per burst,
  in `advance`, so that nodes that become ready in one burst are sent together.
- Success releases dependants whose last predecessor it was. A failure or cancel is passed on only to nodes that depend
  on the node. A node that no target needs any more is cancelled, unless it runs.
- The client gets the outcomes of targets, and of nodes whose cancel it requested.
"""

from __future__ import annotations

from array import array
from itertools import accumulate, islice
from typing import Dict, List, Union

from scaler_appliance.core.effects import Buffer, PeerError
from scaler_appliance.core.graphs.graph_nodes import Graph, GraphBatch, NodeFailure
from scaler_appliance.core.graphs.shared_results import MAXIMUM_OBJECTS, MAXIMUM_RESULTS_BYTES, keep_result
from scaler_appliance.core.objects.object_records import text_of_missing
from scaler_appliance.core.peers.sessions import ClientSession, WorkerSession
from scaler_appliance.core.placement.task_placement import Placement
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.tasks.batches import TaskSpan, consecutive_run
from scaler_appliance.core.tasks.capabilities import check_capabilities
from scaler_appliance.core.tasks.client_results import ResultSpan
from scaler_appliance.core.tasks.task_outcomes import TaskOutcomes
from scaler_appliance.core.tasks.task_states import TaskEvent, TaskState, apply, runs
from scaler_protocol import encode_struct
from scaler_protocol import messages as m


class GraphReactions:
    def __init__(self, state: SchedulerState, placement: Placement, outcomes: TaskOutcomes) -> None:
        self._state = state
        self._placement = placement
        self._outcomes = outcomes

    # Acceptance -----------------------------------------------------------------------------------------------------

    def on_graph_task(self, client: ClientSession, message: m.GraphTask, payload: bytes) -> None:
        """A client submits a graph: it is accepted as a whole, or rejected."""
        if not message.ids:
            return
        _check_graph(client, message, payload)
        client.last_task_id = message.ids[-1]
        counters = self._state.changes.begin_graph(client.number, message.ids[0], len(message.ids), self._state.now)
        graph = Graph(client.number, message, payload, counters)
        client.unfinished += len(graph)
        self._state.touch_session(client)
        client.graphs[graph.ids[0]] = graph
        self._state.nodes_waiting += len(graph)
        self._state.advancing[graph] = None
        graph.unneeded = [node for node, count in enumerate(graph.dependants) if not (count or graph.is_target[node])]
        missing = self._reference_objects(graph)
        for node, object_id in missing.items():
            self._lose(client, graph, node, m.FailureKind.OBJECT_MISSING, text_of_missing(object_id))
        sources = [node for node, count in enumerate(graph.missing) if not count and node not in missing]
        limit = self._state.settings.max_number_of_tasks_waiting
        if 0 <= limit < self._state.waiting() - self._placement.free_slots():
            text = (
                f"a graph of {len(graph)} tasks exceeds the tasks that may wait at the scheduler ({limit} in all, with"
                " those that wait for others): submit smaller ones, add workers, or raise --max-number-of-tasks-waiting"
            )
            for node in sources:
                self._lose(client, graph, node, m.FailureKind.REJECTED, text)
        else:
            self._release(client, graph, sources)

    def _reference_objects(self, graph: Graph) -> Dict[int, int]:
        """Count the graph's needs of objects; returns, by node, one that is missing.

        As with other tasks, all objects that exist are referenced.
        """
        objects = self._state.objects
        missing: Dict[int, int] = {}
        unusable = set()
        for function in sorted(set(graph.functions)):
            if objects.find(function) is not None:
                graph.held_functions.append(function)
            if not objects.refer(function):
                unusable.add(function)
        if unusable:
            missing = {node: each for node, each in enumerate(graph.functions) if each in unusable}
        for node in range(len(graph)) if graph.dependencies else ():
            for object_id in graph.dependencies_of(node):
                if not objects.refer(object_id):
                    missing.setdefault(node, object_id)
        return missing

    def _release(self, client: ClientSession, graph: Graph, nodes: List[int]) -> None:
        """Queue nodes that have all results, before other tasks of the client: depth first."""
        by_function: Dict[int, List[int]] = {}
        for node in sorted(nodes):
            if graph.states[node] != TaskState.WAITING:
                continue  # no longer needed
            if graph.too_much_for(node, MAXIMUM_RESULTS_BYTES, MAXIMUM_OBJECTS):
                text = f"the results of its {len(graph.predecessors_of(node))} predecessors are too much for one task"
                self._lose(client, graph, node, m.FailureKind.REJECTED, text)
                continue
            by_function.setdefault(graph.functions[node], []).append(node)
        for function, members in reversed(by_function.items()):  # each goes before the others
            batch = graph.release(function, members)
            self._state.nodes_waiting -= len(members)
            record = self._state.objects.find(function)
            assert record is not None, f"function {function:x} of a graph is gone"
            record.references += 1
            self._state.changes.begin(batch, record.name)
            self._state.touch_graph(graph)
            client.add_graph_batch(batch)
            self._state.ready.add(TaskSpan(batch, 0, len(batch)), in_front=True)

    # Results --------------------------------------------------------------------------------------------------------

    def on_results(
        self, worker: WorkerSession, client: ClientSession, batch: GraphBatch, start: int, stop: int, span: ResultSpan
    ) -> None:
        """Outcomes of nodes, in the order of their tasks: kept for dependants, and sent to the client if wanted."""
        graph = batch.graph
        objects = span.optional.get("objects") if span.optional else None
        ends = list(accumulate(span.sizes, initial=0))
        for position, node in enumerate(batch.nodes[start:stop]):
            content = span.payload[ends[position] : ends[position + 1]]
            if span.statuses and span.statuses[position] != m.TaskStatus.SUCCESS:
                failure = NodeFailure(span.statuses[position], bytes(content), span.codec, graph.ids[node])
                graph.failures[node] = failure
            elif objects and objects[position]:
                self._keep_object(worker, client, graph, node, objects[position])
            elif graph.dependants[node]:
                graph.results[node] = self._kept(client, graph, node, bytes(content), span.codec)
        # SCL-SCH-030
        wanted = bytes([graph.is_target[node] for node in batch.nodes[start:stop]])
        for first, end in runs(wanted, 0, stop - start, 1):
            part = _part(span, first, end, ends) if end - first < stop - start else span
            client.report(batch.ids[start + first : start + end], part)

    def _keep_object(
        self, worker: WorkerSession, client: ClientSession, graph: Graph, node: int, object_id: int
    ) -> None:
        """A large result: the client owns it if it wants it, and each dependant that waits needs it."""
        record = self._state.objects.find(object_id)
        assert record is not None
        worker.drop_object(record)
        record.references += graph.dependants[node]
        if graph.dependants[node]:
            graph.results[node] = object_id
        if graph.is_target[node]:
            record.owner = client.number
            client.hold_object(record)
            self._state.changes.objects.touch_large(record)
            client.large_results.add(object_id, record.size)
        else:
            self._outcomes.forget_object(record, self._state.objects.let_go(record))

    def _kept(self, client: ClientSession, graph: Graph, node: int, content: bytes, codec: str) -> Union[bytes, int]:
        """The form in which to keep a small result: its bytes; or an object if many nodes need it."""
        result = keep_result(self._state, client, content, codec, graph.dependants[node])
        if result is content and len(content) > graph.largest_result_bytes:
            graph.largest_result_bytes = len(content)
        return result

    # Consequences ---------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Process the consequences of all nodes that ended since the last call."""
        advancing, self._state.advancing = self._state.advancing, {}
        for graph in advancing:
            self._advance(self._state.clients[graph.client], graph)
        assert all(not graph.ended for graph in self._state.advancing), "an end that came of others was left behind"
        self._state.advancing.clear()

    def _advance(self, client: ClientSession, graph: Graph) -> None:
        while graph.ended or graph.unneeded:
            unneeded, graph.unneeded = graph.unneeded, []
            for node in unneeded:
                self._cancel_unneeded(client, graph, node)
            ended, graph.ended = graph.ended, []
            ready: List[int] = []
            for node in ended:
                if graph.states[node] == TaskState.SUCCEEDED:
                    for successor in graph.successors_of(node):
                        graph.missing[successor] -= 1
                        # SCL-SCH-028
                        if not graph.missing[successor]:
                            ready.append(successor)
                else:
                    self._pass_on(client, graph, node)
            if ready:
                self._release(client, graph, ready)
        if not graph.unfinished:
            del client.graphs[graph.ids[0]]
            self._state.changes.graphs.remove(graph.counters.number, graph.counters)
            for function in graph.held_functions:
                self._outcomes.release(function)

    def _pass_on(self, client: ClientSession, graph: Graph, node: int) -> None:
        """End all nodes that depend on a node without result, in the same state."""
        # SCL-SCH-031
        failure = graph.failures.pop(node, None)
        for successor in graph.successors_of(node):
            if graph.states[successor] != TaskState.WAITING:
                continue
            if failure is None:
                self._end_waiting(client, graph, successor, TaskEvent.CANCEL)
                if graph.is_target[successor]:
                    client.confirm_cancel(graph.ids[successor], m.CancelOutcome.CANCELLED)
            else:
                graph.failures[successor] = failure
                self._report_failure(client, graph, successor, failure)
                self._end_waiting(client, graph, successor, TaskEvent.INHERIT_FAILURE)

    def _report_failure(self, client: ClientSession, graph: Graph, node: int, failure: NodeFailure) -> None:
        if graph.is_target[node]:
            ids = graph.ids[node : node + 1]
            optional = {"causes": array("Q", [failure.origin + 1])} if failure.origin != ids[0] else None
            sizes = array("I", [len(failure.payload)])
            client.report(ids, ResultSpan(sizes, failure.payload, failure.codec, bytes([failure.status]), optional))

    def _lose(self, client: ClientSession, graph: Graph, node: int, kind: m.FailureKind, text: str) -> None:
        """A waiting node gets the outcome `lost`."""
        payload = encode_struct(m.Failure(kind=kind, message=text, attempts=1))
        failure = graph.failures[node] = NodeFailure(m.TaskStatus.LOST, payload, "", graph.ids[node])
        self._report_failure(client, graph, node, failure)
        self._end_waiting(client, graph, node, TaskEvent.LOSE)

    def cancel_waiting(self, client: ClientSession, graph: Graph, node: int) -> None:
        """A client asks to cancel a node that waits for predecessors."""
        self._end_waiting(client, graph, node, TaskEvent.CANCEL)
        client.confirm_cancel(graph.ids[node], m.CancelOutcome.CANCELLED)

    def _end_waiting(self, client: ClientSession, graph: Graph, node: int, event: TaskEvent) -> None:
        """A node ends that has never been ready: what it needed is released."""
        apply(graph.states, node, node + 1, event)
        self._state.nodes_waiting -= 1
        graph.counters.waiting -= 1
        graph.counters.ended[graph.states[node]] += 1
        self._state.finished[graph.states[node]] += 1
        client.ended[graph.states[node]] += 1
        client.unfinished -= 1
        self._state.touch_graph(graph)
        self._state.touch_session(client)
        self._state.advancing[graph] = None
        graph.unfinished -= 1
        graph.ended.append(node)
        for object_id in graph.dependencies_of(node):
            self._outcomes.release(object_id)
        for predecessor in graph.predecessors_of(node):
            result = graph.results.get(predecessor)
            if isinstance(result, int):
                self._outcomes.release(result)
            if graph.forget_dependant(predecessor) and not graph.is_target[predecessor]:
                graph.unneeded.append(predecessor)

    # SCL-SCH-032
    def _cancel_unneeded(self, client: ClientSession, graph: Graph, node: int) -> None:
        """No target needs the node any more."""
        if graph.states[node] == TaskState.WAITING:
            self._end_waiting(client, graph, node, TaskEvent.CANCEL)
        elif graph.states[node] == TaskState.QUEUED:
            batch, index = graph.place_of(node)
            if batch.states[index] != TaskState.CANCELLING:
                client.unasked_cancels.add(graph.ids[node])
            self._outcomes.cancel(client, batch, index, graph.is_forced)

    def drop_all(self, client: ClientSession) -> None:
        """The client is gone, and the tasks of its batches are cancelled: remove the rest of its graphs."""
        for graph in list(client.graphs.values()):
            for node, state in enumerate(graph.states):
                if state == TaskState.WAITING:
                    self._end_waiting(client, graph, node, TaskEvent.CANCEL)
            for function in graph.held_functions:
                self._outcomes.release(function)
            self._state.advancing.pop(graph, None)
            self._state.changes.graphs.remove(graph.counters.number, graph.counters)
        client.graphs.clear()


def _part(span: ResultSpan, first: int, end: int, ends: List[int]) -> ResultSpan:
    """Entries [first, end) of a span."""
    optional = span.optional and {name: column[first:end] for name, column in span.optional.items()}
    statuses = span.statuses[first:end]
    return ResultSpan(span.sizes[first:end], span.payload[ends[first] : ends[end]], span.codec, statuses, optional)


# SCL-SCH-002
def _check_graph(client: ClientSession, message: m.GraphTask, payload: Buffer) -> None:
    ids, count = message.ids, len(message.ids)

    def check(is_right: bool, what: str) -> None:
        if not is_right:
            raise PeerError(m.RefusalReason.MALFORMED, f"GraphTask: {what}")

    message.check_columns(len(payload))
    check(all(message.functions), "each node must have a function object")
    targets = message.targets
    check(len(set(targets)) == len(targets) and max(targets, default=0) < count, "targets are not nodes, each once")
    offsets, predecessors = message.predecessor_offsets, message.predecessors
    check(len(offsets) == count + 1 or not offsets, "predecessor_offsets do not fit the ids")
    fits = (offsets[0] == 0 and offsets[-1] == len(predecessors)) if offsets else not predecessors
    check(fits and all(map(int.__le__, offsets, islice(offsets, 1, None))), "predecessor_offsets do not ascend")
    for node in range(count) if offsets else ():
        before = predecessors[offsets[node] : offsets[node + 1]]
        check(not before or max(before) < node, "a node must come after its predecessors")
    check_capabilities(message.options.capabilities)
    ascending = consecutive_run(ids, 0, count) == count or all(map(int.__lt__, ids, islice(ids, 1, None)))
    if not ascending or ids[0] <= client.last_task_id:
        # SCL-SCH-003
        raise PeerError(m.RefusalReason.PROTOCOL_VIOLATION, "GraphTask: ids must ascend within a session")
