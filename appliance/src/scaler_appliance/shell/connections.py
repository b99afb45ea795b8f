"""The scheduler's connections: accepting them, receiving and sending messages.

Rules:
- One descriptor, that of an epoll object, tells the event loop that any connection is ready; `receive` then handles all
  ready ones, so that bursts make batches.
- Sending never blocks and never raises to the caller. Messages that a peer does not read wait here, in order, and do
  not delay those of other peers.
- A peer that leaves CONGESTED_BYTES unread is reported, and again when it has read most of them; one that leaves
  MAXIMUM_UNSENT_BYTES unread is disconnected. So the waiting data is bounded.
- The end of a connection is detected at once, and reported with the peer's name. Names are never reused.
- Data that is not ZeroMQ's protocol closes the connection, and is logged.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import time
from typing import Callable, Dict, List, Optional, Tuple

from scaler_protocol import MAXIMUM_HEADER_BYTES
from scaler_protocol.host.addresses import Address, local_socket_name, parse_address, resolve
from scaler_protocol.host.connection import Connection
from scaler_protocol.wire.zmtp import Buffer, PeerGoneError, RefusedError, Zmtp, ZmtpError

BACKLOG_CONNECTIONS = 1024
ACCEPTED_AT_ONCE = 64
HANDSHAKE_TIMEOUT_SECONDS = 30.0
LINGER_SECONDS = 1.0  # to send the last messages

CONGESTED_BYTES = 8 * 1024 * 1024
RELIEVED_BYTES = 2 * 1024 * 1024
MAXIMUM_UNSENT_BYTES = 1024 * 1024 * 1024

_NAME_BYTES = 5

logger = logging.getLogger("scaler")


Arrived = Tuple[bytes, List[bytes]]
"""The name of a connection, and the frames of a message that came on it."""


class PeerConnection:
    """One connection and its state."""

    __slots__ = ("name", "label", "connection", "deadline", "is_watched_for_room", "is_congested")

    def __init__(self, name: bytes, label: str, connection: Connection, deadline: float) -> None:
        self.name = name
        self.label = label  # for the log
        self.connection = connection
        self.deadline = deadline  # of the handshake
        self.is_watched_for_room = False
        self.is_congested = False


class Connections:
    """A listening socket and all connections made to it.

    Parameters:
        address: where to listen.
        maximum_message_bytes: a peer that sends more is disconnected.
        on_peer_gone: called with the name of a peer whose connection has ended.
        on_congestion: called with the name of a peer, and whether it is congested.

    Raises OSError if it cannot listen there, AddressError if the address is malformed.
    """

    def __init__(
        self,
        address: str,
        maximum_message_bytes: int,
        on_peer_gone: Callable[[bytes], None],
        on_congestion: Callable[[bytes, bool], None] = lambda name, is_congested: None,
    ) -> None:
        self._maximum_message_bytes = maximum_message_bytes
        self._maximum_unsent_bytes = max(MAXIMUM_UNSENT_BYTES, 2 * maximum_message_bytes)
        self._on_congestion = on_congestion
        self._on_peer_gone = on_peer_gone
        self._peers: Dict[bytes, PeerConnection] = {}
        self._by_descriptor: Dict[int, PeerConnection] = {}
        self._last_number = 0
        listener, self.address = _listen(parse_address(address))
        self._listeners = {listener.fileno(): listener}
        local_listener = _listen_locally(parse_address(self.address))
        if local_listener is not None:
            self._listeners[local_listener.fileno()] = local_listener
        self._spare = os.open(os.devnull, os.O_RDONLY)  # closed when no descriptors are left, to reject callers
        self._epoll = select.epoll()
        for descriptor in self._listeners:
            self._epoll.register(descriptor, select.EPOLLIN)

    def fileno(self) -> int:
        """Readable whenever `receive` has something to do."""
        return self._epoll.fileno()

    # Input ----------------------------------------------------------------------------------------------------------

    def receive(self, timeout_seconds: float) -> List[Arrived]:
        """Handle every ready connection once: accept, read, and send waiting messages.

        Parameters:
            timeout_seconds: how long to wait until one is ready.
        """
        arrived: List[Arrived] = []
        for descriptor, events in self._epoll.poll(timeout_seconds):
            peer = self._by_descriptor.get(descriptor)
            if peer is None:
                if descriptor in self._listeners:
                    self._accept(self._listeners[descriptor])
                continue
            try:
                if events & ~select.EPOLLOUT:
                    name = peer.name
                    for frames in peer.connection.receive():
                        arrived.append((name, frames))
                if events & select.EPOLLOUT:
                    peer.connection.flush()
                if peer.is_watched_for_room or peer.connection.unsent_bytes:
                    self._watch_for_room(peer)
            except (OSError, ZmtpError) as error:
                self._lose(peer, error)
        return arrived

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                stream, caller = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._turn_away(listener, error)
                return
            self._last_number += 1
            # SCL-TRN-007
            name = self._last_number.to_bytes(_NAME_BYTES, "big")
            # SCL-TRN-001, SCL-SEC-006
            protocol = Zmtp("ROUTER", self._maximum_message_bytes, MAXIMUM_HEADER_BYTES)
            try:
                connection = Connection(stream, protocol)
                connection.start()
            except OSError:
                stream.close()
                continue
            label = f"{caller[0]}:{caller[1]}" if isinstance(caller, tuple) else self.address
            peer = PeerConnection(name, label, connection, time.monotonic() + HANDSHAKE_TIMEOUT_SECONDS)
            self._peers[name] = self._by_descriptor[connection.fileno()] = peer
            self._epoll.register(connection.fileno(), select.EPOLLIN)

    def _turn_away(self, listener: socket.socket, error: OSError) -> None:
        """No descriptor is left for a caller: reject it, because otherwise it would wait and our loop would spin."""
        logger.error("Scheduler: a connection was rejected: %s; raise the limit of open files", error.strerror)
        os.close(self._spare)
        try:
            listener.accept()[0].close()
        except OSError:
            pass
        self._spare = os.open(os.devnull, os.O_RDONLY)

    # SCL-SEC-009
    def sweep(self) -> None:
        """Close connections that did not finish their handshake in time; to be called periodically."""
        now = time.monotonic()
        for peer in list(self._peers.values()):
            if not peer.connection.is_ready and now > peer.deadline:
                self._lose(peer, TimeoutError("it did not finish ZeroMQ's handshake"))

    # Output ---------------------------------------------------------------------------------------------------------

    def send(self, name: bytes, frames: List[Buffer]) -> None:
        """Send a message, after those that wait for the same peer."""
        # SCL-SEC-008
        peer = self._peers.get(name)
        if peer is None:
            self._on_peer_gone(name)
            return
        try:
            peer.connection.send(frames)
        except OSError as error:
            self._lose(peer, error)
            return
        unsent_bytes = peer.connection.unsent_bytes
        if unsent_bytes:
            if not peer.is_watched_for_room:
                self._watch_for_room(peer)
            if unsent_bytes > CONGESTED_BYTES:
                self._on_unread(peer, unsent_bytes)

    def _on_unread(self, peer: PeerConnection, unsent_bytes: int) -> None:
        # SCL-SEC-011
        if unsent_bytes > self._maximum_unsent_bytes:
            text = f"it does not read: {unsent_bytes >> 20} MiB wait to be sent"
            logger.warning("Scheduler: the connection from %s is closed: %s", peer.label, text)
            self._lose(peer, OSError(text))
        elif not peer.is_congested:
            peer.is_congested = True
            self._on_congestion(peer.name, True)

    def forget(self, name: bytes) -> None:
        """Drop the waiting messages of a peer."""
        peer = self._peers.get(name)
        if peer is not None:
            peer.connection.drop_unsent()

    def _watch_for_room(self, peer: PeerConnection) -> None:
        peer.is_watched_for_room = peer.connection.has_unsent
        if peer.is_congested and peer.connection.unsent_bytes <= RELIEVED_BYTES:
            peer.is_congested = False
            self._on_congestion(peer.name, False)
        events = select.EPOLLIN | select.EPOLLOUT if peer.is_watched_for_room else select.EPOLLIN
        self._epoll.modify(peer.connection.fileno(), events)

    # Ends -----------------------------------------------------------------------------------------------------------

    def _lose(self, peer: PeerConnection, error: Exception) -> None:
        # A caller that closes without sending anything is probably a health check, which is not worth a warning.
        is_question = isinstance(error, RefusedError) and not peer.connection.peer_has_spoken
        if isinstance(error, (ZmtpError, TimeoutError)) and not isinstance(error, PeerGoneError) and not is_question:
            level = logging.WARNING if peer.connection.is_ready else logging.INFO
            logger.log(level, "Scheduler: the connection from %s is closed: %s", peer.label, error)
        self._remove(peer)
        self._on_peer_gone(peer.name)

    def _remove(self, peer: PeerConnection) -> None:
        del self._peers[peer.name]
        del self._by_descriptor[peer.connection.fileno()]
        self._epoll.unregister(peer.connection.fileno())
        peer.connection.close()

    def close(self) -> None:
        """Stop listening, send waiting messages within LINGER_SECONDS, and close all connections."""
        for descriptor, listener in self._listeners.items():
            self._epoll.unregister(descriptor)
            listener.close()
        _remove_socket_file(self.address)
        self._on_peer_gone = lambda name: None
        finishing: set[bytes] = set()
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
            self.receive(remaining)
        for peer in list(self._peers.values()):
            self._remove(peer)
        self._epoll.close()
        os.close(self._spare)


def _listen(address: Address) -> Tuple[socket.socket, str]:
    """A listening socket and its address."""
    try:
        family, target = resolve(address, listens=True)
        if address.path and not address.path.startswith("@"):
            _remove_stale_socket_file(address)
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if family != socket.AF_UNIX:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setblocking(False)
            listener.bind(target)
            listener.listen(BACKLOG_CONNECTIONS)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        hint = "; use another port, or port 0 for any free one" if error.errno == errno.EADDRINUSE else ""
        raise OSError(f"cannot listen at {address}: {error.strerror or error}{hint}") from error
    if address.path:
        return listener, str(address)
    host, port = listener.getsockname()[:2]
    return listener, str(Address(host, port))


def _listen_locally(address: Address) -> Optional[socket.socket]:
    """A listening Unix socket for callers on this host; without it they use TCP like all others."""
    name = local_socket_name(address)
    if name is None:
        return None
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.setblocking(False)
    try:
        listener.bind(name)
        listener.listen(BACKLOG_CONNECTIONS)
    except OSError as error:
        logger.warning("Scheduler: callers on this host use TCP: its local socket %s is in use (%s)", address, error)
        listener.close()
        return None
    return listener


def _remove_stale_socket_file(address: Address) -> None:
    """Remove the socket file that a killed scheduler left behind, because it would block the next one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(address.path)
        except ConnectionRefusedError:
            os.unlink(address.path)
        except OSError:
            pass  # there is none, or listening will report the error


def _remove_socket_file(address: str) -> None:
    path = parse_address(address).path
    if path and not path.startswith("@"):
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
