"""The agent's end of the control socket to the fork server, and its records: orders one way, reports the other.

Rule: neither end waits for the other, except for a moment when very many orders are sent at once.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import socket
import struct
from typing import List, NamedTuple, Optional

ORDER = struct.Struct("<BxHI")  # OrderKind, bytes of text that follow, processor number
REPORT = struct.Struct("<BxHIiI")  # ReportKind, bytes of text that follow, processor number, process id, wait status


class OrderKind(enum.IntEnum):
    """The agent's orders."""

    SPAWN = 1  # a processor; its end of the socket pair is attached, its name is the text
    KILL = 2  # a processor
    IMPORT = 4  # a module of ours that processors forked from now on will need
    REMOVE = 3  # at the end, the files and folders that match the pattern in the text
    STOP = 5  # a processor, which writes its stack, the text of DIED; it is killed if it does not end soon


class ReportKind(enum.IntEnum):
    """The fork server's reports."""

    SPAWNED = 1
    DIED = 2  # the text is the processor's stack, if it was stopped with STOP
    FAILED = 3  # the processor, or with number 0 any processor, cannot be forked; the text is the reason


class ForkServerReport(NamedTuple):
    """One record from the fork server."""

    event: int
    number: int
    process_id: int
    status: int  # as from waitpid
    text: str


class ForkServerClient:
    """The agent's end of the control socket. Orders block for a moment when very many are sent at once.

    An order to a fork server that is gone is dropped: `reports` returns None then. If the system cannot send an order,
    it waits for the next order or `flush`.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._received = b""
        self._unsent = bytearray()

    def fileno(self) -> int:
        return self._control.fileno()

    def spawn(self, number: int, name: str, stream: socket.socket) -> None:
        """Fork processor `number`, which serves `stream`.

        Raises OSError or MemoryError if the system cannot send the order.
        """
        text = name.encode("utf-8", "replace")[:1000]
        order = ORDER.pack(OrderKind.SPAWN, len(text), number) + text
        self.flush()
        if self._unsent:
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        with contextlib.suppress(ConnectionError):
            sent = socket.send_fds(self._control, [order], [stream.fileno()])
            self._send(order[sent:])  # a signal may have interrupted the call

    def kill(self, number: int) -> None:
        """Kill a processor; its end is reported like any other."""
        self._send(ORDER.pack(OrderKind.KILL, 0, number))

    def stop(self, number: int) -> None:
        """End a processor; the report of its end includes its stack, if possible."""
        self._send(ORDER.pack(OrderKind.STOP, 0, number))

    def import_module(self, name: str) -> None:
        """Import a module that starts no thread, so that processors forked from now on need not do it each."""
        text = name.encode()
        self._send(ORDER.pack(OrderKind.IMPORT, len(text), 0) + text)

    def remove_at_end(self, pattern: str) -> None:
        """Have files removed when the agent ends for any reason."""
        text = os.fsencode(pattern)
        self._send(ORDER.pack(OrderKind.REMOVE, len(text), 0) + text)

    def _send(self, order: bytes) -> None:
        self._unsent += order
        self.flush()

    def flush(self) -> None:
        """Send orders that the system could not send before."""
        try:
            while self._unsent:
                del self._unsent[: self._control.send(self._unsent)]
        except ConnectionError:
            self._unsent.clear()
        except (OSError, MemoryError):
            pass  # the rest is sent later

    def reports(self) -> Optional[List[ForkServerReport]]:
        """The fork server's reports since the last call, without waiting; None when it is gone.

        Raises OSError or MemoryError if the system cannot read them now.
        """
        try:
            data = self._control.recv(65536, socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return []
        except ConnectionError:
            return None
        if not data:
            return None
        self._received += data
        reports = []
        while len(self._received) >= REPORT.size:
            event, length, number, process_id, status = REPORT.unpack_from(self._received)
            end = REPORT.size + length
            if len(self._received) < end:
                break
            text = self._received[REPORT.size : end].decode("utf-8", "replace")
            self._received = self._received[end:]
            reports.append(ForkServerReport(event, number, process_id, status, text))
        return reports

    def close(self) -> None:
        """End the fork server, and with it all processors."""
        with contextlib.suppress(OSError):  # it is closed all the same
            self._control.close()
