"""A connection that an event loop watches.

    connect ──▶ writable, or the name was dialled: connected ──▶ readable: receive

Rules:
- Nothing here waits: the loop says when the stream is connected, readable or writable.
- The loop watches for writing only while it is connecting, or while the kernel has not taken everything.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Callable

from scaler.client.shell.transport import Transport
from scaler_protocol.keys.credentials import Credentials


class LoopTransport(Transport):
    """Parameters:
    credentials: for the scheduler, at its address.
    on_event: called when the stream is connected, or can be read.
    """

    def __init__(self, credentials: Credentials, loop: asyncio.AbstractEventLoop, on_event: Callable[[], None]) -> None:
        super().__init__(credentials)
        self._loop = loop
        self._on_event = on_event
        self._is_watched_for_writing = False

    def another(self) -> LoopTransport:
        def on_event() -> None:
            other.has_news = True
            self._on_event()

        other = LoopTransport(self._credentials, self._loop, on_event)
        return other

    def finish_connecting(self) -> bool:
        was_dialled = self._stream is None
        is_connected = super().finish_connecting()
        if is_connected and not was_dialled:
            assert self._stream is not None
            self._loop.remove_writer(self._stream.fileno())
            self._loop.add_reader(self._stream.fileno(), self._on_event)
        return is_connected

    def _watch(self, descriptor: int, for_writing: bool) -> None:
        watch = self._loop.add_writer if for_writing else self._loop.add_reader
        try:
            watch(descriptor, self._on_event)
        except NotImplementedError:
            raise NotImplementedError(
                f"{type(self._loop).__name__} cannot watch sockets: run the program in an asyncio.SelectorEventLoop"
            ) from None

    def _unwatch(self, descriptor: int) -> None:
        self._is_watched_for_writing = False
        with contextlib.suppress(OSError, ValueError, RuntimeError, NotImplementedError):  # the loop may be closed
            self._loop.remove_writer(descriptor)
            self._loop.remove_reader(descriptor)

    def watch_for_writing(self) -> None:
        """Watch for writing from now on if something waits to be sent, else no longer."""
        connection = self._connection
        has_unsent = connection is not None and connection.has_unsent
        if has_unsent == self._is_watched_for_writing or connection is None or self._is_muted:
            return
        self._is_watched_for_writing = has_unsent
        if has_unsent:
            self._loop.add_writer(connection.fileno(), self._on_writable)
        else:
            self._loop.remove_writer(connection.fileno())

    def _on_writable(self) -> None:
        self._flush()
        self.watch_for_writing()

    def close(self) -> None:
        """Close the connection for good, after an attempt to send what is waiting."""
        self._flush()
        self.drop()
