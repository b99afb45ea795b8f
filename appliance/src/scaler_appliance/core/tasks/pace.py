"""How long tasks take at a worker, compared with others.

    a batch of tasks ──▶ what each report of them takes, and what those before took ──▶ ratios ──▶ Pace of the worker

Rules:
- Only tasks of one batch are compared: their client has submitted them at once. Those of one function that come later
  may take much longer at any worker, and who got the first of them is not slow.
- What counts is the mean of the last reports, less what chance may have done to it: tasks of one batch may differ a
  lot, too, and a worker that got the long ones is not slow.
- It goes in steps, and changes by most of a step at least: so workers of one kind have the same pace.
- Work of less than LEAST_MICROSECONDS says little about a worker, and is not measured.
"""

from __future__ import annotations

from math import log, sqrt

STEP = 1.25
LEAST_MICROSECONDS = 1000.0
_LEAST_REPORTS = 4
_NEWEST_WEIGHT = 0.05  # of the newest report, once there were as many as that takes
_OF_MANY_REPORTS = _NEWEST_WEIGHT / (2.0 - _NEWEST_WEIGHT)  # of the variance: that of such a mean
_MOST_BY_CHANCE = 2.5  # standard errors of the mean
_MOST_RATIO = 16.0  # that is believed: how much slower, or quicker, a worker is
_WITHIN_STEP = STEP**0.75


class Pace:
    """
    Attributes:
        factor: so many times as long tasks take there; 1.0 until it is known to differ.
    """

    __slots__ = ("factor", "_mean", "_variance", "_reports")

    def __init__(self) -> None:
        self.factor = 1.0
        self._mean, self._variance = 1.0, 0.0
        self._reports = 0

    def measure(self, ratio: float) -> bool:
        """Tasks took so many times as long as tasks of their function take on average; returns whether that changes
        the factor."""
        ratio = min(max(ratio, 1.0 / _MOST_RATIO), _MOST_RATIO)
        self._reports += 1
        weight = max(_NEWEST_WEIGHT, 1.0 / self._reports)
        difference = ratio - self._mean
        self._mean += weight * difference
        self._variance = (1.0 - weight) * (self._variance + weight * difference * difference)
        if self._reports < _LEAST_REPORTS:
            return False
        by_chance = _MOST_BY_CHANCE * sqrt(self._variance * max(1.0 / self._reports, _OF_MANY_REPORTS))
        at_least, at_most = self._mean - by_chance, self._mean + by_chance
        known = at_least if at_least > 1.0 else at_most if at_most < 1.0 else 1.0
        if self.factor < known * _WITHIN_STEP and known < self.factor * _WITHIN_STEP:
            return False
        before, self.factor = self.factor, STEP ** round(log(known, STEP))
        return self.factor != before


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
