"""What happens to tasks: accepted, reported, cancelled, returned.

Rules:
- Every change of a task's state goes through `task_states.apply`; every task of a connected client ends in exactly one
  outcome: an entry in a TaskResult, or a TaskCancelConfirm that says `cancelled`.
- Columns are handled by runs: one run of tasks that share a dispatch costs a few slices, however long it is.
"""

from __future__ import annotations

from array import array
from itertools import islice
from typing import Dict, List, Optional, Tuple

from scaler_appliance.core.batches import (
    Dispatch,
    Span,
    TaskBatch,
    consecutive_run,
    dispatch_number,
    position_in_dispatch,
)
from scaler_appliance.core.effects import PeerError
from scaler_appliance.core.objects import ObjectRecord
from scaler_appliance.core.placement import Placement
from scaler_appliance.core.results import OPTIONAL_COLUMNS, ResultSpan
from scaler_appliance.core.sessions import ClientSession, WorkerSession
from scaler_appliance.core.state import State
from scaler_appliance.core.task_states import TaskEvent, TaskState, apply, runs
from scaler_protocol import encode_struct
from scaler_protocol import messages as m

_EVENT_OF_STATUS = {
    m.TaskStatus.SUCCESS: TaskEvent.SUCCEED,
    m.TaskStatus.FAILED: TaskEvent.FAIL,
    m.TaskStatus.LOST: TaskEvent.LOSE,
}
_STATUS_OF_STATE = {
    TaskState.SUCCEEDED: m.TaskStatus.SUCCESS,
    TaskState.FAILED: m.TaskStatus.FAILED,
    TaskState.LOST: m.TaskStatus.LOST,
}
_OPEN = 1  # in the `open` column of a dispatch
_DURATION_WEIGHT = 0.3  # of the newest measurement


class TaskReactions:
    def __init__(self, state: State, placement: Placement) -> None:
        self._state = state
        self._placement = placement

    # Accepting ------------------------------------------------------------------------------------------------------

    def on_task(self, client: ClientSession, message: m.Task, payload: bytes) -> None:
        """A client submits a batch."""
        if not message.ids:
            return
        _check_batch(client, message, payload)
        client.last_task_id = message.ids[-1]
        batch = TaskBatch(client.number, message, payload)
        client.add_batch(batch)
        reason = self._reason_to_reject(batch)
        if reason is not None:
            self._lose(client, Span(batch, 0, len(batch)), reason[0], reason[1])
            return
        if batch.function:
            self._record(batch.function).references += 1
        missing = self._reference_dependencies(batch)
        self._state.ready.add(Span(batch, 0, len(batch)))
        for index, object_id in missing.items():
            text = f"object {object_id:016x} does not exist (any more): was it cleared, or its client disconnected?"
            self._state.ready.count_cancelled(batch, 1)
            self._lose(client, Span(batch, index, index + 1), m.FailureKind.OBJECT_MISSING, text)

    def _reason_to_reject(self, batch: TaskBatch) -> Optional[Tuple[m.FailureKind, str]]:
        if batch.function and self._state.objects.get(batch.function) is None:
            return m.FailureKind.OBJECT_MISSING, f"function object {batch.function:016x} does not exist (any more)"
        if not batch.function and not batch.function_name:
            return m.FailureKind.REJECTED, "a task must name its function or the object that holds it"
        limit = self._state.settings.max_number_of_tasks_waiting
        if limit >= 0 and len(self._state.ready) + len(batch) > limit + self._free_slots():
            return m.FailureKind.REJECTED, (
                f"the scheduler holds as many waiting tasks as it is allowed to ({limit}): submit fewer at a time,"
                " add workers, or raise --max-number-of-tasks-waiting"
            )
        return None

    def _free_slots(self) -> int:
        return max(0, self._state.total_slots() - self._state.running())

    def _record(self, object_id: int) -> ObjectRecord:
        record = self._state.objects.find(object_id)
        assert record is not None
        return record

    def _reference_dependencies(self, batch: TaskBatch) -> Dict[int, int]:
        """Count the tasks' needs of objects; returns, by position, tasks of which one does not exist."""
        missing: Dict[int, int] = {}
        if not batch.dependency_counts:
            return missing
        for index in range(len(batch)):
            needed = batch.dependencies_of(index, index + 1)
            for object_id in needed:
                if self._state.objects.get(object_id) is None:
                    missing[index] = object_id
            if index not in missing:
                for object_id in needed:
                    self._record(object_id).references += 1
        return missing

    # Results --------------------------------------------------------------------------------------------------------

    def on_task_result(self, worker: WorkerSession, message: m.TaskResult, payload: bytes) -> None:
        """A worker reports outcomes."""
        ids, view = message.ids, memoryview(payload)
        _check_result_columns(message, payload)
        offset = 0
        position = 0
        functions = set()
        while position < len(ids):
            dispatch, start, stop = self._resolve_run(worker, ids, position)
            end = position + stop - start
            size = sum(message.payload_sizes[position:end])
            if dispatch is not None and dispatch.close(start, stop):
                functions.add(dispatch.batch.function or dispatch.batch.function_name)
                self._report(worker, dispatch, start, stop, _slice(message, position, end, view[offset : offset + size]))
            else:
                self._state.stale_results += end - position
                self._drop_result_objects(worker, message, position, end)
            offset += size
            position = end
        if len(functions) == 1:
            self._measure(functions.pop(), message.busy_microseconds / len(ids))
        self._placement.on_load_fell(worker)

    def _resolve_run(
        self, worker: WorkerSession, ids: "array[int]", position: int
    ) -> Tuple[Optional[Dispatch], int, int]:
        """The dispatch that a run of instance ids belongs to, and the positions in its batch."""
        first = ids[position]
        dispatch = self._state.dispatches.get(dispatch_number(first))
        if dispatch is None:
            if dispatch_number(first) > self._state.last_dispatch:
                raise PeerError(m.RefusalReason.PROTOCOL_VIOLATION, f"instance {first} was never given to anyone")
            return None, 0, 1
        if dispatch.worker != worker.number:
            raise PeerError(m.RefusalReason.PROTOCOL_VIOLATION, f"instance {first} was given to another worker")
        start = dispatch.start + position_in_dispatch(first)
        if start >= dispatch.stop:
            raise PeerError(m.RefusalReason.PROTOCOL_VIOLATION, f"instance {first} was never given to anyone")
        length = consecutive_run(ids, position) - position
        stop = min(start + length, dispatch.stop)
        if stop - start > 1 and dispatch.open.find(0, start - dispatch.start, stop - dispatch.start) >= 0:
            stop = start + 1  # some of them are fenced: one by one
        return dispatch, start, stop

    def _report(self, worker: WorkerSession, dispatch: Dispatch, start: int, stop: int, span: ResultSpan) -> None:
        """Outcomes of open instances, in the order of their tasks: to the states and to the client."""
        batch = dispatch.batch
        client = self._state.clients[batch.client]
        self._settle_dispatch(worker, dispatch, stop - start)
        if span.statuses:
            for index in range(start, stop):
                event = _EVENT_OF_STATUS.get(m.TaskStatus(span.statuses[index - start]))
                assert event is not None
                apply(batch.states, index, index + 1, event)
        else:
            apply(batch.states, start, stop, TaskEvent.SUCCEED)
        if span.optional and "objects" in span.optional:
            self._hand_over_objects(worker, client, span.optional["objects"])
        client.report(batch.ids[start:stop], span)
        self._finish(client, batch, start, stop)

    def _settle_dispatch(self, worker: WorkerSession, dispatch: Dispatch, count: int) -> None:
        """`count` instances of a dispatch were closed."""
        worker.assigned -= count
        worker.load_microseconds = max(0.0, worker.load_microseconds - count * dispatch.estimate_microseconds)
        if dispatch.open_count == 0:
            del self._state.dispatches[dispatch.number], worker.dispatches[dispatch.number]
            dispatch.batch.dispatches.remove(dispatch)

    def _hand_over_objects(self, worker: WorkerSession, client: ClientSession, object_ids: "array[int]") -> None:
        """Large results become objects of the client that waits for them."""
        for object_id in filter(None, object_ids):
            record = self._state.objects.get(object_id)
            if record is None or record.owner != worker.number:
                raise PeerError(
                    m.RefusalReason.PROTOCOL_VIOLATION, f"result object {object_id:016x} is none of this worker's"
                )
            worker.objects.discard(object_id)
            record.owner = client.number
            client.objects.add(object_id)

    def _drop_result_objects(self, worker: WorkerSession, message: m.TaskResult, start: int, stop: int) -> None:
        for object_id in filter(None, message.objects[start:stop]):
            record = self._state.objects.get(object_id)
            if record is not None and record.owner == worker.number:
                worker.objects.discard(object_id)
                self.forget_object(object_id, self._state.objects.let_go(record))

    def _measure(self, function: object, microseconds: float) -> None:
        before = self._state.durations.get(function)
        if before is not None:
            microseconds = before + _DURATION_WEIGHT * (microseconds - before)
        self._state.durations[function] = max(0.5, microseconds)

    def _finish(self, client: ClientSession, batch: TaskBatch, start: int, stop: int) -> None:
        """Tasks of a batch reached their outcome: free what only they needed."""
        counts = self._state.finished
        if stop - start == 1:
            counts[TaskState(batch.states[start])] += 1
        else:
            for state in set(batch.states[start:stop]):
                counts[TaskState(state)] += batch.states.count(state, start, stop)
        batch.unfinished -= stop - start
        for object_id in batch.dependencies_of(start, stop) if batch.dependency_counts else ():
            record = self._state.objects.find(object_id)
            if record is not None and record.references:
                self.forget_object(object_id, self._state.objects.release(record))
        if batch.unfinished == 0:
            client.remove_batch(batch)
            function = self._state.objects.find(batch.function)
            if function is not None and function.references:
                self.forget_object(batch.function, self._state.objects.release(function))

    def forget_object(self, object_id: int, holders: List[int]) -> None:
        """An object's last holder let go; if that was its end, its workers are told."""
        if self._state.objects.find(object_id) is None:
            self._state.durations.pop(object_id, None)
        for number in holders:
            self._state.workers[number].forget_object(object_id)

    def _lose(self, client: ClientSession, span: Span, kind: m.FailureKind, text: str, attempts: int = 1) -> None:
        """Tasks that are at no worker get the outcome `lost`."""
        batch, start, stop = span
        apply(batch.states, start, stop, TaskEvent.LOSE)
        failure = encode_struct(m.Failure(kind=kind, message=text, attempts=attempts))
        count = stop - start
        sizes = array("I", [len(failure)]) * count
        statuses = bytes([m.TaskStatus.LOST]) * count
        client.report(batch.ids[start:stop], ResultSpan(sizes, failure * count, statuses=statuses))
        self._finish(client, batch, start, stop)

    # Cancelling -----------------------------------------------------------------------------------------------------

    def on_task_cancel(self, client: ClientSession, message: m.TaskCancel) -> None:
        """A client asks to cancel tasks; each is answered by one confirm, now or when its worker answered."""
        for task_id in message.ids:
            found = client.find_task(task_id)
            if found is None or found[0].states[found[1]] > TaskState.CANCELLING:
                client.confirm_cancel(task_id, m.CancelOutcome.NOT_FOUND)
                continue
            self._cancel(client, found[0], found[1], message.force)

    def _cancel(self, client: ClientSession, batch: TaskBatch, index: int, force: bool) -> None:
        before = batch.states[index]
        apply(batch.states, index, index + 1, TaskEvent.CANCEL)
        if before == TaskState.QUEUED:
            self._state.ready.count_cancelled(batch, 1)
            client.confirm_cancel(batch.ids[index], m.CancelOutcome.CANCELLED)
            self._finish(client, batch, index, index + 1)
            return
        dispatch = batch.dispatch_of(index)
        worker = self._state.workers[dispatch.worker]
        instance = dispatch.instance_ids()[index - dispatch.start]
        if force or before == TaskState.ASSIGNED:
            worker.cancel([instance], force)

    def on_task_cancel_confirm(self, worker: WorkerSession, message: m.TaskCancelConfirm) -> None:
        """A worker answers a cancel."""
        if len(message.ids) != len(message.outcomes):
            raise PeerError(m.RefusalReason.MALFORMED, "TaskCancelConfirm: columns of different lengths")
        for position, outcome in enumerate(message.outcomes):
            dispatch, index, _ = self._resolve_run(worker, message.ids[position : position + 1], 0)
            if dispatch is None or not dispatch.open[index - dispatch.start]:
                continue  # its result crossed the cancel, and won
            self._on_cancel_outcome(worker, dispatch, index, outcome)
        self._placement.on_load_fell(worker)

    def _on_cancel_outcome(self, worker: WorkerSession, dispatch: Dispatch, index: int, outcome: int) -> None:
        batch = dispatch.batch
        client = self._state.clients[batch.client]
        task_id = batch.ids[index]
        if outcome == m.CancelOutcome.RUNNING:
            if batch.states[index] == TaskState.CANCELLING:
                client.confirm_cancel(task_id, m.CancelOutcome.RUNNING)
            apply(batch.states, index, index + 1, TaskEvent.REFUSE_CANCEL)
        elif outcome == m.CancelOutcome.CANCELLED:
            dispatch.close(index, index + 1)
            self._settle_dispatch(worker, dispatch, 1)
            apply(batch.states, index, index + 1, TaskEvent.CONFIRM_CANCEL)
            client.confirm_cancel(task_id, m.CancelOutcome.CANCELLED)
            self._finish(client, batch, index, index + 1)
        else:
            raise PeerError(
                m.RefusalReason.PROTOCOL_VIOLATION, f"instance of task {task_id} was given to this worker and not reported"
            )

    def cancel_all(self, client: ClientSession) -> None:
        """The client is gone: its tasks stop, running ones too, and their outcomes go nowhere."""
        for batch in list(client.batches()):
            waiting = runs(batch.states, 0, len(batch), TaskState.QUEUED)
            self._state.ready.count_cancelled(batch, sum(stop - start for start, stop in waiting))
            for dispatch in list(batch.dispatches):
                worker = self._state.workers[dispatch.worker]
                instances = dispatch.instance_ids()
                worker.cancel((instances[i] for i, is_open in enumerate(dispatch.open) if is_open), force=True)
                worker.assigned -= dispatch.open_count
                worker.load_microseconds -= dispatch.open_count * dispatch.estimate_microseconds
                del self._state.dispatches[dispatch.number], worker.dispatches[dispatch.number]
                self._placement.on_load_fell(worker)
            batch.dispatches.clear()
            for start, stop in _unfinished_runs(batch):
                batch.states[start:stop] = bytes([TaskState.CANCELLED]) * (stop - start)
                self._finish(client, batch, start, stop)
        self._state.ready.remove_client(client.number)

    # Returning ------------------------------------------------------------------------------------------------------

    def on_balance_response(self, worker: WorkerSession, message: m.BalanceResponse) -> None:
        """A worker gives back tasks it has not started."""
        for position in range(len(message.ids)):
            dispatch, index, _ = self._resolve_run(worker, message.ids[position : position + 1], 0)
            if dispatch is not None and dispatch.close(index, index + 1):
                self._settle_dispatch(worker, dispatch, 1)
                self._return(dispatch.batch, index, index + 1)
        self._placement.on_load_fell(worker)

    def return_all(self, worker: WorkerSession, why: str, is_fault: bool) -> None:
        """The worker is gone: its tasks go back to the front of their queue, if they may run again."""
        for dispatch in reversed(list(worker.dispatches.values())):
            batch = dispatch.batch
            del self._state.dispatches[dispatch.number]
            batch.dispatches.remove(dispatch)
            client = self._state.clients[batch.client]
            for start, stop in reversed(runs(dispatch.open, 0, len(dispatch.open), _OPEN)):
                first, end = dispatch.start + start, dispatch.start + stop
                dispatch.open[start:stop] = bytes(stop - start)
                self._return(batch, first, end)
                if is_fault:
                    self._count_losses(client, batch, first, end, why)
        worker.dispatches.clear()
        worker.assigned = 0
        worker.load_microseconds = 0.0

    def _return(self, batch: TaskBatch, start: int, stop: int) -> None:
        """Tasks whose instances are fenced become QUEUED again, or CANCELLED if that was asked for."""
        client = self._state.clients[batch.client]
        cancelling = runs(batch.states, start, stop, TaskState.CANCELLING)
        apply(batch.states, start, stop, TaskEvent.RETURN)
        for first, end in cancelling:
            for task_id in batch.ids[first:end]:
                client.confirm_cancel(task_id, m.CancelOutcome.CANCELLED)
            self._finish(client, batch, first, end)
        for first, end in reversed(runs(batch.states, start, stop, TaskState.QUEUED)):
            self._state.ready.add(Span(batch, first, end), in_front=True)

    def _count_losses(self, client: ClientSession, batch: TaskBatch, start: int, stop: int, why: str) -> None:
        limit = 1 if batch.options.at_most_once else self._state.settings.maximum_attempts
        for index in range(start, stop):
            if batch.states[index] != TaskState.QUEUED:
                continue
            losses = batch.count_loss(index)
            if losses >= limit:
                self._state.ready.count_cancelled(batch, 1)
                text = f"the task was lost with its worker {losses} time(s), the last time because {why}; it is not run again"
                self._lose(client, Span(batch, index, index + 1), m.FailureKind.WORKER_LOST, text, losses)


def _unfinished_runs(batch: TaskBatch) -> List[Tuple[int, int]]:
    states = (TaskState.QUEUED, TaskState.ASSIGNED, TaskState.CANCELLING)
    return [run for state in states for run in runs(batch.states, 0, len(batch), state)]


def _check_batch(client: ClientSession, message: m.Task, payload: bytes) -> None:
    ids, count = message.ids, len(message.ids)
    if len(message.payload_sizes) != count or sum(message.payload_sizes) != len(payload):
        raise PeerError(m.RefusalReason.MALFORMED, "Task: payload_sizes do not fit the ids and the payload frame")
    if message.dependency_counts and len(message.dependency_counts) != count:
        raise PeerError(m.RefusalReason.MALFORMED, "Task: dependency_counts do not fit the ids")
    if sum(message.dependency_counts) != len(message.dependencies):
        raise PeerError(m.RefusalReason.MALFORMED, "Task: dependency_counts do not fit the dependencies")
    ascending = consecutive_run(ids, 0) == count or all(map(int.__lt__, ids, islice(ids, 1, None)))
    if not ascending or ids[0] <= client.last_task_id:
        raise PeerError(m.RefusalReason.PROTOCOL_VIOLATION, "Task: ids must ascend within a session")


def _check_result_columns(message: m.TaskResult, payload: bytes) -> None:
    count = len(message.ids)
    if len(message.payload_sizes) != count or sum(message.payload_sizes) != len(payload):
        raise PeerError(m.RefusalReason.MALFORMED, "TaskResult: payload_sizes do not fit the ids and the payload frame")
    if message.statuses:
        known = bytes(_EVENT_OF_STATUS)
        if len(message.statuses) != count or message.statuses.strip(known):
            raise PeerError(m.RefusalReason.MALFORMED, "TaskResult: statuses do not fit the ids, or are unknown")
    for name in OPTIONAL_COLUMNS:
        if len(getattr(message, name)) not in (0, count):
            raise PeerError(m.RefusalReason.MALFORMED, f"TaskResult: {name} do not fit the ids")


def _slice(message: m.TaskResult, start: int, stop: int, payload: memoryview) -> ResultSpan:
    """Entries [start, stop) of the columns of a result message."""
    statuses = message.statuses[start:stop]
    optional = {name: getattr(message, name)[start:stop] for name in OPTIONAL_COLUMNS if getattr(message, name)}
    return ResultSpan(
        message.payload_sizes[start:stop],
        payload,
        message.codec,
        statuses if any(statuses) else b"",
        optional or None,
    )
