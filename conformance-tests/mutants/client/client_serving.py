"""What workers fetch from a reference client: its data address, and the tickets that are valid there.

Rule: one method, one duty, so that a mutant can break just that.
"""

from __future__ import annotations

from typing import Any, Dict

from mutants.reference_holder import ReferenceHolder, Ticket
from scaler_conformance.codec.schema_codec import Message

KEPT_ARGUMENTS = "keptArguments"
LEAST_BYTES = 1 << 20


class ClientServing(ReferenceHolder):
    """Of one client."""

    def __init__(self, client: Any) -> None:
        self.client = client
        super().__init__()
        self.is_used = False
        self.kept: Dict[int, bytes] = {}

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
        self.stop_listening()

    def on_ticket(self, message: Message) -> None:
        self.tickets[message.secret] = Ticket(message)

    def read(self) -> None:
        self.read_requests()

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
