"""The simulation catches bugs in how a running scheduler takes over options that have changed."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import pytest
from simulation.simulated_run import simulate

from scaler_appliance.core.option_changes import OptionChanges
from scaler_appliance.core.peers.client_flow import ClientFlow
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.placement.tenant_shares import TenantShares
from scaler_appliance.core.scheduler_core import SchedulerCore

pytestmark = pytest.mark.exhaustive_on_pypy  # which planted bugs are caught does not depend on it

SEEDS = 120


def _enforce_at_once(flow: ClientFlow, tasks: int, size: int) -> None:
    flow.tasks_limit = flow._tasks_enforced = tasks
    flow.bytes_limit = flow._bytes_enforced = size


def _forget_running(shares: TenantShares, limits: Any, running_of: Any) -> None:
    shares.limits, shares.has_quotas, shares.running = limits, True, dict.fromkeys(limits, 0)


def _change_and_wait(core: SchedulerCore, now: float, changes: Any) -> None:
    core._options.apply(changes)
    core._has_news = False


def _drop_what_is_too_much(worker: WorkerSession, limit: int) -> None:
    worker.capacity = worker.slots * limit  # whatever the worker itself has asked for


PLANTED: Dict[str, Tuple[type, str, Any, str]] = {
    "a lower limit holds before its client knows": (
        ClientFlow,
        "set_limits",
        _enforce_at_once,
        "for no reason|its actor is not",
    ),
    "tasks that run are not counted by new quotas": (TenantShares, "change_limits", _forget_running, "are counted"),
    "a larger quota starts nothing": (SchedulerCore, "on_options_changed", _change_and_wait, "a free slot could run"),
    "a worker gets more than it has asked for": (
        WorkerSession,
        "set_queue_limit",
        _drop_what_is_too_much,
        "than it can",
    ),
    "quotas stay what they were": (OptionChanges, "_on_tenants", lambda self: None, "quota is exceeded|could run"),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_the_simulation_catches_wrong_reactions_to_changed_options(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, replacement, found = PLANTED[bug]
    monkeypatch.setattr(owner, name, replacement)
    with pytest.raises(AssertionError, match=found):
        for seed in range(SEEDS):
            simulate(seed, 1000 if "counted" not in found else 1)
