"""Tasks as the core holds them: in the batches they came in, as columns.

Rules:
- There is no object per task. A task is a position in a TaskBatch; a Span is a run of positions; a Dispatch is a Span that
  was handed to one worker, with instance ids of its own.
- An instance id is `dispatch number << INSTANCE_BITS | position in the dispatch`, never used twice. `open` says which
  instances may still report; a report of any other is stale, and that is all the fencing there is.
- Payload bytes are sliced, never copied and never looked into.
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import List, NamedTuple, Optional

from scaler_appliance.core.task_states import TaskState
from scaler_protocol import messages as m

INSTANCE_BITS = 20
MAXIMUM_TASKS_PER_DISPATCH = 1 << INSTANCE_BITS
_POSITION_MASK = MAXIMUM_TASKS_PER_DISPATCH - 1


class TaskBatch:
    """Tasks of one client that share function and options, one column entry each."""

    __slots__ = (
        "client", "function", "function_name", "codec", "options", "ids", "sizes", "payload", "states",
        "unfinished", "dispatches", "attempts", "dependency_counts", "dependencies", "_offsets", "_dependency_offsets",
    )  # fmt: skip

    def __init__(self, client: int, message: m.Task, payload: bytes) -> None:
        self.client = client  # session
        self.function = message.function
        self.function_name = message.function_name
        self.codec = message.codec
        self.options = message.options
        self.ids: array[int] = message.ids
        self.sizes: array[int] = message.payload_sizes
        self.payload = memoryview(payload)
        self.states = bytearray(len(self.ids))  # TaskState.QUEUED is 0
        self.unfinished = len(self.ids)
        self.dispatches: List[Dispatch] = []
        self.attempts: Optional[bytearray] = None  # how often each was lost with its worker; most never are
        self.dependency_counts: array[int] = message.dependency_counts
        self.dependencies: array[int] = message.dependencies
        self._offsets: Optional[array[int]] = None
        self._dependency_offsets: Optional[array[int]] = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def offsets(self) -> "array[int]":
        """Where each task's payload begins; one entry more than there are tasks."""
        if self._offsets is None:
            self._offsets = array("Q", accumulate(self.sizes, initial=0))
        return self._offsets

    def payload_of(self, start: int, stop: int) -> memoryview:
        """The payload bytes of tasks [start, stop)."""
        offsets = self.offsets
        return self.payload[offsets[start] : offsets[stop]]

    def dependencies_of(self, start: int, stop: int) -> "array[int]":
        """The object ids that tasks [start, stop) depend on."""
        if not self.dependency_counts:
            return self.dependencies
        if self._dependency_offsets is None:
            self._dependency_offsets = array("Q", accumulate(self.dependency_counts, initial=0))
        return self.dependencies[self._dependency_offsets[start] : self._dependency_offsets[stop]]

    def attempt_of(self, index: int) -> int:
        """The attempt that a dispatch of the task now would be, 1 for the first."""
        return 1 if self.attempts is None else self.attempts[index] + 1

    def count_loss(self, index: int) -> int:
        """Note that the task was lost with its worker, and return how often it was."""
        if self.attempts is None:
            self.attempts = bytearray(len(self.ids))
        self.attempts[index] = min(255, self.attempts[index] + 1)
        return self.attempts[index]

    def dispatch_of(self, index: int) -> Dispatch:
        """The dispatch that holds the task now; the task is ASSIGNED or CANCELLING."""
        for dispatch in self.dispatches:
            if dispatch.start <= index < dispatch.stop and dispatch.open[index - dispatch.start]:
                return dispatch
        raise AssertionError(f"task {self.ids[index]} is {TaskState(self.states[index]).name} but at no worker")


class Span(NamedTuple):
    """Tasks [start, stop) of a batch; those that are not QUEUED any more are passed over when it is placed."""

    batch: TaskBatch
    start: int
    stop: int


class Dispatch:
    """A span of tasks at one worker."""

    __slots__ = ("number", "batch", "start", "stop", "worker", "open", "open_count", "estimate_microseconds")

    def __init__(
        self, number: int, batch: TaskBatch, start: int, stop: int, worker: int, estimate_microseconds: float
    ) -> None:
        self.number = number
        self.batch = batch
        self.start = start
        self.stop = stop
        self.worker = worker  # session
        self.open = bytearray(b"\x01") * (stop - start)
        self.open_count = stop - start
        self.estimate_microseconds = estimate_microseconds  # of one task, as its worker's load was charged

    def instance_ids(self) -> "array[int]":
        first = self.number << INSTANCE_BITS
        return array("Q", range(first, first + self.stop - self.start))

    def close(self, start: int, stop: int) -> bool:
        """Fence the instances of tasks [start, stop) of the batch; False if any of them was fenced before."""
        low, high = start - self.start, stop - self.start
        if self.open.find(0, low, high) >= 0:
            return False
        self.open[low:high] = bytes(high - low)
        self.open_count -= high - low
        return True


def dispatch_number(instance: int) -> int:
    return instance >> INSTANCE_BITS


def position_in_dispatch(instance: int) -> int:
    return instance & _POSITION_MASK


def consecutive_run(ids: "array[int]", start: int) -> int:
    """The end of a run of consecutive ids from `start` on; long runs are found in few steps.

    Workers answer in the chunks they were sent, so a column of ids is a few long runs.
    """
    stop = len(ids)
    first = ids[start]
    while stop - start > 1:
        if ids[stop - 1] == first + stop - 1 - start and ids[start:stop] == array("Q", range(first, first + stop - start)):
            return stop
        stop = start + (stop - start + 1) // 2 if stop - start > 2 else start + 1
    return start + 1
