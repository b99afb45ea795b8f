"""Waiting for another thread, in a way that is safe against Ctrl-C.

Rules: the waking thread must never wait itself, in whatever state an interrupted waiter has left things. So this uses
only a lock implemented in C that the waiter takes and the waking thread frees.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Deque, Optional


class Waiter:
    """One thread that waits. Another thread gives it the answer with `put`, as with a queue."""

    __slots__ = ("answer", "_lock")

    def __init__(self) -> None:
        self.answer: Any = None
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self, timeout_seconds: Optional[float] = None) -> bool:
        """Wait to be woken; returns whether that happened in time."""
        seconds = -1 if timeout_seconds is None else min(max(0.0, timeout_seconds), threading.TIMEOUT_MAX)
        return self._lock.acquire(timeout=seconds)

    def wake(self) -> None:
        """Wake the waiter. May be called by any thread, any number of times."""
        try:
            self._lock.release()
        except RuntimeError:
            pass  # it is awake already

    def put(self, answer: Any) -> None:
        self.answer = answer
        self.wake()


class Gate:
    """Something that happens once, and is waited for."""

    def __init__(self) -> None:
        self.is_open = False
        self._waiters: Deque[Waiter] = deque()

    def open(self) -> None:
        self.is_open = True
        while self._waiters:
            self._waiters.popleft().wake()

    def wait(self, timeout_seconds: float) -> bool:
        """Whether it is open."""
        if not self.is_open:
            waiter = Waiter()
            self._waiters.append(waiter)
            if not self.is_open:
                waiter.wait(timeout_seconds)
        return self.is_open
