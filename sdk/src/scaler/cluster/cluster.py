"""A worker on this machine, as a child process."""

from __future__ import annotations

import os
import sys
from typing import Dict, Mapping, Optional, Sequence

from scaler.arguments import Duration, Size, whole
from scaler.cluster.child_program import Program, option_arguments
from scaler.compat.arguments import accepts_earlier
from scaler.cpus import default_slots
from scaler.notebook import card
from scaler.values.texts import counted


class Cluster(Program):
    """A worker that connects to a scheduler. When its process is killed, another one takes its place.

    Parameters:
        address: of the scheduler.
        n_workers: the slots of the worker: how many tasks it runs at once, each in a process of its own. By default
            one for each name, else one less than there are usable CPUs.
        worker_names: a name for each slot, for monitors.
        per_worker_capabilities: what each slot offers, such as `{"gpu": 1}`.
        capabilities: what all slots offer together.
        Others are the options of `scaler_cluster`, by the same names; `scaler_cluster -h` explains them. Durations are
        seconds or texts such as "30s", sizes are bytes or texts such as "1GB".

    Raises InvalidArgumentError and ArgumentTypeError if a duration or a size is invalid.
    """

    @accepts_earlier("Cluster")
    def __init__(
        self,
        address: str,
        n_workers: Optional[int] = None,
        worker_io_threads: int = 1,
        worker_names: Optional[Sequence[str]] = None,
        heartbeat_interval_seconds: Duration = 2,
        task_timeout_seconds: Duration = 0,
        death_timeout_seconds: Duration = 300,
        garbage_collect_interval_seconds: Duration = 30,
        trim_memory_threshold_bytes: Size = 1024 * 1024 * 1024,
        object_retention_seconds: Duration = 3600,
        per_worker_queue_size: int = 1000,
        event_loop: str = "builtin",
        preload: Optional[str] = None,
        logging_paths: Sequence[str] = ("/dev/stdout",),
        logging_level: str = "INFO",
        logging_config_file: Optional[str] = None,
        per_worker_capabilities: Optional[Mapping[str, float]] = None,
        capabilities: Optional[Mapping[str, float]] = None,
    ) -> None:
        if n_workers is None:
            n_workers = len(worker_names) if worker_names else default_slots()
        n_workers = whole("n_workers", n_workers)
        super().__init__(
            [
                sys.executable,
                "-m",
                "scaler.worker",
                address,
                "--exit-when-stdin-closes",
                *option_arguments(
                    num_of_workers=n_workers,
                    worker_names=",".join(worker_names) if worker_names else None,
                    io_threads=worker_io_threads,
                    heartbeat_interval_seconds=heartbeat_interval_seconds,
                    task_timeout_seconds=task_timeout_seconds,
                    death_timeout_seconds=death_timeout_seconds,
                    garbage_collect_interval_seconds=garbage_collect_interval_seconds,
                    trim_memory_threshold_bytes=trim_memory_threshold_bytes,
                    object_retention_seconds=object_retention_seconds,
                    per_worker_queue_size=per_worker_queue_size,
                    event_loop=event_loop,
                    preload=preload,
                    logging_paths=list(logging_paths),
                    logging_level=logging_level,
                    logging_config_file=logging_config_file,
                    per_worker_capabilities=_capability_list(per_worker_capabilities),
                    capabilities=_capability_list(capabilities),
                ),
            ],
            environment=_environment(),
            is_replaced=True,
        )
        self._address = address
        self._n_workers = n_workers

    @property
    def slots(self) -> int:
        """How many tasks the worker runs at once."""
        return self._n_workers

    def __repr__(self) -> str:
        return f"<Cluster of {counted(self._n_workers, 'slot')} on 1 worker for {self._address}, {self.state}>"

    def _repr_html_(self) -> str:
        return card("Cluster", [("scheduler", self._address), ("slots", self._n_workers), ("state", self.state)])


def _environment() -> Dict[str, str]:
    """Tasks import what this program can import, also from beside its script; and write compiled code if it does."""
    environment = {"PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path)}
    if sys.dont_write_bytecode:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    return environment


def _capability_list(capabilities: Optional[Mapping[str, float]]) -> Optional[str]:
    return ",".join(f"{name}={amount:.17g}" for name, amount in capabilities.items()) if capabilities else None
