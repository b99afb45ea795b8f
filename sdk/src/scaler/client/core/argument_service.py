"""Workers fetch what a client keeps: which of them may have what, and what they are sent.

    Ticket of the scheduler ─▶ TicketService ◀─ ObjectRequest of a worker
                                    └─▶ SendPart: a part of an object ─▶ the worker

Rules:
- What is served is what the client has placed as kept, until the scheduler tells it that the object has ended.
- Data connections end with the session: tickets are the scheduler's.
- While there are any, `watch` is called about once a second.

Source: SCL-OBJ-042, SCL-OBJ-043.
"""

from __future__ import annotations

from math import inf
from typing import Any, List, NamedTuple, Optional, Protocol

from scaler.client.core.client_objects import missing
from scaler.client.core.kept_objects import KeptObject
from scaler.data_serving.data_effects import SendData
from scaler.data_serving.ticket_service import TicketService
from scaler_protocol.wire import messages as m

WATCH_SECONDS = 1.0


class SendPart(NamedTuple):
    """Read a part of an object and send it as an ObjectResponse, which reports a missing object as such."""

    connection: int
    kept: KeptObject
    request: m.ObjectRequest


class ServedObjects(Protocol):
    """Finds what a client keeps for others: see `ClientObjects`."""

    def served(self, object_id: int) -> Optional[KeptObject]: ...


class ArgumentService:
    """Parameters:
    objects: what is served.

    Attributes:
        effects: SendPart, and SendData and CloseData of `data_effects`, to be performed in order.
        next_time: when `watch` has to be called.
    """

    def __init__(self, objects: ServedObjects) -> None:
        self.effects: List[Any] = []
        self.next_time = inf
        self._objects = objects
        self._tickets = TicketService(self.effects, self._read)

    def __len__(self) -> int:
        return len(self._tickets)

    def on_ticket(self, ticket: m.Ticket, now: float) -> None:
        """The scheduler lets a worker fetch an object here, or does not any more."""
        self._tickets.on_ticket(ticket, now)
        self._plan(now)

    def on_instruction(self, message: m.ObjectInstruction) -> None:
        """Objects have ended, and with them their tickets."""
        for object_id in message.ids if message.action == m.ObjectAction.DELETE else ():
            self._tickets.forget(object_id)

    def on_accepted(self, connection: int, key: bytes, now: float) -> None:
        """A worker has connected; the key is the one that it has proved."""
        self._tickets.on_accepted(connection, key, now)
        self._plan(now)

    def on_message(self, connection: int, message: m.Message, now: float) -> None:
        """A worker has sent something."""
        if isinstance(message, m.ObjectRequest):
            self._tickets.on_request(connection, message, now)
        else:
            self._tickets.close(connection)
        self._plan(now)

    def on_closed(self, connection: int) -> None:
        """The connection of a worker has ended."""
        self._tickets.on_closed(connection)

    def _read(self, request: m.ObjectRequest, connection: int) -> None:
        kept = self._objects.served(request.id)
        if kept is None or request.offset > kept.size:
            self.effects.append(SendData(connection, missing(request)))
        else:
            self.effects.append(SendPart(connection, kept, request))

    def _plan(self, now: float) -> None:
        if self.next_time == inf and len(self._tickets):
            self.next_time = now + WATCH_SECONDS

    def watch(self, now: float) -> None:
        """Give up what has waited too long."""
        self.next_time = inf
        self._tickets.watch(now)
        self._plan(now)

    def end_session(self) -> None:
        """The session has ended: so do its tickets and data connections."""
        self._tickets.clear()
        self.next_time = inf
