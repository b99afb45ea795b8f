"""Accepts callers at the listening sockets of one address, as many as can be served.

    listening sockets ──accept──▶ Acceptor ──socket, label──▶ add: the owner's table of connections
                                     └── rejected: no descriptor or memory, or the owner serves as many as it may

Rules:
- A round takes ACCEPTED_AT_ONCE callers; what they cost is for the owner to measure.
- A caller for which there is no descriptor is rejected at once: it would wait otherwise, and the event loop would spin.
  Some descriptors are kept in reserve for that.
- Rejected callers are logged once in LOG_INTERVAL_SECONDS.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from contextlib import suppress
from typing import Callable, Iterable, List

from scaler_appliance.shell.caller_origins import label_of, origin_of
from scaler_protocol.host import readiness

ACCEPTED_AT_ONCE = 16
SPARE_DESCRIPTORS = 8
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ENOSPC)
"""Errors by which the operating system says that it is short of something."""
LOG_INTERVAL_SECONDS = 60.0

logger = logging.getLogger("scaler")


class RejectedError(Exception):
    """A caller is not served: the text says why, for the log."""


class Acceptor:
    """Accepts at sockets that listen.

    Parameters:
        address: of the sockets, for the log.
        listeners: they belong to this object from now on.
        epoll: is to tell the owner when callers wait.
        add: called with the socket of a caller, a label of it for the log, its origin, and the time; raises
            RejectedError or OSError if the caller cannot be served.
        advice: what to do when callers are rejected, for the log.
    """

    def __init__(
        self,
        address: str,
        listeners: Iterable[socket.socket],
        epoll: readiness.Epoll,
        add: Callable[[socket.socket, str, str, float], None],
        advice: str,
    ) -> None:
        self.is_accepting = True
        self._address = address
        self._epoll = epoll
        self._add = add
        self._advice = advice
        self._rejected = 0  # callers, since the log said so
        self._next_log = 0.0
        # Closed when no descriptors are left, to reject callers; the rest is for files of objects and of the log.
        self._spares: List[int] = []
        self._restore_spares()
        self._listeners = {listener.fileno(): listener for listener in listeners}
        for descriptor in self._listeners:
            epoll.register(descriptor, readiness.EPOLLIN)
        self._events = dict.fromkeys(self._listeners, readiness.EPOLLIN)

    def __contains__(self, descriptor: int) -> bool:
        """Whether a descriptor is that of a socket that listens."""
        return descriptor in self._listeners

    def accept(self, descriptor: int, now: float) -> None:
        """Accept some of the callers that wait at a listening socket.

        Parameters:
            now: seconds of any monotonic clock.
        """
        listener = self._listeners[descriptor]
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                stream, caller = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except (OSError, MemoryError) as error:
                self._turn_away(listener, error, now)
                return
            try:
                label = label_of(caller) or self._address
                self._add(stream, label, origin_of(stream, caller), now)
            except Exception as error:
                stream.close()
                if isinstance(error, RejectedError):
                    self._log_rejected(str(error), now)
                elif isinstance(error, MemoryError) or getattr(error, "errno", 0) in NO_ROOM:
                    self._log_rejected(f"{str(error) or type(error).__name__}; {self._advice}", now)
                elif not isinstance(error, OSError):  # it may have gone already
                    logger.error("Scheduler: what ended a connection is a bug of the scheduler", exc_info=error)

    def set_accepting(self, is_accepting: bool) -> None:
        """Accept callers again, or leave further ones in the queue of the kernel."""
        self.is_accepting = is_accepting
        events = readiness.EPOLLIN if is_accepting else 0
        for descriptor, before in self._events.items():
            if events != before:
                with suppress(OSError, MemoryError):  # `sweep` tries again
                    self._epoll.modify(descriptor, events)
                    self._events[descriptor] = events

    def _turn_away(self, listener: socket.socket, error: Exception, now: float) -> None:
        """No descriptor is left for a caller: reject it, because otherwise it would wait and our loop would spin."""
        if self._spares:
            os.close(self._spares.pop())
        try:
            listener.accept()[0].close()
        except (OSError, MemoryError):
            pass
        self._restore_spares()
        self._log_rejected(f"{getattr(error, 'strerror', None) or type(error).__name__}; {self._advice}", now)

    def _restore_spares(self) -> None:
        try:
            while len(self._spares) < SPARE_DESCRIPTORS:
                self._spares.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass  # another caller is rejected with one that is left

    def _log_rejected(self, why: str, now: float) -> None:
        self._rejected += 1
        if now < self._next_log:
            return
        count = "a connection was" if self._rejected == 1 else f"{self._rejected} connections were"
        logger.error("Scheduler: %s rejected at %s: %s", count, self._address, why)
        self._rejected = 0
        self._next_log = now + LOG_INTERVAL_SECONDS

    def sweep(self) -> None:
        """Try again what has failed for lack of something; to be called about once a second."""
        self._restore_spares()
        self.set_accepting(self.is_accepting)

    def close(self) -> None:
        """Stop listening; `set_accepting` may still be called."""
        for descriptor, listener in self._listeners.items():
            self._epoll.unregister(descriptor)
            listener.close()
        self._listeners.clear()
        self._events.clear()
        for spare in self._spares:
            os.close(spare)
        self._spares.clear()
