"""ScalerFuture: a `concurrent.futures.Future` that costs little when there are 100 000 of them.

Rules:
- A result is kept as bytes until it is asked for, and is loaded in the thread that asks, never in the client's I/O
  thread: loading runs user code.
- All futures of a client share one condition, so that a batch of results takes one lock and one notification
  (`shell.future_internals`).
"""

from __future__ import annotations

import sys
from concurrent.futures import Future
from math import inf
from typing import TYPE_CHECKING, Any, Callable, Generator, List, Optional, Protocol, Tuple

from scaler import blocking
from scaler.arguments import Duration, seconds
from scaler.client.core.handles import NOT_NUMBERED
from scaler.client.functions import FunctionRecord
from scaler.client.future_arguments import dependency_error, reduce_future
from scaler.client.profiling import ProfileResult
from scaler.client.shell.client_shell import ClientShell
from scaler.client.shell.future_internals import (
    FutureWithSharedCondition,
    exception_if_loaded,
    result_if_loaded,
    set_attribute,
)
from scaler.compat.earlier_arguments import accepts_earlier
from scaler.exceptions import (
    DeserializeObjectError,
    MissingObjects,
    ObjectStorageFullError,
    ProfileNotAvailableError,
    RemoteTraceback,
)
from scaler.notebook import Row, card
from scaler.values.failures import load_failure
from scaler.values.named_functions import NamedFunction
from scaler.values.payload import Buffer, load_value
from scaler.values.texts import description_of

if TYPE_CHECKING:
    import asyncio

    from typing_extensions import TypeVar

    R = TypeVar("R", default=Any)  # of the function
else:
    from typing import TypeVar

    R = TypeVar("R")

CANCEL_TIMEOUT_SECONDS = 1.0


class Owner(Protocol):
    """The client that a future belongs to, which lives as long as its unfinished futures."""

    _shell: ClientShell


class TaskOutcome:
    """What the futures of all clients have in common: how an outcome is loaded, measured and described.

    Rules: those that inherit from it have the other fields of a task, which their clients set.
    """

    if TYPE_CHECKING:
        _client: Any
        _task_id: int
        _payload: Optional[Buffer]
        _has_failed: bool
        _profile: Tuple[int, ...]
        _inherited_from: Optional[Tuple[Any]]

        @property
        def task_id(self) -> int: ...

        def done(self) -> bool: ...

        def cancelled(self) -> bool: ...

    _is_unwanted = False  # its cancellation was requested at some time
    _was_argument = False  # its result, which is large, or may be
    _is_small = False  # its result, when it was last looked at
    _keeps_content = False  # the bytes of its result after loading: other tasks may need them
    _stands_for_its_result = True  # in the arguments of a task
    _named: Optional[NamedFunction] = None  # if it is called by name: its result is in a codec that all languages read
    _function: Optional[FunctionRecord] = None
    _content: Optional[Buffer] = None

    @property
    def _label(self) -> str:
        """The name of its function, for errors; empty if it has none."""
        return self._function.name if self._function else ""

    def profiling_info(self) -> ProfileResult:
        """What was measured of the task, when it was submitted with profiling.

        Raises ProfileNotAvailableError if the task is not done, was not profiled, or did not run to an end.
        """
        if not self.done():
            raise ProfileNotAvailableError(
                f"task {self.task_id} is not done: its profile comes with its outcome, see result()"
            )
        if not self._profile or not self._profile[0]:
            raise ProfileNotAvailableError(
                f"task {self.task_id} has no profile: it did not run to an end, or was submitted without profiling;"
                " ask for it with client.options(profiling=True), or Client(profiling=True) for all tasks"
            )
        return ProfileResult(*self._profile)

    def _loaded(self, payload: Buffer) -> Tuple[Any, Optional[BaseException]]:
        if self._keeps_content:
            set_attribute(self, "_content", payload)
            payload = memoryview(payload).toreadonly()  # so that the result has arrays of its own
        if self._has_failed:
            return None, self._load_failure(bytes(payload))
        try:
            if self._named is None:
                return load_value(payload, self._client._shell.serializer), None
            return self._named.neutral_codec.load_result(payload), None
        except KeyboardInterrupt:  # from the user who waits for it: the result can be asked for again
            raise
        except BaseException as error:
            return None, _not_loadable(error)

    def _load_failure(self, payload: bytes) -> BaseException:
        if self._inherited_from is not None:
            return dependency_error(self, self._inherited_from[0], payload, self._named is not None)
        error = load_failure(payload, self._label, self._named is not None)
        if isinstance(error, (MissingObjects, ObjectStorageFullError)):
            self._client._shell.placed_results.forget_all()
        return error

    def __reduce__(self) -> Any:
        return reduce_future(self)

    def __repr__(self) -> str:
        name = f" of {self._function.name}" if self._function is not None and self._function.name else ""
        return f"<{type(self).__name__} {self.task_id}{name}: {self._outcome()}>"

    def _repr_html_(self) -> str:
        rows: List[Row] = [
            ("function", self._function.name if self._function is not None else ""),
            ("task", self.task_id),
            ("state", self._outcome()),
            ("scheduler", self._client._shell.address),
        ]
        return card(type(self).__name__, rows)

    def _outcome(self) -> str:
        """A description, without loading anything, because that would run user code."""
        if not self.done():
            return "running"
        if self.cancelled():
            return "cancelled"
        error = exception_if_loaded(self)
        if error is not None:
            return f"finished, raised {type(error).__name__}"
        if self._has_failed:
            return "finished, failed"
        if self._payload is not None:
            return "finished, has a result"
        return f"finished, returned {type(result_if_loaded(self)).__name__}"


class ScalerFuture(TaskOutcome, FutureWithSharedCondition[R]):
    """The outcome of one task; everything that `concurrent.futures.Future` promises holds.

    It can also be awaited, and knows its `task_id`. For type checkers it is generic in the function's return type.
    """

    _client: Owner

    def __init__(self, client: Owner, function: Optional[FunctionRecord] = None) -> None:
        self._client = client
        self._function = function

    @property
    def task_id(self) -> int:
        """The client's number of this task."""
        if self._task_id == NOT_NUMBERED:
            self._client._shell.await_number(self)
        return self._task_id

    def running(self) -> bool:
        """True from submission until the outcome is known, as in earlier generations, and while `repr` says "running":
        the client does not see when a worker begins. `Client.explain` says whether the task waits, and for what."""
        return not self.done()

    @accepts_earlier("ScalerFuture.cancel")
    def cancel(self, timeout_seconds: Optional[Duration] = None, *, force: bool = True) -> bool:
        """Cancel the task, even if it is already running: its process is stopped, and other tasks are not affected.

        Waits until the task has been stopped, at most `timeout_seconds`. If there is no answer by then, because a
        worker or the scheduler is unreachable, the future is cancelled here, and the task's later outcome is ignored.

        Parameters:
            timeout_seconds: such as 5 or "500ms". By default CANCEL_TIMEOUT_SECONDS, or 0 in a thread that runs an
                event loop, which must not wait.
            force: False leaves a task alone that is already running, or whose worker does not answer in time.

        Returns True if the future is now cancelled; False if it has an outcome, or is running and `force` is False.

        Example:
            >>> future = client.submit(time.sleep, 60)
            >>> future.cancel()
            True
        """
        if self.done():
            return self.cancelled()
        self._is_unwanted = True
        if timeout_seconds is None:
            timeout_seconds = 0.0 if _is_in_event_loop() else CANCEL_TIMEOUT_SECONDS
        else:
            timeout_seconds = seconds("timeout_seconds", timeout_seconds, -inf)
        return self._client._shell.cancel(self, timeout_seconds, force)

    def add_done_callback(self, fn: Callable[[Future[R]], object]) -> None:
        """Call `fn` with this future when its outcome is known: at once if it is, else in a thread of the client."""
        end_of_wait = blocking.announce_callback() if not self.done() else None
        super().add_done_callback(fn)
        if end_of_wait is not None:
            super().add_done_callback(end_of_wait)

    def __await__(self) -> Generator[Any, None, R]:
        import asyncio  # slow, and here already if it is awaited

        # Not by `asyncio.wrap_future`: it waits for ever if a task raises StopIteration.
        loop = asyncio.get_running_loop()
        outcome_is_known: asyncio.Future[None] = loop.create_future()

        def wake(_: Future[Any]) -> None:
            try:
                loop.call_soon_threadsafe(_set_done, outcome_is_known)
            except RuntimeError:
                pass  # the loop is closed, and with it the waiting coroutine

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


def _is_in_event_loop() -> bool:
    """Whether this thread runs an event loop, without an import of asyncio, which takes a sixth of a client's start."""
    get_running_loop = getattr(sys.modules.get("asyncio.events"), "_get_running_loop", None)
    return get_running_loop is not None and get_running_loop() is not None


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
