"""What users read is plain English: texts in the code, which errors, logs and help are made of, and the pages in docs.

Rules: a text is a string of three words or more that is not a docstring; comments and docstrings are not read here.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Iterator, Tuple

import pytest

TREE = Path(__file__).resolve().parents[2]

SOURCES = (
    "sdk/src",
    "protocol-spec/python/src",
    "appliance/src/scaler_appliance/core",
    "appliance/src/scaler_appliance/shell",
)
PAGES = ("README.md", "docs/quickstart.md", "docs/client.md", "docs/cluster.md")

RIDDLES = re.compile(
    r"\bnobody\b|(?<!there )\b(?:is|are) none\b|\bno amount\b|\blooks? on\b|\bstands? still\b|\bhis\b|\bhim\b"
    r"|\bdeceives\b|\bits like\b|\banew\b|\bworker (?:hosts?|processes)\b",
    re.IGNORECASE,
)


def texts_in(source: str) -> Iterator[Tuple[int, str]]:
    """The texts of a module, with their lines."""
    tree = ast.parse(source)
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements:
            if len(node.value.split()) > 2:
                yield node.lineno, node.value


@pytest.mark.parametrize("folder", SOURCES)
def test_texts_in_the_code_are_plain(folder: str) -> None:
    found = [
        f"{path.relative_to(TREE)}:{line}: {text!r}"
        for path in (TREE / folder).rglob("*.py")
        for line, text in texts_in(path.read_text(encoding="utf-8"))
        if RIDDLES.search(text)
    ]
    assert found == []


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_plain(page: str) -> None:
    lines = (TREE / page).read_text(encoding="utf-8").splitlines()
    assert [f"{page}:{number}: {line}" for number, line in enumerate(lines, 1) if RIDDLES.search(line)] == []


def test_a_riddle_is_found() -> None:
    source = '"""nobody reads this here"""\nraise ValueError(f"{x}: the option is none")\nlog("while nobody is here")'
    assert sorted(line for line, text in texts_in(source) if RIDDLES.search(text)) == [2, 3]
