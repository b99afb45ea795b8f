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
    check(implementation, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", [pytest.param("worker-sdk", marks=pytest.mark.exhaustive), "worker-cpp"])
def test_a_worker_conforms_with_a_key_too(name: str, tmp_path: Path) -> None:
    """In every case, and not only in those about keys. A fraction of the randomised repetitions is enough for that."""
    (implementation,) = [each for each in implementations() if each.name == name]
    check(implementation, tmp_path, "--with-keys", "--effort", "0.1")


def check(implementation: Implementation, folder: Path, *options: str) -> None:
    if implementation.missing:
        pytest.skip(f"there is no {implementation.missing[0]}")
    report = folder / "report.json"
    usual = ["--jobs", "3", "--seed", "1", "--quiet", "--strict", "--json", str(report)]
    assert implementation.run(*usual, *options) == 0
