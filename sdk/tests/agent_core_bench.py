"""A bench for an agent's core: it plays the shell, with nothing behind it. No process, socket, file or clock."""

from __future__ import annotations

from array import array
from itertools import count
from typing import Any, Dict, List, Optional, Sequence, Tuple, Type

from scaler.worker import frames
from scaler.worker.agent.core.agent_core import AgentCore
from scaler.worker.agent.core.agent_identity import AgentIdentity, Chance
from scaler.worker.agent.core.effects import (
    Deliver,
    FindObject,
    Finish,
    KeepResult,
    KillProcessor,
    LinkCopy,
    Log,
    MeasureMemory,
    MeasureProcesses,
    NameCopy,
    OpenObjects,
    ReadChunk,
    RemoveFiles,
    Send,
    SpawnProcessor,
    StopProcessor,
    WriteChunk,
)
from scaler.worker.agent.core.heartbeats import ProcessUsage
from scaler.worker.frames import Frame, FrameKind
from scaler.worker.progress import FINISHED
from scaler.worker.worker_settings import WorkerSettings
from scaler_protocol import messages as m
from scaler_protocol.session.effects import Connect, Disconnect

FUNCTION = 1 << 40 | 1
CHUNK = 1000
PREFIX = "/results/new-"


class Agent:
    """A core, and all that its shell would do for it.

    Parameters:
        session: of the scheduler's Welcome; 0: a test says what the scheduler answers.
    """

    def __init__(self, session: int = 5, is_shared: bool = False, **settings: Any) -> None:
        self.pages: Dict[int, memoryview] = {}
        self.now = 100.0
        self.is_shared = is_shared
        self.disk_is_full = False
        self.answers_files = True
        self.unanswered: List[Any] = []  # file operations that wait for `answer_files`
        self.performed: List[Any] = []  # effects that nothing is answered to
        self.sent: List[Tuple[Any, bytes]] = []
        self.logs: List[str] = []
        self.processors: Dict[int, List[Frame]] = {}  # frames delivered to those that live
        self.files: Dict[str, bytearray] = {}
        self.nearby: Dict[str, bytes] = {}  # files of other workers on this host, by name
        self.resident_bytes = 2  # of each processor
        self.exit_code: Optional[int] = None
        identity = AgentIdentity("the worker", "the host", 77, "Python")
        whole = WorkerSettings(**{"address": "tcp://scheduler:1", "slots": 1, **settings})
        self.core = AgentCore(whole, identity, self.page, lambda *_: b"too large", Chance(lambda: 0.5, count(1)))
        self.core.start(self.now)
        self.turn()
        if session:
            self.connect()
            self.welcome(session)

    def page(self, number: int) -> memoryview:
        return self.pages.setdefault(number, memoryview(bytearray(8)).cast("Q"))

    # The shell

    def turn(self) -> None:
        self.core.finish_turn(self.now)
        while self.core.effects:
            for effect in self.core.take_effects():
                self.perform(effect)
            self.core.finish_turn(self.now)

    def perform(self, effect: Any) -> None:
        core = self.core
        if isinstance(effect, Send):
            self.sent.append((effect.message, bytes(effect.payload)))
        elif isinstance(effect, Deliver):
            data = frames.join(effect.buffers)
            _, kind, flags = frames.HEADER.unpack_from(data)
            if effect.number in self.processors:
                self.processors[effect.number].append(Frame(kind, flags, data[frames.HEADER.size :]))
        elif isinstance(effect, SpawnProcessor):
            self.processors[effect.number] = []
            core.on_processor_started(effect.number, 1000 + effect.number)
        elif isinstance(effect, (KillProcessor, StopProcessor)):
            self.die(effect.number, "was ended by signal 9 (SIGKILL)")
        elif isinstance(effect, MeasureProcesses):
            usage = ProcessUsage(1, self.resident_bytes)
            core.on_processes_measured(dict.fromkeys(effect.process_ids, usage), 3, self.now)
        elif isinstance(effect, MeasureMemory):
            core.on_memory_measured({})
        elif isinstance(effect, Log):
            self.logs.append(effect.text)
        elif isinstance(effect, Finish):
            self.exit_code = effect.exit_code if self.exit_code is None else self.exit_code
        elif isinstance(
            effect, (OpenObjects, FindObject, WriteChunk, NameCopy, LinkCopy, ReadChunk, KeepResult, RemoveFiles)
        ):
            if self.answers_files:
                self.answer(effect)
            else:
                self.unanswered.append(effect)
        else:
            self.performed.append(effect)

    def answer(self, effect: Any) -> None:
        """Carry a file operation out."""
        core = self.core
        if isinstance(effect, RemoveFiles):
            self.performed.append(effect)
            for path in effect.paths:
                self.files.pop(path, None)
        elif isinstance(effect, OpenObjects):
            core.on_objects_opened(self.is_shared, PREFIX, self.now)
        elif isinstance(effect, FindObject):
            core.on_object_found(effect.object_id, effect.path in self.files)
        elif isinstance(effect, WriteChunk) and self.disk_is_full:
            core.on_chunk_failed(effect.object_id, effect.fetch, "no space left on device", True)
        elif isinstance(effect, WriteChunk):
            path = f"/own/new-{effect.fetch}"
            file = self.files.setdefault(path, bytearray(effect.size))
            file[effect.offset : effect.offset + len(effect.chunk)] = effect.chunk
            core.on_chunk_written(effect.object_id, effect.fetch, len(effect.chunk), path)
        elif isinstance(effect, NameCopy) and effect.path not in self.files:  # it was given up
            core.on_chunk_failed(effect.object_id, effect.fetch, "No such file or directory", False)
        elif isinstance(effect, NameCopy):
            self.files[f"/own/{effect.name}"] = self.files.pop(effect.path)
            core.on_copy_named(effect.object_id, effect.fetch, f"/own/{effect.name}")
        elif isinstance(effect, LinkCopy):
            content = self.nearby.get(effect.name)
            if content is not None:
                self.files[f"/own/{effect.name}"] = bytearray(content)
            path = "" if content is None else f"/own/{effect.name}"
            core.on_copy_linked(effect.object_id, effect.fetch, path)
        elif isinstance(effect, ReadChunk):
            chunk = bytes(self.files.get(effect.path, b"")[effect.offset : effect.offset + effect.length])
            core.on_chunk_read(effect.object_id, effect.offset, effect.length, chunk)
        elif effect.path in self.files:
            self.files[effect.target] = self.files.pop(effect.path)
            core.on_result_kept(effect.object_id, effect.target)
        else:
            core.on_result_kept(effect.object_id, effect.target, "No such file or directory")

    def answer_files(self) -> None:
        """Carry out what waits."""
        self.turn()
        while self.unanswered:
            self.answer(self.unanswered.pop(0))
            self.turn()

    def wait(self, seconds: float) -> None:
        """Time passes; the core is called whenever it wants to be."""
        end = self.now + seconds
        while self.core.next_time <= end:
            self.now = max(self.now, self.core.next_time)
            self.core.on_time(self.now)
            self.turn()
        self.now = end

    # The scheduler

    def connect(self) -> None:
        """The connection that the core asked for is there."""
        assert Connect() in self.performed
        self.performed.clear()
        self.core.on_connected(self.now)
        self.turn()

    def lose_connection(self) -> None:
        self.core.on_disconnected("connection reset by peer", self.now)
        self.turn()

    def welcome(self, session: int, **fields: Any) -> None:
        limits = m.Limits(chunk_bytes=CHUNK, maximum_message_bytes=1 << 20)
        self.receive(m.Welcome(major=1, session=session, limits=limits, timeout_milliseconds=60_000, **fields))
        self.wait(0.0)

    def receive(self, message: Any, payload: bytes = b"") -> None:
        """A message of the scheduler's."""
        self.core.on_message(message, payload, self.now)
        self.turn()

    def create_function(self, function: int = FUNCTION) -> None:
        storages = [m.ObjectStorage.INLINE]
        self.receive(
            m.ObjectInstruction(action=m.ObjectAction.CREATE, ids=[function], sizes=[1], storages=storages), b"f"
        )

    def send_tasks(self, *ids: int, dependencies: Sequence[int] = (), **options: Any) -> None:
        """Tasks that take no arguments; each needs the same objects."""
        message = m.Task(ids=ids, payload_sizes=[0] * len(ids), function=FUNCTION, codec="cloudpickle")
        message.options = m.TaskOptions(**options)
        if dependencies:
            message.dependency_counts = array("H", [len(dependencies)] * len(ids))
            message.dependencies = array("Q", list(dependencies) * len(ids))
        self.receive(message)

    def take(self, kind: Type[Any]) -> List[Any]:
        """The messages of a kind sent since last asked."""
        taken = [message for message, _ in self.sent if isinstance(message, kind)]
        self.sent = [each for each in self.sent if not isinstance(each[0], kind)]
        return taken

    def outcomes(self) -> Dict[int, int]:
        """Status of the tasks whose outcomes were sent since last asked."""
        found: Dict[int, int] = {}
        for message in self.take(m.TaskResult):
            for index, instance in enumerate(message.ids):
                assert instance not in found
                found[instance] = message.statuses[index] if message.statuses else m.TaskStatus.SUCCESS
        return found

    # Processors

    def dealt(self) -> List[Tuple[int, frames.TaskChunk]]:
        """The chunks given to processors since last asked, with the numbers of these."""
        chunks = []
        for number, received in self.processors.items():
            found = [frame for frame in received if frame.kind == FrameKind.TASKS]
            chunks += [(number, frames.parse_tasks(frame.flags, frame.body)) for frame in found]
            received.clear()
        return chunks

    def start(self, number: int, chunk: frames.TaskChunk) -> None:
        """A processor runs the first task of a chunk."""
        self.page(number)[0] = chunk.first_position

    def finish(self, number: int, chunk: frames.TaskChunk, payload: bytes = b"r", is_large: bool = False) -> None:
        """A processor has run a chunk of one task."""
        self.page(number)[0] = chunk.first_position | FINISHED
        self.core.on_frames(number, [self.result(chunk, payload, is_large)])
        self.turn()

    def result(self, chunk: frames.TaskChunk, payload: bytes = b"r", is_large: bool = False) -> Frame:
        """The frame with the outcome of a chunk of one task."""
        buffers = frames.results_frame(
            first_position=chunk.first_position,
            busy_microseconds=1_000_000,
            payloads=[payload],
            large=b"\x01" if is_large else b"",
        )
        data = frames.join(buffers)
        _, kind, flags = frames.HEADER.unpack_from(data)
        return Frame(kind, flags, data[frames.HEADER.size :])

    def finish_large(self, number: int, chunk: frames.TaskChunk, size: int) -> None:
        """A processor has run a chunk of one task, whose result is a file."""
        path = f"{PREFIX}{1000 + number}-1"
        self.files[path] = bytearray(size)
        self.finish(number, chunk, frames.large_result(size, path), is_large=True)

    def die(self, number: int, description: str = "was ended by signal 9 (SIGKILL)") -> None:
        """A processor has ended."""
        if self.processors.pop(number, None) is not None:
            self.core.on_processor_died(number, description, self.now)

    @property
    def is_disconnected(self) -> bool:
        return Disconnect() in self.performed
