"""Cancelling tasks.

Rules:
- Each cancel is answered by one TaskCancelConfirm for each task: at once when the scheduler knows the answer, else when
  the task's worker has answered, or is gone, or its result crossed the cancel. Asking again before that adds nothing.
- A cancel with force may follow one that is unanswered. A worker that says then that the task runs has answered the
  first. The second stays open: if the worker is lost, the task is cancelled, and does not run again.
- A worker is never assumed to have complied: a task is at its worker until the worker says otherwise.
"""

from __future__ import annotations

from array import array
from typing import Tuple

from scaler_appliance.core.effects import PeerError
from scaler_appliance.core.graphs.dependant_reactions import DependantReactions
from scaler_appliance.core.graphs.graph_nodes import Graph
from scaler_appliance.core.graphs.graph_reactions import GraphReactions
from scaler_appliance.core.peers.sessions import ClientSession
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.placement.task_placement import Placement
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.steps import COLUMN_ENTRIES_PER_UNIT, Steps, parts
from scaler_appliance.core.tasks.batches import Dispatch, TaskBatch
from scaler_appliance.core.tasks.task_outcomes import TaskOutcomes
from scaler_appliance.core.tasks.task_states import FINAL_STATES, IS_FINAL, TaskEvent, TaskState, apply, runs
from scaler_protocol import messages as m

UNITS_OF_A_CANCEL = 4
UNITS_OF_AN_UNKNOWN_ID = 2


class Cancellation:
    def __init__(
        self,
        state: SchedulerState,
        placement: Placement,
        outcomes: TaskOutcomes,
        graphs: GraphReactions,
        dependants: DependantReactions,
    ) -> None:
        self._state = state
        self._placement = placement
        self._outcomes = outcomes
        self._graphs = graphs
        self._dependants = dependants

    def on_task_cancel(self, client: ClientSession, message: m.TaskCancel) -> Steps:
        """A client asks to cancel tasks."""
        ids, position, done = message.ids, 0, 0
        while position < len(ids):
            end, amount = self._cancel_run(client, ids, position, message.force)
            position = end
            done += amount
            if done >= self._state.part:
                yield done
                done = 0
        yield done

    def _cancel_run(self, client: ClientSession, ids: array[int], position: int, force: bool) -> Tuple[int, int]:
        """Cancel tasks from `position` on that are in one place; returns where they end, and the amount of work."""
        task_id = ids[position]
        dependant = client.dependants.waiting.get(task_id)
        if dependant is not None:
            self._dependants.cancel(client, dependant)
            return position + 1, UNITS_OF_A_CANCEL
        found = client.find_task(task_id)
        if found is not None and found[0].states[found[1]] not in FINAL_STATES:
            batch, index = found
            end = min(len(ids), position + min(len(batch) - index, self._state.part))
            if ids[position:end] != batch.ids[index : index + end - position]:
                end = position + 1
            stop = index + end - position
            self._refuse_finished(client, batch.ids, batch.states, index, stop)
            return end, self._outcomes.cancel_run(client, batch, index, stop, force) + UNITS_OF_A_CANCEL
        node = client.find_node(task_id) if found is None and client.graphs else None
        if node is not None:
            return self._cancel_nodes(client, ids, position, node[0], node[1], force)
        # SCL-SCH-020
        client.confirm_cancel(task_id, m.CancelOutcome.NOT_FOUND)
        self._state.count_useless(client, UNITS_OF_AN_UNKNOWN_ID)
        return position + 1, UNITS_OF_AN_UNKNOWN_ID

    def _cancel_nodes(
        self, client: ClientSession, ids: array[int], position: int, graph: Graph, node: int, force: bool
    ) -> Tuple[int, int]:
        if node in graph.told:
            # SCL-SCH-020
            client.confirm_cancel(ids[position], m.CancelOutcome.NOT_FOUND)
            self._state.count_useless(client, UNITS_OF_AN_UNKNOWN_ID)
            return position + 1, UNITS_OF_AN_UNKNOWN_ID
        graph.is_forced |= force
        end = min(len(ids), position + min(len(graph) - node, self._state.part))
        if graph.told or ids[position:end] != graph.ids[node : node + end - position]:
            end = position + 1
        stop = node + end - position
        self._refuse_finished(client, graph.ids, graph.states, node, stop)
        done = UNITS_OF_A_CANCEL
        waiting, queued = (runs(graph.states, node, stop, each) for each in (TaskState.WAITING, TaskState.QUEUED))
        for low, high in waiting:
            done += self._graphs.cancel_waiting(client, graph, low, high)
        for low, high in queued:
            done += self._graphs.cancel_queued(client, graph, low, high, force, is_asked=True)
        return end, done

    def _refuse_finished(
        self, client: ClientSession, ids: array[int], states: bytearray, start: int, stop: int
    ) -> None:
        """Answer for those of tasks [start, stop) that have their outcome."""
        for low, high in runs(states[start:stop].translate(IS_FINAL), 0, stop - start, 1):
            client.confirm_cancels(ids[start + low : start + high], m.CancelOutcome.NOT_FOUND)
            self._state.count_useless(client, UNITS_OF_A_CANCEL)

    def on_task_cancel_confirm(self, worker: WorkerSession, message: m.TaskCancelConfirm) -> Steps:
        """A worker answers a cancel."""
        message.check_columns()
        part = max(1, self._state.part // UNITS_OF_A_CANCEL)
        for start, stop in parts(len(message.ids), part):
            for position in range(start, stop):
                dispatch, index, _ = self._outcomes.find_run(worker, message.ids[position : position + 1], 0)
                if dispatch is not None and dispatch.is_open(index):  # else its result crossed the cancel, and won
                    self._on_outcome(worker, dispatch, index, message.outcomes[position])
                else:
                    self._state.count_useless(worker, UNITS_OF_A_CANCEL)
            self._placement.on_load_changed(worker)
            yield (stop - start) * UNITS_OF_A_CANCEL

    def _on_outcome(self, worker: WorkerSession, dispatch: Dispatch, index: int, outcome: int) -> None:
        batch = dispatch.batch
        client = self._state.clients[batch.client]
        task_id = batch.ids[index]
        # SCL-SCH-054
        if outcome == m.CancelOutcome.RUNNING and dispatch.answers_again(index):
            client.confirm_cancel(task_id, m.CancelOutcome.RUNNING)
            return
        is_held = outcome == m.CancelOutcome.NOT_FOUND and self._state.held_results.holds(dispatch.instance_of(index))
        if outcome == m.CancelOutcome.RUNNING or is_held:  # a held outcome follows, as that of a running task does
            if batch.states[index] == TaskState.CANCELLING:
                client.confirm_cancel(task_id, m.CancelOutcome.RUNNING)
            apply(batch.states, index, index + 1, TaskEvent.REFUSE_CANCEL)
        elif outcome == m.CancelOutcome.CANCELLED:
            self._outcomes.close(worker, dispatch, index, index + 1)
            apply(batch.states, index, index + 1, TaskEvent.CONFIRM_CANCEL)
            client.confirm_cancel(task_id, m.CancelOutcome.CANCELLED)
            self._outcomes.finish_cancelled(client, batch, index, index + 1, worker.number)
        else:
            # SCL-SCH-027
            text = f"instance {dispatch.instance_of(index)} was given to this worker, and it has not reported it"
            raise PeerError(m.RefusalReason.PROTOCOL_VIOLATION, text)

    # SCL-SCH-022
    def cancel_all(self, client: ClientSession) -> Steps:
        """The client is gone: stop its tasks, including running ones, and drop their outcomes."""
        while any(client.batches()):
            for batch in client.drained_batches():
                for start, stop in parts(len(batch), self._state.part):
                    if batch.unfinished:
                        yield self._drop_part(client, batch, start, stop)
        yield from self._graphs.drop_all(client)
        yield from self._dependants.drop_all(client)

    def _drop_part(self, client: ClientSession, batch: TaskBatch, start: int, stop: int) -> int:
        """Cancel tasks [start, stop) of a client that is gone; returns the amount of work."""
        done = UNITS_OF_A_CANCEL
        for dispatch in list(batch.dispatches.values()):
            first, end = max(start, dispatch.start), min(stop, dispatch.stop)
            done += 1
            if first >= end:
                continue
            worker = self._state.workers[dispatch.worker]
            for low, high in runs(dispatch.open, first - dispatch.start, end - dispatch.start, 1):
                # A call that runs must not end its actor, which other clients may use; its own client lets go of it.
                worker.cancel(dispatch.ids[low:high], force=not dispatch.is_of_actor)
                self._outcomes.close(worker, dispatch, dispatch.start + low, dispatch.start + high)
                done += UNITS_OF_A_CANCEL
            self._placement.on_load_changed(worker)
        waiting = sum(high - low for low, high in runs(batch.states, start, stop, TaskState.QUEUED))
        if waiting:
            self._state.ready.count_cancelled(batch, waiting)
        for low, high in [run for state in _UNFINISHED for run in runs(batch.states, start, stop, state)]:
            apply(batch.states, low, high, TaskEvent.CANCEL)
            apply(batch.states, low, high, TaskEvent.CONFIRM_CANCEL)
            self._outcomes.finish_cancelled(client, batch, low, high)
            done += UNITS_OF_A_CANCEL + (high - low) // (1 if batch.has_costly_ends else COLUMN_ENTRIES_PER_UNIT)
        return done


_UNFINISHED = (TaskState.QUEUED, TaskState.ASSIGNED, TaskState.CANCELLING)
