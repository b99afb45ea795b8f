"""Which tickets a reference holder takes, a worker or a client, and what it answers who shows another one.

Rule: one method, one duty, so that a mutant can break just that.
"""

from __future__ import annotations

import time
from typing import Any, Dict

from scaler_conformance.codec.schema_codec import SCHEMA, Message


class Ticket:
    def __init__(self, message: Message) -> None:
        self.object_id: int = message.id
        self.expires_at = time.monotonic() + message.lifetimeMilliseconds / 1000
        self.user = b""  # connection that has used it


class TicketChecks:
    """The holder's part of transfers."""

    server: Any
    tickets: Dict[bytes, Ticket]

    def fault_of(self, identity: bytes, request: Message) -> str:
        """Why a ticket is not valid; empty if it is."""
        ticket = self.tickets.get(request.ticket)
        if ticket is None:
            return self.fault_of_unknown()
        if not self.is_for_object(ticket, request) or not self.is_for_connection(ticket, identity):
            return "ticketForeign"
        return "ticketExpired" if self.has_expired(ticket) else ""

    def fault_of_unknown(self) -> str:
        return "ticketUnknown"

    def is_for_object(self, ticket: Ticket, request: Message) -> bool:
        return bool(ticket.object_id == request.id)

    def is_for_connection(self, ticket: Ticket, identity: bytes) -> bool:
        return ticket.user in (b"", identity)

    def has_expired(self, ticket: Ticket) -> bool:
        return not ticket.user and time.monotonic() >= ticket.expires_at

    def answer(self, identity: bytes, type_: str, payload: bytes = b"", **fields: Any) -> None:
        self.server.send_multipart([identity, SCHEMA.encode(type_, fields), *([payload] if payload else [])])
