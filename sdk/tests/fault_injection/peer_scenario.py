"""The agent's small life beside other workers: it fetches its object from one, and another one fetches its result.

    played holder ◀── object ─── agent ◀── result ─── played caller

Rules:
- Both are told what they may do by tickets of the played scheduler.
- If the agent cannot fetch from the holder, or the caller not from the agent, the scheduler relays.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Dict, Optional

from fault_injection.agent_scenario import OBJECT_BYTES, SchedulerOfWorker
from fault_injection.played_scheduler import CHUNK_BYTES, PeerOfScheduler
from fault_injection.simulated_sockets import FakeSocket
from fault_injection.simulated_system import SimulatedSystem

from scaler_protocol import decode, encode
from scaler_protocol import messages as m
from scaler_protocol.host.addresses import parse_address
from scaler_protocol.session.features import KEPT_RESULTS, PEER_FETCH
from scaler_protocol.wire.zmtp import Zmtp
from scaler_protocol.wire.zmtp import encode as encode_frames

HOLDER_ADDRESS = ("10.0.0.2", 7)
HOLDER_URL = "tcp://10.0.0.2:7"
HOLDER = 99  # its session
SECRET = b"s" * 32


class DataEnd:
    """The other end of one data connection of the agent.

    Parameters:
        stream: the agent's end.
    """

    def __init__(self, stream: FakeSocket, kind: str) -> None:
        self._stream = stream
        self._protocol = Zmtp(kind, 1 << 30)
        self.is_gone = False
        stream.on_bytes = self._on_bytes
        stream.on_end = self._on_end
        stream.deliver(self._protocol.take_output())

    def _on_bytes(self, data: bytes) -> None:
        was_ready = self._protocol.is_ready
        messages = self._protocol.feed(data)
        if self._protocol.output:
            self._stream.deliver(self._protocol.take_output())
        if self._protocol.is_ready and not was_ready:
            self.on_ready()
        for header, *payload in messages:
            self.on_message(decode(header), payload[0] if payload else b"")

    def on_ready(self) -> None:
        """Both ends have introduced themselves."""

    def on_message(self, message: Any, payload: bytes) -> None:
        raise NotImplementedError

    def send(self, message: m.Member, payload: bytes = b"") -> None:
        for part in encode_frames([encode(message), payload] if payload else [encode(message)]):
            self._stream.deliver(bytes(part))

    def _on_end(self) -> None:
        if not self.is_gone:
            self.is_gone = True
            self._stream.end()
            self.on_gone()

    def on_gone(self) -> None:
        """The connection has ended."""


class PlayedHolder(DataEnd):
    """A worker from which the agent fetches."""

    def __init__(self, stream: FakeSocket) -> None:
        super().__init__(stream, "ROUTER")

    def on_message(self, message: Any, payload: bytes) -> None:
        assert message.ticket == SECRET
        part = bytes(OBJECT_BYTES)[message.offset : message.offset + message.length]
        self.send(m.ObjectResponse(id=message.id, offset=message.offset, size=OBJECT_BYTES), part)


class PlayedCaller(DataEnd):
    """A worker that fetches a result of the agent."""

    def __init__(self, scheduler: SchedulerOfPeers, peer: PeerOfScheduler, object_id: int, stream: FakeSocket) -> None:
        self._scheduler, self._peer, self._object_id = scheduler, peer, object_id
        self._content = scheduler.results[object_id]
        super().__init__(stream, "DEALER")

    def on_ready(self) -> None:
        self._request()

    def _request(self) -> None:
        self.send(m.ObjectRequest(id=self._object_id, offset=len(self._content), length=CHUNK_BYTES, ticket=SECRET))

    def on_message(self, message: Any, payload: bytes) -> None:
        if not isinstance(message, m.ObjectResponse) or message.status != m.ObjectResponseStatus.OK:
            self._on_end()
            return
        self._content += payload
        if len(self._content) < message.size:
            self._request()
        else:
            self._scheduler.direct_fetches += 1
            self._scheduler.on_fetched(self._object_id)
            self._on_end()

    def on_gone(self) -> None:
        self._scheduler.on_caller_gone(self._peer, self._object_id)


class SchedulerOfPeers(SchedulerOfWorker):
    """
    Attributes:
        direct_fetches: results that were fetched whole from the agent.
        copies: objects that the agent has fetched from a worker.
    """

    def __init__(self, system: SimulatedSystem, directory: Optional[str]) -> None:
        super().__init__(system, directory)
        self._system = system
        self._data_address = ""
        self._awaited: Dict[int, str] = {}  # tasks whose results have not been fetched, by object
        self.direct_fetches = self.copies = 0
        system.listeners[HOLDER_ADDRESS] = PlayedHolder

    def welcome(self) -> m.Welcome:
        welcome = super().welcome()
        welcome.features = [KEPT_RESULTS, PEER_FETCH]
        return welcome

    def on_message(self, peer: PeerOfScheduler, message: Any, payload: bytes) -> None:
        if isinstance(message, m.Hello):
            self._data_address = message.data_address
            self.storage = m.ObjectStorage.HELD if PEER_FETCH in message.features else m.ObjectStorage.REMOTE
            self._awaited.clear()
        super().on_message(peer, message, payload)

    def on_other(self, peer: PeerOfScheduler, message: Any, payload: bytes) -> None:
        if isinstance(message, m.TicketRequest) and peer is self.peer:
            ticket = m.Ticket(id=message.id)
            if not message.failed_holder:
                ticket.holder, ticket.address, ticket.secret = HOLDER, HOLDER_URL, SECRET
            peer.send(ticket)
        else:
            super().on_other(peer, message, payload)

    def on_announced(self, peer: PeerOfScheduler, message: m.ObjectInstruction) -> None:
        if message.action == m.ObjectAction.HOLD:
            self.copies += len(message.ids)
        super().on_announced(peer, message)

    def fetch(self, peer: PeerOfScheduler, object_id: int) -> None:
        address = parse_address(self._data_address) if self._data_address else None
        server = None if address is None else self._system.servers.get((address.host, address.port))
        if self.results[object_id] or server is None:
            super().fetch(peer, object_id)
            return
        ticket = m.Ticket(id=object_id, holder=peer.session, secret=SECRET, lifetime_milliseconds=30_000)
        peer.send(ticket)
        server.callers.append(partial(PlayedCaller, self, peer, object_id))

    def on_caller_gone(self, peer: PeerOfScheduler, object_id: int) -> None:
        """The caller has all bytes, or the scheduler relays the rest."""
        if peer is self.peer and len(self.results[object_id]) < self._sizes[object_id]:
            super().fetch(peer, object_id)

    def on_large(self, name: str, object_id: int) -> None:
        if len(self.results[object_id]) < self._sizes[object_id]:
            self._awaited[object_id] = name
        else:
            super().on_large(name, object_id)

    def on_fetched(self, object_id: int) -> None:
        name = self._awaited.pop(object_id, "")
        if name:
            super().on_large(name, object_id)
            self._send_stage()

    def on_missing(self, object_id: int) -> None:
        name = self._awaited.pop(object_id, "")
        if name:
            self.outcomes[name] = m.FailureKind.OBJECT_MISSING
            self._send_stage()
