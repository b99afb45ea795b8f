"""The graph of a shuffle, for any engine that takes such graphs."""

from __future__ import annotations

import operator
from typing import Any

PARTS = 16
PAGE_BYTES = 4096


def split(size: int, row: int) -> list[Any]:
    """A part, divided into a block for each other one."""
    import numpy

    return [numpy.full(size, row + column, dtype=numpy.uint8) for column in range(PARTS)]


def together(*blocks: Any) -> int:
    """What a part gets; it looks at a byte of each page."""
    return sum(int(each[::PAGE_BYTES].sum()) for each in blocks)


def graph_of(size: int) -> dict[str, Any]:
    """Parts, their blocks, and sums that need a block from each part."""
    rows = range(PARTS)
    graph: dict[str, Any] = {f"part {row}": (split, size, row) for row in rows}
    for row in rows:
        graph.update({f"{row} {column}": (operator.getitem, f"part {row}", column) for column in rows})
    for column in rows:
        graph[f"sum {column}"] = (together, *(f"{row} {column}" for row in rows))
    return graph


def expected(size: int) -> list[int]:
    """The sums."""
    pages = len(range(0, size, PAGE_BYTES))
    return [sum(row + column for row in range(PARTS)) * pages for column in range(PARTS)]
