"""Histograms of durations: bucket b counts tasks that took from 2^(b/4) to 2^((b+1)/4) microseconds."""

from __future__ import annotations

from typing import Mapping

BUCKETS_AN_OCTAVE = 4


def bound_microseconds(bucket: float) -> float:
    """The lower bound of a bucket, or of a part of one."""
    return float(2.0 ** (bucket / BUCKETS_AN_OCTAVE))


def quantile_microseconds(counts: Mapping[int, int], share: float) -> float:
    """The duration that `share` of the tasks did not exceed, between 0 and 1; 0 when there are none.

    Within a bucket, tasks are assumed to be spread evenly over the logarithm: the error is below a tenth.
    """
    total = sum(counts.values())
    if not total:
        return 0.0
    below = share * total
    for bucket in sorted(counts):
        count = counts[bucket]
        if count and below <= count:
            return bound_microseconds(bucket + below / count)
        below -= count
    return bound_microseconds(max(counts) + 1)
