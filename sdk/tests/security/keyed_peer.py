"""A client or worker with a key of its own that says exactly what a test wants, through a real socket."""

from __future__ import annotations

import socket
import time
from collections import deque
from contextlib import suppress
from itertools import count
from typing import Any, Deque, Optional, Tuple, Type, TypeVar, Union

from security.keyed_scheduler import KeyedScheduler

from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX, PROTOCOL_MINOR_MIN, decode, encode
from scaler_protocol import messages as m
from scaler_protocol.host.addresses import parse_address
from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.keys.key_file import KeyFile, read_key_file
from scaler_protocol.wire.secure_zmtp import ClientSecurity, SecureZmtp

TIMEOUT_SECONDS = 30.0
_numbers = count(1)
MessageType = TypeVar("MessageType")
Kind = Union[Type[MessageType], Tuple[Type[MessageType], ...]]


def tenant_key(scheduler: KeyedScheduler, role: str, tenant: str) -> KeyFile:
    """A new key that the scheduler admits."""
    name = f"{role}-{tenant.replace('*', 'any')}-{next(_numbers)}"
    return read_key_file(str(scheduler.admitted_key(role, name, tenant=tenant)))


def tenant_peer(scheduler: KeyedScheduler, role: str, tenant: str, **fields: Any) -> KeyedPeer:
    """A peer with a new key."""
    return KeyedPeer(scheduler.address, tenant_key(scheduler, role, tenant), **fields)


class KeyedPeer:
    """A connection with a session.

    Parameters:
        address: of the scheduler.
        key: an admin, and an owner, is a client.
        role: as which it says Hello, if it is not that of its key.
        fields: of its Hello.
    """

    def __init__(self, address: str, key: KeyFile, role: Optional[m.Role] = None, **fields: Any) -> None:
        parsed = parse_address(address)
        self._stream = socket.create_connection((parsed.host, parsed.port), TIMEOUT_SECONDS)
        self._protocol = SecureZmtp(ClientSecurity(load_sodium(), key.keys, key.server_keys[0]), "DEALER", 1 << 26)
        self._inbox: Deque[Tuple[object, bytes]] = deque()
        while not self._protocol.is_ready:
            self._stream.sendall(self._protocol.take_output())
            self._read()
        if role is None:
            role = m.Role.WORKER if key.role == "worker" else m.Role.CLIENT
        if role == m.Role.WORKER:
            fields.setdefault("slots", 1)
            fields.setdefault("queue_size", 10)
        fields.update(major=PROTOCOL_MAJOR, minor_min=PROTOCOL_MINOR_MIN, minor_max=PROTOCOL_MINOR_MAX)
        self.send(m.Hello(role=role, host="here", **fields))
        self.refusal = ""
        """What the scheduler said instead of a Welcome."""
        answer: Any = self.take((m.Welcome, m.Refusal))[0]
        if isinstance(answer, m.Welcome):
            self.session = answer.session
        else:
            self.refusal = answer.message

    def __enter__(self) -> KeyedPeer:
        return self

    def __exit__(self, *details: object) -> None:
        self._stream.close()

    def is_closed(self) -> bool:
        """Waits for the end of the connection; False if the scheduler keeps it."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        with suppress(ConnectionResetError):
            while self._stream.recv(1 << 16):
                if time.monotonic() > deadline:
                    return False
        return True

    def send(self, message: Any, payload: bytes = b"") -> None:
        frames = [encode(message), payload] if payload else [encode(message)]
        self._stream.sendall(self._protocol.take_output() + b"".join(map(bytes, self._protocol.encode(frames))))

    def take(self, kind: Kind[MessageType]) -> Tuple[MessageType, bytes]:
        """The next message of this kind, or of these; earlier ones of other kinds are dropped."""
        while True:
            while self._inbox:
                message, payload = self._inbox.popleft()
                if isinstance(message, kind):
                    return message, payload
            self._read()

    def _read(self) -> None:
        data = self._stream.recv(1 << 16)
        assert data, "the scheduler has closed the connection"
        for frames in self._protocol.feed(data):
            payload = bytes(frames[1]) if len(frames) > 1 else b""
            self._inbox.append((decode(bytes(frames[0])), payload))

    def heard(self) -> Deque[Tuple[object, bytes]]:
        """All that came up to now: the answer to an InfoRequest comes after it."""
        self.send(m.InfoRequest(request_id=77))
        found: Deque[Tuple[object, bytes]] = deque()
        while True:
            while self._inbox:
                each = self._inbox.popleft()
                if isinstance(each[0], m.Info) and each[0].request_id == 77:
                    return found
                found.append(each)
            self._read()
