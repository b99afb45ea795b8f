"""The tree stays readable: formal faults are failing tests.

Rule: each check names the file and the line.
"""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path
from typing import Iterator, List

import pytest

TREE = Path(__file__).resolve().parents[2]

MOST_LINES = 550
MOST_BYTES = 256 * 1024  # of a file that git keeps
SOURCE_FOLDERS = [
    "protocol-spec/python/src",
    "appliance/src",
    "sdk/src",
    "conformance-tests/src",
]
SKIPPED_FOLDERS = {"__pycache__", "build", "dist", "node_modules", "results"}
TEXT_SUFFIXES = {".c", ".capnp", ".md", ".nix", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml"}
TEXT_NAMES = {"Makefile", "run", "prepare", ".gitignore", "CHANGELOG", "LICENSE"}
UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")) + r")\b")
GENERATED = re.compile(r"\bgenerated from\b.*\bdo not edit\b", re.IGNORECASE | re.DOTALL)


def files(folder: Path = TREE) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_symlink():
            continue
        if path.is_dir():
            hidden = path.name.startswith(".") and path.name not in (".ci", ".github")
            if not hidden and path.name not in SKIPPED_FOLDERS and not path.name.endswith(".egg-info"):
                yield from files(path)
        elif path.suffix in TEXT_SUFFIXES or path.name in TEXT_NAMES:
            yield path


def python_files() -> Iterator[Path]:
    return (path for path in files() if path.suffix == ".py")


def is_generated(text: str) -> bool:
    return bool(GENERATED.search(text[:1000]))


def place(path: Path, line: int) -> str:
    return f"{path.relative_to(TREE)}:{line}"


def test_python_modules_stay_short() -> None:
    too_long = []
    for path in python_files():
        text = path.read_text(encoding="utf-8")
        lines = len(text.splitlines())
        if lines > MOST_LINES and not is_generated(text):
            too_long.append(f"{path.relative_to(TREE)} has {lines} lines, more than {MOST_LINES}")
    assert too_long == []


def test_git_keeps_no_large_files() -> None:
    """Such as what a program leaves that crashes, where the system keeps the memory of those."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=TREE, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip(f"the tree is not git's: {listed.stderr.strip()}")
    kept = [TREE / name for name in listed.stdout.split("\0") if name]
    assert [str(path) for path in kept if path.is_file() and path.stat().st_size > MOST_BYTES] == []


def test_nothing_is_left_for_later_in_a_comment() -> None:
    assert lines_matching(UNFINISHED) == []


def test_no_tabs() -> None:
    # Recipes of make need them.
    assert [found for found in lines_matching(re.compile("\t")) if "Makefile:" not in found] == []


def test_no_blanks_at_the_end_of_a_line() -> None:
    assert lines_matching(re.compile(r"[ \t]+$")) == []


def lines_matching(pattern: re.Pattern[str]) -> List[str]:
    return [
        place(path, number)
        for path in files()
        if path.name != "LICENSE"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if pattern.search(line)
    ]


def test_every_module_opens_with_its_rules() -> None:
    undocumented = [
        place(path, 1)
        for path in python_files()
        if any(path.is_relative_to(TREE / folder) for folder in SOURCE_FOLDERS)
        and not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"), str(path)))
    ]
    assert undocumented == []


@pytest.mark.parametrize("folder", SOURCE_FOLDERS)
def test_every_package_tells_type_checkers_that_it_is_typed(folder: str) -> None:
    packages = [path.parent for path in (TREE / folder).glob("*/__init__.py")]
    assert packages, f"{folder} holds no package"
    assert [package for package in packages if not (package / "py.typed").exists()] == []


@pytest.mark.parametrize("folder", SOURCE_FOLDERS)
def test_every_distribution_carries_the_licence(folder: str) -> None:
    assert (TREE / folder).parent.joinpath("LICENSE").read_bytes() == (TREE / "LICENSE").read_bytes()


def test_all_python_is_type_checked() -> None:
    found = re.search(r"^TYPED_SCRIPTS := (.*)$", (TREE / "Makefile").read_text(), re.MULTILINE)
    assert found is not None
    typed = [TREE / name for name in [*SOURCE_FOLDERS, *found[1].split()]]
    unchecked = [path for path in python_files() if not any(each == path or each in path.parents for each in typed)]
    assert [str(path.relative_to(TREE)) for path in unchecked] == []


def test_what_type_checkers_ignore_outside_of_packages_has_a_reason() -> None:
    ignores = re.compile(r"# type: " + r"ignore(?!\[[a-z, -]+\]  # (?!noqa))")
    found = [
        f"{path.relative_to(TREE)}:{number}"
        for path in python_files()
        if "src" not in path.relative_to(TREE).parts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if ignores.search(line)
    ]
    assert found == [], "say why, behind the code"


def test_helpers_of_tests_have_names_of_their_own() -> None:
    # One run of pytest imports them all by their bare names, so one would hide the other.
    folders = [*((TREE / folder).parent / "tests" for folder in SOURCE_FOLDERS), TREE / "benchmarks"]
    helpers = [
        path
        for folder in folders
        if folder.exists()
        for path in files(folder)
        if path.suffix == ".py"
        and not path.name.startswith("test_")
        and path.name not in ("conftest.py", "__init__.py", "__main__.py")
    ]
    names = [path.name for path in helpers]
    assert [str(path.relative_to(TREE)) for path in helpers if names.count(path.name) > 1] == []
