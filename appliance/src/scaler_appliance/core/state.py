"""Everything the scheduler knows, in one place; reactions are methods of the modules beside this one.

Rules:
- Data and small accessors only: no decision is taken here.
- `check_invariants` holds between any two events; tests and simulations call it after each one.
"""

from __future__ import annotations

from collections import Counter
from typing import Counter as CounterType
from typing import Dict, List, NamedTuple, Sequence

from scaler_appliance.core.batches import Dispatch
from scaler_appliance.core.effects import Buffer, Effect, Log, Send
from scaler_appliance.core.objects import ObjectTable
from scaler_appliance.core.ready import ReadyQueues
from scaler_appliance.core.sessions import ClientSession, Session, WorkerSession
from scaler_appliance.core.task_states import FINAL_STATES, TaskState
from scaler_protocol import messages as m


class Settings(NamedTuple):
    """Options of the scheduler that its decisions depend on. Times in seconds, sizes in bytes."""

    client_timeout_seconds: float = 60.0
    worker_timeout_seconds: float = 60.0
    heartbeat_interval_seconds: float = 2.0
    per_worker_queue_size: int = 1000
    max_number_of_tasks_waiting: int = -1
    protected: bool = True
    prefetch_seconds: float = 0.15
    maximum_attempts: int = 4
    maximum_message_bytes: int = 512 * 1024 * 1024
    maximum_object_bytes: int = 1 << 40
    chunk_bytes: int = 1024 * 1024
    inline_bytes: int = 64 * 1024
    implementation: m.Implementation = m.Implementation(name="scaler-appliance")
    scheduler_id: bytes = bytes(16)
    object_directory: str = ""
    object_directory_token: bytes = b""
    monitor_address: str = ""


class State:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.effects: List[Effect] = []
        self.sessions: Dict[bytes, Session] = {}  # by peer
        self.clients: Dict[int, ClientSession] = {}  # by session number
        self.workers: Dict[int, WorkerSession] = {}
        self.total_slots = 0  # of all workers
        self.last_session = 0
        self.touched: Dict[int, Session] = {}  # have something to be sent at the end of this burst
        self.objects = ObjectTable(self.effects, settings.chunk_bytes)
        self.ready = ReadyQueues()
        self.dispatches: Dict[int, Dispatch] = {}
        self.last_dispatch = 0
        self.durations: Dict[object, float] = {}  # mean task duration in microseconds, by function
        self.finished = [0] * len(TaskState)  # how many tasks ended in each state
        self.stale_results = 0

    def log(self, level: str, text: str) -> None:
        self.effects.append(Log(level, text))

    def send(self, peer: bytes, message: m.Member, payload: Sequence[Buffer] = ()) -> None:
        self.effects.append(Send(peer, message, payload))

    def running(self) -> int:
        """How many tasks are at workers."""
        return sum(worker.assigned for worker in self.workers.values())

    def check_invariants(self) -> None:
        """Cross-check all indexes; costs time in proportion to everything there is."""
        queued = 0
        assigned: CounterType[int] = Counter()
        for client in self.clients.values():
            for batch in client.batches():
                assert batch.client == client.number
                counts = Counter(batch.states)
                queued += counts[TaskState.QUEUED]
                open_tasks = counts[TaskState.QUEUED] + counts[TaskState.ASSIGNED] + counts[TaskState.CANCELLING]
                assert batch.unfinished == open_tasks > 0, f"{batch.unfinished} counted, {open_tasks} open"
                for index, state in enumerate(batch.states):
                    if state in (TaskState.ASSIGNED, TaskState.CANCELLING):
                        assigned[batch.dispatch_of(index).worker] += 1
                for dispatch in batch.dispatches.values():
                    assert self.dispatches[dispatch.number] is dispatch
        assert queued == len(self.ready), f"{queued} tasks are QUEUED, {len(self.ready)} are waiting"
        self._check_workers(assigned)
        assert len(self.sessions) == len(self.clients) + len(self.workers)
        self._check_objects()

    def _check_workers(self, assigned: CounterType[int]) -> None:
        for worker in self.workers.values():
            assert worker.assigned == assigned[worker.number], f"{worker.title}: {worker.assigned} counted"
            assert worker.assigned == sum(dispatch.open_count for dispatch in worker.dispatches.values())
            worker.check_invariants()
        assert self.total_slots == sum(worker.hello.slots for worker in self.workers.values())
        assert len(self.dispatches) == sum(len(worker.dispatches) for worker in self.workers.values())
        for dispatch in self.dispatches.values():
            assert dispatch.open_count == sum(dispatch.open) > 0
            assert dispatch.batch.dispatches[dispatch.number] is dispatch

    def _check_objects(self) -> None:
        references: CounterType[int] = Counter()
        for client in self.clients.values():
            for batch in client.batches():
                references[batch.function] += 1
                for index, state in enumerate(batch.states):
                    if state not in FINAL_STATES and batch.dependency_counts:
                        references.update(batch.dependencies_of(index, index + 1))
        for record in self.objects.records():
            assert record.references == references[record.object_id], f"object {record.object_id:x}"
            assert record.held or record.references > 0
            if record.held:
                owner = self.clients.get(record.owner) or self.workers.get(record.owner)
                assert owner is not None and record.object_id in owner.objects
            for number in record.holders:
                assert record.object_id in self.workers[number].known_objects
        assert self.objects.total_bytes == sum(record.size for record in self.objects.records())
