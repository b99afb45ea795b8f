"""Finding the batch or graph that an id belongs to, by the ids with which they begin."""

from __future__ import annotations

from bisect import bisect_right
from typing import List

CHUNK = 64


class FirstIds:
    """Ids that are added in ascending order, and removed in any.

    They are kept in short lists, each of which ends with the last of its ids: no operation takes longer the more there
    are, but for moving some thousand references.
    """

    __slots__ = ("_chunks", "_firsts", "_counts")

    def __init__(self) -> None:
        self._chunks: List[List[int]] = []
        self._firsts: List[int] = []  # of each list
        self._counts: List[int] = []  # of ids in it that have not been removed

    def add(self, first_id: int) -> None:
        """Add an id that is larger than all before."""
        if not self._chunks or len(self._chunks[-1]) >= CHUNK:
            self._chunks.append([])
            self._firsts.append(first_id)
            self._counts.append(0)
        self._chunks[-1].append(first_id)
        self._counts[-1] += 1

    def remove(self, first_id: int) -> None:
        """Remove an id; `at_most` may find it until its list ends."""
        place = bisect_right(self._firsts, first_id) - 1
        self._counts[place] -= 1
        if not self._counts[place]:
            del self._chunks[place], self._firsts[place], self._counts[place]

    def at_most(self, task_id: int) -> int:
        """The largest id that is not above this one, perhaps a removed one; -1: there is none."""
        place = bisect_right(self._firsts, task_id) - 1
        if place < 0:
            return -1
        chunk = self._chunks[place]
        return chunk[bisect_right(chunk, task_id) - 1]

    def __len__(self) -> int:
        """How many are kept, also removed ones."""
        return sum(map(len, self._chunks))
