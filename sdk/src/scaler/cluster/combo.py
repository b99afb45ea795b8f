"""A scheduler and a worker on this machine, in one object."""

from __future__ import annotations

from types import TracebackType
from typing import List, Mapping, Optional, Sequence, Type

from scaler.arguments import Duration, Size
from scaler.cluster.cluster import Cluster
from scaler.cluster.scheduler import Scheduler
from scaler.compat.arguments import accepts_earlier
from scaler.compat.hooks import EarlierHooks
from scaler.compat.installation import check_installation
from scaler.cpus import default_slots
from scaler.notebook import Link, Row, card
from scaler.values.texts import counted
from scaler_protocol.host.discovery import link_to


class SchedulerClusterCombo(EarlierHooks):
    """Starts a scheduler and a worker; they stop with `shutdown`, or when this program ends, however it ends.

    Parameters:
        n_workers: the slots of the worker: how many tasks run at once. By default one less than there are usable CPUs.
            0 starts a scheduler alone.
        address: where the scheduler listens; None chooses a free port of this machine.
        protected: whether clients are refused when they ask to shut the cluster down.
        Others are the options of `scaler_scheduler` and `scaler_cluster`, by the same names. Durations are
        seconds or texts such as "30s", sizes are bytes or texts such as "1GB".

    Raises ProgramStartError if the scheduler does not start, and what `Cluster` raises.
    """

    @accepts_earlier("SchedulerClusterCombo")
    def __init__(
        self,
        n_workers: Optional[int] = None,
        address: Optional[str] = None,
        monitor_address: Optional[str] = None,
        worker_io_threads: int = 1,
        scheduler_io_threads: int = 1,
        max_number_of_tasks_waiting: int = -1,
        heartbeat_interval_seconds: Duration = 2,
        client_timeout_seconds: Duration = 60,
        worker_timeout_seconds: Duration = 60,
        object_retention_seconds: Duration = 3600,
        task_timeout_seconds: Duration = 0,
        death_timeout_seconds: Duration = 300,
        garbage_collect_interval_seconds: Duration = 30,
        trim_memory_threshold_bytes: Size = 1024 * 1024 * 1024,
        per_worker_queue_size: int = 1000,
        protected: bool = True,
        event_loop: str = "builtin",
        preload: Optional[str] = None,
        logging_paths: Sequence[str] = ("/dev/stdout",),
        logging_level: str = "INFO",
        logging_config_file: Optional[str] = None,
        per_worker_capabilities: Optional[Mapping[str, float]] = None,
        capabilities: Optional[Mapping[str, float]] = None,
        object_directory: Optional[str] = None,
        object_memory_limit: Optional[Size] = None,
        object_spill_directory: Optional[str] = None,
    ) -> None:
        check_installation()
        self._scheduler = Scheduler(
            address=address,
            monitor_address=monitor_address,
            io_threads=scheduler_io_threads,
            max_number_of_tasks_waiting=max_number_of_tasks_waiting,
            per_worker_queue_size=per_worker_queue_size,
            client_timeout_seconds=client_timeout_seconds,
            worker_timeout_seconds=worker_timeout_seconds,
            heartbeat_interval_seconds=heartbeat_interval_seconds,
            object_directory=object_directory,
            object_memory_limit=object_memory_limit,
            object_spill_directory=object_spill_directory,
            protected=protected,
            event_loop=event_loop,
            logging_paths=logging_paths,
            logging_level=logging_level,
            logging_config_file=logging_config_file,
        )
        self._scheduler.start()
        try:
            self._cluster = Cluster(
                address=self._scheduler.get_address(),
                n_workers=n_workers,
                worker_io_threads=worker_io_threads,
                heartbeat_interval_seconds=heartbeat_interval_seconds,
                task_timeout_seconds=task_timeout_seconds,
                death_timeout_seconds=death_timeout_seconds,
                garbage_collect_interval_seconds=garbage_collect_interval_seconds,
                trim_memory_threshold_bytes=trim_memory_threshold_bytes,
                object_retention_seconds=object_retention_seconds,
                per_worker_queue_size=per_worker_queue_size,
                event_loop=event_loop,
                preload=preload,
                logging_paths=logging_paths,
                logging_level=logging_level,
                logging_config_file=logging_config_file,
                per_worker_capabilities=per_worker_capabilities,
                capabilities=capabilities,
            )
            if n_workers != 0:
                self._cluster.start()
        except BaseException:
            self._scheduler.shutdown()
            raise
        self._n_workers = default_slots() if n_workers is None else n_workers

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
