"""Requirements, cases and mutants match: each id that they mention exists, and each MUST has a case."""

from __future__ import annotations

import inspect
from typing import Set

import pytest
from mutants import mutants_of
from mutants.matrix import load

from scaler_conformance.cases import cases_of
from scaler_conformance.judging.register import Register

ROLES = ("worker", "scheduler", "client")
MOST_LINES = 40


def duties(role: str) -> Set[str]:
    """Stable MUSTs of a role that can be seen from outside."""
    return {
        id_
        for id_, each in Register.load().of_role(role).items()
        if each.level.startswith("MUST") and each.status == "stable" and not each.untestable
    }


@pytest.mark.parametrize("role", ROLES)
def test_cases_speak_of_requirements_that_there_are(role: str) -> None:
    register = Register.load()

    unknown = {f"{each.id}: {id_}" for each in cases_of(role) for id_ in each.covers if id_ not in register}
    assert unknown == set()
    others = {f"{each.id}: {id_}" for each in cases_of(role) for id_ in each.covers if role not in register[id_].roles}
    assert others == set()


@pytest.mark.parametrize("role", ROLES)
def test_cases_are_short(role: str) -> None:
    lengths = {each.id: len(inspect.getsource(each.function).splitlines()) for each in cases_of(role)}

    assert {id_: length for id_, length in lengths.items() if length > MOST_LINES} == {}


@pytest.mark.parametrize("role", ROLES)
def test_each_duty_has_a_case(role: str) -> None:
    covered = {id_ for each in cases_of(role) for id_ in each.covers}

    assert duties(role) - covered == set()


@pytest.mark.parametrize("role", ROLES)
def test_each_duty_has_a_mutant(role: str) -> None:
    load(role)
    broken = {each.breaks for each in mutants_of(role)}

    assert duties(role) - broken == set()
