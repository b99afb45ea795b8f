"""The agent's end of one processor's socket pair.

Rules:
- Never blocks. Data that cannot be written at once is kept and written later; the core gives a processor a few chunks
  at most, so this is bounded.
- One read per round and processor, so that a processor that sends a lot does not starve the others.
- A broken pipe is ignored: only the fork server's report of a processor's death counts.
"""

from __future__ import annotations

import socket
from collections import deque
from typing import Callable, Deque, List, Optional

from scaler.worker.agent.shell.rounds import Rounds
from scaler.worker.frame_reader import FrameReader
from scaler.worker.frames import Buffers, Frame, FrameError

_SOCKET_BUFFER_BYTES = 1024 * 1024


class ProcessorHandle:
    """Reads and writes frames of one processor.

    Parameters:
        on_frames: called with the processor's number and the frames of one read.
        on_broken: called when the processor sends an invalid frame; nothing more is read then.
    """

    def __init__(
        self,
        rounds: Rounds,
        number: int,
        on_frames: Callable[[int, List[Frame]], None],
        on_broken: Callable[[int, FrameError], None],
    ) -> None:
        self.number = number
        self._rounds = rounds
        self._on_frames = on_frames
        self._on_broken = on_broken
        self._stream, processor_end = socket.socketpair()
        self._processor_end: Optional[socket.socket] = processor_end
        self._stream.setblocking(False)
        for end in (self._stream, processor_end):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)
        self._reader = FrameReader(self._stream)
        self._backlog: Deque[memoryview] = deque()
        self._open = True  # until the end of the stream
        self._reading = False
        self.read_on(True)

    @property
    def waits_for_fork(self) -> bool:
        """Whether the processor's end has not been passed on yet."""
        return self._processor_end is not None

    def release_processor_end(self, give: Callable[[socket.socket], None]) -> None:
        """Pass on the processor's end of the pair, and keep no copy of it."""
        if self._processor_end is not None:
            with self._processor_end:
                give(self._processor_end)
            self._processor_end = None

    def send(self, buffers: Buffers) -> None:
        """Write a frame, now or as soon as there is room."""
        if self._backlog:
            self._keep(buffers, 0)
            return
        try:
            if len(buffers) == 1:
                sent = self._stream.send(buffers[0])
                if sent == len(buffers[0]):
                    return
            else:
                sent = self._stream.sendmsg(buffers)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # the processor is dead
        self._keep(buffers, sent)

    def _keep(self, buffers: Buffers, sent: int) -> None:
        was_empty = not self._backlog
        for buffer in buffers:
            view = memoryview(buffer).cast("B") if len(buffer) else memoryview(b"")
            if sent >= len(view):
                sent -= len(view)
                continue
            self._backlog.append(view[sent:])
            sent = 0
        if was_empty and self._backlog:
            self._rounds.add_writer(self._stream.fileno(), self._write)

    def _write(self) -> None:
        try:
            while self._backlog:
                sent = self._stream.send(self._backlog[0])
                if sent < len(self._backlog[0]):
                    self._backlog[0] = self._backlog[0][sent:]
                else:
                    self._backlog.popleft()
        except BlockingIOError:
            return
        except OSError:
            self._backlog.clear()
        self._rounds.remove_writer(self._stream.fileno())

    def _read(self) -> None:
        try:
            more = self._reader.fill()
        except BlockingIOError:
            return
        except OSError:
            more = False
        if not more:
            self._open = False
            self.read_on(False)
        self._parse()

    def _parse(self) -> None:
        received: List[Frame] = []
        try:
            while True:
                frame = self._reader.next()
                if frame is None:
                    break
                received.append(frame)
        except FrameError as error:
            self._open = False
            self.read_on(False)
            self._on_broken(self.number, error)
        if received:
            self._on_frames(self.number, received)

    def read_on(self, wanted: bool) -> None:
        """Read what the processor sends, or pause it."""
        wanted = wanted and self._open
        if wanted and not self._reading:
            self._rounds.add_reader(self._stream.fileno(), self._read)
        elif self._reading and not wanted:
            self._rounds.remove_reader(self._stream.fileno())
        self._reading = wanted

    def read_rest(self) -> None:
        """Read everything that a dead processor had sent."""
        while self._open:
            try:
                if not self._reader.fill():
                    break
            except OSError:
                break  # nothing more; a process that user code forked may hold the other end open
            self._parse()

    def close(self) -> None:
        self._open = False  # a connection that is closed later may report room again
        self.read_on(False)
        if self._backlog:
            self._backlog.clear()
            self._rounds.remove_writer(self._stream.fileno())
        self._stream.close()
        if self._processor_end is not None:
            self._processor_end.close()
            self._processor_end = None
