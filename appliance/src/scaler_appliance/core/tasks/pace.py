"""How long tasks take at a worker, compared with others.

    a batch of tasks ──▶ what each report of them takes, and what those before took ──▶ ratios ─┬▶ Pace of the worker
                                                                                                └▶ of its function there

Rules:
- Only tasks of one batch are compared: their client has submitted them at once. Those of one function that come later
  may take much longer at any worker, and who got the first of them is not slow.
- What counts is the mean of the last reports, less what chance may have done to it: tasks of one batch may differ a
  lot, too, and a worker that got the long ones is not slow.
- A worker may be quick at some functions only: one with a GPU, or with a slow disk. What is seen of a function counts
  as far as it contradicts the pace of the worker, which is that of all functions together.
- It goes in steps, and changes by most of a step at least: so workers of one kind have the same pace.
- Work of less than LEAST_MICROSECONDS says little about a worker, and is not measured.
- Of the functions of a worker, those that were measured last are known.
"""

from __future__ import annotations

from collections import OrderedDict
from math import log, sqrt
from typing import Dict

STEP = 1.25
LEAST_MICROSECONDS = 1000.0
FUNCTIONS_OF_A_WORKER = 16
_LEAST_REPORTS = 4
_NEWEST_WEIGHT = 0.05  # of the newest report, once there were as many as that takes
_OF_MANY_REPORTS = _NEWEST_WEIGHT / (2.0 - _NEWEST_WEIGHT)  # of the variance: that of such a mean
_MOST_BY_CHANCE = 2.5  # standard errors of the mean
_FEW_REPORTS = 4.0
"""Of one function, so many reports count for half: a worker may have many functions, and each may differ by chance."""
_MOST_RATIO = 16.0  # that is believed: how much slower, or quicker, a worker is
_WITHIN_STEP = STEP**0.75


class Pace:
    """How long some tasks take at a worker.

    Parameters:
        few_reports: how many say only half of what they would if there were many.

    Attributes:
        factor: so many times as long as elsewhere.
    """

    __slots__ = ("factor", "_mean", "_variance", "_reports", "_few_reports")

    def __init__(self, expected: float = 1.0, few_reports: float = 0.0) -> None:
        self.factor = expected
        self._few_reports = few_reports
        self._mean, self._variance = 1.0, 0.0
        self._reports = 0

    def measure(self, ratio: float) -> None:
        """Tasks took so many times as long as tasks of their function take on average."""
        ratio = min(max(ratio, 1.0 / _MOST_RATIO), _MOST_RATIO)
        self._reports += 1
        weight = max(_NEWEST_WEIGHT, 1.0 / self._reports)
        difference = ratio - self._mean
        self._mean += weight * difference
        self._variance = (1.0 - weight) * (self._variance + weight * difference * difference)

    def settle(self, expected: float = 1.0) -> bool:
        """Set the factor to what is expected, as far as the reports do not contradict it; returns whether it has
        changed."""
        before = self.factor
        if self._reports < _LEAST_REPORTS:
            self.factor = expected
            return self.factor != before
        errors = _MOST_BY_CHANCE * (1.0 + self._few_reports / self._reports)
        by_chance = errors * sqrt(self._variance * max(1.0 / self._reports, _OF_MANY_REPORTS))
        known = min(max(expected, self._mean - by_chance), self._mean + by_chance)
        if not (before < known * _WITHIN_STEP and known < before * _WITHIN_STEP):
            self.factor = STEP ** round(log(known, STEP))
        return self.factor != before


class WorkerPace:
    """How long tasks take at a worker.

    Attributes:
        factor: so many times as long as elsewhere; 1.0 until it is known to differ.
        exceptions: the factors of functions for which another one is known.
    """

    __slots__ = ("factor", "exceptions", "_of_all", "_by_function")

    def __init__(self) -> None:
        self.factor = 1.0
        self.exceptions: Dict[object, float] = {}
        self._of_all = Pace()
        self._by_function: OrderedDict[object, Pace] = OrderedDict()  # measured longest ago first

    def of(self, function: object) -> float:
        """How many times as long tasks of a function take there."""
        return self.exceptions.get(function, self.factor) if self.exceptions else self.factor

    def measure(self, function: object, ratio: float) -> bool:
        """Tasks took so many times as long as tasks of their function take on average; returns whether that changes
        any factor."""
        known = self._by_function
        pace = known.pop(function, None) or Pace(self.factor, _FEW_REPORTS)
        known[function] = pace
        pace.measure(ratio)
        self._of_all.measure(ratio)
        is_changed = pace.settle(self.factor)
        if len(known) > FUNCTIONS_OF_A_WORKER:
            is_changed |= known.popitem(last=False)[0] in self.exceptions
        if self._of_all.settle():
            self.factor, is_changed = self._of_all.factor, True
            for each in known.values():
                each.settle(self.factor)
        if is_changed:
            self.exceptions = {each: pace.factor for each, pace in known.items() if pace.factor != self.factor}
        return is_changed


class Typical:
    """How long tasks of a batch take at a worker whose pace is 1.0."""

    __slots__ = ("microseconds", "_reports")

    def __init__(self) -> None:
        self.microseconds = 0.0
        self._reports = 0

    def compare(self, microseconds: float, factor: float) -> float:
        """How many times as long tasks took as those before them, 0.0 if there were none; they count from then on."""
        self._reports += 1
        before, own = self.microseconds, microseconds / factor
        self.microseconds += max(_NEWEST_WEIGHT, 1.0 / self._reports) * (own - before)
        return microseconds / before if before > 0.0 else 0.0
