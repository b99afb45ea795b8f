"""A connection made by hand: the bytes of ZMTP over a plain socket, for what libzmq would never send.

Rules:
- It can stop reading (`is_reading`), announce frames that it never sends, and violate the handshake.
- As the transport of a conversation, it is like any other.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from typing import Callable, List, Optional, Sequence

from scaler_conformance.configuration.settings import Settings
from scaler_conformance.judging.verdicts import Violation
from scaler_conformance.playing.conversation import Conversation, Transport

GREETING_BYTES = 64
MORE, LARGE, COMMAND = 1, 2, 4


class RawConnection(Transport):
    """One connection to a scheduler.

    Parameters:
        address: `tcp://HOST:PORT`, where a scheduler listens.
        how_it_ended: returns a text once the implementation has ended.
    """

    def __init__(self, address: str, settings: Settings, how_it_ended: Callable[[], Optional[str]]) -> None:
        self._settings = settings
        self._how_it_ended = how_it_ended
        self._received = bytearray()
        self._frames: List[bytes] = []
        self.commands: List[bytes] = []
        self.is_closed = False  # by the other side
        self.is_reading = True
        self.conversation: Optional[Conversation] = None
        host, _, port = address.rpartition("//")[2].rpartition(":")
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024)
        self.socket.settimeout(settings.deadline_seconds)
        self.socket.connect((host, int(port)))

    # The handshake --------------------------------------------------------------------------------------------------

    def greet(self, minor: int = 1, mechanism: bytes = b"NULL", kind: bytes = b"DEALER", identity: bytes = b"") -> None:
        """Send everything that a peer sends before its first message, without waiting for the other side's part."""
        self.greet_as(mechanism, minor)
        self.ready(kind, identity)

    def greet_as(self, mechanism: bytes, minor: int = 1) -> None:
        """Send the greeting alone."""
        self.write(b"\xff" + bytes(8) + b"\x7f" + bytes([3, minor]) + mechanism.ljust(20, b"\0") + bytes(32))

    def ready(self, kind: bytes = b"DEALER", identity: bytes = b"") -> None:
        """Send READY, as after a handshake that has succeeded."""
        self.command(b"READY", _property(b"Socket-Type", kind) + _property(b"Identity", identity))

    def command(self, name: bytes, data: bytes) -> None:
        body = bytes([len(name)]) + name + data
        self.write(bytes([COMMAND, len(body)]) + body)

    def announce(self, size: int, more: bool) -> None:
        """Send the beginning of a frame of this size, without its content."""
        self.write(bytes([LARGE | (MORE if more else 0)]) + struct.pack(">Q", size))

    def write(self, data: bytes) -> None:
        """Send bytes, which are lost if the connection was closed."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            self.is_closed = True

    # What comes -----------------------------------------------------------------------------------------------------

    def wait_until(
        self,
        condition: Callable[[], object],
        expected: str,
        requirement: Optional[str] = None,
        seconds: Optional[float] = None,
    ) -> None:
        """Read until a condition is true.

        Parameters:
            seconds: replaces the deadline.

        Raises Violation if the deadline passes or the implementation ends.
        """
        deadline = time.monotonic() + (self._settings.deadline_seconds if seconds is None else seconds)
        while not condition():
            if not self.pump(0.02) and (time.monotonic() > deadline or self._how_it_ended()):
                raise Violation(expected, self._how_it_ended() or "timed out", requirement)

    def expect_closed(self, expected: str, requirement: Optional[str] = None, seconds: Optional[float] = None) -> None:
        """The other side must close the connection."""
        self.wait_until(lambda: self.is_closed, expected, requirement, seconds)

    def expect_cut(self, header: bytes, expected: str) -> None:
        """The other side must close the connection, from which nothing is read: sending to it fails."""

        def is_cut() -> bool:
            if not self.is_closed:
                self.announce(len(header), more=False)
                self.write(header)
            return self.is_closed

        self.wait_until(is_cut, expected)

    def pump(self, seconds: float) -> bool:
        if self.is_closed or not self.is_reading:
            if seconds:
                time.sleep(min(seconds, 0.02))
            return False
        if not select.select([self.socket], [], [], seconds)[0]:
            return False
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        self.is_closed = not data
        self._received += data
        while self._take_one():
            pass
        return True

    def _take_one(self) -> bool:
        received = self._received
        if received[:1] == b"\xff":
            return self._cut(GREETING_BYTES) is not None
        if len(received) < 2 or (received[0] & LARGE and len(received) < 9):
            return False
        flags, start = received[0], 9 if received[0] & LARGE else 2
        size = struct.unpack(">Q", received[1:9])[0] if flags & LARGE else received[1]
        frame = self._cut(start + size)
        if frame is None:
            return False
        if flags & COMMAND:
            self.commands.append(frame[start:])
            return True
        self._frames.append(frame[start:])
        if not flags & MORE:
            frames, self._frames = self._frames, []
            if self.conversation is not None:
                self.conversation.arrived(frames)
        return True

    def _cut(self, size: int) -> Optional[bytes]:
        if len(self._received) < size:
            return None
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    # As a transport -------------------------------------------------------------------------------------------------

    def transmit(self, conversation: Conversation, frames: Sequence[bytes]) -> None:
        for index, frame in enumerate(frames):
            self.announce(len(frame), index + 1 < len(frames))
            self.write(frame)

    def shut(self) -> None:
        """Shut the connection down, which also ends the wait of a thread that sends."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.socket.close()


def _property(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + struct.pack(">I", len(value)) + value
