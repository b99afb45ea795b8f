"""The staged load on Scaler: a scheduler, and `scaler_provision` with three commands for its units."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

from elastic.staged_load import run_stages
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
            impossible = client.options(capabilities={"gpu": 1}).submit
            futures, kept = run_stages(client.submit, impossible, os.path.join(folder, NOTES), began)
            ended = time.monotonic()
            for each in futures:
                each.result(0.0)
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
