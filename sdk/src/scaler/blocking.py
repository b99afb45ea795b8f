"""How a processor learns that its task is about to wait for other tasks.

Rules: clients wait for outcomes inside `with blocking.announced():`. In a processor this releases the slot meanwhile;
elsewhere it does nothing. `concurrent.futures.wait` and `as_completed` wait at an event of the standard library, which
is replaced by one that announces the wait. Code that adds a callback to an unfinished future may wait for it with a
lock of its own, which is invisible here: the slot is released until the callback has run.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from typing import Any, Callable, ContextManager, Iterator, Optional

_before: Optional[Callable[..., None]] = None
_after: Optional[Callable[..., None]] = None
_nothing = contextlib.nullcontext()


def set_hooks(before: Callable[..., None], after: Callable[..., None]) -> None:
    """Have `before` and `after` called around every wait of a client in this process."""
    global _before, _after
    _before, _after = before, after


def announced() -> ContextManager[None]:
    """A context manager around a wait for the outcome of tasks."""
    return _nothing if _before is None or _after is None else _announced(_before, _after)


def announce_callback() -> Optional[Callable[[object], None]]:
    """Called before a callback is added to an unfinished future; returns a callback to add after it, if there are
    hooks.

    Both run in the client's thread, and the hooks identify waits by a number below 0, which no thread has.
    """
    before, after = _before, _after
    if before is None or after is None:
        return None
    waiter = -1 - next(_callbacks)
    before(waiter)
    return lambda _: after(waiter)


_callbacks = itertools.count()


class _AnnouncedEvent(threading.Event):
    """An event whose waits are announced."""

    def wait(self, timeout: Optional[float] = None) -> bool:
        with announced():
            return super().wait(timeout)


def announce_waits_at(event: Any) -> None:
    """Announce waits at an event that is used to wait for futures; anything else is ignored."""
    if _before is not None and type(event) is threading.Event:
        event.__class__ = _AnnouncedEvent


@contextlib.contextmanager
def _announced(before: Callable[..., None], after: Callable[..., None]) -> Iterator[None]:
    before()
    try:
        yield
    finally:
        after()
