"""How long tasks of each function take, learnt from the measurements of processors.

Rules:
- A moving mean per function, weighted by how many tasks a measurement covers: one long task among thousands
  of short ones counts, but does not decide for long.
- Bounded: the function used longest ago is forgotten first.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Optional

MAXIMUM_FUNCTIONS = 4096
_MINIMUM_WEIGHT = 0.3
_HALF_WEIGHT_TASKS = 10


class TaskDurations:
    """Mean duration in seconds by function id."""

    def __init__(self) -> None:
        self._means: OrderedDict[int, float] = OrderedDict()

    def add(self, function: int, busy_seconds: float, count: int) -> None:
        """`count` tasks of a function kept a processor busy for this long."""
        measured = busy_seconds / count
        mean = self._means.get(function)
        if mean is None:
            if len(self._means) >= MAXIMUM_FUNCTIONS:
                self._means.popitem(last=False)
            self._means[function] = measured
        else:
            weight = max(_MINIMUM_WEIGHT, count / (count + _HALF_WEIGHT_TASKS))
            self._means[function] = mean + weight * (measured - mean)
            self._means.move_to_end(function)

    def mean_seconds(self, function: int) -> Optional[float]:
        """The mean, or None when nothing is known."""
        return self._means.get(function)

    def clear(self) -> None:
        self._means.clear()
