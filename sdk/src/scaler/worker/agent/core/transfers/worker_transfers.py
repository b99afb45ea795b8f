"""Transfers between this worker and others: as fetcher and as holder.

Rules:
- A data connection has a number: positive if this worker has made it, and negative if another one has.
- Data connections belong to a session, and end with it.
- While there are any, `watch` is called about once a second.
"""

from __future__ import annotations

from typing import Callable, List

from scaler.data_serving.ticket_service import TicketService
from scaler.worker.agent.core.effects import Effect
from scaler.worker.agent.core.transfers.direct_fetches import DirectFetches, FetchOwner, host_of
from scaler.worker.frames import Buffer
from scaler_protocol import messages as m
from scaler_protocol.session.features import PEER_FETCH
from scaler_protocol.session.peer_session import NEVER

WATCH_SECONDS = 1.0


class WorkerTransfers:
    """Parameters:
    effects: shared with the rest of the core.
    owner: of what is fetched.
    read: called with a request of another worker that is to be answered, and its connection.
    """

    def __init__(self, effects: List[Effect], owner: FetchOwner, read: Callable[[m.ObjectRequest, int], None]) -> None:
        self.fetches = DirectFetches(effects, owner)
        self.service = TicketService(effects, read)
        self.is_used = False  # in this session
        self.next_time = NEVER
        """When `watch` has to be called."""
        self._session = 0

    def start_session(self, welcome: m.Welcome, data_address: str) -> None:
        """
        Parameters:
            data_address: where others reach this worker, if it has listed the feature.
        """
        self._session = welcome.session
        self.fetches.data_host = host_of(data_address) if welcome.object_directory_token else ""
        self.is_used = bool(data_address) and PEER_FETCH in welcome.features

    def clear(self) -> None:
        """The session has ended."""
        self.fetches.clear()
        self.service.clear()
        self.next_time = NEVER

    def on_ticket(self, ticket: m.Ticket, now: float) -> None:
        """The scheduler lets this worker fetch an object, or lets another one fetch it here."""
        if ticket.holder == self._session:
            self.service.on_ticket(ticket, now)
        else:
            self.fetches.on_ticket(ticket, now)
        self._plan(now)

    def on_accepted(self, connection: int, key: bytes, now: float) -> None:
        self.service.on_accepted(connection, key, now)
        self._plan(now)

    def on_connected(self, connection: int, now: float) -> None:
        self.fetches.on_connected(connection, now)

    def on_message(self, connection: int, message: m.Message, payload: Buffer, now: float) -> None:
        """Another worker has sent something."""
        if connection > 0:
            self.fetches.on_message(connection, message, payload, now)
        elif isinstance(message, m.ObjectRequest):
            self.service.on_request(connection, message, now)
        else:
            self.service.close(connection)
        self._plan(now)

    def on_closed(self, connection: int, reason: str) -> None:
        """A connection has ended, or could not be made."""
        if connection > 0:
            self.fetches.on_closed(connection, reason)
        else:
            self.service.on_closed(connection)

    def _plan(self, now: float) -> None:
        if self.next_time == NEVER and (len(self.fetches) or len(self.service)):
            self.next_time = now + WATCH_SECONDS

    def watch(self, now: float) -> None:
        """Give up what has waited too long."""
        self.next_time = NEVER
        self.fetches.watch(now)
        self.service.watch(now)
        self._plan(now)
