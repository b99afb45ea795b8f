"""Which free slots have the memory that a task may use: two large tasks should not meet on a small host.

    heartbeats: what the process of each task has ──▶ the most, by function ──┐
    memory limits of tasks ──────────────────────────────────────────────────┴─▶ need of a task
    heartbeats: what hosts have left, and large processes have ──▶ what all large tasks of a host may have
                                                less the needs of those that it has now  =  room

Rules:
- A task may use as much as any of its function was seen to use, or, if none was seen, as its limit allows.
- Only tasks that use much, for a second or longer, count. Those that are over before a heartbeat is sent are not seen.
- A process keeps what the tasks before have left in it, and the next one runs there: it takes nothing of what is left.
- Among free slots, those of hosts with room for it come first. If there is none, the task runs all the same, where most
  room is left: what was seen of others is no certainty, and no reason to wait.
"""

from __future__ import annotations

from itertools import islice
from math import inf
from typing import Dict, Iterable, Set

from scaler_appliance.core.monitoring.running_tasks import open_dispatch
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.placement.ready_class import ReadyClass
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.tasks.batches import TaskBatch
from scaler_protocol import messages as m

LARGE_BYTES = 256 * 1024 * 1024
LEAST_MICROSECONDS = 1e6
LOOKED_AT = 64  # workers
DISPATCHES_OF_A_WORKER = 64  # that are looked at: large tasks are few, and stay for long


class MemoryRoom:
    def __init__(self, state: SchedulerState) -> None:
        self._state = state

    def on_heartbeat(self, worker: WorkerSession, message: m.Heartbeat) -> None:
        """A worker says what its processors have."""
        worker.large_process_bytes = 0
        for processor in message.processors:
            size = processor.resident_bytes
            if size < LARGE_BYTES:
                continue
            worker.large_process_bytes += size
            dispatch = open_dispatch(self._state.dispatches, worker, processor.instance)
            if dispatch is not None:
                function = dispatch.batch.function_key
                self._state.peak_bytes.set(function, max(size, self._state.peak_bytes.get(function) or 0))

    def need_of(self, batch: TaskBatch) -> float:
        """The bytes that a task of the batch may use; 0: it is not large."""
        need: float = batch.options.memory_limit_bytes
        if len(self._state.peak_bytes):
            need = self._state.peak_bytes.get(batch.function_key) or need
        if need < LARGE_BYTES:
            return 0.0
        microseconds = self._state.durations.get(batch.function_key)
        return need if microseconds is None or microseconds >= LEAST_MICROSECONDS else 0.0

    def need_of_next(self, ready_class: ReadyClass) -> float:
        """The same of the task whose turn it is."""
        batch = ready_class.batch_of_turn()
        return 0.0 if batch is None else self.need_of(batch)

    def most_for(self, workers: Iterable[WorkerSession], need: float) -> Dict[int, int]:
        """How many tasks workers should get at most, by session, those with most room first. What is left then is asked
        for again.

        Parameters:
            workers: with a free slot, that can run the tasks.
            need: of each task.
        """
        rooms = [(self._room_of(worker), worker) for worker in islice(workers, LOOKED_AT)]
        rooms.sort(key=lambda each: -each[0])
        found: Dict[int, int] = {}
        places: Set[str] = set()  # each once, as its workers share what it has
        for room, worker in rooms:
            if room >= need and worker.place not in places:
                free = worker.slots - worker.assigned
                found[worker.number] = free if room >= need * free else int(room / need)
                places.add(worker.place)
        if rooms and not found:
            found[rooms[0][1].number] = 1
        return found

    def _room_of(self, worker: WorkerSession) -> float:
        """How many more bytes tasks of a worker's host may use."""
        if worker.heartbeat is None or not worker.heartbeat.free_bytes:
            return inf
        room = float(worker.heartbeat.free_bytes)
        for each in self._state.workers_by_place.get(worker.place, {}).values():
            earliest = islice(each.dispatches.values(), DISPATCHES_OF_A_WORKER)
            room += each.large_process_bytes - sum([self.need_of(one.batch) * one.open_count for one in earliest])
        return room
