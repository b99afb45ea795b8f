"""The specification says each thing once, and text, register, tables and code agree."""

from __future__ import annotations

import re
from typing import Dict, List

import pytest

pytest.importorskip("tomllib", reason="Python before 3.11 cannot read TOML")

import render
import requirements as requirements_tool
import specification as spec

REGISTER = spec.requirements()
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")
KEYWORDS = re.compile(r"\b(MUST|SHOULD|MAY)\b")


@pytest.mark.parametrize("requirement", REGISTER.values(), ids=lambda each: each.id)
def test_a_requirement_is_well_formed(requirement: spec.Requirement) -> None:
    assert re.fullmatch(f"SCL-({'|'.join(spec.AREAS)})-[0-9]{{3}}", requirement.id)
    assert requirement.level in spec.LEVELS
    assert requirement.roles and set(requirement.roles) <= set(spec.ROLES)
    assert requirement.status in spec.STATUSES
    assert re.fullmatch(r"\d+\.\d+", requirement.since)
    assert requirement.text.endswith(".") and requirement.text[0].isupper() and "\n" not in requirement.text
    keywords = set(KEYWORDS.findall(requirement.text))
    assert requirement.level in keywords if requirement.level != "INFO" else not keywords
    assert not (requirement.untestable and requirement.level != "MUST")


def test_no_sentence_is_there_twice() -> None:
    texts = [requirement.text for requirement in REGISTER.values()]
    assert len(set(texts)) == len(texts)


def test_each_requirement_is_shown_once_in_its_section() -> None:
    shown: Dict[str, List[str]] = {}
    for page in spec.pages():
        for each in spec.shown_on(page):
            shown.setdefault(each.id, []).append(each.section)
    assert shown == {requirement.id: [requirement.section] for requirement in REGISTER.values()}


def test_each_id_on_a_page_is_in_the_register() -> None:
    examples = {"SCL-WRK-017"}  # conventions.md
    for page in spec.pages():
        assert spec.ids_in(page.read_text(encoding="utf-8")) <= set(REGISTER) | examples, page.name


def test_each_id_in_code_cases_and_mutants_is_in_the_register() -> None:
    for named in (spec.code_ids(), spec.covered("cases"), spec.covered("mutants")):
        assert {each: places for each, places in named.items() if each not in REGISTER} == {}


def test_code_names_every_duty() -> None:
    assert requirements_tool.gaps(spec.code_ids(), REGISTER) == []


def test_pages_are_up_to_date() -> None:
    assert render.out_of_date() == [], "run protocol-spec/tools/render.py --write"


def test_the_first_page_leads_to_all_others() -> None:
    first = next(page for page in spec.pages() if page.name == "README.md")
    linked = {path for path, _ in LINK.findall(first.read_text(encoding="utf-8"))}
    assert {page.name for page in spec.pages()} - {first.name} <= linked


def test_links_lead_somewhere() -> None:
    broken = []
    for page in spec.pages():
        for target, fragment in LINK.findall(page.read_text(encoding="utf-8")):
            path = (page.parent / target) if target else page
            if not path.exists():
                broken.append(f"{page.name}: {target}")
            elif fragment and path.suffix == ".md" and fragment not in anchors(path.read_text(encoding="utf-8")):
                broken.append(f"{page.name}: {target}#{fragment}")
    assert broken == []


def anchors(text: str) -> List[str]:
    return [spec.anchor(match[1]) for line in text.splitlines() if (match := spec.HEADING.match(line))]


@pytest.mark.parametrize("machine", spec.machines(), ids=lambda each: each.name)
def test_a_state_table_is_total(machine: spec.Machine) -> None:
    assert set(machine.transitions) == set(machine.states)
    for state, row in machine.transitions.items():
        assert set(row) == set(machine.events), state
        for event, target in row.items():
            assert target in machine.states or re.fullmatch(r"(ignore|fault): .+", target), f"{state}.{event}"
    assert set(machine.initial) | set(machine.final) <= set(machine.states)
    for place in machine.replies:
        state, event = place.split(".")
        assert event in machine.transitions[state]
    for state in machine.final:
        assert all(target == state or target not in machine.states for target in machine.transitions[state].values())


def test_every_message_has_its_row() -> None:
    from scaler_protocol import messages as m

    text = (spec.FOLDER / "messages.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| (\w+) \| ", text, re.MULTILINE))
    assert {member.__name__ for member in m.MEMBERS} - rows == {"GraphTaskResult"}


def test_every_kind_of_failure_and_refusal_has_its_row() -> None:
    from scaler_protocol import messages as m

    for page, members in (("errors.md", m.FailureKind), ("session.md", m.RefusalReason)):
        rows = re.findall(r"^\| `(\w+)` \|", (spec.FOLDER / page).read_text(encoding="utf-8"), re.MULTILINE)
        assert {member.name for member in members} <= {re.sub("([A-Z])", r"_\1", row).upper() for row in rows}


def test_the_tool_counts_and_describes_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert requirements_tool.main([]) == 0
    assert f"{len(REGISTER)} requirements" in capsys.readouterr().out
    assert requirements_tool.main(["SCL-WRK-019"]) == 0
    assert "task_flow.py" in capsys.readouterr().out


def test_the_vectors_are_up_to_date() -> None:
    pytest.importorskip("capnp", reason="pycapnp is not installed", exc_type=ImportError)
    import make_vectors

    assert make_vectors.checked_in() == make_vectors.files(), "run protocol-spec/tools/make_vectors.py"
