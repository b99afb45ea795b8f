"""Objects that workers fetch here, from a worker or a client: which tickets there are, and who has shown which.

    Ticket from the scheduler ──▶ unused ── first request ──▶ of one connection ── connection closed ──▶ gone
                                     └───── not in time ────▶ expired ── KEPT_EXPIRED_SECONDS ──────────▶ gone

Rules:
- A ticket whose lifetime is 0 takes back the one with the same secret: no request with it is answered any more.
- A request is answered with bytes only if its ticket is for that object, for the key of the connection, and in time; or
  with a Refusal that says what is wrong with it, after which the connection is closed.
- Scheduler and fetcher have connections of their own, so a ticket may be shown before it is known: the request waits
  TICKET_WAIT_SECONDS for it.
- A connection that shows no ticket, or has asked for nothing for long, is closed, so it takes no place for long.

Source: SCL-OBJ-030, SCL-OBJ-031, SCL-OBJ-036, SCL-OBJ-042.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List

from scaler.data_serving.data_effects import CloseData, SendData
from scaler_protocol.wire import messages as m

TICKET_WAIT_SECONDS = 2.0
FIRST_REQUEST_SECONDS = 10.0
IDLE_SECONDS = 30.0
KEPT_EXPIRED_SECONDS = 60.0  # so that its refusal says why
MAXIMUM_TICKETS = 4096
MAXIMUM_EARLY_REQUESTS = 4  # of one connection; a fetcher has no more open before its first answer


class _Ticket:
    __slots__ = ("object_id", "key", "expires_at", "connection")

    def __init__(self, object_id: int, key: bytes, expires_at: float) -> None:
        self.object_id = object_id
        self.key = key  # of the worker that may use it
        self.expires_at = expires_at
        self.connection = 0  # that has used it


class _Caller:
    __slots__ = ("key", "heard_at", "has_shown_ticket", "early", "early_since")

    def __init__(self, key: bytes, now: float) -> None:
        self.key = key  # that it has proved
        self.heard_at = now
        self.has_shown_ticket = False
        self.early: List[m.ObjectRequest] = []  # with a ticket that is not known yet
        self.early_since = now


class TicketService:
    """The holder's part of transfers to workers.

    Parameters:
        effects: where those of data connections are appended.
        read: called with a request that is to be answered, and its connection.
    """

    def __init__(self, effects: List[Any], read: Callable[[m.ObjectRequest, int], None]) -> None:
        self._effects = effects
        self._read = read
        self._tickets: Dict[bytes, _Ticket] = {}
        self._callers: Dict[int, _Caller] = {}

    def __len__(self) -> int:
        return len(self._tickets) + len(self._callers)

    def on_ticket(self, ticket: m.Ticket, now: float) -> None:
        """The scheduler lets a worker fetch an object here, or does not any more, if it lets it for no time."""
        known = self._tickets.get(ticket.secret)
        # SCL-OBJ-036
        if known is not None and not ticket.lifetime_milliseconds:
            known.connection, known.expires_at = 0, now
            return
        if len(self._tickets) >= MAXIMUM_TICKETS:
            del self._tickets[next(iter(self._tickets))]
        expires_at = now + ticket.lifetime_milliseconds / 1000
        self._tickets[ticket.secret] = _Ticket(ticket.id, ticket.key, expires_at)
        for connection, caller in list(self._callers.items()):
            if caller.early and caller.early[0].ticket == ticket.secret:
                early, caller.early = caller.early, []
                for request in early:
                    self.on_request(connection, request, now)

    def on_accepted(self, connection: int, key: bytes, now: float) -> None:
        """Another worker has connected.

        Parameters:
            key: that it has proved; empty: keys are not used.
        """
        self._callers[connection] = _Caller(key, now)

    def on_closed(self, connection: int) -> None:
        """A connection has ended, and with it the tickets that it has used."""
        if self._callers.pop(connection, None) is not None:
            used = [secret for secret, ticket in self._tickets.items() if ticket.connection == connection]
            for secret in used:
                del self._tickets[secret]

    def is_open(self, connection: int) -> bool:
        return connection in self._callers

    # SCL-OBJ-030, SCL-OBJ-042
    def on_request(self, connection: int, request: m.ObjectRequest, now: float) -> None:
        """Another worker requests a part of an object."""
        caller = self._callers.get(connection)
        if caller is None:
            return  # it is being closed
        caller.heard_at = now
        ticket = self._tickets.get(request.ticket)
        if ticket is None:
            self._wait(connection, caller, request, now)
        elif request.id != ticket.object_id or caller.key != ticket.key or ticket.connection not in (0, connection):
            text = f"the ticket is not for object {request.id:x}, this key and this connection"
            self._refuse(connection, m.RefusalReason.TICKET_FOREIGN, text)
        elif not ticket.connection and now >= ticket.expires_at:
            text = f"the ticket for object {request.id:x} was not used in time: ask the scheduler for another one"
            self._refuse(connection, m.RefusalReason.TICKET_EXPIRED, text)
        else:
            ticket.connection, caller.has_shown_ticket = connection, True
            self._read(request, connection)

    def _wait(self, connection: int, caller: _Caller, request: m.ObjectRequest, now: float) -> None:
        """The ticket of a request is not known, or not yet."""
        if caller.has_shown_ticket or len(caller.early) >= MAXIMUM_EARLY_REQUESTS or not request.ticket:
            self._refuse_unknown(connection, request)
        else:
            if not caller.early:
                caller.early_since = now
            caller.early.append(request)

    def _refuse_unknown(self, connection: int, request: m.ObjectRequest) -> None:
        text = f"there is no such ticket for object {request.id:x}: ask the scheduler for one"
        self._refuse(connection, m.RefusalReason.TICKET_UNKNOWN, text)

    def _refuse(self, connection: int, reason: m.RefusalReason, text: str) -> None:
        self._effects.append(SendData(connection, m.Refusal(reason=reason, message=text)))
        self.close(connection)

    def close(self, connection: int) -> None:
        """End a connection, after what was sent."""
        if connection in self._callers:
            self.on_closed(connection)
            self._effects.append(CloseData(connection))

    # SCL-OBJ-031
    def forget(self, object_id: int) -> None:
        """An object is not here any more: neither are its tickets."""
        gone = [secret for secret, ticket in self._tickets.items() if ticket.object_id == object_id]
        for secret in gone:
            del self._tickets[secret]

    def watch(self, now: float) -> None:
        """Refuse what has waited too long, and close connections without use."""
        for connection, caller in list(self._callers.items()):
            limit = IDLE_SECONDS if caller.has_shown_ticket else FIRST_REQUEST_SECONDS
            if caller.early and now - caller.early_since >= TICKET_WAIT_SECONDS:
                self._refuse_unknown(connection, caller.early[0])
            elif now - caller.heard_at >= limit:
                self.close(connection)
        for secret, ticket in list(self._tickets.items()):
            if not ticket.connection and now - ticket.expires_at >= KEPT_EXPIRED_SECONDS:
                del self._tickets[secret]

    def clear(self) -> None:
        """The session has ended."""
        for connection in list(self._callers):
            self.close(connection)
        self._tickets.clear()
