"""A connection that an event loop watches.

    connect ──▶ resolve the host in the loop's executor ──▶ writable: connected ──▶ readable: receive

Rules:
- Nothing here waits: the loop says when the stream is connected, readable or writable.
- The loop watches for writing only while it is connecting, or while the kernel has not taken everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from typing import Callable, Optional, Tuple

from scaler.client.shell.transport import Transport
from scaler_protocol.host.addresses import SocketAddress, resolve
from scaler_protocol.keys.credentials import Credentials


class LoopTransport(Transport):
    """Parameters:
    credentials: for the scheduler, at its address.
    on_event: called when the stream is connected, or can be read.
    on_resolved: called when the host's name was resolved, or cannot be; `connect_resolved` follows.
    """

    def __init__(
        self,
        credentials: Credentials,
        loop: asyncio.AbstractEventLoop,
        on_event: Callable[[], None],
        on_resolved: Callable[[], None],
    ) -> None:
        super().__init__(credentials)
        self._loop = loop
        self._on_event = on_event
        self._on_resolved = on_resolved
        self._resolving: Optional[asyncio.Future[Tuple[int, SocketAddress]]] = None
        self._is_watched_for_writing = False

    def _connect_by_name(self) -> bool:
        if self._parsed.path or _is_number(self._parsed.host):
            return super()._connect_by_name()
        try:
            resolving = self._loop.run_in_executor(None, resolve, self._parsed)
        except RuntimeError as error:  # no room for a thread, or the loop is being closed
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error
        self._resolving = resolving
        resolving.add_done_callback(self._on_name)
        self.is_connecting = True
        return False

    def _on_name(self, resolving: asyncio.Future[Tuple[int, SocketAddress]]) -> None:
        if resolving is self._resolving:
            self._on_resolved()
        elif not resolving.cancelled():
            resolving.exception()  # not of interest any more

    def connect_resolved(self) -> bool:
        """Begin to connect to the host that was resolved; returns whether that is already done.

        Raises OSError, of which AuthenticationError is one, or MemoryError; `drop` follows.
        """
        resolving, self._resolving = self._resolving, None
        self.is_connecting = False
        if resolving is None or resolving.cancelled():
            raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
        return self._connect_to(*resolving.result())

    def finish_connecting(self) -> bool:
        if self._stream is None:
            return False  # its name is being resolved
        is_connected = super().finish_connecting()
        if is_connected:
            self._loop.remove_writer(self._stream.fileno())
            self._loop.add_reader(self._stream.fileno(), self._on_event)
        return is_connected

    def _watch(self, stream: socket.socket) -> None:
        watch = self._loop.add_writer if self.is_connecting else self._loop.add_reader
        try:
            watch(stream.fileno(), self._on_event)
        except NotImplementedError:
            raise NotImplementedError(
                f"{type(self._loop).__name__} cannot watch sockets: run the program in an asyncio.SelectorEventLoop"
            ) from None

    def _unwatch(self, stream: socket.socket) -> None:
        self._is_watched_for_writing = False
        with contextlib.suppress(OSError, ValueError, RuntimeError, NotImplementedError):  # the loop may be closed
            self._loop.remove_writer(stream.fileno())
            self._loop.remove_reader(stream.fileno())

    def watch_for_writing(self) -> None:
        """Watch for writing from now on if something waits to be sent, else no longer."""
        connection = self._connection
        has_unsent = connection is not None and connection.has_unsent
        if has_unsent == self._is_watched_for_writing or connection is None:
            return
        self._is_watched_for_writing = has_unsent
        if has_unsent:
            self._loop.add_writer(connection.fileno(), self._on_writable)
        else:
            self._loop.remove_writer(connection.fileno())

    def _on_writable(self) -> None:
        self._flush()
        self.watch_for_writing()

    def drop(self) -> None:
        self._resolving = None
        super().drop()

    def close(self) -> None:
        """Close the connection for good, after an attempt to send what is waiting."""
        self._flush()
        self.drop()


def _is_number(host: str) -> bool:
    """Whether the address of a host is known without asking anyone."""
    try:
        socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return host == "*"
    return True
