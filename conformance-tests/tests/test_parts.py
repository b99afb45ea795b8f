"""Parts of the suite import only the parts below them, and no part has too many modules."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Dict, Iterator, Set

import pytest

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("configuration", "judging", "codec", "playing", "benches", "cases", "reports", "running")
"""From the lowest to the highest."""

MAY_IMPORT: Dict[str, Set[str]] = {part: set(PARTS[:index]) for index, part in enumerate(PARTS)}
MOST_MODULES = 20


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_imports_only_those_below_it(part: str) -> None:
    folder = ROOT / "src/scaler_conformance" / part
    upwards = {
        f"{path.name}: {name}"
        for path in folder.rglob("*.py")
        for name in imported(path)
        if name.startswith("scaler_conformance.") and name.split(".")[1] not in {part, *MAY_IMPORT[part]}
    }

    assert upwards == set()


def test_all_parts_are_known() -> None:
    folders = {path.parent.name for path in (ROOT / "src/scaler_conformance").glob("*/__init__.py")}

    assert folders == set(PARTS)
    assert {path.name for path in (ROOT / "src/scaler_conformance").glob("*.py")} == {"__init__.py", "__main__.py"}


def test_mutants_of_one_role_use_nothing_of_another() -> None:
    roles = {"client", "worker", "scheduler"}
    across = {
        f"{path.relative_to(ROOT)}: {name}"
        for role in roles
        for path in (ROOT / "mutants" / role).glob("*.py")
        for name in imported(path)
        if any(name.startswith(f"mutants.{other}.") for other in roles - {role})
    }

    assert across == set()


@pytest.mark.parametrize("folder", ["src/scaler_conformance", "mutants"])
def test_no_folder_has_too_many_modules(folder: str) -> None:
    counts = {
        str(path.parent.relative_to(ROOT)): len(list(path.parent.glob("*.py")))
        for path in (ROOT / folder).rglob("__init__.py")
    }

    assert {name: count for name, count in counts.items() if count > MOST_MODULES} == {}
