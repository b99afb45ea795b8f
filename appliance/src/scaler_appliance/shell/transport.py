"""The scheduler's sockets: the only module that knows ZeroMQ.

Rules:
- ROUTER_MANDATORY is on: sending to a peer that is gone is an error we see, not a message that vanishes. A full pipe is
  back-pressure: the messages of that peer wait here, in order, and nobody else's do.
- Sending never blocks and never raises to the caller.
- The peer's name is the routing id that our own socket gives to its connection, so no two peers can have the same.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Callable, Deque, Dict, List, Optional, Sequence, Tuple

import zmq

from scaler_appliance.core.effects import Buffer

HIGH_WATER_MARK_MESSAGES = 1000  # of one peer, each way; tasks go in batches, so that is much
LINGER_MILLISECONDS = 1000  # for last words at the end


class Transport:
    """The ROUTER for clients and workers and the PUB for monitors.

    Parameters:
        on_peer_gone: called with the peer's name when a message could not be delivered because it has disconnected.
    """

    def __init__(
        self,
        address: str,
        monitor_address: Callable[[str], str],
        io_threads: int,
        maximum_message_bytes: int,
        on_peer_gone: Callable[[bytes], None],
    ) -> None:
        self._context = zmq.Context(io_threads)
        self._on_peer_gone = on_peer_gone
        self.address = self.monitor_address = ""  # until bound
        self._waiting: Dict[bytes, Deque[List[Buffer]]] = {}
        self._router = self._make_socket(zmq.ROUTER)
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._router.setsockopt(zmq.MAXMSGSIZE, maximum_message_bytes)
        self._publisher = self._make_socket(zmq.PUB)
        try:
            self.address = self._bind(self._router, address)
            self.monitor_address = self._bind(self._publisher, monitor_address(self.address))
        except OSError:
            self.close()
            raise
        self.descriptor = int(self._router.getsockopt(zmq.FD))

    def _make_socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK_MESSAGES)
        socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK_MESSAGES)
        socket.setsockopt(zmq.LINGER, LINGER_MILLISECONDS)
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 30)  # NAT boxes forget idle connections
        return socket

    @staticmethod
    def _bind(socket: zmq.Socket[bytes], address: str) -> str:
        socket.setsockopt(zmq.IPV6, int("[" in address))
        try:
            socket.bind(address)
        except zmq.ZMQError as error:
            raise OSError(error.errno, f"cannot listen at {address}: {error.strerror}") from error
        return socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def receive(self) -> Optional[Tuple[bytes, List[bytes]]]:
        """The next message as (peer, frames), or None when there is none now."""
        try:
            frames = self._router.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        return frames[0], frames[1:]

    def has_input(self) -> bool:
        """Whether a message waits; to be asked after sending, for that swallows the descriptor's signal."""
        return bool(int(self._router.getsockopt(zmq.EVENTS)) & zmq.POLLIN)

    def send(self, peer: bytes, header: bytes, payload: Sequence[Buffer]) -> None:
        """Send a message, after those that wait for the same peer."""
        frames: List[Buffer] = [peer, header]
        if payload:
            frames.append(payload[0] if len(payload) == 1 else b"".join(payload))
        waiting = self._waiting.get(peer)
        if waiting is not None:
            waiting.append(_owned(frames))
        elif not self._try_send(frames):
            self._waiting[peer] = deque([_owned(frames)])

    def _try_send(self, frames: List[Buffer]) -> bool:
        """Send now; False when the peer's pipe is full."""
        try:
            self._router.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self.forget(bytes(frames[0]))
            self._on_peer_gone(bytes(frames[0]))
        return True

    @property
    def is_congested(self) -> bool:
        return bool(self._waiting)

    def send_waiting(self) -> None:
        """Try again where pipes were full."""
        for peer, waiting in list(self._waiting.items()):
            while peer in self._waiting and self._try_send(waiting[0]):
                waiting.popleft()
                if not waiting:
                    self.forget(peer)

    def forget(self, peer: bytes) -> None:
        """Drop what waits for a peer."""
        self._waiting.pop(peer, None)

    def publish(self, header: bytes) -> None:
        self._publisher.send(header, zmq.NOBLOCK)  # a PUB drops for slow monitors, on purpose

    def close(self) -> None:
        """Close the sockets; messages already sent get LINGER_MILLISECONDS to leave."""
        self._router.close()
        self._publisher.close()
        self._context.term()
        for address in (self.address, self.monitor_address):
            if address.startswith("ipc://"):
                _remove_socket_file(address[len("ipc://") :])


def _remove_socket_file(path: str) -> None:
    """ZeroMQ leaves the file of a Unix domain socket behind."""
    if not path.startswith("@"):  # abstract: no file
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass


def _owned(frames: List[Buffer]) -> List[Buffer]:
    return [bytes(frame) if isinstance(frame, memoryview) else frame for frame in frames]
