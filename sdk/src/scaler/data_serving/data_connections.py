"""Connections with workers: objects are fetched over them, in both directions. A client only serves.

    callers ──accept──▶ DataConnections ─▶ on_data_accepted, on_data_message ─▶ core
    core ── ConnectData, SendData, CloseData ─▶ DataConnections ─▶ holders

Rules:
- A peer with a key speaks CURVE here, too, with that key at both ends, and never without it. Which caller may have
  what is decided by tickets, in the core.
- One request of a caller is passed on at a time, and the next one once the answer has left: so a caller takes one chunk
  of memory, in which each of its parts is read and sent, and what else the agent has to do comes in between. The
  system's own memory for the connection keeps the link busy meanwhile.
- Parts that this worker fetches come in the memory of the part before the last one, too: one is read while the other is
  written. New memory for each part would cost more than to move its bytes, because the system has to clear and map it.
- What comes from a holder is read when a quarter of a part is there: on a link that is slower than this worker, each
  packet would wake it otherwise.
- Large parts are sealed and opened beside the event loop (`SideWork`), so that small messages do not wait for that.
- So many callers are served at once, in sum; more are turned away, and fetch through the scheduler.
- Callers that have not got any bytes yet, because they have shown no valid ticket, take no place of these. If there are
  too many of them, the oldest of the host with most of them is closed: so who calls and does nothing keeps no one out.
- Any error of the system costs one connection at most.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections import Counter, deque
from functools import partial
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Protocol, Tuple, Type

from scaler.data_serving.data_dialer import DataDialer, close_quietly
from scaler.data_serving.data_effects import CloseData, ConnectData, SendData
from scaler.data_serving.rounds import Rounds
from scaler.data_serving.side_work import SMALLEST_BYTES, SideWork
from scaler_protocol import MalformedMessageError, decode, encode
from scaler_protocol import messages as m
from scaler_protocol.host.addresses import WILDCARDS, Address, resolve
from scaler_protocol.host.connection import Connection
from scaler_protocol.programs.event_loop import Timer
from scaler_protocol.wire.secure_zmtp import ClientSecurity, SecureZmtp, ServerSecurity
from scaler_protocol.wire.zmtp import Zmtp, ZmtpError

logger = logging.getLogger("scaler")

MAXIMUM_SERVED = 40
"""Callers that get bytes. A scheduler lets fewer fetch at once from one worker; the others may be leaving."""
MAXIMUM_NEWCOMERS = 200
"""Callers that have not got any yet. They take a descriptor, and some kilobytes, until they have said more."""
READ_BYTES_PER_ROUND = 1024 * 1024
"""Of one connection, and one read more: some hundred microseconds."""
MAXIMUM_REQUEST_BYTES = 64 * 1024
MAXIMUM_REUSED_BYTES = 64 * 1024 * 1024
HANDSHAKE_SECONDS = 10.0
LINGER_SECONDS = 5.0
"""How long to wait until a caller has read why it is refused, and has closed."""
ACCEPTED_AT_ONCE = 16
KEPT_PARTS = 2  # of one connection, which are being written

_ERRORS = (OSError, ZmtpError, MemoryError)


class DataPlace(NamedTuple):
    """Where a peer serves workers: `address` is empty if it does not."""

    address: str
    key: bytes


NOWHERE = DataPlace("", b"")


class TimerLoop(Protocol):
    """What is used of an event loop."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Timer: ...


class DataOwner(Protocol):
    """Notified about data connections: see `AgentCore`, and for a client `ClientServing`."""

    def on_data_accepted(self, connection: int, key: bytes) -> None: ...

    def on_data_connected(self, connection: int) -> None: ...

    def on_data_message(self, connection: int, message: m.Message, payload: bytes) -> None: ...

    def on_data_closed(self, connection: int, reason: str) -> None: ...


class _DataConnection:
    __slots__ = (
        "number",
        "connection",
        "host",
        "inbox",
        "is_announced",
        "is_served",
        "is_ending",
        "is_sealing",
        "kept_parts",
        "watches_room",
        "is_read",
        "timer",
        "memory",
        "part",
        "is_part_queued",
    )

    def __init__(self, number: int, connection: Connection, host: str = "") -> None:
        self.number = number
        self.connection = connection
        self.host = host  # from which a caller comes
        self.memory = bytearray()  # of the parts that are sent, one after the other
        self.part: Optional[memoryview] = None  # the part that is there
        self.is_part_queued = False  # that part
        self.inbox: Deque[List[bytes]] = deque()  # that has not been passed on
        self.is_announced = False  # to the core
        self.is_served = False  # a caller has got bytes
        self.is_ending = False  # nothing is read any more: the core has closed it
        self.is_sealing = False  # the part that is sent next
        self.kept_parts = 0
        self.watches_room = False
        self.is_read = True
        self.timer: Optional[Timer] = None

    @property
    def may_be_read(self) -> bool:
        """Whether there is room for what comes."""
        is_opening = self.connection.protocol.opening is not None
        return not is_opening and self.kept_parts < KEPT_PARTS and (self.is_ending or not self.inbox)


class DataConnections:
    """Parameters:
    loop: for time-outs.
    kind: "Worker" or "Client", for the log.

    Attributes:
        side_work: of ciphers, beside the event loop, until `close`.
    """

    def __init__(self, rounds: Rounds, loop: TimerLoop, owner: DataOwner, kind: str = "Worker") -> None:
        self._kind = kind
        self._rounds = rounds
        self._loop = loop
        self._owner = owner
        self.side_work = SideWork(rounds)
        self._security: Optional[ClientSecurity] = None
        self._listener: Optional[socket.socket] = None
        self._listens_for: Tuple[object, ...] = ()
        self._place = NOWHERE
        self._connections: Dict[int, _DataConnection] = {}
        self._dialer = DataDialer(rounds, self._add, self._fail_later)
        self._last_caller = 0
        self.operations: Dict[Type[Any], Callable[[Any], None]] = {
            ConnectData: self._connect,
            SendData: self._send,
            CloseData: lambda effect: self._end(effect.connection),
        }

    # Listening ------------------------------------------------------------------------------------------------------

    def listen(self, wanted: Address, local_host: str, security: Optional[ClientSecurity]) -> DataPlace:
        """Serve workers from now on, or go on to; returns where.

        Parameters:
            wanted: host `*` and port 0: that with which the scheduler is reached, and any port.
            local_host: our end of the connection to the scheduler; empty: it has no host.
            security: our key, and that of the scheduler, which is not used; None: keys are not used.
        """
        self._security = security
        key = b"" if security is None else security.keys.public
        if not local_host:
            self._stop_listening()
        elif (wanted, local_host, key) != self._listens_for or self._listener is None:
            self._stop_listening()
            bound = wanted._replace(host=local_host) if wanted.host in WILDCARDS and not wanted.port else wanted
            announced = wanted._replace(host=local_host) if wanted.host in WILDCARDS else wanted
            try:
                self._listener = _listen(bound)
                self._rounds.add_reader(self._listener.fileno(), self._accept)
            except (OSError, MemoryError) as error:
                self._stop_listening()
                text = "%s: workers fetch no objects from it: cannot listen at %s: %s"
                logger.warning(text, self._kind, bound, getattr(error, "strerror", None) or error)
                return NOWHERE
            self._listens_for = wanted, local_host, key
            port = self._listener.getsockname()[1]
            self._place = DataPlace(str(announced._replace(port=port)), key)
            logger.info("%s: workers fetch objects at %s", self._kind, self._place.address)
        return self._place

    def _stop_listening(self) -> None:
        self._place = NOWHERE
        listener, self._listener = self._listener, None
        if listener is not None:
            self._rounds.remove_reader(listener.fileno())
            close_quietly(listener)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            if self._listener is None:
                return
            try:
                stream, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except (OSError, MemoryError) as error:  # without descriptors: they may come back
                logger.warning("%s: a connection of a worker cannot be accepted: %s", self._kind, error)
                self._rounds.remove_reader(self._listener.fileno())
                self._loop.call_later(1.0, self._accept_again)
                return
            try:
                self._make_room()
                self._add_caller(stream, str(address[0]))
            except (OSError, MemoryError):
                close_quietly(stream)

    # SCL-OBJ-031
    def _make_room(self) -> None:
        """Another caller comes: close one of those that have got nothing, if there are too many."""
        newcomers = [each for each in self._connections.values() if each.number < 0 and not each.is_served]
        if len(newcomers) >= MAXIMUM_NEWCOMERS:
            busiest, _ = Counter(each.host for each in newcomers).most_common(1)[0]
            oldest = next(each for each in newcomers if each.host == busiest)
            self._lose(oldest, TimeoutError("it has shown no ticket, and others call"))

    def _accept_again(self) -> None:
        if self._listener is not None:
            with contextlib.suppress(OSError, MemoryError):
                self._rounds.add_reader(self._listener.fileno(), self._accept)

    def _add_caller(self, stream: socket.socket, host: str) -> None:
        security = self._security
        if security is None:
            protocol = Zmtp("ROUTER", MAXIMUM_REQUEST_BYTES)
        else:
            # SCL-SEC-032, SCL-SEC-034
            server = ServerSecurity(security.arithmetic, [security.keys], lambda key: None)
            protocol = SecureZmtp(server, "ROUTER", MAXIMUM_REQUEST_BYTES)
        protocol.reused_bytes = MAXIMUM_REUSED_BYTES
        self._last_caller -= 1
        each = _DataConnection(self._last_caller, Connection(stream, protocol), host)
        each.connection.start()
        self._rounds.add_reader(each.connection.fileno(), partial(self._read, each), is_bulk=True)
        self._connections[each.number] = each
        each.timer = self._loop.call_later(HANDSHAKE_SECONDS, self._drop_silent, each)
        self._watch_room(each)

    def _drop_silent(self, each: _DataConnection) -> None:
        if not each.is_announced:
            self._drop(each)

    # Connecting -----------------------------------------------------------------------------------------------------

    def _connect(self, effect: ConnectData) -> None:
        self._dialer.connect(effect, self._security)

    def _add(self, number: int, connection: Connection) -> None:
        """A connection to a holder is made. Raises OSError, MemoryError."""
        each = self._connections[number] = _DataConnection(number, connection)
        each.is_announced = True
        try:
            connection.start()
            self._rounds.add_reader(connection.fileno(), partial(self._read, each), is_bulk=True)
        except (OSError, MemoryError):
            del self._connections[number]
            raise
        self._watch_room(each)
        self._owner.on_data_connected(number)

    def _fail_later(self, number: int, reason: str) -> None:
        """The core may be in the middle of something."""
        self._rounds.call_soon(lambda: self._owner.on_data_closed(number, reason))

    # Messages -------------------------------------------------------------------------------------------------------

    def _read(self, each: _DataConnection) -> None:
        try:
            received = each.connection.receive()
            read_bytes = each.connection.read_bytes
            opening = each.connection.protocol.opening
            while not (received or opening) and each.connection.read_bytes and read_bytes < READ_BYTES_PER_ROUND:
                received = each.connection.receive()
                read_bytes += each.connection.read_bytes
                opening = each.connection.protocol.opening
            if each.number > 0:
                each.connection.collect()
        except _ERRORS as error:
            self._lose(each, error)
            return
        if opening is None:
            self._take(each, received)
        else:
            self.side_work.run(opening, partial(self._on_opened, each), SMALLEST_BYTES)
            self._read_on(each)

    def _on_opened(self, each: _DataConnection, error: Optional[Exception]) -> None:
        if self._connections.get(each.number) is not each:
            return
        if error is not None:
            self._lose_or_raise(each, error)
            return
        try:
            received = each.connection.opened()
            self._read_on(each)
        except _ERRORS as lost:
            self._lose(each, lost)
            return
        self._take(each, received)

    def _take(self, each: _DataConnection, received: List[List[bytes]]) -> None:
        if each.is_ending:
            return
        if not each.is_announced and each.connection.is_ready:
            each.is_announced = True
            protocol = each.connection.protocol
            self._owner.on_data_accepted(each.number, protocol.peer_key if isinstance(protocol, SecureZmtp) else b"")
        each.inbox.extend(received)
        if each.number < 0:
            self._pass_on_next(each)
        while each.number > 0 and each.inbox and not each.is_ending:
            self._pass_on(each, each.inbox.popleft())

    def _pass_on_next(self, each: _DataConnection) -> None:
        """Pass on the next message of a caller if there is room for the answer; the ones after it wait for that."""
        if each.inbox and not each.is_ending and not each.connection.has_unsent:
            self._pass_on(each, each.inbox.popleft())
        self._read_on(each)

    def _read_on(self, each: _DataConnection) -> None:
        """Read from it if there is room for what comes, and not otherwise. Raises OSError, MemoryError."""
        is_read = each.may_be_read
        if is_read is each.is_read or self._connections.get(each.number) is not each:
            return
        each.is_read = is_read
        if is_read:
            self._rounds.add_reader(each.connection.fileno(), partial(self._read, each), is_bulk=True)
        else:
            self._rounds.remove_reader(each.connection.fileno())

    def _pass_on(self, each: _DataConnection, frames: List[bytes]) -> None:
        header, *payload = frames
        try:
            message = decode(header)
        except (MalformedMessageError, MemoryError) as error:
            self._lose(each, error)
            return
        self._owner.on_data_message(each.number, message, payload[0] if payload else b"")

    def keep(self, part: memoryview) -> Callable[[], None]:
        """What has been passed on last with a message is still needed when the round is over. Returns what is to be
        called when it is not needed any more."""
        for each in self._connections.values():
            memory = each.connection.protocol.keep_memory(part)
            if memory is not None:
                each.kept_parts += 1
                self._read_on(each)
                return partial(self._use_again, each, memory)
        return _nothing

    def _use_again(self, each: _DataConnection, memory: bytearray) -> None:
        each.kept_parts -= 1
        each.connection.protocol.use_memory(memory)
        try:
            self._read_on(each)
        except (OSError, MemoryError) as error:
            self._lose(each, error)

    def memory(self, number: int, size: int) -> memoryview:
        """Where to read the part of so many bytes that a caller is sent next. It is used again when that has left."""
        each = self._connections.get(number)
        if each is None or each.part is not None:  # one part of several that had to wait for a ticket
            return memoryview(bytearray(size))
        if len(each.memory) < size:
            each.memory = bytearray(size)
        each.part, each.is_part_queued = memoryview(each.memory)[:size], False
        return each.part

    def _free_memory(self, each: _DataConnection) -> None:
        if not each.connection.has_unsent:
            each.connection.protocol.all_has_left()
            if each.is_part_queued:
                each.part, each.is_part_queued = None, False

    def _send(self, effect: SendData) -> None:
        each = self._connections.get(effect.connection)
        if each is None or each.is_ending:
            return
        header = encode(effect.message)
        try:
            if each.number < 0 and len(effect.payload):
                self._count_as_served(each)
            frames = [header, effect.payload] if len(effect.payload) else [header]
            each.is_part_queued = each.is_part_queued or effect.payload is each.part
            seal = each.connection.send_aside(frames, SMALLEST_BYTES)
            if seal is not None:
                each.is_sealing = True
                self._watch_room(each)  # what waits before it leaves with it
                self.side_work.run(seal, partial(self._on_sealed, each), len(effect.payload))
                return
            each.connection.send(frames)
            self._free_memory(each)
            self._watch_room(each)
            if each.number < 0:
                self._pass_on_next(each)
        except (OSError, MemoryError) as error:
            self._drop(each)
            self._fail_later(each.number, str(error))

    def _count_as_served(self, each: _DataConnection) -> None:
        """A caller gets bytes. Raises OSError if too many others do."""
        if not each.is_served and sum(other.is_served for other in self._connections.values()) >= MAXIMUM_SERVED:
            raise OSError(f"{MAXIMUM_SERVED} others are served")
        each.is_served = True

    def _on_sealed(self, each: _DataConnection, error: Optional[Exception]) -> None:
        each.is_sealing = False
        if self._connections.get(each.number) is not each:
            return
        if error is None:
            self._write(each)
        else:
            self._lose_or_raise(each, error)

    def _watch_room(self, each: _DataConnection) -> None:
        is_waiting = each.connection.has_unsent and not each.is_sealing
        if is_waiting is not each.watches_room:
            each.watches_room = is_waiting
            if is_waiting:
                self._rounds.add_writer(each.connection.fileno(), partial(self._write, each), is_bulk=True)
            else:
                self._rounds.remove_writer(each.connection.fileno())

    def _write(self, each: _DataConnection) -> None:
        try:
            each.connection.flush()
            self._free_memory(each)
            self._watch_room(each)
        except (OSError, MemoryError) as error:
            self._lose(each, error)
            return
        if not each.is_ending:
            self._pass_on_next(each)
        elif not each.connection.has_unsent:
            each.connection.finish()

    # Ends -----------------------------------------------------------------------------------------------------------

    def _lose(self, each: _DataConnection, error: Exception) -> None:
        is_told = each.is_announced and not each.is_ending
        self._drop(each)
        if is_told:
            self._owner.on_data_closed(each.number, str(error) or "out of memory")

    def _lose_or_raise(self, each: _DataConnection, error: Exception) -> None:
        """Side work has failed."""
        if not isinstance(error, _ERRORS):
            raise error
        self._lose(each, error)

    def _end(self, number: int) -> None:
        """The core closes a connection. A caller may still read what it was sent."""
        self._dialer.stop(number)
        each = self._connections.get(number)
        if each is None or each.is_ending:
            return
        if number > 0:
            self._drop(each)
            return
        each.is_ending = True
        each.inbox.clear()
        with contextlib.suppress(OSError, MemoryError):
            self._read_on(each)  # for its end
        if not each.connection.has_unsent:
            each.connection.finish()
        if each.timer is not None:
            each.timer.cancel()
        each.timer = self._loop.call_later(LINGER_SECONDS, self._drop, each)

    def _drop(self, each: _DataConnection) -> None:
        if self._connections.get(each.number) is not each:
            return
        del self._connections[each.number]
        if each.timer is not None:
            each.timer.cancel()
        self._rounds.remove_reader(each.connection.fileno())
        self._rounds.remove_writer(each.connection.fileno())
        close_quietly(each.connection)

    def after_fork_in_child(self) -> None:
        """In a fork of the process: close our copies of the sockets, which stay the parent's."""
        for each in (self._listener, *(each.connection for each in self._connections.values())):
            if each is not None:
                close_quietly(each)
        self._listener = None
        self._connections.clear()
        self.side_work.after_fork_in_child()

    def close(self) -> None:
        """End all of it."""
        self.side_work.close()
        self._stop_listening()
        for each in list(self._connections.values()):
            self._drop(each)
        self._dialer.close()


def _listen(address: Address) -> socket.socket:
    """A socket that listens. Raises OSError."""
    is_any = address.host in WILDCARDS
    family, target = (socket.AF_INET6, ("::", address.port)) if is_any and socket.has_ipv6 else resolve(address, True)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not is_any)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        listener.bind(target)
        listener.listen(MAXIMUM_NEWCOMERS)
    except (OSError, MemoryError):
        close_quietly(listener)
        raise
    return listener


def _nothing() -> None:
    pass
