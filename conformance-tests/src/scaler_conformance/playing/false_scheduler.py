"""A listener in a scheduler's place that cannot prove the scheduler's key, and what a peer with a key sends to it.

Rules:
- It offers one mechanism, and answers as a scheduler with that mechanism would, as far as one can without the key.
- A connection is watched until the peer closes it, or sends nothing for a while.
"""

from __future__ import annotations

import os
import select
import socket
import time
from typing import Callable, List, Optional, Tuple

from scaler_conformance.configuration.settings import Settings
from scaler_conformance.judging.verdicts import Violation
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.raw_connection import COMMAND, GREETING_BYTES

_SIGNATURE = b"\xff" + bytes(8) + b"\x7f\x03\x01"
_MECHANISM_END = 32  # of a greeting
_HELLO = b"\x04\xc8\x05HELLO"
_HELLO_BYTES = 202
_READY = b"\x04\x1a\x05READY\x0bSocket-Type\0\0\0\x06ROUTER"
_PLAIN_WELCOME = b"\x04\x08\x07WELCOME"
_CURVE_WELCOME = b"\x04\xa8\x07WELCOME"
_SEALED_WELCOME_BYTES = 160
_SILENCE = 1 / 20  # of the deadline
_CONNECTIONS = 2


class FalseScheduler:
    """A listener at an address.

    Parameters:
        mechanism: that it offers: NULL, PLAIN or CURVE.
        how_it_ended: returns a text once the implementation has ended.
    """

    def __init__(self, mechanism: str, settings: Settings, how_it_ended: Callable[[], Optional[str]]) -> None:
        self._mechanism = mechanism
        self._settings = settings
        self._how_it_ended = how_it_ended
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"

    def expect_no_message(self) -> None:
        """A peer must connect, and send nothing but its greeting and CURVE's HELLO, which says nothing of it.

        Raises Violation.
        """
        expected = "a connection of the peer, which has a key"
        sent = self._next_connection(self._settings.deadline_seconds)
        if not sent:
            raise Violation(expected, self._how_it_ended() or "there was none that sent anything")
        for _ in range(_CONNECTIONS):
            self._check(sent)
            sent = self._next_connection(self._settings.deadline_seconds / 4)

    def _check(self, sent: bytes) -> None:
        mechanism = sent[len(_SIGNATURE) : _MECHANISM_END].rstrip(b"\0").decode("latin-1")
        if len(sent) >= _MECHANISM_END:
            check(mechanism == "CURVE", "the mechanism CURVE in the greeting of a peer with a key", mechanism)
        more = sent[GREETING_BYTES:]
        has_hello = more.startswith(_HELLO) and self._mechanism == "CURVE"
        more = more[_HELLO_BYTES:] if has_hello else more
        is_error = more[:1] == bytes([COMMAND]) and more[2:8] == b"\x05ERROR"
        expected = (
            f"nothing from a peer with a key to a scheduler that offers {self._mechanism} and has not proved its key"
        )
        check(not more or is_error, expected, f"{len(more)} bytes that begin with {more[:24]!r}")

    def _next_connection(self, seconds: float) -> bytes:
        """What the next connection that sends something sends; empty if there is none in this time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self._how_it_ended():
            if select.select([self._listener], [], [], 0.02)[0]:
                connection, _ = self._listener.accept()
                with connection:
                    sent = self._watched(connection)
                if sent:
                    return sent
        return b""

    def _watched(self, connection: socket.socket) -> bytes:
        """What is sent on a connection. The mechanism is offered once the peer has named its own, if it does that."""
        rest = self._mechanism.encode().ljust(20, b"\0") + bytes([self._mechanism != "NULL"]) + bytes(31)
        answers: List[Tuple[int, bytes]] = [(_MECHANISM_END, rest), *self._answers()]
        received = b""
        try:
            connection.sendall(_SIGNATURE)
            while True:
                is_silent = not select.select([connection], [], [], self._settings.deadline_seconds * _SILENCE)[0]
                data = b"" if is_silent else connection.recv(1 << 16)
                received += data
                if not data and not (is_silent and len(answers) > len(self._answers())):
                    break
                while answers and (len(received) >= answers[0][0] or is_silent):
                    connection.sendall(answers.pop(0)[1])
                    is_silent = False
        except OSError:
            pass  # the peer has closed it
        return received

    def _answers(self) -> List[Tuple[int, bytes]]:
        """What follows on the greeting, and after how many bytes of the peer."""
        if self._mechanism == "NULL":
            return [(GREETING_BYTES, _READY)]
        if self._mechanism == "PLAIN":
            return [(GREETING_BYTES + 1, _PLAIN_WELCOME + _READY)]
        return [(GREETING_BYTES + _HELLO_BYTES, _CURVE_WELCOME + os.urandom(_SEALED_WELCOME_BYTES))]

    def close(self) -> None:
        self._listener.close()
