"""Every seed is a history of a whole system, with the real cores of client, scheduler and agent.

`make simulate SEEDS=100000 FIRST=1000` runs more of them; a seed that fails is cut to its shortest form there.
"""

from __future__ import annotations

import pytest
from whole_system.shrink import shrink
from whole_system.simulated_world import FAULTS, FEATURES, Plan, World
from whole_system.system import simulate

SEEDS = 100
SEEDS_OF_A_TEST = 20

ONCE_FAILED = {
    0: "a session was called at the time that it had announced, again and again, and did nothing",
    90: "a large result that was lost before its dependant had it was never let go",
    388: "tasks whose results were still being fetched were sent again all at once, more than the scheduler takes",
}


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_OF_A_TEST))
def test_every_future_ends_once_and_as_it_may(first: int) -> None:
    outcomes = 0
    for seed in range(first, first + SEEDS_OF_A_TEST):
        try:
            outcomes += simulate(Plan(seed)).outcomes
        except Exception as error:
            alone = f"python -m whole_system {Plan(seed).arguments()}"
            raise AssertionError(f"seed {seed} failed; to shrink it, in sdk/tests: {alone}: {error!r}") from error
    assert outcomes > 20 * SEEDS_OF_A_TEST, "a simulation in which little happens proves little"


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_a_seed_that_failed_before_does_not_fail_again(seed: int) -> None:
    simulate(Plan(seed))


def test_a_seed_repeats_its_history() -> None:
    assert simulate(Plan(3)) == simulate(Plan(3))


def test_what_is_switched_off_does_not_happen_and_the_rest_is_drawn_as_before() -> None:
    whole, part = World(Plan(5)), World(Plan(5, frozenset({"break", "graphs"})))
    assert part.rates == {**whole.rates, "break": 0.0, "graphs": 0.0}
    assert len(part.rates) == len(FAULTS) + len(FEATURES)


def test_a_failing_plan_is_cut_to_what_its_failure_needs() -> None:
    def fails(plan: Plan) -> bool:
        return not plan.off & {"restart", "at_most_once"} and (plan.peers or 3) >= 2

    shrunk = shrink(Plan(8), fails)
    assert fails(shrunk) and shrunk.peers == 2 and shrunk.safety_seconds == 0.5
    assert not shrunk.off & {"restart", "at_most_once"}
