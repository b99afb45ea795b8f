"""Which workers have the memory that a task may use: two large tasks should not meet on a small host.

    heartbeats: what hosts have left, and large processes have ──▶ what all large tasks of a host may have
                                                less the needs of those that it has now  =  room

Rules:
- What a task may use is said in `memory_needs`.
- By how much a process has grown since a task began in it is that task's, less what it has mapped of objects. What is
  in an idle process the next task uses, but for those of actors.
- Of free slots, those of hosts with most room come first, and each host gets as many tasks as it has room for. A host
  without large tasks gets one in any case.
- Otherwise a large task waits until one has ended, though slots are free; what is small does not wait behind it, nor do
  those of other functions (see `large_tasks`). What was seen of other tasks is no certainty: it waits for at
  most PATIENCE times as long as tasks of its function take, but PATIENCE_SECONDS at least, after one of its class was
  placed. Then it goes where most room is.
- Tasks that wait for nested ones do not count as there, and nested tasks that are sent to their workers do not wait:
  they are what these wait for.
- Some hosts are looked at in a call, those first at which a large task has ended. If none has room, the next call looks
  at the next ones, and not for each message.
- The workers of a host share its memory.
"""

from __future__ import annotations

from math import inf
from typing import Dict, Iterable, List, NamedTuple, Set, Tuple

from scaler_appliance.core.monitoring.running_tasks import open_dispatch
from scaler_appliance.core.peers.worker_session import LargeProcess, WorkerSession
from scaler_appliance.core.placement.ready_class import ReadyClass
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.tasks.batches import Dispatch, TaskBatch, position_in_dispatch
from scaler_appliance.core.tasks.memory_needs import LARGE_BYTES
from scaler_protocol import messages as m

ENOUGH_HOSTS = 64  # with room, to choose from
LOOKED_AT = 256  # hosts, in one call
MAPPED_OBJECTS = 256  # of a task that are looked at
PATIENCE = 3.0
PATIENCE_SECONDS = 60.0
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
    """
    Attributes:
        looked_at: how many hosts were, in all.
        freed: sessions of workers at which large tasks have ended, since this was emptied.
    """

    def __init__(self, state: SchedulerState) -> None:
        self.looked_at = 0
        self.freed: Set[int] = set()
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
            had = min(had, size)  # memory that was given back counts again
            worker.large_processes[processor.process_id] = LargeProcess(instance, had, size, processor.suspended)
            dispatch = open_dispatch(self._state.dispatches, worker, instance)
            if dispatch is not None:
                self._state.memory_needs.see(dispatch.batch.function_key, size - had - self._mapped(dispatch, instance))
                if not dispatch.is_of_actor and self._state.memory_needs.of(dispatch.batch):
                    worker.large_dispatches[dispatch.number] = dispatch

    def _mapped(self, dispatch: Dispatch, instance: int) -> int:
        """How many bytes of objects a task may have mapped, which all tasks share."""
        index = dispatch.start + position_in_dispatch(instance)
        objects = map(self._state.objects.find, dispatch.batch.dependencies_of(index, index + 1)[:MAPPED_OBJECTS])
        return sum([record.size for record in objects if record is not None])

    def on_large_ended(self, worker: WorkerSession) -> None:
        """A large task has ended at a worker."""
        if len(self.freed) < ENOUGH_HOSTS:
            self.freed.add(worker.number)

    def need_of_next(self, ready_class: ReadyClass) -> float:
        """The bytes that the task may use whose turn it is; 0: it is not large."""
        batch = ready_class.batch_of_turn()
        return 0.0 if batch is None else self._state.memory_needs.of(batch)

    def is_looked_at(self, ready_class: ReadyClass) -> bool:
        """Whether hosts may have room for the class by now."""
        until, changes = ready_class.without_memory
        return self._state.now >= until or changes != self._state.memory_needs.changes

    def note_without(self, ready_class: ReadyClass, has_free_slot: bool) -> None:
        """No host that was looked at has room for a class of large tasks."""
        if ready_class.waits_since is None and has_free_slot:
            ready_class.waits_since = self._state.now
        ready_class.without_memory = self._state.now + PAUSE_SECONDS, self._state.memory_needs.changes

    def has_room(self, worker: WorkerSession, need: float) -> bool:
        """Whether a worker may get a task that needs so much."""
        room = self._room_of(worker)
        return room.size >= need or not room.is_used

    def has_room_for(self, worker: WorkerSession, batch: TaskBatch) -> bool:
        """The same for a task of a batch, which may not be large."""
        need = self._state.memory_needs.of(batch)
        return not need or self.has_room(worker, need)

    def most_for(self, workers: Iterable[WorkerSession], ready_class: ReadyClass, need: float) -> Dict[int, int]:
        """How many tasks of a class workers should get at most, by session, those with most room first. What is left
        then is asked for again. Empty: they wait.

        Parameters:
            workers: with a free slot, that can run the tasks.
            need: of each task.
        """
        rooms: Dict[str, Room] = {}  # each once, as the workers of a host share what it has
        roomy: List[Tuple[float, WorkerSession]] = []
        rest: List[Tuple[float, WorkerSession]] = []  # without room, or the knowledge whether they have any
        is_impatient = self._is_impatient(ready_class)
        for worker in workers:
            free = worker.slots - worker.assigned
            if worker.place in rooms or free <= 0:
                continue
            room = rooms[worker.place] = self._room_of(worker)
            if room.size >= need:
                roomy.append((room.size, worker))
            elif not roomy and (is_impatient or not room.is_used):
                rest.append((room.size, worker))
            if len(roomy) == ENOUGH_HOSTS or len(rooms) == LOOKED_AT:
                break
        roomy.sort(key=lambda each: -each[0])
        found: Dict[int, int] = {}
        for size, worker in roomy:
            free = worker.slots - worker.assigned
            found[worker.number] = free if size >= need * free else int(size / need)
        if not found and rest:
            found[max(rest, key=lambda each: each[0])[1].number] = 1
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
        """What a worker's host has left for more tasks."""
        self.looked_at += 1
        size, tasks, latest = 0.0, 0, worker
        for each in self._state.workers_by_place.get(worker.place, {}).values():
            if each.heartbeat is not None and _freshness(each) > _freshness(latest):
                latest = each
            if not (each.large_processes or each.large_dispatches):
                continue
            for dispatch in each.large_dispatches.values():
                need = self._state.memory_needs.of(dispatch.batch)
                size -= need * dispatch.open_count
                tasks += dispatch.open_count if need else 0
            idle = []
            for process in each.large_processes.values():
                running = open_dispatch(self._state.dispatches, each, process.instance)
                if running is None:
                    idle.append(process.size)
                elif running.number in each.large_dispatches:
                    size += process.size - process.had_bytes
                    tasks -= process.suspended
            size += sum(sorted(idle)[: max(0, len(idle) - len(each.actors))])
        if latest.heartbeat is None:
            return Room(0.0, tasks > 0)  # its first one follows at once
        if not latest.heartbeat.free_bytes:
            return Room(inf, tasks > 0)  # it does not say
        return Room(size + latest.heartbeat.free_bytes, tasks > 0)


def _freshness(worker: WorkerSession) -> Tuple[float, int]:
    """Of what a worker has told; of the same time, the least that is left counts."""
    return (worker.heartbeat_at, -worker.heartbeat.free_bytes) if worker.heartbeat is not None else (-inf, 0)
