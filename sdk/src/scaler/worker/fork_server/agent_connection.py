"""The fork server's end of the control socket: orders come in parts, and reports wait until they can be sent.

Rule: an error of the system loses nothing: what has been read is kept, and what could not be sent is sent later.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import List, NamedTuple, Optional

from scaler.worker.fork_server.fork_server_client import ORDER, REPORT, ReportKind

_MAXIMUM_TEXT_BYTES = 60_000


class Order(NamedTuple):
    """One order of the agent.

    Parameters:
        kind: an OrderKind.
        number: of the processor.
        descriptors: that came with it; the receiver closes them.
    """

    kind: int
    number: int
    text: bytes
    descriptors: List[int]


class AgentGoneError(Exception):
    """The agent has closed its end of the control socket, or was killed."""


class AgentConnection:
    """
    Parameters:
        control: a connected socket.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._received = bytearray()  # of the next order
        self._descriptors: List[int] = []  # that came with it
        self._unsent = bytearray()

    def fileno(self) -> int:
        return self._control.fileno()

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def receive(self) -> Optional[Order]:
        """Read once, when there is something to read; an order that is complete then.

        Raises AgentGoneError, and OSError or MemoryError if the system cannot read now.
        """
        missing = self._missing_bytes()
        try:
            if len(self._received) < ORDER.size:
                data, descriptors, _, _ = socket.recv_fds(self._control, missing, 1)
                self._descriptors += descriptors
            else:
                data = self._control.recv(missing)
        except ConnectionError:
            raise AgentGoneError from None  # it was killed, with reports unread
        if not data:
            raise AgentGoneError
        self._received += data
        if self._missing_bytes():
            return None
        kind, _, number = ORDER.unpack_from(self._received)
        order = Order(kind, number, bytes(self._received[ORDER.size :]), self._descriptors)
        self._received, self._descriptors = bytearray(), []
        return order

    def _missing_bytes(self) -> int:
        if len(self._received) < ORDER.size:
            return ORDER.size - len(self._received)
        return ORDER.size + int(ORDER.unpack_from(self._received)[1]) - len(self._received)

    def report(self, kind: ReportKind, number: int = 0, process_id: int = 0, status: int = 0, text: str = "") -> None:
        """Send a report, at once if possible."""
        data = text.encode("utf-8", "replace")[:_MAXIMUM_TEXT_BYTES]
        self._unsent += REPORT.pack(kind, len(data), number, process_id, status) + data
        self.flush()

    def flush(self) -> None:
        """Send what could not be sent before, as far as that is possible without waiting."""
        try:
            while self._unsent:
                del self._unsent[: self._control.send(self._unsent, socket.MSG_DONTWAIT)]
        except ConnectionError:
            self._unsent.clear()  # reading says that the agent is gone
        except (OSError, MemoryError):
            pass  # there is no room now

    def close(self) -> None:
        """Close this end, with descriptors that came for an order that is not complete."""
        for descriptor in self._descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        with contextlib.suppress(OSError):
            self._control.close()
