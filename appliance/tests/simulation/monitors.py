"""A monitor of the simulated scheduler: it comes and goes, and what it was told is compared with what is so."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from status_model import StatusModel, publication, through_codec

from scaler_protocol import decode, encode
from scaler_protocol import messages as m

if TYPE_CHECKING:
    from scaler_appliance.core.scheduler_core import SchedulerCore


class Monitor:
    """Watches one scheduler.

    Parameters:
        seed: of its own random numbers, so that it does not change the histories of other peers.
    """

    def __init__(self, seed: int) -> None:
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
            self.model = StatusModel()
            self._is_waiting = False
            return
        status = core.take_status(now, is_snapshot)
        was_waiting, self._is_waiting = self._is_waiting, status is None
        if status is None:
            return  # its other parts are made at the next looks
        self.model.apply(through_codec(status))
        if was_waiting:  # things may have happened between its parts
            self.model.apply(publication(core, is_snapshot=False))
        self.model.assert_is_true(core)

    def _check_runs(self, core: SchedulerCore, now: float) -> None:
        """The columns of runs fit each other, and name who is there or was."""
        runs = decode(encode(core.state.runs.take(now, bytes(16), 0)))
        assert isinstance(runs, m.TaskRuns)
        lengths = {len(getattr(runs, name)) for name in _RUN_COLUMNS}
        assert len(lengths) == 1
        assert all(runs.counts), "a run of nothing"
        assert all(session <= core.state.last_session for session in (*runs.workers, *runs.clients))
        assert all(failed.entry < len(runs.counts) for failed in runs.failures)


_RUN_COLUMNS = (
    "end_microseconds", "workers", "processors", "clients", "functions", "first_tasks", "counts", "statuses",
    "busy_microseconds", "peak_memory_bytes", "attempts",
)  # fmt: skip
