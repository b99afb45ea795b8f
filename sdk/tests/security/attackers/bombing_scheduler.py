"""A program with a scheduler's keys that sends bombs to the clients and workers that connect to it."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Any, Callable, Sequence

from security.attackers.pickle_bombs import Bombs

from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX, decode, encode
from scaler_protocol import messages as m
from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.wire.curve import KeyPair
from scaler_protocol.wire.secure_zmtp import SecureZmtp, ServerSecurity
from scaler_protocol.wire.zmtp import ZmtpError

LIMIT_BYTES = 1 << 24
PARTS = 4
_LAST = (m.Refusal, m.DisconnectRequest, m.DisconnectResponse, m.ClientShutdownResponse)
"""A peer may leave for good when it gets these."""
_FENCE = 987_654


class BombingScheduler:
    """It sends a part of the messages in each session, and ends it when the peer has read them.

    Parameters:
        keys: of the scheduler in whose place it listens.
    """

    def __init__(self, keys: Sequence[KeyPair], bombs: Bombs) -> None:
        self._security = ServerSecurity(load_sodium(), list(keys), lambda key: None)
        self._bombs = bombs
        known = {"codec": "cloudpickle"}
        messages = [*bombs.messages(), *bombs.messages(**known), *bombs.messages(codec="json")]
        messages.sort(key=lambda each: isinstance(each, _LAST))
        size = -(-len(messages) // PARTS)
        self._parts = [messages[start : start + size] for start in range(0, len(messages), size)]
        self.sessions = 0
        self.has_told = False
        """A peer has been sent everything, and has read it."""
        self._listener = socket.create_server(("127.0.0.2", 0))
        self.address = "tcp://{}:{}".format(*self._listener.getsockname())
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> BombingScheduler:
        return self

    def __exit__(self, *details: object) -> None:
        pass  # it ends with its process

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                stream, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(stream,), daemon=True).start()

    def _serve(self, stream: socket.socket) -> None:
        protocol = SecureZmtp(self._security, "ROUTER", LIMIT_BYTES)

        def send(message: Any, *payload: bytes) -> None:
            stream.sendall(b"".join(map(bytes, protocol.encode([bytes(encode(message)), *payload]))))

        session = -1
        with suppress(OSError, ZmtpError), stream:
            while True:
                stream.sendall(protocol.take_output())
                data = stream.recv(65536)
                if not data:
                    break
                for frames in protocol.feed(data):
                    message = decode(frames[0])
                    if isinstance(message, m.Hello):
                        session, self.sessions = self.sessions, self.sessions + 1
                        self._tell(send, session)
                    elif isinstance(message, m.HeartbeatEcho) and message.sequence == _FENCE:
                        raise ConnectionAbortedError("the peer has read all of this session")
        if session == PARTS - 1:
            self.has_told = True

    def _tell(self, send: Callable[..., None], part: int) -> None:
        limits = m.Limits(maximum_message_bytes=LIMIT_BYTES, maximum_object_bytes=LIMIT_BYTES, chunk_bytes=65536)
        welcome = m.Welcome(major=PROTOCOL_MAJOR, minor=PROTOCOL_MINOR_MAX, session=1 + part, limits=limits)
        welcome.heartbeat_interval_milliseconds, welcome.timeout_milliseconds = 1000, 60_000
        if part == 0:
            welcome = self._bombs.filled(welcome)
        send(welcome)
        for message in self._parts[part % PARTS]:
            send(message, self._bombs.data)
        send(m.Heartbeat(sequence=_FENCE))
