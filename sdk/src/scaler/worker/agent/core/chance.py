"""What an agent leaves to chance; its shell provides it, or a test."""

from __future__ import annotations

from typing import Callable, Iterator, NamedTuple


class Chance(NamedTuple):
    """Parameters:
    random: a number from 0.0 to less than 1.0: see `PeerSession`.
    numbers: yields a new number for each object: see `object_numbers`.
    """

    random: Callable[[], float]
    numbers: Iterator[int]
