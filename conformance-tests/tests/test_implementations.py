"""The implementations of this tree conform."""

from __future__ import annotations

from pathlib import Path
from typing import List

import pytest
from implementations import Implementation, implementations

EXHAUSTIVE = {"scheduler-pypy"}  # the same scheduler as on CPython


def _each() -> List[object]:
    return [
        pytest.param(each, id=each.name, marks=[pytest.mark.exhaustive] if each.name in EXHAUSTIVE else [])
        for each in implementations()
    ]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("implementation", _each())
def test_it_conforms(implementation: Implementation, tmp_path: Path) -> None:
    if implementation.missing:
        pytest.skip(f"there is no {implementation.missing[0]}")
    report = tmp_path / "report.json"

    assert implementation.run("--jobs", "3", "--seed", "1", "--quiet", "--strict", "--json", str(report)) == 0
