"""Which free slots have the memory that a task may use: two large tasks should not meet on a small host.

    heartbeats: what hosts have left, and large processes have ──▶ what all large tasks of a host may have
                                                less the needs of those that it has now  =  room

Rules:
- What a task may use is said in `memory_needs`.
- A process keeps what the tasks before have left in it, and the next one runs there: it takes nothing of what is left,
  and only by how much a process has grown since a task began in it is that task's.
- Of free slots, those of hosts with most room come first, and each host gets as many tasks as it has room for. A host
  without large tasks gets one in any case.
- Otherwise a large task waits until one has ended, though slots are free; what is small does not wait behind it
  (`Placement.set_large_apart`). What was seen of other tasks is no certainty: it waits for at most PATIENCE times as
  long as tasks of its function take, but PATIENCE_SECONDS at least, after one of its class was placed. Then it goes
  where most room is.
- Tasks that wait for nested ones do not count as there, and nested tasks that are sent to their workers do not wait:
  they are what these wait for.
- All hosts with free slots are looked at, but not for each message.
- Workers of one host share its memory, unless they tell of different amounts that are left: then each is in a control
  group of its own, such as that of a job.
"""

from __future__ import annotations

from itertools import islice
from math import inf
from typing import Dict, Iterable, List, NamedTuple, Tuple

from scaler_appliance.core.monitoring.running_tasks import open_dispatch
from scaler_appliance.core.peers.worker_session import LargeProcess, WorkerSession
from scaler_appliance.core.placement.ready_class import ReadyClass
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.tasks.memory_needs import LARGE_BYTES
from scaler_protocol import messages as m

ENOUGH_HOSTS = 64  # with room, to choose from
WORKERS_OF_A_HOST = 64  # that are looked at
DISPATCHES_OF_A_WORKER = 64  # likewise: large tasks are few, and stay for long
PATIENCE = 3.0
PATIENCE_SECONDS = 60.0
ALIKE = 0.1  # of what is left, in which two workers of one host may differ, as they look at different times
PAUSE_SECONDS = 0.1
"""Until hosts are looked at again for a class that none has room for, unless a large task has ended."""


class Room(NamedTuple):
    """What a host has for large tasks.

    Attributes:
        size: bytes.
        is_used: large tasks run there.
    """

    size: float
    is_used: bool


class MemoryRoom:
    def __init__(self, state: SchedulerState) -> None:
        self._state = state

    def on_heartbeat(self, worker: WorkerSession, message: m.Heartbeat) -> None:
        """A worker says what its processors have, and what is left; this is not in its session yet."""
        if worker.heartbeat is None:
            self._state.memory_needs.changes += 1
        before, worker.large_processes = worker.large_processes, {}
        for processor in message.processors:
            size, instance = processor.resident_bytes, processor.instance
            if size < LARGE_BYTES:
                continue
            last = before.get(processor.process_id)
            had = 0 if last is None else last.had_bytes if last.instance == instance else last.size
            worker.large_processes[processor.process_id] = LargeProcess(instance, had, size)
            dispatch = open_dispatch(self._state.dispatches, worker, instance)
            if dispatch is not None:
                self._state.memory_needs.see(dispatch.batch.function_key, size - had)

    def need_of_next(self, ready_class: ReadyClass) -> float:
        """The bytes that the task may use whose turn it is; 0: it is not large."""
        batch = ready_class.batch_of_turn()
        return 0.0 if batch is None else self._state.memory_needs.of(batch)

    def is_looked_at(self, ready_class: ReadyClass) -> bool:
        """Whether hosts may have room for the class by now."""
        until, changes = ready_class.without_memory
        return self._state.now >= until or changes != self._state.memory_needs.changes

    def has_room(self, worker: WorkerSession, need: float) -> bool:
        """Whether a worker may get a task that needs so much."""
        room = self._room_of(worker)
        return room.size >= need or not room.is_used

    def most_for(self, workers: Iterable[WorkerSession], ready_class: ReadyClass, need: float) -> Dict[int, int]:
        """How many tasks of a class workers should get at most, by session, those with most room first. What is left
        then is asked for again. Empty: they wait.

        Parameters:
            workers: with a free slot, that can run the tasks.
            need: of each task.
        """
        looked_at: Dict[str, List[WorkerSession]] = {}  # by host, whose memory its workers share
        roomy: List[Tuple[float, WorkerSession]] = []
        rest: List[Tuple[float, WorkerSession]] = []  # without room, or the knowledge whether they have any
        for worker in workers:
            others = looked_at.setdefault(worker.place, [])
            if any(_share(worker, each) for each in others):
                continue
            others.append(worker)
            room = self._room_of(worker)
            if room.size >= need:
                roomy.append((room.size, worker))
                if len(roomy) == ENOUGH_HOSTS:
                    break
            elif not (roomy or (room.is_used and not self._is_impatient(ready_class))):
                rest.append((room.size, worker))
        roomy.sort(key=lambda each: -each[0])
        found: Dict[int, int] = {}
        for size, worker in roomy:
            free = worker.slots - worker.assigned
            found[worker.number] = free if size >= need * free else int(size / need)
        if not found and rest:
            found[max(rest, key=lambda each: each[0])[1].number] = 1
        if looked_at and not found and ready_class.requirement.is_large:
            if ready_class.waits_since is None:
                ready_class.waits_since = self._state.now
            ready_class.without_memory = self._state.now + PAUSE_SECONDS, self._state.memory_needs.changes
        return found

    def _is_impatient(self, ready_class: ReadyClass) -> bool:
        """Whether tasks of a class have waited for long enough."""
        if ready_class.waits_since is None or not ready_class.requirement.is_large:
            return False
        batch = ready_class.batch_of_turn()
        microseconds = None if batch is None else self._state.durations.get(batch.function_key)
        seconds = max(PATIENCE_SECONDS, PATIENCE * (microseconds or 0.0) / 1e6)
        return self._state.now - ready_class.waits_since >= seconds

    def _room_of(self, worker: WorkerSession) -> Room:
        """What a worker's host, or its group there, has left for more tasks."""
        size, tasks, latest = 0.0, 0, worker
        for each in islice(self._state.workers_by_place.get(worker.place, {}).values(), WORKERS_OF_A_HOST):
            if each is not worker and not _share(worker, each):
                continue
            if each.heartbeat is not None and each.heartbeat_at >= latest.heartbeat_at:
                latest = each
            size += sum([process.size for process in each.large_processes.values()])
            tasks -= each.slots - each.hello.slots  # suspended ones
            for dispatch in islice(each.dispatches.values(), DISPATCHES_OF_A_WORKER):
                need = self._state.memory_needs.of(dispatch.batch)
                if need:
                    size -= need * dispatch.open_count
                    tasks += 0 if dispatch.is_of_actor else dispatch.open_count
        if latest.heartbeat is None:
            return Room(0.0, tasks > 0)  # its first one follows at once
        if not latest.heartbeat.free_bytes:
            return Room(inf, tasks > 0)  # it does not say
        return Room(size + latest.heartbeat.free_bytes, tasks > 0)


def _share(worker: WorkerSession, other: WorkerSession) -> bool:
    """Whether two workers of one host tell of the same memory."""
    if worker.heartbeat is None or other.heartbeat is None:
        return True
    left, left_of_other = worker.heartbeat.free_bytes, other.heartbeat.free_bytes
    return abs(left - left_of_other) <= max(LARGE_BYTES, ALIKE * max(left, left_of_other))
