"""How much each client may have in flight, and which peers are throttled because they do not read.

    unread bytes, unfetched large results ──▶ Flow ──▶ the client's waiting tasks are held; a worker gets none

Rules:
- In flight is what a client has submitted and the scheduler has not released: unfinished tasks, the payloads of batches
  that have any, and objects that are the arguments of one task. What is charged here is released here, once.
- A peer that does not read gets no new work until it does. Messages that are already on their way still arrive. Other
  peers are not affected.
"""

from __future__ import annotations

from typing import Iterator

from scaler_appliance.core.peers.sessions import ClientSession, Session, WorkerSession
from scaler_appliance.core.placement.task_placement import Placement
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.steps import Steps


class FlowControl:
    def __init__(self, state: SchedulerState, placement: Placement) -> None:
        self._state = state
        self._placement = placement

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
