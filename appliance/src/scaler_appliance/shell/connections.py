"""The scheduler's connections: accepting them, receiving and sending messages.

    sockets ──read──▶ turns: messages by peer ──▶ the server, which gives every peer its turn
       ▲
       └──write── messages that wait for a peer that does not read ◀── send

Rules:
- One descriptor, that of an epoll object, tells the event loop that any connection is ready; `receive` then handles all
  ready ones, so that bursts make batches. A peer is read again when its messages have had their turn.
- What reading and writing cost is charged to the peer's turns. In a round, reading takes READING_SECONDS and one peer
  more, and so does writing to those who read slowly, with WRITING_SECONDS: then those who have cost least go first in
  the next one. Of what waits for a peer, WRITING_BYTES leave at once.
- What callers cost before they have a session, and by the end of their connection, is added up in `newcomer_seconds`:
  with the connection ends what could be charged. So is the reading of a message whose end has not come, and
  FAULT_SECONDS for each connection that ends by its peer's fault: such a peer connects again, and sends as much again.
- Whatever fails for one peer, out of memory included, costs that peer its connection, and no other peer anything.
- Sending never blocks and never raises to the caller. Messages that a peer does not read wait here, in order, and do
  not delay those of other peers.
- What waits is bounded, for one peer and for all. A peer that leaves CONGESTED_BYTES unread is reported, and again when
  it has read most of them; when half of what may wait of all peers does, FEW_BYTES are enough for that. From
  STOP_READING_BYTES on its messages wait, and it is not read: if that lasts, its session times out. Beyond
  `maximum_waiting_bytes` of all peers together, messages that have arrived in part included, those peers that hold most
  are disconnected.
- A peer without a session, which has had none or has one no more, may send MAXIMUM_HELLO_BYTES, and has
  HELLO_TIMEOUT_SECONDS for its handshake and its Hello. Before its first message it is reported who it is.
- The end of a connection is detected at once, and reported with the peer's name after its last messages: also if what
  shows it is that nothing can be sent to the peer. It may have said that it leaves. Names are never reused.
- A session that can be resumed goes on with the connection of a newcomer: `take_over`. Its peer keeps its name.
- Data that is not ZeroMQ's protocol closes the connection, and is logged.
"""

from __future__ import annotations

import logging
import secrets
import socket
import time
from contextlib import suppress
from typing import Callable, Dict, List, Optional, Set, Tuple

from scaler_appliance.shell.acceptor import Acceptor, RejectedError
from scaler_appliance.shell.admission import Admission
from scaler_appliance.shell.caller_origins import CallerOrigins
from scaler_appliance.shell.connection_ends import FAULT_SECONDS, ConnectionEnds, is_fault
from scaler_appliance.shell.fair_turns import FairTurns, at_work
from scaler_appliance.shell.links.peer_connection import PeerConnection
from scaler_appliance.shell.listening import listen, listen_locally, remove_socket_file
from scaler_protocol import MAXIMUM_HEADER_BYTES
from scaler_protocol.host import readiness
from scaler_protocol.host.addresses import parse_address
from scaler_protocol.host.connection import SMALLEST_READ_BYTES, Connection
from scaler_protocol.keys.allow_list import Grant
from scaler_protocol.session.ids import MAXIMUM_HELLO_BYTES
from scaler_protocol.session.resumable_sessions import MAXIMUM_KEPT_BYTES_OF_ALL, TOKEN_BYTES, ResumableSessions
from scaler_protocol.wire.curve import KeyRejectedError
from scaler_protocol.wire.zmtp import Buffer, LimitExceededError, ZmtpError

READING_SECONDS = 0.002
WRITING_SECONDS = 0.0002  # of what has waited: other messages leave when they are made
WRITING_BYTES = 128 * 1024  # to one peer in a round
READING_SECONDS_PER_BYTE = 0.5e-9  # copied by the kernel, and twice by us
CHARGED_SECONDS = 50e-6  # a lone small message, which most reads bring, takes some microseconds
LINGER_SECONDS = 1.0  # to send the last messages

HELLO_TIMEOUT_SECONDS = 5.0
MAXIMUM_UNREGISTERED = 4096  # connections without a session

CONGESTED_BYTES = 8 * 1024 * 1024
FEW_BYTES = 64 * 1024
CONNECTIONS_FOR_REFUSALS = 16  # so that peers beyond the maximum learn why they are refused
RELIEVED_BYTES = 2 * 1024 * 1024
STOP_READING_BYTES = 32 * 1024 * 1024
MAXIMUM_WAITING_BYTES = 2 * 1024 * 1024 * 1024

STOOD_STILL_SECONDS = 3.0
"""After a longer time between two sweeps this process was stopped, and heard no peer."""

_ADVICE = "to serve more peers, raise --maximum-peers and the limit of open files (ulimit -n)"
_NAME_BYTES = 5
_LOCAL = 1 << (8 * _NAME_BYTES - 1)  # in the number of a peer at the local socket

logger = logging.getLogger("scaler")


class Connections:
    """A listening socket and all connections made to it.

    Parameters:
        address: where to listen.
        maximum_message_bytes: a peer that sends more is disconnected.
        on_peer_gone: called with the name of a peer whose connection has ended.
        on_congestion: called with the name of a peer, and whether it is congested.
        maximum_waiting_bytes: of messages that have been sent or received in part, of all peers. Half as much is kept
            of what was sent, so that sessions can be resumed.
        maximum_connections: further callers are rejected; 0: as many as there are descriptors.
        admission: decides about callers; None: all of them may do everything.
        on_authenticated: called with the name of a peer and what it may do, before its first message.

    Attributes:
        acceptor: accepts callers, unless the owner pauses it.
        local_acceptor: accepts those at the local socket, if there is one; callers on the network do not delay them.
        sessions: those that can be resumed.
        received_bytes: from all peers; the owner may set it to zero.
        newcomer_seconds, local_newcomer_seconds: what callers and the ends of connections have cost at each of the
            two; the owner charges them, and sets them to zero.

    Raises OSError if it cannot listen there, AddressError if the address is malformed.
    """

    def __init__(
        self,
        address: str,
        maximum_message_bytes: int,
        on_peer_gone: Callable[[bytes], None],
        on_congestion: Callable[[bytes, bool], None] = lambda name, is_congested: None,
        maximum_waiting_bytes: int = MAXIMUM_WAITING_BYTES,
        maximum_connections: int = 0,
        admission: Optional[Admission] = None,
        on_authenticated: Callable[[bytes, Grant], None] = lambda name, grant: None,
    ) -> None:
        self.turns = FairTurns()
        most_kept_bytes = min(MAXIMUM_KEPT_BYTES_OF_ALL, maximum_waiting_bytes // 2)
        self.sessions = ResumableSessions(lambda: secrets.token_bytes(TOKEN_BYTES), most_bytes_of_all=most_kept_bytes)
        self.newcomer_seconds = self.local_newcomer_seconds = 0.0
        self.received_bytes = 0
        self._origins = CallerOrigins()
        self._ends = ConnectionEnds()
        self._now = 0.0  # when it was last asked to read
        self._maximum_message_bytes = maximum_message_bytes
        self._maximum_hello_bytes = min(MAXIMUM_HELLO_BYTES, maximum_message_bytes)
        self._maximum_waiting_bytes = maximum_waiting_bytes
        self._maximum_connections = maximum_connections
        self._waiting_bytes = 0
        self._admission = admission or Admission()
        self._on_authenticated = on_authenticated
        self._on_congestion = on_congestion
        self._on_peer_gone = on_peer_gone
        self._peers: Dict[bytes, PeerConnection] = {}
        self._by_descriptor: Dict[int, PeerConnection] = {}
        self._unregistered: Dict[bytes, PeerConnection] = {}  # without a session, oldest first
        self._not_read: Dict[bytes, PeerConnection] = {}  # until they have read
        self._put_off: Set[int] = set()  # descriptors that were ready when the last round of reading was over
        self._last_number = 0
        self._last_sweep: Optional[float] = None
        listener, self.address = listen(parse_address(address))
        local_listener = listen_locally(parse_address(self.address))
        self._epoll = readiness.epoll()
        self.acceptor = Acceptor(self.address, [listener], self._epoll, self._add, _ADVICE)
        locally = [] if local_listener is None else [local_listener]
        self.local_acceptor = Acceptor(self.address, locally, self._epoll, self._add_local, _ADVICE)

    def fileno(self) -> int:
        """Readable whenever `receive` has something to do."""
        return self._epoll.fileno()

    # Input ----------------------------------------------------------------------------------------------------------

    def receive(self, now: float, timeout_seconds: float) -> bool:
        """Handle every ready connection once: accept, read into `turns`, and send waiting messages.

        Parameters:
            now: the time before this call, in seconds of any monotonic clock.
            timeout_seconds: how long to wait until one is ready.

        Returns whether any was.
        """
        self._now = now
        try:
            ready = self._epoll.poll(timeout_seconds)
        except (OSError, MemoryError) as error:  # those who are ready stay so
            logger.error("Scheduler: no connection was served for a moment: %s", str(error) or type(error).__name__)
            return True
        turns, clock = self.turns, time.perf_counter
        polled = clock()
        if self._put_off:
            ready.sort(key=self._urgency)
            self._put_off.clear()
        end = begin = clock()
        most_writing_seconds = WRITING_SECONDS + begin - polled  # sorting hundreds takes longer than writing to some
        writing_seconds = 0.0
        for descriptor, events in ready:
            peer = self._by_descriptor.get(descriptor)
            if peer is not None and end - begin - writing_seconds > READING_SECONDS:
                self._put_off.add(descriptor)
                continue
            before = end
            if peer is None:
                is_local = descriptor in self.local_acceptor
                if is_local or descriptor in self.acceptor:
                    self._accept(self.local_acceptor if is_local else self.acceptor, descriptor, now)
                    end = clock()
                    self._charge_newcomers(is_local, at_work(end - before))
                continue
            try:
                if events & ~readiness.EPOLLOUT and peer.name not in turns:
                    messages = peer.connection.receive()
                    self.received_bytes += peer.connection.read_bytes
                    if messages:
                        if peer.caller.grant is None:
                            self._authenticate(peer)
                        if peer.session is not None:
                            peer.count_received(peer.session, len(messages), self.sessions)
                        turns.add(peer.name, messages)
                if events & readiness.EPOLLOUT:
                    if writing_seconds > most_writing_seconds:
                        self._put_off.add(descriptor)
                    else:
                        began = clock()
                        try:
                            peer.connection.flush(WRITING_BYTES)
                        except OSError:
                            self._read_rest(peer)
                        writing_seconds += clock() - began
                self._account(peer)
            except Exception as error:  # MemoryError, for one: it is this peer whose bytes find no room
                self._lose(peer, error)
            end = clock()
            if peer.hello_deadline is not None:
                self.charge_newcomers(peer.name, at_work(end - before))
            elif end - before > CHARGED_SECONDS:
                turns.charge(peer.name, at_work(end - before))
        return bool(ready)

    def _urgency(self, each: Tuple[int, int]) -> Tuple[float, bool]:
        """Sorts what is ready: those who have cost least first, and of these who could not be read before."""
        peer = self._by_descriptor.get(each[0])
        return 0.0 if peer is None else self.turns.time_of(peer.name), each[0] not in self._put_off

    def _accept(self, acceptor: Acceptor, descriptor: int, now: float) -> None:
        acceptor.accept(descriptor, now)
        while len(self._unregistered) > MAXIMUM_UNREGISTERED:
            oldest = next(iter(self._unregistered.values()))
            self._lose(oldest, TimeoutError("others, too, have not said Hello"))

    def _add_local(self, stream: socket.socket, label: str, origin: str, now: float) -> None:
        self._add(stream, label, origin, now, is_local=True)

    def _add(self, stream: socket.socket, label: str, origin: str, now: float, is_local: bool = False) -> None:
        if self._origins.is_blocked(origin, now):
            raise RejectedError(f"callers from {origin} have made too many faults")
        if 0 < self._maximum_connections <= len(self._peers) and self._unregistered:
            # Otherwise callers that say nothing would keep others out.
            oldest = next(iter(self._unregistered.values()))
            self._lose(oldest, TimeoutError("it has no session yet, and others call"))
        if 0 < self._maximum_connections <= len(self._peers):
            raise RejectedError(f"it has {len(self._peers)} connections; {_ADVICE}")
        # SCL-TRN-001, SCL-SEC-006, SCL-SEC-012
        small = self._maximum_hello_bytes
        caller = self._admission.caller(stream, "ROUTER", small)
        connection = Connection(stream, caller.protocol)
        connection.start()
        self._last_number += 1
        # SCL-TRN-007
        name = (self._last_number | (_LOCAL if is_local else 0)).to_bytes(_NAME_BYTES, "big")
        peer = PeerConnection(name, label, origin, connection, caller, now + HELLO_TIMEOUT_SECONDS)
        self._epoll.register(connection.fileno(), readiness.EPOLLIN)
        self._peers[name] = self._unregistered[name] = self._by_descriptor[connection.fileno()] = peer

    # Sessions -------------------------------------------------------------------------------------------------------

    def _authenticate(self, peer: PeerConnection) -> None:
        """A peer whose handshake is complete sends its first message.

        Raises KeyRejectedError if its key is not admitted any more.
        """
        self._on_authenticated(peer.name, self._admission.authenticate(peer.caller))

    def review(self) -> None:
        """End the connections of peers whose keys are not admitted any more."""
        for peer in list(self._peers.values()):
            try:
                self._admission.check(peer.caller)
            except KeyRejectedError as error:
                self._lose(peer, error)

    def greet(self, name: bytes) -> None:
        """A peer has got a session: it may send messages of all sizes, at any time."""
        peer = self._peers.get(name)
        if peer is not None:
            peer.hello_deadline, peer.session = None, self.sessions.find(name)
            self._unregistered.pop(name, None)
            peer.connection.protocol.allow(self._maximum_message_bytes, MAXIMUM_HEADER_BYTES)

    def has_session(self, name: bytes) -> bool:
        """Whether a peer has one, or is gone."""
        return name not in self._unregistered

    def key_of(self, name: bytes) -> bytes:
        """The public key of a peer; empty: it needs none."""
        return self._peers[name].key

    def take_over(self, name: bytes, newcomer: bytes, welcome: Buffer) -> None:
        """The session of a peer goes on over the connection of another one, which is no peer of its own any more:
        this Welcome is sent there, and what the peer has not received."""
        peer, other = self._peers[name], self._peers.pop(newcomer)
        del self._unregistered[newcomer]
        self._close(peer)
        self._waiting_bytes -= peer.counted_bytes
        peer.move_to(other)
        self._by_descriptor[peer.connection.fileno()] = peer
        self._not_read.pop(name, None)
        self.turns.resume(name)
        peer.connection.protocol.allow(self._maximum_message_bytes, MAXIMUM_HEADER_BYTES)
        self._on_peer_gone(newcomer)
        try:
            try:
                peer.send_rest(welcome)
            except OSError:
                self._read_rest(peer)
            self._account(peer)
        except Exception as error:
            self._lose(peer, error)

    # SCL-SEC-012
    def forget(self, name: bytes, now: float) -> None:
        """A peer has lost its session: drop its waiting messages; it has to say Hello again, as at the beginning."""
        peer = self._peers.get(name)
        if peer is not None:
            peer.connection.drop_unsent()
            self.sessions.end(name)
            peer.session = None
            peer.hello_deadline = now + HELLO_TIMEOUT_SECONDS
            self._unregistered[name] = peer
            protocol, small = peer.connection.protocol, self._maximum_hello_bytes
            protocol.allow(small, small)
            try:
                self._account(peer)
                if protocol.held_bytes > small:
                    raise LimitExceededError(f"{protocol.held_bytes} bytes of a message from a peer without a session")
            except (OSError, ZmtpError) as error:
                self._lose(peer, error)

    def sweep(self, now: float) -> None:
        """Close connections without a Hello in time.

        To be called about once a second, with the time before reading.
        """
        before, self._last_sweep = self._last_sweep, now
        if before is not None and now - before > STOOD_STILL_SECONDS:
            for peer in self._unregistered.values():
                peer.hello_deadline = now + HELLO_TIMEOUT_SECONDS
        self._sweep_unregistered(now)
        self.acceptor.sweep()
        self.local_acceptor.sweep()
        self._ends.report()

    # SCL-SEC-009
    def _sweep_unregistered(self, now: float) -> None:
        for peer in list(self._unregistered.values()):
            if peer.hello_deadline is not None and now > peer.hello_deadline and peer.name not in self.turns:
                self._lose(peer, TimeoutError("it has not said Hello in time"))

    # Output ---------------------------------------------------------------------------------------------------------

    def send(self, name: bytes, frames: List[Buffer]) -> None:
        """Send a message, after those that wait for the same peer."""
        # SCL-SEC-008
        peer = self._peers.get(name)
        if peer is None:
            self._on_peer_gone(name)
            return
        try:
            connection = peer.connection
            if peer.session is not None:
                self.sessions.keep(peer.session, frames)
            try:
                connection.send(frames)
                if peer.session is not None and peer.session.is_count_due:
                    peer.tell_count(peer.session, self.sessions)
            except OSError:
                self._read_rest(peer)
            if connection.unsent_bytes != peer.counted_bytes:
                self._account(peer)
        except Exception as error:
            self._lose(peer, error)

    def _read_rest(self, peer: PeerConnection) -> None:
        """Nothing can be sent to a peer any more: the connection ends when what the peer has sent has been read.

        Raises OSError if it cannot be watched.
        """
        peer.is_ending, peer.is_paused = True, False
        peer.connection.abort()
        self._account(peer)
        self.turns.resume(peer.name)

    def _account(self, peer: PeerConnection) -> None:
        """Bytes of a peer have come or gone: count what waits, and watch for what is possible now.

        Raises OSError if it cannot be watched.
        """
        connection = peer.connection
        unsent_bytes = connection.unsent_bytes
        events = 0 if peer.is_paused or unsent_bytes > STOP_READING_BYTES else readiness.EPOLLIN
        if unsent_bytes:
            events |= readiness.EPOLLOUT
        if events != peer.events:
            self._watch(peer, events)
            if unsent_bytes > STOP_READING_BYTES:
                self._not_read[peer.name] = peer
            elif self._not_read.pop(peer.name, None) is not None and not peer.is_paused:
                self.turns.resume(peer.name)
        many = RELIEVED_BYTES if peer.is_congested else CONGESTED_BYTES
        is_congested = unsent_bytes > (many if self._waiting_bytes * 2 < self._maximum_waiting_bytes else FEW_BYTES)
        if is_congested != peer.is_congested:
            peer.is_congested = is_congested
            self._on_congestion(peer.name, is_congested)
        counted_bytes = unsent_bytes + connection.protocol.held_bytes
        self._waiting_bytes += counted_bytes - peer.counted_bytes
        peer.counted_bytes = counted_bytes
        if self._waiting_bytes > self._maximum_waiting_bytes:
            self._make_room()

    def _watch(self, peer: PeerConnection, events: int) -> None:
        """Wait for these events only; and for none, not even for the connection's end, if there are none.

        The end of a connection that is not read would be reported again and again.

        Raises OSError.
        """
        descriptor = peer.connection.fileno()
        if not events:
            self._epoll.unregister(descriptor)
        elif peer.events:
            self._epoll.modify(descriptor, events)
        else:
            self._epoll.register(descriptor, events)
        peer.events = events

    # SCL-SEC-011
    def _make_room(self) -> None:
        """Disconnect those peers that hold most, until the rest holds no more than may wait."""
        while self._waiting_bytes > self._maximum_waiting_bytes:
            largest = max(self._peers.values(), key=lambda peer: peer.counted_bytes)
            text = f"{largest.counted_bytes >> 20} MiB of it wait, and {self._waiting_bytes >> 20} MiB of all peers"
            logger.warning("Scheduler: the connection from %s is closed: %s", largest.label, text)
            self._lose(largest, OSError(text))

    def reads_too_little(self, name: bytes) -> bool:
        """Whether so much waits for a peer that it should not be answered."""
        return name in self._not_read

    def stop_reading(self, name: bytes) -> None:
        """Leave what a peer sends in its socket until `go_on_reading`; TCP slows it down."""
        self._set_paused(name, True)

    def go_on_reading(self, name: bytes) -> None:
        """Read a peer again."""
        self._set_paused(name, False)

    def _set_paused(self, name: bytes, is_paused: bool) -> None:
        peer = self._peers.get(name)
        if peer is not None and not peer.is_ending:
            peer.is_paused = is_paused
            try:
                self._account(peer)
            except OSError as error:
                self._lose(peer, error)

    # Ends -----------------------------------------------------------------------------------------------------------

    def lose(self, name: bytes, error: Exception) -> None:
        """A peer cannot be served any more."""
        peer = self._peers.get(name)
        if peer is not None:
            self._lose(peer, error)

    def _lose(self, peer: PeerConnection, error: Exception) -> None:
        if self._peers.get(peer.name) is not peer:
            return
        is_registered = peer.hello_deadline is None
        if is_fault(error):
            if not self._origins.charge(peer.origin, self._now, FAULT_SECONDS):
                self.charge_newcomers(peer.name, FAULT_SECONDS)
        elif is_registered and peer.connection.protocol.held_bytes > SMALLEST_READ_BYTES:
            self.charge_newcomers(peer.name, FAULT_SECONDS)
        self._ends.log(peer.label, error, peer.connection.peer_has_spoken, is_registered)
        self._remove(peer)
        self._on_peer_gone(peer.name)

    def is_ending(self, name: bytes) -> bool:
        """Whether a peer is gone, but for messages that it has sent before: these delay its end."""
        peer = self._peers.get(name)
        return peer is None or peer.is_ending

    def is_connected(self, name: bytes) -> bool:
        return name in self._peers

    def may_be_answered(self, name: bytes) -> bool:
        return name in self._peers and self._peers[name].may_be_answered

    def charge(self, name: bytes, seconds: float) -> None:
        """A peer has cost time otherwise than by its turns."""
        if name in self._peers:
            self.turns.charge(name, seconds)

    def charge_newcomers(self, name: bytes, seconds: float) -> None:
        """A caller has cost time, or the end of a connection; the peer may have gone."""
        self._charge_newcomers(bool(name[0] & 0x80), seconds)

    def _charge_newcomers(self, is_local: bool, seconds: float) -> None:
        if is_local:
            self.local_newcomer_seconds += seconds
        else:
            self.newcomer_seconds += seconds

    def _remove(self, peer: PeerConnection) -> None:
        del self._peers[peer.name]
        self._unregistered.pop(peer.name, None)
        self._not_read.pop(peer.name, None)
        self.turns.resume(peer.name)  # its last messages
        self.sessions.forget(peer.name)
        self._waiting_bytes -= peer.counted_bytes
        self.charge_newcomers(peer.name, peer.connection.protocol.held_bytes * READING_SECONDS_PER_BYTE)
        self._close(peer)

    def _close(self, peer: PeerConnection) -> None:
        del self._by_descriptor[peer.connection.fileno()]
        with suppress(OSError):
            self._epoll.unregister(peer.connection.fileno())
        with suppress(OSError):  # the descriptor is closed nevertheless
            peer.connection.close()

    def limit_peers(self, maximum_peers: int) -> None:
        """Let so many peers connect, and a few more; those that are connected stay. 0: as many as want to."""
        self._maximum_connections = maximum_peers + CONNECTIONS_FOR_REFUSALS if maximum_peers else 0

    def close(self) -> None:
        """Stop listening, send waiting messages within LINGER_SECONDS, and close all connections."""
        self.acceptor.close()
        self.local_acceptor.close()
        remove_socket_file(self.address)
        self._on_peer_gone = lambda name: None
        finishing: Set[bytes] = set()
        deadline = time.monotonic() + LINGER_SECONDS
        while True:
            for peer in list(self._peers.values()):
                if not peer.connection.is_ready:
                    self._remove(peer)
                elif not peer.connection.has_unsent and peer.name not in finishing:
                    peer.connection.finish()  # closing at once could discard data that the peer has not read yet
                    finishing.add(peer.name)
            remaining = deadline - time.monotonic()
            if not self._peers or remaining <= 0:
                break
            self.receive(deadline, remaining)
            self.turns = FairTurns()  # what still comes is not read
        for peer in list(self._peers.values()):
            self._remove(peer)
        self._epoll.close()
