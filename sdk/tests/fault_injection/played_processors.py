"""A fork server and processors that act at once, at the other ends of a worker's simulated sockets.

a task's arguments      its outcome
(value,)                its value, or the sizes of its objects if it has any
("large",)              a large result, in a file
("die", n)              its processor dies, unless it is attempt n
("hang",)               it never ends
"""

from __future__ import annotations

import pickle
import signal
from typing import Any, Callable, Dict, List

from fault_injection.simulated_sockets import FakeSocket
from fault_injection.simulated_system import SimulatedSystem

from scaler.worker import frames
from scaler.worker.fork_server.fork_server_client import ORDER, REPORT, OrderKind, ReportKind
from scaler.worker.frames import HEADER, ContentPlace, FrameKind
from scaler.worker.progress import FINISHED

LARGE_BYTES = 150_000


class PlayedForkServer:
    """
    Parameters:
        control: the agent's end of the control socket.
        page: gives the progress entry of a processor.
    """

    def __init__(self, system: SimulatedSystem, control: FakeSocket, page: Callable[[int], memoryview]) -> None:
        self._control = control
        self._page = page
        self._received = bytearray()
        self._processors: Dict[int, PlayedProcessor] = {}
        self._next_process_id = 1 << 30  # no process of this host has it
        self.patterns: List[str] = []
        self.has_ended = False
        control.on_bytes = self._on_bytes
        control.on_end = self._on_end
        control.is_connected = True

    def _on_end(self) -> None:
        self.has_ended = True
        self._control.end()
        for processor in list(self._processors.values()):
            processor.die()
        self._processors.clear()

    def _on_bytes(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= ORDER.size:
            order, length, number = ORDER.unpack_from(self._received)
            if len(self._received) < ORDER.size + length:
                return
            text = bytes(self._received[ORDER.size : ORDER.size + length])
            del self._received[: ORDER.size + length]
            if order == OrderKind.SPAWN:
                self._spawn(number)
            elif order in (OrderKind.KILL, OrderKind.STOP):
                if number in self._processors:
                    self.end(number, signal.SIGKILL)
            elif order == OrderKind.REMOVE:
                self.patterns.append(text.decode())

    def _spawn(self, number: int) -> None:
        assert number not in self._processors
        self._next_process_id += 1
        stream = self._control.passed.pop(0).in_another_process()
        processor = PlayedProcessor(self, number, self._next_process_id, stream, self._page(number))
        self._processors[number] = processor
        self._report(ReportKind.SPAWNED, number, self._next_process_id)
        processor.read()

    def end(self, number: int, signal_number: int) -> None:
        processor = self._processors.pop(number, None)
        if processor is None:
            return
        processor.die()
        self._report(ReportKind.DIED, number, processor.process_id, signal_number)

    def _report(self, event: ReportKind, number: int, process_id: int, status: int = 0) -> None:
        self._control.deliver(REPORT.pack(event, 0, number, process_id, status))


class PlayedProcessor:
    def __init__(
        self, fork_server: PlayedForkServer, number: int, process_id: int, stream: FakeSocket, progress: memoryview
    ) -> None:
        self.process_id = process_id
        self._fork_server = fork_server
        self._number = number
        self._stream = stream
        self._progress = progress
        self._objects: Dict[int, bytes] = {}
        self._prefix = ""
        self._files = 0
        self._is_dead = False
        self._hangs = False
        assert stream.other is not None
        stream.other.on_bytes = self._on_bytes
        stream.other.on_end = self._on_end

    def _on_end(self) -> None:
        """The agent has closed its end, or this process has lost its own."""
        self._stream.end()
        if not self._is_dead:
            self._fork_server.end(self._number, signal.SIGKILL)

    def _on_bytes(self, data: bytes) -> None:
        self._stream.deliver(data)
        self.read()

    def die(self) -> None:
        self._is_dead = True
        self._stream.close()

    def read(self) -> None:
        inbox = self._stream.inbox
        while not (self._is_dead or self._hangs) and len(inbox) >= HEADER.size:
            size, kind, flags = HEADER.unpack_from(inbox)
            if len(inbox) < HEADER.size + size:
                return
            body = bytes(inbox[HEADER.size : HEADER.size + size])
            del inbox[: HEADER.size + size]
            self._handle(kind, flags, body)

    def _handle(self, kind: int, flags: int, body: bytes) -> None:
        if kind == FrameKind.TASKS:
            self._run(frames.parse_tasks(flags, body))
        elif kind == FrameKind.DEFINE:
            object_id, _, place, content = frames.parse_define(body)
            self._objects[object_id] = _content(place, bytes(content))
        elif kind == FrameKind.DROP:
            for object_id in frames.parse_drop(body):
                self._objects.pop(object_id, None)
        elif kind == FrameKind.OBJECT_DIRECTORY:
            self._prefix = frames.parse_object_directory(body)
        elif kind == FrameKind.STOP:
            self._fork_server.end(self._number, 0)

    def _run(self, chunk: frames.TaskChunk) -> None:
        start = chunk.payload_offset
        dependencies = list(chunk.dependencies)
        for index, size in enumerate(chunk.sizes):
            position = chunk.first_position + index
            arguments: Any = pickle.loads(chunk.body[start : start + size])
            start += size
            count = chunk.dependency_counts[index] if chunk.dependency_counts else 0
            needed, dependencies = dependencies[:count], dependencies[count:]
            self._progress[0] = position
            if arguments == ("hang",):
                self._hangs = True
                return
            if arguments[0] == "die" and chunk.attempt != arguments[1]:
                self._fork_server.end(self._number, signal.SIGSEGV)
                return
            large = arguments == ("large",)
            if large:
                result = self._large_result()
            elif needed:
                result = pickle.dumps([len(self._objects[each]) for each in needed])
            else:
                result = pickle.dumps(arguments[0])
            self._progress[0] = position | FINISHED
            self._send(position, result, large)

    def _large_result(self) -> bytes:
        self._files += 1
        path = f"{self._prefix}{self.process_id}-{self._files}"
        with open(path, "wb") as file:
            file.write(bytes(LARGE_BYTES))
        return frames.large_result(LARGE_BYTES, path)

    def _send(self, position: int, result: bytes, is_large: bool) -> None:
        buffers = frames.results_frame(
            first_position=position,
            busy_microseconds=100_000,
            payloads=[result],
            large=b"\1" if is_large else b"",
        )
        if not self._is_dead and not self._stream.has_ended:
            self._stream.sendall(frames.join(buffers))


def _content(place: int, content: bytes) -> bytes:
    if place != ContentPlace.FILE:
        return content
    with open(content, "rb") as file:
        return file.read()
