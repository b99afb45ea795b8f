"""The staged load on Dask: a SpecCluster whose workers are machines, as those of dask-jobqueue are jobs, and Adaptive.

Rule: a machine counts as started as soon as it was asked for, which is how dask-jobqueue starts its jobs.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from typing import Any

from elastic import unit_machine
from elastic.staged_load import END_SECONDS, FUNCTIONS, STAGES
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
            impossible = _submit_stages(client, os.path.join(folder, NOTES), began)
            ended = time.monotonic()
            client.cancel(impossible, force=True)
    return began, ended


def _submit_stages(client: Any, notes: str, began: float) -> list[Any]:
    impossible: list[Any] = []
    all_futures: list[Any] = []
    clock = threading.Event()
    for stage in STAGES:
        clock.wait(max(0.0, began + stage.at - time.monotonic()))
        futures: dict[str, list[Any]] = {}
        for group in stage.groups:
            function, before = FUNCTIONS[group.name], futures.get(group.after, [])
            names = [f"{group.name}-{number}" for number in range(group.tasks)]
            futures[group.name] = [
                client.submit(function, notes, name, group.seconds, *before, pure=False) for name in names
            ]
            all_futures += futures[group.name]
        if stage.is_impossible:
            options = {"resources": {"GPU": 1}, "pure": False}
            impossible.append(client.submit(FUNCTIONS["six"], notes, "impossible", 1.0, **options))
    clock.wait(max(0.0, began + END_SECONDS - time.monotonic()))
    client.gather(all_futures)
    return impossible
