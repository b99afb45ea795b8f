"""Counters for monitors only: the tasks of each function, and the nodes of each graph.

Rules:
- Figures only: counting and publishing them is done elsewhere.
- An entry `is_dirty` when it is part of the next publication (see `changes`).
"""

from __future__ import annotations

from math import log2
from typing import Dict

from scaler_appliance.core.tasks.task_states import TaskState
from scaler_protocol.keys.allow_list import DEFAULT_TENANT

LAST_BUCKET = 255


class FunctionCounters:
    """The outcomes of the tasks of one function.

    Parameters:
        client: session; 0: a function addressed by name.
        tenant: whose tasks they are.
    """

    __slots__ = (
        "number", "name", "client", "tenant", "unfinished", "running", "ended", "busy_microseconds", "durations",
        "is_dirty", "is_listed", "was_used",
    )  # fmt: skip

    def __init__(self, number: int, name: str, client: int, tenant: str = DEFAULT_TENANT) -> None:
        self.number = number
        self.name = name
        self.client = client
        self.tenant = tenant
        self.unfinished = 0  # tasks in batches, without those that wait for others in their graph
        self.running = 0  # of these, at workers
        self.ended = [0] * len(TaskState)  # by state
        self.busy_microseconds = 0.0
        self.durations: Dict[int, int] = {}  # the number of tasks by duration bucket
        self.is_dirty = False
        self.is_listed = False  # in the list of idle functions, even if it has been used again
        self.was_used = False  # since then

    def measure(self, count: int, microseconds: float) -> None:
        """Count tasks that took this long on average."""
        self.busy_microseconds += microseconds * count
        bucket = bucket_of(microseconds)
        durations = self.durations
        durations[bucket] = durations.get(bucket, 0) + count


def bucket_of(microseconds: float) -> int:
    """The quarter octave of a duration."""
    if microseconds <= 1.0:
        return 0
    bucket = int(4 * log2(microseconds))
    return bucket if bucket < LAST_BUCKET else LAST_BUCKET


class GraphCounters:
    """The nodes of one graph by state; those that have neither ended nor wait for others are in batches."""

    __slots__ = (
        "number", "client", "tenant", "first_task", "nodes", "waiting", "running", "ended", "started", "is_dirty",
    )  # fmt: skip

    def __init__(
        self, number: int, client: int, first_task: int, nodes: int, started: float, tenant: str = DEFAULT_TENANT
    ) -> None:
        self.number = number
        self.client = client
        self.tenant = tenant
        self.first_task = first_task
        self.nodes = nodes
        self.waiting = nodes  # for predecessors
        self.running = 0  # at workers
        self.ended = [0] * len(TaskState)  # by state
        self.started = started  # by the scheduler's clock
        self.is_dirty = False

    @property
    def queued(self) -> int:
        return self.nodes - self.waiting - self.running - sum(self.ended)


NO_COUNTERS = FunctionCounters(0, "", 0)
"""For batches that the scheduler has not accepted yet."""
NO_GRAPH_COUNTERS = GraphCounters(0, 0, 0, 0, 0.0)
"""For graphs that the scheduler has not accepted yet."""
