"""The record is up to date, and each case has a mutant that no other case catches."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutants import mutants_of
from mutants.matrix import load
from mutants.record import ROLES, _fingerprint, caught_by_one, left_over, missing, read, write

from scaler_conformance.cases import cases_of

ADVICE = "run `make mutants`, and commit conformance-tests/mutants/record.json"


@pytest.mark.parametrize("role", ROLES)
def test_the_record_is_up_to_date(role: str) -> None:
    lines = read()[role]

    assert [(row.mutant, list(row.cases)[:3]) for row in missing(role, lines)] == [], ADVICE
    assert left_over(role, lines) == set(), ADVICE


@pytest.mark.parametrize("role", ROLES)
def test_each_case_has_a_mutant_that_it_alone_catches(role: str) -> None:
    alone = caught_by_one(read()[role])

    assert [each.id for each in cases_of(role) if each.id not in alone] == []


@pytest.mark.parametrize("role", ROLES)
def test_each_mutant_is_caught_by_its_own_case(role: str) -> None:
    load(role)
    lines = read()[role]

    assert [each.name for each in mutants_of(role) if each.caught_by not in lines[each.name].caught_by] == []


def test_only_what_has_changed_is_run_again(tmp_path: Path) -> None:
    lines = read()["worker"]
    first, second, *_ = sorted(lines)
    case_id = cases_of("worker")[3].id
    line = lines[first]
    lines[first] = line._replace(against={**line.against, case_id: "of yesterday"})
    lines[second] = lines[second]._replace(source="of yesterday")
    write({"worker": lines}, tmp_path / "record.json", is_partial=True)

    rows = {row.mutant: row.cases for row in missing("worker", read(tmp_path / "record.json")["worker"])}

    assert rows == {first: [case_id], second: [each.id for each in cases_of("worker")]}


def test_the_layout_of_sources_does_not_matter() -> None:
    assert _fingerprint("def a(b,\n      c): pass") == _fingerprint("def a(b, c):\n    pass")
    assert _fingerprint("def a(b): pass") != _fingerprint("def a(c): pass")
