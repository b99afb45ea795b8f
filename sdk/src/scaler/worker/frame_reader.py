"""Divides the byte stream between an agent and a processor into frames (see `frames`).

Rule: reading is bounded by the announced size of a frame, which is at most MAXIMUM_BODY_BYTES.
"""

from __future__ import annotations

import socket
from typing import Optional

from scaler.worker.frames import HEADER, MAXIMUM_BODY_BYTES, Frame, FrameError

RECEIVE_BYTES = 64 * 1024
"""How much a reader takes from its socket at once, and the size to which its buffer shrinks back."""


class FrameReader:
    """Divides the data of a stream socket into frames.

    `fill` reads once, `next` returns what is complete; neither is safe to call from two threads at once.
    """

    __slots__ = ("_socket", "_buffer", "_view", "_start", "_end")

    def __init__(self, stream: socket.socket) -> None:
        self._socket = stream
        self._buffer = bytearray(RECEIVE_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0

    def fill(self, flags: int = 0) -> bool:
        """Read available data once; False at the end of the stream.

        Raises BlockingIOError when there is no data, and the socket or `flags` say not to wait.
        """
        if self._start == self._end:
            self._start = self._end = 0
            if len(self._buffer) > RECEIVE_BYTES:
                self._replace_buffer(RECEIVE_BYTES)
        elif self._end == len(self._buffer):
            self._make_room()
        received = self._socket.recv_into(self._view[self._end :], 0, flags)
        self._end += received
        return received > 0

    def next(self) -> Optional[Frame]:
        """The next complete frame, or None.

        Raises FrameError when the bytes are not a valid frame.
        """
        available = self._end - self._start
        if available < HEADER.size:
            return None
        size, kind, flags = HEADER.unpack_from(self._buffer, self._start)
        if size > MAXIMUM_BODY_BYTES:
            raise FrameError(f"a frame announces {size} bytes; no frame is above {MAXIMUM_BODY_BYTES}")
        if available < HEADER.size + size:
            return None
        start = self._start + HEADER.size
        self._start = start + size
        return Frame(kind, flags, bytes(self._view[start : self._start]))

    def _make_room(self) -> None:
        """The buffer ends within a frame: move the frame's start to the front, or take a larger buffer."""
        needed = RECEIVE_BYTES
        if self._end - self._start >= HEADER.size:
            size = HEADER.unpack_from(self._buffer, self._start)[0]
            needed = max(needed, HEADER.size + min(size, MAXIMUM_BODY_BYTES))
        if needed > len(self._buffer):
            self._replace_buffer(needed)
        else:
            self._view[: self._end - self._start] = self._view[self._start : self._end]
            self._end -= self._start
            self._start = 0

    def _replace_buffer(self, size: int) -> None:
        buffer = bytearray(size)
        length = self._end - self._start
        buffer[:length] = self._view[self._start : self._end]
        self._buffer, self._view = buffer, memoryview(buffer)
        self._start, self._end = 0, length
