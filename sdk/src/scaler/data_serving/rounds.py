"""Descriptors that an event loop watches together: all ready ones are handled in one round with a defined end.

Rules:
- The consequences of a round of events are processed once, at its end, which creates batches. An event loop by itself
  does not tell when it has called all ready callbacks.
- The loop watches one descriptor, that of an epoll object, and makes one call however many are ready.
- If the system refuses to watch a descriptor, its owner gets the error, and it is not watched. Other failed calls are
  repeated after a pause, so that a descriptor that stays ready does not keep the processor busy.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Protocol, Tuple

from scaler_protocol.host import readiness

IDLE_WAIT_SECONDS = 0.001
MAXIMUM_RUN_SECONDS = 0.1
ERROR_PAUSE_SECONDS = 0.01
"""After a failed system call that is tried again."""

FEW_OTHERS = 4
OTHERS_WITHIN_SECONDS = 1.0

_READABLE = ~readiness.EPOLLOUT  # also the end of a stream, and errors
_WRITABLE = readiness.EPOLLOUT | readiness.EPOLLERR | readiness.EPOLLHUP


class Loop(Protocol):
    """What is used of an event loop."""

    def add_reader(self, fd: int, callback: Callable[..., object], /) -> object: ...

    def remove_reader(self, fd: int, /) -> object: ...

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object: ...


class _Watched:
    __slots__ = ("on_readable", "on_writable", "is_bulk")

    def __init__(self) -> None:
        self.is_bulk = False  # what comes there is large, and nothing waits for it but more of it
        self.on_readable: Optional[Callable[[], None]] = None
        self.on_writable: Optional[Callable[[], None]] = None


class Rounds:
    """Calls readers and writers like an event loop, and then `on_end`.

    Parameters:
        on_end: called after each round.
        maximum_run_seconds: how long the loop runs nothing else while descriptors are ready; 0: one round.

    Attributes:
        has_others: FEW_OTHERS times within a second, something came at other descriptors than those with bulk.

    Raises OSError or MemoryError if the system has no descriptor left, or refuses to watch it.
    """

    def __init__(
        self, loop: Loop, on_end: Callable[[], None], maximum_run_seconds: float = MAXIMUM_RUN_SECONDS
    ) -> None:
        self._maximum_run_seconds = maximum_run_seconds
        self._loop = loop
        self._on_end = on_end
        self._watched: Dict[int, _Watched] = {}
        self._epoll = readiness.epoll()
        self._is_closed = False
        self.has_others = False
        self._others: Deque[float] = deque(maxlen=FEW_OTHERS)  # when something came there
        try:
            loop.add_reader(self._epoll.fileno(), self._run)
        except (OSError, MemoryError):
            self._epoll.close()
            raise

    def add_reader(self, descriptor: int, callback: Callable[[], None], is_bulk: bool = False) -> None:
        """Have `callback` called in each round in which there is something to read.

        Parameters:
            is_bulk: it does not count among the others of `has_others`.

        Raises OSError or MemoryError if the system cannot watch the descriptor.
        """
        entry = self._entry(descriptor)
        entry.on_readable, entry.is_bulk = callback, is_bulk
        self._add(descriptor)

    def add_writer(self, descriptor: int, callback: Callable[[], None], is_bulk: bool = False) -> None:
        """Have `callback` called in each round in which there is room to write.

        Parameters:
            is_bulk: as of `add_reader`.

        Raises OSError or MemoryError if the system cannot watch the descriptor.
        """
        entry = self._entry(descriptor)
        entry.on_writable, entry.is_bulk = callback, is_bulk
        self._add(descriptor)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Have `callback` called in a round of its own."""
        self._loop.call_soon(self._run_alone, callback)

    def _run_alone(self, callback: Callable[[], None]) -> None:
        if not self._is_closed:
            callback()
            self._on_end()

    def remove_reader(self, descriptor: int) -> None:
        """Undo `add_reader`, if there was one."""
        if descriptor in self._watched:
            self._watched[descriptor].on_readable = None
            self._remove(descriptor)

    def remove_writer(self, descriptor: int) -> None:
        """Undo `add_writer`, if there was one."""
        if descriptor in self._watched:
            self._watched[descriptor].on_writable = None
            self._remove(descriptor)

    def _entry(self, descriptor: int) -> _Watched:
        entry = self._watched.get(descriptor)
        if entry is None:
            with contextlib.suppress(FileExistsError):  # the system had refused to forget it
                self._epoll.register(descriptor, 0)
            entry = self._watched[descriptor] = _Watched()
        return entry

    def _add(self, descriptor: int) -> None:
        try:
            self._update(descriptor)
        except (OSError, MemoryError):
            with contextlib.suppress(OSError, MemoryError):
                self._epoll.unregister(descriptor)
            del self._watched[descriptor]
            raise

    def _remove(self, descriptor: int) -> None:
        with contextlib.suppress(OSError, MemoryError):  # tried again when the descriptor is ready
            self._update(descriptor)

    def _update(self, descriptor: int) -> None:
        entry = self._watched[descriptor]
        events = (readiness.EPOLLIN if entry.on_readable else 0) | (readiness.EPOLLOUT if entry.on_writable else 0)
        if events:
            self._epoll.modify(descriptor, events)
        else:
            del self._watched[descriptor]
            self._epoll.unregister(descriptor)

    def read(self) -> None:
        """Run one round, if descriptors are ready."""
        ready = [] if self._is_closed else self._poll(0)
        if ready:
            self._run_round(ready)

    def _run(self) -> None:
        """Run rounds while descriptors are ready, so that the event loop costs nothing while there is work."""
        ready = self._poll(0)
        deadline = time.monotonic() + self._maximum_run_seconds
        while ready:
            self._run_round(ready)
            if self._is_closed or time.monotonic() >= deadline:
                break
            ready = self._poll(IDLE_WAIT_SECONDS)

    def _poll(self, timeout_seconds: float) -> List[Tuple[int, int]]:
        try:
            return self._epoll.poll(timeout_seconds)
        except (OSError, MemoryError):
            time.sleep(ERROR_PAUSE_SECONDS)
            return []

    def note_others(self, are_there: bool = True) -> None:
        """Something came that others wait for: in this round, or elsewhere in the thread of the event loop."""
        now = time.monotonic()
        if are_there:
            self._others.append(now)
        self.has_others = len(self._others) == FEW_OTHERS and now - self._others[0] < OTHERS_WITHIN_SECONDS

    def _run_round(self, ready: List[Tuple[int, int]]) -> None:
        are_others = False
        for descriptor, events in ready:
            entry = self._watched.get(descriptor)
            is_handled = False
            if entry is not None and not entry.is_bulk:
                are_others = True
            if entry is not None and entry.on_writable is not None and events & _WRITABLE:
                entry.on_writable()
                is_handled = True
            if entry is not None and entry.on_readable is not None and events & _READABLE:
                entry.on_readable()
                is_handled = True
            if not is_handled:
                self._stop_watching(descriptor)
        self.note_others(are_others)
        self._on_end()

    def _stop_watching(self, descriptor: int) -> None:
        """The descriptor was closed in this round, or the system had refused to forget it."""
        with contextlib.suppress(OSError, MemoryError):
            if descriptor in self._watched:
                self._update(descriptor)
            else:
                self._epoll.unregister(descriptor)

    def after_fork_in_child(self) -> None:
        """In a fork of the process: close our copy of the descriptor, and change nothing that the parent watches."""
        self._is_closed = True
        self._watched.clear()
        with contextlib.suppress(OSError):
            self._epoll.close()

    def close(self) -> None:
        """Stop watching. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._watched.clear()
        self._loop.remove_reader(self._epoll.fileno())
        with contextlib.suppress(OSError):  # it is closed all the same
            self._epoll.close()
