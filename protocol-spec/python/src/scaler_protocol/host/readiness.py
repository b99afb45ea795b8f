"""Which descriptors are ready: epoll, or on macOS and the BSDs the same by kqueue; poll, or on Windows select.

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

POLLIN, POLLOUT = 1, 4
EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP = 1, 4, 8, 16
_EVENTS_AT_ONCE = 1024


class Epoll(Protocol):
    """What is used of `select.epoll`."""

    def register(self, fd: int, eventmask: int) -> None: ...

    def modify(self, fd: int, eventmask: int) -> None: ...

    def unregister(self, fd: int) -> None: ...

    def poll(self, timeout: float = -1.0) -> List[Tuple[int, int]]: ...

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

    def poll(self, timeout: float = -1.0) -> List[Tuple[int, int]]:
        """The descriptors that are ready, and how; waits at most so many seconds, or if negative without a limit."""
        ready: Dict[int, int] = {}
        for event in self._queue.control(None, _EVENTS_AT_ONCE, timeout if timeout >= 0 else None):
            what = EPOLLIN if event.filter == self._select.KQ_FILTER_READ else EPOLLOUT
            ready[event.ident] = ready.get(event.ident, 0) | what
        return list(ready.items())

    def close(self) -> None:
        self._queue.close()


class Poll(Protocol):
    """What is used of `select.poll`."""

    def register(self, fd: int, eventmask: int, /) -> None: ...

    def modify(self, fd: int, eventmask: int, /) -> None: ...

    def unregister(self, fd: int, /) -> None: ...

    def poll(self, timeout: Optional[float] = None, /) -> List[Tuple[int, int]]: ...


def poll() -> Poll:
    """A new object of the kind that this system has."""
    return select.poll() if hasattr(select, "poll") else SelectAsPoll()


class SelectAsPoll:
    """`select.select` with the interface of a poll object, for few sockets."""

    def __init__(self) -> None:
        self._watched: Dict[int, int] = {}

    def register(self, fd: int, eventmask: int, /) -> None:
        self._watched[fd] = eventmask

    def modify(self, fd: int, eventmask: int, /) -> None:
        """Raises FileNotFoundError if it is not registered."""
        if fd not in self._watched:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        self._watched[fd] = eventmask

    def unregister(self, fd: int, /) -> None:
        """Raises KeyError if it is not registered."""
        del self._watched[fd]

    def poll(self, timeout: Optional[float] = None, /) -> List[Tuple[int, int]]:
        """The descriptors that are ready, and how; waits at most so many milliseconds, or without a limit.

        Raises OSError if one of them is closed.
        """
        readers = [fd for fd, events in self._watched.items() if events & POLLIN]
        writers = [fd for fd, events in self._watched.items() if events & POLLOUT]
        seconds = None if timeout is None else timeout / 1000
        # Windows reports there that a connection was refused.
        readable, writable, failed = select.select(readers, writers, writers, seconds)
        ready: Dict[int, int] = dict.fromkeys(readable, POLLIN)
        for fd in {*writable, *failed}:
            ready[fd] = ready.get(fd, 0) | POLLOUT
        return list(ready.items())
