"""How many items the next chunk of a map takes, and whether there is room for it. No I/O, no clock.

    next_items(slots) ──▶ 0: not now, or n ──▶ the caller takes n items and sends them ──▶ sent(n)
    a chunk has ended ──▶ ended(n, seconds, ...)   results were yielded ──▶ yielded(n)

Rules:
- A chunk is about TARGET_SECONDS of work, by the measured duration of an item. Until the first measurement chunks are
  single items, one for each slot. A buffer that has no room for larger ones does not wait for it.
- Chunks run ahead: CHUNKS_AHEAD for each slot, so that a slot finds the next one when it ends one. If workers are far
  away, as many more as fit into the time for which a chunk and its results travel: the least that was ever measured.
- What was taken and not yielded yet never exceeds the buffer. Room is given back a chunk at a time, because chunks of
  what happens to be free would become smaller and smaller.
- If the number of items is known, the last chunks are small enough to leave no slot idle.
"""

from __future__ import annotations

from math import ceil, inf
from typing import Optional

TARGET_SECONDS = 0.05
CHUNKS_AHEAD = 2  # for each slot
MAXIMUM_CHUNK_ITEMS = 10_000
SHORTEST_ITEM_SECONDS = 1e-7
DISTANT_SECONDS = 0.02  # of travelling: less is the work of busy processes
LONGEST_TRAVEL_SECONDS = 2.0  # that is believed
TRAVELS_AHEAD = 1.5  # so that the next chunks are there although messages and durations vary


class ChunkPlanner:
    """The sizes of the chunks of one map.

    Parameters:
        buffer_items: how many items may be taken and not yielded yet; None: as many as keep all slots busy.
        fixed_items: the size of every chunk; None: by measured durations.
        maximum_items: of a chunk.
    """

    __slots__ = (
        "buffered",
        "running",
        "_buffer_items",
        "_fixed_items",
        "_maximum_items",
        "_item_seconds",
        "_travel_seconds",
    )

    def __init__(
        self,
        buffer_items: Optional[int] = None,
        fixed_items: Optional[int] = None,
        maximum_items: int = MAXIMUM_CHUNK_ITEMS,
    ) -> None:
        self.buffered = 0  # items taken and not yielded yet
        self.running = 0  # chunks
        self._buffer_items = buffer_items
        self._fixed_items = fixed_items
        self._maximum_items = maximum_items
        self._item_seconds = 0.0  # 0 while unknown
        self._travel_seconds = inf  # of a chunk and its results, the least so far

    def next_items(self, slots: int, left: Optional[int] = None) -> int:
        """The size of the next chunk; 0 if nothing may be sent now.

        Parameters:
            slots: how many chunks the cluster runs at once, at least 1.
            left: how many items have not been taken, if that is known.
        """
        if self._fixed_items is None:
            ahead = self._chunks_ahead * slots
            is_small = self._buffer_items is not None and self._buffer_items < 2 * ahead
            if self.running >= (ahead if self._item_seconds or is_small else slots):
                return 0
        size = self._size(slots, left)
        return size if self._room(slots, size) >= size else 0

    def items_until_room(self, slots: int) -> int:
        """How many items to yield before asking for the next size again, at least 1."""
        size = self._size(slots, None)
        room = self._room(slots, size)
        return max(1, size - room) if room < size else size

    def sent(self, items: int) -> None:
        """A chunk was sent."""
        self.running += 1
        self.buffered += items

    def ended(self, items: int, seconds: float, since_sent_seconds: float = 0.0) -> None:
        """A chunk has ended.

        Parameters:
            items: how many results it has.
            seconds: how long they took; 0 if that is unknown.
            since_sent_seconds: how long ago it was sent.
        """
        self.running -= 1
        if items and seconds:
            self._travel_seconds = min(self._travel_seconds, since_sent_seconds - seconds)
            measured = max(seconds / items, SHORTEST_ITEM_SECONDS)
            self._item_seconds = measured if self._item_seconds == 0.0 else (self._item_seconds + measured) / 2

    @property
    def _chunks_ahead(self) -> int:
        """For each slot."""
        if not DISTANT_SECONDS < self._travel_seconds < inf:
            return CHUNKS_AHEAD
        travel_seconds = min(self._travel_seconds, LONGEST_TRAVEL_SECONDS)
        return CHUNKS_AHEAD + ceil(TRAVELS_AHEAD * travel_seconds / max(TARGET_SECONDS, self._item_seconds))

    def yielded(self, items: int) -> None:
        """Results were handed over."""
        self.buffered -= items

    def limit(self, items: int) -> None:
        """No chunk is larger from now on."""
        self._maximum_items = min(self._maximum_items, max(1, items))

    def _size(self, slots: int, left: Optional[int]) -> int:
        if self._fixed_items is not None:
            size = self._fixed_items
        elif self._item_seconds == 0.0:
            size = 1
        else:
            size = int(TARGET_SECONDS / self._item_seconds)
            if left is not None:
                size = min(size, left // (self._chunks_ahead * slots) + 1)
            if self._buffer_items is not None:
                size = min(size, self._buffer_items // (self._chunks_ahead * slots))
        if self._buffer_items is not None:
            size = min(size, self._buffer_items)
        return max(1, min(size, self._maximum_items))

    def _room(self, slots: int, size: int) -> int:
        limit = (self._chunks_ahead + 1) * slots * size if self._buffer_items is None else self._buffer_items
        return limit - self.buffered
