"""How much each client may have in flight, and which peers are throttled because they do not read.

    unread bytes, unfetched large results ──▶ Flow ──▶ the client's waiting tasks are held; a worker gets none
    memory that is in use ──────────────────▶ Flow ──▶ clients may have less in flight

Rules:
- In flight is what a client has submitted and the scheduler has not released: unfinished tasks, the payloads of batches
  that have any, and objects that are the arguments of one task. What is charged here is released here, once.
- While memory is short, clients may have less in flight. The client that holds most is disconnected when there is none
  left.
- A peer that does not read gets no new work until it does. Messages that are already on their way still arrive. Other
  peers are not affected.
"""

from __future__ import annotations

from typing import Iterator, Optional

from scaler_appliance.core.memory_budget import MemoryLevel
from scaler_appliance.core.peers.sessions import ClientSession, Session
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.placement.task_placement import Placement
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.steps import Steps

LEAST_TASKS = 64
LEAST_TASKS_PER_SLOT = 4
LEAST_BYTES = 1 << 20
"""Every client may have this much in flight, however short memory is."""

SECONDS_BETWEEN_DISCONNECTIONS = 2.0
"""So long it may take until what a client held is free, and was measured."""

TASK_BYTES, NODE_BYTES, OBJECT_BYTES = 64, 200, 700
"""About what each takes in memory, besides its content."""


class FlowControl:
    def __init__(self, state: SchedulerState, placement: Placement) -> None:
        self._state = state
        self._placement = placement
        self._next_disconnection = 0.0

    # Memory ---------------------------------------------------------------------------------------------------------

    def on_memory_used(self, now: float, heap_bytes: int) -> Optional[ClientSession]:
        """So much memory is in use; returns a client that has to go."""
        state, memory = self._state, self._state.objects.memory
        budget = state.budget
        if budget.measure(heap_bytes, memory.bytes_to_stay, memory.leaving_bytes):
            text = "memory is short" if budget.is_short else "memory is no longer short"
            used = budget.describe(memory.bytes_to_stay + memory.leaving_bytes)
            level = "WARNING" if budget.is_short else "INFO"
            state.log(level, f"Scheduler: {text}: {used}{self._consequence()}")
            for client in state.clients.values():
                self.grant(client)
        if memory.most_bytes:
            memory.set_limit(budget.files_limit_bytes(memory.most_bytes))
        if budget.level < MemoryLevel.EXHAUSTED or now < self._next_disconnection:
            return None
        self._next_disconnection = now + SECONDS_BETWEEN_DISCONNECTIONS
        return max((each for each in state.clients.values() if not each.is_gone), key=_held_bytes, default=None)

    def _consequence(self) -> str:
        level = self._state.budget.level
        if level >= MemoryLevel.FULL:
            return "; new tasks are rejected (--memory-limit)"
        return "; clients may have less in flight (--memory-limit)" if level else ""

    def grant(self, client: ClientSession) -> None:
        """Let a client have as much in flight as memory allows."""
        flow, budget = client.flow, self._state.budget
        least_tasks = max(LEAST_TASKS, LEAST_TASKS_PER_SLOT * self._state.slots_for(client.tenant))
        if flow.grant(budget.granted(flow.tasks_limit, least_tasks), budget.granted(flow.bytes_limit, LEAST_BYTES)):
            self._state.touched[client.number] = client

    # Peers that do not read -----------------------------------------------------------------------------------------

    def on_congestion(self, session: Session, is_congested: bool) -> None:
        """A peer leaves many bytes unread, or has read most of them."""
        session.is_congested = is_congested
        self._state.touch_session(session)
        if isinstance(session, ClientSession):
            self.hold_or_resume(session)
        elif isinstance(session, WorkerSession):
            if is_congested:
                self._placement.remove_worker(session)
            else:
                self._placement.on_load_changed(session)

    def hold_or_resume(self, client: ClientSession) -> None:
        """Hold the waiting tasks of a client that does not read its results, or release them."""
        if self._state.sessions.get(client.peer) is not client:
            return  # it is leaving
        limit = self._state.settings.client_bytes_in_flight
        # SCL-SCH-033
        is_held = client.is_congested or (limit > 0 and client.large_results.total_bytes >= limit)
        if is_held and not self._state.ready.is_held(client.number):
            self._state.ready.hold(client.number)
        elif not is_held and self._state.ready.is_held(client.number):
            self._state.ready.resume(client.number)

    def short_of_credit(self) -> Iterator[ClientSession]:
        """Clients that might be given credit by freeing the memory of finished tasks in unfinished batches."""
        for client in self._state.clients.values():
            if client.compactable and client.flow.bytes_in_flight * 2 > client.flow.bytes_limit > 0:
                yield client

    def compact(self, client: ClientSession) -> Steps:
        """Free the memory of finished tasks in a client's unfinished batches."""
        while client.compactable:
            _, batch = client.compactable.popitem()
            if batch.charged_bytes:
                freed_bytes = batch.compact()
                client.flow.release(0, freed_bytes)
                client.touch()
                self._state.touch_session(client)
            yield 1 + len(batch) // 4


def _held_bytes(client: ClientSession) -> int:
    """About how much memory what a client has submitted takes."""
    nodes = sum(map(len, client.graphs.values()))
    return (
        client.flow.bytes_in_flight
        + TASK_BYTES * client.unfinished
        + NODE_BYTES * nodes
        + OBJECT_BYTES * (len(client.objects) + len(client.dependants.waiting))
        + client.object_bytes
    )
