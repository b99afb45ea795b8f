"""How many slots tasks could use, for autoscalers: JSON for KEDA's `metrics-api`, and sums for Prometheus.

Rules:
- What tasks need of capabilities is told by names and amounts; a filter is about names only, since an autoscaler knows
  what kind of worker it starts.
- While the scheduler is silent, there are no figures: an old one, or 0, would start or stop machines.
"""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, Iterable, List, Optional

from scaler_appliance.feed.cluster_entities import DemandFigures
from scaler_appliance.ui.ui_state import SCHEMA, UiState


def slot_demand(state: UiState, names: Optional[str]) -> Optional[Dict[str, Any]]:
    """The demand; None while the scheduler is silent.

    Parameters:
        names: count only tasks that need exactly these capabilities, separated by commas; empty: those that need none;
            None: all tasks.
    """
    if state.cluster.scheduler is None or not state.feed.is_connected():
        return None
    demands = state.cluster.demands
    if names is not None:
        chosen = _names(names)
        demands = [each for each in demands if each.capabilities.keys() == chosen]
    return {
        "schema": SCHEMA,
        "slots_wanted": sum([each.slots_wanted for each in demands]),
        "slots_missing": sum([each.slots_missing for each in demands]),
        "demands": [_entry(each) for each in demands],
        "pools": [{"pool": name, **figures._asdict()} for name, figures in state.cluster.pools.items()],
    }


def pool_demand(state: UiState, name: str) -> Optional[Dict[str, Any]]:
    """The demand of a pool; None if no provisioner has named it."""
    figures = state.cluster.pools.get(name)
    return None if figures is None else {"schema": SCHEMA, "pool": name, **figures._asdict()}


def _names(text: str) -> FrozenSet[str]:
    return frozenset([name for name in (each.strip() for each in text.split(",")) if name])


def _entry(demand: DemandFigures) -> Dict[str, Any]:
    return {
        "capabilities": demand.capabilities,
        "time_request_seconds": demand.time_request_seconds,
        "tasks": demand.tasks,
        "tasks_unmeasured": demand.tasks_unmeasured,
        "work_seconds": demand.work_seconds,
        "slots_wanted": demand.slots_wanted,
        "slots_missing": demand.slots_missing,
    }


def needs_text(demand: DemandFigures) -> str:
    """The capabilities as the label of a metric: `gpu=1,memory=2`; empty if it needs none."""
    return ",".join([f"{name}={amount:g}" for name, amount in sorted(demand.capabilities.items())])


def wanted_by_needs(demands: Iterable[DemandFigures]) -> Dict[str, List[int]]:
    """Slots wanted and missing by the text of what tasks need; those that need nothing are always there."""
    found = {"": [0, 0]}
    for demand in demands:
        sums = found.setdefault(needs_text(demand), [0, 0])
        sums[0] += demand.slots_wanted
        sums[1] += demand.slots_missing
    return found
