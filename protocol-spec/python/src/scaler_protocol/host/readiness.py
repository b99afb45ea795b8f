"""Which descriptors are ready: epoll, or on macOS and the BSDs the same by kqueue.

Rules:
- The interface is that of `select.epoll`, and on Linux the object is one. It has a descriptor of its own, so that an
  event loop watches many with one.
- A condition is reported for as long as it lasts. The end of a stream and errors are reported as something to read.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
from typing import Any, Dict, List, Optional, Protocol, Tuple

EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP = 1, 4, 8, 16
_EVENTS_AT_ONCE = 1024


class Epoll(Protocol):
    """What is used of `select.epoll`."""

    def register(self, fd: int, eventmask: int) -> None: ...

    def modify(self, fd: int, eventmask: int) -> None: ...

    def unregister(self, fd: int) -> None: ...

    def poll(self, timeout: Optional[float] = None) -> List[Tuple[int, int]]: ...

    def fileno(self) -> int: ...

    def close(self) -> None: ...


def epoll() -> Epoll:
    """A new object of the kind that this system has. Raises OSError if it has no descriptor left."""
    return select.epoll() if hasattr(select, "epoll") else KqueueAsEpoll()


class KqueueAsEpoll:
    """A kqueue with the interface of an epoll object; with events of 0 a descriptor is known, and not watched."""

    def __init__(self) -> None:
        # Not all systems have these names, and type checkers look at one system at a time.
        self._select: Any = select
        self._queue: Any = self._select.kqueue()
        self._watched: Dict[int, int] = {}  # events by descriptor

    def fileno(self) -> int:
        return int(self._queue.fileno())

    def register(self, fd: int, eventmask: int) -> None:
        """Raises FileExistsError if it is registered, and other OSErrors of the system."""
        if fd in self._watched:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        self._change(fd, 0, eventmask)
        self._watched[fd] = eventmask

    def modify(self, fd: int, eventmask: int) -> None:
        """Raises FileNotFoundError if it is not registered, and other OSErrors of the system."""
        self._change(fd, self._known(fd), eventmask)
        self._watched[fd] = eventmask

    def unregister(self, fd: int) -> None:
        """Raises FileNotFoundError if it is not registered."""
        before = self._known(fd)
        del self._watched[fd]
        with contextlib.suppress(OSError):  # it is closed, and forgotten with that
            self._change(fd, before, 0)

    def _known(self, fd: int) -> int:
        if fd not in self._watched:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return self._watched[fd]

    def _change(self, fd: int, before: int, after: int) -> None:
        changes = []
        for event, condition in (
            (EPOLLIN, self._select.KQ_FILTER_READ),
            (EPOLLOUT, self._select.KQ_FILTER_WRITE),
        ):
            if before & event != after & event:
                action = self._select.KQ_EV_ADD if after & event else self._select.KQ_EV_DELETE
                changes.append(self._select.kevent(fd, condition, action))
        if changes:
            self._queue.control(changes, 0, 0)

    def poll(self, timeout: Optional[float] = None) -> List[Tuple[int, int]]:
        """The descriptors that are ready, and how; waits at most so many seconds, or without a limit."""
        ready: Dict[int, int] = {}
        for event in self._queue.control(None, _EVENTS_AT_ONCE, timeout):
            what = EPOLLIN if event.filter == self._select.KQ_FILTER_READ else EPOLLOUT
            ready[event.ident] = ready.get(event.ident, 0) | what
        return list(ready.items())

    def close(self) -> None:
        self._queue.close()
