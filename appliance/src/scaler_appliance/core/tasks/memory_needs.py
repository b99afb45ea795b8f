"""How much memory tasks may need, by what others of their function were seen to use, or by their limit.

    heartbeats ── a large process has grown while a task ran ──▶ see ──▶ of ◀── tasks that wait
                                         others have ended ──▶ on_ended: less

Rules:
- Until a task of a function has ended, the limit of its tasks counts; then what was seen, which may be nothing.
- The most that was seen counts, and less of it with each task that ends. So what all tasks need stays known, and one
  task in a thousand that needs more than the others does not make them wait for long.
- Only tasks that use much, for a second or longer, count. Those that are over before a heartbeat is sent are not seen.
"""

from __future__ import annotations

from scaler_appliance.core.tasks.batches import TaskBatch
from scaler_appliance.core.tasks.figures_by_function import FiguresByFunction

LARGE_BYTES = 256 * 1024 * 1024
LEAST_MICROSECONDS = 1e6
KEPT = 31 / 32
"""How much of what was seen counts after another task has ended: half of it after 22."""


class MemoryNeeds:
    """
    Parameters:
        durations: of tasks, in microseconds.

    Attributes:
        changes: large tasks that have ended, and other reasons to look for memory again.
    """

    def __init__(self, durations: FiguresByFunction) -> None:
        self.changes = 0
        self._durations = durations
        self._seen = FiguresByFunction()
        self._has_seen = False  # any: asked for each task

    def see(self, function: object, size: int) -> None:
        """A task of a function uses so many bytes."""
        if size >= LARGE_BYTES:
            self._seen.set(function, max(float(size), self._seen.get(function) or 0.0))
            self._has_seen = True

    def on_ended(self, batch: TaskBatch, count: int) -> bool:
        """So many tasks of a batch have ended, which `durations` does not know yet; returns whether they are large."""
        if not self.of(batch):
            return False
        self.changes += 1
        function = batch.function_key
        seen = self._seen.get(function)
        if seen is not None:
            seen *= KEPT**count
            if seen < LARGE_BYTES:
                self.forget(function)
            else:
                self._seen.set(function, seen)
        return True

    def forget(self, function: object) -> None:
        """A function does not exist any more."""
        if self._has_seen:
            self._seen.forget(function)
            self._has_seen = len(self._seen) > 0

    def of(self, batch: TaskBatch) -> float:
        """The bytes that a task of a batch may use; 0: it is not large."""
        limit = batch.options.memory_limit_bytes
        if limit < LARGE_BYTES and not self._has_seen:  # so it is nearly always
            return 0.0
        function = batch.function_key
        microseconds = self._durations.get(function)
        if microseconds is None:
            return max(float(limit) if limit >= LARGE_BYTES else 0.0, self._seen.get(function) or 0.0)
        return (self._seen.get(function) or 0.0) if microseconds >= LEAST_MICROSECONDS else 0.0

    def __len__(self) -> int:
        """Of how many functions large tasks were seen."""
        return len(self._seen)
