"""A worker whose control group has memory for two of its four tasks goes on with two at once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable

from scaler import Client, SchedulerClusterCombo

GROUP_MIB = 330
TASK_MIB = 110
SLOTS, TASKS = 4, 8
TIMEOUT_SECONDS = 120.0


def hoard(folder: str, number: int) -> int:
    """Take memory little by little; a line says that it was tried."""
    with open(Path(folder) / "attempts", "a") as file:
        file.write(f"{number}\n")
    kept = []
    for _ in range(TASK_MIB):
        kept.append(b"x" * (1 << 20))
        time.sleep(0.003)
    return number


def test_tasks_that_were_killed_for_lack_of_memory_run_again_when_there_is_room(
    tmp_path: Path, make_group: Callable[[int], Path]
) -> None:
    group = make_group(GROUP_MIB)
    log = tmp_path / "log"
    with SchedulerClusterCombo(n_workers=0, logging_level="ERROR") as combo, open(log, "w") as output:
        program = [sys.executable, "-m", "scaler.worker", "-n", str(SLOTS), combo.get_address()]
        command = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", *program]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # with what this module imports
        with subprocess.Popen(command, env=environment, stdout=output, stderr=output) as worker:
            try:
                with Client(address=combo.get_address()) as client:
                    careful = client.options(retries=SLOTS)
                    futures = [careful.submit(hoard, str(tmp_path), number) for number in range(TASKS)]
                    assert [future.result(TIMEOUT_SECONDS) for future in futures] == list(range(TASKS))
            finally:
                worker.terminate()
    attempts = (tmp_path / "attempts").read_text().splitlines()
    assert TASKS < len(attempts) < TASKS + SLOTS, log.read_text()
    assert "was ended by signal 9 (SIGKILL) for lack of memory" in log.read_text()
    assert "memory is short, at most" in log.read_text()
