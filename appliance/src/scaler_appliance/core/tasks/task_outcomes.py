"""How tasks end: the common part of all ways to an outcome.

Rules:
- Every change of a task's state goes through `task_states.apply`; every task of a connected client ends in exactly
  one outcome: an entry in a TaskResult, or in a TaskCancelConfirm that says `cancelled`.
- This frees what only finished tasks needed: references to objects, their batch, their dispatch. Many objects are
  released in parts.
"""

from __future__ import annotations

from array import array
from itertools import compress
from operator import and_
from typing import List, Optional, Tuple

from scaler_appliance.core.effects import PeerError
from scaler_appliance.core.graphs.graph_nodes import Graph, GraphBatch, NodeFailure
from scaler_appliance.core.monitoring.run_entries import Entry
from scaler_appliance.core.monitoring.running_tasks import where_it_ran
from scaler_appliance.core.objects.object_records import NodeResult, ObjectRecord
from scaler_appliance.core.peers.sessions import ClientSession
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.steps import COLUMN_ENTRIES_PER_UNIT, Steps
from scaler_appliance.core.tasks.batches import (
    WORTH_COMPACTING,
    Dispatch,
    TaskBatch,
    TaskSpan,
    dispatch_number,
    position_in_dispatch,
)
from scaler_appliance.core.tasks.client_results import ResultSpan
from scaler_appliance.core.tasks.task_states import FINAL_STATES, TaskEvent, TaskState, apply, runs
from scaler_protocol import encode_struct
from scaler_protocol import messages as m
from scaler_protocol.session.ids import session_of

OBJECTS_AT_ONCE = 8  # that tasks no longer need, besides one for each task
UNITS_OF_A_RELEASE = 3
_UNITS_OF_A_RUN = 4  # of tasks that are cancelled at once


class TaskOutcomes:
    def __init__(self, state: SchedulerState) -> None:
        self._state = state

    def find_run(self, worker: WorkerSession, ids: array[int], position: int) -> Tuple[Optional[Dispatch], int, int]:
        """The run of instance ids at `position`: their dispatch and positions [start, stop) in its batch.

        All of the run are open, or all are fenced; no dispatch means that all instances of it have been reported.
        """
        first = ids[position]
        number = dispatch_number(first)
        dispatch = self._state.dispatches.get(number)
        if dispatch is None and 0 < number <= self._state.last_dispatch:
            return None, 0, 1
        start = 0 if dispatch is None else dispatch.start + position_in_dispatch(first)
        # SCL-SCH-014
        if dispatch is None or start >= dispatch.stop:
            raise PeerError(m.RefusalReason.PROTOCOL_VIOLATION, f"instance {first} was never given to anyone")
        if dispatch.worker != worker.number:
            raise PeerError(m.RefusalReason.PROTOCOL_VIOLATION, f"instance {first} was given to another worker")
        return dispatch, start, dispatch.alike(start, start + dispatch.run_of(ids, position))

    # SCL-SCH-013
    def close(self, worker: WorkerSession, dispatch: Dispatch, start: int, stop: int) -> None:
        """Fence open instances: later reports about them are ignored."""
        dispatch.close(start, stop)
        if dispatch.is_of_actor:
            self._unassign_calls(worker, dispatch, stop - start)
        else:
            worker.unassign(dispatch, stop - start)
        self._state.count_assigned(dispatch, worker, start - stop)
        if dispatch.open_count == 0:
            del self._state.dispatches[dispatch.number], dispatch.batch.dispatches[dispatch.number]

    def _unassign_calls(self, worker: WorkerSession, dispatch: Dispatch, count: int) -> None:
        actor = self._state.actors.find(dispatch.batch.function)
        assert actor is not None, f"the actor {dispatch.batch.function:x} is forgotten, and has calls"
        worker.unassign_calls(dispatch, actor, count)
        self._state.ready.wake(actor.requirement)

    def lose(self, span: TaskSpan, kind: m.FailureKind, text: str, attempts: int = 1) -> None:
        """Tasks that are not at a worker get the outcome `lost`."""
        self.lose_with(span, m.Failure(kind=kind, message=text, attempts=attempts))

    def lose_with(self, span: TaskSpan, why: m.Failure) -> None:
        """The same with a failure of any kind."""
        batch, start, stop = span
        client = self._state.clients[batch.client]
        apply(batch.states, start, stop, TaskEvent.LOSE)
        failure = encode_struct(why)
        count = stop - start
        sizes = array("I", [len(failure)]) * count
        statuses = bytes([m.TaskStatus.LOST]) * count
        if isinstance(batch, GraphBatch):
            self._lose_nodes(client, batch, start, stop, failure)
        else:
            client.report(batch.ids[start:stop], ResultSpan(sizes, failure * count, statuses=statuses))
        if self._state.runs.is_watched:
            entry = self._record_unrun(batch, start, count, m.TaskStatus.LOST, why.attempts)
            self._state.runs.record_failure(entry, failure)
        self.finish(client, batch, start, stop)

    def _record_unrun(
        self, batch: TaskBatch, start: int, count: int, status: m.TaskStatus, attempts: int = 1, worker: int = 0
    ) -> Entry:
        """Record for monitors that tasks end without a worker's report."""
        process_id, busy_microseconds = 0, 0.0
        session = self._state.workers.get(worker)
        if session is not None and count == 1:
            now = self._state.now
            process_id, busy_microseconds = where_it_ran(session, batch.client, batch.ids[start], now)
        lane = (worker, process_id, batch.client, batch.counters.number, int(status))
        return self._state.runs.record(
            self._state.now, lane, batch.ids[start], count, busy_microseconds, attempts, 0, batch.tenant
        )

    def finish_cancelled(self, client: ClientSession, batch: TaskBatch, start: int, stop: int, worker: int = 0) -> None:
        """Tasks of a batch are cancelled.

        Parameters:
            worker: session of the one that they were at, if it has dropped them.
        """
        if self._state.runs.is_watched:
            self._record_unrun(batch, start, stop - start, m.TaskStatus.CANCELLED, worker=worker)
        self.finish(client, batch, start, stop)

    def _lose_nodes(self, client: ClientSession, batch: GraphBatch, start: int, stop: int, payload: bytes) -> None:
        """Report targets to the client, and record the outcome for dependants."""
        graph = batch.graph
        for index in range(start, stop):
            node, ids = batch.nodes[index], batch.ids[index : index + 1]
            graph.failures[node] = NodeFailure(m.TaskStatus.LOST, payload, "", ids[0])
            if graph.is_target[node]:
                statuses = bytes([m.TaskStatus.LOST])
                client.report(ids, ResultSpan(array("I", [len(payload)]), payload, statuses=statuses))

    def cancel(self, client: ClientSession, batch: TaskBatch, index: int, force: bool) -> None:
        """Cancel a task that has no outcome yet: at once, or by asking its worker."""
        before = batch.states[index]
        apply(batch.states, index, index + 1, TaskEvent.CANCEL)
        # SCL-SCH-021
        if before == TaskState.QUEUED:
            self._state.ready.count_cancelled(batch, 1)
            client.confirm_cancel(batch.ids[index], m.CancelOutcome.CANCELLED)
            self.finish_cancelled(client, batch, index, index + 1)
        elif force or before == TaskState.ASSIGNED:
            dispatch = batch.dispatch_of(index)
            instances = [dispatch.instance_of(index)]
            if before == TaskState.CANCELLING:
                dispatch.cancel_again(instances)
            self._state.workers[dispatch.worker].cancel(instances, force)

    def cancel_run(
        self, client: ClientSession, batch: TaskBatch, start: int, stop: int, force: bool, is_asked: bool = True
    ) -> int:
        """Cancel tasks [start, stop), as far as they have no outcome yet; returns the amount of work.

        Parameters:
            is_asked: whether the client expects answers.
        """
        if stop - start == 1 and is_asked:
            if batch.states[start] not in FINAL_STATES:
                self.cancel(client, batch, start, force)
            return _UNITS_OF_A_RUN + len(batch.dispatches) // 4
        done = 1
        for state in (TaskState.CANCELLING, TaskState.ASSIGNED) if force else (TaskState.ASSIGNED,):
            to_stop = bytearray(stop - start)
            for first, end in runs(batch.states, start, stop, state):
                to_stop[first - start : end - start] = b"\x01" * (end - first)
                apply(batch.states, first, end, TaskEvent.CANCEL)
                done += 1
            if any(to_stop):
                done += self._ask_workers(batch, start, to_stop, force, is_again=state == TaskState.CANCELLING)
        for first, end in runs(batch.states, start, stop, TaskState.QUEUED):
            apply(batch.states, first, end, TaskEvent.CANCEL)
            # SCL-SCH-021
            self._state.ready.count_cancelled(batch, end - first)
            if is_asked:
                client.confirm_cancels(batch.ids[first:end], m.CancelOutcome.CANCELLED)
            self.finish_cancelled(client, batch, first, end)
            done += _UNITS_OF_A_RUN + (end - first) // 4
        return done

    def _ask_workers(self, batch: TaskBatch, start: int, to_stop: bytearray, force: bool, is_again: bool) -> int:
        """Ask the workers that have them to drop tasks; returns the amount of work.

        Parameters:
            to_stop: from `start` on, which ones.
            is_again: they have not answered yet that they were asked to before.
        """
        stop = start + len(to_stop)
        for dispatch in batch.dispatches.values():
            first, end = max(start, dispatch.start), min(stop, dispatch.stop)
            if first < end:
                is_open = dispatch.open[first - dispatch.start : end - dispatch.start]
                wanted = map(and_, is_open, to_stop[first - start : end - start])
                instances = list(compress(dispatch.ids[first - dispatch.start : end - dispatch.start], wanted))
                if instances:
                    if is_again:
                        dispatch.cancel_again(instances)
                    self._state.workers[dispatch.worker].cancel(instances, force)
        return len(batch.dispatches) + len(to_stop) // 4

    # SCL-SCH-001
    def finish(self, client: ClientSession, batch: TaskBatch, start: int, stop: int) -> None:
        """Tasks of a batch reached their outcome: free what only they needed."""
        first_state = batch.states[start]
        alike = batch.states.count(first_state, start, stop)
        self._state.count_ended(client, batch.counters, first_state, alike)
        if alike < stop - start:
            for state in FINAL_STATES:
                if state != first_state:
                    self._state.count_ended(client, batch.counters, state, batch.states.count(state, start, stop))
        batch.unfinished -= stop - start
        if batch.is_charged:
            client.flow.release(stop - start, 0 if batch.unfinished else batch.charged_bytes)
        if batch.dependency_counts:
            is_lost = batch.states.find(TaskState.LOST, start, stop) >= 0
            self.release_all(client, batch.dependencies_of(start, stop), stop - start, is_lost)
        if isinstance(batch, GraphBatch):
            batch.graph.record_ended(batch, start, stop)
            self._state.touch_graph(batch.graph)
            self._state.advance(client, batch.graph)
        elif batch.options.actor:
            self._count_calls(batch, start, stop)
        if batch.is_charged and 0 < batch.unfinished * WORTH_COMPACTING <= batch.kept:
            client.mark_compactable(batch)
        if batch.unfinished == 0:
            client.remove_batch(batch)
            if batch.function:
                self.release(batch.function)

    def _count_calls(self, batch: TaskBatch, start: int, stop: int) -> None:
        """Calls of an actor ended; it may be gone, or never have been there."""
        actor = self._state.actors.find(batch.function)
        if actor is not None and actor.tenant == batch.tenant:
            actor.unfinished -= stop - start
            actor.finished += stop - start
            states = batch.states
            actor.failed += sum(states.count(each, start, stop) for each in (TaskState.FAILED, TaskState.LOST))
            self._state.touch_actor(actor)

    def give_up(self, client: ClientSession, batch: TaskBatch) -> None:
        """One task of a batch continues elsewhere, with all that it refers to."""
        batch.unfinished -= 1
        counters = batch.counters
        counters.unfinished -= 1
        if not (counters.unfinished or counters.is_listed):
            self._state.changes.list_idle(counters)
        if not counters.is_dirty:
            self._state.changes.functions.touch(counters.number, counters)
        if batch.unfinished == 0:
            client.remove_batch(batch)
            if batch.function:
                self.release(batch.function)

    def release_all(self, client: ClientSession, object_ids: array[int], tasks: int, is_lost: bool) -> int:
        """A client's tasks no longer need objects: if these are many, they are released later.

        Returns the amount of work.

        Parameters:
            tasks: how many.
            is_lost: whether any of them is, perhaps because an object was missing.
        """
        if len(object_ids) <= OBJECTS_AT_ONCE + tasks:
            for object_id in object_ids:
                self.release(object_id)
            return len(object_ids)
        if is_lost:  # an object that is missing may exist when it is its turn
            find = self._state.objects.find
            object_ids = array("Q", [each for each in object_ids if find(each) is not None])
        client.unneeded_objects.append(object_ids)
        if not client.is_gone:
            self._state.advancing[client.number] = client
        return len(object_ids) // COLUMN_ENTRIES_PER_UNIT

    def release_rest(self, client: ClientSession) -> Steps:
        """Release the objects that `release_all` has left for later."""
        unneeded, part = client.unneeded_objects, max(1, self._state.part // UNITS_OF_A_RELEASE)
        while unneeded:
            some = unneeded[0][-part:]
            del unneeded[0][-part:]
            if not unneeded[0]:
                unneeded.popleft()
            for object_id in some:
                self.release(object_id)
            yield len(some) * UNITS_OF_A_RELEASE

    def release(self, object_id: int, count: int = 1) -> None:
        """`count` tasks no longer need the object."""
        record = self._state.objects.find(object_id)
        if record is not None:  # else it was missing from the start
            if record.references > count or record.held:
                record.references -= count
                assert record.references >= 0, f"object {object_id:x} released too often"
            else:
                self.forget_object(record, self._state.objects.release(record, count))

    def forget_object(self, record: ObjectRecord, holders: List[int]) -> None:
        """Notify an object's workers if it was deleted with its last reference."""
        object_id = record.object_id
        home = 0  # of the actor that has ended
        if self._state.objects.find(object_id) is None:
            self._state.durations.forget(object_id)
            self._state.memory_needs.forget(object_id)
            if record.made_by is not None:
                self._forget_result(record.made_by, object_id)
            actor = self._state.actors.remove(object_id)
            if actor is not None:
                home = actor.worker
                if home:
                    self._state.workers[home].remove_actor(actor)
                self._state.changes.actors.remove(actor.number, actor)
            if record.is_kept_by_client:
                self._tell_keeper(object_id)
            client = self._state.clients.get(record.charged_to)
            if client is not None:
                client.flow.release(0, record.size)
                client.touch()
                self._state.touch_session(client)
        # SCL-OBJ-005
        for number in holders:
            worker = self._state.workers[number]
            worker.forget_object(object_id)
            if number == home:
                self._state.rid_of_actors[number] = worker

    def _forget_result(self, made_by: NodeResult, object_id: int) -> None:
        """A node's result has ended: what it would have needed to make it again is needed no longer."""
        client = self._state.clients.get(made_by.client)
        graph = None if client is None else client.graphs.get(made_by.graph)
        if client is not None and graph is not None and graph.kept_for_reruns.get(made_by.node) == object_id:
            graph.kept_for_reruns[made_by.node] = 0
            if made_by.node not in graph.recipe_users:
                self.forget_recipes(client, graph, [made_by.node])

    def forget_recipes(self, client: ClientSession, graph: Graph, nodes: List[int]) -> None:
        """Nodes whose results have ended do not run again, nor those before them that might have had to for them."""
        while nodes:
            node = nodes.pop()
            del graph.kept_for_reruns[node]
            client.unneeded_objects.append(graph.dependencies_of(node))  # not now: a chain of them may be long
            inputs, unused = graph.take_inputs(node)
            nodes += unused
            client.unneeded_objects.append(inputs.held)
        if not client.is_gone:
            self._state.advancing[client.number] = client

    # SCL-OBJ-041
    def _tell_keeper(self, object_id: int) -> None:
        """The client that keeps an object learns that it has ended."""
        keeper = self._state.clients.get(session_of(object_id))
        if keeper is not None and not keeper.is_gone:
            keeper.ended_objects.append(object_id)
            keeper.touch()
