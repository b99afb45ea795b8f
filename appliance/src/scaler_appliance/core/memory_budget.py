"""How much of its memory the scheduler uses, and what it does when that is much.

    heap, as the shell measures it ────┐
    files of objects in memory ────────┴──▶ level ──▶ clients may have less in flight ──▶ new tasks are rejected
                                                 └──▶ contents and files of objects go to disk

Rules:
- One limit holds for everything: tasks, results, messages, objects, figures for monitors. The heap is measured, not
  estimated, so that nothing is left out.
- Below the first level nothing changes. At each level, clients may have a quarter as much in flight as at the one
  before: they are slowed, and never stopped. At `FULL` new tasks and graphs are rejected. At `EXHAUSTED` the client
  that holds most is disconnected: that bounds what is not rejected and cannot go to disk, such as very small objects.
- A level is left when there is clearly less in use, so that it does not change all the time.
- Files of objects that can go to disk do so first, and files that are on their way there slow clients, but do not make
  the memory full.
"""

from __future__ import annotations

from enum import IntEnum


class MemoryLevel(IntEnum):
    """How much of the limit is in use."""

    FREE = 0
    SHORT = 1
    SHORTER = 2
    SHORTEST = 3
    FULL = 4
    EXHAUSTED = 5


BEGINS_AT = (0.0, 0.70, 0.76, 0.82, 0.88, 0.95)
"""The share of the limit at which each level begins."""

LEFT_BELOW = 0.02
"""A level is left when this share of the limit less than where it begins is in use."""

SMALLEST_FILES_BYTES = 1 << 20
"""The part of the limit that files of objects may always use."""


class MemoryBudget:
    """The use of memory at the last measurement.

    Parameters:
        limit_bytes: of the heap and of files in memory together; 0: no limit.
    """

    __slots__ = ("limit_bytes", "heap_bytes", "level", "_used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.heap_bytes = self._used_bytes = 0
        self.level = MemoryLevel.FREE

    @property
    def is_short(self) -> bool:
        """Whether what can be on disk should be there."""
        return self.level >= MemoryLevel.SHORT

    @property
    def is_full(self) -> bool:
        """Whether new tasks and graphs are rejected."""
        return self.level >= MemoryLevel.FULL

    @property
    def alarming_heap_bytes(self) -> int:
        """With so much in use besides the files, memory would be exhausted."""
        files_bytes = self._used_bytes - self.heap_bytes
        return int(BEGINS_AT[MemoryLevel.EXHAUSTED] * self.limit_bytes) - files_bytes

    def measure(self, heap_bytes: int, files_bytes: int, leaving_bytes: int) -> bool:
        """Note what is in use; returns whether the level has changed.

        Parameters:
            heap_bytes: of this process.
            files_bytes: of objects' files that stay in memory.
            leaving_bytes: of files that are on their way to disk.
        """
        self.heap_bytes = heap_bytes
        self._used_bytes = heap_bytes + files_bytes
        if not self.limit_bytes:
            return False
        staying = (heap_bytes + files_bytes) / self.limit_bytes
        all_together = staying + leaving_bytes / self.limit_bytes
        level = self._level_of(staying, all_together)
        if level < self.level:
            level = min(self.level, self._level_of(staying + LEFT_BELOW, all_together + LEFT_BELOW))
        if level == self.level:
            return False
        self.level = level
        return True

    @staticmethod
    def _level_of(staying: float, all_together: float) -> MemoryLevel:
        level = max(each for each in MemoryLevel if BEGINS_AT[each] <= staying)
        slowed = max(each for each in MemoryLevel if BEGINS_AT[each] <= all_together)
        return max(level, min(slowed, MemoryLevel.SHORTEST))

    def has_room_for(self, size: int) -> bool:
        """Whether so much more, by the last measurement, would not make the memory full."""
        would_fit = self._used_bytes + size <= BEGINS_AT[MemoryLevel.FULL] * self.limit_bytes
        return not self.limit_bytes or (would_fit and not self.is_full)

    def files_limit_bytes(self, most_bytes: int) -> int:
        """How much files of objects may use before they go to disk.

        Parameters:
            most_bytes: whatever the heap uses.
        """
        if not (self.limit_bytes and most_bytes):
            return most_bytes
        left_bytes = int(BEGINS_AT[MemoryLevel.SHORT] * self.limit_bytes) - self.heap_bytes
        return min(most_bytes, max(left_bytes, SMALLEST_FILES_BYTES))

    def granted(self, limit: int, least: int) -> int:
        """What a client may have in flight of that which is limited to `limit`; 0: no limit.

        Parameters:
            least: it may always have this much, unless the limit is less.
        """
        if not self.is_short:
            return limit
        shift = 2 * min(self.level, MemoryLevel.FULL)
        return max(min(least, limit), limit >> shift) if limit else max(least, self.limit_bytes >> (shift + 4))

    def text_of_full(self) -> str:
        """Why a task is rejected, and what to do."""
        return (
            f"the scheduler's memory is full ({_mebibytes(self.limit_bytes)}): submit fewer or smaller tasks at a time,"
            " delete objects that are no longer needed, add workers, or raise --memory-limit"
        )

    def describe(self, files_bytes: int) -> str:
        """What is in use, for the log."""
        used = f"{_mebibytes(self.heap_bytes + files_bytes)} of {_mebibytes(self.limit_bytes)} are in use"
        return f"{used}, {_mebibytes(files_bytes)} of them for files of objects"


def _mebibytes(size: int) -> str:
    return f"{size / (1 << 20):.0f} MiB"
