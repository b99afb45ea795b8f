"""The references pass all cases, and each mutant is caught by its own case.

The record, which `test_record.py` checks, tells the same of all cases and mutants; here they are run again.
"""

from __future__ import annotations

from typing import Callable, Sequence

import pytest
from mutants.matrix import run_matrix
from mutants.record import ROLES, catchers


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("whole_areas", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("role", ROLES)
def test_every_mutant_is_caught_by_its_case(
    role: str, whole_areas: bool, tell: Callable[[Sequence[str]], None]
) -> None:
    matrix = run_matrix(role, catchers(role), whole_areas=whole_areas)

    tell([matrix.headline(), *matrix.complaints])
    assert matrix.complaints == []
