"""Callers who come in numbers to the data address of a worker, and have no ticket."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import Any, List

from security.data_addresses.played_workers import Caller, DataDoor, Holder, wire_to

from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.wire.zmtp import GREETING_BYTES, ZmtpError, greeting

TIMEOUT_SECONDS = 30.0
STAYING = 100


class Idlers:
    """They stay, and say no more than a part of their greeting, or no more than their keys.

    Parameters:
        has_keys: they shake hands.
    """

    def __init__(self, holder: Holder, door: DataDoor, count: int, has_keys: bool) -> None:
        sodium = load_sodium()
        self._callers: List[Any] = []
        for number in range(count):
            if has_keys:
                self._callers.append(Caller(holder, sodium.new_keys(), door).wire)
            else:
                self._callers.append(wire_to(holder, door))
                self._callers[-1].send(greeting(b"CURVE")[: 1 + number % GREETING_BYTES])

    def count(self) -> int:
        """How many of them are connected still."""
        return sum(map(_is_open, self._callers))


def _is_open(wire: Any) -> bool:
    wire.stream.setblocking(False)
    try:
        while wire.stream.recv(65536):
            pass
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False


class Flood:
    """Callers that come with new keys, say something, and stay until many others have come after them.

    Four come at a time, until their process ends.
    """

    def __init__(self, holder: Holder, door: DataDoor) -> None:
        self._holder, self._door = holder, door
        self._came = threading.Semaphore(0)
        for _ in range(4):
            threading.Thread(target=self._flood, daemon=True).start()

    def _flood(self) -> None:
        sodium, staying = load_sodium(), deque[Caller]()
        while True:
            with suppress(OSError, ZmtpError):
                staying.append(Caller(self._holder, sodium.new_keys(), self._door))
                staying[-1].say()
            if len(staying) > STAYING:
                staying.popleft().wire.stream.close()
            self._came.release()

    def wait_until_came(self, count: int) -> None:
        for _ in range(count):
            assert self._came.acquire(timeout=TIMEOUT_SECONDS)
