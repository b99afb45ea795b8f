"""ZeroMQ's wire protocol as a scheduler needs it: ZMTP 3 over TCP, mechanism NULL, on plain sockets.

Rules:
- One thread, nothing blocks: what cannot be sent waits in its connection.
- A peer is its connection, whatever identity it announces; libzmq's ROUTER cannot serve two of one identity.
- One read per connection and round, so that who sends much does not keep others waiting.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from typing import Dict, List, Optional, Tuple

GREETING_BYTES = 64
READ_BYTES = 32 * 1024
WRITE_BYTES = 256 * 1024
MORE, LARGE, COMMAND = 1, 2, 4
GOES_WITH_ROUTER = (b"DEALER", b"REQ", b"ROUTER")


class ZmtpError(Exception):
    """What came is no ZMTP, or beyond a limit: the connection is closed."""


class Connection:
    """One peer's, from its greeting to its end."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.received = bytearray()
        self.unsent = bytearray()
        self.is_greeted = self.is_ready = self.has_session = self.is_closed = False
        self.frames: List[bytes] = []  # of the message that is being read
        self.began = time.monotonic()


Event = Tuple[Connection, Optional[List[bytes]]]
"""A message, or None: the connection has ended."""


class ZmtpServer:
    """Listens at an address.

    Parameters:
        header_limit, message_limit: in bytes, of a first frame and of all frames of a message.
    """

    def __init__(self, address: str, header_limit: int, message_limit: int) -> None:
        self.header_limit, self.message_limit = header_limit, message_limit
        host, _, port = address.rpartition("//")[2].rpartition(":")
        self._listener = socket.create_server((host, int(port)), backlog=64)
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self.connections: Dict[int, Connection] = {}
        self.events: List[Event] = []

    def watch(self, sock: socket.socket) -> None:
        """Have `poll` return when there is something to read."""
        self._selector.register(sock, selectors.EVENT_READ)

    def poll(self, seconds: float) -> List[Event]:
        """What has happened, waited for at most so long."""
        for key, mask in self._selector.select(0 if self.events else seconds):
            if key.fileobj is self._listener:
                self.accept()
            elif key.fd in self.connections:
                connection = self.connections[key.fd]
                if mask & selectors.EVENT_WRITE:
                    self.flush(connection)
                if mask & selectors.EVENT_READ and not connection.is_closed:
                    self.read(connection)
            else:
                key.fileobj.recv(4096)  # type: ignore[union-attr]  # registered as a socket
        events, self.events = self.events, []
        return events

    def accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = self.connections[sock.fileno()] = Connection(sock)
        self._selector.register(sock, selectors.EVENT_READ)
        self.write(connection, self.greeting())

    def greeting(self) -> bytes:
        return b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)

    def on_greeted(self, connection: Connection) -> None:
        self.send_command(connection, b"READY", b"\x0bSocket-Type\0\0\0\x06ROUTER")

    def read(self, connection: Connection) -> None:
        try:
            data = connection.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        connection.received += data
        try:
            while not connection.is_closed and self.take_one(connection):
                pass
        except ZmtpError:
            data = b""
        if not data:
            self.close_connection(connection)

    def take_one(self, connection: Connection) -> bool:
        """Take the greeting, or one frame, out of what was received; whether there was one."""
        received = connection.received
        if not connection.is_greeted:
            if len(received) < GREETING_BYTES:
                return False
            self.check_greeting(bytes(received[:GREETING_BYTES]))
            del received[:GREETING_BYTES]
            connection.is_greeted = True
            self.on_greeted(connection)
            return True
        if len(received) < 2 or (received[0] & LARGE and len(received) < 9):
            return False
        flags = received[0]
        start = 9 if flags & LARGE else 2
        size = struct.unpack(">Q", received[1:9])[0] if flags & LARGE else received[1]
        if flags & COMMAND and size > 65536:
            raise ZmtpError("a command so large")
        if not flags & COMMAND:
            self.check_size(connection, size)
            self.check_unregistered(connection, size)
        if len(received) < start + size:
            return False
        body = bytes(received[start : start + size])
        del received[: start + size]
        if flags & COMMAND:
            self.on_command(connection, body)
        else:
            self.on_frame(connection, body, bool(flags & MORE))
        return True

    def check_greeting(self, greeting: bytes) -> None:
        if greeting[0] != 0xFF or greeting[9] != 0x7F or greeting[10] < 3:
            raise ZmtpError("no ZMTP 3")
        self.check_mechanism(greeting[12:32].rstrip(b"\0"))

    def check_mechanism(self, mechanism: bytes) -> None:
        if mechanism != b"NULL":
            raise ZmtpError("another mechanism")

    def check_size(self, connection: Connection, size: int) -> None:
        if not connection.frames:
            self.check_header_size(size)
        self.check_message_size(sum(map(len, connection.frames)) + size)

    def check_unregistered(self, connection: Connection, size: int) -> None:
        if not connection.has_session and sum(map(len, connection.frames)) + size > 64 << 10:
            raise ZmtpError("a message so large before the Welcome")

    def check_header_size(self, size: int) -> None:
        if size > self.header_limit:
            raise ZmtpError("a header so large")

    def check_message_size(self, size: int) -> None:
        if size > self.message_limit:
            raise ZmtpError("a message so large")

    def on_command(self, connection: Connection, body: bytes) -> None:
        if body.startswith(b"\x05READY"):
            properties = _properties(body[6:])
            self.check_socket_type(properties.get(b"socket-type", b""))
            connection.is_ready = True
            self.on_ready(connection, properties.get(b"identity", b""))
        elif body.startswith(b"\x04PING"):
            self.on_ping(connection, body[7:])

    def check_socket_type(self, kind: bytes) -> None:
        if kind not in GOES_WITH_ROUTER:
            raise ZmtpError("a socket that does not go with ROUTER")

    def on_ready(self, connection: Connection, identity: bytes) -> None:
        """The handshake is done."""

    def on_ping(self, connection: Connection, context: bytes) -> None:
        self.send_command(connection, b"PONG", context)

    def on_frame(self, connection: Connection, body: bytes, more: bool) -> None:
        if not connection.is_ready:
            raise ZmtpError("a message before READY")
        connection.frames.append(body)
        if not more:
            self.events.append((connection, connection.frames))
            connection.frames = []

    def send(self, connection: Connection, frames: List[bytes]) -> None:
        for index, frame in enumerate(frames):
            more = MORE if index + 1 < len(frames) else 0
            if len(frame) < 256:
                self.write(connection, bytes([more, len(frame)]) + frame)
            else:
                self.write(connection, bytes([more | LARGE]) + struct.pack(">Q", len(frame)) + frame)

    def send_command(self, connection: Connection, name: bytes, data: bytes) -> None:
        body = bytes([len(name)]) + name + data
        self.write(connection, bytes([COMMAND, len(body)]) + body)

    def write(self, connection: Connection, data: bytes) -> None:
        if not connection.is_closed:
            connection.unsent += data
            self.flush(connection)

    def flush(self, connection: Connection) -> None:
        try:
            while connection.unsent:
                sent = connection.socket.send(connection.unsent[:WRITE_BYTES])
                del connection.unsent[:sent]
        except BlockingIOError:
            pass
        except OSError:
            connection.unsent.clear()  # its end is read soon
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.unsent else 0)
        self._selector.modify(connection.socket, wanted)

    def close_connection(self, connection: Connection) -> None:
        if not connection.is_closed:
            connection.is_closed = True
            self._selector.unregister(connection.socket)
            del self.connections[connection.socket.fileno()]
            connection.socket.close()
            self.events.append((connection, None))

    def cut_unfinished(self, seconds: float) -> None:
        """Close connections that have not finished their handshake in time."""
        for connection in list(self.connections.values()):
            if not connection.is_ready and time.monotonic() > connection.began + seconds:
                self.close_connection(connection)

    def cut_unread(self, limit: int) -> None:
        """Close connections whose other end leaves more unread."""
        for connection in list(self.connections.values()):
            if len(connection.unsent) > limit:
                self.close_connection(connection)

    def close(self) -> None:
        for connection in list(self.connections.values()):
            self.close_connection(connection)
        self._listener.close()
        self._selector.close()


def _properties(data: bytes) -> Dict[bytes, bytes]:
    """Of a READY, by their names in lower case."""
    found = {}
    while data:
        name, data = data[1 : 1 + data[0]], data[1 + data[0] :]
        if len(data) < 4:
            raise ZmtpError("a property that is cut")
        size = struct.unpack(">I", data[:4])[0]
        found[name.lower()], data = data[4 : 4 + size], data[4 + size :]
    return found
