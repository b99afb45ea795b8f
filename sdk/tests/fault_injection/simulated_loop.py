"""An event loop over a simulated system, with as much of asyncio's interface as the agent and `scaler.aio` use."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from typing import Any, Callable, Dict, List, Optional, Tuple

from fault_injection.simulated_system import SimulatedSystem, StuckError

MAXIMUM_ROUNDS = 20_000


class _Handle:
    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class SimulatedLoop:
    """Timers by the simulated clock, readers and writers of simulated descriptors."""

    def __init__(self, system: SimulatedSystem) -> None:
        self._system = system
        self._soon: List[Tuple[Callable[..., None], Tuple[Any, ...]]] = []
        self._timers: List[Tuple[float, int, _Handle, Callable[..., None], Tuple[Any, ...]]] = []
        self._numbers = itertools.count()
        self._readers: Dict[int, Callable[[], None]] = {}
        self._writers: Dict[int, Callable[[], None]] = {}
        self._on_exception: Callable[[Any, Dict[str, Any]], None] = lambda loop, context: None
        self._is_stopping = False

    def get_debug(self) -> bool:
        return False

    def create_future(self) -> Any:
        return asyncio.Future(loop=self)  # type: ignore[arg-type]  # as far as it is used

    def set_exception_handler(self, handler: Callable[[Any, Dict[str, Any]], None]) -> None:
        self._on_exception = handler

    def add_signal_handler(self, number: int, callback: Callable[..., None], *arguments: Any) -> None:
        """No signals come."""

    def add_reader(self, descriptor: int, callback: Callable[[], None]) -> None:
        self._readers[descriptor] = callback

    def remove_reader(self, descriptor: int) -> None:
        self._readers.pop(descriptor, None)

    def add_writer(self, descriptor: int, callback: Callable[[], None]) -> None:
        self._writers[descriptor] = callback

    def remove_writer(self, descriptor: int) -> None:
        self._writers.pop(descriptor, None)

    def is_closed(self) -> bool:
        return False

    def create_task(self, coroutine: Any) -> Any:
        return asyncio.Task(coroutine, loop=self)  # type: ignore[arg-type]  # as far as it is used

    def run_in_executor(self, executor: None, function: Callable[..., Any], *arguments: Any) -> Any:
        future = self.create_future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def call_soon(self, callback: Callable[..., None], *arguments: Any, context: Any = None) -> _Handle:
        self._soon.append((callback, arguments))
        return _Handle()

    def call_later(self, seconds: float, callback: Callable[..., None], *arguments: Any) -> _Handle:
        handle = _Handle()
        heapq.heappush(self._timers, (self._system.now + seconds, next(self._numbers), handle, callback, arguments))
        return handle

    def stop(self) -> None:
        self._is_stopping = True

    def run_forever(self) -> None:
        self._run_until(lambda: self._is_stopping)
        self._is_stopping = False

    def run_until_complete(self, future: Any) -> Any:
        self._run_until(future.done)
        return future.result()

    def _run_until(self, is_reached: Callable[[], bool]) -> None:
        for _ in range(MAXIMUM_ROUNDS):
            if is_reached():
                return
            self._run_once()
        raise StuckError(f"the loop turns in circles; the last calls: {self._system.calls[-12:]}")

    def _run_once(self) -> None:
        timeout_seconds: Optional[float] = 0.0
        if not self._soon:
            timeout_seconds = max(0.0, self._timers[0][0] - self._system.now) if self._timers else None
        self._system.wait(lambda: bool(self._readable()), timeout_seconds)
        ready: List[Tuple[Callable[..., None], Tuple[Any, ...]]] = [(each, ()) for each in self._readable()]
        while self._timers and self._timers[0][0] <= self._system.now:
            _, _, handle, callback, arguments = heapq.heappop(self._timers)
            if not handle.is_cancelled:
                ready.append((callback, arguments))
        soon, self._soon = self._soon, []
        for callback, arguments in [*soon, *ready]:
            try:
                callback(*arguments)
            except Exception as error:
                self._on_exception(self, {"message": "exception in a callback", "exception": error})

    def _readable(self) -> List[Callable[[], None]]:
        ready = [callback for number, callback in list(self._readers.items()) if self._system.open[number].is_readable]
        for number, callback in list(self._writers.items()):
            thing = self._system.open[number]
            if thing.is_connected or thing.is_shut:
                ready.append(callback)
        return ready
