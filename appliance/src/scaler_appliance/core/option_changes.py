"""Options that change while the scheduler runs, and what that means for the peers and tasks that are there.

    values that differ ──▶ apply ──▶ settings ─▶ limits of tenants, credit of clients, room of workers, files in memory

Rules:
- A change takes nothing away: accepted tasks stay accepted, and tasks at workers stay there. A lower limit delays or
  rejects only what comes later.
- What a peer was told when it connected holds for its session: its time-out and its interval of heartbeats. Credit is
  not among that: clients are told at once.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping

from scaler_appliance.core.monitoring.running_tasks import tenants_of_blocked
from scaler_appliance.core.peers.flow_control import FlowControl
from scaler_appliance.core.placement.task_placement import Placement
from scaler_appliance.core.placement.tenant_shares import limits_of
from scaler_appliance.core.state import SchedulerState


class OptionChanges:
    def __init__(self, state: SchedulerState, placement: Placement, flow: FlowControl) -> None:
        self._state = state
        self._placement = placement
        self._flow = flow
        # Other settings of CHANGEABLE are read where they are used, each time.
        self._reactions: Dict[str, Callable[[], None]] = {
            "tenants": self._on_tenants,
            "client_tasks_in_flight": self._on_credit,
            "client_bytes_in_flight": self._on_credit,
            "per_worker_queue_size": self._on_queue_size,
            "object_memory_limit_bytes": self._on_object_memory,
        }

    def apply(self, changes: Mapping[str, Any]) -> None:
        """Use new values from now on.

        Parameters:
            changes: by names of `Settings`, of CHANGEABLE.
        """
        assert CHANGEABLE.issuperset(changes), f"{changes.keys() - CHANGEABLE} cannot change"
        self._state.settings = self._state.settings._replace(**changes)
        for name in changes:
            if name in self._reactions:
                self._reactions[name]()

    def _on_tenants(self) -> None:
        state, shares = self._state, self._state.shares
        shares.change_limits(limits_of(state.settings.tenants), state.running_of)
        state.has_quotas = shares.has_quotas
        if shares.has_quotas:
            for worker in state.workers.values():
                shares.set_blocked(worker, () if worker.is_gone else tenants_of_blocked(worker, state.clients))

    def _on_credit(self) -> None:
        settings = self._state.settings
        for client in self._state.clients.values():
            if not client.is_gone:
                client.flow.set_limits(settings.client_tasks_in_flight, settings.client_bytes_in_flight)
                self._flow.grant(client)
                self._flow.hold_or_resume(client)

    def _on_queue_size(self) -> None:
        for worker in self._state.workers.values():
            if not worker.is_gone:
                worker.set_queue_limit(self._state.settings.per_worker_queue_size)
                self._placement.on_load_changed(worker)

    def _on_object_memory(self) -> None:
        most_bytes = self._state.settings.object_memory_limit_bytes
        self._state.objects.memory.change_most(most_bytes, self._state.budget.files_limit_bytes(most_bytes))


CHANGEABLE = frozenset(
    {
        "tenants",
        "max_number_of_tasks_waiting",
        "per_worker_queue_size",
        "maximum_attempts",
        "maximum_peers",
        "client_tasks_in_flight",
        "client_bytes_in_flight",
        "client_timeout_seconds",
        "worker_timeout_seconds",
        "heartbeat_interval_seconds",
        "object_memory_limit_bytes",
    }
)
"""The names of `Settings` that may change."""
