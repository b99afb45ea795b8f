"""A subscriber's end of ZMTP, written by hand: what the scheduler's publisher is told, and what it says.

subscribe(…) ─▶ take_output() ─▶ bytes to the publisher
messages, commands ◀─ feed() ◀─ bytes from it
"""

from __future__ import annotations

from typing import Dict, List, Tuple

from scaler_protocol.wire.zmtp import COMMAND, LONG, MORE, as_command, encode

GREETING_BYTES = 64


class SubscriberProtocol:
    """A SUB socket of ZMTP 3.0, which subscribes by messages, or of ZMTP 3.1, which subscribes by commands.

    Attributes:
        messages: that were received.
        commands: that were received: names and contents.
    """

    def __init__(self, minor_version: int, socket_type: bytes = b"SUB") -> None:
        self.messages: List[List[bytes]] = []
        self.commands: List[Tuple[bytes, bytes]] = []
        self._has_commands = minor_version > 0
        greeting = b"\xff" + bytes(8) + b"\x7f\3" + bytes((minor_version,)) + b"NULL".ljust(20, b"\0") + bytes(32)
        kind = b"\x0bSocket-Type" + len(socket_type).to_bytes(4, "big") + socket_type
        self._output = greeting + as_command(b"\5READY" + kind)
        self._input = b""
        self._frames: List[bytes] = []
        self._is_greeted = False

    @property
    def properties(self) -> Dict[bytes, bytes]:
        """The first property of the publisher, from its READY; empty before that."""
        for name, content in self.commands:
            if name == b"READY":
                end = 1 + content[0]
                size = int.from_bytes(content[end : end + 4], "big")
                return {content[1:end]: content[end + 4 : end + 4 + size]}
        return {}

    def take_output(self) -> bytes:
        """The bytes to send now."""
        output, self._output = self._output, b""
        return output

    def subscribe(self, topic: bytes) -> None:
        self._output += as_command(b"\x09SUBSCRIBE" + topic) if self._has_commands else self.encoded(b"\1" + topic)

    def cancel(self, topic: bytes) -> None:
        self._output += as_command(b"\6CANCEL" + topic) if self._has_commands else self.encoded(b"\0" + topic)

    def send(self, *frames: bytes) -> None:
        """Send any message."""
        self._output += self.encoded(*frames)

    def ping(self, context: bytes) -> None:
        self._output += as_command(b"\4PING\0\1" + context)

    @staticmethod
    def encoded(*frames: bytes) -> bytes:
        return b"".join(map(bytes, encode(frames)))

    def feed(self, data: bytes) -> None:
        """Bytes have come."""
        self._input += data
        if not self._is_greeted and len(self._input) >= GREETING_BYTES:
            self._is_greeted = True
            self._input = self._input[GREETING_BYTES:]
        while self._is_greeted and self._take_frame():
            pass

    def _take_frame(self) -> bool:
        data = self._input
        start = 9 if data[:1] and data[0] & LONG else 2
        if len(data) < start:
            return False
        end = start + int.from_bytes(data[1:start], "big")
        if len(data) < end:
            return False
        flags, body, self._input = data[0], data[start:end], data[end:]
        if flags & COMMAND:
            self.commands.append((body[1 : 1 + body[0]], body[1 + body[0] :]))
        else:
            self._frames.append(body)
            if not flags & MORE:
                self.messages.append(self._frames)
                self._frames = []
        return True
