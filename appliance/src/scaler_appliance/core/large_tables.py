"""Tables by id that may have millions of entries.

    table: Table[Value] = {}
    table[number] = value
    if len(table) == LARGE:
        table = in_chunks(table)

Rules:
- No operation takes long, however many entries there are. A dict is moved as a whole when it grows (42 ms at 1.4
  million entries), freed as a whole, and searched from its beginning for its first entry, past all that were removed.
- A table that has never been large is a plain dict, and costs what a dict costs: nearly all are. So its owner replaces
  it, instead of a type that looks at its size in each operation. Who needs it later asks its owner for it again.
- Large tables are in chunks, each a dict with the keys of one range. A full chunk is divided: in the middle, or near
  its end if its keys ascend, as most do. An empty one ends. So keys may come in any order, and be as sparse as their
  maker likes.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import chain
from typing import (
    Any,
    Dict,
    Generic,
    ItemsView,
    Iterator,
    List,
    MutableMapping,
    Optional,
    Tuple,
    TypeVar,
    Union,
    ValuesView,
    overload,
)

Value = TypeVar("Value")
Default = TypeVar("Default")

Table = MutableMapping[int, Value]
"""A dict, or a ChunkedTable."""

LARGE = 1 << 14
"""Entries of a table that is divided into chunks, and of a chunk that is full."""


def in_chunks(table: Table[Value]) -> ChunkedTable[Value]:
    """The table that continues a large one; a dict becomes a part of it, and must not be used any more."""
    if isinstance(table, ChunkedTable):
        return table
    assert isinstance(table, dict)
    return ChunkedTable(table)


def keys_in_parts(table: Table[Value]) -> Iterator[List[int]]:
    """The keys that there are now, some at a time; some of a later part may be new then, or gone."""
    for chunk in _chunks_of(table):
        yield list(chunk)


def drained(table: Table[Value], is_reversed: bool = False) -> Iterator[Value]:
    """The values that there are now; none is kept alive after its turn, lest all are freed at once in the end."""
    chunks = _chunks_of(table)
    if not is_reversed:
        chunks.reverse()
    while chunks:
        left = list(chunks.pop().values())
        if not is_reversed:
            left.reverse()
        while left:
            yield left.pop()


def _chunks_of(table: Table[Value]) -> List[Dict[int, Value]]:
    if isinstance(table, ChunkedTable):
        return table.chunks()
    assert isinstance(table, dict)
    return [table]


class ChunkedTable(MutableMapping[int, Value], Generic[Value]):
    """A table with many entries, in the order of the ranges of its chunks, and in each as they were added.

    Parameters:
        entries: of the dict that it continues.
    """

    __slots__ = ("_chunks", "_firsts", "_count")

    def __init__(self, entries: Dict[int, Value]) -> None:
        self._chunks: List[Dict[int, Value]] = [entries]
        self._firsts: List[int] = [0]  # the least key of each chunk's range; that of the first has no end
        self._count = len(entries)
        while any(len(chunk) >= LARGE for chunk in self._chunks):
            self._divide(max(range(len(self._chunks)), key=lambda place: len(self._chunks[place])), None)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self._chunks)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, int) and key in self._chunks[bisect_right(self._firsts, key, 1) - 1]

    def __getitem__(self, key: int) -> Value:
        return self._chunks[bisect_right(self._firsts, key, 1) - 1][key]

    @overload
    def get(self, key: int) -> Optional[Value]: ...

    @overload
    def get(self, key: int, default: Union[Value, Default]) -> Union[Value, Default]: ...

    def get(self, key: int, default: Any = None) -> Any:
        """The value of a key, or the default if it has none."""
        return self._chunks[bisect_right(self._firsts, key, 1) - 1].get(key, default)

    def __setitem__(self, key: int, value: Value) -> None:
        place = bisect_right(self._firsts, key, 1) - 1
        chunk = self._chunks[place]
        before = len(chunk)
        chunk[key] = value
        if len(chunk) > before:
            self._count += 1
            if before + 1 >= LARGE:
                self._divide(place, key)

    def __delitem__(self, key: int) -> None:
        place = bisect_right(self._firsts, key, 1) - 1
        del self._chunks[place][key]
        self._forget_one(place)

    def pop(self, key: int, *default: Any) -> Any:
        """Remove a key; returns its value, or the default if it has none. Raises KeyError if it has neither."""
        place = bisect_right(self._firsts, key, 1) - 1
        before = len(self._chunks[place])
        value = self._chunks[place].pop(key, *default)
        if len(self._chunks[place]) < before:
            self._forget_one(place)
        return value

    def popitem(self) -> Tuple[int, Value]:
        """Remove and return the entry of the last chunk that was added last. Raises KeyError if there is none."""
        for place in range(len(self._chunks) - 1, -1, -1):
            if self._chunks[place]:
                entry = self._chunks[place].popitem()
                self._forget_one(place)
                return entry
        raise KeyError("the table is empty")

    def values(self) -> ValuesView[Value]:
        return _Values(self, self._chunks)

    def items(self) -> ItemsView[int, Value]:
        return _Items(self, self._chunks)

    def chunks(self) -> List[Dict[int, Value]]:
        """The chunks that there are now, to be read."""
        return list(self._chunks)

    def _forget_one(self, place: int) -> None:
        """An entry of a chunk is gone; an empty chunk goes with it, and its range becomes that of the one before."""
        self._count -= 1
        if not self._chunks[place] and len(self._chunks) > 1:
            del self._chunks[place], self._firsts[place]

    def _divide(self, place: int, newest: Optional[int]) -> None:
        """A chunk is full: its larger keys get a chunk of their own.

        Parameters:
            newest: the key that was added last. If it is the largest, most of the next ones are likely to be larger.
        """
        chunk = self._chunks[place]
        keys = sorted(chunk)
        first = len(keys) * (7 if newest == keys[-1] else 4) // 8
        self._firsts.insert(place + 1, keys[first])
        self._chunks.insert(place + 1, {key: chunk.pop(key) for key in keys[first:]})

    def check_invariants(self) -> None:
        """Check that each key is in the chunk of its range."""
        assert self._count == sum(map(len, self._chunks)) and len(self._firsts) == len(self._chunks) > 0
        for place, chunk in enumerate(self._chunks):
            assert len(chunk) < LARGE and (chunk or not place), f"chunk {place} has {len(chunk)} entries"
            assert all(bisect_right(self._firsts, key, 1) - 1 == place for key in chunk)
        assert all(first < after for first, after in zip(self._firsts[1:], self._firsts[2:]))


class _Values(ValuesView[Value]):
    def __init__(self, table: ChunkedTable[Value], chunks: List[Dict[int, Value]]) -> None:
        super().__init__(table)
        self._chunks = chunks

    def __iter__(self) -> Iterator[Value]:
        return chain.from_iterable(map(dict.values, self._chunks))


class _Items(ItemsView[int, Value]):
    def __init__(self, table: ChunkedTable[Value], chunks: List[Dict[int, Value]]) -> None:
        super().__init__(table)
        self._chunks = chunks

    def __iter__(self) -> Iterator[Tuple[int, Value]]:
        return chain.from_iterable(map(dict.items, self._chunks))
