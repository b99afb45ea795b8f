"""The futures of `scaler.aio`: asyncio's own, whose results are loaded by those who ask for them.

Rules:
- What asyncio does with futures works: `await`, `gather`, `wait`, `shield`, `timeout`, callbacks in the loop.
- A result is kept as bytes until it is asked for, and is loaded in the thread that asks.
- Cancelling a future, or what awaits it, ends it at once, and stops its task in the cluster.
- Waiting for one inside a task frees the task's slot (`scaler.blocking`).
- asyncio sets the state of a future, but it never sees the outcome: that is kept in fields of this class, which have
  the names of asyncio's.
"""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import TYPE_CHECKING, Any, Callable, Generator, Optional, Protocol, Tuple

from scaler import blocking
from scaler.client.core.handles import NOT_NUMBERED, Buffer
from scaler.client.functions import FunctionRecord
from scaler.client.future import TaskOutcome
from scaler.client.graph_submission import GraphOutcome
from scaler.client.shell.future_internals import (
    exception_if_loaded,
    keep_outcome,
    origin_of,
    result_if_loaded,
)

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    R = TypeVar("R", default=Any)  # of the function
    _Future = asyncio.Future
else:
    from typing import TypeVar

    R = TypeVar("R")

    class _Future(asyncio.Future):
        """Subscriptable on every Python."""

        def __class_getitem__(cls, result):
            return cls


class LoopOwner(Protocol):
    """The client that a future belongs to; its shell is a LoopShell."""

    _shell: Any


class TaskFuture(TaskOutcome, _Future[R]):
    """The outcome of one task: an `asyncio.Future` that knows its `task_id`.

    For type checkers it is generic in the function's return type.
    """

    _client: LoopOwner
    _result: Any = None
    _exception: Optional[BaseException] = None
    _payload: Optional[Buffer] = None  # of the outcome, until it is loaded
    _has_failed = False
    _task_id: int = NOT_NUMBERED
    _profile: Tuple[int, ...] = ()
    _stack = ""  # where the task was when it was cancelled
    _is_cancel_asked: bool = False  # and not answered
    _source: Any = None  # what is needed to send its task again, until it has an outcome
    _inherited_from: Optional[Tuple[Any]] = None
    """The future of the task that failed, if this task failed because it needed that one."""
    _cause = 0

    def __init__(self, client: LoopOwner, function: Optional[FunctionRecord] = None) -> None:
        super().__init__(loop=client._shell.loop)
        self._client = client
        self._function = function

    @property
    def task_id(self) -> int:
        """The client's number of this task; below 0 while the task waits here, because the scheduler takes no more."""
        if self._task_id == NOT_NUMBERED:
            self._client._shell.await_number(self)
        return self._task_id

    @property
    def is_finished(self) -> bool:
        """Whether there is a result or an exception."""
        return self.done() and not self.cancelled()

    def cancel(self, msg: Optional[Any] = None) -> bool:
        """Cancel the task, even if it is already running: its process is stopped, and other tasks are not affected.

        The future is cancelled at once, and the task as soon as its worker has heard of it.

        Returns False if the future has an outcome.
        """
        if not super().cancel(msg):
            return False
        self._is_unwanted = True
        self._client._shell.cancel(self)
        return True

    def result(self) -> R:
        """The task's result.

        Raises the task's own exception, CancelledError, InvalidStateError if the outcome is not known, or an error of
        `scaler.exceptions`.
        """
        if not self.is_finished:
            super().result()  # which raises
        self._load()
        error = exception_if_loaded(self)
        if error is not None:
            try:
                raise error
            finally:
                del self, error  # break the cycle with the traceback
        result: R = result_if_loaded(self)
        return result

    def exception(self) -> Optional[BaseException]:
        """The task's exception, or None when it has a result; raises as `result` does."""
        if not self.is_finished:
            super().exception()  # which raises
        self._load()
        return exception_if_loaded(self)

    def _load(self) -> None:
        payload = self._payload
        if payload is not None:
            keep_outcome(self, *self._loaded(payload))
            self._payload = None

    def add_done_callback(self, fn: Callable[[Any], object], *, context: Optional[Context] = None) -> None:
        """Have the loop call `fn` with this future when its outcome is known."""
        end_of_wait = blocking.announce_callback() if not self.done() else None
        super().add_done_callback(fn, context=context)
        if end_of_wait is not None:
            super().add_done_callback(end_of_wait)

    def __await__(self) -> Generator[Any, None, R]:
        if not self.done():
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    __iter__ = __await__

    # Called by the client -------------------------------------------------------------------------------------------

    def _end(self, payload: Optional[Buffer]) -> None:
        """It has an outcome, which is this payload, or what was set before. A future has one outcome: the first."""
        self._source = None
        if self.done():
            return
        self._payload = payload
        try:
            super().set_result(None)  # type: ignore[arg-type]
        except (asyncio.InvalidStateError, RuntimeError):
            pass  # it was cancelled meanwhile, by a handler of a signal; or the loop is closed

    def _fail_here(self, error: BaseException) -> None:
        """It fails with an error that this client raises, unless it has an outcome."""
        if not self.done():
            keep_outcome(self, None, error)
        self._end(None)

    def _set_result_loaded(self, value: Any) -> None:
        """Set the result of a future that has not been returned to the user yet."""
        self._end(None)
        keep_outcome(self, value, None)

    def _set_cancelled(self) -> None:
        """The task was cancelled, unless it has an outcome."""
        self._source = None
        try:
            super().cancel()
        except RuntimeError:
            pass  # the loop is closed

    def _set_failed_after(self, failed: Any) -> None:
        """Fail a future without an outcome, because a task that it needs has failed."""
        self._inherited_from = (origin_of(failed),)
        self._has_failed = True
        self._end(b"")  # the exception is made when it is asked for


class GraphTaskFuture(GraphOutcome, TaskFuture[Any]):
    """The future of a graph's task."""
