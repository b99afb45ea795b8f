"""Cancelling tasks.

Rules:
- Each cancel is answered by one TaskCancelConfirm for each task: at once when the scheduler knows the answer, else when
  the task's worker has answered, or is gone, or its result crossed the cancel. Asking again before that adds nothing.
- A worker is never assumed to have complied: a task is at its worker until the worker says otherwise.
"""

from __future__ import annotations

from typing import Optional, Tuple

from scaler_appliance.core.effects import PeerError
from scaler_appliance.core.graphs.dependant_reactions import DependantReactions
from scaler_appliance.core.graphs.graph_reactions import GraphReactions
from scaler_appliance.core.peers.sessions import ClientSession, WorkerSession
from scaler_appliance.core.placement.task_placement import Placement
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.tasks.batches import Dispatch, TaskBatch
from scaler_appliance.core.tasks.task_outcomes import TaskOutcomes
from scaler_appliance.core.tasks.task_states import FINAL_STATES, TaskEvent, TaskState, apply, runs
from scaler_protocol import messages as m


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

    def on_task_cancel(self, client: ClientSession, message: m.TaskCancel) -> None:
        """A client asks to cancel tasks."""
        for task_id in message.ids:
            dependant = client.dependants.waiting.get(task_id)
            if dependant is not None:
                self._dependants.cancel(client, dependant)
                continue
            found = client.find_task(task_id)
            if found is None and client.graphs:
                found = self._find_node(client, task_id, message.force)
                if found is None:
                    continue
            if found is None or found[0].states[found[1]] in FINAL_STATES:
                # SCL-SCH-020
                client.confirm_cancel(task_id, m.CancelOutcome.NOT_FOUND)
            else:
                self._outcomes.cancel(client, found[0], found[1], message.force)

    def _find_node(self, client: ClientSession, task_id: int, force: bool) -> Optional[Tuple[TaskBatch, int]]:
        """Where a graph's task is if it can be cancelled like any other; otherwise the cancel is answered here."""
        found = client.find_node(task_id)
        if found is None or found[0].states[found[1]] in FINAL_STATES:
            client.confirm_cancel(task_id, m.CancelOutcome.NOT_FOUND)
            return None
        graph, node = found
        graph.is_forced |= force
        if graph.states[node] == TaskState.WAITING:
            self._graphs.cancel_waiting(client, graph, node)
            return None
        client.unasked_cancels.discard(task_id)
        return graph.place_of(node)

    def on_task_cancel_confirm(self, worker: WorkerSession, message: m.TaskCancelConfirm) -> None:
        """A worker answers a cancel."""
        message.check_columns()
        for position, outcome in enumerate(message.outcomes):
            dispatch, index, _ = self._outcomes.find_run(worker, message.ids[position : position + 1], 0)
            if dispatch is not None and dispatch.is_open(index):  # else its result crossed the cancel, and won
                self._on_outcome(worker, dispatch, index, outcome)
        self._placement.on_load_changed(worker)

    def _on_outcome(self, worker: WorkerSession, dispatch: Dispatch, index: int, outcome: int) -> None:
        batch = dispatch.batch
        client = self._state.clients[batch.client]
        task_id = batch.ids[index]
        if outcome == m.CancelOutcome.RUNNING:
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
    def cancel_all(self, client: ClientSession) -> None:
        """The client is gone: stop its tasks, including running ones, and drop their outcomes."""
        for batch in list(client.batches()):
            waiting = runs(batch.states, 0, len(batch), TaskState.QUEUED)
            if waiting:
                self._state.ready.count_cancelled(batch, sum(stop - start for start, stop in waiting))
            for dispatch in list(batch.dispatches.values()):
                worker = self._state.workers[dispatch.worker]
                worker.cancel(dispatch.open_instances(), force=True)
                for start, stop in runs(dispatch.open, 0, len(dispatch.open), 1):
                    self._outcomes.close(worker, dispatch, dispatch.start + start, dispatch.start + stop)
                self._placement.on_load_changed(worker)
            unfinished = [run for state in _UNFINISHED for run in runs(batch.states, 0, len(batch), state)]
            for start, stop in unfinished:
                apply(batch.states, start, stop, TaskEvent.CANCEL)
                apply(batch.states, start, stop, TaskEvent.CONFIRM_CANCEL)
                self._outcomes.finish_cancelled(client, batch, start, stop)
        self._graphs.drop_all(client)
        self._dependants.drop_all(client)
        self._state.ready.remove_client(client.number)


_UNFINISHED = (TaskState.QUEUED, TaskState.ASSIGNED, TaskState.CANCELLING)
