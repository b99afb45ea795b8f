"""The scheduler's connections, and callers to them, over real sockets."""

from __future__ import annotations

import socket
import time
from typing import List, Optional, Tuple

from scaler_appliance.shell.connections import Connections
from scaler_protocol.host.addresses import parse_address, resolve
from scaler_protocol.host.connection import Connection
from scaler_protocol.wire.zmtp import Zmtp

MAXIMUM_MESSAGE_BYTES = 64 * 1024 * 1024


class Bench:
    """A listening `Peers`, who noted whom it lost, and callers to it."""

    def __init__(self, address: str) -> None:
        self.gone: List[bytes] = []
        self.congestion: List[Tuple[bytes, bool]] = []
        self.peers = Connections(address, MAXIMUM_MESSAGE_BYTES, self.gone.append, self.note_congestion)
        self._callers: List[Connection] = []

    def note_congestion(self, name: bytes, is_congested: bool) -> None:
        self.congestion.append((name, is_congested))

    def stream(self) -> socket.socket:
        """A bare connection."""
        family, target = resolve(parse_address(self.peers.address))
        stream = socket.socket(family, socket.SOCK_STREAM)
        stream.connect(target)
        return stream

    def receive(self, timeout_seconds: float = 0.0) -> List[Tuple[bytes, List[bytes]]]:
        """What has arrived, by the names of its senders."""
        turns = self.peers.turns
        arrived: List[Tuple[bytes, List[bytes]]] = []
        self.peers.receive(time.monotonic(), timeout_seconds)
        while turns:
            name, messages = turns.next()
            message = messages.popleft()
            assert isinstance(message, list), "there is no server that answers"
            arrived.append((name, message))
            turns.end_turn(0.0)
        return arrived

    def caller(self, stream: Optional[socket.socket] = None) -> Connection:
        """A connection after its handshake.

        Parameters:
            stream: connected; None: to the address.
        """
        caller = Connection(stream or self.stream(), Zmtp("DEALER", MAXIMUM_MESSAGE_BYTES))
        caller.start()
        self._callers.append(caller)
        while not caller.is_ready:
            assert self.receive(0.01) == []
            caller.receive()
        return caller

    def wait_for(self, count: int) -> List[Tuple[bytes, List[bytes]]]:
        """`count` messages of any peers."""
        arrived: List[Tuple[bytes, List[bytes]]] = []
        while len(arrived) < count:
            for caller in self._callers:
                caller.flush()
            arrived += self.receive(0.01)
        return arrived

    def wait_for_loss(self) -> bytes:
        while not self.gone:
            assert self.receive(0.01) == []
        return self.gone.pop()

    def close(self) -> None:
        for caller in self._callers:
            caller.close()
        self.peers.close()
