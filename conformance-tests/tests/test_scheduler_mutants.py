"""The cases for schedulers: the reference passes all, and each mutant is caught by its own."""

from __future__ import annotations

import pytest
from mutants.matrix import run_matrix


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_mutant_is_caught_by_its_case(capsys: pytest.CaptureFixture[str]) -> None:
    matrix = run_matrix("scheduler", in_area=True)

    with capsys.disabled():
        print("", *matrix.lines(), sep="\n")
    assert matrix.complaints == []
