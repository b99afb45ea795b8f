"""An Executor of `concurrent.futures` whose calls run through a client.

    client.executor(retries=2) ─▶ ClientExecutor ─submit─▶ the client, or a view of it with options
                                       │
                                       └── ExecutorState: what was submitted, and the end

Rules:
- What the standard library promises holds: `shutdown` waits for the calls of this executor and for no others, `map`
  takes its iterables at once unless it has a `buffersize`, an abandoned iterator of such a `map` cancels nothing, and
  the end of the program waits.
- It is a ThreadPoolExecutor to `isinstance`, because event loops accept no other default executor from Python 3.11 on.
  Nothing of that class is used: there are no threads, and functions and arguments are serialised.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, Generator, Iterable, Iterator, List, Optional, Sequence, Tuple, TypeVar

from scaler.arguments import whole
from scaler.client.future import ScalerFuture
from scaler.client.progress_bar import NO_BAR
from scaler.client.shell.future_internals import taken_result
from scaler.client.streams.chunk_planner import ChunkPlanner
from scaler.client.streams.chunk_sender import CallSender, ChunkOutcome, ChunkSender, Item, Sender
from scaler.client.streams.maps import checked_buffersize
from scaler.client.streams.result_streams import in_order, started
from scaler.client.streams.sending import Sending
from scaler.exceptions import ArgumentTypeError, InvalidArgumentError, SerializeObjectError
from scaler.executor.executor_state import ExecutorState
from scaler.executor.initialized import Initialized
from scaler.values.named_functions import NamedFunction
from scaler.values.payload import dump_value, join
from scaler.values.texts import description_of

R = TypeVar("R")

KEPT_FUNCTIONS = 128
SLOTS_TIMEOUT_SECONDS = 1.0


class ClientExecutor(ThreadPoolExecutor):
    """An Executor whose calls run through a client.

    Parameters:
        initializer: called in each process that runs calls, before the first of them.
        initargs: its arguments.

    Raises ArgumentTypeError if `initializer` cannot be called, SerializeObjectError if `initargs` cannot be serialised.
    """

    # The base class's __init__ would make the state of a pool of threads.
    def __init__(
        self, state: ExecutorState, initializer: Optional[Callable[..., object]] = None, initargs: Sequence[Any] = ()
    ) -> None:
        if initializer is not None and not callable(initializer):
            raise ArgumentTypeError(f"initializer must be a callable, got {type(initializer).__name__}")
        self._initializer: Optional[Callable[..., object]] = initializer  # type: ignore[assignment]  # may return any
        self._key = os.urandom(16)
        self._initialized: Dict[int, Initialized] = {}
        try:
            dumped = dump_value(tuple(initargs), None) if initializer is not None else b""
        except Exception as error:
            raise SerializeObjectError(f"initargs cannot be serialised: {description_of(error)}") from error
        self._arguments = dumped if isinstance(dumped, bytes) else join(dumped)
        self._state = state
        weakref.finalize(self, state.executor_is_gone).atexit = False

    @property
    def _max_workers(self) -> int:  # type: ignore[override]  # a constant of that class
        """How many calls run at once, as last heard; Dask and others read it."""
        return max(1, self._state.submission._shell.wait_for_slots(SLOTS_TIMEOUT_SECONDS))

    @property
    def _broken(self) -> bool:  # type: ignore[override]  # an attribute of that class
        return bool(self._state.broken)

    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> ScalerFuture[R]:
        """Run `fn(*args, **kwargs)` in the cluster; returns its future.

        Raises:
            RuntimeError: the executor was shut down, or the program ends.
            InitializerError: the initializer has failed. It is a BrokenExecutor.

        and what `Client.submit` raises.
        """
        state = self._state
        state.check_usable()
        if self._initializer is None:
            future: ScalerFuture[Any] = state.submit(fn, *args, **kwargs)
            state.add(future, False)
        else:
            future = state.submit(self._with_initializer(fn), *args, **kwargs)
            state.add(future, True)
        return future

    def map(
        self,
        fn: Callable[..., R],
        *iterables: Iterable[Any],
        timeout: Optional[float] = None,
        chunksize: Optional[int] = None,
        buffersize: Optional[int] = None,
    ) -> Iterator[R]:
        """An iterator of the results of `fn` in the order of the items of the iterables.

        Parameters:
            timeout: how many seconds after this call the last result is waited for; None waits for ever.
            chunksize: how many items make a task. By default 1; with a `buffersize`, as many as take some 50 ms by the
                measured duration of calls.
            buffersize: how many items may be taken whose results were not yielded yet; None: all are taken and
                submitted at once.

        Raises as `submit`. The iterator raises the exception of the first item that fails, after the results before it,
        and TimeoutError; what has not started is cancelled then.
        """
        room = checked_buffersize(buffersize)
        if chunksize is not None and whole("chunksize", chunksize, -sys.maxsize) < 1:
            raise InvalidArgumentError(f"chunksize must be >= 1, got {chunksize}")
        deadline = None if timeout is None else time.monotonic() + timeout
        self._state.check_usable()
        calls = zip(*iterables)
        if room is None and (chunksize is None or chunksize == 1):
            return _results(self._state, [self.submit(fn, *call) for call in calls], deadline)
        planner = ChunkPlanner(sys.maxsize if room is None else room, chunksize)
        sending = Sending(self._state.submission._shell, self._sender(fn), planner, calls, NO_BAR)
        if room is not None:
            return started(in_order(sending, deadline))
        try:
            sending.fill()
            if sending.error is not None:
                raise sending.error
        except BaseException as error:
            sending.is_interrupted = isinstance(error, KeyboardInterrupt)
            sending.close()
            raise
        return in_order(sending, deadline, ends_when_lost=False)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls. If the executor has started a cluster, it is stopped after the last of them.

        Parameters:
            wait: return when all calls have ended, and the cluster was stopped.
            cancel_futures: cancel the calls that have not started.
        """
        self._state.shut_down(wait, cancel_futures)

    def _with_initializer(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The function with the initializer; the same object for the same function, so that it is serialised once."""
        if self._initializer is None or isinstance(fn, NamedFunction):
            return fn
        known = self._initialized.get(id(fn))
        if known is None:
            if len(self._initialized) >= KEPT_FUNCTIONS:
                self._initialized = {}
            # It refers to the function, so that no other one gets its identity.
            known = Initialized(fn, self._key, self._initializer, self._arguments)
            self._initialized[id(fn)] = known
        return known

    def _sender(self, fn: Callable[..., Any]) -> Sender:
        state = self._state
        is_watched = self._initializer is not None
        if isinstance(fn, NamedFunction):
            return _Counted(CallSender(lambda *args: state.submit(fn, *args), fn.name), state, False)
        return _Counted(ChunkSender(state.submission, self._with_initializer(fn)), state, is_watched)

    def __reduce__(self) -> Tuple[Any, ...]:
        """In a task, it is an executor for the client of this one."""
        return (_copied, (self._state.submission, self._initializer, self._key, self._arguments))

    def __repr__(self) -> str:
        state = "shut down" if self._state.is_shut_down else "broken" if self._state.broken else "open"
        return f"<{type(self).__name__} of {self._state.submission!r}, {state}>"


class _Counted:
    """A sender whose tasks are the executor's."""

    def __init__(self, sender: Sender, state: ExecutorState, is_watched: bool) -> None:
        self.maximum_items = sender.maximum_items
        self.name = sender.name
        self.made = sender.made
        self._sender = sender
        self._state = state
        self._is_watched = is_watched

    def send(self, first: int, items: Sequence[Item]) -> ScalerFuture[Any]:
        self._state.check_usable()
        future = self._sender.send(first, items)
        self._state.add(future, self._is_watched)
        return future

    def outcome(self, future: ScalerFuture[Any], first: int, count: int) -> ChunkOutcome:
        return self._sender.outcome(future, first, count)

    def close(self) -> None:
        self._sender.close()


def _results(
    state: ExecutorState, futures: List[ScalerFuture[Any]], deadline: Optional[float]
) -> Generator[Any, None, None]:
    """The results of futures that only this iterator has; no reference to one that was yielded is left here."""
    futures.reverse()
    try:
        while futures:
            yield _next_result(state, futures.pop(), deadline)
    finally:
        state.cancel(futures)


def _next_result(state: ExecutorState, future: ScalerFuture[Any], deadline: Optional[float]) -> Any:
    try:
        return taken_result(future, None if deadline is None else deadline - time.monotonic())
    finally:
        state.cancel([future])
        del future


def _copied(
    submitter: Any, initializer: Optional[Callable[..., object]], key: bytes, arguments: bytes
) -> ClientExecutor:
    executor = ClientExecutor(ExecutorState(submitter, submitter.submit))
    executor._initializer, executor._key, executor._arguments = initializer, key, arguments
    return executor
