"""The simulation catches bugs that let tenants see each other's tasks or objects, so it would find others, too."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import pytest
from simulation.simulated_run import Run, simulate

from scaler_appliance.core.monitoring.status_columns import _Contents
from scaler_appliance.core.objects.object_records import ObjectRecord
from scaler_appliance.core.objects.object_table import ObjectTable
from scaler_appliance.core.peers.sessions import ClientSession
from scaler_appliance.core.peers.worker_session import WorkerSession

pytestmark = pytest.mark.exhaustive_on_pypy  # which planted bugs are caught does not depend on it

SEEDS = 40
PLANTED: Dict[str, Tuple[type, str, Any]] = {
    "a worker runs the tasks of any tenant": (WorkerSession, "serves", lambda self, tenant: True),
    "a client reads the objects of any tenant": (ClientSession, "may_read_of", lambda self, tenant: True),
    "a monitor sees what belongs to any tenant": (_Contents, "of", lambda self, tenant: self),
    "a task may need the objects of any tenant": (
        ObjectTable,
        "refer",
        lambda self, object_id, tenant, client=0: _refer(self.find(object_id)),
    ),
}


def _refer(record: Any) -> bool:
    """As the product does it, without looking at the tenant."""
    if record is None:
        return False
    assert isinstance(record, ObjectRecord)
    record.references += 1
    return record.held and not record.is_broken


def test_some_seeds_have_tenants_and_others_have_none() -> None:
    with_tenants = [seed for seed in range(SEEDS) if Run(seed, 8).world.has_tenants]
    assert SEEDS // 5 < len(with_tenants) < SEEDS * 4 // 5


@pytest.mark.parametrize("bug", PLANTED)
def test_the_simulation_catches_what_lets_tenants_mix(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, replacement = PLANTED[bug]
    monkeypatch.setattr(owner, name, replacement)
    with pytest.raises(
        AssertionError, match=r"reads an object of|is given to a worker of|foreign|outcomes are withheld"
    ):
        for seed in range(SEEDS):
            simulate(seed, 1000)
