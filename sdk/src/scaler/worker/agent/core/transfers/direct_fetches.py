"""Objects that are fetched from other workers, or a client: at whom, with which ticket, and what follows if that fails.

    begin ─▶ TicketRequest ─▶ Ticket ─▶ connect ─▶ requests and answers ─▶ whole: the scheduler learns of the copy
                  │              ├─ of a holder on this host: its file is looked for first
                  ▲              └─ no holder: through the scheduler, from the offset that has been reached
                  └── it fails: closed, refused, silent, without the bytes; the next request names the holder

Rules:
- What has arrived stays, from any peer: only what is missing is requested from the next one.
- So many objects are fetched at once, in sum, each over a connection of its own. The others wait.
- Of several objects from one holder the first one comes nearly alone: for each of the others, one request is open
  meanwhile. So tasks begin one after the other while the next bytes come, and not all of them late.
- How many parts are requested ahead depends on how far the holder is (see `RequestPace`): each holder begins with few.
- A holder that sends nothing for STALL_SECONDS although it was asked counts as gone, unless this worker still writes
  what it has sent before, and reads no more meanwhile. So does one to which there is no connection after
  CONNECT_SECONDS: a client may be behind a router, which drops what would reach it.

Source: SCL-OBJ-028.
"""

from __future__ import annotations

from array import array
from typing import Dict, List, Optional, Protocol

from scaler.worker.agent.core.effects import DEBUG, INFO, CloseData, ConnectData, Effect, Log, Send, SendData
from scaler.worker.agent.core.transfers.object_progress import ObjectFetch
from scaler.worker.agent.core.transfers.request_pace import RequestPace
from scaler.worker.frames import Buffer
from scaler_protocol import MalformedMessageError
from scaler_protocol import messages as m

MAXIMUM_DIRECT_FETCHES = 8
OPEN_BEHIND_OTHERS = 1  # requests
CONNECT_SECONDS = 3.0
"""So one packet of the handshake may be lost: it is sent again after a second."""
STALL_SECONDS = 10.0


class FetchOwner(Protocol):
    """Notified about direct fetches."""

    def look_nearby(self, object_id: int) -> None:
        """A holder on this host is named: its file may be reached. `go_on` follows if it cannot."""

    def on_holder_ready(self, object_id: int) -> None:
        """The connection to a holder is made: requests may be sent."""

    def on_part_received(self, object_id: int, message: m.ObjectResponse, chunk: Buffer) -> None:
        """Requested bytes have come.

        Raises MalformedMessageError if they were not requested.
        """

    def on_no_holder(self, object_id: int) -> None:
        """The scheduler names no worker: the rest of the object is to be requested from the scheduler."""


class _DirectFetch:
    __slots__ = ("progress", "window", "pace", "ticket", "connection", "is_connected", "heard_at")

    def __init__(self, progress: ObjectFetch) -> None:
        self.progress = progress
        self.window = progress.window
        self.pace = RequestPace()
        self.ticket: Optional[m.Ticket] = None  # None: it was asked for
        self.connection = 0
        self.is_connected = False
        self.heard_at = 0.0


class DirectFetches:
    """The fetcher's part of transfers to workers.

    Parameters:
        effects: shared with the rest of the core.
    """

    def __init__(self, effects: List[Effect], owner: FetchOwner) -> None:
        self._effects = effects
        self._owner = owner
        self._waiting: Dict[int, ObjectFetch] = {}  # for their turn
        self._fetches: Dict[int, _DirectFetch] = {}  # by object
        self._objects: Dict[int, int] = {}  # by connection
        self._last_connection = 0
        self.data_host = ""
        """Where others connect to this worker, without the port; empty: files on this host are not looked for."""

    def __len__(self) -> int:
        return len(self._fetches)

    def begin(self, object_id: int, progress: ObjectFetch) -> None:
        """Fetch an object from its holders, now or when others are done."""
        if len(self._fetches) >= MAXIMUM_DIRECT_FETCHES:
            self._waiting[object_id] = progress
        else:
            self._ask(object_id, progress, 0)

    def _ask(self, object_id: int, progress: ObjectFetch, failed: int) -> None:
        self._fetches[object_id] = _DirectFetch(progress)
        self._effects.append(Send(m.TicketRequest(id=object_id, failed_holder=failed)))

    def on_ticket(self, ticket: m.Ticket, now: float) -> None:
        """The scheduler names a holder, or none."""
        fetch = self._fetches.get(ticket.id)
        if fetch is None or fetch.ticket is not None:
            return  # it was deleted meanwhile
        if not ticket.holder:
            del self._fetches[ticket.id]
            fetch.window.most_unanswered = fetch.pace.most  # whatever the last holder might have had
            self._owner.on_no_holder(ticket.id)
            self._begin_next()
            return
        fetch.ticket, fetch.heard_at = ticket, now
        is_near = bool(self.data_host) and host_of(ticket.address) == self.data_host
        if is_near and not fetch.window.received_bytes:
            self._owner.look_nearby(ticket.id)
        else:
            self._connect(fetch)

    def go_on(self, object_id: int, progress: ObjectFetch) -> None:
        """Fetch an object of which there is no file on this host: ask for a holder, or connect to the one named."""
        fetch = self._fetches.get(object_id)
        if fetch is None:
            self.begin(object_id, progress)
        elif fetch.ticket is not None and not fetch.connection:
            self._connect(fetch)

    def _connect(self, fetch: _DirectFetch) -> None:
        ticket = fetch.ticket
        assert ticket is not None
        self._last_connection += 1
        fetch.connection = self._last_connection
        self._objects[fetch.connection] = ticket.id
        chunk_bytes = fetch.window.chunk_bytes
        self._effects.append(ConnectData(fetch.connection, ticket.address, ticket.key, chunk_bytes))

    def on_connected(self, connection: int, now: float) -> None:
        """A connection to a holder is made."""
        object_id = self._objects.get(connection)
        if object_id is not None:
            fetch = self._fetches[object_id]
            fetch.is_connected, fetch.heard_at = True, now
            fetch.window.most_unanswered = self._most_open(object_id)
            self._owner.on_holder_ready(object_id)

    def _most_open(self, object_id: int) -> int:
        """How many requests for an object its holder may have: few while another one comes from there."""
        fetch = self._fetches[object_id]
        assert fetch.ticket is not None
        for other_id, other in self._fetches.items():
            if other_id == object_id:
                break
            if other.is_connected and other.ticket is not None and other.ticket.holder == fetch.ticket.holder:
                return OPEN_BEHIND_OTHERS
        return fetch.pace.most

    def is_ready(self, object_id: int) -> bool:
        """Whether requests for an object can be sent to its holder now."""
        fetch = self._fetches.get(object_id)
        return fetch is not None and fetch.is_connected

    def request(self, object_id: int, offset: int, length: int) -> None:
        """Request a part of an object from its holder."""
        fetch = self._fetches[object_id]
        assert fetch.ticket is not None
        fetch.pace.on_request(offset, fetch.heard_at)  # what was heard last is why it is requested now
        request = m.ObjectRequest(id=object_id, offset=offset, length=length, ticket=fetch.ticket.secret)
        self._effects.append(SendData(fetch.connection, request))

    def on_message(self, connection: int, message: m.Message, payload: Buffer, now: float) -> None:
        """A holder has sent something."""
        object_id = self._objects.get(connection)
        if object_id is None:
            return  # the connection is being closed
        fetch = self._fetches[object_id]
        fetch.heard_at = now
        if isinstance(message, m.Refusal):
            self._fail(object_id, f"it refuses: {message.message}")
        elif not isinstance(message, m.ObjectResponse) or message.id != object_id:
            self._fail(object_id, f"it sends an unexpected {type(message).__name__}")
        elif message.status != m.ObjectResponseStatus.OK:
            self._fail(object_id, "it does not have the object any more")
        else:
            fetch.pace.on_answer(message.offset, now)
            fetch.window.most_unanswered = self._most_open(object_id)
            try:
                self._owner.on_part_received(object_id, message, payload)
            except MalformedMessageError as error:
                self._fail(object_id, str(error))

    def on_closed(self, connection: int, reason: str) -> None:
        """A connection has ended, or could not be made."""
        object_id = self._objects.get(connection)
        if object_id is not None:
            self._fail(object_id, reason)

    def watch(self, now: float) -> None:
        """Give up holders that do not answer."""
        for object_id, fetch in list(self._fetches.items()):
            if fetch.progress.is_writing or not fetch.connection:
                fetch.heard_at = now
            is_asked = not fetch.is_connected or fetch.window.has_unanswered
            limit_seconds = STALL_SECONDS if fetch.is_connected else CONNECT_SECONDS
            if fetch.ticket is not None and is_asked and now - fetch.heard_at >= limit_seconds:
                what = "it has sent nothing" if fetch.is_connected else "there was no connection"
                self._fail(object_id, f"{what} for {limit_seconds:g} s")

    def _fail(self, object_id: int, reason: str) -> None:
        fetch = self._fetches[object_id]
        assert fetch.ticket is not None
        place = f"peer {fetch.ticket.holder} at {fetch.ticket.address}"
        self._effects.append(Log(INFO, f"object {object_id:x} cannot be fetched from {place}: {reason}; going on"))
        self._close(fetch)
        fetch.window.request_again()
        self._ask(object_id, fetch.progress, fetch.ticket.holder)

    def _close(self, fetch: _DirectFetch) -> None:
        if self._objects.pop(fetch.connection, None) is not None:
            self._effects.append(CloseData(fetch.connection))

    def end(self, object_id: int, is_told: bool) -> None:
        """Fetch an object no further: it is whole, or not needed.

        Parameters:
            is_told: the scheduler learns that there will be no copy.
        """
        self._waiting.pop(object_id, None)
        fetch = self._fetches.pop(object_id, None)
        if fetch is None:
            return
        self._close(fetch)
        if is_told:
            drop = m.ObjectInstruction(action=m.ObjectAction.DROP, ids=array("Q", [object_id]))
            self._effects.append(Send(drop))
        self._begin_next()

    def _begin_next(self) -> None:
        while self._waiting and len(self._fetches) < MAXIMUM_DIRECT_FETCHES:
            object_id, progress = next(iter(self._waiting.items()))
            del self._waiting[object_id]
            self._ask(object_id, progress, 0)

    def clear(self) -> None:
        """The session has ended."""
        if self._fetches:
            self._effects.append(Log(DEBUG, f"{len(self._fetches)} objects are not fetched any further"))
        for fetch in self._fetches.values():
            self._close(fetch)
        self._fetches.clear()
        self._waiting.clear()


def host_of(data_address: str) -> str:
    """All of it but the port."""
    return data_address.rpartition(":")[0]
