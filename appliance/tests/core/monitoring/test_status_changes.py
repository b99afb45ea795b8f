"""Functions are found by client and name, however many there are."""

from __future__ import annotations

import gc
from array import array
from typing import List

from table_sizes import SIZES, use_chunks_of

from scaler_appliance.core.large_tables import LARGE
from scaler_appliance.core.monitoring.status_changes import MAXIMUM_IDLE_FUNCTIONS, StatusChanges
from scaler_appliance.core.tasks.batches import TaskBatch
from scaler_protocol import messages as m


def batch_of(number: int) -> TaskBatch:
    """A batch of one task of an own function."""
    message = m.Task(ids=array("Q", [number]), payload_sizes=array("I", [0]), function=number)
    return TaskBatch(1, message, b"")


def largest_dict_in(root: object) -> int:
    """How many entries the largest dict has that an object refers to, directly or not."""
    most, seen, waiting = 0, {id(root)}, [root]
    while waiting:
        each = waiting.pop()
        most = max(most, len(each)) if isinstance(each, dict) else most
        for other in gc.get_referents(each):
            if id(other) not in seen and not isinstance(other, type):
                seen.add(id(other))
                waiting.append(other)
    return most


def test_no_dict_of_very_many_functions_is_large() -> None:
    use_chunks_of(SIZES[-1])
    changes = StatusChanges(large_bytes=1)
    batches: List[TaskBatch] = []
    for number in range(1, 3 * LARGE):
        batches.append(batch_of(number))
        changes.begin(batches[-1], f"function {number}")
    assert len(changes.function_counters()) == len(batches)
    assert largest_dict_in(changes) <= LARGE

    every = changes.function_counters()
    for counters in every:
        counters.unfinished, counters.was_used = 0, False
        changes.list_idle(counters)
    changes.check_invariants()
    assert changes.function_counters() == every[-MAXIMUM_IDLE_FUNCTIONS:], "those that were used last"
