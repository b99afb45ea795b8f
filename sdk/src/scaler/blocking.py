"""A place where a processor learns that the task it runs is about to wait for other tasks.

Rules: clients wait for outcomes inside `with blocking.announced():`. In a processor that gives the slot to others for
the time being; elsewhere it does nothing. Who waits by `concurrent.futures.wait` or `as_completed` does so at an event
of the standard library's: that one is made to announce the wait. Who adds a callback to an unfinished future may wait
for it by a lock of their own, which cannot be seen: the slot is given to others until the callback has run.
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
    """Around a wait for the outcome of tasks."""
    return _nothing if _before is None or _after is None else _announced(_before, _after)


def announce_callback() -> Optional[Callable[[object], None]]:
    """A callback is about to be added to an unfinished future; returns one to add after it, if there are hooks.

    Both run in the client's thread, and the hooks tell waits apart by a number below 0, which no thread has.
    """
    before, after = _before, _after
    if before is None or after is None:
        return None
    waiter = -1 - next(_callbacks)
    before(waiter)
    return lambda _: after(waiter)


_callbacks = itertools.count()


class _AnnouncedEvent(threading.Event):
    """An event whose wait is announced."""

    def wait(self, timeout: Optional[float] = None) -> bool:
        with announced():
            return super().wait(timeout)


def announce_waiter(waiter: Any) -> None:
    """A waiter of `concurrent.futures` was added to a future: announce that somebody waits at its event."""
    if _before is not None and type(getattr(waiter, "event", None)) is threading.Event:
        waiter.event.__class__ = _AnnouncedEvent


@contextlib.contextmanager
def _announced(before: Callable[..., None], after: Callable[..., None]) -> Iterator[None]:
    before()
    try:
        yield
    finally:
        after()
