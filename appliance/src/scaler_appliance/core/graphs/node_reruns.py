"""Nodes that run again, because their results were lost with the workers that kept them.

    worker gone ──▶ graph.lost ──▶ rerun_next: recall the dependants ──▶ reopen the node ──▶ ready, released, run
                                                                            │ a result that it needs is gone, too
                                                                            └──▶ reopen that node first, and so on

Rules:
- Only results of which the scheduler has no copy are lost so, and no client knows of them: targets are fetched before
  they are reported. A target that its client knows may have to run again for others that do. Then it is a target no
  longer, so its outcome is told once.
- A dependant that was released waits again: its batch gives it up, and what it was released with becomes the results of
  its predecessors again. If a worker has it, its instance is fenced, and the worker is told to end it: it may have
  begun, with a copy of the result that was fetched in time.
- A node runs again if its options and its attempts allow it, and all its objects are still there; or it is lost. So
  they are referred to as long as the result that may be lost is there, even if their client has let go of them. So are
  those of the nodes before it whose large results it was made from, when these have ended; small ones are kept.
- Nothing else of the graph has consequences at that time (see `GraphReactions.advance`), so its columns agree.
"""

from __future__ import annotations

import struct
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Tuple, Union

from scaler_appliance.core.graphs.graph_building import EDGES_PER_UNIT
from scaler_appliance.core.graphs.graph_nodes import IS_OBJECT, OWN, Graph, GraphBatch, Inputs, NodeFailure
from scaler_appliance.core.objects.object_records import failure_of_missing
from scaler_appliance.core.peers.sessions import ClientSession
from scaler_appliance.core.placement.task_placement import Placement
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.tasks.task_outcomes import TaskOutcomes
from scaler_appliance.core.tasks.task_states import TaskEvent, TaskState, apply, begin_again
from scaler_protocol import encode_struct
from scaler_protocol import messages as m

UNITS_OF_A_RERUN = 8
_WORD_BYTES = 4
_DEAD = (TaskState.FAILED, TaskState.LOST, TaskState.CANCELLED)


class NodeReruns:
    """Runs nodes of graphs again.

    Parameters:
        count_ended: counts waiting nodes [start, stop) that have ended.
        lose: ends waiting nodes [start, stop) with an encoded failure.
    """

    def __init__(
        self,
        state: SchedulerState,
        placement: Placement,
        outcomes: TaskOutcomes,
        count_ended: Callable[[ClientSession, Graph, int, int], None],
        lose: Callable[[ClientSession, Graph, int, int, bytes], int],
    ) -> None:
        self._state = state
        self._placement = placement
        self._outcomes = outcomes
        self._count_ended = count_ended
        self._lose_waiting = lose

    # SCL-SCH-049
    def keep_recipe(self, graph: Graph, node: int, result_id: int) -> None:
        """Keep all that a node needs as long as its result is there, of which only workers have the bytes."""
        needed = graph.dependencies_of(node)
        given: Dict[int, Union[bytes, int]] = {}
        remade: Dict[int, None] = {}
        for predecessor, result in _released_with(graph, node):
            if predecessor in given or predecessor in remade:
                continue
            record = self._state.objects.find(result) if isinstance(result, int) else None
            if record is not None and record.made_by is not None:
                remade[predecessor] = None
                continue
            given[predecessor] = result
            if isinstance(result, int):
                self._state.objects.refer(result, graph.tenant)
        if not (needed or given or remade):
            return
        graph.kept_for_reruns[node] = result_id
        graph.keep_inputs(node, Inputs(given, list(remade)))
        for object_id in needed:
            self._state.objects.refer(object_id, graph.tenant, graph.client)

    def rerun_next(self, client: ClientSession, graph: Graph) -> int:
        """Run the next node of `graph.lost` again if its result is still needed; returns the amount of work."""
        node, object_id = graph.lost.popleft()
        if self._state.objects.find(object_id) is None:
            return 1  # no task needs it any more
        done = UNITS_OF_A_RERUN
        for successor in dict.fromkeys(graph.successors_of(node)):
            done += 1
            if graph.states[successor] == TaskState.QUEUED:
                batch, index = graph.place_of(successor)
                if object_id in batch.dependencies_of(index, index + 1):
                    self._recall(client, graph, successor, batch, index)
                    done += UNITS_OF_A_RERUN
        to_open = [node] if graph.dependants[node] else []
        while to_open:
            each = to_open.pop()
            if graph.states[each] == TaskState.SUCCEEDED:  # else it was needed twice
                done += self._reopen(client, graph, each, to_open)
        record = self._state.objects.find(object_id)
        if record is not None:  # something that has ended still refers to it
            record.awaits_rerun = False
            self._state.objects.give_up(record)
        self._state.touch_graph(graph)
        self._state.touch_session(client)
        return done

    # Dependants -----------------------------------------------------------------------------------------------------

    def _recall(self, client: ClientSession, graph: Graph, node: int, batch: GraphBatch, index: int) -> None:
        """A released node waits for its predecessors again; or it is cancelled, if that was asked for."""
        state = self._state
        if batch.states[index] == TaskState.QUEUED:
            state.ready.count_cancelled(batch, 1)
        else:
            dispatch = batch.dispatch_of(index)
            worker = state.workers[dispatch.worker]
            worker.cancel(dispatch.ids[index - dispatch.start : index - dispatch.start + 1], force=True)
            self._outcomes.close(worker, dispatch, index, index + 1)
            self._placement.on_load_changed(worker)
            apply(batch.states, index, index + 1, TaskEvent.RETURN)
            if batch.states[index] == TaskState.CANCELLED:
                client.confirm_cancel(batch.ids[index], m.CancelOutcome.CANCELLED)
                self._outcomes.finish_cancelled(client, batch, index, index + 1)
                return
        self._take_results_back(graph, node)
        apply(batch.states, index, index + 1, TaskEvent.CANCEL)  # in this batch; another one follows
        self._outcomes.give_up(client, batch)
        graph.batches.pop(node)
        begin_again(graph.states, node)
        graph.counters.waiting += 1
        state.nodes_waiting += 1
        graph.reruns.setdefault(node, 0)  # so that it is known that nodes of this graph have begun again
        if any(graph.states[each] in _DEAD for each in graph.predecessors_of(node)):  # whose end was passed on before
            text = "the result of a predecessor was lost with its worker, and another predecessor cannot run again"
            failure = m.Failure(kind=m.FailureKind.WORKER_LOST, message=text, attempts=1)
            self._lose_waiting(client, graph, node, node + 1, encode_struct(failure))

    def _take_results_back(self, graph: Graph, node: int) -> None:
        """What a node was released with becomes the results of its predecessors again, as far as these do not run."""
        graph.missing[node] = 0
        for predecessor, result in _released_with(graph, node):
            graph.dependants[predecessor] += 1
            if graph.states[predecessor] == TaskState.SUCCEEDED:
                graph.results[predecessor] = result
                continue
            graph.missing[node] += 1  # it runs again itself
            if isinstance(result, int):
                self._outcomes.release(result)

    # The node itself ------------------------------------------------------------------------------------------------

    def _reopen(self, client: ClientSession, graph: Graph, node: int, to_open: List[int]) -> int:
        """A node whose result is gone waits for its predecessors again; returns the amount of work.

        Parameters:
            to_open: gets the predecessors whose results are gone as well.
        """
        state, states = self._state, graph.states
        result = graph.results.pop(node) if node in graph.results else None
        has_objects = graph.kept_for_reruns.pop(node, None) is not None
        inputs, unused = graph.take_inputs(node)
        given, held = inputs.given, inputs.held
        if isinstance(result, int):
            self._outcomes.release(result, graph.dependants[node])
        for successor in graph.successors_of(node):
            if states[successor] == TaskState.WAITING:
                graph.missing[successor] += 1
        begin_again(states, node)
        if graph.is_target[node]:  # its client has its outcome
            graph.is_target[node] = False
            graph.told.add(node)
        graph.counters.ended[TaskState.SUCCEEDED] -= 1
        graph.counters.waiting += 1
        graph.unfinished += 1
        client.unfinished += 1
        state.nodes_waiting += 1
        graph.reruns[node] = graph.reruns.get(node, 0) + 1
        failure = self._why_not_again(graph, node)
        if failure is not None:
            if has_objects:
                self._outcomes.release_all(client, graph.dependencies_of(node), 1, is_lost=True)
            self._outcomes.forget_recipes(client, graph, unused)
            self._release(held)
            self._lose(client, graph, node, failure)
            return UNITS_OF_A_RERUN
        for object_id in graph.dependencies_of(node) if not has_objects else ():
            state.objects.refer(object_id, graph.tenant, graph.client)
        graph.missing[node] = 0
        for predecessor in graph.predecessors_of(node):
            graph.dependants[predecessor] += 1
            needed = graph.results.get(predecessor)
            if needed is None and predecessor in given and states[predecessor] == TaskState.SUCCEEDED:
                needed = graph.results[predecessor] = given[predecessor]
            if isinstance(needed, int):
                state.objects.refer(needed, graph.tenant)
            if states[predecessor] != TaskState.SUCCEEDED:
                graph.missing[node] += 1
            elif needed is None:
                to_open.append(predecessor)
        self._release(held)
        if not graph.missing[node] and not any(graph.results.get(each) is None for each in graph.predecessors_of(node)):
            graph.ready.append(node)
        edges = graph.successor_offsets[node + 1] - graph.successor_offsets[node] + len(graph.predecessors_of(node))
        return UNITS_OF_A_RERUN + edges // EDGES_PER_UNIT

    def _release(self, object_ids: Iterable[int]) -> None:
        for object_id in object_ids:
            self._outcomes.release(object_id)

    def _why_not_again(self, graph: Graph, node: int) -> Optional[m.Failure]:
        """Why a node whose result was lost does not run again; None if it does."""
        runs, most = graph.reruns[node], self._state.settings.maximum_attempts
        lost = "its result was lost with the worker that had made it and had the only copy"
        if graph.options.at_most_once:
            text = f"{lost}, and it may run at most once"
        elif runs >= most:
            text = f"{lost}, {runs} times, and it is not run again"
        else:
            for object_id in graph.dependencies_of(node):
                record = self._state.objects.find_of(object_id, graph.tenant)
                if record is None or record.is_broken:
                    failure = failure_of_missing(object_id, record)
                    failure.message = f"{lost}, and it cannot run again: {failure.message}"
                    failure.attempts = runs
                    failure.missing_reason = failure.missing_reason or m.MissingReason.MAKER_LOST
                    return failure
            return None
        return m.Failure(kind=m.FailureKind.WORKER_LOST, message=text, attempts=runs)

    def _lose(self, client: ClientSession, graph: Graph, node: int, failure: m.Failure) -> None:
        """A node that has begun again ends at once: nothing of what it needs is referred to."""
        graph.failures[node] = NodeFailure(m.TaskStatus.LOST, encode_struct(failure), "", OWN)
        graph.missing[node] = 0
        apply(graph.states, node, node + 1, TaskEvent.LOSE)
        self._count_ended(client, graph, node, node + 1)
        graph.ended.append(node)


def _released_with(graph: Graph, node: int) -> Iterator[Tuple[int, Union[bytes, int]]]:
    """Each predecessor of a node that is released, and its result: the inverse of `Graph.release`."""
    predecessors = graph.predecessors_of(node)
    if not predecessors:
        return
    batch, index = graph.place_of(node)
    payload = batch.payload_of(index, index + 1)
    _, count, *sizes = struct.unpack_from(f"<{2 + len(predecessors)}I", payload)
    assert count == len(predecessors)
    objects = batch.dependencies_of(index, index + 1)
    position, offset = len(objects) - sizes.count(IS_OBJECT), _WORD_BYTES * (2 + count)
    for predecessor, size in zip(predecessors, sizes):
        if size == IS_OBJECT:
            yield predecessor, objects[position]
            position += 1
        else:
            yield predecessor, bytes(payload[offset : offset + size])
            offset += size
