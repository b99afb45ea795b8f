"""What data connections need of an event loop, for a thread that polls: descriptors and timers.

    poll of the transport ─▶ something has happened at a descriptor ─▶ the next turn ─▶ `run`

Rule: one thread does everything. An exception of a callback is a bug of ours, and reaches that thread.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Tuple

from scaler_protocol.host import readiness
from scaler_protocol.session.peer_session import NEVER


class PolledTimer:
    """A call that is due later."""

    __slots__ = ("callback", "arguments")

    def __init__(self, callback: Callable[..., object], arguments: Tuple[Any, ...]) -> None:
        self.callback: Any = callback
        self.arguments = arguments

    def cancel(self) -> None:
        self.callback, self.arguments = None, ()


class PolledLoop:
    """Parameters:
    poll: of the thread.

    Attributes:
        ready: descriptors at which something has happened since the last `run`, as the thread has seen.
    """

    def __init__(self, poll: readiness.Poll) -> None:
        self.poll = poll
        self._readers: Dict[int, Callable[..., object]] = {}
        self._soon: Deque[Tuple[Callable[..., object], Tuple[Any, ...]]] = deque()
        self._timers: List[Tuple[float, int, PolledTimer]] = []
        self._numbers = itertools.count()
        self.ready: Dict[int, None] = {}

    def add_reader(self, fd: int, callback: Callable[..., object], /) -> None:
        self.poll.register(fd, readiness.POLLIN)
        self._readers[fd] = callback

    def remove_reader(self, fd: int, /) -> None:
        if self._readers.pop(fd, None) is not None:
            with contextlib.suppress(KeyError, OSError, MemoryError):
                self.poll.unregister(fd)

    def watches(self, fd: int) -> bool:
        """Whether a descriptor is one of these."""
        return fd in self._readers

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self._soon.append((callback, args))

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> PolledTimer:
        timer = PolledTimer(callback, args)
        heapq.heappush(self._timers, (time.monotonic() + delay, next(self._numbers), timer))
        return timer

    @property
    def next_time(self) -> float:
        """When `run` has something to do, if nothing happens before."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        if self._soon:
            return 0.0
        return self._timers[0][0] if self._timers else NEVER

    def run(self, now: float) -> None:
        """Call what is due, and what waits for descriptors that are ready, each once."""
        for _ in range(len(self._soon)):
            callback, arguments = self._soon.popleft()
            callback(*arguments)
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if timer.callback is not None:
                timer.callback(*timer.arguments)
        ready, self.ready = self.ready, {}
        for fd in ready:
            if fd in self._readers:
                self._readers[fd]()
