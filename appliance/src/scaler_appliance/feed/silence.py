"""Why a monitor address is silent: nothing listens, access is denied, nothing answers, or another program does.

    silent feed ─▶ SilenceProbe.reason() ─▶ a thread: connect, greet, see what answers ─▶ a reason in words

Rules:
- Callers never wait for an answer: they get the last known reason, which is probed again periodically.
- Connection errors have the same texts as in clients and workers, see `scaler_protocol.host.addresses`.
- Only the greeting is sent, which costs a scheduler no time.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Callable, Optional

from scaler_protocol.host.addresses import (
    Address,
    parse_address,
    resolve,
    why_foreign,
    why_not_connected,
    why_not_greeted,
)
from scaler_protocol.host.connection import first_words
from scaler_protocol.wire.zmtp import Zmtp

PROBE_TIMEOUT_SECONDS = 1.5
PROBE_INTERVAL_SECONDS = 5.0
_SOCKET_TYPE = b"Socket-Type"
_MECHANISM = slice(12, 32)  # in a greeting
_ENOUGH_BYTES = 512


class SilenceProbe:
    """Finds out, in a thread, why nothing is received from an address.

    Parameters:
        ask: returns the reason; may block.
        clock: seconds of a monotonic clock.
    """

    def __init__(self, address: str, ask: Callable[[str], str], clock: Callable[[], float] = time.monotonic) -> None:
        self._address = address
        self._ask = ask
        self._clock = clock
        self._next_at = clock()
        self._reason = ""
        self._asking: Optional[threading.Thread] = None

    def reason(self) -> str:
        """The last known reason; empty if there is none yet."""
        is_idle = self._asking is None or not self._asking.is_alive()
        if is_idle and self._clock() >= self._next_at:
            self._next_at = self._clock() + PROBE_INTERVAL_SECONDS
            thread = threading.Thread(target=self._run, name="silence probe", daemon=True)
            with suppress(RuntimeError, MemoryError):  # no room for a thread: asked later
                thread.start()
                self._asking = thread
        return self._reason

    def _run(self) -> None:
        self._reason = self._ask(self._address)

    def forget(self) -> None:
        """Forget the reason, because the scheduler publishes again."""
        self._reason = ""


def why_silent(address: str, timeout_seconds: float = PROBE_TIMEOUT_SECONDS) -> str:
    """What listens at a monitor address that publishes nothing. Takes up to twice the time-out."""
    parsed = parse_address(address)
    deadline = time.monotonic() + timeout_seconds
    try:
        family, target = resolve(parsed)
        with socket.socket(family, socket.SOCK_STREAM) as stream:
            stream.settimeout(timeout_seconds)
            stream.connect(target)
            said = _greeting(stream, deadline)
    except OSError as error:
        return why_not_connected(parsed, error)
    if not said:
        foreign = b"" if parsed.path else first_words(parsed, timeout_seconds)
        return why_foreign(parsed, foreign) if foreign else why_not_greeted(parsed, has_spoken=False)
    if not said.startswith(b"\xff"):
        return why_foreign(parsed, said)
    if said[_MECHANISM].rstrip(b"\0") == b"CURVE":
        return f"the scheduler at {parsed} requires a key that may read its status, and does not admit the one given"
    return _of_type(parsed, _socket_type(said))


def _greeting(stream: socket.socket, deadline: float) -> bytes:
    """A peer's answer to our greeting, up to its socket type."""
    said = b""
    try:
        stream.sendall(Zmtp("DEALER", _ENOUGH_BYTES).take_output())
        while not _socket_type(said) and len(said) < _ENOUGH_BYTES:
            stream.settimeout(max(0.01, deadline - time.monotonic()))
            more = stream.recv(_ENOUGH_BYTES)
            if not more:
                break
            said += more
            if not said.startswith(b"\xff"):
                break
    except OSError:
        pass  # it sends nothing more
    return said


def _socket_type(said: bytes) -> str:
    """The socket type in the READY command, if that is complete."""
    _, found, value = said.partition(_SOCKET_TYPE)
    size = int.from_bytes(value[:4], "big")
    return value[4 : 4 + size].decode("latin-1") if found and len(value) >= 4 + size else ""


def _of_type(address: Address, socket_type: str) -> str:
    if socket_type in ("XPUB", "PUB"):
        return f"the scheduler at {address} accepts monitors but publishes nothing: it is busy or hung"
    if socket_type == "ROUTER":
        return (
            f"{address} is the scheduler's address for clients and workers; use its monitor address, which it logs"
            " at start"
        )
    if socket_type:
        return f"the program at {address} is not a Scaler scheduler: it is a ZeroMQ socket of type {socket_type}"
    return why_not_greeted(address, has_spoken=True)
