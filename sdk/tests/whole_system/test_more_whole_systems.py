"""The second half of the seeds, in a file of its own: files are what runs side by side."""

from __future__ import annotations

import pytest
from whole_system.seed_runs import SEEDS_OF_A_FILE, SEEDS_OF_A_TEST, check_seeds

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("first", range(SEEDS_OF_A_FILE, 2 * SEEDS_OF_A_FILE, SEEDS_OF_A_TEST))
def test_every_future_ends_once_and_as_it_may(first: int) -> None:
    check_seeds(first, SEEDS_OF_A_TEST)
