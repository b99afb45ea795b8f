"""A monitor of the simulated scheduler: it comes and goes, and what it was told is compared with what is so."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from status_model import StatusModel, publication, through_codec, view_of_publication

from scaler_protocol import decode, encode
from scaler_protocol import messages as m

if TYPE_CHECKING:
    from scaler_appliance.core.scheduler_core import SchedulerCore


class Monitor:
    """Watches one scheduler.

    Parameters:
        seed: of its own random numbers, so that it does not change the histories of other peers.
        tenant: of which another monitor sees what happens; empty: there is no such monitor.
    """

    def __init__(self, seed: int, tenant: str = "") -> None:
        self._tenant, self.view = tenant, StatusModel()
        self.random = Random(f"monitor {seed}")
        self.is_keen = self.random.random() < 0.5
        self.model = StatusModel()
        self._is_waiting = False  # for the rest of a publication

    def look(self, core: SchedulerCore, now: float) -> None:
        """A publication, and what the monitor makes of it."""
        if not self.is_keen:
            return
        if core.state.is_watched:
            self._check_runs(core, now)
        choice = self.random.random()
        is_snapshot = not core.state.is_watched or choice < 0.1
        if is_snapshot:
            core.watch(True, True)
        elif choice < 0.15:
            core.watch(False, False)
            self.model, self.view = StatusModel(), StatusModel()
            self._is_waiting = False
            return
        status = core.take_status(now, is_snapshot)
        was_waiting, self._is_waiting = self._is_waiting, status is None
        if status is None:
            return  # its other parts are made at the next looks
        self._apply(core, through_codec(status))
        if was_waiting:  # things may have happened between its parts
            self._apply(core, publication(core, is_snapshot=False))
        self.model.assert_is_true(core)
        if self._tenant:
            self.view.assert_is_true(core, self._tenant)
            self._check_view(core)

    def _apply(self, core: SchedulerCore, status: m.SchedulerStatus) -> None:
        self.model.apply(status)
        if self._tenant:
            self.view.apply(view_of_publication(core, self._tenant))

    def _check_view(self, core: SchedulerCore) -> None:
        """The monitor of a tenant sees nothing of others."""
        state, tables, tenant = core.state, self.view.tables, self._tenant
        clients = {number for number, client in state.clients.items() if client.tenant == tenant}
        workers = {number for number, worker in state.workers.items() if worker.tenant in (tenant, "*")}
        assert tables["clients"].keys() == tables["client_names"].keys() == clients, "foreign clients"
        assert tables["workers"].keys() == tables["worker_names"].keys() == workers, "foreign workers"
        functions = {each.number for each in state.changes.function_counters() if each.tenant == tenant}
        assert tables["functions"].keys() == tables["function_names"].keys() == functions, "foreign functions"
        records = [state.objects.find(object_id) for object_id in tables["large_objects"]]
        assert all(record is not None and record.tenant == tenant for record in records), "foreign objects"
        assert tables["object_names"].keys() == tables["large_objects"].keys()
        actors = {each.function for each in state.actors if each.tenant == tenant}
        assert tables["actors"].keys() == tables["actor_names"].keys() == actors, "foreign actors"
        task_clients = {row[6] for rows in tables["processors"].values() for row in rows}
        assert task_clients <= {0, *clients}, "foreign tasks"

    def _check_runs(self, core: SchedulerCore, now: float) -> None:
        """The columns of runs fit each other, and name who is there or was."""
        runs = decode(encode(core.state.runs.take(now, bytes(16), 0)))
        assert isinstance(runs, m.TaskRuns)
        if self._tenant:
            view = core.take_runs_view(now, self._tenant)
            tenants = [client.tenant for client in map(core.state.clients.get, view.clients) if client is not None]
            assert set(tenants) <= {self._tenant} and len(view.clients) <= len(runs.clients)
        lengths = {len(getattr(runs, name)) for name in _RUN_COLUMNS}
        assert len(lengths) == 1
        assert all(runs.counts), "a run of nothing"
        assert all(session <= core.state.last_session for session in (*runs.workers, *runs.clients))
        assert all(failed.entry < len(runs.counts) for failed in runs.failures)


_RUN_COLUMNS = (
    "end_microseconds", "workers", "processors", "clients", "functions", "first_tasks", "counts", "statuses",
    "busy_microseconds", "peak_memory_bytes", "attempts",
)  # fmt: skip
