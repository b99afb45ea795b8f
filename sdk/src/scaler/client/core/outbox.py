"""The messages that a client has to send, in order; tasks are gathered into batches until the I/O thread sends them.

Rules:
- Everything is sent in order: a function before its tasks, its deletion after them.
- Consecutive tasks of one function and equal options join one batch, until it is full or sent.
- A batch is kept after it was sent: until its last task has an outcome, any of its tasks may have to be sent again. It
  holds everything needed for that, including its function, as columns. The futures of its tasks hold the batch.
- Object ids in this module are the client's; messages have those of the session (`wire_id`).
"""

from __future__ import annotations

from array import array
from itertools import accumulate, chain
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Protocol, Sequence, Tuple, Union

from scaler.client.core.handles import Buffer, TaskHandle
from scaler.client.core.kept_objects import KeptObject
from scaler.values.codecs import PYTHON_CODEC
from scaler_protocol.wire import messages as m

MAXIMUM_BATCH_TASKS = 1000
MAXIMUM_BATCH_BYTES = 4 * 1024 * 1024
MAXIMUM_BATCH_DEPENDENCIES = 512 * 1024  # they are in the header, of which the scheduler takes 64 MiB
ROOM_BYTES = 256 * 1024
"""Reserve for the header, and for the last task, by which a batch may exceed its limit."""


class FunctionByName(Protocol):
    """A function that workers serve by name."""

    @property
    def name(self) -> str: ...

    @property
    def codec(self) -> str: ...


FunctionKey = Union[int, FunctionByName]
"""Identifies a function: the object that holds it, or its name and codec."""

WireId = Callable[[int], int]


class TaskNeeds(List[int]):
    """The objects that a task needs, and the tasks whose results it needs.

    Parameters:
        object_ids: may be empty; the value is still truthy.
        predecessors: in the order of their places in the task's arguments.
    """

    def __init__(self, object_ids: Sequence[int], predecessors: Sequence[TaskHandle]) -> None:
        super().__init__(object_ids)
        self.predecessors = tuple(predecessors)

    def __bool__(self) -> bool:
        return True


class TaskRun:
    """Tasks of one function with consecutive ids, to be sent or already sent."""

    __slots__ = (
        "function", "function_object", "options", "first_id", "payloads", "payload_bytes", "dependency_counts",
        "dependencies", "futures_needed", "predecessor_count", "_ids_needed", "_payload", "_sizes",
    )  # fmt: skip

    def __init__(self, function: FunctionKey, options: Optional[m.TaskOptions], first_id: int) -> None:
        self.function = function
        self.options = options
        self.function_object: Optional[KeptObject] = None  # its content, for as long as it may be needed again
        self.first_id = first_id
        self.payloads: List[bytes] = []  # until they are sent
        self.payload_bytes = 0
        self.dependency_counts: Optional[array[int]] = None
        self.dependencies: array[int] = array("Q")
        self.futures_needed: Dict[int, Tuple[TaskHandle, ...]] = {}  # by task that needs their results
        self.predecessor_count = 0
        self._ids_needed: Dict[int, List[int]] = {}  # of their tasks, as these were numbered then
        self._payload: Optional[bytes] = None  # all payloads, once it was sent
        self._sizes: array[int] = array("I")

    @property
    def function_objects(self) -> Tuple[KeptObject, ...]:
        return () if self.function_object is None else (self.function_object,)

    @property
    def was_sent(self) -> bool:
        """Whether these tasks may have reached a scheduler."""
        return self._payload is not None

    def add_dependencies(self, dependencies: Sequence[int]) -> None:
        """Set the dependencies of the task added last."""
        if self.dependency_counts is None:
            self.dependency_counts = array("H", bytes(2 * (len(self.payloads) - 1)))
        self.dependency_counts.append(len(dependencies))
        self.dependencies.extend(dependencies)
        if type(dependencies) is TaskNeeds:
            task_id = self.first_id + len(self.payloads) - 1
            self._ids_needed[task_id] = [future._task_id for future in dependencies.predecessors]
            self.futures_needed[task_id] = dependencies.predecessors
            self.predecessor_count += len(dependencies.predecessors)

    def sizes_of(self, task_ids: List[int]) -> List[int]:
        """The payload bytes of each of some tasks."""
        if self._payload is None:
            return [len(self.payloads[task_id - self.first_id]) for task_id in task_ids]
        return [self._sizes[task_id - self.first_id] for task_id in task_ids]

    def close(self) -> None:
        """The tasks are being sent: no more can be added."""
        if self._payload is None:
            self._sizes = array("I", map(len, self.payloads))
            self._payload = b"".join(self.payloads)
            self.payloads = []

    def was_sent_alone(self, payload: bytes) -> None:
        """The run has one task, with this payload, which has been sent."""
        self.payload_bytes = len(payload)
        self._sizes.append(len(payload))
        self._payload = payload

    def message(self, wire_id: WireId) -> Tuple[m.Task, List[Buffer]]:
        """A message with all tasks. After this no task can be added."""
        self.close()
        assert self._payload is not None
        # SCL-CLT-011, SCL-COD-001
        task = m.Task(
            ids=array("Q", range(self.first_id, self.first_id + len(self._sizes))),
            payload_sizes=self._sizes,
            codec=PYTHON_CODEC,
        )
        if isinstance(self.function, int):
            task.function = wire_id(self.function)
        else:
            task.function_name, task.codec = self.function.name, self.function.codec
        if self.options is not None:
            task.options = self.options
        if self.dependency_counts is not None:
            self.dependency_counts.extend([0] * (len(self._sizes) - len(self.dependency_counts)))
            task.dependency_counts = self.dependency_counts
            task.dependencies = array("Q", map(wire_id, self.dependencies))
        if self._ids_needed:
            rows = [self._ids_needed.get(task_id, ()) for task_id in task.ids]
            task.predecessor_counts = array("H", map(len, rows))
            task.predecessors = array("Q", chain.from_iterable(rows))
        return task, [self._payload]

    def part(self, task_ids: List[int], wire_id: WireId) -> Tuple[m.Task, List[Buffer]]:
        """A message with some of the tasks, by ascending ids, to send them again."""
        task, payload = self.message(wire_id)
        if len(task_ids) == len(task.ids):
            return task, payload
        content = memoryview(payload[0])
        offsets = list(accumulate(task.payload_sizes, initial=0))
        positions = [task_id - self.first_id for task_id in task_ids]
        if task.dependency_counts:
            task.dependency_counts, task.dependencies = _part(task.dependency_counts, task.dependencies, positions)
        if task.predecessor_counts:
            task.predecessor_counts, task.predecessors = _part(task.predecessor_counts, task.predecessors, positions)
        task.ids = array("Q", task_ids)
        task.payload_sizes = array("I", [task.payload_sizes[position] for position in positions])
        return task, [content[offsets[position] : offsets[position + 1]] for position in positions]


def _part(counts: array[int], entries: array[int], positions: List[int]) -> Tuple[array[int], array[int]]:
    """The entries of some of the tasks in a column with several entries per task."""
    places = list(accumulate(counts, initial=0))
    found = array("Q")
    for position in positions:
        found.extend(entries[places[position] : places[position + 1]])
    return array("H", [counts[position] for position in positions]), found


class GraphRun:
    """A graph of tasks with consecutive ids, of which some are targets.

    Parameters:
        columns: of the message, with this client's ids of objects, and without ids of tasks.
        functions: the objects of its functions, kept for as long as they may be needed again.
    """

    __slots__ = ("options", "first_id", "was_sent", "function_objects", "_columns", "_payload")

    def __init__(self, columns: m.GraphTask, payload: bytes, functions: Sequence[Optional[KeptObject]]) -> None:
        self.options = columns.options
        self.first_id = 0
        self.was_sent = False
        self.function_objects = tuple(filter(None, functions))
        self._columns = columns
        self._payload = payload

    def __len__(self) -> int:
        return len(self._columns.payload_sizes)

    @property
    def content(self) -> Tuple[m.GraphTask, bytes]:
        """What it was made with: columns and payload."""
        return self._columns, self._payload

    def message(self, wire_id: WireId) -> Tuple[m.GraphTask, List[Buffer]]:
        self.was_sent = True
        columns = self._columns
        functions = {function: wire_id(function) for function in set(columns.functions)}
        graph = m.GraphTask(
            ids=array("Q", range(self.first_id, self.first_id + len(self))),
            payload_sizes=columns.payload_sizes,
            functions=array("Q", map(functions.__getitem__, columns.functions)),
            predecessor_offsets=columns.predecessor_offsets,
            predecessors=columns.predecessors,
            targets=columns.targets,
            codec=PYTHON_CODEC,
            options=columns.options,
            dependency_counts=columns.dependency_counts,
            dependencies=array("Q", map(wire_id, columns.dependencies)),
        )
        return graph, [self._payload]

    def part(self, task_ids: List[int], wire_id: WireId) -> Tuple[m.GraphTask, List[Buffer]]:
        """The graph again, for some of its targets: the scheduler runs what these need."""
        graph, payload = self.message(wire_id)
        graph.targets = array("I", [task_id - self.first_id for task_id in task_ids])
        return graph, payload


Run = Union[TaskRun, GraphRun]


class RunAgain(NamedTuple):
    """Tasks of a run that have no outcome yet, for another session."""

    run: Run
    task_ids: List[int]

    def message(self, wire_id: WireId) -> Tuple[m.Member, List[Buffer]]:
        return self.run.part(self.task_ids, wire_id)


class OutgoingMessage(NamedTuple):
    """Any other message."""

    content: m.Member
    payload: Sequence[Buffer] = ()

    def message(self, wire_id: WireId) -> Tuple[m.Member, Sequence[Buffer]]:
        return self


class OutgoingObject(NamedTuple):
    """The announcement of an object that is not part of the message."""

    instruction: m.ObjectInstruction
    kept: KeptObject


Outgoing = Union[TaskRun, GraphRun, RunAgain, OutgoingMessage, OutgoingObject]


class Outbox:
    """Parameters:
    find_object: the kept object of an id, or None.
    """

    def __init__(self, find_object: Callable[[int], Optional[KeptObject]]) -> None:
        self._find_object = find_object
        self.items: List[Outgoing] = []
        self.open_run: Optional[TaskRun] = None
        self._closed_tasks = self._closed_bytes = 0
        self.batch_bytes = MAXIMUM_BATCH_BYTES

    def set_limits(self, limits: m.Limits) -> None:
        """Keep batches from now on within the size that the scheduler accepts."""
        # SCL-SEC-007
        if limits.maximum_message_bytes:
            self.batch_bytes = max(0, min(MAXIMUM_BATCH_BYTES, limits.maximum_message_bytes - ROOM_BYTES))

    @property
    def task_count(self) -> int:
        """The number of tasks that were ever added."""
        return self._closed_tasks + (0 if self.open_run is None else len(self.open_run.payloads))

    @property
    def task_bytes(self) -> int:
        """The bytes of their payloads, and of objects that are their arguments."""
        return self._closed_bytes + (0 if self.open_run is None else self.open_run.payload_bytes)

    def delete_objects(self, object_ids: Sequence[int], wire_id: WireId, charged_bytes: int) -> None:
        """Let only tasks hold these objects from now on.

        Parameters:
            charged_bytes: of those that are the arguments of a task: they are in flight from now on.
        """
        self.add(m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=array("Q", map(wire_id, object_ids))))
        self._closed_bytes += charged_bytes

    def close_run(self) -> None:
        """Close the open run, because the next task's id does not follow its ids."""
        if self.open_run is not None:
            self._closed_tasks += len(self.open_run.payloads)
            self._closed_bytes += self.open_run.payload_bytes
            self.open_run = None

    def open(self, function: FunctionKey, task_id: int, options: Optional[m.TaskOptions]) -> TaskRun:
        """Begin a run that the next tasks may join."""
        self.close_run()
        run = self.open_run = TaskRun(function, options, task_id)
        run.function_object = self.function_object(function)
        self.items.append(run)
        return run

    def add_task(
        self,
        function: FunctionKey,
        task_id: int,
        payload: bytes,
        dependencies: Sequence[int] = (),
        options: Optional[m.TaskOptions] = None,
    ) -> TaskRun:
        """Add a task; returns the run that it has joined."""
        # SCL-CLT-010
        run = self.open_run
        if (
            run is None
            # SCL-CLT-013
            or run.function != function
            or run.options is not options  # equal options are one object
            or run.payload_bytes > self.batch_bytes
            or len(run.payloads) >= MAXIMUM_BATCH_TASKS
        ):
            run = self.open(function, task_id, options)
        run.payloads.append(payload)
        run.payload_bytes += len(payload)
        if dependencies:
            run.add_dependencies(dependencies)
        elif run.dependency_counts is not None:
            run.dependency_counts.append(0)
        if len(run.payloads) >= MAXIMUM_BATCH_TASKS or (
            dependencies and len(run.dependencies) + run.predecessor_count >= MAXIMUM_BATCH_DEPENDENCIES
        ):
            self.close_run()
        return run

    def add(self, message: m.Member, payload: Sequence[Buffer] = ()) -> None:
        self.close_run()
        self.items.append(OutgoingMessage(message, payload))

    def add_object(self, instruction: m.ObjectInstruction, kept: KeptObject) -> None:
        self.close_run()
        self.items.append(OutgoingObject(instruction, kept))

    def add_sent(
        self, function: FunctionKey, task_id: int, payload: bytes, options: Optional[m.TaskOptions]
    ) -> TaskRun:
        """Count a task that has been sent already; returns its run."""
        self.close_run()
        run = TaskRun(function, options, task_id)
        run.function_object = self.function_object(function)
        run.was_sent_alone(payload)
        self._closed_tasks += 1
        self._closed_bytes += len(payload)
        return run

    def detached(
        self, function: FunctionKey, task_id: int, payload: bytes, options: Optional[m.TaskOptions]
    ) -> TaskRun:
        """A run of one task, which is not counted and not sent yet."""
        run = TaskRun(function, options, task_id)
        run.function_object = self.function_object(function)
        run.payloads.append(payload)
        run.payload_bytes = len(payload)
        return run

    def function_object(self, function: FunctionKey) -> Optional[KeptObject]:
        """The kept object of a function; None for a named function, or if it is gone."""
        return self._find_object(function) if isinstance(function, int) else None

    def add_graph(self, run: GraphRun) -> None:
        self.close_run()
        self.items.append(run)

    def add_again(self, run: Run, task_ids: List[int]) -> None:
        """Queue tasks of an earlier session."""
        self.close_run()
        if isinstance(run, TaskRun):
            sizes = run.sizes_of(task_ids)
            self._closed_tasks += len(task_ids)
            self._closed_bytes += sum(sizes)
            for part in _parts(task_ids, sizes, self.batch_bytes):
                self.items.append(RunAgain(run, part))
        else:
            self.items.append(RunAgain(run, task_ids))

    def take(self) -> List[Outgoing]:
        items, self.items = self.items, []
        self.close_run()
        return items


def _parts(task_ids: List[int], sizes: List[int], batch_bytes: int) -> Iterator[List[int]]:
    """Tasks divided into messages: each ends with the task that fills the batch, as when they were first added."""
    start = part_bytes = 0
    for index, size in enumerate(sizes):
        if part_bytes > batch_bytes:
            yield task_ids[start:index]
            start, part_bytes = index, 0
        part_bytes += size
    yield task_ids[start:]
