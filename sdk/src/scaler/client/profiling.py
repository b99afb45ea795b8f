"""The worker's measurements of one task.

Rules: names and units are those of both earlier generations, and they mean the same figures.
"""

from __future__ import annotations

from typing import NamedTuple


class ProfileResult(NamedTuple):
    """The profile of one task, from the last time that it ran.

    Measured from before its arguments were loaded until its result was serialised.
    """

    duration_us: int
    """Wall time, in microseconds."""

    peak_memory: int
    """The peak of the worker process's resident memory above its value before the task, in bytes."""

    cpu_time_us: int
    """CPU time of the worker process, all its threads together, in microseconds."""

    @property
    def duration_s(self) -> float:
        """Wall time, in seconds."""
        return self.duration_us / 1e6

    @property
    def memory_peak(self) -> int:
        """`peak_memory` by its later name, in bytes."""
        return self.peak_memory

    @property
    def cpu_time_s(self) -> float:
        """CPU time, in seconds."""
        return self.cpu_time_us / 1e6
