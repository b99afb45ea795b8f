"""All code that relies on private parts of `concurrent.futures`; no other module uses them.

    _state, _result, _exception     as the base class has them, but class attributes until they are set
    _waiters, _done_callbacks       created on first use; then the future is watched
    _condition                      one for all futures of a client

`concurrent.futures.wait` and `as_completed` append a waiter to `_waiters` with the conditions held, wait at its
`event`, and remove it. The thread that sets a future's state calls the waiter's `add_result`, `add_exception` or
`add_cancelled`. They may call `exception()` with the conditions held. `add_done_callback` appends to `_done_callbacks`
with the condition held, unless `_state` says that the future is done.

Rules:
- `tests/client/shell/standard_library_checks.py` tests each line above on every Python that is installed.
- The I/O thread gives futures their states, with the condition held, because `concurrent.futures.wait` and
  `as_completed` rely on it. No user code runs and nothing blocks while it is held.
- Our code in user threads never takes it: it appends a waiter to a list, and checks the state again afterwards. The
  state is set before the list is read, so no waiter is missed; and Ctrl-C leaves no lock held.
- A future has one outcome: the first.
- User threads and the I/O thread may set attributes of one future at the same time. CPython 3.11 makes a dictionary of
  an object's attributes when it is asked for, or when a name is set for which its class has no place. If garbage is
  collected meanwhile, another thread may make one too, with the same content, and the interpreter crashes (ADR 0050).
  So the class has places for `NAMES_WITH_A_PLACE`. Once a future is submitted, `set_attribute` sets the others.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures._base import CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED, PENDING
from contextvars import Context
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple, Type

from scaler import blocking
from scaler.client.core.handles import NOT_NUMBERED, Buffer
from scaler.client.shell.waiting import Waiter
from scaler.exceptions import DeserializeObjectError, RemoteTraceback

if TYPE_CHECKING:
    from typing_extensions import TypeVar

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

_NOT_LOADED = DeserializeObjectError("the exception has not been loaded yet: ask again without the condition held")

DONE_STATES = (CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED)

NAMES_WITH_A_PLACE = (
    *("_client", "_function", "_task_id", "_source", "_state", "_payload", "_has_failed", "_result", "_exception"),
    *("_is_watched", "_waiters", "_done_callbacks", "_is_unwanted", "_is_cancel_asked", "_cancel_outcome"),
)


def set_attribute(future: Any, name: str, value: Any) -> None:
    """Set an attribute of a future that may not have a place."""
    # An empty dictionary is made, during which garbage may be collected, and dropped. The interpreter keeps it for the
    # next one, which is made without a collection, and before another thread can run.
    setattr({} or future, name, value)


class _Waiters(List[Any]):
    """The waiters of a future: ours, and those of `concurrent.futures`."""

    def append(self, waiter: Any) -> None:
        if not isinstance(waiter, Waiter):
            blocking.announce_waits_at(getattr(waiter, "event", None))
        super().append(waiter)


class _ListMadeWhenAsked:
    """A list attribute that does not exist before its first use, which marks the future as watched."""

    def __init__(self, kind: Type[List[Any]]) -> None:
        self._kind = kind

    def __set_name__(self, owner: Type[Any], name: str) -> None:
        self._name = name

    def __get__(self, future: Any, owner: Type[Any]) -> List[Any]:
        attributes: Dict[str, Any] = ({} or future).__dict__  # as in `set_attribute`
        made: List[Any] = attributes.setdefault(self._name, self._kind())  # another thread may be faster
        future._is_watched = True
        return made


class FutureWaiter(Waiter):
    """One thread that waits for one future; woken the way in which `concurrent.futures` wakes its own."""

    __slots__ = ()

    def add_result(self, future: Future[Any]) -> None:
        self.wake()

    add_exception = add_cancelled = add_result


class CancelWaiter(FutureWaiter):
    """Whether it also waits for the answer to a cancellation."""

    __slots__ = ()


class FutureWithSharedCondition(_Future[R]):
    """A future that costs little: what only some futures need is made on first use."""

    _client: Any  # a client; its `_shell.condition` is that of its futures
    _state: str = PENDING
    _result: Any = None
    _exception: Optional[BaseException] = None
    _payload: Optional[Buffer] = None  # of the outcome, until it is loaded
    _has_failed = False
    _is_watched = False
    _task_id: int = NOT_NUMBERED
    _cancel_outcome: Optional[int] = None
    _profile: Tuple[int, ...] = ()
    _context: Optional[Context] = None  # of its submission, in which its output is shown
    _stack = ""  # where the task was when it was cancelled
    _is_cancel_asked: bool = False  # and not answered
    _source: Any = None  # what is needed to send its task again, until it has an outcome
    _content: Optional[Buffer] = None
    _inherited_from: Optional[Tuple[Optional[FutureWithSharedCondition[Any]]]] = None
    """The future of the task that failed, if this task failed because it needed that one."""
    _cause = 0  # in a graph: 1 + the id of the task whose failure this is, if it is another's
    _waiters = _ListMadeWhenAsked(_Waiters)
    _done_callbacks = _ListMadeWhenAsked(list)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        first = cls.__new__(cls)
        for name in NAMES_WITH_A_PLACE:  # what the first objects have, has a place in all
            setattr(first, name, None)

    # The base class's would make a lock for each future.
    def __init__(self) -> None:
        pass

    if not TYPE_CHECKING:  # for type checkers it stays an attribute of the base class: `as_completed` requires one

        @property
        def _condition(self) -> threading.Condition:
            condition: threading.Condition = self._client._shell.condition
            return condition

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._state in DONE_STATES

    def cancelled(self) -> bool:
        """Whether the task was cancelled."""
        return self._state in (CANCELLED, CANCELLED_AND_NOTIFIED)

    @property
    def is_finished(self) -> bool:
        """Whether there is a result or an exception."""
        return self._state == FINISHED

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
                # `concurrent.futures.wait` asks with the condition held, when no user code may run: loading could take
                # long, or wait for another future, and meanwhile this client could not process any message.
                return _NOT_LOADED if self._has_failed else None
            self._load()
        return self._exception

    def _load(self) -> None:
        """Turn the payload into the result or the exception."""
        payload = self._payload
        if payload is None:
            return  # another thread was faster
        self._result, self._exception = self._loaded(payload)
        self._payload = None

    def _loaded(self, payload: Buffer) -> Tuple[Any, Optional[BaseException]]:
        """The result and the exception that a payload stands for, one of them None; subclasses know how."""
        raise NotImplementedError

    def _wait(self, timeout: Optional[float]) -> None:
        """Wait until the outcome is known. Raises TimeoutError, and CancelledError if it is that."""
        waiter = FutureWaiter()
        self._waiters.append(waiter)
        if self._state not in DONE_STATES:
            with blocking.announced():
                if not waiter.wait(timeout) and self._state not in DONE_STATES:
                    forget_waiter(self, waiter)
                    raise FutureTimeoutError()
        if self._state != FINISHED:
            raise CancelledError() from (RemoteTraceback(self._stack) if self._stack else None)

    def _set_result_loaded(self, value: Any) -> None:
        """Set the result of a future that has not been returned to the user yet."""
        self._result = value
        self._state = FINISHED

    def _set_cancelled(self) -> None:
        """Cancel a future that has not been returned to the user yet."""
        self._state = CANCELLED_AND_NOTIFIED

    def _set_failed_after(self, failed: FutureWithSharedCondition[Any]) -> None:
        """Fail a future without an outcome, because a task that it needs has failed."""
        set_attribute(self, "_inherited_from", (origin_of(failed),))
        self._has_failed = True
        self._payload = b""  # the exception is made when it is asked for
        self._state = FINISHED

    # Called by the I/O thread ---------------------------------------------------------------------------------------

    def _notify(self, waiters: Sequence[Any]) -> None:
        """Notify these waiters, which waited when the state was set."""
        for waiter in waiters:
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
            # Whatever it raises, SystemExit included, must not keep others' callbacks from running.
            except BaseException:
                logger.exception("a callback of task %d raised an exception", self._task_id)

    def _has_callbacks(self) -> bool:
        return "_done_callbacks" in self.__dict__


AnyFuture = FutureWithSharedCondition[Any]


def shared_condition() -> threading.Condition:
    """A condition that Ctrl-C cannot leave locked: it is entered and left, or neither.

    The standard library's is entered by Python code, which may be interrupted after it has taken the lock. As all
    futures share the condition, no future would then ever get an outcome.
    """
    lock: Any = threading.RLock()
    methods = {"__enter__": staticmethod(lock.__enter__), "__exit__": staticmethod(lock.__exit__)}
    kind = type("_Condition", (threading.Condition,), methods)
    condition: threading.Condition = kind(lock)
    return condition


# Giving outcomes; with the condition held ---------------------------------------------------------------------------


def settle_results(futures: Sequence[Optional[AnyFuture]], payload: bytes, sizes: Sequence[int]) -> List[AnyFuture]:
    """Give futures consecutive parts of a payload as their results; returns those that are watched."""
    watched = []
    offset = 0
    for future, size in zip(futures, sizes):
        end = offset + size
        if future is not None:
            future._source = None
            future._payload = payload[offset:end]
            future._state = FINISHED
            if future._is_watched:
                watched.append(future)
        offset = end
    return watched


def settle_outcome(future: AnyFuture, payload: Optional[Buffer], watched: List[AnyFuture]) -> None:
    """Give a future the payload of its outcome, of any kind; if it is watched, append it to the watched ones."""
    future._source = None
    future._payload = payload
    future._state = FINISHED
    if future._is_watched:
        watched.append(future)


def settle_cancelled(futures: Sequence[AnyFuture]) -> List[AnyFuture]:
    """Cancel futures that have no outcome; returns those that are watched."""
    return _settle(futures, CANCELLED_AND_NOTIFIED, None)


def settle_failed(futures: Sequence[AnyFuture], error: Exception) -> List[AnyFuture]:
    """End futures that have no outcome with an error; returns those that are watched."""
    return _settle(futures, FINISHED, error)


def _settle(futures: Sequence[AnyFuture], state: str, error: Optional[Exception]) -> List[AnyFuture]:
    watched = []
    for future in futures:
        if future._state == PENDING:
            future._source = None
            future._exception = error
            future._state = state
            if future._is_watched:
                watched.append(future)
    return watched


def waiting_for(watched: Sequence[AnyFuture]) -> List[Tuple[AnyFuture, Tuple[Any, ...]]]:
    """Futures that have an outcome now, each with those who wait for it, who are to be told."""
    return [(future, tuple(future._waiters)) for future in watched]


# Looking at futures -------------------------------------------------------------------------------------------------


def add_waiter(future: Future[Any], waiter: Any) -> None:
    """Notify a waiter of a future's outcome at least once, even if it is already known."""
    if isinstance(future, FutureWithSharedCondition):
        future._waiters.append(waiter)
        if future._state in DONE_STATES:
            _tell(waiter, future)
        return
    with future._condition:
        if future._state in (CANCELLED_AND_NOTIFIED, FINISHED):
            _tell(waiter, future)
        else:
            future._waiters.append(waiter)


def _tell(waiter: Any, future: Future[Any]) -> None:
    failed = isinstance(future, FutureWithSharedCondition) and future._has_failed
    if future._state != FINISHED:
        waiter.add_cancelled(future)
    elif failed or future._exception is not None:
        waiter.add_exception(future)
    else:
        waiter.add_result(future)


def forget_waiter(future: Future[Any], waiter: Any) -> None:
    """A waiter no longer waits."""
    try:
        future._waiters.remove(waiter)
    except ValueError:
        pass


def wake_cancel_waiters(future: AnyFuture) -> None:
    """The answer to a cancellation has arrived."""
    for waiter in tuple(future._waiters):
        if type(waiter) is CancelWaiter:
            waiter.wake()


def is_cancelled(future: AnyFuture) -> bool:
    return future._state in (CANCELLED, CANCELLED_AND_NOTIFIED)


def has_failed(future: AnyFuture) -> bool:
    """Whether a future that is done has an exception, without loading it."""
    return future._has_failed or future._exception is not None


def taken_result(future: AnyFuture, timeout: Optional[float] = None) -> Any:
    """The result of a future that has not been returned to the user, which no longer refers to it; raises as `result`
    does."""
    result = future.result() if future.done() else future.result(timeout)
    future._result = None
    return result


def result_if_loaded(future: Any) -> Any:
    """The result of a future that was loaded, and has not failed."""
    return future._result


def keep_outcome(future: Any, result: Any, error: Optional[BaseException]) -> None:
    """A future has been loaded: one of these is its outcome."""
    future._result, future._exception = result, error


def exception_if_loaded(future: Any) -> Optional[BaseException]:
    """The exception of a future that has failed and was loaded; else None."""
    error: Optional[BaseException] = future._exception
    return error


def content_of(future: AnyFuture) -> Any:
    """The bytes of a future's result as received, if they are still here."""
    return future._content if future._payload is None else future._payload


def origin_of(failed: AnyFuture) -> Optional[AnyFuture]:
    """The future of the task whose failure this is: itself, or one that it needed; None if that is unknown here."""
    return failed if failed._inherited_from is None else failed._inherited_from[0]
