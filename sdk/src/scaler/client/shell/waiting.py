"""Waiting for another thread, in a way that is safe against Ctrl-C.

Rules:
- The waking thread must never wait itself, in whatever state an interrupted waiter has left things. So this uses only a
  lock implemented in C that the waiter takes and the waking thread frees.
- A signal that comes between Python's last look for signals and the system call that waits interrupts nothing: Python
  looks again only when that call ends. So no call waits for longer than LONGEST_CALL_SECONDS.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from math import inf
from typing import Any, Deque, Optional

LONGEST_CALL_SECONDS = 1.0


class Waiter:
    """One thread that waits. Another thread gives it the answer with `put`, as with a queue."""

    __slots__ = ("answer", "_lock")

    def __init__(self) -> None:
        self.answer: Any = None
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self, timeout_seconds: Optional[float] = None) -> bool:
        """Wait to be woken; returns whether that happened in time."""
        left = inf if timeout_seconds is None else max(0.0, timeout_seconds)
        if left <= LONGEST_CALL_SECONDS:
            return self._lock.acquire(timeout=left)
        end = time.monotonic() + left
        while not self._lock.acquire(timeout=min(left, LONGEST_CALL_SECONDS)):
            left = end - time.monotonic()
            if left <= 0.0:
                return False
        return True

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
