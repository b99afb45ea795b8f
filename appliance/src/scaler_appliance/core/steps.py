"""Reactions in parts, and how long a part is.

Rule: what grows with a message or with what a peer holds is done in steps; see `pending_work`.
"""

from __future__ import annotations

from array import array
from itertools import islice
from operator import lt
from typing import Generator, Iterator, Sequence, Tuple

from scaler_appliance.core.effects import PeerError
from scaler_appliance.core.tasks.batches import consecutive_run
from scaler_protocol import messages as m

Steps = Iterator[int]
"""A reaction in parts; each value is the amount of work since the one before, in units."""

COLUMN_ENTRIES_PER_UNIT = 16
"""Entries that are only read or copied, at the speed of C."""

PARTS_PER_CALL = 4


def parts(count: int, part: int) -> Iterator[Tuple[int, int]]:
    """[start, stop) of consecutive parts of a column."""
    for start in range(0, count, part):
        yield start, min(count, start + part)


def total_of(column: Sequence[int], part: int) -> Generator[int, None, int]:
    """The sum of a column."""
    total = 0
    for start, stop in parts(len(column), part * COLUMN_ENTRIES_PER_UNIT):
        total += sum(column[start:stop])
        yield (stop - start) // COLUMN_ENTRIES_PER_UNIT + 1
    return total


# SCL-SCH-003
def check_ascending(ids: array[int], last_id: int, name: str, part: int) -> Steps:
    """Raise PeerError unless the ids of a message called `name` ascend, from above `last_id` on."""
    is_ascending = ids[0] > last_id
    for start, stop in parts(len(ids), part * COLUMN_ENTRIES_PER_UNIT):
        own = ids[start : stop + 1]  # and the first of the next part
        is_ascending &= consecutive_run(own, 0, len(own)) == len(own) or all(map(lt, own, islice(own, 1, None)))
        yield (stop - start) // COLUMN_ENTRIES_PER_UNIT
    if not is_ascending:
        raise PeerError(m.RefusalReason.PROTOCOL_VIOLATION, f"{name}: ids must ascend within a session")
