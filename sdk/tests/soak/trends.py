"""Whether a figure stays flat: least-squares slopes of samples, after a time to warm up.

What is allowed: ALLOWED_BYTES, because allocators keep what a burst has used and caches fill once; more in the first
minutes, in which one burst of large arguments on a busy machine is a part of the slope; and ALLOWED_BYTES_PER_HOUR,
which is less than a leak of 100 bytes a task costs at a hundred tasks a second (36 MB an hour).
"""

from __future__ import annotations

import math
from typing import List, NamedTuple, Optional, Sequence, Tuple

WARM_UP_SECONDS = 60.0
WARM_UP_PART = 1 / 3  # of a series, if that is more
LEAST_SECONDS = 45.0  # after the warm-up; less says nothing
LEAST_SAMPLES = 10
ALLOWED_BYTES = 24 << 20
FIRST_SECONDS, ALLOWED_BYTES_AT_FIRST = 180.0, 96 << 20
ALLOWED_BYTES_PER_HOUR = 24 << 20


class Trend(NamedTuple):
    """A straight line through samples."""

    seconds: float
    bytes_per_hour: float
    error_bytes_per_hour: float  # the standard error of the slope
    level_bytes: float  # the line's mean

    @property
    def growth_bytes(self) -> float:
        return self.bytes_per_hour * self.seconds / 3600

    def is_flat(self) -> bool:
        """Whether the growth that is certain (two standard errors less than the slope) is within what is allowed."""
        certain = (self.bytes_per_hour - 2 * self.error_bytes_per_hour) * self.seconds / 3600
        allowed_bytes = ALLOWED_BYTES if self.seconds > FIRST_SECONDS else ALLOWED_BYTES_AT_FIRST
        return certain <= allowed_bytes + ALLOWED_BYTES_PER_HOUR * self.seconds / 3600


def trend_of(samples: Sequence[Tuple[float, float]]) -> Optional[Trend]:
    """The trend after the warm-up; None if what is left is too short to say anything.

    Parameters:
        samples: times in seconds, and bytes.
    """
    if not samples:
        return None
    life_seconds = samples[-1][0] - samples[0][0]
    since = samples[0][0] + max(WARM_UP_SECONDS, WARM_UP_PART * life_seconds)
    kept: List[Tuple[float, float]] = [sample for sample in samples if sample[0] >= since]
    if len(kept) < LEAST_SAMPLES or kept[-1][0] - kept[0][0] < LEAST_SECONDS:
        return None
    count = len(kept)
    mean_time = sum(time for time, _ in kept) / count
    mean = sum(value for _, value in kept) / count
    spread = sum((time - mean_time) ** 2 for time, _ in kept)
    slope = sum((time - mean_time) * (value - mean) for time, value in kept) / spread
    residue = sum((value - mean - slope * (time - mean_time)) ** 2 for time, value in kept)
    error = math.sqrt(residue / (count - 2) / spread)
    return Trend(kept[-1][0] - kept[0][0], slope * 3600, error * 3600, mean)
