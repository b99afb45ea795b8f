"""A bench for the way of tasks through an agent: it plays all the rest, without process or clock."""

from __future__ import annotations

from array import array
from typing import Any, Dict, List, Optional, Sequence, Tuple

from scaler.worker import frames
from scaler.worker.agent.core.effects import Deliver, KillProcessor, MeasureMemory, Send, SpawnProcessor, StopProcessor
from scaler.worker.agent.core.processor_pool import BLOCKED_SLOT_SECONDS
from scaler.worker.agent.core.task_flow import TaskFlow, TaskFlowSettings
from scaler.worker.frames import ContentPlace, Frame, FrameKind
from scaler.worker.progress import FINISHED
from scaler_protocol import decode_struct
from scaler_protocol import messages as m

FUNCTION = 7
SHORT_MICROSECONDS, LONG_MICROSECONDS = 2, 50_000
CANCELLED, RUNNING, NOT_FOUND = m.CancelOutcome.CANCELLED, m.CancelOutcome.RUNNING, m.CancelOutcome.NOT_FOUND


class Objects:
    """An object store that holds what a test puts there."""

    def __init__(self) -> None:
        self.available = {0, FUNCTION}
        self.fetched: List[int] = []
        self.adopted: List[Tuple[str, int]] = []
        self.maximum_object_bytes = 0

    def forget_unused(self, now: float, retention_seconds: float, needed: Any) -> None:
        self.needed = needed()

    def is_available(self, object_id: int) -> bool:
        return object_id in self.available

    def fetch(self, object_id: int) -> None:
        self.fetched.append(object_id)

    def definition(self, object_id: int) -> Optional[Tuple[int, ContentPlace, bytes]]:
        return (m.ObjectKind.VALUE, ContentPlace.INLINE, b"content") if object_id in self.available else None

    def adopt(self, path: str, size: int) -> int:
        self.adopted.append((path, size))
        return 0 if 0 < self.maximum_object_bytes < size else 5000 + len(self.adopted)


def too_large_payload(size: int, maximum: int, attempt: int, is_neutral: bool) -> bytes:
    """What takes the place of a pickled exception."""
    return f"{size} of {maximum} bytes, attempt {attempt}".encode()


class Bench:
    """A task flow, and what a test needs to play the agent, the scheduler and the processors."""

    def __init__(self, slots: int = 1, timeout: float = 0.0) -> None:
        self.objects = Objects()
        self.effects: List[Any] = []
        self.pages: Dict[int, memoryview] = {}
        self.resident: Dict[int, int] = {}
        settings = TaskFlowSettings(slots, "worker under test", timeout)
        self.flow = TaskFlow(settings, self.page, self.objects, self.effects, too_large_payload)
        self.flow.pool.fill()
        self.spawned: List[SpawnProcessor] = []
        self.killed: List[int] = []
        self.stopped: List[int] = []
        self.sent: List[Tuple[Any, bytes]] = []
        self.frames: Dict[int, List[Frame]] = {}
        self.now = 100.0
        self.turn()
        for spawn in self.spawned:
            self.flow.on_processor_started(spawn.number, 1000 + spawn.number)

    def page(self, number: int) -> memoryview:
        if number not in self.pages:
            self.pages[number] = memoryview(bytearray(8)).cast("Q")
        return self.pages[number]

    def turn(self) -> None:
        """What the agent does once a turn of its loop."""
        self.flow.finish_turn(self.now)
        effects, self.effects[:] = list(self.effects), []
        for effect in effects:
            if isinstance(effect, Deliver):
                data = frames.join(effect.buffers)
                size, kind, flags = frames.HEADER.unpack_from(data)
                assert len(data) == frames.HEADER.size + size
                self.frames.setdefault(effect.number, []).append(Frame(kind, flags, data[frames.HEADER.size :]))
            elif isinstance(effect, Send):
                self.sent.append((effect.message, bytes(effect.payload)))
            elif isinstance(effect, SpawnProcessor):
                self.spawned.append(effect)
            elif isinstance(effect, KillProcessor):
                self.killed.append(effect.number)
            elif isinstance(effect, StopProcessor):
                self.stopped.append(effect.number)
            elif isinstance(effect, MeasureMemory):
                self.flow.on_memory_measured({each: self.resident.get(each, 0) for each in effect.process_ids})
                self.turn()

    def send_tasks(
        self, ids: Sequence[int], dependencies: Optional[Sequence[Sequence[int]]] = None, **fields: Any
    ) -> None:
        options = m.TaskOptions(**fields.pop("options", {}))
        payloads = [b"payload of %d" % instance for instance in ids]
        message = m.Task(
            ids=ids, payload_sizes=list(map(len, payloads)), function=FUNCTION, codec="cloudpickle", options=options
        )
        for name, value in fields.items():
            setattr(message, name, value)
        if dependencies is not None:
            message.dependency_counts = array("H", map(len, dependencies))
            message.dependencies = array("Q", [i for needed in dependencies for i in needed])
        self.flow.on_tasks(message, b"".join(payloads))
        self.turn()

    def learn(self, microseconds: int) -> None:
        """Let the core learn how long the function takes."""
        self.send_tasks([1])
        number, chunk = self.dealt()[0]
        self.finish(number, chunk, busy_microseconds=microseconds)
        self.outcomes()

    def dealt(self) -> List[Tuple[int, frames.TaskChunk]]:
        """The chunks dealt since last asked, with the number of their processor; payloads are checked on the way."""
        chunks = []
        for number, received in self.frames.items():
            for frame in received:
                if frame.kind == FrameKind.TASKS:
                    chunk = frames.parse_tasks(frame.flags, frame.body)
                    expected = b"".join(b"payload of %d" % instance for instance in chunk.ids)
                    assert frame.body[chunk.payload_offset :] == expected
                    chunks.append((number, chunk))
            received[:] = [frame for frame in received if frame.kind != FrameKind.TASKS]
        return chunks

    def dealt_ids(self) -> List[List[int]]:
        return sorted(list(chunk.ids) for _, chunk in self.dealt())

    def kinds(self, number: int) -> List[FrameKind]:
        kinds = [FrameKind(frame.kind) for frame in self.frames.get(number, [])]
        self.frames.pop(number, None)
        return kinds

    def start(self, number: int, position: int) -> None:
        self.page(number)[0] = position

    def finish(
        self,
        number: int,
        chunk: frames.TaskChunk,
        start: int = 0,
        stop: Optional[int] = None,
        busy_microseconds: int = 0,
        **columns: Any,
    ) -> None:
        """Outcomes of a part of a chunk arrive (by default: of all of it)."""
        stop = chunk.task_count if stop is None else stop
        payloads = columns.pop("payloads", None) or [b"r%d" % instance for instance in chunk.ids[start:stop]]
        self.page(number)[0] = chunk.first_position + stop - 1 | FINISHED
        buffers = frames.results_frame(
            first_position=chunk.first_position + start,
            busy_microseconds=busy_microseconds * (stop - start),
            payloads=payloads,
            **columns,
        )
        data = frames.join(buffers)
        _, _, flags = frames.HEADER.unpack_from(data)
        self.flow.on_results(number, frames.parse_results(flags, data[frames.HEADER.size :]))
        self.turn()

    def die(self, number: int, description: str = "was ended by signal 9 (SIGKILL)", stack: str = "") -> None:
        self.flow.on_processor_died(number, description, self.now, stack)
        self.turn()

    def outcomes(self) -> Dict[int, Tuple[int, bytes]]:
        """Status and payload of the outcomes sent since last asked."""
        found: Dict[int, Tuple[int, bytes]] = {}
        for message, payload in self.take(m.TaskResult):
            start = 0
            for index, instance in enumerate(message.ids):
                stop = start + message.payload_sizes[index]
                status = message.statuses[index] if message.statuses else 0
                assert instance not in found
                found[instance] = (status, payload[start:stop])
                start = stop
            assert start == len(payload)
        return found

    def lost(self, instance: int) -> m.Failure:
        status, payload = self.outcomes()[instance]
        assert status == m.TaskStatus.LOST
        return decode_struct(m.Failure, payload)

    def confirmed(self) -> Dict[int, int]:
        answers: Dict[int, int] = {}
        for message, _ in self.take(m.TaskCancelConfirm):
            for instance, outcome in zip(message.ids, message.outcomes):
                assert instance not in answers
                answers[instance] = outcome
        return answers

    def take(self, kind: type) -> List[Tuple[Any, bytes]]:
        taken = [item for item in self.sent if isinstance(item[0], kind)]
        self.sent = [item for item in self.sent if not isinstance(item[0], kind)]
        return taken

    def cancel(self, *ids: int, force: bool = False) -> None:
        self.flow.on_cancel(m.TaskCancel(ids=ids, force=force))
        self.turn()

    def block(self, number: int) -> None:
        """A processor's task waits for others, and has done so for longer than its slot is kept for these."""
        self.flow.on_blocked(number)
        self.turn()
        self.tick(2 * BLOCKED_SLOT_SECONDS)

    def tick(self, seconds: float) -> None:
        """Time goes by; the agent looks at its processors at least once a second."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 1.0)
            self.flow.tick(self.now)
        self.turn()

    def stop(self, seconds: float) -> None:
        """The agent does not run for a while."""
        self.now += seconds
        self.flow.tick(self.now)
        self.turn()


def short_tasks_on_one_processor(ids: Sequence[int], slots: int = 1, **fields: Any) -> Tuple[Bench, int, Any]:
    bench = Bench(slots)
    bench.learn(SHORT_MICROSECONDS)
    bench.send_tasks(ids, **fields)
    [(number, chunk)] = bench.dealt()
    return bench, number, chunk
