"""A program that listens where a scheduler was, and does not have its keys."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Callable, Dict, List, Optional, Tuple

from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.wire.curve import KeyPair
from scaler_protocol.wire.secure_zmtp import SecureZmtp, ServerSecurity
from scaler_protocol.wire.zmtp import Zmtp, ZmtpError, greeting

LIMIT_BYTES = 1 << 20
MAXIMUM_HANDSHAKE_BYTES = 64 + 2 + 200 + 2 + 7 + 255
"""What a peer may send before the scheduler has proved its key: greeting, CURVE's HELLO, and an ERROR."""


def without_keys(stream: socket.socket) -> Zmtp:
    return Zmtp("ROUTER", LIMIT_BYTES)


def with_another_key(stream: socket.socket) -> Zmtp:
    return with_keys(load_sodium().new_keys())


def with_keys(keys: KeyPair) -> Zmtp:
    return SecureZmtp(ServerSecurity(load_sodium(), [keys], lambda key: None), "ROUTER", LIMIT_BYTES)


class _Silent(Zmtp):
    def _begin_handshake(self) -> None:
        pass

    def _check_mechanism(self, mechanism: bytes) -> None:
        pass

    def _take_command(self, body: bytes, messages: List[List[bytes]]) -> None:
        pass


class _Plain(_Silent):
    def _greeting(self) -> bytes:
        return greeting(b"PLAIN", True)


class _OnlyGreets(_Silent):
    def _greeting(self) -> bytes:
        return greeting(b"CURVE", True)


class _Welcomes(_OnlyGreets):
    """Answers HELLO with a WELCOME that it has made up."""

    def _take_command(self, body: bytes, messages: List[List[bytes]]) -> None:
        self._send_command(b"\7WELCOME" + bytes(range(160)))


class _Refuses(_OnlyGreets):
    """Answers with an ERROR that would control the terminal of who reads it."""

    def _take_command(self, body: bytes, messages: List[List[bytes]]) -> None:
        text = b"no\r\n[CRITICAL]2026-01-01 00:00:00+0000: fire\x1b[2J"
        self._send_command(b"\5ERROR" + bytes((len(text),)) + text)


LIARS: Dict[str, Callable[[socket.socket], Zmtp]] = {
    "without keys": without_keys,
    "with another key": with_another_key,
    "PLAIN": lambda stream: _Plain("ROUTER", LIMIT_BYTES),
    "a greeting and no more": lambda stream: _OnlyGreets("ROUTER", LIMIT_BYTES),
    "an ERROR": lambda stream: _Refuses("ROUTER", LIMIT_BYTES),
    "a WELCOME without a key": lambda stream: _Welcomes("ROUTER", LIMIT_BYTES),
}


class LyingScheduler:
    """Parameters:
    kind: one of LIARS.
    address: where to listen.
    keys: with which it listens, instead of those of its kind.
    """

    def __init__(self, kind: str, address: Tuple[str, int] = ("127.0.0.2", 0), keys: Optional[KeyPair] = None) -> None:
        self._make = LIARS[kind] if keys is None else lambda stream: with_keys(keys)
        self._listener = socket.create_server(address)
        self.address = "tcp://{}:{}".format(*self._listener.getsockname())
        self.received: List[bytes] = []
        """All that each caller has sent."""
        self.messages: List[List[bytes]] = []
        self.has_heard = threading.Event()
        """A caller has sent its greeting."""
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return
            number = len(self.received)
            self.received.append(b"")
            threading.Thread(target=self._serve, args=(stream, number), daemon=True).start()

    def _serve(self, stream: socket.socket, number: int) -> None:
        protocol = self._make(stream)
        try:
            while True:
                stream.sendall(protocol.take_output())
                data = stream.recv(65536)
                if not data:
                    return
                self.received[number] += data
                self.messages += protocol.feed(data)
                self.has_heard.set()
        except ZmtpError:
            with suppress(OSError):
                stream.sendall(protocol.take_output())
        except OSError:
            pass  # the caller has gone, or `close` was called
        finally:
            stream.close()

    def stop_listening(self) -> None:
        """No one else is heard."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
