"""How long the tasks of each function take.

Rules:
- The duration of a function that is an object ends with the object. Functions that workers serve by name have no end:
  the durations of those that were measured last are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Optional

MAXIMUM_DURATIONS = 10_000
"""Of all functions. The one that was measured longest ago is forgotten first, and measured again when it is used."""


class FunctionDurations:
    """Mean durations of tasks in microseconds, by function: the id of its object, or its name."""

    def __init__(self) -> None:
        self._durations: OrderedDict[object, float] = OrderedDict()  # measured longest ago first

    def get(self, function: object, default: Optional[float] = None) -> Optional[float]:
        return self._durations.get(function, default)

    def set(self, function: object, microseconds: float) -> None:
        """Tasks of a function were measured."""
        self._durations[function] = microseconds
        self._durations.move_to_end(function)
        if len(self._durations) > MAXIMUM_DURATIONS:
            self._durations.popitem(last=False)

    def forget(self, function: object) -> None:
        """A function does not exist any more."""
        self._durations.pop(function, None)

    def __len__(self) -> int:
        return len(self._durations)
