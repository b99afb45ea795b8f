"""The last hour of a cluster's figures, for charts: every second of the last minutes, then every ten seconds.

Rules:
- Rings of a fixed size, allocated once.
- NaN is a gap, during which nothing was received.
"""

from __future__ import annotations

import math
from array import array
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

COLUMNS = (
    "finished",
    "failed",
    "waiting",
    "running",
    "workers",
    "slots",
    "scheduler_cpu",
    "scheduler_rss",
    "workers_rss",
    "object_bytes",
)
FINE_SAMPLES = 300
COARSE_SAMPLES = 365
FINE_A_COARSE = 10

Series = Dict[str, List[Optional[float]]]


class Ring:
    """The last `size` rows of numbers; each row has a number of its own, counted from 0."""

    def __init__(self, size: int, columns: int) -> None:
        self._size = size
        self._columns = [array("d", bytes(8 * size)) for _ in range(columns)]
        self.count = 0  # of rows ever

    @property
    def bytes(self) -> int:
        return sum(column.itemsize * len(column) for column in self._columns)

    @property
    def first(self) -> int:
        """The number of the oldest row that is kept."""
        return max(0, self.count - self._size)

    def append(self, row: Sequence[float]) -> None:
        place = self.count % self._size
        for column, value in zip(self._columns, row):
            column[place] = value
        self.count += 1

    def rows(self, start: int) -> Iterator[Tuple[float, ...]]:
        """From the row with this number on, or from the oldest."""
        for number in range(max(start, self.first), self.count):
            place = number % self._size
            yield tuple(column[place] for column in self._columns)


class FigureHistory:
    """The figures in `COLUMNS`, over time."""

    def __init__(self) -> None:
        self._fine = Ring(FINE_SAMPLES, 1 + len(COLUMNS))
        self._coarse = Ring(COARSE_SAMPLES, 1 + len(COLUMNS))
        self._gathered: List[Sequence[float]] = []
        self._is_gap = True

    @property
    def bytes(self) -> int:
        return self._fine.bytes + self._coarse.bytes

    @property
    def count(self) -> int:
        """How many samples there have been: the cursor of `since`."""
        return self._fine.count

    def append(self, time: float, figures: Sequence[float]) -> None:
        """A sample; `time` in unix seconds, `figures` in the order of COLUMNS."""
        self._is_gap = False
        row = (time, *figures)
        self._fine.append(row)
        self._gathered.append(row)
        if len(self._gathered) == FINE_A_COARSE:
            self._thin()

    def gap(self, time: float) -> None:
        """Add a gap, because nothing is known now. Consecutive gaps count as one."""
        if self._is_gap:
            return
        self._is_gap = True
        if self._gathered:
            self._thin()
        row = (time, *([math.nan] * len(COLUMNS)))
        self._fine.append(row)
        self._coarse.append(row)

    def _thin(self) -> None:
        rows, self._gathered = self._gathered, []
        self._coarse.append([sum(values) / len(rows) for values in zip(*rows)])

    def whole(self) -> Series:
        """All kept samples: old ones thinned out, the newest in full."""
        fine = list(self._fine.rows(0))
        oldest_fine = fine[0][0] if fine else math.inf
        return _series([row for row in self._coarse.rows(0) if row[0] < oldest_fine] + fine)

    def since(self, count: int) -> Optional[Series]:
        """Samples after the first `count`; None when some of them are no longer kept."""
        return _series(list(self._fine.rows(count))) if count >= self._fine.first else None


def _series(rows: Sequence[Sequence[float]]) -> Series:
    columns: List[Sequence[float]] = list(zip(*rows)) or [()] * (1 + len(COLUMNS))
    series: Series = {"time": [round(time, 1) for time in columns[0]]}
    for name, values in zip(COLUMNS, columns[1:]):
        series[name] = [None if math.isnan(value) else _short(value) for value in values]
    return series


def _short(value: float) -> float:
    """Rounded to the digits that a chart can show."""
    return int(value) if value.is_integer() or value >= 10_000 else round(value, 3)
