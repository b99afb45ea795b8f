"""What users read is plain English: texts in the code, which errors, logs and help are made of, and the pages in docs.

Rules: a text is a string of three words or more that is not a docstring. Comments and docstrings are not read here,
except the docstrings of conformance cases: reports show them to authors of other implementations.
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
    "conformance-tests/src",
    "conformance-tests/implementations",
)
CASES = "conformance-tests/src/scaler_conformance/cases"
PAGES = [
    "README.md",
    *sorted(path.relative_to(TREE).as_posix() for path in (TREE / "docs").rglob("*.md") if path.parent.name != "adr"),
    "conformance-tests/README.md",
    "conformance-tests/client-adapter.md",
    "conformance-tests/implementations/cpp-worker/README.md",
]

RIDDLES = re.compile(
    r"\bnobody\b|(?<!there )\b(?:is|are) none\b|\bno amount\b|\blooks? on\b|\bstands? still\b|\bhis\b|\bhim\b"
    r"|\bdeceives\b|\bits like\b|\banew\b|\bworker (?:hosts?|processes)\b",
    re.IGNORECASE,
)


# What a reader of case descriptions stumbled over: "who does not read is cut", "what is no message is malformed".
TRANSLATED = re.compile(
    r"^(?:Who|What) (?:is|has|does|comes|was|sends|begins)\b|, and who\b|\bwho (?:does|is|has|lists|leaves)\b"
    r"|\b(?:is|are|was|were) no (?:message|outcome|loss|fault|feature|event|number)\b|\b(?:has|have|had) its say\b"
    r"|\b(?:says? goodbye|farewells?|unasked|unheard)\b|\bgoes on\b",
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


def docstrings_in(source: str) -> Iterator[str]:
    """The docstrings of a module and of its functions and classes."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            yield ast.get_docstring(node) or ""


@pytest.mark.parametrize("folder", SOURCES)
def test_texts_in_the_code_are_plain(folder: str) -> None:
    found = [
        f"{path.relative_to(TREE)}:{line}: {text!r}"
        for path in (TREE / folder).rglob("*.py")
        for line, text in texts_in(path.read_text(encoding="utf-8"))
        if RIDDLES.search(text)
    ]
    assert found == []


def test_expectations_of_conformance_cases_are_plain() -> None:
    found = [
        f"{path.relative_to(TREE)}: {docstring!r}"
        for path in (TREE / CASES).rglob("*.py")
        for docstring in docstrings_in(path.read_text(encoding="utf-8"))
        if RIDDLES.search(docstring) or TRANSLATED.search(docstring)
    ]
    assert found == []


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_plain(page: str) -> None:
    lines = (TREE / page).read_text(encoding="utf-8").splitlines()
    prose = [re.sub(r"`[^`]*`", "", line) for line in lines]
    assert [f"{page}:{number}: {line}" for number, line in enumerate(prose, 1) if RIDDLES.search(line)] == []


def test_a_riddle_is_found() -> None:
    source = '"""nobody reads this here"""\nraise ValueError(f"{x}: the option is none")\nlog("while nobody is here")'
    assert sorted(line for line, text in texts_in(source) if RIDDLES.search(text)) == [2, 3]


@pytest.mark.parametrize(
    "docstring",
    [
        "Who sends nothing is refused.",
        "Bytes that are no message are ignored.",
        "A DisconnectRequest goes out as a farewell.",
        "A worker that lists codecs gets these; who lists none gets any.",
    ],
)
def test_a_translated_phrase_is_found(docstring: str) -> None:
    (found,) = (each for each in docstrings_in(f'def a_case(bench):\n    """{docstring}"""') if each)
    assert TRANSLATED.search(found)
