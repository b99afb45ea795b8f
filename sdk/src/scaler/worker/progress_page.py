"""The memory page through which a processor reports its position to the agent without a system call.

    one entry a processor, one cache line each

Rules:
- It is created before the fork server is forked, so that agent, fork server and processors inherit it.
- A processor writes only its own entry; the other processes read. The cost is one store per task.
- `progress` defines the bits of an entry.
"""

from __future__ import annotations

import mmap

from scaler.worker.progress import MAXIMUM_PROCESSORS

_ENTRY_BYTES = 64


class ProgressPage:
    """Entries for MAXIMUM_PROCESSORS processors; untouched pages take no memory."""

    def __init__(self) -> None:
        self._view = memoryview(mmap.mmap(-1, MAXIMUM_PROCESSORS * _ENTRY_BYTES)).cast("Q")

    def entry(self, index: int) -> memoryview:
        """The entry of processor `index`: `entry[0]` is its position."""
        start = index * _ENTRY_BYTES // 8
        return self._view[start : start + 1]
