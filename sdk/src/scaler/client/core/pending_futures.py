"""The unfinished futures of a client, and how they end.

Rules:
- A future ends by being taken out of `futures`: whoever takes it gives it its outcome, once; nobody else can have it.
- The condition protects the futures' states. Whoever holds it runs no user code, does not block, and does not take the
  client's lock.
- What a task needed is let go with its outcome.
"""

from __future__ import annotations

import queue
import threading
import time
from array import array
from concurrent.futures._base import CANCELLED_AND_NOTIFIED, FINISHED
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from scaler.client.core.deferring import is_predecessor_gone
from scaler.client.core.kept_objects import KeptObject, ObjectChannel
from scaler.client.core.outbox import TaskRun
from scaler.client.future import ScalerFuture
from scaler.client.future_arguments import has_failed, origin_of
from scaler.client.shell.forks import reset_lock
from scaler_protocol import MalformedMessageError
from scaler_protocol import messages as m


def _condition() -> threading.Condition:
    """A condition that Ctrl-C leaves as it is: either entered, and then left, or neither.

    One of the standard library is entered by Python code, which may be interrupted when it has the lock already. All
    futures share it: then nobody would hear of an outcome any more.
    """
    lock: Any = threading.RLock()
    methods = {"__enter__": staticmethod(lock.__enter__), "__exit__": staticmethod(lock.__exit__)}
    kind = type("_Condition", (threading.Condition,), methods)
    condition: threading.Condition = kind(lock)
    return condition


class Outcomes:
    """The futures of one client.

    Parameters:
        lock: the client's; it protects `needs` and is held by who adds to `futures`.
        objects: where large results are, and what tasks have as arguments.
        send: sends a message; called by the I/O thread.
    """

    def __init__(self, lock: threading.Lock, objects: ObjectChannel, send: Callable[[m.Member], None]) -> None:
        self.condition = _condition()
        self.futures: Dict[int, ScalerFuture] = {}  # that have no outcome, by task id
        self.needs: Dict[int, Tuple[KeptObject, ...]] = {}  # objects that unfinished tasks have as arguments
        self._lock = lock
        self._objects = objects
        self._send = send
        self.given_back: List[ScalerFuture] = []  # their tasks have to be sent anew, with results of others
        self._cancels_waiting = 0
        self._callbacks: Optional[queue.SimpleQueue[Optional[ScalerFuture]]] = None

    def take_all(self) -> List[ScalerFuture]:
        """Take out all futures, in the order of their tasks, to be settled by the caller. The lock is held."""
        taken = []
        while self.futures:
            try:
                taken.append(self.futures.popitem()[1])
            except KeyError:  # the I/O thread took the last one
                break
        taken.reverse()
        return taken

    def close(self) -> None:
        """No future will be added any more; callbacks that are due are run."""
        if self._callbacks is not None:
            self._callbacks.put(None)

    def disown(self, error: Exception) -> None:
        """In a fork of the client's process, which will hear of no outcome: the futures end, without callbacks."""
        reset_lock(self.condition)
        for future in self.take_all():
            future._source = None
            future._exception = error
            future._state = FINISHED
        self.needs.clear()

    # Cancelling -----------------------------------------------------------------------------------------------------

    def await_cancel(self, future: ScalerFuture, timeout_seconds: float, force: bool) -> bool:
        """Wait for the answer to a cancel; whether the future is cancelled now.

        By force, no answer in time means that it is cancelled here, and that whatever is heard of it is ignored.
        """
        deadline = time.monotonic() + timeout_seconds
        with self.condition:
            self._cancels_waiting += 1
            try:
                while (
                    not future.done()
                    # A task that ends as it is stopped is answered as running, and its outcome follows.
                    and (
                        future._cancel_outcome is None or (force and future._cancel_outcome == m.CancelOutcome.RUNNING)
                    )
                    and time.monotonic() < deadline
                ):
                    self.condition.wait(min(deadline - time.monotonic(), threading.TIMEOUT_MAX))
            finally:
                self._cancels_waiting -= 1
            outcome, future._cancel_outcome = future._cancel_outcome, None
            if future.done() or outcome is not None or not force:
                return future.cancelled()
            if self.futures.pop(future.task_id, None) is None:
                return future.cancelled()
        self.settle([future], CANCELLED_AND_NOTIFIED, None)
        return True

    # Reactions ------------------------------------------------------------------------------------------------------

    def on_task_result(self, message: m.TaskResult, payload: bytes) -> None:
        _check_columns(message, payload)
        watched: List[ScalerFuture] = []
        take = self.futures.pop
        offset = 0
        with self.condition:
            if message.statuses or message.objects or message.durations_microseconds:
                watched = self._on_mixed_results(message, payload)
            else:
                for task_id, size in zip(message.ids, message.payload_sizes):
                    end = offset + size
                    # SCL-CLT-005
                    future = take(task_id, None)
                    if future is not None:
                        future._source = None
                        future._payload = payload[offset:end]
                        future._state = FINISHED
                        if future._is_watched:
                            watched.append(future)
                    offset = end
            for future in watched:
                future._notify_watchers()
            if self._cancels_waiting:
                self.condition.notify_all()
        if self.needs:
            self._release_arguments(message.ids)
        self._run_callbacks(watched)

    def _release_arguments(self, task_ids: Iterable[int]) -> None:
        """Tasks, of which some may have an outcome now, need their arguments no more."""
        with self._lock:
            for task_id in task_ids:
                if task_id in self.needs and task_id not in self.futures:
                    self._objects.release(self.needs.pop(task_id))

    def _on_mixed_results(self, message: m.TaskResult, payload: bytes) -> List[ScalerFuture]:
        """Results of which some failed, or are objects. The condition is held; returns the watched futures."""
        watched: List[ScalerFuture] = []
        offset = 0
        for position, task_id in enumerate(message.ids):
            end = offset + message.payload_sizes[position]
            object_id = message.objects[position] if message.objects else 0
            future = self.futures.get(task_id)
            if future is not None and message.durations_microseconds:
                figures = message.durations_microseconds, message.peak_memory_bytes, message.cpu_microseconds
                future._profile = tuple(column[position] if column else 0 for column in figures)
            if object_id and (future is None or not self._open_object(object_id, future)):
                if future is None:
                    self._send(m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=array("Q", [object_id])))
            elif (
                future is not None
                and message.statuses
                and message.statuses[position] == m.TaskStatus.LOST
                and type(future._source) is TaskRun
                and task_id in future._source.futures_needed
                and is_predecessor_gone(payload[offset:end])
            ):
                self.given_back.append(future)
            elif self.futures.pop(task_id, None) is not None and future is not None:
                if message.causes and message.causes[position] and type(future._source) is TaskRun:
                    needed = future._source.futures_needed.get(task_id, ())
                    failed = next(filter(has_failed, needed), None)
                    future._inherited_from = (None if failed is None else origin_of(failed),)
                future._source = None
                future._has_failed = bool(message.statuses and message.statuses[position])
                if message.causes:
                    future._cause = message.causes[position]
                if not object_id:
                    future._payload = payload[offset:end]
                future._state = FINISHED
                if future._is_watched:
                    watched.append(future)
            offset = end
        return watched

    def _open_object(self, object_id: int, future: ScalerFuture) -> bool:
        """Get at the content of a large result: at once on the scheduler's host, else by fetching it."""
        future._payload = self._objects.open(object_id)
        if future._payload is None:
            self._objects.fetch(object_id, future, self._send)
            return False
        # SCL-CLT-004
        self._send(m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=array("Q", [object_id])))
        return True

    def on_object_response(self, message: m.ObjectResponse, payload: bytes) -> None:
        fetched = self._objects.on_response(message, payload, self._send)
        if fetched is None:
            return
        future, content, error = fetched
        self._send(m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=array("Q", [message.id])))
        if self.futures.pop(future.task_id, None) is not None:
            future._payload = content
            self.settle([future], FINISHED, error)

    def on_cancel_confirm(self, message: m.TaskCancelConfirm) -> None:
        cancelled = []
        with self.condition:
            for task_id, outcome in zip(message.ids, message.outcomes):
                future = self.futures.get(task_id)
                if future is None:
                    continue
                # SCL-CLT-008
                if outcome == m.CancelOutcome.CANCELLED:
                    if self.futures.pop(task_id, None) is not None:  # else `clear` has just taken it
                        cancelled.append(future)
                else:
                    future._cancel_outcome = outcome
                    future._is_cancel_asked = False
            self.condition.notify_all()
        self.settle(cancelled, CANCELLED_AND_NOTIFIED, None)

    # Settling -------------------------------------------------------------------------------------------------------

    def settle(self, futures: Iterable[ScalerFuture], state: str, error: Optional[Exception]) -> None:
        """Give futures that are not in `self.futures` any more their outcome."""
        watched = []
        settled = []
        with self.condition:
            for future in futures:
                future._source = None
                future._exception = error
                future._state = state
                settled.append(future.task_id)
                if future._is_watched:
                    watched.append(future)
                    future._notify_watchers()
            self.condition.notify_all()
        if self.needs:
            self._release_arguments(settled)
        self._run_callbacks(watched)

    def _run_callbacks(self, watched: List[ScalerFuture]) -> None:
        for future in watched:
            if "_done_callbacks" in future.__dict__:
                if self._callbacks is None:
                    self._callbacks = queue.SimpleQueue()
                    name = "scaler-client-callbacks"
                    threading.Thread(target=_run_callbacks, args=(self._callbacks,), name=name, daemon=True).start()
                self._callbacks.put(future)


def _check_columns(message: m.TaskResult, payload: bytes) -> None:
    """Raises MalformedMessageError."""
    count = len(message.ids)
    optional = (
        message.statuses,
        message.objects,
        message.durations_microseconds,
        message.cpu_microseconds,
        message.peak_memory_bytes,
        message.causes,
    )
    if len(message.payload_sizes) != count or any(column and len(column) != count for column in optional):
        raise MalformedMessageError("the columns of a TaskResult disagree")
    if sum(message.payload_sizes) != len(payload):
        raise MalformedMessageError("the payload of a TaskResult is not as long as it says")


def _run_callbacks(futures: queue.SimpleQueue[Optional[ScalerFuture]]) -> None:
    """Run user's callbacks, in the order in which futures were done; errors are logged by the base class."""
    while True:
        future = futures.get()
        if future is None:
            return
        future._run_callbacks()
        del future  # nobody else may have it any more
