"""docs/architecture.md leads to code that exists: every path on the page, and the function named after it.

Rules:
- Each folder with modules of its own is in the module map.
- A hop is written `[name](../path.py)`, then a class, a function or a method in backticks.
- A life has at most MOST_HOPS hops, so that a reader can follow it in one sitting.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Iterator, List, Set

import pytest

TREE = Path(__file__).resolve().parents[2]
PAGE = TREE / "docs/architecture.md"
HOP = re.compile(r"\[[^\]]+\]\((?P<path>\.\./[^)]+\.py)\)\s+`(?P<name>[\w.]+)`")
LIFE = re.compile(r"^## (The life of [^\n]*)\n(.*?)(?=^## )", re.MULTILINE | re.DOTALL)
MOST_HOPS = 20

PACKAGES = ("sdk/src/scaler", "appliance/src/scaler_appliance", "protocol-spec/python/src/scaler_protocol")

TEXT = PAGE.read_text(encoding="utf-8")
HOPS = [(match["path"], match["name"]) for match in HOP.finditer(TEXT)]
LIVES = LIFE.findall(TEXT)


def names_in(source: str) -> Set[str]:
    """The classes, functions and methods of a module, methods as `Class.method`."""
    return set(_names(ast.parse(source).body, ""))


def _names(body: List[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + node.name
            if isinstance(node, ast.ClassDef):
                yield from _names(node.body, f"{prefix}{node.name}.")


@pytest.mark.parametrize(("path", "name"), sorted(set(HOPS)), ids=lambda part: part.rpartition("/")[2])
def test_every_named_function_exists(path: str, name: str) -> None:
    module = (PAGE.parent / path).resolve()
    assert module.exists(), f"{PAGE.name} leads to {path}, which does not exist"
    assert name in names_in(module.read_text(encoding="utf-8")), f"{path} has no {name}"


@pytest.mark.parametrize("package", PACKAGES)
def test_the_module_map_has_every_folder_once(package: str) -> None:
    folders = {path.parent for path in (TREE / package).rglob("*.py") if path.name != "__init__.py"}
    listed = [(PAGE.parent / path).resolve() for path in re.findall(r"\[[\w/]+/\]\((\.\./[^)]+)\) ?[|,]", TEXT)]
    listed = [path for path in listed if TREE / package in path.parents]

    assert sorted(listed) == sorted(folders - {TREE / package})


def test_every_link_to_a_module_names_a_function() -> None:
    assert len(re.findall(r"\]\(\.\./[^)]+\.py\)", TEXT)) == len(HOPS)


def test_the_lives_of_a_task_a_node_an_object_a_link_and_a_worker_are_short() -> None:
    assert [title for title, _ in LIVES] == [
        "The life of a task",
        "The life of a graph node",
        "The life of a large object",
        "The life of a broken link",
        "The life of a dead worker",
    ]
    for title, text in LIVES:
        steps = re.findall(r"^\d+\. ", text, re.MULTILINE)
        assert 2 <= len(steps) <= MOST_HOPS, f"{title} has {len(steps)} hops"


def test_a_missing_name_is_found() -> None:
    assert names_in("class A:\n    def b(self): ...\n\ndef c(): ...\n") == {"A", "A.b", "c"}
