"""What workers fetch from a reference client: its data address, and the tickets that are valid there.

Rule: one method, one duty, so that a mutant can break just that.
"""

from __future__ import annotations

from typing import Any, Dict

import zmq

from mutants.ticket_checks import Ticket, TicketChecks
from scaler_conformance.codec.schema_codec import SCHEMA, Message

KEPT_ARGUMENTS = "keptArguments"
LEAST_BYTES = 1 << 20


class ClientServing(TicketChecks):
    """Of one client."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.server: Any = None
        self.address = ""
        self.is_used = False
        self.kept: Dict[int, bytes] = {}
        self.tickets: Dict[bytes, Ticket] = {}

    def listen(self) -> str:
        """Where workers fetch from this client."""
        if self.server is None:
            self.server = zmq.Context.instance().socket(zmq.ROUTER)
            self.server.linger = 1000
            self.server.bind("tcp://127.0.0.1:*")
            self.address = self.server.getsockopt_string(zmq.LAST_ENDPOINT)
        return self.address

    def begin(self, welcome: Any) -> None:
        self.is_used = self.is_known(welcome)

    def is_known(self, welcome: Any) -> bool:
        """Whether the scheduler knows of clients that keep objects."""
        return KEPT_ARGUMENTS in welcome.features

    def keeps(self, size: int) -> bool:
        return self.is_used and size >= LEAST_BYTES

    def on_deleted(self, object_id: int) -> None:
        """The user needs an object no longer; tasks of others may."""

    def on_ended(self, object_id: int) -> None:
        self.kept.pop(object_id, None)

    def clear(self) -> None:
        self.kept.clear()
        self.tickets.clear()

    def close(self) -> None:
        self.clear()
        if self.server is not None:
            self.server.close()
            self.server = None

    def on_ticket(self, message: Message) -> None:
        self.tickets[message.secret] = Ticket(message)

    def read(self) -> None:
        while self.server is not None and self.server.poll(0):
            identity, *frames = self.server.recv_multipart()
            self.on_request(identity, Message(*SCHEMA.decode(frames), b""))

    def on_request(self, identity: bytes, request: Message) -> None:
        reason = self.fault_of(identity, request)
        if reason:
            self.answer(identity, "Refusal", reason=reason)
            return
        if request.ticket in self.tickets:
            self.tickets[request.ticket].user = identity
        content = self.kept.get(request.id)
        if content is None:
            self.answer(identity, "ObjectResponse", id=request.id, offset=request.offset, status="missing")
        else:
            fields = {"id": request.id, "offset": request.offset, "status": "ok", "size": len(content)}
            self.answer(identity, "ObjectResponse", self.part(content, request), **fields)

    def part(self, content: bytes, request: Message) -> bytes:
        return content[request.offset : request.offset + request.length]
