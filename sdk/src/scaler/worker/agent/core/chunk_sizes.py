"""How many tasks a processor is given at a time.

Rule: enough that the round trip is negligible, and no more, because tasks at one processor cannot run on another.
"""

from __future__ import annotations

from typing import Optional

from scaler.worker.agent.core.task_queue import HeldTasks

CHUNK_SECONDS = 0.003
CALLS_SECONDS = 0.01
"""The same for calls of an actor, which run nowhere else, and of which no second chunk waits behind a first one."""

LONG_TASK_SECONDS = 0.005
"""Tasks whose mean duration is at least this go to processors one at a time."""

PIPELINE_TASK_SECONDS = 0.0005
"""Tasks shorter than this may wait at a processor behind others, which hides the round trip."""

WORTHWHILE_SECONDS = 0.0001
"""Less work than this is not distributed: waking another processor would cost more."""

SUSPICIOUS_ATTEMPTS = 2
"""Tasks that were lost this often run alone, which shows which one kills processors, and no other is lost with it."""

MAXIMUM_CHUNK_TASKS = 1000
MAXIMUM_CHUNK_BYTES = 1024 * 1024


def chunk_size(
    batch: HeldTasks, mean_seconds: Optional[float], waiting: int, slots: int, seconds: float = CHUNK_SECONDS
) -> int:
    """How many tasks of a batch to give to one processor.

    Parameters:
        mean_seconds: how long a task of this function takes; None while unknown.
        waiting: tasks in the worker's queue.
        slots: of the worker, among which they are shared.
        seconds: how long they should take together.
    """
    traits = batch.traits
    is_alone = traits.at_most_once or traits.attempt > SUSPICIOUS_ATTEMPTS
    if mean_seconds is None or mean_seconds >= LONG_TASK_SECONDS or is_alone or waiting == 1:
        return 1
    mean_seconds = max(mean_seconds, 1e-7)
    share = -(-waiting // slots)
    limit = min(MAXIMUM_CHUNK_TASKS, len(batch), max(share, int(WORTHWHILE_SECONDS / mean_seconds)))
    if len(batch.payload) > MAXIMUM_CHUNK_BYTES:
        limit = min(limit, MAXIMUM_CHUNK_BYTES * len(batch) // len(batch.payload))
    return max(1, min(limit, int(seconds / mean_seconds)))
