"""Giving futures their outcomes, a batch at a time.

Rules:
- The condition is held while states change. Waiting threads are woken afterwards, by `notify`. Callbacks run in a
  thread of their own, in the order in which futures were done.
- Results are not loaded here, because that would run user code.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from typing import Any, Deque, List, Mapping, Optional, Protocol, Sequence, Tuple

from scaler.client.core.effects import Outcome
from scaler.client.shell.client_failures import unfinished_futures
from scaler.client.shell.future_internals import (
    AnyFuture,
    has_failed,
    origin_of,
    set_attribute,
    settle_cancelled,
    settle_failed,
    settle_outcome,
    settle_results,
    shared_condition,
    waiting_for,
    wake_cancel_waiters,
)
from scaler.client.shell.left_locks import reset_lock
from scaler.client.shell.waiting import Waiter

CALLBACK_CHECK_SECONDS = 0.1


class _HasCallbacks(Protocol):
    def _run_callbacks(self) -> None:
        """Run them."""


class _EndOfCallbacks:
    """In the place of a future: says that the callbacks of those before it have run."""

    def __init__(self) -> None:
        self.waiter = Waiter()

    def _run_callbacks(self) -> None:
        self.waiter.wake()


class Settling:
    """Gives the futures of one client their outcomes. I/O thread."""

    def __init__(self) -> None:
        self.condition = shared_condition()
        self._to_notify: Deque[Tuple[AnyFuture, Tuple[Any, ...]]] = deque()
        self._callbacks: queue.SimpleQueue[Optional[_HasCallbacks]] = queue.SimpleQueue()
        self._runs_callbacks = False
        self._callback_thread: Optional[threading.Thread] = None

    def results(self, futures: Sequence[Optional[Any]], payload: bytes, sizes: Sequence[int]) -> None:
        """Futures have consecutive parts of the payload as their results."""
        with self.condition:
            self._note(settle_results(futures, payload, sizes))

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Futures have outcomes of any kind."""
        watched: List[AnyFuture] = []
        with self.condition:
            for outcome in outcomes:
                future: Any = outcome.future
                prepare(future, outcome)
                settle_outcome(future, outcome.payload, watched)
            self._note(watched)

    def cancelled(self, futures: Sequence[Any]) -> None:
        """Futures are cancelled, unless they have an outcome."""
        with self.condition:
            self._note(settle_cancelled(futures))

    def failed(self, futures: Sequence[Any], error: Exception) -> None:
        """Futures fail, unless they have an outcome."""
        with self.condition:
            self._note(settle_failed(futures, error))

    def failed_after(self, future: Any, failed: Any) -> None:
        """A future ends because a task that it needs has failed."""
        with self.condition:
            future._source = None
            future._set_failed_after(failed)
            if future._is_watched:
                self._note([future])

    def cancel_answered(self, future: Any, outcome: int) -> None:
        """The scheduler has answered a cancellation, and the task goes on or has ended."""
        future._cancel_outcome = outcome
        if future._is_watched:
            wake_cancel_waiters(future)

    def _note(self, watched: Sequence[AnyFuture]) -> None:
        """Remember the current waiters of these futures, to notify them. The condition is held."""
        self._to_notify += waiting_for(watched)

    def notify(self) -> None:
        """Notify the waiters of futures that got an outcome since the last call."""
        while self._to_notify:
            future, waiters = self._to_notify.popleft()
            future._notify(waiters)
            if future._has_callbacks():
                self._callbacks.put(future)
        if not (self._runs_callbacks or self._callbacks.empty()):
            self._run_callbacks()

    def _run_callbacks(self) -> None:
        name = "scaler-client-callbacks"
        thread = threading.Thread(target=_run_callbacks, args=(self._callbacks,), name=name, daemon=True)
        try:
            thread.start()
            self._callback_thread = thread
            self._runs_callbacks = True
        except (RuntimeError, MemoryError):
            pass  # no room for a thread: tried again next time

    def unfinished(self, known: Mapping[int, Any]) -> Sequence[AnyFuture]:
        """All futures of this client that have no outcome; `known` to its core are those."""
        return unfinished_futures(self.condition, known)

    def await_callbacks(self) -> None:
        """Return when the callbacks of the futures that were notified have run. User threads; returns at once in the
        thread that runs callbacks, which cannot wait for itself."""
        thread = self._callback_thread
        if thread is None or thread is threading.current_thread():
            return
        end = _EndOfCallbacks()
        self._callbacks.put(end)
        while not end.waiter.wait(CALLBACK_CHECK_SECONDS):
            if not thread.is_alive():  # the client was closed before
                return

    def close(self) -> None:
        """No more futures follow; pending callbacks still run."""
        self._callbacks.put(None)

    def after_fork_in_child(self, futures: Sequence[Any], error: Exception) -> None:
        """In a fork of the client's process, which gets no more outcomes: end the futures, without callbacks."""
        reset_lock(self.condition)
        settle_failed(futures, error)


def prepare(future: Any, outcome: Outcome) -> None:
    """Tell a future what comes with its outcome."""
    if outcome.profile:
        set_attribute(future, "_profile", outcome.profile)
    if outcome.cause:
        set_attribute(future, "_cause", outcome.cause)
        if outcome.needed:
            failed: Any = next(filter(has_failed, outcome.needed), None)  # type: ignore[arg-type]
            set_attribute(future, "_inherited_from", (None if failed is None else origin_of(failed),))
    future._has_failed = outcome.has_failed


def _run_callbacks(futures: queue.SimpleQueue[Optional[_HasCallbacks]]) -> None:
    """Run user's callbacks, in the order in which futures were done; errors are logged by `_run_callbacks`."""
    while True:
        future = futures.get()
        if future is None:
            return
        future._run_callbacks()
        del future  # this may be the last reference
