"""A place where a processor learns that the task it runs is about to wait for other tasks.

Rules: clients wait for outcomes inside `with blocking.announced():`. In a processor that gives the slot to others for
the time being; elsewhere it does nothing. Who waits by `concurrent.futures.wait` or `as_completed` does so at an event
of the standard library's: that one is made to announce the wait. Who waits by `asyncio.wrap_future` does so in an event
loop: it is announced there, from the next turn of the loop on.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Callable, ContextManager, Iterator, Optional

_before: Optional[Callable[[], None]] = None
_after: Optional[Callable[[], None]] = None
_nothing = contextlib.nullcontext()


def set_hooks(before: Callable[[], None], after: Callable[[], None]) -> None:
    """Have `before` and `after` called around every wait of a client in this process."""
    global _before, _after
    _before, _after = before, after


def announced() -> ContextManager[None]:
    """Around a wait for the outcome of tasks."""
    return _nothing if _before is None or _after is None else _announced(_before, _after)


class _AnnouncedEvent(threading.Event):
    """An event whose wait is announced."""

    def wait(self, timeout: Optional[float] = None) -> bool:
        with announced():
            return super().wait(timeout)


def announce_waiter(waiter: Any) -> None:
    """A waiter of `concurrent.futures` was added to a future: announce that somebody waits at its event."""
    if _before is not None and type(getattr(waiter, "event", None)) is threading.Event:
        waiter.event.__class__ = _AnnouncedEvent


def announce_callback(callback: Any) -> Optional[Callable[[Any], None]]:
    """A callback was added to a future: if it is that of `asyncio.wrap_future`, announce that an event loop waits.

    Returns what else to call when the future is done.
    """
    before, after = _before, _after
    if before is None or after is None or getattr(callback, "__module__", "") != "asyncio.futures":
        return None
    import asyncio

    loop = asyncio._get_running_loop()
    if loop is None:
        return None
    loop.call_soon(before)

    def resume(_: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and so has the task ended
            loop.call_soon_threadsafe(after)

    return resume


@contextlib.contextmanager
def _announced(before: Callable[[], None], after: Callable[[], None]) -> Iterator[None]:
    before()
    try:
        yield
    finally:
        after()
