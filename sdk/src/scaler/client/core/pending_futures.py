"""The unfinished futures of a client, and how they end.

Rules:
- A future ends by being taken out of `futures`, once; the effect that gives it its outcome follows in the same event.
- When a task has its outcome, the objects it needed are released, and tasks that waited here for it continue.
"""

from __future__ import annotations

from array import array
from itertools import repeat
from typing import Dict, Iterable, List, Optional, Set, Tuple

from scaler.client.core.client_objects import ClientObjects, Emit
from scaler.client.core.deferring import DeferredTask, Deferring
from scaler.client.core.effects import (
    CancelAnswered,
    Cancelled,
    Failed,
    OpenResult,
    Outcome,
    Send,
    SendDeferred,
    SettleOutcomes,
    SettleResults,
)
from scaler.client.core.handles import Buffer, TaskHandle
from scaler.client.core.kept_objects import KeptObject
from scaler.client.core.outbox import TaskRun
from scaler_protocol.wire import messages as m
from scaler_protocol.wire.codec import decode_struct
from scaler_protocol.wire.errors import MalformedMessageError


class PendingFutures:
    """The futures of one client.

    Parameters:
        objects: what tasks have as arguments, and large results that are fetched.
        emit: takes effects, in order.
    """

    def __init__(self, objects: ClientObjects, emit: Emit) -> None:
        self.futures: Dict[int, TaskHandle] = {}  # that have no outcome, by task id
        self.needs: Dict[int, Tuple[KeptObject, ...]] = {}  # objects that unfinished tasks have as arguments
        self.forced: Set[int] = set()  # tasks that are to be cancelled even if they run, by id
        self.deferring = Deferring(self.futures)
        self._objects = objects
        self._emit = emit

    # Ending ---------------------------------------------------------------------------------------------------------

    def take(self, futures: Iterable[TaskHandle]) -> List[TaskHandle]:
        """Take out those of the futures that have no outcome yet; the caller must end them."""
        found = []
        for future in futures:
            if self.futures.get(future._task_id) is future:
                del self.futures[future._task_id]
                found.append(future)
        return found

    def cancel(self, futures: Iterable[TaskHandle]) -> None:
        """Futures are cancelled, unless they have an outcome."""
        taken = self.take(futures)
        if taken:
            self._emit(Cancelled(taken))
            self.on_ended([future._task_id for future in taken])

    def fail(self, futures: Iterable[TaskHandle], error: Exception) -> None:
        """Futures end with an error, unless they have an outcome."""
        taken = self.take(futures)
        if taken:
            self._emit(Failed(taken, error))
            self.on_ended([future._task_id for future in taken])

    def on_ended(self, task_ids: Iterable[int]) -> None:
        """Release the arguments of those tasks that now have an outcome."""
        if self.forced:
            self.forced.difference_update([task_id for task_id in task_ids if task_id not in self.futures])
        if self.needs:
            for task_id in task_ids:
                if task_id in self.needs and task_id not in self.futures:
                    self._objects.release(self.needs.pop(task_id))
        if self.deferring.waiting:
            for task in self.deferring.on_ended(task_ids):
                self._emit(SendDeferred(task))

    def defer(self, task: DeferredTask) -> None:
        """Let a task wait in this client."""
        if self.deferring.defer(task):
            self._emit(SendDeferred(task))

    # Reactions ------------------------------------------------------------------------------------------------------

    def on_task_result(self, message: m.TaskResult, payload: bytes) -> None:
        """Tasks have ended. Raises MalformedMessageError."""
        message.check_columns(len(payload))
        if message.statuses or message.objects or message.durations_microseconds:
            self._on_mixed_results(message, payload)
        else:
            # SCL-CLT-005
            taken = list(map(self.futures.pop, message.ids, repeat(None)))
            self._emit(SettleResults(taken, payload, message.payload_sizes))
        self.on_ended(message.ids)

    def _on_mixed_results(self, message: m.TaskResult, payload: bytes) -> None:
        """Results with failures, large results, profiles or other special columns among them."""
        outcomes: List[Outcome] = []
        given_back: List[TaskHandle] = []
        offset = 0
        for position, task_id in enumerate(message.ids):
            part = payload[offset : offset + message.payload_sizes[position]]
            offset += message.payload_sizes[position]
            object_id = message.objects[position] if message.objects else 0
            future = self.futures.get(task_id)
            if future is None:
                if object_id:
                    self._let_go(object_id)
                continue
            if (
                message.statuses
                and message.statuses[position] == m.TaskStatus.LOST
                and type(future._source) is TaskRun
                and task_id in future._source.futures_needed
                and is_predecessor_gone(part)
            ):
                given_back.append(future)
                continue
            outcome = _outcome(message, position, future, part)
            if object_id:
                self._emit(OpenResult(object_id, outcome._replace(payload=None)))
            else:
                del self.futures[task_id]
                outcomes.append(outcome)
        if outcomes:
            self._emit(SettleOutcomes(outcomes))
        self._take_back(given_back)

    def _take_back(self, futures: List[TaskHandle]) -> None:
        """The scheduler gave these tasks back, because it no longer knows one of their predecessors."""
        for future in futures:
            if future._is_cancel_asked:
                self.cancel([future])
            else:
                self.defer(DeferredTask.taken_from(future._source, future))

    def on_result_opened(self, object_id: int, outcome: Outcome, content: Optional[Buffer]) -> None:
        """A large result was opened on this host, or has to be fetched."""
        if self.futures.get(outcome.future._task_id) is not outcome.future:
            self._let_go(object_id)
        elif content is None:
            self._objects.fetch(object_id, outcome)
        else:
            self._let_go(object_id)
            self._end(outcome._replace(payload=content))

    def _let_go(self, object_id: int) -> None:
        # SCL-CLT-004
        self._emit(Send(m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=array("Q", [object_id]))))

    def _end(self, outcome: Outcome) -> None:
        if self.take([outcome.future]):
            self._emit(SettleOutcomes([outcome]))
            self.on_ended([outcome.future._task_id])

    def on_object_response(self, message: m.ObjectResponse, payload: bytes) -> None:
        """A part of a large result. Raises MalformedMessageError."""
        fetched = self._objects.on_response(message, payload)
        if fetched is None:
            return
        self._let_go(message.id)
        if fetched.error is not None:
            self.fail([fetched.outcome.future], fetched.error)
        else:
            self._end(fetched.outcome)

    def on_cancel_confirm(self, message: m.TaskCancelConfirm) -> None:
        """The scheduler has answered cancellations."""
        cancelled: List[TaskHandle] = []
        for task_id, outcome in zip(message.ids, message.outcomes):
            future = self.futures.get(task_id)
            if future is None:
                continue
            # SCL-CLT-008
            if outcome == m.CancelOutcome.CANCELLED:
                cancelled.append(future)
            else:
                if task_id not in self.forced:  # else this answers an earlier request, which was not by force
                    future._is_cancel_asked = False
                self._emit(CancelAnswered(future, outcome))
        self.cancel(cancelled)


def _outcome(message: m.TaskResult, position: int, future: TaskHandle, payload: bytes) -> Outcome:
    profile: Tuple[int, ...] = ()
    if message.durations_microseconds:
        figures = message.durations_microseconds, message.peak_memory_bytes, message.cpu_microseconds
        profile = tuple(column[position] if column else 0 for column in figures)
    cause = message.causes[position] if message.causes else 0
    needed: Tuple[TaskHandle, ...] = ()
    if cause and type(future._source) is TaskRun:
        needed = tuple(future._source.futures_needed.get(future._task_id, ()))
    has_failed = bool(message.statuses and message.statuses[position])
    return Outcome(future, payload, has_failed, cause, needed, profile)


def is_predecessor_gone(payload: Buffer) -> bool:
    """Whether a failure says that the task has to be submitted again."""
    try:
        return decode_struct(m.Failure, bytes(payload)).kind == m.FailureKind.PREDECESSOR_GONE
    except MalformedMessageError:
        return False
