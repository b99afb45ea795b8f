"""A peer of a scheduler whose calls wait until the scheduler has answered.

Rules: one thread uses a peer. Every wait ends: at the deadline, TimeoutError is raised.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections import deque
from types import TracebackType
from typing import Deque, List, Optional, Sequence, Tuple, Type, TypeVar

from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX, PROTOCOL_MINOR_MIN, decode, encode
from scaler_protocol import messages as m
from scaler_protocol.host import readiness
from scaler_protocol.host.addresses import Address
from scaler_protocol.host.connection import Connection
from scaler_protocol.host.dialing import Dialing
from scaler_protocol.wire.zmtp import Zmtp

SOCKET_TYPE = "DEALER"
MAXIMUM_MESSAGE_BYTES = 1 << 20

Answer = TypeVar("Answer")


class RefusedPeerError(Exception):
    """The scheduler refused a peer; the message says why."""


def connect_stream(addresses: Sequence[Address], deadline: float) -> socket.socket:
    """A stream to the scheduler at one of these addresses; `deadline` is as of `WaitingPeer`.

    Raises OSError.
    """
    with contextlib.closing(Dialing(addresses)) as dialing:
        poll = readiness.poll()
        poll.register(dialing.fileno(), readiness.POLLIN)
        poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        stream = dialing.finish()
        if stream is None:
            raise dialing.error()
        return stream


class WaitingPeer:
    """A connection to a scheduler, for a `with` block.

    Parameters:
        stream: connected; this object owns it.
        protocol: what to speak over it, with the socket type SOCKET_TYPE.
        deadline: until when all calls together wait, in seconds of the clock `time.monotonic`.
    """

    def __init__(self, stream: socket.socket, protocol: Zmtp, deadline: float) -> None:
        self._connection = Connection(stream, protocol)
        self._deadline = deadline
        self._received: Deque[Tuple[m.Message, bytes]] = deque()

    def __enter__(self) -> WaitingPeer:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self._connection.close()

    def shake_hands(self) -> None:
        """Complete the handshake of ZMTP: the scheduler's loop answers, and with keys, it has proved who it is.

        Raises OSError or ZmtpError.
        """
        self._connection.start()
        while not self._connection.is_ready:
            self._wait()

    def join(self, role: m.Role, codecs: List[str], functions: List[str]) -> None:
        """Begin a session with one slot.

        Raises OSError, ZmtpError or RefusedPeerError.
        """
        hello = m.Hello(role=role, slots=1, queue_size=1, codecs=codecs, functions=functions)
        hello.major, hello.minor_min, hello.minor_max = PROTOCOL_MAJOR, PROTOCOL_MINOR_MIN, PROTOCOL_MINOR_MAX
        self.send(hello)
        self.take(m.Welcome)

    def leave(self) -> None:
        """End the session.

        Raises OSError or ZmtpError.
        """
        self.send(m.DisconnectRequest())
        self.take(m.DisconnectResponse)

    def send(self, message: m.Member, payload: bytes = b"") -> None:
        """Send a message, with a payload if there is one.

        Raises OSError or MemoryError.
        """
        self._connection.send([encode(message), payload] if payload else [encode(message)])

    def take(self, kind: Type[Answer]) -> Tuple[Answer, bytes]:
        """The next message of a kind and its payload; others, such as heartbeats, are passed over.

        Raises OSError, ZmtpError or RefusedPeerError.
        """
        while True:
            while not self._received:
                self._wait()
            message, payload = self._received.popleft()
            if isinstance(message, kind):
                return message, payload
            if isinstance(message, m.Refusal):
                raise RefusedPeerError(message.message)

    def _wait(self) -> None:
        """Until something has arrived, or has been sent."""
        connection = self._connection
        readiness = select.poll()
        readiness.register(connection.fileno(), select.POLLIN | (select.POLLOUT if connection.has_unsent else 0))
        remaining_seconds = self._deadline - time.monotonic()
        if remaining_seconds <= 0 or not readiness.poll(remaining_seconds * 1000):
            raise TimeoutError("the scheduler did not answer in time")
        if connection.has_unsent:
            connection.flush()
        for frames in connection.receive():
            self._received.append((decode(frames[0]), frames[1] if len(frames) > 1 else b""))
