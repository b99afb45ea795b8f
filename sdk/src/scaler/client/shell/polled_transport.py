"""A connection whose thread sleeps until something happens at it.

    wait ──▶ poll: the stream, and a pipe through which other threads end the wait

Rules: an error while waiting is followed by a pause and by reading, so that what has arrived is not missed, and a
descriptor that stays ready does not keep the processor busy.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Callable, Optional

from scaler.client.shell.data_service.polled_loop import PolledLoop
from scaler.client.shell.transport import Transport
from scaler_protocol.host import readiness
from scaler_protocol.host.waker import Waker
from scaler_protocol.keys.credentials import Credentials

_LONGEST_WAIT_SECONDS = 1e6  # infinity is no number of milliseconds
_READABLE = ~readiness.POLLOUT  # data, the end of the stream, errors
_ERROR_PAUSE_SECONDS = 0.01


class PolledTransport(Transport):
    """Parameters:
    credentials: for the scheduler, at its address.
    waker: ends `wait` when something was written to it.
    loop: of another one, of which `wait` is called; None: its own.

    Attributes:
        loop: what else happens in the thread; `wait` tells it which of its descriptors are ready.
    """

    def __init__(self, credentials: Credentials, waker: Waker, loop: Optional[PolledLoop] = None) -> None:
        super().__init__(credentials)
        self._waker = waker
        self.loop = PolledLoop(readiness.poll()) if loop is None else loop
        self._poll: Any = self.loop.poll
        if loop is None:
            self._poll.register(waker.fileno(), readiness.POLLIN)
        self._events = 0  # that `wait` waits for at the connection
        self._watched = -1
        self._other: Optional[PolledTransport] = None

    def another(self) -> PolledTransport:
        self._other = PolledTransport(self._credentials, self._waker, self.loop)
        return self._other

    def _watch(self, descriptor: int, for_writing: bool) -> None:
        self._events = readiness.POLLOUT if for_writing else readiness.POLLIN
        self._poll.register(descriptor, self._events)
        self._watched = descriptor

    def _unwatch(self, descriptor: int) -> None:
        self._watched = -1
        with contextlib.suppress(KeyError, OSError, MemoryError):  # it may not have been registered
            self._poll.unregister(descriptor)

    def finish_connecting(self) -> bool:
        if self._stream is None:
            return super().finish_connecting()
        poll = readiness.poll()
        poll.register(self._stream.fileno(), readiness.POLLOUT)
        return bool(poll.poll(0)) and super().finish_connecting()

    def wait(self, timeout_seconds: float) -> bool:
        """Sleep until something arrives, the wake descriptor is written to, or the time is over; returns whether to
        receive, or to finish connecting."""
        try:
            return self._wait(timeout_seconds)
        except (OSError, MemoryError):
            time.sleep(_ERROR_PAUSE_SECONDS)
            return self._stream is not None or self.is_connecting

    def _wait(self, timeout_seconds: float) -> bool:
        self._update()
        other = self._other
        if other is not None:
            other._update()
        is_readable = False
        seconds = timeout_seconds if timeout_seconds < _LONGEST_WAIT_SECONDS else _LONGEST_WAIT_SECONDS
        milliseconds = int(seconds * 1000) + 1
        for descriptor, events in self._poll.poll(milliseconds if milliseconds > 0 else 0):
            if descriptor == self._waker.fileno():
                self._waker.drain()
                continue
            if self.loop.watches(descriptor):
                self.loop.ready[descriptor] = None
                continue
            if other is not None and descriptor == other._watched:
                other.has_news = True
                if events & readiness.POLLOUT:
                    other._flush()
                continue
            if self.is_connecting:
                return True
            if events & readiness.POLLOUT:
                self._flush()
            is_readable = bool(events & _READABLE)
        return is_readable

    def _update(self) -> None:
        """Watch for writing while something waits to be sent."""
        connection = self._connection
        if connection is not None and self._watched == connection.fileno():
            events = readiness.POLLIN | readiness.POLLOUT if connection.has_unsent else readiness.POLLIN
            if events != self._events:
                self._poll.modify(connection.fileno(), events)
                self._events = events

    def close(self, linger_seconds: float, now: Callable[[], float]) -> None:
        """Close the connection for good, after a bounded time to send what is waiting."""
        deadline = now() + linger_seconds
        connection = self._connection
        try:
            while connection is not None and not connection.flush() and now() < deadline:
                self.wait(deadline - now())
        except (OSError, MemoryError):
            pass  # the connection has already ended
        self.drop()
