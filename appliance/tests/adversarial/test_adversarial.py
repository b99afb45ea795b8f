"""Peers that say what is well-formed and contradictory break no invariant, and end at most their own session.

`cd appliance && ../.venv/bin/python -m tests.adversarial.many_seeds FIRST COUNT` runs more seeds, and on all cores.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import List

import pytest
from adversarial.adversarial_peers import CLIENT_SAYS, WORKER_SAYS
from adversarial.history import Kinds, run

from scaler_protocol import messages as m

SEEDS = 150
SEEDS_OF_A_TEST = 30
SEEDS_OF_A_CHECK = 30 if sys.implementation.name == "cpython" else 0  # PyPy needs four times as long for a seed
EXHAUSTIVE_FROM = 60

SCHEDULERS_OWN = {
    m.Welcome,
    m.Refusal,
    m.ClientShutdownResponse,
    m.TaskEcho,
    m.GraphTaskResult,
    m.BalanceRequest,
    m.SchedulerStatus,
    m.Explanation,
    m.Info,
    m.TaskRuns,
    m.Ticket,
    m.WorkerShutdownResponse,
    m.Demand,
    m.Release,
}
"""What no client and no worker has a reason to say; it comes as a stray message only."""


def _parts() -> List[object]:
    return [
        pytest.param(
            first,
            marks=[pytest.mark.exhaustive] * (first >= EXHAUSTIVE_FROM)
            + [pytest.mark.slow] * (first >= SEEDS_OF_A_CHECK),
        )
        for first in range(0, SEEDS, SEEDS_OF_A_TEST)
    ]


@pytest.mark.parametrize("first", _parts())
def test_adversarial_peers_harm_no_other_peer(first: int) -> None:
    said: Kinds = Counter()
    sessions = 0
    for seed in range(first, first + SEEDS_OF_A_TEST):
        summary = run(seed)
        said.update(summary.said)
        sessions += summary.sessions
    messages = sum(said.values())
    assert messages > 5 * sessions, "peers that never get far contradict little"
    for role, table in ((m.Role.CLIENT, CLIENT_SAYS), (m.Role.WORKER, WORKER_SAYS)):
        unsaid = [kind.__name__ for kind in table if not said[role, kind]]
        assert not unsaid, f"no {role.name} said any {unsaid}: it is tried by nothing"


def test_every_message_of_the_schema_is_sent_by_a_role() -> None:
    assert {m.Hello, *CLIENT_SAYS, *WORKER_SAYS} == set(m.MEMBERS) - SCHEDULERS_OWN


def test_a_seed_repeats_its_history() -> None:
    assert run(7) == run(7)
