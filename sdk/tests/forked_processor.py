"""A forked processor, with a test in the agent's place."""

from __future__ import annotations

import os
import pickle
import signal
import socket
from array import array
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from scaler.values import payload as payloads
from scaler.values.failures import load_failure
from scaler.worker import frames
from scaler.worker.frame_reader import FrameReader
from scaler.worker.frames import ContentPlace, FrameKind
from scaler.worker.processor import processor as processor_module
from scaler.worker.processor.processor import Processor, ProcessorSettings
from scaler.worker.progress_page import ProgressPage
from scaler_protocol import decode_struct
from scaler_protocol import messages as m

TIMEOUT_SECONDS = 60.0
"""How long a test waits for what must come; nothing waits for so long when all is well."""


class Outcome(NamedTuple):
    """The outcome of one task."""

    position: int
    status: int
    payload: bytes
    large: bool = False

    @property
    def value(self) -> Any:
        assert self.status == m.TaskStatus.SUCCESS, self.failure
        return payloads.load_value(self.payload, None)

    @property
    def failure(self) -> m.Failure:
        return decode_struct(m.Failure, self.payload)

    @property
    def exception(self) -> BaseException:
        return load_failure(self.payload)


class ForkedProcessor:
    """A processor in a process of its own, with the test in the agent's place."""

    def __init__(self, object_prefix: str, look_interval_seconds: float) -> None:
        self._page = ProgressPage()
        self.progress = self._page.entry(0)
        self.gate_reader, self._gate_writer = os.pipe()
        self.stream, processor_end = socket.socketpair()
        self.process_id = os.fork()
        if self.process_id == 0:
            try:
                self.stream.close()
                os.close(self._gate_writer)
                processor_module.LOOK_INTERVAL_SECONDS = look_interval_seconds
                Processor(processor_end, self.progress, ProcessorSettings("processor under test")).run()
            finally:
                os._exit(0)
        processor_end.close()
        self.stream.settimeout(TIMEOUT_SECONDS)
        self._reader = FrameReader(self.stream)
        self.logs: List[Tuple[int, int, str]] = []
        self.other: List[frames.Frame] = []
        self._next_object = 100
        self._next_position = 1
        self.send(frames.object_directory_frame(object_prefix))

    def send(self, buffers: frames.Buffers) -> None:
        self.stream.sendall(frames.join(buffers))

    def define(self, content: bytes, kind: int = m.ObjectKind.VALUE, place: ContentPlace = ContentPlace.INLINE) -> int:
        self._next_object += 1
        self.send(frames.define_frame(self._next_object, kind, place, content))
        return self._next_object

    def define_function(self, function: Callable[..., Any], serializer: Any = None) -> int:
        content = payloads.join(payloads.dump_function(function, serializer))
        return self.define(content, m.ObjectKind.FUNCTION)

    def send_payloads(
        self,
        function: int,
        contents: Sequence[bytes],
        flags: int = 0,
        dependencies: Optional[Sequence[Sequence[int]]] = None,
        attempt: int = 1,
    ) -> int:
        """Send one chunk; returns its first position."""
        first = self._next_position
        self._next_position += len(contents)
        counts = needed = None
        if dependencies is not None:
            counts = array("H", map(len, dependencies))
            needed = array("Q", [object_id for ids in dependencies for object_id in ids])
        self.send(
            frames.tasks_frame(
                function=function,
                first_position=first,
                client=3,
                attempt=attempt,
                flags=flags,
                ids=array("Q", [1000 + first + index for index in range(len(contents))]),
                sizes=array("I", map(len, contents)),
                payload=b"".join(contents),
                dependency_counts=counts,
                dependencies=needed,
            )
        )
        return first

    def send_calls(self, function: int, *arguments: Tuple[Any, ...], flags: int = 0) -> int:
        """Send one chunk with a task for each tuple of arguments."""
        return self.send_payloads(function, [pickle.dumps(args, 5) if args else b"" for args in arguments], flags)

    def open_gate(self) -> None:
        """Let one task go on that waits in `os.read(gate, 1)`."""
        os.write(self._gate_writer, b"x")

    def receive(self) -> Optional[frames.Frame]:
        """The next frame, or None when the processor has ended."""
        while True:
            frame = self._reader.next()
            if frame is not None:
                return frame
            if not self._reader.fill():
                return None

    def receive_kind(self, kind: FrameKind) -> frames.Frame:
        """The next frame, which must be of this kind; what tasks printed is kept aside."""
        while True:
            frame = self.receive()
            assert frame is not None, "the processor has ended"
            if frame.kind != FrameKind.LOG or kind == FrameKind.LOG:
                assert frame.kind == kind, f"{FrameKind(frame.kind)!r} came instead of {kind!r}"
                return frame
            self.logs.append(frames.parse_log(frame.body))

    def receive_results(self) -> Tuple[frames.Results, List[Outcome]]:
        frame = self.receive_kind(FrameKind.RESULTS)
        results = frames.parse_results(frame.flags, frame.body)
        return results, list(outcomes_of(results))

    def outcomes(self, count: int) -> List[Outcome]:
        """The next `count` outcomes, in however many frames they come."""
        outcomes: List[Outcome] = []
        while len(outcomes) < count:
            outcomes += self.receive_results()[1]
        assert len(outcomes) == count
        return outcomes

    def outcome(self) -> Outcome:
        return self.outcomes(1)[0]

    def call(self, function: Callable[..., Any], *args: Any) -> Outcome:
        """Run one function once."""
        self.send_calls(self.define_function(function), args)
        return self.outcome()

    def given_back(self) -> List[Tuple[int, int]]:
        return frames.parse_given_back(self.receive_kind(FrameKind.GIVEN_BACK).body)

    def assert_nothing_more(self) -> None:
        """The processor is idle and has said all it had to say: it answers a last task with its outcome and no more."""
        function = self.define_function(int)
        position = self.send_calls(function, (7,))
        assert [(outcome.position, outcome.value) for outcome in self.outcomes(1)] == [(position, 7)]

    def wait_for_end(self) -> int:
        """The wait status of the process."""
        process_id, self.process_id = self.process_id, 0
        return os.waitpid(process_id, 0)[1]

    def close(self) -> None:
        self.stream.close()
        os.close(self._gate_writer)
        os.close(self.gate_reader)
        if self.process_id:
            os.kill(self.process_id, signal.SIGKILL)
            os.waitpid(self.process_id, 0)


def outcomes_of(results: frames.Results) -> Iterator[Outcome]:
    start = 0
    for index, size in enumerate(results.sizes):
        status = results.statuses[index] if results.statuses else m.TaskStatus.SUCCESS
        large = bool(results.large[index]) if results.large else False
        yield Outcome(results.first_position + index, status, bytes(results.payload[start : start + size]), large)
        start += size
