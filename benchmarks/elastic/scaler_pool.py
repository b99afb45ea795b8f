"""The staged load on Scaler: a scheduler, and `scaler_provision` with three commands for its units."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from elastic.staged_load import END_SECONDS, FUNCTIONS, STAGES
from elastic.unit_machine import NOTES

MACHINE = str(Path(__file__).resolve().parent / "unit_machine.py")
PROGRAM = "from scaler.programs.provision_host import main; import sys; sys.exit(main())"
STOP_SECONDS = 60.0


def run(
    folder: str, units: int, boot_seconds: float, idle_seconds: float, target_seconds: float
) -> tuple[float, float]:
    """Run it; when it began and ended."""
    from scaler import Client, Scheduler

    os.environ["SCALER_SCHEDULER_DEMAND_TARGET_SECONDS"] = str(target_seconds)
    with Scheduler(logging_level="WARNING") as scheduler, Client(address := scheduler.get_address()) as client:
        provisioner = _provisioner(address, folder, units, boot_seconds, idle_seconds)
        try:
            began = time.monotonic()
            kept = _submit_stages(client, os.path.join(folder, NOTES), began)
            ended = time.monotonic()
            for each in kept:
                each.cancel()
        finally:
            provisioner.terminate()
            provisioner.wait(STOP_SECONDS)
    return began, ended


def _provisioner(
    address: str, folder: str, units: int, boot_seconds: float, idle_seconds: float
) -> subprocess.Popen[bytes]:
    machine = f"{shlex.quote(sys.executable)} {shlex.quote(MACHINE)}"
    worker = f'{shlex.quote(sys.executable)} -m scaler.worker {address} -n 1 --unit "$UNIT_ID"'
    place = shlex.quote(folder)
    options = {
        "--maximum": str(units),
        "--idle-seconds": str(idle_seconds),
        "--adapter": "exec",
        "--start-command": f'{machine} start "$UNIT_ID" {place} {boot_seconds} {worker}',
        "--list-command": f"{machine} list {place}",
        "--stop-command": f'{machine} stop "$UNIT_ID" {place}',
        "--logging-paths": os.path.join(folder, "provisioner.log"),
    }
    words = [word for pair in options.items() for word in pair]
    return subprocess.Popen([sys.executable, "-c", PROGRAM, address, *words], stdin=subprocess.DEVNULL)


def _submit_stages(client: Any, notes: str, began: float) -> list[Any]:
    """Submit each stage at its time, and wait until the end; futures of tasks that cannot run."""
    impossible: list[Any] = []
    all_futures: list[Any] = []
    clock = threading.Event()
    for stage in STAGES:
        clock.wait(max(0.0, began + stage.at - time.monotonic()))
        futures: dict[str, list[Any]] = {}
        for group in stage.groups:
            function, before = FUNCTIONS[group.name], futures.get(group.after, [])
            names = [f"{group.name}-{number}" for number in range(group.tasks)]
            futures[group.name] = [client.submit(function, notes, name, group.seconds, *before) for name in names]
            all_futures += futures[group.name]
        if stage.is_impossible:
            options = client.options(capabilities={"gpu": 1})
            impossible.append(options.submit(FUNCTIONS["six"], notes, "impossible", 1.0))
    clock.wait(max(0.0, began + END_SECONDS - time.monotonic()))
    for each in all_futures:
        each.result(0.0)
    return impossible
