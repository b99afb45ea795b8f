"""Whole loops of demand, simulated: is the work done in time, and are units not wasted?"""

from __future__ import annotations

import random
from typing import List

import pytest
from provision.provision_scene import Figures, Scene, Stage

from scaler.provision.core.pool import PoolSettings
from scaler_appliance.core.demand.slots_wanted import LARGEST_PROBE

SEEDS = 3
UNITS = 12


def staged(seed: int, slots: int, count: int = 4) -> List[Stage]:
    """Stages of work that each keep a whole pool busy for some minutes, with or without a pause before the next."""
    chance = random.Random(seed)
    stages, at = [], 0.0
    for _ in range(count):
        seconds, minutes = chance.choice((5.0, 20.0, 60.0)), chance.uniform(3.0, 10.0)
        stages.append(Stage(at, max(1, int(60.0 * minutes * UNITS * slots / seconds)), seconds))
        at += 60.0 * chance.uniform(minutes, 3.0 * minutes)
    return stages


def run(seed: int, failure_share: float = 0.0, is_measured: bool = True) -> Figures:
    chance = random.Random(-seed)
    pool = PoolSettings("p", slots=chance.choice((1, 4)), maximum=UNITS, idle_seconds=30.0)
    low = chance.choice((1.0, 10.0, 40.0))
    stages = staged(seed, pool.slots)
    return Scene(pool, stages, (low, 1.5 * low), seed, failure_share, is_measured=is_measured).run(24 * 3600.0)


@pytest.mark.parametrize("is_measured", [True, False])
@pytest.mark.parametrize("boot_seconds", [0.5, 3.0, 10.0, 60.0])
def test_fifteen_tasks_of_six_seconds_take_little_more_than_they_must(boot_seconds: float, is_measured: bool) -> None:
    pool = PoolSettings("p", maximum=10, idle_seconds=30.0)
    figures = Scene(pool, [Stage(0.0, 15, 6.0)], (boot_seconds, boot_seconds), is_measured=is_measured).run(3600.0)
    assert figures.done_at <= 1.2 * 12.0 + boot_seconds and figures.most <= 10
    assert figures.started == figures.most and figures.over_request == 0.0


def test_of_very_short_tasks_that_are_not_known_no_storm_of_units_finds_out() -> None:
    pool = PoolSettings("p", maximum=100, idle_seconds=30.0)
    figures = Scene(pool, [Stage(0.0, 100, 0.001)], (3.0, 3.0), is_measured=False).run(3600.0)
    assert figures.started <= LARGEST_PROBE
    stages = [Stage(0.0, 1, 6.0), Stage(20.0, 100, 0.001)]
    assert Scene(pool, stages, (3.0, 3.0), is_measured=False).run(3600.0).started == 1, "one that is there tells"


@pytest.mark.parametrize("failure_share, is_measured", [(0.0, True), (0.0, False), (0.2, True), (0.2, False)])
def test_staged_work_of_random_sizes_uses_the_units_that_it_gets(failure_share: float, is_measured: bool) -> None:
    found = [run(seed, failure_share, is_measured) for seed in range(SEEDS)]

    assert all(each.done_at < each.left_at < 24 * 3600.0 for each in found), "units that are not needed leave"
    assert sum(each.utilisation for each in found) / SEEDS >= 0.85
    assert sum(each.over_request for each in found) / SEEDS <= 0.05
    assert sum(each.flaps for each in found) <= sum(each.left_at for each in found) / 3600.0


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("is_measured", [True, False])
def test_the_same_for_very_many_seeds(is_measured: bool) -> None:
    found = [run(seed, 0.1, is_measured) for seed in range(100, 140)]

    assert all(each.done_at < each.left_at < 24 * 3600.0 for each in found)
    assert sum(each.utilisation for each in found) / len(found) >= 0.85
    assert sum(each.over_request for each in found) / len(found) <= 0.05
    assert sum(each.flaps for each in found) <= sum(each.left_at for each in found) / 3600.0
