"""The negative matrix has no holes: there is a test, or a reason, for each attack by each role, by another user."""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import FrozenSet, Mapping

import pytest
from security.negative_matrix import (
    ATTACKS,
    DATA_ADDRESS,
    DATA_ATTACKS,
    DATA_LIARS,
    FIRST_ATTACKS,
    LIARS,
    MATRIX,
    Cell,
    NothingToTest,
    Tests,
)

ROOT = Path(__file__).resolve().parents[3]


@functools.cache
def functions_of(path: str) -> Mapping[str, FrozenSet[str]]:
    """The functions of a module, and what each is given by pytest."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {each.name: frozenset(argument.arg for argument in each.args.args) for each in functions}


def has_another_user(test: str) -> bool:
    """Whether a test is given the attacker of another user, or a fixture of its module that is."""
    path, _, function = test.partition("::")
    functions = functions_of(path)
    given, asked = set(functions[function]), {function}
    while more := given & functions.keys() - asked:
        asked |= more
        given |= {argument for each in more for argument in functions[each]}
    return "another_user" in given


def test_each_attack_is_tried_by_each_role() -> None:
    assert tuple(MATRIX) == ATTACKS
    assert {attack: tuple(row) for attack, row in MATRIX.items()} == dict.fromkeys(ATTACKS, LIARS)

    assert tuple(DATA_ADDRESS) == DATA_ATTACKS
    assert {attack: tuple(row) for attack, row in DATA_ADDRESS.items()} == dict.fromkeys(DATA_ATTACKS, DATA_LIARS)


@pytest.mark.parametrize("liar", LIARS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_cell_names_tests_that_there_are(attack: str, liar: str) -> None:
    check_cell(MATRIX[attack][liar])


@pytest.mark.parametrize("liar", DATA_LIARS)
@pytest.mark.parametrize("attack", DATA_ATTACKS)
def test_a_cell_about_data_addresses_names_tests_that_there_are(attack: str, liar: str) -> None:
    check_cell(DATA_ADDRESS[attack][liar])


def check_cell(cell: Cell) -> None:
    if isinstance(cell, NothingToTest):
        assert cell.why
        return
    check_tests(cell)
    assert any(map(has_another_user, cell)), "none of its attackers is another user"


@pytest.mark.parametrize("attack", FIRST_ATTACKS)
def test_what_was_found_before_there_were_keys_is_tried_again(attack: str) -> None:
    check_tests(FIRST_ATTACKS[attack])


def check_tests(tests: Tests) -> None:
    assert tests
    for test in tests:
        path, _, function = test.partition("::")
        assert function in functions_of(path), f"there is no {test}"
