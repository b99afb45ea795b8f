"""How graphs run: which nodes are ready, where their results go, and how a node's end affects others.

    GraphTask ──▶ build_graph ──▶ objects of its nodes ──▶ checked: nodes are released, run, end
                                                               ▲                        │
                                                               └───── advance ◀─────────┘

Rules:
- A node's end is recorded when it happens (`TaskOutcomes.finish`), and its consequences are processed in `advance`,
  after each burst, so that nodes that become ready in one burst are sent together. Nothing follows from an end before
  the objects of all nodes have been looked for.
- Success releases dependants whose last predecessor it was. A failure or cancel is passed on only to nodes that depend
  on the node. A node that no target needs any more is cancelled, unless it runs.
- The client gets the outcomes of targets, and of nodes whose cancel it requested.
- Everything is done in parts, and runs of nodes are handled at once: a graph may have millions of nodes, and a node
  millions of edges. The progress of a graph is in its columns, so the work may end after any part.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import accumulate, compress
from operator import not_
from typing import Dict, Iterable, List, Optional, Sequence, Union

from scaler_appliance.core.graphs.graph_building import EDGES_PER_UNIT, build_graph
from scaler_appliance.core.graphs.graph_nodes import (
    OWN,
    Graph,
    GraphBatch,
    NodeFailure,
    Unlinking,
    consecutive_parts,
)
from scaler_appliance.core.graphs.graph_rejection import needed_bytes, reject_graph, text_of_too_large
from scaler_appliance.core.graphs.missing_objects import MissingObjectFailures
from scaler_appliance.core.graphs.node_release import UNITS_OF_A_RUN, NodeRelease
from scaler_appliance.core.graphs.node_reruns import NodeReruns
from scaler_appliance.core.graphs.shared_results import SHARED_RESULT_BYTES, keep_result
from scaler_appliance.core.large_tables import LARGE, Table, drained, in_chunks
from scaler_appliance.core.objects.object_records import NodeResult, ObjectRecord
from scaler_appliance.core.peers.sessions import ClientSession
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.placement.task_placement import Placement
from scaler_appliance.core.placement.waiting_quotas import WaitingQuota
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.steps import Steps, parts
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
        self._release = NodeRelease(state, self._lose_for_too_much)
        self._reruns = NodeReruns(state, placement, outcomes, self._count_ended, self._lose_run)

    # Acceptance -----------------------------------------------------------------------------------------------------

    def on_graph_task(self, client: ClientSession, message: m.GraphTask, payload: bytes) -> Steps:
        """A client submits a graph: it is accepted as a whole, or rejected."""
        if not message.ids:
            return
        if not self._state.budget.has_room_for(needed_bytes(message)):
            self._state.count_useless(client, UNITS_OF_A_RUN + len(message.ids))
            yield from reject_graph(client, message, self._state.budget.text_of_full(), self._state.part)
            return
        graph = yield from build_graph(client, message, payload, self._state.part)
        client.last_task_id = graph.ids[-1]
        graph.counters = self._state.changes.begin_graph(client, graph.ids[0], len(graph), self._state.now)
        client.unfinished += len(graph)
        self._state.touch_session(client)
        client.add_graph(graph)
        self._state.nodes_waiting += len(graph)
        limit = self._state.settings.max_number_of_tasks_waiting
        is_full = 0 <= limit < self._state.waiting() - self._placement.free_slots()
        quota = WaitingQuota(self._state, self._placement, client.tenant)
        is_over_quota = self._state.shares.has_quotas and quota.room(len(graph)) < len(graph)
        text = quota.text if is_over_quota else text_of_too_large(len(graph), limit)
        functions: Table[None] = {}
        for start, stop in parts(len(graph), self._state.part * EDGES_PER_UNIT):
            functions.update(dict.fromkeys(graph.functions[start:stop]))
            if len(functions) >= LARGE:
                functions = in_chunks(functions)
            yield (stop - start) // EDGES_PER_UNIT
        yield from self._check_objects(client, graph, functions, text if is_full or is_over_quota else "")

    def _check_objects(self, client: ClientSession, graph: Graph, functions: Iterable[int], text: str) -> Steps:
        """Count the graph's needs of objects; nodes that miss one are lost, and all sources if there is no room.

        Parameters:
            text: why there is no room; empty if there is some.

        As with other tasks, all objects that exist are referenced.
        """
        objects, part, count = self._state.objects, self._state.part, len(graph)
        unusable: Table[None] = {}
        for position, function in enumerate(functions):
            if objects.find_of(function, graph.tenant) is None:
                unusable[function] = None
            else:
                graph.held_functions.append(function)
                if not objects.refer(function, graph.tenant, graph.client):
                    unusable[function] = None
            if len(unusable) == LARGE:
                unusable = in_chunks(unusable)
            if position % part == part - 1:
                yield part
        texts = MissingObjectFailures(self._state.objects, graph.tenant)
        while graph.checked < count:
            start = graph.checked
            stop = min(count, start + part)
            if graph.dependencies:
                ends = graph.dependency_offsets
                stop = max(start + 1, min(stop, bisect_right(ends, ends[start] + part) - 1))
            missing = self._refer(graph, start, stop, unusable)
            graph.checked = stop
            done = (stop - start) // EDGES_PER_UNIT + graph.dependency_offsets[stop] - graph.dependency_offsets[start]
            sources = list(compress(range(start, stop), map(not_, graph.missing[start:stop])))
            if missing:
                done += self._lose_those_missing(client, graph, missing, texts)
                sources = [node for node in sources if node not in missing]
                self._state.count_useless(client, UNITS_OF_A_RUN + len(missing))
            if not text:
                graph.ready.extend(sources)
            elif sources:
                payload = encode_struct(m.Failure(kind=m.FailureKind.REJECTED, message=text, attempts=1))
                self._state.count_useless(client, UNITS_OF_A_RUN + len(sources))
                for first, end in consecutive_parts(sources):
                    done += self._lose_run(client, graph, sources[first], sources[end - 1] + 1, payload)
            if stop == count:
                self._state.advance(client, graph)
            yield done + 1

    def _refer(self, graph: Graph, start: int, stop: int, unusable: Table[None]) -> Dict[int, int]:
        """Refer to the objects of nodes [start, stop); returns, by node, one that is missing."""
        objects = self._state.objects
        missing: Dict[int, int] = {}
        if unusable:
            functions = zip(range(start, stop), graph.functions[start:stop])
            missing = {node: function for node, function in functions if function in unusable}
        if graph.dependencies:
            for node in range(start, stop):
                for object_id in graph.dependencies_of(node):
                    if not objects.refer(object_id, graph.tenant, graph.client):
                        missing.setdefault(node, object_id)
        return missing

    def _lose_those_missing(
        self, client: ClientSession, graph: Graph, missing: Dict[int, int], texts: MissingObjectFailures
    ) -> int:
        """Nodes that miss an object are lost; returns the amount of work."""
        nodes, done = sorted(missing), 0
        for first, end in consecutive_parts(nodes):
            while first < end:
                object_id = missing[nodes[first]]
                after = first + 1
                while after < end and missing[nodes[after]] == object_id:
                    after += 1
                done += self._lose_run(client, graph, nodes[first], nodes[after - 1] + 1, texts.of(object_id))
                first = after
        return done

    def _lose_for_too_much(self, client: ClientSession, graph: Graph, node: int) -> None:
        text = f"the results of its {len(graph.predecessors_of(node))} predecessors are too much for one task"
        payload = encode_struct(m.Failure(kind=m.FailureKind.REJECTED, message=text, attempts=1))
        self._lose_run(client, graph, node, node + 1, payload)

    # Results --------------------------------------------------------------------------------------------------------

    def on_results(
        self, worker: WorkerSession, client: ClientSession, batch: GraphBatch, start: int, stop: int, span: ResultSpan
    ) -> None:
        """Outcomes of nodes, in the order of their tasks: kept for dependants, and sent to the client if wanted."""
        graph = batch.graph
        nodes = batch.nodes[start:stop]
        first, after = nodes[0], nodes[-1] + 1
        is_one_run = after - first == stop - start
        dependants, is_target = graph.dependants, graph.is_target
        if span.statuses or span.optional or not is_one_run or any(dependants[first:after]):
            self._keep_results(worker, client, graph, nodes, span)
        # SCL-SCH-030
        wanted = is_target[first:after] if is_one_run else bytes([is_target[node] for node in nodes])
        if all(wanted):
            client.report(batch.ids[start:stop], span)
        elif any(wanted):
            ends = list(accumulate(span.sizes, initial=0))
            for low, high in runs(wanted, 0, stop - start, 1):
                client.report(batch.ids[start + low : start + high], _part(span, low, high, ends))

    def _keep_results(
        self, worker: WorkerSession, client: ClientSession, graph: Graph, nodes: Sequence[int], span: ResultSpan
    ) -> None:
        """Keep the outcomes of nodes that others depend on."""
        objects = span.optional.get("objects") if span.optional else None
        statuses, dependants, results, payload = span.statuses, graph.dependants, graph.results, span.payload
        end = 0
        for position, node in enumerate(nodes):
            begin = end
            end += span.sizes[position]
            if statuses and statuses[position] != m.TaskStatus.SUCCESS:
                graph.failures[node] = NodeFailure(statuses[position], bytes(payload[begin:end]), span.codec, OWN)
            elif objects and objects[position]:
                self._keep_object(worker, client, graph, node, objects[position])
            elif dependants[node]:
                results[node] = self._kept(client, graph, node, bytes(payload[begin:end]), span.codec)

    def _keep_object(
        self, worker: WorkerSession, client: ClientSession, graph: Graph, node: int, object_id: int
    ) -> None:
        """A large result: the client owns it if it wants it, and each dependant that waits needs it."""
        record = self._state.objects.find(object_id)
        assert record is not None
        worker.drop_object(record)
        self._state.objects.hand_over(record, client.tenant)
        record.references += graph.dependants[node]
        if graph.dependants[node]:
            graph.results[node] = object_id
        if record.has_holders:
            record.made_by = NodeResult(client.number, graph.ids[0], node)
            if graph.dependants[node] and graph.dependencies and not graph.options.at_most_once:
                self._reruns.keep_recipe(graph, node, object_id)
        if graph.is_target[node]:
            record.owner = client.number
            client.hold_object(record)
            self._state.changes.objects.touch_large(record)
            client.large_results.add(object_id, record.size)
        else:
            self._outcomes.forget_object(record, self._state.objects.let_go(record))

    def _kept(self, client: ClientSession, graph: Graph, node: int, content: bytes, codec: str) -> Union[bytes, int]:
        """The form in which to keep a small result: its bytes; or an object if many nodes need it."""
        size = len(content)
        if size >= SHARED_RESULT_BYTES:
            result = keep_result(self._state, client, content, codec, graph.dependants[node])
            if result is not content:
                return result
        if size > graph.largest_result_bytes:
            graph.largest_result_bytes = size
        return content

    def on_result_lost(self, record: ObjectRecord) -> bool:
        """A result was lost with the worker that kept it: returns whether its node may run again."""
        made_by = record.made_by
        client = None if made_by is None else self._state.clients.get(made_by.client)
        graph = None if client is None or made_by is None else client.graphs.get(made_by.graph)
        if made_by is None or client is None or client.is_gone or graph is None:
            return False
        graph.lost.append((made_by.node, record.object_id))
        self._state.advance(client, graph)
        return True

    # Consequences ---------------------------------------------------------------------------------------------------

    def advance(self, client: ClientSession) -> Steps:
        """Process the consequences of all nodes of a client that have ended."""
        while client.advancing:
            number, graph = next(iter(client.advancing.items()))
            if graph.checked < len(graph):
                del client.advancing[number]  # it is added again when its objects have been looked for
                continue
            while graph.has_consequences:
                if graph.unlinking:
                    yield self._unlink_some(graph)
                elif graph.unneeded:
                    yield self._cancel_some_unneeded(client, graph)
                elif graph.ended:
                    yield self._pass_some_on(client, graph)
                elif graph.lost and not graph.ready:
                    yield self._reruns.rerun_next(client, graph)
                else:
                    yield from self._release.release_some(client, graph)
            if graph.unfinished:
                del client.advancing[number]
            else:
                yield from self._end_graph(client, graph)

    def _end_graph(self, client: ClientSession, graph: Graph) -> Steps:
        held = graph.held_functions
        while held:
            self._outcomes.release(held.pop())
            if len(held) % self._state.part == 0:
                yield self._state.part
        while graph.kept_for_reruns:
            node, _ = graph.kept_for_reruns.popitem()
            inputs, _ = graph.take_inputs(node)
            yield 1 + self._outcomes.release_all(client, graph.dependencies_of(node) + inputs.held, 1, is_lost=False)
        client.remove_graph(graph)
        client.advancing.pop(graph.counters.number, None)
        self._state.changes.graphs.remove(graph.counters.number, graph.counters)
        for _ in graph.free(self._state.part):
            yield self._state.part // 2

    def _unlink_some(self, graph: Graph) -> int:
        """Forget edges to nodes that wait no longer."""
        start, stop, is_released = graph.unlinking.popleft()
        end = min(stop, start + self._state.part)
        self._unlink(graph, start, end, is_released)
        if end < stop:
            graph.unlinking.appendleft(Unlinking(end, stop, is_released))
        return (end - start) // EDGES_PER_UNIT + 1

    def _unlink(self, graph: Graph, start: int, stop: int, is_released: bool) -> None:
        """The nodes at the ends of edges [start, stop) wait no longer."""
        dependants, results, is_target = graph.dependants, graph.results, graph.is_target
        if results:
            for predecessor in graph.predecessors[start:stop]:
                result = results.get(predecessor)
                if isinstance(result, int) and not is_released:
                    self._outcomes.release(result)
                if graph.forget_dependant(predecessor) and not is_target[predecessor]:
                    graph.unneeded.append(predecessor)
            return
        for predecessor in graph.predecessors[start:stop]:
            left = dependants[predecessor] - 1
            dependants[predecessor] = left
            if not left and not is_target[predecessor]:
                graph.unneeded.append(predecessor)

    def _pass_some_on(self, client: ClientSession, graph: Graph) -> int:
        """Nodes have ended: release dependants, or end them in the same way."""
        done, part, is_partial = 0, self._state.part, False
        starts, failures = graph.successor_offsets, graph.failures
        ready: List[int] = []
        while graph.ended and done < part and not is_partial:
            taken, has_failures = 0, bool(failures)
            for node in graph.ended.front(part * EDGES_PER_UNIT):
                start, stop = starts[node], starts[node + 1]
                if start < stop:
                    if done >= part:
                        break
                    start += graph.passed
                    end = stop if stop - start < part else start + part
                    done += 1 + self._pass_on(client, graph, node, graph.successors[start:end], ready)
                    is_partial = end < stop
                    if is_partial:
                        graph.passed += end - start
                        break
                    graph.passed = 0
                taken += 1
                if has_failures:
                    failures.pop(node)
            graph.ended.drop(taken)
            done += taken // EDGES_PER_UNIT
        graph.ready.extend(ready)
        return done + 1

    def _pass_on(self, client: ClientSession, graph: Graph, node: int, successors: array[int], ready: List[int]) -> int:
        """A node has ended: these of its dependants become `ready`, or end; returns the amount of work."""
        if graph.states[node] != TaskState.SUCCEEDED:
            return self._pass_failure_on(client, graph, node, successors)
        missing = graph.missing
        if graph.reruns:  # those that do not wait have learned of an earlier end
            waiting, states = TaskState.WAITING, graph.states
            successors = array("I", [each for each in successors if states[each] == waiting])
        for successor in successors:
            left = missing[successor] - 1
            missing[successor] = left
            # SCL-SCH-028
            if not left:
                ready.append(successor)
        return len(successors) // EDGES_PER_UNIT

    def _pass_failure_on(self, client: ClientSession, graph: Graph, node: int, successors: array[int]) -> int:
        """End nodes that depend on a node without result, in the same state; returns the amount of work."""
        done = 1 + len(successors) // EDGES_PER_UNIT
        if len(successors) == 1 and graph.states[successors[0]] != TaskState.WAITING:
            return done
        # SCL-SCH-031
        failure = graph.failures.get(node)
        if failure is not None and failure.origin == OWN:
            failure = graph.failures[node] = failure._replace(origin=graph.ids[node])
        if len(successors) == 1:
            return done + self._pass_to_run(client, graph, successors[0], successors[0] + 1, failure)
        nodes = list(dict.fromkeys(successors))  # a node may name a predecessor more than once
        for low, high in consecutive_parts(nodes):
            done += 1
            for first, end in runs(graph.states, nodes[low], nodes[high - 1] + 1, TaskState.WAITING):
                done += self._pass_to_run(client, graph, first, end, failure)
        return done

    def _pass_to_run(
        self, client: ClientSession, graph: Graph, start: int, stop: int, failure: Optional[NodeFailure]
    ) -> int:
        """Waiting nodes [start, stop) end because of a predecessor; returns the amount of work."""
        if failure is None:
            return self._cancel_run(client, graph, start, stop)
        self._keep_failure(graph, start, stop, failure)
        self._report_failure(client, graph, start, stop, failure)
        return self._end_waiting(client, graph, start, stop, TaskEvent.INHERIT_FAILURE)

    def _keep_failure(self, graph: Graph, start: int, stop: int, failure: NodeFailure) -> None:
        """Nodes [start, stop) are about to fail: keep why, if others depend on them."""
        if graph.successor_offsets[start] < graph.successor_offsets[stop]:
            graph.failures.set_run(start, stop, failure)

    def _report_failure(self, client: ClientSession, graph: Graph, start: int, stop: int, failure: NodeFailure) -> None:
        """Report the failure of those of nodes [start, stop) that are targets."""
        size, statuses = len(failure.payload), bytes([failure.status])
        for first, end in runs(graph.is_target, start, stop, 1):
            count = end - first
            optional = None if failure.origin == OWN else {"causes": array("Q", [failure.origin + 1]) * count}
            span = ResultSpan(
                array("I", [size]) * count, failure.payload * count, failure.codec, statuses * count, optional
            )
            client.report(graph.ids[first:end], span)

    def _lose_run(self, client: ClientSession, graph: Graph, start: int, stop: int, payload: bytes) -> int:
        """Waiting nodes [start, stop) get the outcome `lost`; returns the amount of work."""
        failure = NodeFailure(m.TaskStatus.LOST, payload, "", OWN)
        self._keep_failure(graph, start, stop, failure)
        self._report_failure(client, graph, start, stop, failure)
        return self._end_waiting(client, graph, start, stop, TaskEvent.LOSE)

    def cancel_waiting(self, client: ClientSession, graph: Graph, start: int, stop: int) -> int:
        """A client asks to cancel nodes that wait for predecessors; returns the amount of work."""
        client.confirm_cancels(graph.ids[start:stop], m.CancelOutcome.CANCELLED)
        return self._end_waiting(client, graph, start, stop, TaskEvent.CANCEL)

    def _cancel_run(self, client: ClientSession, graph: Graph, start: int, stop: int) -> int:
        """Waiting nodes are cancelled because others were; returns the amount of work."""
        for first, end in runs(graph.is_target, start, stop, 1):
            client.confirm_cancels(graph.ids[first:end], m.CancelOutcome.CANCELLED)
        return self._end_waiting(client, graph, start, stop, TaskEvent.CANCEL)

    def _end_waiting(self, client: ClientSession, graph: Graph, start: int, stop: int, event: TaskEvent) -> int:
        """Nodes [start, stop) end that have never been ready: what they needed is released.

        Returns the amount of work.
        """
        apply(graph.states, start, stop, event)
        self._count_ended(client, graph, start, stop)
        self._state.advance(client, graph)
        graph.ended.extend(range(start, stop))
        done = UNITS_OF_A_RUN + (stop - start) // EDGES_PER_UNIT
        if graph.dependencies:
            needed, is_lost = self._needed_objects(graph, start, stop), event == TaskEvent.LOSE
            done += self._outcomes.release_all(client, needed, stop - start, is_lost)
        first, end = graph.predecessor_offsets[start], graph.predecessor_offsets[stop]
        if end - first > self._state.part:
            graph.unlinking.append(Unlinking(first, end, is_released=False))
        elif end > first:
            self._unlink(graph, first, end, is_released=False)
            done += (end - first) // EDGES_PER_UNIT
        return done

    def _count_ended(self, client: ClientSession, graph: Graph, start: int, stop: int) -> None:
        """Waiting nodes [start, stop) have ended, all in the same state."""
        state, count = graph.states[start], stop - start
        self._state.nodes_waiting -= count
        graph.counters.waiting -= count
        graph.counters.ended[state] += count
        graph.unfinished -= count
        self._state.finished[state] += count
        client.ended[state] += count
        client.unfinished -= count
        if not graph.counters.is_dirty:
            self._state.touch_graph(graph)
        if not client.is_dirty:
            self._state.touch_session(client)

    def _needed_objects(self, graph: Graph, start: int, stop: int) -> array[int]:
        """The objects that waiting nodes [start, stop) refer to."""
        if not graph.dependencies:
            return array("Q")
        ends = graph.dependency_offsets
        return graph.dependencies[ends[start] : ends[max(start, min(stop, graph.checked))]]

    # SCL-SCH-032
    def _cancel_some_unneeded(self, client: ClientSession, graph: Graph) -> int:
        """No target needs some nodes any more."""
        nodes = sorted(graph.unneeded.front(self._state.part))
        graph.unneeded.drop(len(nodes))
        done = 1 + len(nodes) // EDGES_PER_UNIT
        for first, end in consecutive_parts(nodes):
            start, stop = nodes[first], nodes[end - 1] + 1
            for low, high in runs(graph.states, start, stop, TaskState.WAITING):
                done += self._end_waiting(client, graph, low, high, TaskEvent.CANCEL)
            for low, high in runs(graph.states, start, stop, TaskState.QUEUED):
                done += self.cancel_queued(client, graph, low, high, graph.is_forced, is_asked=False)
        return done

    def cancel_queued(
        self, client: ClientSession, graph: Graph, start: int, stop: int, force: bool, is_asked: bool
    ) -> int:
        """Cancel nodes [start, stop) that are in batches; returns the amount of work.

        Parameters:
            is_asked: whether the client asked for it, and expects an answer.
        """
        done = 0
        while start < stop:
            batch, index = graph.place_of(start)
            end = batch.end_of_run(index, stop - start)
            if not is_asked:
                cancelled = batch.states[index:end].translate(_IS_ASSIGNED)
                client.count_unasked(compress(batch.ids[index:end], cancelled))
            elif client.unasked_cancels:
                for task_id in batch.ids[index:end]:
                    client.unasked_cancels.pop(task_id, None)
            done += self._outcomes.cancel_run(client, batch, index, end, force, is_asked)
            start += end - index
        return done

    # SCL-SCH-022
    def drop_all(self, client: ClientSession) -> Steps:
        """The client is gone, and the tasks of its batches are cancelled: remove the rest of its graphs."""
        state = self._state
        for graph in drained(client.graphs):
            while graph.unlinking:
                yield self._unlink_some(graph)
            graph.is_dropped = True
            while graph.results:
                for node, result in graph.results.pop_some(state.part):
                    if isinstance(result, int):
                        self._outcomes.release(result, graph.dependants[node])
                yield state.part // EDGES_PER_UNIT
            for start, stop in parts(len(graph), state.part * EDGES_PER_UNIT):
                done = (stop - start) // EDGES_PER_UNIT
                for first, end in runs(graph.states, start, stop, TaskState.WAITING):
                    apply(graph.states, first, end, TaskEvent.CANCEL)
                    self._count_ended(client, graph, first, end)
                    needed = self._needed_objects(graph, first, end)
                    done += UNITS_OF_A_RUN + self._outcomes.release_all(client, needed, end - first, is_lost=False)
                yield done
            yield from self._end_graph(client, graph)


_IS_ASSIGNED = bytes(state == TaskState.ASSIGNED for state in range(256))


def _part(span: ResultSpan, first: int, end: int, ends: List[int]) -> ResultSpan:
    """Entries [first, end) of a span."""
    optional = span.optional and {name: column[first:end] for name, column in span.optional.items()}
    statuses = span.statuses[first:end]
    return ResultSpan(span.sizes[first:end], span.payload[ends[first] : ends[end]], span.codec, statuses, optional)
