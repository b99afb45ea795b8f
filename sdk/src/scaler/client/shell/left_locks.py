"""Locks that were left locked by threads that a fork does not have, or by Ctrl-C.

Rules:
- A fork has one thread, and copies of locks that other threads of its parent may have held and will never release.
- A fork has a copy of each client, whose futures it ends. So it is made between two turns of their I/O threads, when
  each future is where it can be found.
- CPython 3.9 checks for signals between the last instruction of a `with` block and `__exit__`, so Ctrl-C may leave a
  lock locked. The main thread holds it then, and releases it with `regained`.
"""

from __future__ import annotations

import _thread
import threading
import time
from typing import Any, List, Sequence

LONGEST_TURN_SECONDS = 1.0  # a fork does not wait longer: an I/O thread may be in the resolver of host names


class HeldTurns:
    """Keeps I/O threads between two turns while the process forks."""

    def __init__(self) -> None:
        self._locks: List[threading.Lock] = []

    def hold(self, locks: Sequence[threading.Lock]) -> None:
        """Called before the fork."""
        deadline = time.monotonic() + LONGEST_TURN_SECONDS
        locks_held: List[threading.Lock] = []
        self._locks = locks_held
        try:
            for lock in locks:
                if lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
                    locks_held.append(lock)
        except KeyboardInterrupt:
            _thread.interrupt_main()  # Python prints what is raised here, and goes on: raise it after the fork

    def release(self) -> None:
        """Called after the fork, in the parent."""
        while self._locks:
            self._locks.pop().release()


def reset_lock(lock: Any) -> None:
    """Free a lock or a condition, whichever thread held it; only for use in a fork."""
    lock._at_fork_reinit()


def regained(lock: Any) -> Any:
    """A reentrant lock that is never entered twice: if this thread has it already, Ctrl-C has left it locked."""
    while lock._is_owned():
        lock.release()
    return lock
