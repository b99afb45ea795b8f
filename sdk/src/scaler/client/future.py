"""ScalerFuture: a `concurrent.futures.Future` that costs little when there are 100 000 of them.

Rules:
- All futures of a client share one condition, so that a batch of results takes one lock and one notification.
- A result is kept as bytes until somebody asks for it, and is loaded in that somebody's thread, never in the client's
  I/O thread: loading runs user code.
- What only some futures need (waiters, callbacks) is made when it is asked for, and marks the future as watched.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures._base import CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED, PENDING
from math import inf
from typing import TYPE_CHECKING, Any, Callable, Generator, List, Optional, Tuple, Type, Union

from scaler import blocking
from scaler.arguments import Duration, seconds
from scaler.client.future_arguments import dependency_error, reduce_future
from scaler.client.profiling import ProfileResult
from scaler.compat.arguments import accepts_earlier
from scaler.exceptions import DeserializeObjectError, ProfileNotAvailableError, RemoteTraceback
from scaler.notebook import Row, card
from scaler.values.failures import load_failure
from scaler.values.payload import Buffer, load_value
from scaler.values.texts import description_of

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from scaler.client.core.deferring import DeferredTask
    from scaler.client.core.outbox import Run
    from scaler.client.functions import FunctionRecord
    from scaler.client.submitter import Submitter

    R = TypeVar("R", default=Any)  # of the function
    _Future = Future
else:
    from typing import TypeVar

    R = TypeVar("R")

    class _Future(Future):
        """Subscriptable on every Python: the standard library's is so only from 3.9.2 on."""

        def __class_getitem__(cls, result):
            return cls


logger = logging.getLogger("scaler")

CANCEL_TIMEOUT_SECONDS = 1.0

_DONE_STATES = (CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED)
_NOT_LOADED = DeserializeObjectError("the exception has not been loaded yet: ask again without the condition held")


class _Waiters(List[Any]):
    """The waiters of a future: those of this module, and those of `concurrent.futures`."""

    def append(self, waiter: Any) -> None:
        blocking.announce_waiter(waiter)
        super().append(waiter)


class _ListMadeWhenAsked:
    """A list attribute that does not exist before its first use, which marks the future as watched."""

    def __init__(self, kind: Type[List[Any]]) -> None:
        self._kind = kind

    def __set_name__(self, owner: Type[Any], name: str) -> None:
        self._name = name

    def __get__(self, future: Any, owner: Type[Any]) -> List[Any]:
        made = self._kind()
        future.__dict__[self._name] = made
        future._is_watched = True
        return made


class _Waiter:
    """One thread that waits for one future; woken the way in which `concurrent.futures` wakes its own."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self, timeout_seconds: Optional[float]) -> bool:
        """Whether the future was done in time."""
        seconds = -1 if timeout_seconds is None else min(max(0.0, timeout_seconds), threading.TIMEOUT_MAX)
        return self._lock.acquire(timeout=seconds)

    def stop(self) -> None:
        self._lock.release()

    def add_result(self, future: Future[Any]) -> None:
        self._lock.release()

    add_exception = add_cancelled = add_result


class ScalerFuture(_Future[R]):
    """The outcome of one task; everything that `concurrent.futures.Future` promises holds.

    It can also be awaited, and knows its `task_id`. For type checkers it is generic in the function's return type.
    """

    _state: str = PENDING
    _result: Any = None
    _exception: Optional[BaseException] = None
    _payload: Optional[Buffer] = None  # of the outcome, until it is loaded
    _has_failed = False
    _is_watched = False
    _cancel_outcome: Optional[int] = None
    _profile: Tuple[int, ...] = ()
    _stack = ""  # where the task was when it was cancelled
    _is_cancel_asked = False  # and not answered
    _is_unwanted = False  # somebody asked to cancel it at some time
    _source: Union[Run, DeferredTask, None] = None  # what its task is sent again from; while it has no outcome
    _keeps_content = False  # of its result, when that is loaded: other tasks may need it
    _content: Optional[Buffer] = None
    _inherited_from: Optional[Tuple[Optional[ScalerFuture]]] = None  # whose failure this is, for a task that needed it
    _is_neutral = False  # its result is in a codec that all languages read
    _stands_for_its_result = True  # in the arguments of a task
    _cause = 0  # in a graph: 1 + the id of the task whose failure this is, if it is another's
    _waiters = _ListMadeWhenAsked(_Waiters)
    _done_callbacks = _ListMadeWhenAsked(list)

    # The base class's would make a lock for each future.
    def __init__(self, client: Submitter, task_id: int, function: Optional[FunctionRecord] = None) -> None:
        self._client = client
        self._task_id = task_id
        self._function = function

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        return self._client._core.outcomes.condition

    @property
    def task_id(self) -> int:
        """The client's number of this task."""
        return self._task_id

    def running(self) -> bool:
        """True from submission until the outcome is known, as in earlier generations, and while `repr` says "running":
        the client does not see when a worker begins. `Client.explain` says whether the task waits, and for what."""
        return self._state not in _DONE_STATES

    def profiling_info(self) -> ProfileResult:
        """What was measured of the task, when it was submitted with profiling.

        Raises ProfileNotAvailableError if the task is not done, was not profiled, or did not run to an end.
        """
        if not self.done():
            raise ProfileNotAvailableError(
                f"task {self._task_id} is not done: its profile comes with its outcome, see result()"
            )
        if not self._profile or not self._profile[0]:
            raise ProfileNotAvailableError(
                f"task {self._task_id} has no profile: it did not run to an end, or was submitted without profiling;"
                " ask for it with client.options(profiling=True), or Client(profiling=True) for all tasks"
            )
        return ProfileResult(*self._profile)

    @accepts_earlier("ScalerFuture.cancel")
    def cancel(self, timeout_seconds: Optional[Duration] = None, *, force: bool = True) -> bool:
        """Cancel the task, also when it runs already: its process is stopped, and other tasks are not touched.

        Waits until the task has been stopped, at most `timeout_seconds`. If there is no answer by then, because a
        worker or the scheduler is out of reach, the future is cancelled here, and whatever the task still does is
        ignored.

        Parameters:
            timeout_seconds: such as 5 or "500ms". By default CANCEL_TIMEOUT_SECONDS, or 0 in a thread that runs an
                event loop, which must not wait.
            force: False leaves a task alone that runs already, or whose worker does not answer in time.

        Returns True when the future is cancelled now; False when it has an outcome, or runs and was not forced.
        """
        if self._state in (CANCELLED, CANCELLED_AND_NOTIFIED):
            return True
        if self._state == FINISHED:
            return False
        self._is_unwanted = True
        if timeout_seconds is None:
            timeout_seconds = CANCEL_TIMEOUT_SECONDS if asyncio._get_running_loop() is None else 0.0
        else:
            timeout_seconds = seconds("timeout_seconds", timeout_seconds, -inf)
        return self._client._core.cancel(self, timeout_seconds, force)

    def result(self, timeout: Optional[float] = None) -> R:
        """The task's result.

        Parameters:
            timeout: how long to wait at most, in seconds; None waits for ever.

        Raises the task's own exception, CancelledError, TimeoutError, or an error of `scaler.exceptions`.
        """
        if self._state != FINISHED:
            self._wait(timeout)
        if self._payload is not None:
            self._load()
        if self._exception is not None:
            try:
                raise self._exception
            finally:
                self = None  # type: ignore[assignment]  # break the cycle with the traceback, as the base class does
        result: R = self._result
        return result

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        """The task's exception, or None when it has a result; waits and raises as `result` does."""
        if self._state != FINISHED:
            self._wait(timeout)
        if self._payload is not None:
            if self._condition._is_owned():  # type: ignore[attr-defined]
                # `concurrent.futures.wait` asks with the condition held, where no user code may run: loading could take
                # long, or wait for another future, and nobody could tell this client anything meanwhile.
                return _NOT_LOADED if self._has_failed else None
            self._load()
        return self._exception

    def add_done_callback(self, fn: Callable[[Future[R]], object]) -> None:
        """Call `fn` with this future when its outcome is known: at once if it is, else in a thread of the client."""
        end_of_wait = blocking.announce_callback() if self._state not in _DONE_STATES else None
        super().add_done_callback(fn)
        if end_of_wait is not None:
            super().add_done_callback(end_of_wait)

    def _wait(self, timeout: Optional[float]) -> None:
        """Wait until the outcome is known: for this one only, while the condition would tell of all."""
        waiter = _Waiter()
        with self._condition:
            if self._state not in _DONE_STATES:
                self._waiters.append(waiter)
            else:
                waiter.stop()
        with blocking.announced():
            if not waiter.wait(timeout):
                with self._condition:
                    self._waiters.remove(waiter)
                raise FutureTimeoutError()
        if self._state != FINISHED:
            raise CancelledError() from (RemoteTraceback(self._stack) if self._stack else None)

    def _load(self) -> None:
        """Turn the payload into the result or the exception."""
        payload = self._payload
        if payload is None:
            return  # another thread was faster
        if self._keeps_content:
            self._content = payload
            payload = memoryview(payload).toreadonly()  # so that the result has arrays of its own
        if self._has_failed:
            self._exception = self._load_failure(bytes(payload))
        else:
            try:
                self._result = self._load_result(payload)
            except KeyboardInterrupt:  # of the user, who waits for it: the result can be asked for again
                raise
            except BaseException as error:
                self._exception = _not_loadable(error)
        self._payload = None

    def _load_failure(self, payload: bytes) -> BaseException:
        if self._inherited_from is not None:
            return dependency_error(self, self._inherited_from[0], payload)
        return load_failure(payload, self._function.name if self._function else "")

    def __reduce__(self) -> Any:
        return reduce_future(self)

    def _load_result(self, payload: Buffer) -> Any:
        return load_value(payload, self._client._core.serializer)

    def __await__(self) -> Generator[Any, None, R]:
        # Not by `asyncio.wrap_future`: there a task that raises StopIteration is waited for until the end of time.
        loop = asyncio.get_running_loop()
        outcome_is_known: asyncio.Future[None] = loop.create_future()

        def wake(_: Future[Any]) -> None:
            try:
                loop.call_soon_threadsafe(_set_done, outcome_is_known)
            except RuntimeError:
                pass  # the loop is closed: nobody waits any more

        self.add_done_callback(wake)
        try:
            with blocking.announced():
                yield from outcome_is_known
        except asyncio.CancelledError:
            self.cancel()
            raise
        if self.cancelled():
            raise asyncio.CancelledError() from (RemoteTraceback(self._stack) if self._stack else None)
        return self.result()

    def __repr__(self) -> str:
        name = f" of {self._function.name}" if self._function is not None and self._function.name else ""
        return f"<{type(self).__name__} {self._task_id}{name}: {self._outcome()}>"

    def _repr_html_(self) -> str:
        rows: List[Row] = [
            ("function", self._function.name if self._function is not None else ""),
            ("task", self._task_id),
            ("state", self._outcome()),
            ("scheduler", self._client._core.address),
        ]
        return card(type(self).__name__, rows)

    def _outcome(self) -> str:
        """In words, without loading anything, for that would run user code."""
        if self._state not in _DONE_STATES:
            return "running"
        if self._state != FINISHED:
            return "cancelled"
        if self._exception is not None:
            return f"finished, raised {type(self._exception).__name__}"
        if self._has_failed:
            return "finished, failed"
        is_loaded = self._payload is None
        return f"finished, returned {type(self._result).__name__}" if is_loaded else "finished, has a result"

    # Called by the client's core, with the condition held -----------------------------------------------------------

    def _notify_watchers(self) -> None:
        for waiter in self._waiters:
            if self._state == CANCELLED_AND_NOTIFIED:
                waiter.add_cancelled(self)
            elif self._has_failed or self._exception is not None:
                waiter.add_exception(self)
            else:
                waiter.add_result(self)

    def _run_callbacks(self) -> None:
        for callback in self._done_callbacks:
            try:
                callback(self)
            except (
                BaseException
            ):  # whatever it raises, SystemExit included, must not keep others' callbacks from running
                logger.exception("a callback of task %d raised an exception", self._task_id)


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _not_loadable(error: BaseException) -> DeserializeObjectError:
    text = f"the result cannot be loaded by this client: {description_of(error)}"
    if isinstance(error, ImportError):
        text += "; install that module here, or return builtin types from the task"
    failure = DeserializeObjectError(text)
    failure.__cause__ = error
    return failure
