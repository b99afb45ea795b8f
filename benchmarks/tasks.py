"""The functions that the benchmarks run on workers.

They live in a module of their own, importable by every engine's workers (the parent puts this folder on
PYTHONPATH), so that all engines send them by reference and none pays for a function's source. Nothing here
may import more than the standard library at module level: the import is part of each engine's start-up.
"""

from __future__ import annotations

import os
import time
from typing import Any


def no_op(value: int) -> int:
    """Return the argument, so that the caller can check that each result belongs to its task."""
    return value


def pause(seconds: float) -> float:
    """Hold a worker for a moment; a handful of these bring every worker of a pool up."""
    time.sleep(seconds)
    return seconds


def sleep_and_tell(seconds: float) -> tuple[int, float]:
    """Hold a worker for some time; say which process that was, and when it began, by the clock of the machine."""
    started = time.monotonic()
    time.sleep(seconds)
    return os.getpid(), started


def add(left: int, right: int) -> int:
    """A node of a graph with two predecessors, or one."""
    return left + right


def total(values: list[int]) -> int:
    """A node of a graph with many predecessors."""
    return sum(values)


def make_bytes(size: int) -> bytes:
    """Return `size` bytes."""
    return bytes(size)


def sum_slice(array: Any, position: int, parts: int) -> tuple[float, bool, bool]:
    """Sum one slice of a NumPy array; also say whether the array owns its data and whether it has a base."""
    length = len(array) // parts
    part = array[position * length : (position + 1) * length]
    return float(part.sum()), bool(array.flags.owndata), array.base is not None


def array_memory(array: Any) -> str:
    """Say where the array's data lies: "shared" (a mapping that other processes see) or "private" (a copy).

    `owndata` alone does not tell: pickle protocol 5 rebuilds an array as a view of its own private bytes
    object. The kernel's list of mappings does: its fourth permission letter is `s` for a shared mapping.
    """
    address = int(array.ctypes.data)
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        for line in maps:
            bounds, permissions, _, _, _, *path = line.split(maxsplit=5)
            start, end = (int(bound, 16) for bound in bounds.split("-"))
            if start <= address < end:
                backed_by_file = bool(path) and not path[0].startswith("[")
                return "shared" if permissions[3] == "s" or backed_by_file else "private"
    return "unknown"
