"""The settings of a run: how long to wait, how much to do, and which features the implementation lacks."""

from __future__ import annotations

from typing import FrozenSet, NamedTuple

DEADLINE_SECONDS = 10.0


class Settings(NamedTuple):
    """The settings for all cases of one run.

    Parameters:
        time_scale: multiplies the deadline of every wait, for slow implementations.
        effort: the fraction of their repetitions that randomised cases do; 1 for all.
        seed: of all randomness.
        missing: features that the implementation is known to lack.
        with_keys: every case of a worker is played with keys, for which it has a variant.
    """

    time_scale: float = 1.0
    effort: float = 1.0
    seed: int = 0
    missing: FrozenSet[str] = frozenset()
    with_keys: bool = False

    @property
    def deadline_seconds(self) -> float:
        """How long each wait of the suite may take."""
        return DEADLINE_SECONDS * self.time_scale
