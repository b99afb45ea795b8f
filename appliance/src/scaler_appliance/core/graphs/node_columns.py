"""What a graph keeps of some of its nodes only: values, and lines of nodes that wait for something.

Rules:
- No operation takes longer the more nodes there are. A dict or list of a million entries would be moved as a whole when
  it grows, looked through as a whole by CPython's garbage collector, and freed as a whole, 10 to 40 ms each.
"""

from __future__ import annotations

from array import array
from collections import deque
from itertools import islice
from typing import Deque, Generic, Iterable, Iterator, List, Optional, Sequence, Tuple, TypeVar

CHUNK_BITS = 12
CHUNK = 1 << CHUNK_BITS
_MASK = CHUNK - 1

Value = TypeVar("Value")


class NodeValues(Generic[Value]):
    """Values of nodes, in chunks that exist when one of their nodes has a value.

    Parameters:
        size: of the graph, in nodes.
    """

    __slots__ = ("_size", "_chunks", "_count")

    def __init__(self, size: int) -> None:
        self._size = size
        self._chunks: List[Optional[List[Optional[Value]]]] = [None] * -(-size // CHUNK)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def get(self, node: int) -> Optional[Value]:
        chunk = self._chunks[node >> CHUNK_BITS]
        return None if chunk is None else chunk[node & _MASK]

    def __getitem__(self, node: int) -> Value:
        value = self.get(node)
        assert value is not None, f"node {node} has no value"
        return value

    def __contains__(self, node: int) -> bool:
        return self.get(node) is not None

    def __setitem__(self, node: int, value: Value) -> None:
        chunk = self._chunks[node >> CHUNK_BITS] or self._new_chunk(node >> CHUNK_BITS)
        self._count += chunk[node & _MASK] is None
        chunk[node & _MASK] = value

    def pop(self, node: int) -> Optional[Value]:
        """Remove and return the value of a node, if it has one."""
        chunk = self._chunks[node >> CHUNK_BITS]
        value = None if chunk is None else chunk[node & _MASK]
        if chunk is not None and value is not None:
            chunk[node & _MASK] = None
            self._count -= 1
        return value

    def set_run(self, start: int, stop: int, value: Value) -> None:
        """Give nodes [start, stop), none of which has a value, the same one."""
        for number, low, high in _chunks_of(start, stop):
            chunk = self._chunks[number] or self._new_chunk(number)
            chunk[low:high] = [value] * (high - low)
        self._count += stop - start

    def clear_run(self, start: int, stop: int) -> None:
        """Remove the values of nodes [start, stop), all of which have one."""
        for number, low, high in _chunks_of(start, stop):
            chunk = self._chunks[number]
            assert chunk is not None
            chunk[low:high] = [None] * (high - low)
        self._count -= stop - start

    def values(self) -> Iterator[Tuple[int, Value]]:
        """Nodes, ascending, and their values."""
        for number, chunk in enumerate(self._chunks):
            for node, value in enumerate(chunk or (), number << CHUNK_BITS):
                if value is not None:
                    yield node, value

    def pop_some(self, limit: int) -> List[Tuple[int, Value]]:
        """Forget the last nodes, at most `limit`, for good; returns those with a value."""
        while self._chunks and not self._chunks[-1]:
            self._chunks.pop()
        chunk = self._chunks[-1] if self._chunks else None
        if not chunk:
            return []
        low = max(0, len(chunk) - limit)
        first = ((len(self._chunks) - 1) << CHUNK_BITS) + low
        found = [(node, value) for node, value in enumerate(chunk[low:], first) if value is not None]
        del chunk[low:]
        self._count -= len(found)
        return found

    def free(self) -> Iterator[None]:
        """Free the memory in parts."""
        self._count = 0
        while self._chunks:
            if self._chunks.pop():
                yield

    def _new_chunk(self, number: int) -> List[Optional[Value]]:
        chunk: List[Optional[Value]] = [None] * min(CHUNK, self._size - (number << CHUNK_BITS))
        self._chunks[number] = chunk
        return chunk


def _chunks_of(start: int, stop: int) -> Iterator[Tuple[int, int, int]]:
    """The chunks that have nodes [start, stop): their number, and which of their entries these are."""
    while start < stop:
        end = min(stop, (start | _MASK) + 1)
        yield start >> CHUNK_BITS, start & _MASK, ((end - 1) & _MASK) + 1
        start = end


class NodeQueue:
    """Nodes in line."""

    __slots__ = ("_chunks", "_first", "_count")

    def __init__(self) -> None:
        self._chunks: Deque[array[int]] = deque()
        self._first = 0  # in the first chunk
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        for number, chunk in enumerate(self._chunks):
            yield from islice(chunk, 0 if number else self._first, None)

    def append(self, node: int) -> None:
        chunks = self._chunks
        if not chunks or len(chunks[-1]) >= CHUNK:
            chunks.append(array("I"))
        chunks[-1].append(node)
        self._count += 1

    def extend(self, nodes: Iterable[int]) -> None:
        added = array("I", nodes)
        chunks = self._chunks
        if chunks and len(chunks[-1]) + len(added) <= CHUNK:
            chunks[-1].extend(added)
        elif added:
            chunks.append(added)
        self._count += len(added)

    def front(self, limit: int) -> Sequence[int]:
        """Some of the first nodes, at most `limit`; none only if there are none."""
        return self._chunks[0][self._first : self._first + limit] if self._chunks else ()

    def drop(self, count: int) -> None:
        """Remove the first nodes, of those that `front` returned last."""
        self._count -= count
        self._first += count
        if self._chunks and self._first >= len(self._chunks[0]):
            self._chunks.popleft()
            self._first = 0

    def free(self) -> Iterator[None]:
        """Free the memory in parts."""
        self._count = self._first = 0
        while self._chunks:
            self._chunks.pop()
            yield
