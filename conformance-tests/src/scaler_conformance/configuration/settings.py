"""What a run of the suite is told: how long to wait, how much to do, what the implementation does not have."""

from __future__ import annotations

from typing import FrozenSet, NamedTuple

DEADLINE_SECONDS = 10.0


class Settings(NamedTuple):
    """For all cases of one run.

    Parameters:
        time_scale: a slow implementation gets more time: every wait's one deadline is multiplied by this.
        effort: the share of their repetitions that randomised cases do, 1 for all.
        seed: of all randomness.
        missing: features that the implementation is known not to have.
    """

    time_scale: float = 1.0
    effort: float = 1.0
    seed: int = 0
    missing: FrozenSet[str] = frozenset()

    @property
    def deadline_seconds(self) -> float:
        """How long an event is waited for. No wait of the suite has another limit."""
        return DEADLINE_SECONDS * self.time_scale
