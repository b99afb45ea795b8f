"""The cases for clients: the reference passes all of them, and each mutant is caught by its own case."""

from __future__ import annotations

from typing import Callable, Sequence

import pytest
from mutants.matrix import run_matrix
from mutants.record import catchers


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_mutant_is_caught_by_its_case(tell: Callable[[Sequence[str]], None]) -> None:
    matrix = run_matrix("client", catchers("client"))

    tell([matrix.headline(), *matrix.complaints])
    assert matrix.complaints == []
