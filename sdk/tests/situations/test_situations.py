"""Everyday situations give in ours what docs/situations.md says, and in the standard library's executor likewise."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Dict, List

import pytest
from run_situations import ABSENT, REFUSED, SAME, WRONG, cell_of, outcomes_in, start_engine
from situations import SITUATIONS

PAGE = Path(__file__).parents[3] / "docs/situations.md"
pytestmark = pytest.mark.timeout(600)  # 60 situations take as long as other programs let them
ENGINES = ("Scaler", "ProcessPoolExecutor")


@pytest.fixture(scope="module")
def processes() -> Dict[str, subprocess.Popen[str]]:
    """Both at the same time."""
    return {name: start_engine(name) for name in ENGINES}


def rows() -> Dict[str, List[str]]:
    """The cells of the page's tables, by situation."""
    lines = re.findall(r"^\| ([^*|-].*?) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: cells.split(" | ") for name, cells in lines}


def test_the_page_lists_every_situation_and_ours_is_right_in_each() -> None:
    cells = {name: cells[0] for name, cells in rows().items()}
    assert cells == {each.name: f"`{each.ours}`" if each.ours else SAME for each in SITUATIONS}
    assert len({each.name for each in SITUATIONS}) == len(SITUATIONS) >= 60


@pytest.mark.parametrize("engine", ENGINES)
def test_what_the_page_says_is_what_happens(processes: Dict[str, subprocess.Popen[str]], engine: str) -> None:
    said = rows()
    column = ENGINES.index(engine)
    outcomes = outcomes_in(processes[engine])
    for situation in SITUATIONS:
        outcome = outcomes[situation.name]
        if outcome.kind == ABSENT:
            assert situation.needs == outcome.text
        elif engine == "Scaler":
            assert cell_of(outcome) == said[situation.name][column], outcome
            if outcome.kind == REFUSED or outcome.text:
                assert len(outcome.message) > 10, "an error says what failed"
        elif outcome.kind == WRONG:
            assert said[situation.name][column].startswith("**wrong**"), outcome
