"""The staged load on Dask: a SpecCluster whose workers are machines, as those of dask-jobqueue are jobs, and Adaptive.

Rule: a machine counts as started as soon as it was asked for, which is how dask-jobqueue starts its jobs.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import time
from typing import Any

from elastic import unit_machine
from elastic.staged_load import run_stages
from elastic.unit_machine import NOTES

INTERVAL_SECONDS = 1.0  # Dask's default


def run(
    folder: str, units: int, boot_seconds: float, idle_seconds: float, target_seconds: float
) -> tuple[float, float]:
    """Run it; when it began and ended."""
    distributed = importlib.import_module("distributed")
    deploy = importlib.import_module("distributed.deploy.spec")

    class Machine(deploy.ProcessInterface):  # type: ignore[misc,name-defined]  # Dask is not imported for mypy
        """A machine with a worker of one thread."""

        _count = 0

        def __init__(self, scheduler: str, name: Any = None) -> None:
            self._scheduler, self._name = scheduler, str(name)
            type(self)._count += 1
            self._unit = f"machine-{self._count}"  # a name may come again
            super().__init__()

        async def start(self) -> None:
            words = ["-m", "distributed.cli.dask_worker", self._scheduler, "--name", self._name]
            command = [sys.executable, *words, "--nthreads", "1", "--no-dashboard", "--no-nanny"]
            unit_machine.start(self._unit, folder, str(boot_seconds), command)
            await super().start()

        async def close(self) -> None:
            unit_machine.stop(self._unit, folder)
            await super().close()

    scheduler = {"cls": distributed.Scheduler, "options": {"dashboard": False, "host": "127.0.0.1"}}
    worker = {"cls": Machine, "options": {}}
    with distributed.SpecCluster(scheduler=scheduler, worker=worker, silence_logs=40) as cluster:
        count = max(1, round(idle_seconds / INTERVAL_SECONDS))
        cluster.adapt(minimum=0, maximum=units, wait_count=count, target_duration=f"{target_seconds}s")
        with distributed.Client(cluster) as client:
            began = time.monotonic()
            # With the default, Dask would answer a repeated call from memory.
            submit = functools.partial(client.submit, pure=False)
            impossible = functools.partial(submit, resources={"GPU": 1})
            futures, kept = run_stages(submit, impossible, os.path.join(folder, NOTES), began)
            ended = time.monotonic()
            client.gather(futures)
            client.cancel(kept, force=True)
    return began, ended
