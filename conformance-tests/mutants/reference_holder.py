"""A holder of objects that others fetch, a reference worker or client: its data address, and which tickets it takes.

Rule: one method, one duty, so that a mutant can break just that.
"""

from __future__ import annotations

import time
from typing import Any, Dict

import zmq

from scaler_conformance.codec.schema_codec import SCHEMA, Message


class Ticket:
    def __init__(self, message: Message) -> None:
        self.object_id: int = message.id
        self.expires_at = time.monotonic() + message.lifetimeMilliseconds / 1000
        self.user = b""  # connection that has used it


class ReferenceHolder:
    """The holder's part of transfers."""

    def __init__(self) -> None:
        self.server: Any = None
        self.address = ""
        self.tickets: Dict[bytes, Ticket] = {}

    def listen(self) -> str:
        """Where others fetch from this peer."""
        if self.server is None:
            self.server = zmq.Context.instance().socket(zmq.ROUTER)
            self.server.linger = 1000
            self.server.bind("tcp://127.0.0.1:*")
            self.address = self.server.getsockopt_string(zmq.LAST_ENDPOINT)
        return self.address

    def stop_listening(self) -> None:
        if self.server is not None:
            self.server.close()
            self.server = None

    def read_requests(self) -> None:
        while self.server is not None and self.server.poll(0):
            identity, *frames = self.server.recv_multipart()
            self.on_request(identity, Message(*SCHEMA.decode(frames), b""))

    def on_request(self, identity: bytes, request: Message) -> None:
        raise NotImplementedError

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
