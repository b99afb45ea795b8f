"""Locks in a process that is a fork of another.

Rules: a fork has one thread, and copies of locks that other threads of its parent may have held and will never release.
"""

from __future__ import annotations

from typing import Any


def reset_lock(lock: Any) -> None:
    """Make a lock, or a condition, free, whoever held it; to be called in a fork only."""
    lock._at_fork_reinit()
