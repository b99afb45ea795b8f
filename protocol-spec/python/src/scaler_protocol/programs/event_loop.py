"""The event loop of the scheduler and of a worker: descriptors, timers, signals, calls from other threads.

    call_soon, call_soon_threadsafe, signals ──▶ ┌───────┐
    timers that are due ───────────────────────▶ │ ready │ ──▶ each is called once in a turn
    descriptors that are ready ────────────────▶ └───────┘

Rules:
- Methods have the names and the meaning of asyncio's, as far as these programs use them, so uvloop serves as well.
  asyncio itself is not imported: with what it imports, it takes a quarter of the start of a program on CPython.
- A turn calls what was ready when it began. What is added meanwhile is called in the next one.
- What was cancelled or removed is not called any more, even if it was ready.
- An exception in a callback goes to the exception handler, and the loop goes on.
- All methods belong to the loop's thread, except `call_soon_threadsafe`. Signals belong to the main thread.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import signal
import time
from collections import deque
from contextlib import suppress
from typing import Any, Callable, Deque, Dict, Generic, List, Optional, Protocol, Tuple, TypeVar, cast

from scaler_protocol.host import readiness
from scaler_protocol.host.waker import Waker

FEW_CANCELLED = 64  # timers, which may wait until they are due

Result = TypeVar("Result")

logger = logging.getLogger("scaler")


class Timer(Protocol):
    """What `call_later` returns."""

    def cancel(self) -> None: ...


class EventLoop(Protocol):
    """What is used of an event loop."""

    def time(self) -> float: ...

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> object: ...

    def call_soon_threadsafe(self, callback: Callable[..., object], *arguments: Any) -> object: ...

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> Timer: ...

    def add_reader(self, descriptor: int, callback: Callable[..., object], *arguments: Any) -> object: ...

    def remove_reader(self, descriptor: int) -> object: ...

    def add_signal_handler(self, number: int, callback: Callable[..., object], *arguments: Any) -> object: ...

    def remove_signal_handler(self, number: int) -> object: ...

    def set_exception_handler(self, handler: Optional[ExceptionHandler]) -> object: ...

    def default_exception_handler(self, context: Dict[str, Any]) -> object: ...

    def run_forever(self) -> object: ...

    def stop(self) -> object: ...

    def close(self) -> object: ...


ExceptionHandler = Callable[[Any, Dict[str, Any]], object]
"""Called with the loop, and a "message" and an "exception"."""


def make_event_loop(kind: str) -> EventLoop:
    """An event loop, `builtin` or `uvloop`.

    Raises ImportError when uvloop is requested and not installed, OSError when the system has no descriptors left.
    """
    if kind == "uvloop":
        import uvloop

        class Uvloop(_Signals, uvloop.Loop):  # type: ignore[misc]  # whose own handlers hear nothing until it runs
            def close(self) -> None:
                self._remove_signal_handlers()
                super().close()

        return cast(EventLoop, Uvloop())
    return BuiltinLoop()


class Completion(Generic[Result]):
    """What an event loop runs for: a result or an error, once it is known."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._is_known = False
        self._result: Optional[Result] = None
        self._error: Optional[BaseException] = None

    def done(self) -> bool:
        """Whether it is known."""
        return self._is_known

    def set_result(self, result: Result) -> None:
        """It is known from now on, and the loop ends after its turn."""
        self._is_known, self._result = True, result
        self._loop.stop()

    def set_exception(self, error: BaseException) -> None:
        """As `set_result`: `result` raises this error."""
        self._is_known, self._error = True, error
        self._loop.stop()

    def result(self) -> Result:
        """The result; raises the error instead if it is one, and RuntimeError if it is not known yet."""
        if not self._is_known:
            raise RuntimeError("the outcome is not known yet")
        if self._error is not None:
            raise self._error
        return cast(Result, self._result)

    def wait(self) -> Result:
        """Run the loop until it is known, and return or raise it."""
        while not self._is_known:
            self._loop.run_forever()
        return self.result()


class _Call:
    """A callback that may be called; once it is cancelled, it is not."""

    __slots__ = ("arguments", "callback", "is_cancelled")

    def __init__(self, callback: Callable[..., object], arguments: Tuple[Any, ...]) -> None:
        self.callback, self.arguments = callback, arguments
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class _TimedCall(_Call):
    __slots__ = ("_loop",)

    def __init__(self, loop: BuiltinLoop, callback: Callable[..., object], arguments: Tuple[Any, ...]) -> None:
        super().__init__(callback, arguments)
        self._loop: Optional[BuiltinLoop] = loop  # while it is among its timers

    def leave(self) -> None:
        """It is due."""
        self._loop = None

    def cancel(self) -> None:
        if not self.is_cancelled:
            super().cancel()
            self.callback, self.arguments = _nothing, ()  # which may hold much
            if self._loop is not None:
                self._loop.count_cancelled()


def _nothing() -> None:
    pass


class _Signals:
    """Signal handlers that are called in a turn of the loop, also if the signal came before it ran."""

    call_soon_threadsafe: Callable[..., object]

    def __init__(self) -> None:
        super().__init__()
        self._signals: Dict[int, Tuple[Callable[..., object], Tuple[Any, ...]]] = {}

    def add_signal_handler(self, number: int, callback: Callable[..., object], *arguments: Any) -> None:
        """In the next turn after this signal. Raises ValueError in another thread than the main one."""
        self._signals[number] = callback, arguments
        signal.signal(number, self._on_signal)
        signal.siginterrupt(number, False)  # so that system calls of libraries go on, as with asyncio

    def remove_signal_handler(self, number: int) -> bool:
        """The signal does again what it does by default. Returns whether there was a handler."""
        if self._signals.pop(number, None) is None:
            return False
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        return True

    def _remove_signal_handlers(self) -> None:
        for number in list(self._signals):
            self.remove_signal_handler(number)

    def _on_signal(self, number: int, _frame: object) -> None:
        self.call_soon_threadsafe(self._handle_signal, number)  # no more than this: it interrupts the main thread

    def _handle_signal(self, number: int) -> None:
        callback, arguments = self._signals.get(number, (_nothing, ()))
        callback(*arguments)


class BuiltinLoop(_Signals):
    """An event loop in pure Python. See the module, and asyncio for what each method does.

    Parameters:
        clock: the time in seconds, which never goes back.

    Attributes:
        time: the same.

    Raises OSError or MemoryError if the system has no descriptors left.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.time = clock
        self._ready: Deque[_Call] = deque()
        self._timers: List[Tuple[float, int, _TimedCall]] = []  # a heap
        self._cancelled_timers = 0  # among them
        self._numbers = itertools.count()
        self._is_stopping = self._is_closed = self._is_woken_by_signals = False
        self._handler: Optional[ExceptionHandler] = None
        self._readers: Dict[int, _Call] = {}
        self._waker = Waker()
        try:
            self._epoll = readiness.epoll()
            self.add_reader(self._waker.fileno(), self._on_woken)
        except BaseException:
            self._waker.close()
            raise

    # Calls ----------------------------------------------------------------------------------------------------------

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> Timer:
        """In the next turn."""
        call = _Call(callback, arguments)
        self._ready.append(call)
        return call

    def call_soon_threadsafe(self, callback: Callable[..., object], *arguments: Any) -> Timer:
        """As `call_soon`, from any thread. Raises RuntimeError once the loop is closed."""
        if self._is_closed:
            raise RuntimeError("the event loop is closed")
        call = self.call_soon(callback, *arguments)
        with suppress(OSError):  # it is full: the loop is being woken
            self._waker.write(b"\0")
        return call

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> Timer:
        """After so many seconds."""
        call = _TimedCall(self, callback, arguments)
        heapq.heappush(self._timers, (self.time() + delay, next(self._numbers), call))
        return call

    def count_cancelled(self) -> None:
        """One more of the timers is cancelled; they are dropped when they are most of them."""
        self._cancelled_timers += 1
        if self._cancelled_timers > FEW_CANCELLED and 2 * self._cancelled_timers > len(self._timers):
            self._timers = [each for each in self._timers if not each[2].is_cancelled]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    # Descriptors ----------------------------------------------------------------------------------------------------

    def add_reader(self, descriptor: int, callback: Callable[..., object], *arguments: Any) -> None:
        """In each turn in which there is something to read. Raises OSError if it cannot be watched, as with a file."""
        self.remove_reader(descriptor)
        self._epoll.register(descriptor, readiness.EPOLLIN)
        self._readers[descriptor] = _Call(callback, arguments)

    def remove_reader(self, descriptor: int) -> bool:
        """Returns whether there was one."""
        call = self._readers.pop(descriptor, None)
        if call is None:
            return False
        call.cancel()
        with suppress(OSError):  # it is closed, and forgotten with that
            self._epoll.unregister(descriptor)
        return True

    def _on_woken(self) -> None:
        with suppress(OSError):
            self._waker.drain()

    def add_signal_handler(self, number: int, callback: Callable[..., object], *arguments: Any) -> None:
        """In the next turn after this signal. Raises ValueError in another thread than the main one."""
        # The interpreter writes a byte there at each signal, so that no wait outlasts one.
        signal.set_wakeup_fd(self._waker.writer_fileno(), warn_on_full_buffer=False)
        self._is_woken_by_signals = True
        super().add_signal_handler(number, callback, *arguments)

    # Exceptions -----------------------------------------------------------------------------------------------------

    def set_exception_handler(self, handler: Optional[ExceptionHandler]) -> None:
        """Called with what a callback raises; None: `default_exception_handler`."""
        self._handler = handler

    def default_exception_handler(self, context: Dict[str, Any]) -> None:
        """Log it."""
        logger.error("%s", context["message"], exc_info=context.get("exception"))

    def _report(self, call: _Call, error: BaseException) -> None:
        context = {"message": f"exception in {call.callback!r}", "exception": error}
        if self._handler is None:
            self.default_exception_handler(context)
        else:
            self._handler(self, context)

    # Running --------------------------------------------------------------------------------------------------------

    def run_forever(self) -> None:
        """Run until `stop` is called."""
        try:
            while not self._is_stopping:
                self._take_turn()
        finally:
            self._is_stopping = False

    def stop(self) -> None:
        """End `run_forever` after this turn; or after none, if it does not run."""
        self._is_stopping = True

    def _take_turn(self) -> None:
        ready, timers = self._ready, self._timers
        while timers and timers[0][2].is_cancelled:
            heapq.heappop(timers)
            self._cancelled_timers -= 1
        timeout_seconds = -1.0  # no limit
        if ready:
            timeout_seconds = 0.0
        elif timers:
            timeout_seconds = max(0.0, timers[0][0] - self.time())
        for descriptor, _ in self._epoll.poll(timeout_seconds):
            ready.append(self._readers[descriptor])
        if timers:
            now = self.time()
            while timers and timers[0][0] <= now:
                call = heapq.heappop(timers)[2]
                call.leave()
                if call.is_cancelled:
                    self._cancelled_timers -= 1
                else:
                    ready.append(call)
        for _ in range(len(ready)):
            due = ready.popleft()
            if due.is_cancelled:
                continue
            try:
                due.callback(*due.arguments)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self._report(due, error)

    def close(self) -> None:
        """Give back descriptors and signals. Idempotent."""
        if self._is_closed:
            return
        self._remove_signal_handlers()
        if self._is_woken_by_signals:
            signal.set_wakeup_fd(-1)
        self._is_closed = True
        self._ready.clear()
        self._timers.clear()
        self._epoll.close()
        self._waker.close()
