"""Every seed is a history of a whole system, with the real cores of client, scheduler and agent.

`make check` runs the first seeds, `make test` all that are here, and `make simulate` any number.
A seed that fails is cut to its shortest form, and reported as a command that repeats it.
"""

from __future__ import annotations

from typing import List

import pytest
from whole_system.bugs.planted_bugs import PLANTED_BUGS, planted
from whole_system.seed_runs import SEEDS_OF_A_TEST, check_seeds, run_plans
from whole_system.shrink import shrink
from whole_system.simulated_world import FAULTS, FEATURES, Plan, World
from whole_system.system import simulate
from whole_system.themes import CHOICES, LATER_THEMES, THEMES

SEEDS_OF_A_CHECK, SEEDS = 300, 10_000

SOON_CAUGHT = {
    "a large result that was fetched is never deleted": 10,
    "a cancel that was refused ends the future": 40,
    "a processor that dies with a task keeps its slot": 10,
    "a large result is removed after its first chunk": 12,
    "an actor that has lost its processor begins again": 100,
    "a worker runs the tasks of any tenant": 40,
    "the quota of tasks at workers is not looked at": 40,
    "a unit with tasks goes": 10,
    "units on their way are missing": 10,
}
"""Planted bugs, and how many seeds are certainly enough to catch each."""


def _parts() -> List[object]:
    return [
        pytest.param(first, marks=[pytest.mark.slow] * (first >= SEEDS_OF_A_CHECK))
        for first in range(0, SEEDS, SEEDS_OF_A_TEST)
    ]


@pytest.mark.parametrize("first", _parts())
def test_every_future_ends_once_and_as_it_may(first: int) -> None:
    check_seeds(first, SEEDS_OF_A_TEST)


def test_a_seed_repeats_its_history() -> None:
    assert simulate(Plan(3)) == simulate(Plan(3))


def test_what_is_switched_off_does_not_happen_and_the_rest_is_drawn_as_before() -> None:
    whole, part = World(Plan(5)), World(Plan(5, frozenset({"break", "graphs"})))
    assert part.rates == {**whole.rates, "break": 0.0, "graphs": 0.0}
    assert len(part.rates) == len(FAULTS) + len(FEATURES)


@pytest.mark.parametrize("name", [*THEMES, *LATER_THEMES])
def test_a_theme_names_what_there_is(name: str) -> None:
    theme = {**THEMES, **LATER_THEMES}[name]
    assert theme.rates.keys() <= FAULTS.keys() | FEATURES.keys()
    assert theme.choices.keys() <= CHOICES


def test_a_failing_plan_is_cut_to_what_its_failure_needs() -> None:
    def fails(plan: Plan) -> bool:
        return not plan.off & {"restart", "at_most_once"} and (plan.peers or 3) >= 2

    shrunk = shrink(Plan(8), fails)
    assert fails(shrunk) and shrunk.peers == 2 and shrunk.safety_seconds == 0.5
    assert not shrunk.off & {"restart", "at_most_once"}


@pytest.mark.parametrize("name", PLANTED_BUGS)
def test_a_bug_can_still_be_planted(name: str) -> None:
    with planted(PLANTED_BUGS[name]):
        pass


@pytest.mark.parametrize("name", SOON_CAUGHT)
def test_a_planted_bug_is_caught(name: str) -> None:
    with planted(PLANTED_BUGS[name]):
        assert run_plans(map(Plan, range(SOON_CAUGHT[name])), most_failures=1).failures
