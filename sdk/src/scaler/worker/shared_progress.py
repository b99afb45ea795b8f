"""The memory page through which a processor tells the agent where it is, without a system call.

    [position of the task that started last | LOADING bit | FINISHED bit] per processor, one cache line each

Rules:
- Made before the nursery is forked, so that agent, nursery and processors share it by inheritance.
- A processor writes its own entry only; everyone else reads. One store per task is all it costs.
- The FINISHED bit says that the task at the position has ended: what a processor dies of later is not its
  fault.
- The LOADING bit says that the function of the task at the position is being loaded, which runs user code: what the
  processor dies of is the task's fault, but its time has not begun.
"""

from __future__ import annotations

import mmap

MAXIMUM_PROCESSORS = 8192
"""How many processors, waiting ones included, one worker can have at a time."""

FINISHED = 1 << 63
LOADING = 1 << 62
_ENTRY_BYTES = 64


class ProgressPage:
    """Entries for MAXIMUM_PROCESSORS processors; pages that nobody touches take no memory."""

    def __init__(self) -> None:
        self._view = memoryview(mmap.mmap(-1, MAXIMUM_PROCESSORS * _ENTRY_BYTES)).cast("Q")

    def entry(self, index: int) -> memoryview:
        """The entry of processor `index`: `entry[0]` is its position."""
        start = index * _ENTRY_BYTES // 8
        return self._view[start : start + 1]
