"""What was measured of the tasks of each function.

Rules:
- The figure of a function that is an object ends with the object. Functions that workers serve by name have no end: the
  figures of those that were measured last are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Optional

MAXIMUM_FUNCTIONS = 10_000
"""The one that was measured longest ago is forgotten first, and measured again when it is used."""


class FiguresByFunction:
    """A figure of tasks, such as their duration in microseconds, by function: the id of its object, or its name."""

    def __init__(self) -> None:
        self._figures: OrderedDict[object, float] = OrderedDict()  # measured longest ago first

    def get(self, function: object, default: Optional[float] = None) -> Optional[float]:
        return self._figures.get(function, default)

    def set(self, function: object, figure: float) -> None:
        """Tasks of a function were measured."""
        self._figures[function] = figure
        self._figures.move_to_end(function)
        if len(self._figures) > MAXIMUM_FUNCTIONS:
            self._figures.popitem(last=False)

    def forget(self, function: object) -> None:
        """A function does not exist any more."""
        self._figures.pop(function, None)

    def __len__(self) -> int:
        return len(self._figures)
