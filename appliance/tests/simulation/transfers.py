"""Transfers between simulated workers: with tickets, over links of their own that fail.

Rules:
- A holder serves a ticket that the scheduler has told it, for the object of that ticket; the fetcher's may come first.
- A copy has the bytes of the object, from any holder, and however often its fetcher had to go on elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict

from simulation.peers import Fetch
from simulation.world import CHUNK_BYTES, column

from scaler_protocol import messages as m

if TYPE_CHECKING:
    from simulation.workers import Worker

MOST_WAITS = 3  # for a ticket that is on its way to its holder
WAIT_SECONDS = 0.7


class WorkerTransfers:
    """Those of one worker, from and to others."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.tickets: Dict[bytes, int] = {}  # objects that others may fetch here, by secret
        self._room = worker.world.transfers

    def _has_fault(self) -> bool:
        return not self.worker.world.is_calm and self._room.random.random() < self._room.fault_rate

    def begin(self, object_id: int, size: int) -> None:
        worker = self.worker
        worker.fetches[object_id] = Fetch(size)
        worker.send(m.TicketRequest(id=object_id))

    def on_ticket(self, ticket: m.Ticket) -> None:
        worker = self.worker
        if ticket.holder == worker.session:
            is_taken_back = not ticket.lifetime_milliseconds
            assert not ticket.address and (ticket.secret in self.tickets) is is_taken_back
            self.tickets[ticket.secret] = ticket.id
            if is_taken_back:
                del self.tickets[ticket.secret]
            return
        fetch = worker.fetches.get(ticket.id)
        if fetch is None:
            return  # it has been deleted meanwhile
        if self._has_fault() and self._room.random.random() < 0.2:  # it gives up, and begins again
            worker.send(m.ObjectInstruction(action=m.ObjectAction.DROP, ids=column([ticket.id])))
            self.begin(ticket.id, fetch.size)
        elif not ticket.holder:
            worker.send(m.ObjectRequest(id=ticket.id, offset=len(fetch.content), length=CHUNK_BYTES))
        else:
            self._plan(ticket, fetch, 0.0)

    def _plan(self, ticket: m.Ticket, fetch: Fetch, seconds: float, waits: int = 0) -> None:
        era = self.worker.era
        delay = self._room.random.expovariate(1 / self.worker.world.rates.delay_seconds)

        def step() -> None:
            worker = self.worker
            if worker.is_alive and worker.era == era and worker.fetches.get(ticket.id) is fetch:
                self._step(ticket, fetch, waits)

        self.worker.world.after(seconds + delay, step)

    def _step(self, ticket: m.Ticket, fetch: Fetch, waits: int) -> None:
        worker, holder = self.worker, self._room.workers[ticket.address]
        is_there = holder.is_alive and holder.session == ticket.holder and not self._has_fault()
        if is_there and ticket.secret not in holder.transfers.tickets and waits < MOST_WAITS:
            self._plan(ticket, fetch, WAIT_SECONDS, waits + 1)
            return
        served = holder.transfers.tickets.get(ticket.secret) if is_there else None
        content = holder.kept.get(ticket.id)
        if served is None or content is None:
            worker.send(m.TicketRequest(id=ticket.id, failed_holder=ticket.holder))
            return
        assert served == ticket.id
        fetch.content += content[len(fetch.content) : len(fetch.content) + CHUNK_BYTES]
        if len(fetch.content) < fetch.size:
            self._plan(ticket, fetch, 0.0)
            return
        del worker.fetches[ticket.id]
        worker.kept[ticket.id] = bytes(fetch.content)
        worker.send(m.ObjectInstruction(action=m.ObjectAction.HOLD, ids=column([ticket.id])))
        self._room.copies += 1
        worker.on_fetched(ticket.id, bytes(fetch.content))
