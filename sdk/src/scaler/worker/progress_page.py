"""The memory page through which a processor reports its position to the agent without a system call.

    one entry a processor, one cache line each

Rules:
- It is created before the fork server is forked, so that agent, fork server and processors inherit it. Where processors
  are programs of their own, it is a file without a name, whose descriptor they get.
- A processor writes only its own entry; the other processes read. The cost is one store per task.
- `progress` defines the bits of an entry.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Optional

from scaler.worker.progress import MAXIMUM_PROCESSORS

_ENTRY_BYTES = 64
_PAGE_BYTES = MAXIMUM_PROCESSORS * _ENTRY_BYTES


class ProgressPage:
    """Entries for MAXIMUM_PROCESSORS processors; untouched pages take no memory.

    Parameters:
        descriptor: of a file that another process has made for it; -1: memory that forks inherit.
    """

    def __init__(self, descriptor: int = -1) -> None:
        self.descriptor = descriptor
        self._view = memoryview(mmap.mmap(descriptor, _PAGE_BYTES)).cast("Q")

    @classmethod
    def in_file(cls, folder: Optional[str] = None) -> ProgressPage:
        """A page that programs can share. Raises OSError if there is no room for it."""
        with tempfile.TemporaryFile(dir=folder) as file:
            file.truncate(_PAGE_BYTES)
            return cls(os.dup(file.fileno()))

    def entry(self, index: int) -> memoryview:
        """The entry of processor `index`: `entry[0]` is its position."""
        start = index * _ENTRY_BYTES // 8
        return self._view[start : start + 1]
