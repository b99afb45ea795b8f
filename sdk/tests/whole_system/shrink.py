"""Cuts a failing run to the smallest one that still fails: fewer faults, features and peers, and less time."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, List

from whole_system.simulated_world import FAULTS, FEATURES, Plan

ROUNDS = 3


def shrink(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """The smallest plan that fails; the given one has to."""
    for _ in range(ROUNDS):
        before = plan
        for name in [*FAULTS, *FEATURES]:
            if name not in plan.off:
                plan = _first([replace(plan, off=plan.off | {name})], fails, plan)
        smaller = [replace(plan, peers=peers) for peers in (1, 2) if not plan.peers or peers < plan.peers]
        plan = _first(smaller, fails, plan)
        shorter = [
            replace(plan, safety_seconds=seconds)
            for seconds in (0.5, 1.0, 2.0, 4.0)
            if not plan.safety_seconds or seconds < plan.safety_seconds
        ]
        plan = _first(shorter, fails, plan)
        if plan == before:
            break
    return _without_needless_names(plan)


def _first(candidates: List[Plan], fails: Callable[[Plan], bool], otherwise: Plan) -> Plan:
    return next((each for each in candidates if fails(each)), otherwise)


def _without_needless_names(plan: Plan) -> Plan:
    """What the seed does not use anyway need not be named."""
    from whole_system.simulated_world import World

    rates = World(Plan(plan.seed)).rates
    return replace(plan, off=frozenset(name for name in plan.off if rates.get(name, 1.0)))
