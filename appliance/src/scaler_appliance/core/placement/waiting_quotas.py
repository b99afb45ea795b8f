"""How many tasks of a tenant may wait.

Rule: as with the limit of all tasks, those that a free slot could take at once do not count.
"""

from __future__ import annotations

from scaler_appliance.core.placement.task_placement import Placement
from scaler_appliance.core.placement.tenant_shares import DEFAULT_LIMITS, UNLIMITED
from scaler_appliance.core.state import SchedulerState


class WaitingQuota:
    """The quota of one tenant, and what is left of it; takes one pass over all clients if there is one."""

    def __init__(self, state: SchedulerState, placement: Placement, tenant: str) -> None:
        self._state, self._placement, self._tenant = state, placement, tenant
        self._most = state.shares.limits.get(tenant, DEFAULT_LIMITS).maximum_waiting

    def room(self, counted: int = 0) -> int:
        """How many more of the tenant's tasks may wait.

        Parameters:
            counted: how many of those in question are counted as waiting already.
        """
        if self._most < 0:
            return UNLIMITED
        state, tenant = self._state, self._tenant
        waiting = state.unfinished_of(tenant) - state.shares.running_of(tenant) - counted
        return max(0, self._most + self._placement.free_slots(tenant) - waiting)

    @property
    def text(self) -> str:
        """Why tasks are rejected."""
        return (
            f"the tenant {self._tenant} has reached its quota of waiting tasks ({self._most}): submit fewer at a time,"
            " add workers, or ask for a larger quota (--tenant)"
        )
