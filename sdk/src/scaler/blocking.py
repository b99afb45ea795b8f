"""A place where a processor learns that the task it runs is about to wait for other tasks.

Rules: clients call `before_blocking()` before they wait for an outcome; a processor sets it; elsewhere it does nothing.
"""

from __future__ import annotations

from typing import Callable


def _nothing() -> None:
    pass


_hook: Callable[[], None] = _nothing


def set_hook(hook: Callable[[], None]) -> None:
    """Have `hook` called before a client in this process blocks."""
    global _hook
    _hook = hook


def before_blocking() -> None:
    _hook()
