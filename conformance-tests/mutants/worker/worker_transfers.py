"""The reference worker's transfers: objects that it fetches from other workers, and that they fetch from it.

Rules:
- A holder that has not answered for PATIENCE_SECONDS counts as gone: libzmq does not tell that a connection fails.
- One method, one duty, as in the worker.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List, Optional

import zmq

from mutants.reference_holder import ReferenceHolder, Ticket
from scaler_conformance.codec.schema_codec import SCHEMA, Message

PEER_FETCH = "peerFetch"
PATIENCE_SECONDS = 0.2


class DirectFetch:
    """From another worker."""

    def __init__(self, ticket: Message, socket: Any, size: int) -> None:
        self.ticket = ticket
        self.size = size  # as it was announced
        self.socket = socket
        self.asked_at = time.monotonic()


class WorkerTransfers(ReferenceHolder):
    """Of one worker; `owner` sends to the scheduler."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        super().__init__()
        self.is_used = False
        self.fetches: Dict[int, Optional[DirectFetch]] = {}  # by object; None: a ticket was asked for

    def begin(self, welcome: Message) -> None:
        self.is_used = PEER_FETCH in welcome.features

    def sockets(self) -> List[Any]:
        found = [fetch.socket for fetch in self.fetches.values() if fetch is not None]
        return [*found, self.server] if self.server is not None else found

    def clear(self) -> None:
        self.tickets.clear()
        for object_id in list(self.fetches):
            self.stop(object_id)

    def close(self) -> None:
        self.clear()
        self.stop_listening()

    def read(self) -> None:
        self.read_requests()
        for object_id, fetch in list(self.fetches.items()):
            while fetch is not None and self.fetches.get(object_id) is fetch and fetch.socket.poll(0):
                frames = fetch.socket.recv_multipart()
                self.on_part(object_id, fetch, Message(*SCHEMA.decode(frames), b"".join(frames[1:2])))

    def on_ticket(self, message: Message) -> None:
        if message.holder == self.owner.session:
            self.tickets[message.secret] = Ticket(message)
        elif message.id in self.fetches and not message.holder:
            self.stop(message.id)
            self.owner.objects.fetch_from_scheduler(message.id)
        elif message.id in self.fetches:
            self.connect(message)

    # As a holder ----------------------------------------------------------------------------------------------------

    def on_request(self, identity: bytes, request: Message) -> None:
        reason = self.fault_of(identity, request)
        if reason:
            self.answer(identity, "Refusal", reason=reason)
            return
        self.tickets[request.ticket].user = identity
        content = self.owner.objects.mine.get(request.id)
        if content is None:
            self.answer(identity, "ObjectResponse", id=request.id, offset=request.offset, status="missing")
        else:
            chunk = content[request.offset : request.offset + request.length]
            fields = {"id": request.id, "offset": request.offset, "status": "ok", "size": len(content)}
            self.answer(identity, "ObjectResponse", chunk, **fields)

    # As a fetcher ---------------------------------------------------------------------------------------------------

    def fetch(self, object_id: int, failed: int = 0) -> None:
        """Ask where an object can be fetched."""
        self.fetches[object_id] = None
        self.owner.send("TicketRequest", id=object_id, failedHolder=failed)

    def connect(self, ticket: Message) -> None:
        socket: Any = zmq.Context.instance().socket(zmq.DEALER)
        socket.linger = 0
        socket.connect(ticket.address)
        fetch = self.fetches[ticket.id] = DirectFetch(ticket, socket, self.owner.objects.held[ticket.id])
        self.request_next(ticket.id, fetch)

    def request_next(self, object_id: int, fetch: DirectFetch) -> None:
        self.request(object_id, fetch, len(self.owner.objects.fetches[object_id].content))

    def request(self, object_id: int, fetch: DirectFetch, offset: int) -> None:
        length = self.owner.objects.chunk_bytes
        fields = {"id": object_id, "offset": offset, "length": length, "ticket": fetch.ticket.secret}
        fetch.socket.send_multipart([SCHEMA.encode("ObjectRequest", fields)])
        fetch.asked_at = time.monotonic()

    def on_part(self, object_id: int, fetch: DirectFetch, message: Message) -> None:
        found = self.owner.objects.fetches[object_id]
        offset = len(found.content)
        if message.type != "ObjectResponse" or message.status != "ok" or message.offset != offset:
            self.on_failed(object_id, fetch)
            return
        wanted = min(self.owner.objects.chunk_bytes, fetch.size - offset)
        if not (self.is_size(message.size, fetch) and self.is_part(len(message.payload), wanted)):
            self.on_failed(object_id, fetch)
            return
        found.content += message.payload
        found.size = message.size
        if len(found.content) < message.size:
            self.request_next(object_id, fetch)
            return
        self.stop(object_id)
        self.owner.objects.complete_copy(object_id)
        self.tell_hold(object_id)

    def is_size(self, size: int, fetch: DirectFetch) -> bool:
        """Whether an object can have this size."""
        return size == fetch.size

    def is_part(self, length: int, wanted: int) -> bool:
        """Whether an answer has as many bytes as were wanted."""
        return length == wanted

    def report_copy_of_scheduler(self, object_id: int) -> None:
        self.owner.send("ObjectInstruction", action="hold", ids=[object_id])

    def tell_hold(self, object_id: int) -> None:
        self.owner.send("ObjectInstruction", action="hold", ids=[object_id])

    def on_time(self, now: float) -> None:
        for object_id, fetch in list(self.fetches.items()):
            if fetch is not None and now - fetch.asked_at > PATIENCE_SECONDS:
                self.on_failed(object_id, fetch)

    def on_failed(self, object_id: int, fetch: DirectFetch) -> None:
        self.stop(object_id)
        self.fetch(object_id, fetch.ticket.holder)

    def stop(self, object_id: int) -> None:
        fetch = self.fetches.pop(object_id, None)
        if fetch is not None:
            fetch.socket.close()
