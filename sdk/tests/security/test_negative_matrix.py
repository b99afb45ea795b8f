"""The negative matrix has no holes: there is a test, or a reason, for each attack by each role."""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import FrozenSet

import pytest
from security.negative_matrix import ATTACKS, FIRST_ATTACKS, LIARS, MATRIX, NothingToTest, Tests

ROOT = Path(__file__).resolve().parents[3]


@functools.cache
def functions_of(path: str) -> FrozenSet[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_each_attack_is_tried_by_each_role() -> None:
    assert tuple(MATRIX) == ATTACKS
    assert {attack: tuple(row) for attack, row in MATRIX.items()} == dict.fromkeys(ATTACKS, LIARS)


@pytest.mark.parametrize("liar", LIARS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_cell_names_tests_that_there_are(attack: str, liar: str) -> None:
    cell = MATRIX[attack][liar]
    if isinstance(cell, NothingToTest):
        assert cell.why
        return
    check_tests(cell)


@pytest.mark.parametrize("attack", FIRST_ATTACKS)
def test_what_was_found_before_there_were_keys_is_tried_again(attack: str) -> None:
    check_tests(FIRST_ATTACKS[attack])


def check_tests(tests: Tests) -> None:
    assert tests
    for test in tests:
        path, _, function = test.partition("::")
        assert function in functions_of(path), f"there is no {test}"
