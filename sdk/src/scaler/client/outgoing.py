"""What a client has to send, in order, gathered into batches while nobody is looking.

Rules:
- Order is kept between everything that is sent: a function precedes its tasks, its deletion follows them.
- Consecutive tasks of one function and equal options join one batch, until it is full or taken away to be sent.
- Not thread safe: its client's lock protects it.
"""

from __future__ import annotations

from array import array
from typing import List, NamedTuple, Optional, Sequence, Tuple, Union

from scaler.payload import Buffer
from scaler_protocol import messages as m

MAXIMUM_BATCH_TASKS = 1000
MAXIMUM_BATCH_BYTES = 4 * 1024 * 1024

CODEC = "cloudpickle"


class TaskRun:
    """Tasks of one function with consecutive ids, on their way."""

    __slots__ = ("function", "options", "first_id", "payloads", "payload_bytes", "dependency_counts", "dependencies")

    def __init__(self, function: int, options: Optional[m.TaskOptions], first_id: int) -> None:
        self.function = function
        self.options = options
        self.first_id = first_id
        self.payloads: List[bytes] = []
        self.payload_bytes = 0
        self.dependency_counts: Optional[array[int]] = None
        self.dependencies: array[int] = array("Q")

    def add_dependencies(self, dependencies: Sequence[int]) -> None:
        """Set the dependencies of the task added last."""
        if self.dependency_counts is None:
            self.dependency_counts = array("H", bytes(2 * (len(self.payloads) - 1)))
        self.dependency_counts.append(len(dependencies))
        self.dependencies.extend(dependencies)

    def message(self) -> Tuple[m.Task, List[Buffer]]:
        count = len(self.payloads)
        task = m.Task(
            ids=array("Q", range(self.first_id, self.first_id + count)),
            payload_sizes=array("I", map(len, self.payloads)),
            function=self.function,
            codec=CODEC,
        )
        if self.options is not None:
            task.options = self.options
        if self.dependency_counts is not None:
            self.dependency_counts.extend([0] * (count - len(self.dependency_counts)))
            task.dependency_counts = self.dependency_counts
            task.dependencies = self.dependencies
        return task, [b"".join(self.payloads)]


class OutgoingMessage(NamedTuple):
    content: m.Member
    payload: Sequence[Buffer] = ()

    def message(self) -> Tuple[m.Member, Sequence[Buffer]]:
        return self


Outgoing = Union[TaskRun, OutgoingMessage]


class Outbox:
    def __init__(self) -> None:
        self._items: List[Outgoing] = []
        self._open: Optional[TaskRun] = None

    def add_task(
        self,
        function: int,
        task_id: int,
        payload: bytes,
        dependencies: Sequence[int] = (),
        options: Optional[m.TaskOptions] = None,
    ) -> None:
        run = self._open
        if (
            run is None
            or run.function != function
            or run.options is not options  # equal options are one object
            or run.payload_bytes > MAXIMUM_BATCH_BYTES
        ):
            run = self._open = TaskRun(function, options, task_id)
            self._items.append(run)
        run.payloads.append(payload)
        run.payload_bytes += len(payload)
        if dependencies:
            run.add_dependencies(dependencies)
        elif run.dependency_counts is not None:
            run.dependency_counts.append(0)
        if len(run.payloads) >= MAXIMUM_BATCH_TASKS:
            self._open = None

    def add(self, message: m.Member, payload: Sequence[Buffer] = ()) -> None:
        self._open = None
        self._items.append(OutgoingMessage(message, payload))

    def take(self) -> List[Outgoing]:
        items, self._items = self._items, []
        self._open = None
        return items

    def __bool__(self) -> bool:
        return bool(self._items)
