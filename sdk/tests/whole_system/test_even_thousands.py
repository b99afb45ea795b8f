"""Whole systems, seed by seed: the even ones of the first thousands, so that two processes share the work."""

from __future__ import annotations

import pytest
from whole_system.seed_runs import check_seeds

THOUSANDS = range(0, 4, 2)
SEEDS_OF_A_TEST = 250
TIME_LIMIT_SECONDS = 600  # a seed that fails is cut to its shortest form, which takes minutes


@pytest.mark.slow
@pytest.mark.timeout(TIME_LIMIT_SECONDS)
@pytest.mark.parametrize("thousand", THOUSANDS)
@pytest.mark.parametrize("first", range(0, 1000, SEEDS_OF_A_TEST))
def test_every_future_ends_once_and_as_it_may(thousand: int, first: int) -> None:
    check_seeds(1000 * thousand + first, SEEDS_OF_A_TEST)
