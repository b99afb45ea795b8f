"""Workers on this machine, as a child process."""

from __future__ import annotations

import os
import sys
from typing import Dict, Mapping, Optional, Sequence

from scaler.cluster.program import Program, option_arguments
from scaler.notebook import card


class Cluster(Program):
    """Workers that connect to a scheduler. When their process is killed, another one takes its place.

    Parameters:
        address: of the scheduler.
        n_workers: how many tasks to run at once; by default one for each name, else one less than there are CPUs.
        worker_names: a name for each worker, for monitors.
        per_worker_capabilities: what each worker offers, such as `{"gpu": 1}`.
        capabilities: what all workers of this machine offer together.
        Others are the options of `scaler_cluster`, by the same names; `scaler_cluster -h` explains them.
    """

    def __init__(
        self,
        address: str,
        n_workers: Optional[int] = None,
        worker_io_threads: int = 1,
        worker_names: Optional[Sequence[str]] = None,
        heartbeat_interval_seconds: float = 2,
        task_timeout_seconds: float = 0,
        death_timeout_seconds: float = 300,
        garbage_collect_interval_seconds: float = 30,
        trim_memory_threshold_bytes: int = 1024 * 1024 * 1024,
        object_retention_seconds: float = 3600,
        per_worker_queue_size: int = 1000,
        event_loop: str = "builtin",
        preload: Optional[str] = None,
        logging_paths: Sequence[str] = ("/dev/stdout",),
        logging_level: str = "INFO",
        logging_config_file: Optional[str] = None,
        per_worker_capabilities: Optional[Mapping[str, float]] = None,
        capabilities: Optional[Mapping[str, float]] = None,
    ) -> None:
        if n_workers is None and worker_names:
            n_workers = len(worker_names)
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

    def __repr__(self) -> str:
        return f"<Cluster of {self._workers} for {self._address}, {self.state}>"

    def _repr_html_(self) -> str:
        return card("Cluster", [("scheduler", self._address), ("workers", self._workers), ("state", self.state)])

    @property
    def _workers(self) -> str:
        return (
            "workers" if self._n_workers is None else f"{self._n_workers} worker{'' if self._n_workers == 1 else 's'}"
        )


def _environment() -> Dict[str, str]:
    """Tasks import what this program can import, also from beside its script; and write compiled code if it does."""
    environment = {"PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path)}
    if sys.dont_write_bytecode:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    return environment


def _capability_list(capabilities: Optional[Mapping[str, float]]) -> Optional[str]:
    return ",".join(f"{name}={amount:.17g}" for name, amount in capabilities.items()) if capabilities else None
