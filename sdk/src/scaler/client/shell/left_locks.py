"""Locks that were left locked by threads that a fork does not have, or by Ctrl-C.

Rules:
- A fork has one thread, and copies of locks that other threads of its parent may have held and will never release.
- CPython 3.9 checks for signals between the last instruction of a `with` block and `__exit__`, so Ctrl-C may leave a
  lock locked. The main thread holds it then, and releases it with `regained`.
"""

from __future__ import annotations

from typing import Any


def reset_lock(lock: Any) -> None:
    """Free a lock or a condition, whichever thread held it; only for use in a fork."""
    lock._at_fork_reinit()


def regained(lock: Any) -> Any:
    """A reentrant lock that is never entered twice: if this thread has it already, Ctrl-C has left it locked."""
    while lock._is_owned():
        lock.release()
    return lock
