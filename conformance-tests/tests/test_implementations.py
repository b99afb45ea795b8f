"""The implementations of this tree conform."""

from __future__ import annotations

from pathlib import Path

import pytest
from implementations import Implementation, implementations


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("implementation", implementations(), ids=lambda each: each.name)
def test_it_conforms(implementation: Implementation, tmp_path: Path) -> None:
    if implementation.missing:
        pytest.skip(f"there is no {implementation.missing[0]}")
    report = tmp_path / "report.json"

    assert implementation.run("--jobs", "3", "--seed", "1", "--quiet", "--strict", "--json", str(report)) == 0
