"""Simulated processors: they get the frames of real ones, and answer with frames.

Rules:
- A chunk is run task by task; outcomes are sent together, or one by one. When a task takes long, what is finished is
  sent, and what is behind it is given back, also what arrives until the agent has said SETTLED.
- A processor that has code of a client runs only tasks whose function needs the same code, and finds all of it.
- A processor that is killed does nothing more; what it has sent still arrives, and then the news of its death.
"""

from __future__ import annotations

from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Optional, Sequence, Tuple

from whole_system.simulated_world import Pipe, Process, World
from whole_system.user_tasks import Kills, Task, key_of, split

from scaler.values.code_notes import read_note
from scaler.worker import frames
from scaler.worker.agent.core.agent_identity import Chance
from scaler.worker.agent.core.dead_processors import FOR_LACK_OF_MEMORY
from scaler.worker.agent.core.heartbeats import LARGE_BYTES, ProcessUsage
from scaler.worker.frames import ContentPlace, Frame, FrameKind
from scaler.worker.progress import FINISHED, LOADING
from scaler_protocol import encode_struct
from scaler_protocol import messages as m

if TYPE_CHECKING:
    from whole_system.nested_users import NestedUser
    from whole_system.worker_host import WorkerHost

LONG_SECONDS = 0.04
MAXIMUM_DEPTH = 2  # of tasks that wait for tasks of their own

SLOWNESS = (2.0, 3.0, 6.0)

Outcome = Tuple[int, bytes, bool]  # status, payload, whether it names the file of a large result


class Slowness:
    """How many times as long as usual tasks take at a worker."""

    def __init__(self, world: World, name: str) -> None:
        self._drawn = f"slowness: {world.plan.seed} {name}"  # apart from all other draws
        random = Random(self._drawn)
        self._usual = random.choice(SLOWNESS) if random.random() < world.rates["slow_workers"] else 1.0
        self._rate = world.rates["slow_functions"]
        self._by_function: Dict[bytes, float] = {}

    def of(self, task: Task) -> float:
        """Of a task there."""
        if not self._rate:
            return self._usual
        known = self._by_function.get(task.function)
        if known is None:
            random = Random(f"{self._drawn} {task.function!r}")
            known = random.choice((1.0, *SLOWNESS)) if random.random() < self._rate else self._usual
            self._by_function[task.function] = known
        return known


def chance_of(random: Random) -> Chance:
    """What an agent leaves to chance."""
    return Chance(random.random, count(1))


def measured(seed: int, process_ids: Iterable[int]) -> Tuple[Dict[int, ProcessUsage], int]:
    """What processes have, and what the host has left: in some histories, much of it."""
    size, left = ((2, 3), (LARGE_BYTES, 3), (LARGE_BYTES, 3 * LARGE_BYTES))[seed % 3]
    return {each: ProcessUsage(1, size * (1 + each % 2)) for each in process_ids}, left


def end_of_deadly(seed: int) -> str:
    """How the processors of deadly tasks end."""
    killed = f"was ended by signal 9 (SIGKILL) {FOR_LACK_OF_MEMORY}"
    return killed if seed % 4 == 1 else "was ended by signal 11 (SIGSEGV)"


class MissingContentError(Exception):
    """A file or object is not there."""


class Processor(Process):
    def __init__(self, host: WorkerHost, number: int, process_id: int) -> None:
        super().__init__(host.world)
        self.host = host
        self.number = number
        self.process_id = process_id
        self.page = host.page(number)
        self.actor = 0  # as its agent knows better
        self.is_started = False
        self.is_dismissed = False  # its agent has asked it to end, or ends it
        self.inbox = Pipe(self, self._arrive, host.frame_delay)
        self.outbox = Pipe(host, self._deliver, host.frame_delay)
        self._frames: List[Frame] = []
        self._objects: Dict[int, bytes] = {}
        self._prefix = ""
        self._code_key = ""
        self._folders: Sequence[str] = ()  # of code, from which it imports
        self._files = 0
        self._chunk: Any = None
        self._keys: List[int] = []
        self._index = 0  # of the task that runs
        self._limit = 0  # tasks of the chunk that are not given back
        self._outcomes: List[Outcome] = []
        self._flushed = 0
        self._is_handed_over = False
        self._unsettled = 0
        self._is_running = False
        self._clients: Dict[str, NestedUser] = {}  # of tasks that run here, by tenant
        self.arriving_instances: List[List[int]] = []  # of the outcomes that are under way, frame by frame
        self.held = 0  # tasks, as the agent sees it
        self.is_blocked = False  # as the agent sees it

    # The agent's side -----------------------------------------------------------------------------------------------

    def _deliver(self, item: Any) -> None:
        if isinstance(item, str):
            self.host.on_processor_ended(self, item)
        else:
            self.host.on_frame(self, item)

    def note_received(self, frame: Frame) -> None:
        """The agent gets a frame."""
        if frame.kind == FrameKind.RESULTS:
            self.held -= len(frames.parse_results(frame.flags, frame.body).sizes)
        elif frame.kind == FrameKind.GIVEN_BACK:
            self.held -= sum(count for _, count in frames.parse_given_back(frame.body))
        elif frame.kind in (FrameKind.BLOCKED, FrameKind.RESUMED):
            self.is_blocked = frame.kind == FrameKind.BLOCKED

    def start(self) -> None:
        self.is_started = True
        self._next()

    def die(self, description: str) -> None:
        """It ends now; the agent learns it after what it has sent."""
        if self.is_alive:
            self.is_alive = False
            for client in self._clients.values():
                client.host.crash()
            for task in self._started_tasks():
                task.death_count += 1
            self.outbox.send(description)

    def _started_tasks(self) -> List[Task]:
        """Those that have begun, and whose outcomes are not sent."""
        if self._chunk is None:
            return []
        stop = min(self._index + self._is_running, len(self._keys))
        return [self.host.tasks[key] for key in self._keys[self._flushed : stop]]

    def _send(self, buffers: frames.Buffers) -> None:
        data = frames.join(buffers)
        _, kind, flags = frames.HEADER.unpack_from(data)
        self.outbox.send(Frame(kind, flags, data[frames.HEADER.size :]))

    # Frames ---------------------------------------------------------------------------------------------------------

    def _arrive(self, frame: Frame) -> None:
        if frame.kind == FrameKind.SETTLED:
            self._unsettled -= 1
        elif frame.kind == FrameKind.TASKS and self._unsettled:
            chunk = frames.parse_tasks(frame.flags, frame.body)
            self._give_back([(chunk.first_position, chunk.task_count)])
        else:
            self._frames.append(frame)
            self._next()

    def _next(self) -> None:
        while self.is_alive and self.is_started and self._chunk is None and self._frames:
            frame = self._frames.pop(0)
            if frame.kind == FrameKind.TASKS:
                self._begin(frames.parse_tasks(frame.flags, frame.body))
            elif frame.kind == FrameKind.DEFINE:
                object_id, _, place, content = frames.parse_define(frame.body)
                self._define(object_id, place, bytes(content))
            elif frame.kind == FrameKind.DROP:
                for object_id in frames.parse_drop(frame.body):
                    self._objects.pop(object_id, None)
            elif frame.kind == FrameKind.OBJECT_DIRECTORY:
                self._prefix = frames.parse_object_directory(frame.body)
            elif frame.kind == FrameKind.CODE:
                assert not self._code_key, "a processor gets code of two kinds"
                self._code_key, self._folders = frames.parse_code(frame.body)
            elif frame.kind == FrameKind.STOP:
                self.die("exited with code 0")
            else:
                assert frame.kind == FrameKind.COLLECT_GARBAGE, frame.kind

    def _define(self, object_id: int, place: int, content: bytes) -> None:
        if place == ContentPlace.FILE:
            found = self.host.read(content.decode())
            if found is None:
                return
            content = found
        self._objects[object_id] = content

    # Running --------------------------------------------------------------------------------------------------------

    def _begin(self, chunk: Any) -> None:
        self._chunk = chunk
        self._payloads, offset = [], chunk.payload_offset
        for size in chunk.sizes:
            self._payloads.append(bytes(chunk.body[offset : offset + size]))
            offset += size
        self._keys = [key_of(split(payload)[1]) for payload in self._payloads]
        self._index = self._flushed = 0
        self._limit = chunk.task_count
        self._outcomes = []
        self._is_handed_over = False
        if chunk.function in self._objects and self.world.random.random() < 0.8:
            self._start_task()
        else:
            self.page[0] = chunk.first_position | LOADING
            self.after(0.001, self._start_task)

    def _start_task(self) -> None:
        position = self._chunk.first_position + self._index
        task = self.host.tasks[self._keys[self._index]]
        seconds = self._seconds_of(task)
        self.page[0] = position
        self._is_running = True
        self.host.on_task_started(task, self._chunk.ids[self._index])
        if task.actor is not None:
            self.world.calls.on_started(task, self)
        if task.kills == Kills.PROCESSOR or self.world.fault("processor_death"):
            self.after(seconds / 2, lambda: self._die_in(position))
        elif task.kills == Kills.WORKER:
            self.after(seconds / 2, lambda: self._kill_worker(position))
        if seconds > LONG_SECONDS or task.is_blocking:
            self.after(LONG_SECONDS / 2, lambda: self._look(position))
        if task.is_blocking:
            self.after(seconds / 2, lambda: self._block(position))
        else:
            self.after(seconds, lambda: self._end_task(position))

    def _seconds_of(self, task: Task) -> float:
        """How long a task runs here."""
        return task.seconds * self.host.slowness.of(task)

    def _is_at(self, position: int) -> bool:
        return self._is_running and self._chunk.first_position + self._index == position

    def _die_in(self, position: int) -> None:
        if self._is_at(position):
            self.die(end_of_deadly(self.world.plan.seed))

    def _kill_worker(self, position: int) -> None:
        """As a task does that takes all memory of its host."""
        if self._is_at(position):
            self.host.crash()

    def _look(self, position: int) -> None:
        """The watchdog finds a task that takes long."""
        if self._is_at(position) and self._chunk.task_count > 1 and not self._is_handed_over:
            self._post()

    def _post(self) -> None:
        self._is_handed_over = True
        ranges = []
        first = self._index + 1
        if self._limit > first:
            ranges.append((self._chunk.first_position + first, self._limit - first))
            self._limit = first
        self._send_outcomes()
        self._give_back(ranges)
        arrived, kept = [], []
        for frame in self._frames:
            if frame.kind == FrameKind.TASKS:
                chunk = frames.parse_tasks(frame.flags, frame.body)
                arrived.append((chunk.first_position, chunk.task_count))
            else:
                kept.append(frame)
        self._frames = kept
        if arrived:
            self._give_back(arrived)

    def _give_back(self, ranges: List[Tuple[int, int]]) -> None:
        self._unsettled += 1
        self._send(frames.given_back_frame(ranges))

    def _block(self, position: int) -> None:
        if self._chunk.task_count > 1 and not self._is_handed_over:
            self._post()
        self._send(frames.signal_frame(FrameKind.BLOCKED))
        task = self.host.tasks[self._keys[self._index]]
        if task.depth < MAXIMUM_DEPTH and self.world.uses("nested"):
            client = self._clients.get(task.tenant)
            if client is None or not client.is_usable:
                client = self._clients[task.tenant] = self.host.new_client(task.tenant)
            client.run_task(task.depth, lambda: self.after(0.0, lambda: self._resume(position)))
        else:
            self.after(self.world.random.choice((0.01, 0.2)), lambda: self._resume(position))

    def _resume(self, position: int) -> None:
        self._send(frames.signal_frame(FrameKind.RESUMED))
        self.after(self._seconds_of(self.host.tasks[self._keys[self._index]]) / 2, lambda: self._end_task(position))

    def _end_task(self, position: int) -> None:
        assert self._is_at(position)
        self._outcomes.append(self._outcome(self.host.tasks[self._keys[self._index]]))
        self._is_running = False
        self._index += 1
        is_last = self._index >= self._limit
        if is_last or self.world.random.random() < 0.3:
            self.page[0] |= FINISHED
            if self.world.fault("processor_death"):  # with outcomes that it has not sent
                self.die("exited with code 1")
                return
            self._send_outcomes()
        if is_last:
            self._chunk = None
            self._next()
        else:
            self._start_task()

    def _send_outcomes(self) -> None:
        outcomes, self._outcomes = self._outcomes, []
        if not outcomes:
            return
        statuses = bytes(status for status, _, _ in outcomes)
        large = bytes(is_large for _, _, is_large in outcomes)
        self._send(
            frames.results_frame(
                first_position=self._chunk.first_position + self._flushed,
                busy_microseconds=self._busy_microseconds(len(outcomes)),
                payloads=[payload for _, payload, _ in outcomes],
                statuses=statuses if any(statuses) else b"",
                large=large if any(large) else b"",
            )
        )
        stop = self._flushed + len(outcomes)
        self.arriving_instances.append(list(self._chunk.ids[self._flushed : stop]))
        self._flushed = stop

    def _busy_microseconds(self, count: int) -> int:
        """How long the last tasks took, or in some systems anything."""
        tasks = [self.host.tasks[key] for key in self._keys[self._flushed : self._flushed + count]]
        if not self.host.is_exact:
            each = self.world.random.choice((1, 300, 10_000))
            return int(sum(each * self.host.slowness.of(task) for task in tasks))
        return int(sum(map(self._seconds_of, tasks)) * 1e6) + count

    # Results --------------------------------------------------------------------------------------------------------

    def _outcome(self, task: Task) -> Outcome:
        try:
            inputs = self._inputs()
        except MissingContentError as error:
            failure = m.Failure(kind=m.FailureKind.OBJECT_MISSING, message=str(error), attempts=1)
            return m.TaskStatus.FAILED, encode_struct(failure), False
        if task.is_raising:
            failure = m.Failure(kind=m.FailureKind.TASK_RAISED, message=task.payload.decode(), attempts=1)
            return m.TaskStatus.FAILED, encode_struct(failure), False
        result = task.result(inputs)
        if not task.is_large:
            return m.TaskStatus.SUCCESS, result, False
        self._files += 1
        path = f"{self._prefix}{self.process_id}-{self._files}"
        self.host.write(path, result)
        return m.TaskStatus.SUCCESS, frames.large_result(len(result), path), True

    def _inputs(self) -> List[bytes]:
        chunk, index = self._chunk, self._index
        dependencies: List[int] = []
        if chunk.dependency_counts:
            start = sum(chunk.dependency_counts[:index])
            dependencies = list(chunk.dependencies[start : start + chunk.dependency_counts[index]])
        results, _ = split(self._payloads[index])
        contents = [self._content(each) for each in (chunk.function, *dependencies)]
        objects = iter(contents[len(contents) - results.count(None) :])
        function, *own = contents[: len(contents) - results.count(None)]
        own = [function, *self._code_of(function), *own]
        return own + [next(objects) if each is None else each for each in results]

    def _code_of(self, function: bytes) -> List[bytes]:
        """The archives that a function needs, as this processor can import them."""
        note = read_note(function)
        assert note.key == self._code_key, "a task runs in a processor with other code"
        folders = [f"/code/{digest}" for _, digest in note.archives]
        missing = [each for each in folders if each not in self._folders or each not in self.host.folders]
        if missing:
            raise MissingContentError(f"code is not there: {missing}")
        return [self.host.folders[each] for each in folders]

    def _content(self, object_id: int) -> bytes:
        found: Optional[bytes] = self._objects.get(object_id)
        if found is None:
            raise MissingContentError(f"object {object_id:x} is not at the processor")
        return found
