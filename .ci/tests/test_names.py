"""One name means one thing: no two modules and no two classes of the packages share a name, but for those below.

Rules:
- A module is compared by its last name, a package by its own. A package may hold a module of its own name, which is
  its main one.
- Names that begin with an underscore are known within their module only, and are not compared.
- The conformance tests import none of the other packages and play all roles themselves. Their names are compared with
  each other only.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Dict, Iterator, List, Tuple

import pytest

TREE = Path(__file__).resolve().parents[2]
PRODUCT = ("protocol-spec/python/src", "appliance/src", "sdk/src")
CONFORMANCE = ("conformance-tests/src",)

MODULES = {
    "__init__": "each package has one",
    "__main__": "each program that Python can run as a module has one",
    "core": "each role has one",
    "shell": "each role has one",
    "effects": "what each core asks its shell to do",
    "errors": "what a package raises",
    "programs": "what all programs share, and the programs themselves",
    "replay": "the command, and what it does",
}
CLASSES = {
    "Send": "an effect of each core",
    "SendChunk": "an effect of each core",
    "Log": "an effect of each core",
    "Client": "for threads, and in scaler.aio for coroutines",
    "Failure": "the name of the class that a conformance function raises is part of the protocol",
    "ActorInfo": "the message, and what users see of it",
    "WorkerInfo": "the message, and what users see of it",
    "Processor": "the class, and what programs for earlier generations find under its name",
}
CONFORMANCE_MODULES = {
    "__init__": "each package has one",
    **dict.fromkeys(("client", "scheduler", "worker"), "the bench of a role, and the cases for it"),
    **dict.fromkeys(("codec", "reports"), "the cases of a subject, and the package that does it"),
}
CONFORMANCE_CLASSES = {
    "RoleBench": "each module of benches has one, which the role selects",
    "Outcome": "what the other side learned about a task, in the session of each role",
    "Confirmation": "the answer to a cancel, in the session of each role",
}
CASES = "scaler_conformance/cases/"


def names_of_modules(roots: Tuple[str, ...]) -> Dict[str, List[str]]:
    """Where modules and packages are, by name. The cases of a subject have one name for all roles, and count once."""
    found: Dict[str, List[str]] = {}
    for root in roots:
        for path in sorted(Path(TREE, root).rglob("*.py")):
            is_main_of_package = path.stem == path.parent.name
            is_case_of_a_second_role = CASES in path.as_posix() and any(
                CASES in each for each in found.get(path.stem, ())
            )
            if not is_main_of_package and not is_case_of_a_second_role:
                found.setdefault(path.stem, []).append(path.relative_to(TREE).as_posix())
            if path.stem == "__init__":
                found.setdefault(path.parent.name, []).append(path.parent.relative_to(TREE).as_posix())
    return found


def names_of_classes(roots: Tuple[str, ...]) -> Dict[str, List[str]]:
    """Where classes are, by name."""
    found: Dict[str, List[str]] = {}
    for root in roots:
        for path in sorted(Path(TREE, root).rglob("*.py")):
            for name, line in classes_in(path.read_text(encoding="utf-8")):
                found.setdefault(name, []).append(f"{path.relative_to(TREE).as_posix()}:{line}")
    return found


def classes_in(text: str) -> Iterator[Tuple[str, int]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, node.lineno


@pytest.mark.parametrize(("roots", "allowed"), [(PRODUCT, MODULES), (CONFORMANCE, CONFORMANCE_MODULES)])
def test_no_two_modules_share_a_name(roots: Tuple[str, ...], allowed: Dict[str, str]) -> None:
    shared = {name: where for name, where in names_of_modules(roots).items() if len(where) > 1 and name not in allowed}
    assert not shared, "rename them, so that each name says whose it is"


@pytest.mark.parametrize(("roots", "allowed"), [(PRODUCT, CLASSES), (CONFORMANCE, CONFORMANCE_CLASSES)])
def test_no_two_classes_share_a_name(roots: Tuple[str, ...], allowed: Dict[str, str]) -> None:
    shared = {name: where for name, where in names_of_classes(roots).items() if len(where) > 1 and name not in allowed}
    assert not shared, "rename them, so that each name says whose it is"
