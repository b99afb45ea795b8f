"""A scheduler and a worker on this machine, in one object."""

from __future__ import annotations

from types import TracebackType
from typing import List, Optional, Type

from scaler.cluster.cluster import Cluster
from scaler.cluster.scheduler import Scheduler
from scaler.cluster.settings import ComboSettings, takes
from scaler.compat.earlier_arguments import accepts_earlier
from scaler.compat.hooks import EarlierHooks
from scaler.compat.installation import check_installation
from scaler.cpus import default_slots
from scaler.notebook import Link, Row, card
from scaler.values.texts import counted
from scaler_protocol.host.discovery import link_to


class SchedulerClusterCombo(EarlierHooks):
    """Starts a scheduler and a worker; they stop with `shutdown`, or when this program ends for any reason.

    Parameters:
        n_workers: the slots of the worker: how many tasks run at once. By default one less than there are usable CPUs.
            0 starts a scheduler alone.
        address: where the scheduler listens; None chooses a free port of this machine.
        protected: whether clients are refused when they ask to shut the cluster down.
        Others are the options of `scaler_scheduler` and `scaler_cluster`, by the same names. Durations are
        seconds or texts such as "30s", sizes are bytes or texts such as "1GB".

    Raises ProgramStartError if the scheduler does not start, and what `Cluster` raises.

    Example:
        >>> with SchedulerClusterCombo(n_workers=2, logging_level="ERROR") as cluster:
        ...     with Client(cluster.get_address()) as client:
        ...         print(client.map(abs, [-1, 2, -3]))
        [1, 2, 3]
    """

    @accepts_earlier("SchedulerClusterCombo")
    @takes(ComboSettings)
    def __init__(self, settings: ComboSettings) -> None:
        check_installation()
        self._scheduler = Scheduler(**settings.of_scheduler)
        self._scheduler.start()
        try:
            self._cluster = Cluster(**settings.of_cluster(self._scheduler.get_address()))
            if settings.n_workers != 0:
                self._cluster.start()
        except BaseException:
            self._scheduler.shutdown()
            raise
        self._n_workers = default_slots() if settings.n_workers is None else settings.n_workers

    def get_address(self) -> str:
        """The address to give to `Client`."""
        return self._scheduler.get_address()

    def get_monitor_address(self) -> str:
        """The address to give to `scaler_top`."""
        return self._scheduler.get_monitor_address()

    @property
    def scheduler(self) -> Scheduler:
        return self._scheduler

    @property
    def cluster(self) -> Cluster:
        return self._cluster

    def shutdown(self) -> None:
        """Stop worker and scheduler, and wait until they are gone. Idempotent."""
        self._cluster.shutdown()
        self._scheduler.shutdown()

    def __repr__(self) -> str:
        slots = counted(self._cluster.slots, "slot")
        return f"<SchedulerClusterCombo {self.get_address()}, {slots} on 1 worker, {self._state}>"

    def _repr_html_(self) -> str:
        rows: List[Row] = [
            ("scheduler", self.get_address()),
            ("slots", self._cluster.slots),
            ("state", self._state),
            ("user interface", Link(link_to(self.get_monitor_address()))),
            ("in a terminal", f"scaler_top {self.get_monitor_address()}"),
        ]
        return card("SchedulerClusterCombo", rows)

    @property
    def _state(self) -> str:
        return "running" if self._scheduler.is_alive() else "stopped"

    def __enter__(self) -> SchedulerClusterCombo:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.shutdown()
