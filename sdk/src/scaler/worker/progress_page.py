"""The memory page through which a processor tells the agent where it is, without a system call.

    one entry a processor, one cache line each

Rules:
- Made before the fork server is forked, so that agent, fork server and processors share it by inheritance.
- A processor writes its own entry only; everyone else reads. One store per task is all it costs.
- What the bits of an entry mean, `progress` says.
"""

from __future__ import annotations

import mmap

from scaler.worker.progress import MAXIMUM_PROCESSORS

_ENTRY_BYTES = 64


class ProgressPage:
    """Entries for MAXIMUM_PROCESSORS processors; pages that nobody touches take no memory."""

    def __init__(self) -> None:
        self._view = memoryview(mmap.mmap(-1, MAXIMUM_PROCESSORS * _ENTRY_BYTES)).cast("Q")

    def entry(self, index: int) -> memoryview:
        """The entry of processor `index`: `entry[0]` is its position."""
        start = index * _ENTRY_BYTES // 8
        return self._view[start : start + 1]
