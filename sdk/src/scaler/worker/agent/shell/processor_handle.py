"""The agent's end of one processor's socket pair.

Rules:
- Never blocks. Data that cannot be written at once is kept and written later; the core gives a processor a few chunks
  at most, so this is bounded.
- One read per round and processor, so that a processor that sends a lot does not starve the others.
- A broken pipe is ignored: only the fork server's report of a processor's death counts. Any other error costs the
  processor: it is replaced, because frames to it or from it may be missing.
"""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from typing import Callable, Deque, List, Optional

from scaler.data_serving.rounds import Rounds
from scaler.worker.frame_reader import FrameReader
from scaler.worker.frames import Buffers, Frame, FrameError

_SOCKET_BUFFER_BYTES = 1024 * 1024
_MAXIMUM_READ_FAILURES = 3  # in reading what a dead processor has left


class ProcessorHandle:
    """Reads and writes frames of one processor.

    Parameters:
        on_frames: called with the processor's number and the frames of one read.
        on_broken: called when the processor sends an invalid frame, or frames cannot be exchanged; nothing more is read
            then.

    Raises OSError or MemoryError if the system cannot make or watch the pair.
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
        self._backlog: Deque[memoryview] = deque()
        self._open = True  # until the end of the stream
        self._reading = False
        self._stream, processor_end = socket.socketpair()
        self._processor_end: Optional[socket.socket] = processor_end
        try:
            self._stream.setblocking(False)
            for end in (self._stream, processor_end):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)
            self._reader = FrameReader(self._stream)
            rounds.add_reader(self._stream.fileno(), self._read)
            self._reading = True
        except BaseException:
            self.close()
            raise

    @property
    def waits_for_fork(self) -> bool:
        """Whether the processor's end has not been passed on yet."""
        return self._processor_end is not None

    def release_processor_end(self, give: Callable[[socket.socket], None]) -> None:
        """Pass on the processor's end of the pair, and keep no copy of it."""
        end, self._processor_end = self._processor_end, None
        if end is not None:
            try:
                give(end)
            finally:
                _close(end)

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
        except (BlockingIOError, InterruptedError):
            sent = 0
        except ConnectionError:
            return  # the processor is dead
        except (OSError, MemoryError) as error:
            self._break(error)
            return
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
            try:
                self._rounds.add_writer(self._stream.fileno(), self._write)
            except (OSError, MemoryError) as error:
                self._break(error)

    def _write(self) -> None:
        try:
            while self._backlog:
                sent = self._stream.send(self._backlog[0])
                if sent < len(self._backlog[0]):
                    self._backlog[0] = self._backlog[0][sent:]
                else:
                    self._backlog.popleft()
        except (BlockingIOError, InterruptedError):
            return
        except ConnectionError:
            self._backlog.clear()
        except (OSError, MemoryError) as error:
            self._break(error)
            return
        self._rounds.remove_writer(self._stream.fileno())

    def _read(self) -> None:
        try:
            more = self._reader.fill()
        except (BlockingIOError, InterruptedError):
            return
        except ConnectionError:
            more = False
        except (OSError, MemoryError) as error:
            self._break(error)
            return
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
            self._stop(error)
        except MemoryError as error:
            self._break(error)
        if received:
            self._on_frames(self.number, received)

    def _break(self, error: Exception) -> None:
        """Frames cannot be exchanged any more."""
        why = (error.strerror if isinstance(error, OSError) else None) or str(error) or "out of memory"
        self._stop(FrameError(f"the worker cannot exchange data with it ({why})"))

    def _stop(self, error: FrameError) -> None:
        was_open, self._open = self._open, False
        self.read_on(False)
        self._drop_backlog()
        if was_open:
            self._on_broken(self.number, error)

    def _drop_backlog(self) -> None:
        if self._backlog:
            self._backlog.clear()
            self._rounds.remove_writer(self._stream.fileno())

    def read_on(self, wanted: bool) -> None:
        """Read what the processor sends, or pause it."""
        wanted = wanted and self._open
        if wanted and not self._reading:
            try:
                self._rounds.add_reader(self._stream.fileno(), self._read)
            except (OSError, MemoryError) as error:
                self._break(error)
                return
        elif self._reading and not wanted:
            self._rounds.remove_reader(self._stream.fileno())
        self._reading = wanted

    def read_rest(self) -> None:
        """Read everything that a dead processor had sent."""
        failures = 0
        while self._open and failures < _MAXIMUM_READ_FAILURES:
            try:
                if not self._reader.fill():
                    break
            except (BlockingIOError, ConnectionError):
                break  # nothing more; a process that user code forked may hold the other end open
            except (OSError, MemoryError):
                failures += 1
                continue
            self._parse()

    def close(self) -> None:
        self._open = False  # a connection that is closed later may report room again
        self.read_on(False)
        self._drop_backlog()
        _close(self._stream)
        if self._processor_end is not None:
            _close(self._processor_end)
            self._processor_end = None


def _close(stream: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is closed all the same
        stream.close()
