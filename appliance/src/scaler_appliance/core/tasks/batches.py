"""Tasks as the core holds them: in the batches they came in, as columns.

Rules:
- There is no object per task. A task is a position in a TaskBatch; a Span is a run of positions; a Dispatch is a Span
  that was sent to one worker, with instance ids of its own.
- An instance id is `dispatch number << INSTANCE_BITS | position in the dispatch`, never used twice. `open` says which
  instances may still report; the report of any other is stale. This is the only fencing mechanism.
- Payload bytes are sliced, never copied or interpreted.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import accumulate
from typing import Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

from scaler_appliance.core.effects import Buffer
from scaler_appliance.core.monitoring.counters import NO_COUNTERS
from scaler_appliance.core.tasks.pace import Typical
from scaler_appliance.core.tasks.task_states import FINAL_STATES, TaskState
from scaler_protocol import messages as m
from scaler_protocol.keys.allow_list import DEFAULT_TENANT

INSTANCE_BITS = 20
MAXIMUM_TASKS_PER_DISPATCH = 1 << INSTANCE_BITS
LOSSES_OF_A_SUSPECT = 2  # workers that were lost with a task: it may be the cause, and has to begin where it is sent
MAXIMUM_COUNTED_ATTEMPTS = 255  # attempts are a byte each
MAXIMUM_PAYLOAD_BYTES = 8 * 1024 * 1024  # of one dispatch
WORTH_COMPACTING = 4  # a batch with this many times more payloads than unfinished tasks is compacted
_POSITION_MASK = MAXIMUM_TASKS_PER_DISPATCH - 1
_FIRST_STEP = 256  # of looking for a run
_PLAIN_LIMIT = 256  # requirements to be remembered
_PLAIN_TEXT_LIMIT = 100  # characters that such a one may keep alive


class Needs(NamedTuple):
    """The requirements of a task on a worker."""

    capabilities: Tuple[Tuple[str, float], ...]  # sorted by name, each name once
    codec: str = ""  # of its payload; empty: any
    function_name: str = ""  # that it must serve; empty: the function comes as an object
    tenant: str = DEFAULT_TENANT  # whose tasks it must run
    actor: int = 0  # whose calls they are; 0: they are no calls
    time_request_seconds: float = 0.0  # for which a worker must stay; 0: any


class Requirement(NamedTuple):
    """What a task needs, in the order in which classes are served: smaller first."""

    negative_priority: int
    needs: Needs
    large: object = None  # the function of tasks that wait for memory apart from others: see `large_tasks`

    @property
    def is_large(self) -> bool:
        return self.large is not None

    @staticmethod
    def of(
        options: m.TaskOptions, codec: str = "", function_name: str = "", tenant: str = DEFAULT_TENANT
    ) -> Requirement:
        # A call of an actor says nothing of how long the actor lives.
        time_request_seconds = 0.0 if options.actor else options.time_request_milliseconds / 1000
        if not (options.capabilities or time_request_seconds):
            return _PLAIN.get((options.priority, codec, function_name, tenant)) or _plain(
                options.priority, codec, function_name, tenant
            )
        amounts: Dict[str, float] = {}
        for capability in options.capabilities:
            amounts[capability.name] = amounts.get(capability.name, 0.0) + capability.amount
        capabilities = tuple(sorted(amounts.items()))
        needs = Needs(capabilities, codec, function_name, tenant, time_request_seconds=time_request_seconds)
        return Requirement(-options.priority, needs)


# Those without capabilities and time request, by priority, codec, function's name and tenant: nearly every task has one
# of few.
_PLAIN: Dict[Tuple[int, str, str, str], Requirement] = {}


def _plain(priority: int, codec: str, function_name: str, tenant: str) -> Requirement:
    requirement = Requirement(-priority, Needs((), codec, function_name, tenant))
    if len(codec) + len(function_name) <= _PLAIN_TEXT_LIMIT:
        if len(_PLAIN) >= _PLAIN_LIMIT:
            _PLAIN.clear()
        _PLAIN[priority, codec, function_name, tenant] = requirement
    return requirement


class TaskBatch:
    """Tasks of one client that share function and options, one column entry each.

    Parameters:
        client: its session.
        tenant: who owns them.
    """

    __slots__ = (
        "client", "function", "function_name", "codec", "options", "requirement", "ids", "sizes", "payload", "states",
        "unfinished", "dispatches", "attempts", "history", "dependency_counts", "dependencies",
        "is_charged", "has_results", "counters", "_offsets", "_dependency_offsets", "kept", "typical",
    )  # fmt: skip

    def __init__(self, client: int, message: m.Task, payload: Buffer, tenant: str = DEFAULT_TENANT) -> None:
        self.client = client  # session
        self.function = message.function
        self.function_name = message.function_name
        self.codec = message.codec
        self.options = message.options
        self.requirement = Requirement.of(
            message.options, message.codec, "" if message.function else message.function_name, tenant
        )
        self.ids: array[int] = message.ids
        self.sizes: array[int] = message.payload_sizes
        self.payload = memoryview(payload)
        self.states = bytearray(len(self.ids))  # TaskState.QUEUED is 0
        self.unfinished = len(self.ids)
        self.dispatches: Dict[int, Dispatch] = {}  # by number
        self.attempts: Optional[bytearray] = None  # how often each was lost with its worker; most never are
        self.history: Dict[int, Tuple[str, ...]] = {}  # by position: descriptions of these losses
        self.dependency_counts: array[int] = message.dependency_counts
        self.dependencies: array[int] = message.dependencies
        self.is_charged = False  # to its client's flow
        self.has_results = False  # of predecessors, in its payload, which is not charged then
        self.counters = NO_COUNTERS  # of its function
        self.kept = len(self.ids)  # tasks whose payload is still here
        self.typical: Optional[Typical] = None  # how long they take; once some that took long are reported
        self._offsets: Optional[array[int]] = None
        self._dependency_offsets: Optional[array[int]] = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def tenant(self) -> str:
        """Who owns the tasks."""
        return self.requirement.needs.tenant

    @property
    def function_key(self) -> object:
        """What identifies this batch's function: its object's id, or its name and its tenant."""
        return self.function or (self.function_name, self.requirement.needs.tenant)

    @property
    def has_costly_ends(self) -> bool:
        """Whether each of its tasks costs something when it ends, and not only each run of them."""
        return bool(self.dependency_counts)

    @property
    def offsets(self) -> array[int]:
        """Where each task's payload begins; one entry more than there are tasks."""
        if self._offsets is None:
            self._offsets = array("Q", accumulate(self.sizes, initial=0))
        return self._offsets

    @property
    def charged_bytes(self) -> int:
        """The bytes that its payload adds to what its client has in flight."""
        return len(self.payload) if self.is_charged and not self.has_results else 0

    def payload_of(self, start: int, stop: int) -> memoryview:
        """The payload bytes of tasks [start, stop)."""
        if stop - start == len(self.ids):
            return self.payload
        offsets = self.offsets
        return self.payload[offsets[start] : offsets[stop]]

    def dependencies_of(self, start: int, stop: int) -> array[int]:
        """The object ids that tasks [start, stop) depend on."""
        if not self.dependency_counts:
            return self.dependencies
        if self._dependency_offsets is None:
            self._dependency_offsets = array("Q", accumulate(self.dependency_counts, initial=0))
        return self.dependencies[self._dependency_offsets[start] : self._dependency_offsets[stop]]

    def end_of_objects(self, start: int, stop: int, most: int) -> int:
        """The end of the tasks from `start` on, before `stop`, that need at most so many objects, or of one task."""
        if self._dependency_offsets is None:
            self.dependencies_of(start, stop)
        ends = self._dependency_offsets
        return stop if ends is None else max(start + 1, bisect_right(ends, ends[start] + most, start, stop + 1) - 1)

    def compact(self) -> int:
        """Drop the payloads of finished tasks if they are most of the batch; returns how many bytes that frees."""
        if self.unfinished * WORTH_COMPACTING > self.kept:
            return 0
        before = len(self.payload)
        offsets, states = self.offsets, self.states
        kept = [index for index, state in enumerate(states) if state not in FINAL_STATES]
        sizes = array("I", bytes(4 * len(states)))
        for index in kept:
            sizes[index] = self.sizes[index]
        self.payload = memoryview(b"".join([self.payload[offsets[index] : offsets[index + 1]] for index in kept]))
        self.sizes, self.kept, self._offsets = sizes, len(kept), None
        return before - len(self.payload)

    def losses_of(self, index: int) -> int:
        """How often the task was lost with its worker."""
        return 0 if self.attempts is None else self.attempts[index]

    def count_loss(self, index: int, what: str) -> int:
        """Record that the task was lost with its worker, and return how often it was."""
        if self.attempts is None:
            self.attempts = bytearray(len(self.ids))
        self.attempts[index] = min(MAXIMUM_COUNTED_ATTEMPTS, self.attempts[index] + 1)
        self.history[index] = (*self.history.get(index, ()), what)
        return self.attempts[index]

    def dispatch_of(self, index: int) -> Dispatch:
        """The dispatch that holds the task now; the task is ASSIGNED or CANCELLING."""
        for dispatch in self.dispatches.values():
            if dispatch.start <= index < dispatch.stop and dispatch.open[index - dispatch.start]:
                return dispatch
        raise AssertionError(f"task {self.ids[index]} is {TaskState(self.states[index]).name}, but at no worker")


class TaskSpan(NamedTuple):
    """Tasks [start, stop) of a batch; those that are no longer QUEUED are skipped when it is placed."""

    batch: TaskBatch
    start: int
    stop: int

    def limit_of_message(self, most_objects: int) -> int:
        """How many of the tasks one message may carry: all of the same attempt, and not too many objects or bytes."""
        batch, start, stop = self
        if batch.dependency_counts:
            stop = batch.end_of_objects(start, stop, most_objects)
        if batch.attempts is not None:
            attempts = batch.attempts
            stop = start + len(attempts[start:stop]) - len(attempts[start:stop].lstrip(attempts[start : start + 1]))
        if len(batch.payload) <= MAXIMUM_PAYLOAD_BYTES:
            return stop - start
        offsets = batch.offsets
        return max(1, bisect_right(offsets, offsets[start] + MAXIMUM_PAYLOAD_BYTES, start, stop + 1) - 1 - start)


class Dispatch:
    """A span of tasks at one worker."""

    __slots__ = (
        "number", "batch", "start", "stop", "worker", "ids", "open", "open_count", "estimate_microseconds",
        "is_of_actor", "cancelled_again", "waits_until", "given_before_microseconds", "charged_microseconds", "sent_at",
    )  # fmt: skip

    def __init__(
        self, number: int, batch: TaskBatch, start: int, stop: int, worker: int, estimate_microseconds: float
    ) -> None:
        self.number = number
        self.batch = batch
        self.start = start
        self.stop = stop
        self.worker = worker  # session
        # SCL-SCH-005
        first = number << INSTANCE_BITS
        self.ids = array("Q", range(first, first + stop - start))  # instance ids
        self.open = bytearray(b"\x01") * (stop - start)
        self.open_count = stop - start
        self.estimate_microseconds = estimate_microseconds  # of one task, as its worker's load was charged
        self.is_of_actor = batch.options.actor
        self.cancelled_again: Optional[Set[int]] = None  # instances of which an earlier cancel is unanswered, too
        self.given_before_microseconds = 0.0  # of work, which its worker was given in all when it got this
        self.sent_at = 0.0  # by the scheduler's clock
        self.charged_microseconds = 0.0  # for each of its tasks, to its tenant
        self.waits_until = 0.0  # where its bytes are, though slots may be free elsewhere

    @property
    def has_costly_ends(self) -> bool:
        """Whether each of its tasks costs something when it ends, and not only each run of them."""
        return self.batch.has_costly_ends

    def late_by_microseconds(self, now: float) -> float:
        """For how long its tasks have run, if they began at once, beyond what was estimated."""
        return (now - self.sent_at) * 1e6 - self.estimate_microseconds

    def message(self) -> m.Task:
        """What its worker is sent, with the payload of its tasks."""
        batch, start, stop = self.batch, self.start, self.stop
        # SCL-SCH-004
        return m.Task(
            ids=self.ids,
            payload_sizes=batch.sizes[start:stop],
            function=batch.function,
            function_name=batch.function_name,
            codec=batch.codec,
            options=batch.options,
            dependency_counts=batch.dependency_counts[start:stop],
            dependencies=batch.dependencies_of(start, stop),
            # SCL-SCH-006
            attempt=batch.losses_of(start) + 1,
            client=batch.client,
        )

    def instance_of(self, index: int) -> int:
        """The instance id of the batch's task `index`."""
        return self.ids[index - self.start]

    def run_of(self, ids: array[int], position: int) -> int:
        """How many instances of the dispatch, one after the other, the column has from `position` on."""
        count = len(ids) - position
        if count == 1:
            return 1
        low = position_in_dispatch(ids[position])
        count = min(count, len(self.ids) - low)
        if ids[position + count - 1] == self.ids[low + count - 1]:
            # Usually a worker reports exactly what it was sent. PyPy compares bytes faster than arrays.
            if ids[position : position + count].tobytes() == self.ids[low : low + count].tobytes():
                return count
        return consecutive_run(ids, position, count) - position

    def cancel_again(self, instances: Iterable[int]) -> None:
        """The worker is to be sent a further cancel of each, before it has answered the one before."""
        if self.cancelled_again is None:
            self.cancelled_again = set()
        self.cancelled_again.update(instances)

    def answers_again(self, index: int) -> bool:
        """Whether the worker's answer about the batch's task `index` is to an earlier cancel, and another follows."""
        instance = self.instance_of(index)
        if self.cancelled_again is None or instance not in self.cancelled_again:
            return False
        self.cancelled_again.discard(instance)
        return True

    def open_instances(self) -> List[int]:
        """The instances that may still report."""
        return [instance for instance, is_open in zip(self.ids, self.open) if is_open]

    def is_open(self, index: int) -> bool:
        """Whether the instance of the batch's task `index` may still report."""
        return bool(self.open[index - self.start])

    def alike(self, start: int, stop: int) -> int:
        """The end of the run of tasks from `start` on, before `stop`, that are all open or all fenced."""
        if stop - start == 1:
            return stop
        low = start - self.start
        end = self.open.find(1 - self.open[low], low, stop - self.start)
        return stop if end < 0 else self.start + end

    def close(self, start: int, stop: int) -> None:
        """Fence the instances of tasks [start, stop) of the batch, all of them open."""
        low, high = start - self.start, stop - self.start
        self.open[low:high] = bytes(high - low)
        self.open_count -= high - low


def dispatch_number(instance: int) -> int:
    return instance >> INSTANCE_BITS


def position_in_dispatch(instance: int) -> int:
    return instance & _POSITION_MASK


def consecutive_run(ids: array[int], start: int, limit: int = MAXIMUM_TASKS_PER_DISPATCH) -> int:
    """The end of the run of consecutive ids from `start` on, which is at most `limit` long.

    Workers answer in the chunks they were sent, so a column of ids is a few long runs. Steps double while they succeed
    and halve from the first that fails, so that the cost follows the length of the run.
    """
    end = min(len(ids), start + limit)
    offset = ids[start] - start
    known = start + 1
    step = _FIRST_STEP
    has_failed = False
    while known < end:
        stop = min(end, known + step)
        if ids[stop - 1] == offset + stop - 1 and (
            stop - known == 1 or ids[known:stop].tobytes() == array("Q", range(offset + known, offset + stop)).tobytes()
        ):
            known = stop
        elif stop - known == 1:
            break
        else:
            has_failed = True
            step = stop - known
        step = (step + 1) // 2 if has_failed else step * 2
    return known
