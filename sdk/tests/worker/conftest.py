"""What the tests of the worker share: a forked processor, and a scheduler that does what a test tells it."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from array import array
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import pytest
import zmq
from worker_gates import Gate

from scaler.values import payload as payloads
from scaler.values.failures import load_failure
from scaler.worker import frames
from scaler.worker.frame_reader import FrameReader
from scaler.worker.frames import ContentPlace, FrameKind
from scaler.worker.processor import processor as processor_module
from scaler.worker.processor.processor import Processor, ProcessorSettings
from scaler.worker.progress import FINISHED
from scaler.worker.progress_page import ProgressPage
from scaler_protocol import decode, decode_struct, encode
from scaler_protocol import messages as m

TIMEOUT_SECONDS = 20.0
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


@pytest.fixture
def processor(tmp_path: Any) -> Iterator[ForkedProcessor]:
    """A processor whose watchdog never looks, so that no task of a test is long by accident."""
    forked = ForkedProcessor(str(tmp_path / "new-"), look_interval_seconds=3600)
    yield forked
    forked.close()


@pytest.fixture
def watched_processor(tmp_path: Any) -> Iterator[ForkedProcessor]:
    """A processor whose watchdog looks, but not so often that a busy machine matters."""
    forked = ForkedProcessor(str(tmp_path / "new-"), look_interval_seconds=0.1)
    yield forked
    forked.close()


@pytest.fixture
def finished_bit() -> int:
    return FINISHED


# A worker program and a scheduler in the test -------------------------------------------------------------------------


class Received(NamedTuple):
    message: Any
    payload: bytes


class FakeScheduler:
    """A ROUTER that a test plays the scheduler with. One worker at a time."""

    def __init__(self) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.LINGER, 0)
        self.address = f"tcp://127.0.0.1:{self._socket.bind_to_random_port('tcp://127.0.0.1')}"
        self.peer = b""
        self.session = 0
        self.kept: List[Received] = []
        self.heartbeats: List[m.Heartbeat] = []
        self.next_object = 1

    def close(self) -> None:
        self._socket.close()
        self._context.term()

    def send(self, message: Any, payload: bytes = b"") -> None:
        self._socket.send_multipart([self.peer, encode(message), *([payload] if payload else [])])

    def receive(self, *classes: type) -> Received:
        """The next message of one of these classes; heartbeats are answered and kept, everything else is kept too."""
        for index, received in enumerate(self.kept):
            if isinstance(received.message, classes):
                return self.kept.pop(index)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            remaining = deadline - time.monotonic()
            assert remaining > 0 and self._socket.poll(remaining * 1000), f"no {classes} came; kept: {self.kept}"
            received = self.read()
            if isinstance(received.message, classes):
                return received
            if not isinstance(received.message, m.Heartbeat):
                self.kept.append(received)

    def receive_raw(self) -> List[bytes]:
        """The next message as it came; nothing is answered."""
        assert self._socket.poll(TIMEOUT_SECONDS * 1000), "nothing came"
        return list(self._socket.recv_multipart())

    def read(self) -> Received:
        peer, header, *rest = self.receive_raw()
        message = decode(header)
        if isinstance(message, m.Hello):
            self.peer = peer
        if isinstance(message, m.Heartbeat):
            self.heartbeats.append(message)
            self._socket.send_multipart([peer, encode(m.HeartbeatEcho(sequence=message.sequence))])
        return Received(message, rest[0] if rest else b"")

    def assert_nothing_more(self) -> None:
        """The worker has said all it had to say: the answer to a question is all that comes."""
        self.send(m.BalanceRequest(request_id=4711, count=0))
        assert self.receive(m.BalanceResponse).message == m.BalanceResponse(request_id=4711)
        assert self.kept == []

    def welcome(self, **fields: Any) -> m.Hello:
        """Take the worker's Hello and welcome it."""
        hello: m.Hello = self.receive(m.Hello).message
        self.send(self.welcome_message(**fields))
        self.receive(m.Heartbeat)  # the answer to a Welcome
        return hello

    def welcome_message(self, **fields: Any) -> m.Welcome:
        """Of a new session."""
        self.session += 1
        settings: Dict[str, Any] = {
            "major": 1,
            "session": self.session,
            "scheduler_id": bytes(16),
            "limits": m.Limits(chunk_bytes=1 << 20, inline_bytes=1 << 16),
            "heartbeat_interval_milliseconds": 200,
            "timeout_milliseconds": 60_000,
        }
        settings.update(fields)
        return m.Welcome(**settings)

    def create_inline(self, content: bytes, kind: int = m.ObjectKind.VALUE) -> int:
        object_id = self.new_object_id()
        instruction = m.ObjectInstruction(
            action=m.ObjectAction.CREATE,
            ids=[object_id],
            sizes=[len(content)],
            storages=bytes([m.ObjectStorage.INLINE]),
            kinds=bytes([kind]),
        )
        self.send(instruction, content)
        return object_id

    def announce(self, object_id: int, size: int, storage: int, kind: int = m.ObjectKind.VALUE) -> None:
        self.send(
            m.ObjectInstruction(
                action=m.ObjectAction.CREATE,
                ids=[object_id],
                sizes=[size],
                storages=bytes([storage]),
                kinds=bytes([kind]),
            )
        )

    def new_object_id(self) -> int:
        self.next_object += 1
        return 77 << 40 | self.next_object

    def create_function(self, function: Callable[..., Any]) -> int:
        content = payloads.join(payloads.dump_function(function, None))
        return self.create_inline(content, m.ObjectKind.FUNCTION)

    def send_calls(
        self, function: int, calls: Dict[int, Tuple[Any, ...]], options: Optional[m.TaskOptions] = None, **fields: Any
    ) -> None:
        """Send tasks by instance id."""
        contents = [pickle.dumps(args, 5) if args else b"" for args in calls.values()]
        message = m.Task(
            ids=list(calls), payload_sizes=list(map(len, contents)), function=function, codec="cloudpickle", **fields
        )
        if options is not None:
            message.options = options
        self.send(message, b"".join(contents))

    def results(self, count: int) -> Dict[int, Outcome]:
        """The outcomes of the next `count` tasks, by instance id."""
        outcomes: Dict[int, Outcome] = {}
        while len(outcomes) < count:
            message, payload = self.receive(m.TaskResult)
            start = 0
            for index, instance in enumerate(message.ids):
                stop = start + message.payload_sizes[index]
                status = message.statuses[index] if message.statuses else m.TaskStatus.SUCCESS
                object_id = message.objects[index] if message.objects else 0
                assert instance not in outcomes, f"two outcomes for {instance}"
                outcomes[instance] = Outcome(object_id, status, payload[start:stop], bool(object_id))
                start = stop
            assert start == len(payload)
        assert len(outcomes) == count
        return outcomes

    def result(self, instance: int) -> Outcome:
        return self.results(1)[instance]

    def confirmations(self, count: int) -> Dict[int, int]:
        """The answers to the next `count` cancelled ids."""
        answers: Dict[int, int] = {}
        while len(answers) < count:
            message = self.receive(m.TaskCancelConfirm).message
            answers.update(zip(message.ids, message.outcomes))
        return answers


class WorkerProgram:
    """scaler_cluster as a process."""

    def __init__(self, address: str, *options: str) -> None:
        arguments = [sys.executable, "-m", "scaler.worker", "-n", "1", *options, address]
        self.process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # so that whatever it starts can be found by its session
        )
        self.output = ""

    def processes(self) -> List[int]:
        """Ids of all live processes of the worker."""
        return processes_of_session(self.process.pid)

    def wait(self) -> int:
        """The exit code, with all output read."""
        self.output = self.process.communicate(timeout=TIMEOUT_SECONDS)[0]
        return self.process.returncode

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait_until_nothing_is_left(self) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while self.processes():
            assert time.monotonic() < deadline, f"still there: {self.processes()}"
            time.sleep(0.005)

    def close(self) -> None:
        for process_id in self.processes():
            try:
                os.kill(process_id, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.kill()
        self.close_stdin()
        self.process.communicate()

    def close_stdin(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
            self.process.stdin = None  # so that it is not flushed again


def processes_of_session(session: int) -> List[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != b"Z":
                found.append(int(name))
    return found


@pytest.fixture
def scheduler() -> Iterator[FakeScheduler]:
    fake = FakeScheduler()
    yield fake
    fake.close()


@pytest.fixture
def start_worker(scheduler: FakeScheduler) -> Iterator[Callable[..., WorkerProgram]]:
    programs: List[WorkerProgram] = []

    def start(*options: str, address: str = "") -> WorkerProgram:
        programs.append(WorkerProgram(address or scheduler.address, *options))
        return programs[-1]

    yield start
    for program in programs:
        program.close()


@pytest.fixture
def gate(tmp_path):
    made = Gate(str(tmp_path / "gate"))
    yield made
    made.remove()
