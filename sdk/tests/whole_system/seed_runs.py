"""Runs seeds one after the other, in one process, and says which of them failed and how.

The garbage collector would spend a fifth of the time on going through what the modules themselves keep: that is frozen,
and garbage is collected after every few seeds.
"""

from __future__ import annotations

import gc
import traceback
from typing import Iterable, List, NamedTuple, Optional, Tuple

from whole_system.shrink import shrink
from whole_system.simulated_world import Plan
from whole_system.system import Summary, simulate

SEEDS_OF_A_TEST = 100
SEEDS_PER_COLLECTION = 20


class Runs(NamedTuple):
    """What came of some plans."""

    run_count: int
    events: int
    outcomes: int
    failures: List[Tuple[Plan, str]]  # with the traceback


def outcome_of(plan: Plan) -> Tuple[Optional[Summary], str]:
    """What came of a run, or how it failed."""
    try:
        return simulate(plan), ""
    except Exception:
        return None, traceback.format_exc(limit=-4)


def run_plans(plans: Iterable[Plan], most_failures: int = 1 << 30) -> Runs:
    """Run them all, or until so many have failed."""
    count = events = outcomes = 0
    failures: List[Tuple[Plan, str]] = []
    was_enabled = gc.isenabled()
    was_frozen = gc.get_freeze_count() > 0  # by what runs all tests: that stays
    gc.collect()
    if not was_frozen:
        gc.freeze()
    gc.disable()
    try:
        for plan in plans:
            count += 1
            summary, text = outcome_of(plan)
            if summary is None:
                failures.append((plan, text))
                if len(failures) >= most_failures:
                    break
            else:
                events += summary.events
                outcomes += summary.outcomes
            if not count % SEEDS_PER_COLLECTION:
                gc.collect()
    finally:
        if not was_frozen:
            gc.unfreeze()
        if was_enabled:
            gc.enable()
    return Runs(count, events, outcomes, failures)


def check_seeds(first: int, count: int) -> None:
    """Run seeds.

    Raises AssertionError that says how to repeat the first seed that fails, in its shortest form.
    """
    runs = run_plans(map(Plan, range(first, first + count)), most_failures=1)
    if runs.failures:
        plan, text = runs.failures[0]
        raise AssertionError(report(plan, text, is_shrunk=True))
    assert runs.outcomes > 10 * count, "a simulation in which little happens proves little"


def report(plan: Plan, text: str, is_shrunk: bool) -> str:
    """How to repeat a failure, in one line, and what failed.

    Parameters:
        is_shrunk: whether to look for its shortest form.
    """
    seed = plan.seed
    if is_shrunk:
        plan = shrink(plan, lambda each: outcome_of(each)[0] is None)
        text = outcome_of(plan)[1]
    return f"seed {seed} failed; in sdk/tests: python -m whole_system {plan.arguments()}\n{text}"
