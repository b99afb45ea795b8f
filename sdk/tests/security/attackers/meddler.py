"""Someone on the network between a peer and its scheduler, who changes or repeats what the scheduler sends.

Rule: what the peer has sent is kept, so that a test can see that it told nothing after what was changed.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Callable, Dict, List, Optional

from scaler_protocol.host.addresses import Address
from scaler_protocol.wire.zmtp import GREETING_BYTES, greeting

HANDSHAKE_BYTES = 1500
"""What a peer may send until it has heard a message: greeting, HELLO, INITIATE, a Hello or a subscription."""

Change = Callable[[bytes, int], bytes]
"""Some bytes after a change, given how many came before them; if there are fewer than before, the connection ends."""


def _flip(name: bytes) -> Change:
    def change(data: bytes, _: int) -> bytes:
        at = data.find(name)
        if at < 0:
            return data
        middle = (at + len(name) + len(data)) // 2
        return data[:middle] + bytes((data[middle] ^ 1,)) + data[middle + 1 :]

    return change


def _cut(name: bytes) -> Change:
    def change(data: bytes, _: int) -> bytes:
        at = data.find(name)
        return data if at < 0 else data[: at + len(name) + 9]

    return change


def _downgrade(mechanism: bytes) -> Change:
    def change(data: bytes, before: int) -> bytes:
        if before >= GREETING_BYTES or b"CURVE" not in data:
            return data
        return data.replace(b"CURVE" + bytes(15), mechanism.ljust(20, b"\0"), 1)

    return change


def _flip_messages(data: bytes, before: int) -> bytes:
    is_handshake = before < GREETING_BYTES or b"WELCOME" in data or b"READY" in data
    return data if is_handshake else data[:-1] + bytes((data[-1] ^ 1,))


CHANGES: Dict[str, Change] = {
    "changes the WELCOME": _flip(b"\7WELCOME"),
    "changes the READY": _flip(b"\5READY"),
    "cuts the WELCOME": _cut(b"\7WELCOME"),
    "cuts the READY": _cut(b"\5READY"),
    "says NULL": _downgrade(b"NULL"),
    "says PLAIN": _downgrade(b"PLAIN"),
    "changes the first message": _flip_messages,
}


class Meddler:
    """Parameters:
    target: of the scheduler.
    kind: one of CHANGES, or "repeats what was recorded", or "floods".
    recorded: what the scheduler has sent to an honest peer before.
    """

    def __init__(self, target: Address, kind: str, recorded: bytes = b"") -> None:
        self._target, self._kind, self._recorded = (target.host, target.port), kind, recorded
        self._listener = socket.create_server(("127.0.0.2", 0))
        self.address = "tcp://{}:{}".format(*self._listener.getsockname())
        self.told: List[bytes] = []
        """What each caller has sent."""
        self._has_changed = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.told.append(b"")
                threading.Thread(target=self._serve, args=(near, len(self.told) - 1), daemon=True).start()

    def _serve(self, near: socket.socket, number: int) -> None:
        if self._kind == "floods":
            threading.Thread(target=self._flood, args=(near,), daemon=True).start()
            self._listen(near, number, None)
        elif self._kind == "repeats what was recorded":
            with suppress(OSError):
                near.sendall(self._recorded)
                self._has_changed.set()
            self._listen(near, number, None)
        else:
            far = socket.create_connection(self._target)
            threading.Thread(target=self._pass_on, args=(far, near), daemon=True).start()
            self._listen(near, number, far)

    def _listen(self, near: socket.socket, number: int, far: Optional[socket.socket]) -> None:
        with suppress(OSError):
            while data := near.recv(65536):
                self.told[number] += data
                if far is not None:
                    far.sendall(data)
        near.close()

    def _pass_on(self, far: socket.socket, near: socket.socket) -> None:
        change, before = CHANGES[self._kind], 0
        with suppress(OSError):
            while data := far.recv(65536):
                changed = change(data, before)
                before += len(data)
                if changed != data:
                    self._has_changed.set()
                near.sendall(changed)
                if len(changed) < len(data):
                    break
        with suppress(OSError):
            near.shutdown(socket.SHUT_WR)
        far.close()

    def _flood(self, near: socket.socket) -> None:
        with suppress(OSError):
            near.sendall(greeting(b"CURVE", True))
            self._has_changed.set()
            while True:
                near.sendall(b"\x04\xff" + bytes(255))

    def wait_until_changed(self, timeout_seconds: float) -> bool:
        """Whether it has changed something within this time."""
        return self._has_changed.wait(timeout_seconds)
