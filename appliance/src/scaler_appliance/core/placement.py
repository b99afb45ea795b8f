"""Which worker gets which waiting tasks, and how many.

Rules:
- Idle slots come first; then workers are given work ahead, so that no slot waits for a message.
- How far ahead follows the measured duration of the function: about `prefetch_seconds` of work for each slot, never more
  than the worker's queue holds. A function not measured yet gets two tasks a slot. So long tasks spread one by one, and
  no-ops travel by the thousand.
- A worker that has still half of that is left alone: few large messages, not many small ones.
- Only workers that may take something are looked at; the cost follows what changed, not how many workers there are.
"""

from __future__ import annotations

from bisect import bisect_right
from math import ceil
from typing import Dict, Optional

from scaler_appliance.core.batches import MAXIMUM_TASKS_PER_DISPATCH, Dispatch, Span
from scaler_appliance.core.objects import announcement
from scaler_appliance.core.ready import ReadyClass
from scaler_appliance.core.sessions import WorkerSession
from scaler_appliance.core.state import State
from scaler_appliance.core.task_states import TaskEvent, apply
from scaler_protocol import messages as m

MAXIMUM_PAYLOAD_BYTES = 8 * 1024 * 1024  # of one dispatch
TASKS_AHEAD_OF_UNMEASURED = 2  # for each slot


class Placement:
    def __init__(self, state: State) -> None:
        self._state = state
        self._idle: Dict[int, WorkerSession] = {}  # have a free slot, longest waiting first
        self._hungry: Dict[int, WorkerSession] = {}  # slots are busy, little is queued behind them
        self._target_microseconds = state.settings.prefetch_seconds * 1e6

    def add_worker(self, worker: WorkerSession) -> None:
        self._idle[worker.number] = worker

    def remove_worker(self, worker: WorkerSession) -> None:
        self._idle.pop(worker.number, None)
        self._hungry.pop(worker.number, None)

    def on_load_fell(self, worker: WorkerSession) -> None:
        """A worker finished something."""
        if worker.leaving:
            return
        if worker.assigned < worker.slots:
            self._hungry.pop(worker.number, None)
            self._idle[worker.number] = worker
        elif (
            worker.load_microseconds * 2 < self._target_microseconds * worker.slots
            and worker.assigned * 2 <= worker.capacity
        ):
            self._hungry[worker.number] = worker

    def place(self) -> None:
        """Hand out waiting tasks as far as workers have room."""
        for ready_class in self._state.ready.waiting():
            for candidates in (self._idle, self._hungry):
                while ready_class.count and self._place_round(ready_class, candidates):
                    pass

    def _place_round(self, ready_class: ReadyClass, candidates: Dict[int, WorkerSession]) -> bool:
        """Offer every candidate its share of the class once; whether any took something."""
        capabilities = ready_class.requirement.capabilities
        able = [worker for worker in candidates.values() if not capabilities or worker.offers(capabilities)]
        if not able:
            return False
        slots = sum(worker.slots for worker in able)
        waiting = ready_class.count
        placed = 0
        for worker in able:
            share = ceil(waiting * worker.slots / slots)
            taken = self._fill(worker, ready_class, share)
            placed += taken
            if worker.assigned < worker.slots:
                continue
            if candidates is self._idle:
                del self._idle[worker.number]
                self._hungry[worker.number] = worker
            elif taken < share:
                del self._hungry[worker.number]  # until it has worked off half of what it holds
            if not ready_class.count:
                break
        return placed > 0

    def _fill(self, worker: WorkerSession, ready_class: ReadyClass, share: int) -> int:
        """Dispatch up to `share` tasks of a class to a worker, as far as its credit goes; returns how many."""
        placed = 0
        while placed < share:
            span = ready_class.take(min(share - placed, max(1, worker.capacity - worker.assigned)))
            if span is None:
                break
            room = self._credit(worker, self._duration_of(span))
            count = min(span.stop - span.start, room, _payload_limit(span))
            if count < span.stop - span.start:
                ready_class.add(Span(span.batch, span.start + count, span.stop), in_front=True)
            if count:
                self._dispatch(worker, Span(span.batch, span.start, span.start + count))
                placed += count
            if count == room:
                break
        return placed

    def _duration_of(self, span: Span) -> Optional[float]:
        return self._state.durations.get(span.batch.function or span.batch.function_name)

    def _credit(self, worker: WorkerSession, duration_microseconds: Optional[float]) -> int:
        """How many more tasks of such a duration the worker should have."""
        capacity = min(worker.capacity - worker.assigned, MAXIMUM_TASKS_PER_DISPATCH)
        if duration_microseconds is None:
            ahead = TASKS_AHEAD_OF_UNMEASURED * worker.slots - worker.assigned
        else:
            free_microseconds = self._target_microseconds * worker.slots - worker.load_microseconds
            ahead = max(int(free_microseconds / duration_microseconds), worker.slots - worker.assigned)
        return max(0, min(capacity, ahead))

    def _dispatch(self, worker: WorkerSession, span: Span) -> None:
        state = self._state
        batch, start, stop = span
        apply(batch.states, start, stop, TaskEvent.PLACE)
        state.last_dispatch += 1
        estimate = self._duration_of(span)
        if estimate is None:
            estimate = self._target_microseconds / TASKS_AHEAD_OF_UNMEASURED
        dispatch = Dispatch(state.last_dispatch, batch, start, stop, worker.number, estimate)
        state.dispatches[dispatch.number] = worker.dispatches[dispatch.number] = dispatch
        batch.dispatches.append(dispatch)
        worker.assigned += stop - start
        worker.load_microseconds += estimate * (stop - start)
        self._announce_objects(worker, span)
        message = m.Task(
            ids=dispatch.instance_ids(),
            payload_sizes=batch.sizes[start:stop],
            function=batch.function,
            function_name=batch.function_name,
            codec=batch.codec,
            options=batch.options,
            dependency_counts=batch.dependency_counts[start:stop],
            dependencies=batch.dependencies_of(start, stop),
            attempt=batch.attempt_of(start),
            client=batch.client,
        )
        state.send(worker.peer, message, (batch.payload_of(start, stop),))

    def _announce_objects(self, worker: WorkerSession, span: Span) -> None:
        """Tell the worker of every object that the tasks need and it does not know."""
        needed = [span.batch.function] if span.batch.function else []
        if span.batch.dependency_counts:
            needed += span.batch.dependencies_of(span.start, span.stop)
        for object_id in dict.fromkeys(needed):
            if object_id in worker.known_objects:
                continue
            record = self._state.objects.find(object_id)
            assert record is not None, f"a waiting task needs object {object_id:x}, which is gone"
            worker.known_objects.add(object_id)
            record.holders.add(worker.number)
            instruction, payload = announcement([record])
            self._state.send(worker.peer, instruction, payload)


def _payload_limit(span: Span) -> int:
    """How many tasks of a span one message may carry: all of the same attempt, and not too many bytes."""
    batch, start, stop = span
    if batch.attempts is not None:
        attempt = batch.attempts[start]
        for index in range(start, stop):
            if batch.attempts[index] != attempt:
                stop = index
                break
    if len(batch.payload) <= MAXIMUM_PAYLOAD_BYTES:
        return stop - start
    offsets = batch.offsets
    return max(1, bisect_right(offsets, offsets[start] + MAXIMUM_PAYLOAD_BYTES, start, stop + 1) - 1 - start)
