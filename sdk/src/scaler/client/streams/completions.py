"""Futures in the order in which they are done.

Rules:
- One waiter is registered with many futures, each once, so that a completion costs the same however many wait.
- The thread that gives a future its outcome only appends it and wakes the waiting thread: no user code runs there.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Deque, Dict, Generator, Iterable, Optional, TypeVar

from scaler import blocking
from scaler.client.future import ScalerFuture
from scaler.client.shell.future_internals import add_waiter, forget_waiter
from scaler.client.shell.waiting import Waiter
from scaler.exceptions import ArgumentTypeError

F = TypeVar("F", bound="Future[Any]")


_END = object()


class Completions(Waiter):
    """A waiter for many futures; `done` has those that are done, possibly twice."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        super().__init__()
        self.done: Deque[Future[Any]] = deque()

    def add_result(self, future: Future[Any]) -> None:
        self.done.append(future)
        self.wake()

    add_exception = add_cancelled = add_result

    def await_one(self, deadline: Optional[float]) -> None:
        """Return when a future is done. Raises TimeoutError at the deadline, a time of `time.monotonic`."""
        while not self.done:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise FutureTimeoutError()
            with blocking.announced():
                self.wait(left)


def as_completed(
    futures: Iterable[F], deadline: Optional[float], buffersize: Optional[int]
) -> Generator[F, None, None]:
    """The futures as they are done; `Submitter.as_completed` says more. The first item is None."""
    source = iter(futures)
    completions = Completions()
    pending: Dict[F, None] = {}
    error: Optional[Exception] = None
    is_exhausted = False
    seen = 0
    try:
        yield None  # type: ignore[misc]  # so that closing it, or the loss of its last reference, runs the end below
        while True:
            while not is_exhausted and (buffersize is None or len(pending) < buffersize):
                try:
                    future: Any = _checked(next(source, _END))
                except Exception as problem:  # raised after the futures before it
                    error, future = problem, _END
                if future is _END:
                    is_exhausted = True
                elif future not in pending:
                    seen += 1
                    pending[future] = None
                    add_waiter(future, completions)
                del future
            if not pending:
                break
            try:
                completions.await_one(deadline)
            except FutureTimeoutError:
                raise FutureTimeoutError(f"{len(pending)} (of {seen}) futures unfinished") from None
            done: Any = completions.done.popleft()
            if done in pending:
                del pending[done]
                forget_waiter(done, completions)
                yielded = [done]
                del done
                yield yielded.pop()  # no reference is left here
        if error is not None:
            raise error
    finally:
        error = None
        for each in pending:
            forget_waiter(each, completions)
            if buffersize is not None:
                _cancel(each)


def _checked(future: Any) -> Any:
    if future is not _END and not isinstance(future, Future):
        raise ArgumentTypeError(f"as_completed() takes futures, got {type(future).__name__}")
    return future


def _cancel(future: Future[Any]) -> None:
    """Request that a task does not start, without waiting."""
    if isinstance(future, ScalerFuture):
        future._is_unwanted = True
        future._client._shell.ask_to_cancel([future])
    else:
        future.cancel()
