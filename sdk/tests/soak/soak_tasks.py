"""The functions that a soak submits. Each result follows from the arguments, whichever attempt it is of."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import List

from scaler import Client


def double(number: int, nap_seconds: float = 0.0) -> int:
    if nap_seconds:
        time.sleep(nap_seconds)
    return 2 * number


def grow(number: int, size: int) -> bytes:
    return (b"%d." % number * (size // 2 + 1))[:size]


def measure(data: bytes, number: int) -> int:
    return len(data) + number


def total(numbers: List[int]) -> int:
    return sum(numbers)


def fibonacci(number: int) -> int:
    if number < 2:
        return number
    with Client() as client:
        return sum(client.options(retries=1000).map(fibonacci, [number - 1, number - 2]))


def append_once(path: str, number: int, nap_seconds: float) -> int:
    """Leaves a line for each run, which no other process can tear apart, and may be lost after that."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, b"%d\n" % number)
    finally:
        os.close(file)
    if nap_seconds:
        time.sleep(nap_seconds)
    return number


def die(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave(number: int) -> None:
    sys.exit(number)


def fail(number: int) -> None:
    raise ValueError(number)


def nap_for_ever(number: int) -> None:
    time.sleep(600)


def allocate(number: int, size: int) -> int:
    """Touch as much memory as asked for."""
    memory = bytearray(size)
    memory[::4096] = b"x" * len(memory[::4096])
    return number
