"""Tasks that come back from a worker without an outcome, and the balancing that asks for some.

Rules:
- Tasks go back to the front of their queue, in their order. Those that were to be cancelled are cancelled by it.
- A worker that is lost counts as an attempt of every task it held, whether started or not: nobody can tell any more.
  A task that is lost too often, or may run at most once, ends as `lost`, and its error names every worker lost with it.
- Balancing never takes a task away: it asks, and the worker gives back what it has not started. It corrects what the
  estimate of durations got wrong; it is not how work is spread. So it looks now and then at all who hold more tasks
  than slots, and often only at those who are thought to have work for long enough to be worth two messages.
"""

from __future__ import annotations

from typing import List, Tuple

from scaler_appliance.core.batches import MAXIMUM_COUNTED_ATTEMPTS, Dispatch, Span, TaskBatch
from scaler_appliance.core.outcomes import Outcomes
from scaler_appliance.core.placement import Placement
from scaler_appliance.core.sessions import WorkerSession
from scaler_appliance.core.state import State
from scaler_appliance.core.task_states import TaskEvent, TaskState, apply, runs
from scaler_protocol import messages as m

WORTHWHILE_MICROSECONDS = 20_000.0  # of work in line behind other tasks
MAXIMUM_DONORS = 10  # that are looked at often

_OPEN = 1  # in the `open` column of a dispatch


class Returns:
    def __init__(self, state: State, placement: Placement, outcomes: Outcomes) -> None:
        self._state = state
        self._placement = placement
        self._outcomes = outcomes
        self._last_balance_request = 0

    # SCL-SCH-016
    def return_all(self, worker: WorkerSession, why: str, is_fault: bool) -> None:
        """The worker is gone: its tasks go back to the front of their queue, if they may run again."""
        for dispatch in reversed(list(worker.dispatches.values())):
            batch = dispatch.batch
            for low, high in reversed(runs(dispatch.open, 0, len(dispatch.open), _OPEN)):
                start, stop = dispatch.start + low, dispatch.start + high
                self._outcomes.close(worker, dispatch, start, stop)
                self._finish_cancelled(batch, start, stop)
                # SCL-SCH-017, SCL-SCH-018
                if is_fault or batch.options.at_most_once:
                    self._count_losses(batch, start, stop, f"{worker.title}: {why}")
                self._requeue(batch, start, stop)

    def _finish_cancelled(self, batch: TaskBatch, start: int, stop: int) -> None:
        client = self._state.clients[batch.client]
        for first, end in runs(batch.states, start, stop, TaskState.CANCELLING):
            apply(batch.states, first, end, TaskEvent.RETURN)
            for task_id in batch.ids[first:end]:
                client.confirm_cancel(task_id, m.CancelOutcome.CANCELLED)
            self._outcomes.finish_cancelled(client, batch, first, end)

    def _count_losses(self, batch: TaskBatch, start: int, stop: int, what: str) -> None:
        """Count an attempt of each task; those that have no more are lost.

        Parameters:
            what: who was lost and why, for the tasks' history.
        """
        limit = min(self._state.settings.maximum_attempts, MAXIMUM_COUNTED_ATTEMPTS)
        # SCL-SCH-017
        if batch.options.at_most_once:
            limit = 1
        for index in range(start, stop):
            if batch.states[index] != TaskState.ASSIGNED:
                continue
            losses = batch.count_loss(index, what)
            if losses >= limit:
                times = "once" if losses == 1 else f"{losses} times"
                history = "; ".join(batch.history[index])
                text = f"the task was lost with its worker {times}, and is not run again; lost were: {history}"
                self._outcomes.lose(Span(batch, index, index + 1), m.FailureKind.WORKER_LOST, text, losses)

    def _requeue(self, batch: TaskBatch, start: int, stop: int) -> None:
        for first, end in reversed(runs(batch.states, start, stop, TaskState.ASSIGNED)):
            apply(batch.states, first, end, TaskEvent.RETURN)
            self._state.ready.add(Span(batch, first, end), in_front=True)

    # Balancing ------------------------------------------------------------------------------------------------------

    def balance(self, everybody: bool = True) -> None:
        """Where slots are free and nothing waits, ask workers for tasks that stand in line behind others.

        Parameters:
            everybody: ask whoever has any; otherwise those who have most, if that is work for some time.
        """
        crowded = self._state.crowded
        if not crowded or not any(self._placement.idle_workers()) or self._state.ready.placeable():
            return
        for worker in [each for each in crowded.values() if each.assigned <= each.slots]:
            del crowded[worker.number]
        donors = [each for each in crowded.values() if each.balance_request is None and not each.leaving]
        if not donors:
            return
        idle = [worker for worker in self._placement.idle_workers() if not worker.leaving]
        free_slots = sum(worker.slots - worker.assigned for worker in idle)
        if not free_slots:
            return
        donors.sort(key=lambda worker: worker.slots / worker.assigned)
        if not everybody:
            donors = list(filter(self._has_much_in_line, donors[:MAXIMUM_DONORS]))
        for donor in donors:
            surplus = donor.assigned - donor.slots
            count = -(-surplus * free_slots // (free_slots + donor.slots))
            if _could_run_elsewhere(donor, idle):
                self._ask_back(donor, count)
                free_slots -= min(free_slots, count)
            if not free_slots:
                break

    def _has_much_in_line(self, worker: WorkerSession) -> bool:
        """Whether what stands in line at a worker is worth asking for, by what is known of durations now."""
        enough = WORTHWHILE_MICROSECONDS * worker.assigned / (worker.assigned - worker.slots)
        microseconds = 0.0
        for dispatch in worker.dispatches.values():
            known = self._state.durations.get(dispatch.batch.function_key, dispatch.estimate_microseconds)
            microseconds += known * dispatch.open_count
            if microseconds >= enough:
                return True
        return False

    def _ask_back(self, worker: WorkerSession, count: int) -> None:
        self._last_balance_request += 1
        worker.balance_request = self._last_balance_request
        self._state.send(worker.peer, m.BalanceRequest(request_id=self._last_balance_request, count=count))

    def on_balance_response(self, worker: WorkerSession, message: m.BalanceResponse) -> None:
        """A worker gives back tasks it has not started."""
        if message.request_id == worker.balance_request:
            worker.balance_request = None
        found: List[Tuple[Dispatch, int, int]] = []
        position = 0
        try:
            while position < len(message.ids):
                dispatch, start, stop = self._outcomes.find_run(worker, message.ids, position)
                position += stop - start
                if dispatch is not None and dispatch.is_open(start):
                    self._outcomes.close(worker, dispatch, start, stop)
                    self._finish_cancelled(dispatch.batch, start, stop)
                    found.append((dispatch, start, stop))
        finally:  # also what it named before an id that is not its own
            for dispatch, start, stop in sorted(found, key=_place, reverse=True):
                self._requeue(dispatch.batch, start, stop)
        self._placement.on_load_changed(worker)


def _place(run: Tuple[Dispatch, int, int]) -> Tuple[int, int]:
    """Where a run stood in the order in which tasks were handed out."""
    return run[0].number, run[1]


def _could_run_elsewhere(donor: WorkerSession, idle: List[WorkerSession]) -> bool:
    needs = {dispatch.batch.requirement.needs for dispatch in donor.dispatches.values()}
    return any(worker.offers(each) and worker.room_for(each.capabilities) for each in needs for worker in idle)
