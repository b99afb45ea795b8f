"""Tasks whose worker was lost or has given them back: they run elsewhere, or end.

Rules:
- Tasks go back to the front of their queue, in their order. Tasks whose cancel is pending are cancelled instead.
- A lost worker counts as an attempt of every task it held, whether started or not: which ones had started is unknown.
  A task that is lost too often, or may run at most once, ends as `lost`, and its error names every worker lost with it.
"""

from __future__ import annotations

from typing import List, Tuple

from scaler_appliance.core.large_tables import drained
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.steps import Steps, parts
from scaler_appliance.core.tasks.batches import MAXIMUM_COUNTED_ATTEMPTS, TaskBatch, TaskSpan
from scaler_appliance.core.tasks.task_outcomes import TaskOutcomes
from scaler_appliance.core.tasks.task_states import TaskEvent, TaskState, apply, runs
from scaler_protocol import messages as m

UNITS_OF_A_RUN = 8  # of tasks that go back together
_OPEN = 1  # in the `open` column of a dispatch


class Requeue:
    def __init__(self, state: SchedulerState, outcomes: TaskOutcomes) -> None:
        self._state = state
        self._outcomes = outcomes

    # SCL-SCH-016
    def requeue_all(self, worker: WorkerSession, why: str, is_fault: bool) -> Steps:
        """The worker is gone: its tasks go back to the front of their queue, if they may run again."""
        what = f"{worker.label}: {why}"
        for dispatch in drained(worker.dispatches, is_reversed=True):
            batch = dispatch.batch
            is_counted = is_fault or batch.options.at_most_once
            for low, high in reversed(list(parts(len(dispatch.open), self._state.part))):
                done = UNITS_OF_A_RUN
                for first, end in reversed(runs(dispatch.open, low, high, _OPEN)):
                    start, stop = dispatch.start + first, dispatch.start + end
                    self._outcomes.close(worker, dispatch, start, stop)
                    self._state.shares.give_back(dispatch, stop - start)
                    self.finish_cancelled(batch, start, stop)
                    # SCL-SCH-017, SCL-SCH-018
                    if dispatch.is_of_actor:
                        self._lose_calls(batch, start, stop, what)
                    elif is_counted:
                        self._count_losses(batch, start, stop, what)
                    self.requeue(batch, start, stop)
                    done += UNITS_OF_A_RUN + (stop - start if is_counted else 0)
                yield done

    # SCL-SCH-044
    def _lose_calls(self, batch: TaskBatch, start: int, stop: int, what: str) -> None:
        actor = self._state.actors.find(batch.function)
        label = "the actor" if actor is None else actor.label
        text = f"{label} was lost with its worker, {what}; the call may have begun"
        for first, end in runs(batch.states, start, stop, TaskState.ASSIGNED):
            self._outcomes.lose(TaskSpan(batch, first, end), m.FailureKind.ACTOR_LOST, text)

    def finish_cancelled(self, batch: TaskBatch, start: int, stop: int) -> None:
        """End those tasks whose cancel is pending, now that their worker no longer has them."""
        client = self._state.clients[batch.client]
        for first, end in runs(batch.states, start, stop, TaskState.CANCELLING):
            apply(batch.states, first, end, TaskEvent.RETURN)
            for task_id in batch.ids[first:end]:
                client.confirm_cancel(task_id, m.CancelOutcome.CANCELLED)
            self._outcomes.finish_cancelled(client, batch, first, end)

    def _count_losses(self, batch: TaskBatch, start: int, stop: int, what: str) -> None:
        """Count an attempt of each task; those without attempts left are lost.

        Parameters:
            what: which worker was lost and why, for the tasks' history.
        """
        limit = min(self._state.settings.maximum_attempts, MAXIMUM_COUNTED_ATTEMPTS)
        # SCL-SCH-017
        if batch.options.at_most_once:
            limit = 1
        lost: List[Tuple[int, int, Tuple[str, ...]]] = []  # [start, stop), and their history
        for index in range(start, stop):
            if batch.states[index] != TaskState.ASSIGNED or batch.count_loss(index, what) < limit:
                continue
            history = batch.history[index]
            if lost and lost[-1][1] == index and lost[-1][2] == history:
                lost[-1] = lost[-1][0], index + 1, history
            else:
                lost.append((index, index + 1, history))
        for first, end, history in lost:
            losses = batch.losses_of(first)
            times = "once" if losses == 1 else f"{losses} times"
            text = f"the task was lost with its worker {times}, and is not run again; lost were: {'; '.join(history)}"
            self._outcomes.lose(TaskSpan(batch, first, end), m.FailureKind.WORKER_LOST, text, losses)

    def requeue(self, batch: TaskBatch, start: int, stop: int) -> None:
        """Put tasks that their worker no longer has back to the front of their queue."""
        for first, end in reversed(runs(batch.states, start, stop, TaskState.ASSIGNED)):
            apply(batch.states, first, end, TaskEvent.RETURN)
            self._state.ready.add(TaskSpan(batch, first, end), in_front=True)
