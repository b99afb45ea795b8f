"""Accepting tasks.

Rules:
- A batch is checked completely before it is stored; a malformed one ends the client's session.
- A task that cannot be accepted ends as `lost` with the reason, like any other outcome; the rest of its batch is
  accepted.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, islice
from typing import Dict, List, Optional, Set, Tuple

from scaler_appliance.core.actor_calls.actor_placement import ActorPlacement
from scaler_appliance.core.effects import Buffer, PeerError
from scaler_appliance.core.graphs.dependant_reactions import DependantReactions, split_batch
from scaler_appliance.core.objects.object_records import ObjectRecord, failure_of_missing
from scaler_appliance.core.peers.sessions import ClientSession
from scaler_appliance.core.placement.task_placement import Placement
from scaler_appliance.core.placement.waiting_quotas import WaitingQuota
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.steps import COLUMN_ENTRIES_PER_UNIT, Steps, check_ascending, total_of
from scaler_appliance.core.tasks.batches import TaskBatch, TaskSpan, consecutive_run
from scaler_appliance.core.tasks.capabilities import check_capabilities
from scaler_appliance.core.tasks.task_outcomes import TaskOutcomes
from scaler_appliance.core.tasks.task_states import TaskState, runs
from scaler_protocol import messages as m
from scaler_protocol.wire.columns import check_lengths, sum_differs

MAXIMUM_BATCH_TASKS = 1 << 14
"""Larger batches are accepted as several."""

UNITS_OF_A_BATCH = 16
UNITS_OF_A_DEPENDANT = 4  # a task that waits for others
UNITS_OF_A_REJECTION = 30  # of tasks together, with their message

DEPENDANT_BYTES = 700
"""About what a task that waits for others takes in memory."""

_TEXT_OF_TOO_MANY = (
    "the client has more in flight than the scheduler granted it (Limits and TaskEcho say how much): it should wait for"
    " outcomes before it submits more"
)


class Acceptance:
    def __init__(
        self,
        state: SchedulerState,
        placement: Placement,
        outcomes: TaskOutcomes,
        dependants: DependantReactions,
        actors: ActorPlacement,
    ) -> None:
        self._state = state
        self._placement = placement
        self._outcomes = outcomes
        self._dependants = dependants
        self._actors = actors

    def on_task(self, client: ClientSession, message: m.Task, payload: bytes) -> Optional[Steps]:
        """A client submits a batch: what is left to do of a large one, or of one that needs objects or other tasks."""
        if not message.ids:
            return None
        needs = len(message.dependencies) + len(message.predecessors)
        if message.predecessors and not self._state.budget.has_room_for(DEPENDANT_BYTES * len(message.ids)):
            return self._reject_dependants(client, message, payload)
        if len(message.ids) > MAXIMUM_BATCH_TASKS or needs > self._state.part:
            return self._accept_large(client, message, payload)
        _check_batch(client, message, payload)
        client.last_task_id = message.ids[-1]
        if message.predecessors:
            return self._accept_by_parts(client, message, payload)
        self._accept(client, message, payload)
        return None

    def _reject_dependants(self, client: ClientSession, message: m.Task, payload: bytes) -> Steps:
        """There is no memory for these tasks, of which some need others."""
        yield from _check_large_batch(client, message, payload, self._state.part)
        client.last_task_id = message.ids[-1]
        yield from self._accept_in_batches(client, message, memoryview(payload), has_memory=False)

    def _accept_large(self, client: ClientSession, message: m.Task, payload: bytes) -> Steps:
        """Accept a batch as several, after checking it as a whole."""
        yield from _check_large_batch(client, message, payload, self._state.part)
        client.last_task_id = message.ids[-1]
        if message.predecessors:
            yield from self._accept_by_parts(client, message, payload)
        else:
            yield from self._accept_in_batches(client, message, memoryview(payload))

    def _accept_in_batches(
        self, client: ClientSession, message: m.Task, payload: memoryview, has_memory: bool = True
    ) -> Steps:
        """Accept a batch as several, each of which costs little.

        Parameters:
            message: without predecessors, unless all of its tasks are to be rejected.
            has_memory: whether they may be queued.
        """
        count, offset, first_object = len(message.ids), 0, 0
        most = min(MAXIMUM_BATCH_TASKS, self._state.part) if message.dependency_counts else MAXIMUM_BATCH_TASKS
        start = 0
        while start < count:
            stop, objects = min(count, start + most), 0
            if message.dependency_counts:
                ends = list(accumulate(message.dependency_counts[start:stop]))
                stop = start + max(1, bisect_right(ends, self._state.part))
                objects = ends[stop - start - 1]
            size = sum(message.payload_sizes[start:stop])
            part = message
            if stop - start < count or message.predecessors:
                part = _part_of(message, start, stop, first_object, objects)
            self._accept(client, part, payload[offset : offset + size], has_memory)
            start, offset, first_object = stop, offset + size, first_object + objects
            yield UNITS_OF_A_BATCH + objects + (stop - start) // COLUMN_ENTRIES_PER_UNIT

    def _accept_by_parts(self, client: ClientSession, message: m.Task, payload: bytes) -> Steps:
        """Accept first the tasks of a batch that need no others, because others may need them.

        What its client may have in flight is compared with the whole batch first: these tasks are not always its first.
        """
        count, bytes_before_last = len(message.ids), len(payload) - message.payload_sizes[-1]
        is_granted = client.flow.allowed(count, bytes_before_last) == count
        quota = WaitingQuota(self._state, self._placement, client.tenant)
        dependants, others, content = yield from split_batch(message, payload, self._state.part)
        if others.ids:
            yield from self._accept_in_batches(client, others, memoryview(content))
        done = 0
        awaited: Set[int] = set()
        for dependant in dependants:
            has_memory = not self._state.budget.is_full
            waiting_room = min(self._room(1), quota.room()) if has_memory else 0
            allowed = 1 if is_granted else client.flow.allowed(1, 0)
            is_allowed = waiting_room > 0 and allowed > 0
            text = ""
            if not is_allowed:
                text = self._text_of_full(has_memory, quota, 1) if waiting_room <= allowed else _TEXT_OF_TOO_MANY
                self._state.count_useless(client, UNITS_OF_A_DEPENDANT)
            self._dependants.accept(client, dependant, is_allowed, text, awaited)
            done += UNITS_OF_A_DEPENDANT + len(dependant.predecessors) + len(dependant.dependencies)
            if done >= self._state.part:
                yield done
                done = 0
                awaited.clear()
        yield done

    def _accept(self, client: ClientSession, message: m.Task, payload: Buffer, has_memory: bool = True) -> None:
        batch = TaskBatch(client.number, message, payload, client.tenant)
        count = len(batch)
        client.add_batch(batch)
        client.unfinished += count
        function = self._state.objects.find_of(batch.function, client.tenant)
        self._state.changes.begin(batch, function.name if function is not None else "")
        self._state.touch_session(client)
        allowed = client.flow.allowed(count, len(payload) - message.payload_sizes[-1])
        client.flow.submit(count, len(payload))
        batch.is_charged = True
        missing = self._reference_objects(batch, function)
        failure = self._why_to_reject(client, batch, function)
        if failure is not None:
            self._reject(client, TaskSpan(batch, 0, count), failure)
            return
        # SCL-SCH-007
        for first, end, object_id in _runs_alike(missing):
            failure = failure_of_missing(object_id, self._state.objects.find_of(object_id, client.tenant))
            self._reject(client, TaskSpan(batch, first, end), failure)
        self._queue(client, batch, allowed, has_memory and not self._state.budget.is_full)

    def _reject(self, client: ClientSession, span: TaskSpan, why: m.Failure) -> None:
        """Tasks cannot be accepted, so sending them was useless."""
        self._state.count_useless(client, UNITS_OF_A_REJECTION + (span.stop - span.start) // COLUMN_ENTRIES_PER_UNIT)
        self._outcomes.lose_with(span, why)

    def _reference_objects(self, batch: TaskBatch, function: Optional[ObjectRecord]) -> Dict[int, int]:
        """Count the batch's needs of objects; returns, by position, tasks of which one is missing.

        All existing objects are referenced, because `TaskOutcomes.finish` releases all existing objects.
        """
        objects = self._state.objects
        missing: Dict[int, int] = {}
        if function is not None:
            function.references += 1
        elif batch.function:
            objects.refer(batch.function, batch.tenant, batch.client)
        if batch.dependency_counts:
            tenant = batch.tenant
            for index in range(len(batch)):
                for object_id in batch.dependencies_of(index, index + 1):
                    if not objects.refer(object_id, tenant, batch.client):
                        missing[index] = object_id
        return missing

    def _why_to_reject(
        self, client: ClientSession, batch: TaskBatch, function: Optional[ObjectRecord]
    ) -> Optional[m.Failure]:
        if batch.options.actor:
            return self._actors.admit(client, batch, function)
        if not batch.function and not batch.function_name:
            text = "a task must name its function or the object that holds it"
            return m.Failure(kind=m.FailureKind.REJECTED, message=text, attempts=1)
        if batch.function and (function is None or not function.held or function.is_broken):
            return failure_of_missing(batch.function, function)
        return None

    def _queue(self, client: ClientSession, batch: TaskBatch, allowed: int, has_memory: bool) -> None:
        """Queue the tasks that have no outcome yet, as many as may wait and as their client may have in flight."""
        count = len(batch)
        queued = runs(batch.states, 0, count, TaskState.QUEUED)
        waiting_room = self._room(count) if has_memory else 0
        quota = WaitingQuota(self._state, self._placement, batch.tenant) if self._state.has_quotas else None
        if quota is not None:
            waiting_room = min(waiting_room, quota.room(sum(stop - start for start, stop in queued)))
        room = waiting_room if waiting_room < allowed else allowed
        for start, stop in queued:
            accepted = stop if stop - start < room else start + room
            room -= accepted - start
            if accepted > start:
                self._state.ready.add(TaskSpan(batch, start, accepted))
            # SCL-SCH-008
            if accepted < stop:
                text = self._text_of_full(has_memory, quota, 1) if waiting_room <= allowed else _TEXT_OF_TOO_MANY
                why = m.Failure(kind=m.FailureKind.REJECTED, message=text, attempts=1)
                self._reject(client, TaskSpan(batch, accepted, stop), why)

    def _text_of_full(self, has_memory: bool, quota: Optional[WaitingQuota], wanted: int) -> str:
        if not has_memory:
            return self._state.budget.text_of_full()
        if quota is not None and self._room(wanted) >= wanted:
            return quota.text
        limit = self._state.settings.max_number_of_tasks_waiting
        return (
            f"the scheduler has reached its limit of waiting tasks ({limit}): submit fewer at a time, add"
            " workers, or raise --max-number-of-tasks-waiting"
        )

    def _room(self, wanted: int) -> int:
        limit = self._state.settings.max_number_of_tasks_waiting
        if limit < 0:
            return wanted
        return max(0, limit + self._placement.free_slots() - self._state.waiting())


def _runs_alike(values: Dict[int, int]) -> List[Tuple[int, int, int]]:
    """Ascending positions and their values, as runs [start, stop) with one value."""
    found: List[Tuple[int, int, int]] = []
    for position, value in values.items():
        if found and found[-1][1] == position and found[-1][2] == value:
            found[-1] = found[-1][0], position + 1, value
        else:
            found.append((position, position + 1, value))
    return found


def _part_of(message: m.Task, start: int, stop: int, first_object: int, objects: int) -> m.Task:
    """Tasks [start, stop) of a batch as a batch."""
    return m.Task(
        ids=message.ids[start:stop],
        payload_sizes=message.payload_sizes[start:stop],
        function=message.function,
        function_name=message.function_name,
        codec=message.codec,
        options=message.options,
        dependency_counts=message.dependency_counts[start:stop],
        dependencies=message.dependencies[first_object : first_object + objects],
    )


# SCL-SCH-002
def _check_large_batch(client: ClientSession, message: m.Task, payload: Buffer, part: int) -> Steps:
    """As `_check_batch`, in parts."""
    check_lengths(message, "ids", ("payload_sizes",), ("dependency_counts", "predecessor_counts"))
    for name, entries in (("dependency", "dependencies"), ("predecessor", "predecessors")):
        total = yield from total_of(getattr(message, f"{name}_counts"), part)
        length = len(getattr(message, entries))
        if total != length:
            raise sum_differs("Task", f"{name}_counts", total, entries, length)
    total = yield from total_of(message.payload_sizes, part)
    if total != len(payload):
        raise sum_differs("Task", "payload_sizes", total, "the payload frame", len(payload))
    check_capabilities(message.options.capabilities)
    if message.predecessors:
        _check_no_call(message.options)
        yield from _check_predecessors(message, part)
    yield from check_ascending(message.ids, client.last_task_id, "Task", part)


# SCL-CLT-015
def _check_no_call(options: m.TaskOptions) -> None:
    """Raise PeerError if these tasks, which wait for others, are calls of an actor: calls run in their order."""
    if options.actor:
        text = "Task: calls of an actor have no predecessors, because they run in the order in which they are submitted"
        raise PeerError(m.RefusalReason.PROTOCOL_VIOLATION, text)


# SCL-SCH-002
def _check_batch(client: ClientSession, message: m.Task, payload: Buffer) -> None:
    ids, count = message.ids, len(message.ids)
    message.check_columns(len(payload))
    if message.predecessors:
        _check_no_call(message.options)
        for _ in _check_predecessors(message, count):
            pass
    check_capabilities(message.options.capabilities)
    ascending = count == 1 or consecutive_run(ids, 0, count) == count or all(map(int.__lt__, ids, islice(ids, 1, None)))
    if not ascending or ids[0] <= client.last_task_id:
        # SCL-SCH-003
        raise PeerError(m.RefusalReason.PROTOCOL_VIOLATION, "Task: ids must ascend within a session")


def _check_predecessors(message: m.Task, part: int) -> Steps:
    counts, predecessors = message.predecessor_counts, message.predecessors
    offset = checked = 0
    for task_id, count in zip(message.ids, counts):
        before = predecessors[offset : offset + count]
        offset += count
        if count and (max(before) >= task_id or len(set(before)) != count):
            text = "Task: a task must come after its predecessors, and name each once"
            raise PeerError(m.RefusalReason.MALFORMED, text)
        checked += 1 + count // 4
        if checked >= part:
            yield checked
            checked = 0
