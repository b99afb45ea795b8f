"""How much memory this process uses and may use.

Rules:
- What counts is memory that only this process can free: neither files of objects, which the core counts, nor programs
  and libraries.
- A limit of addresses (`ulimit -v`) is a limit of memory, less what the process has reserved and does not use.
- While memory is short, what has been freed is given back to the operating system. Neither PyPy's collector nor the C
  library does that by itself in time.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import time
from contextlib import suppress
from functools import cache
from typing import Callable, NamedTuple, Optional

from scaler_protocol.host.memory import memory_limit_bytes

INTERVAL_SECONDS = 0.005

NOTICED_SHARE = 1 / 256
"""Of the limit: a smaller change is no news, except once a second. When so much was added, memory is measured at once:
no level of `MemoryBudget` is passed over, however fast messages arrive and however small the limit is.
"""
REPORT_INTERVAL_SECONDS = 1.0

DEFAULT_SHARE = 0.75  # of what this process could use if it were alone
MESSAGE_SHARE = 1 / 8  # of the limit, for one message
WAITING_SHARE = 1 / 4  # of the limit, for messages that were sent or received in part
MONITORS_SHARE = 1 / 16  # of the limit, for publications that wait for monitors
OBJECTS_SHARE = 1 / 2  # of the limit, for files of objects in memory

RESERVED_ADDRESSES_BYTES = 96 << 20
"""For what takes addresses without using memory: stacks of threads, pieces of the heap between others."""

SMALLEST_USEFUL_BYTES = 32 << 20  # beyond what the process uses at its start

SHARE_OF_TIME = 0.025  # for giving memory back; twice as much at each level
MOST_OF_THE_TIME = 0.5
STEP_INTERVAL_SECONDS = 0.01

IS_PYPY = hasattr(gc, "collect_step")

logger = logging.getLogger("scaler")

_PAGE_BYTES = os.sysconf("SC_PAGESIZE")


class _Use(NamedTuple):
    addresses: int  # in bytes
    heap: int


class MemoryUse:
    """Measures this process's memory, where there is a /proc."""

    def __init__(self) -> None:
        self.limit_bytes = 0  # of this process, files of objects included; 0: no limit
        self._statm: Optional[int] = None
        with suppress(OSError):
            self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._reported_bytes = 0
        self._added_bytes = 0  # since the last measurement
        self._next_measurement = self._next_report = self._next_return = self._next_collection = 0.0

    def close(self) -> None:
        if self._statm is not None:
            os.close(self._statm)

    def choose_limit(self, wanted_bytes: Optional[int]) -> None:
        """Set `limit_bytes`.

        Parameters:
            wanted_bytes: what the user chose, 0 for no limit; None: a share of what there is.
        """
        used = self.read()
        limit_bytes = int((memory_limit_bytes() or 0) * DEFAULT_SHARE) if wanted_bytes is None else wanted_bytes
        addresses = resource.getrlimit(resource.RLIMIT_AS)[0]
        if addresses != resource.RLIM_INFINITY:
            possible_bytes = max(1, addresses - (used.addresses - used.heap) - RESERVED_ADDRESSES_BYTES)
            limit_bytes = min(limit_bytes or possible_bytes, possible_bytes)
        needed_bytes = used.heap + SMALLEST_USEFUL_BYTES
        if 0 < limit_bytes < needed_bytes:
            text = "Scheduler: the memory limit is %d MiB, and this process needs %d MiB: see --memory-limit"
            logger.warning(text, limit_bytes >> 20, needed_bytes >> 20)
            limit_bytes = needed_bytes
        self.limit_bytes = limit_bytes

    def is_due(self, now: float, added_bytes: int) -> bool:
        """Whether it is time to measure again.

        Parameters:
            added_bytes: what was received, or made, since the last call.
        """
        self._added_bytes += added_bytes
        is_due = now >= self._next_measurement or self._added_bytes >= self.limit_bytes * NOTICED_SHARE
        return is_due and self.limit_bytes > 0

    def measure(self, now: float, alarming_bytes: int) -> Optional[int]:
        """The heap in bytes; None if it has hardly changed.

        Parameters:
            alarming_bytes: if so much is in use, what is free is given back first.
        """
        self._next_measurement = now + INTERVAL_SECONDS
        self._added_bytes = 0
        heap_bytes = self.read().heap
        if heap_bytes >= alarming_bytes and now >= self._next_collection:
            begin = time.thread_time()
            if IS_PYPY:
                gc.collect()
            _trimmer()()
            self._next_collection = now + 2 * (time.thread_time() - begin)
            heap_bytes = self.read().heap
        if abs(heap_bytes - self._reported_bytes) < self.limit_bytes * NOTICED_SHARE and now < self._next_report:
            return None
        self._next_report = now + REPORT_INTERVAL_SECONDS
        self._reported_bytes = heap_bytes
        return heap_bytes

    def read(self) -> _Use:
        """What is in use now."""
        if self._statm is None:
            return _Use(0, 0)
        size, resident, shared = os.pread(self._statm, 256, 0).split()[:3]
        return _Use(int(size) * _PAGE_BYTES, (int(resident) - int(shared)) * _PAGE_BYTES)

    def give_back(self, now: float, level: int) -> bool:
        """Give free memory back to the operating system, in a share of the time that follows the level.

        Returns whether there may be more, after STEP_INTERVAL_SECONDS.
        """
        if now < self._next_return:
            return False
        begin = time.thread_time()
        is_done = not IS_PYPY or bool(gc.collect_step().major_is_done)  # type: ignore[attr-defined]  # PyPy has it
        if is_done:
            _trimmer()()
        share = min(MOST_OF_THE_TIME, SHARE_OF_TIME * 2**level)
        self._next_return = now + (time.thread_time() - begin) / share + (STEP_INTERVAL_SECONDS if is_done else 0.0)
        return not is_done


@cache
def _trimmer() -> Callable[[], object]:
    with suppress(ImportError, OSError, AttributeError):
        import ctypes  # when it is first needed: it takes a twentieth of a start

        malloc_trim = ctypes.CDLL(None).malloc_trim
        malloc_trim.argtypes, malloc_trim.restype = (ctypes.c_size_t,), ctypes.c_int
        return lambda: malloc_trim(0)
    return lambda: None
