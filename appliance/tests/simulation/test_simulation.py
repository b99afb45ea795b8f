"""Every seed is a history of a cluster; no client may ever see anything but one outcome for each of its tasks.

`make simulate SEEDS=100000 FIRST=800` runs more of them, and on all cores. The scheduler's core also takes part in the
simulation of whole systems, which finds what this one finds (docs/adr/0017); this one also runs on PyPy.
"""

from __future__ import annotations

import sys
from copy import copy
from typing import Any, Callable

import pytest
from simulation.provisioning_world import ProvisioningWorld
from simulation.simulated_run import simulate

from scaler_appliance.core.demand.provisioning import Provisioning

ALL_SEEDS, SEEDS = 800, 200  # the former in `make test-all`
SEEDS_OF_A_TEST = 100 if sys.implementation.name == "cpython" else 40  # PyPy needs four times as long for a seed
SEEDS_OF_A_CHECK = 200 if sys.implementation.name == "cpython" else SEEDS_OF_A_TEST
"""As many run in `make check`."""
EVENTS_PER_CHECK = 8  # a broken invariant is rarely mended soon
HAS_STRETCHES = sys.implementation.name == "cpython"
"""A quarter of the events of each seed are checked one by one; on PyPy, that would repeat what CPython shows."""

ONCE_FAILED = {
    1017: "a result came before the confirmation that it would follow",
    20016: "a peer that said Hello again was sent what its former session had asked for",
    21369: "a worker whose blocked tasks resumed counted as idle, with a negative number of free slots",
    315: "slots stayed free when only one of several tenants had tasks left",
    380: "a tenant exceeded its quota of running tasks by tasks that had left the worker where they were blocked",
    9522: "a client was let in by a scheduler that had stopped",
}

Method = Callable[..., Any]


def _with_request(**fields: Any) -> Callable[[Method], Method]:
    """What a provisioner asks for is read wrongly."""

    def changed(right: Method) -> Method:
        def wrong(self: Any, client: Any, message: Any) -> None:
            message = copy(message)
            for field, value in fields.items():
                setattr(message, field, value)
            right(self, client, message)

        return wrong

    return changed


def _with_cost(change: Callable[[Any], Any]) -> Callable[[Method], Method]:
    """What the leaving of a unit costs is computed wrongly."""
    return lambda right: lambda self, workers, place: change(right(self, workers, place))


PLANTED = {
    "busy units go without having been asked for": (
        "on_release_request",
        _with_request(may_be_busy=True),
        "have tasks",
    ),
    "more units go than were asked for": ("on_release_request", _with_request(count=100), "too many"),
    "units with tasks count as idle": ("_cost", _with_cost(lambda cost: (False, *cost[1:])), "have tasks|are idle"),
    "the dearest units go first": ("_cost", _with_cost(lambda cost: (not cost[0], *cost[1:])), "have tasks|are idle"),
}
"""Bugs of letting units go: a method, what stands in its place, and what is seen of it."""


def _parts() -> list[object]:
    return [
        pytest.param(
            first, marks=[pytest.mark.slow] * (first >= SEEDS_OF_A_CHECK) + [pytest.mark.exhaustive] * (first >= SEEDS)
        )
        for first in range(0, ALL_SEEDS, SEEDS_OF_A_TEST)
    ]


@pytest.mark.parametrize("first", _parts())
def test_each_task_has_exactly_one_outcome(first: int) -> None:
    outcomes = 0
    for seed in range(first, first + SEEDS_OF_A_TEST):
        try:
            outcomes += simulate(seed, EVENTS_PER_CHECK, HAS_STRETCHES).outcomes
        except Exception as error:
            alone = f"make simulate FIRST={seed} SEEDS=1"
            raise AssertionError(f"seed {seed} failed, which alone is `{alone}`: {error!r}") from error
    assert outcomes > SEEDS_OF_A_TEST, "a simulation in which little happens proves little"


@pytest.mark.exhaustive_on_pypy
@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_a_seed_that_failed_before_does_not_fail_again(seed: int) -> None:
    simulate(seed)


@pytest.mark.exhaustive_on_pypy
@pytest.mark.parametrize("name", PLANTED)
def test_the_simulation_catches_what_lets_the_wrong_units_go(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method, replacement, sign = PLANTED[name]
    monkeypatch.setattr(Provisioning, method, replacement(getattr(Provisioning, method)))
    seeds = [seed for seed in range(2000) if ProvisioningWorld(seed).is_used]
    with pytest.raises(AssertionError, match=sign):
        for seed in seeds:
            simulate(seed, EVENTS_PER_CHECK)


def test_a_seed_repeats_its_history() -> None:
    assert simulate(7) == simulate(7)
