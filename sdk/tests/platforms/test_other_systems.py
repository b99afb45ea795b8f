"""The client, and on macOS the local cluster, use nothing that only Linux has.

A program of everyday uses runs in processes from which the facilities of Linux are taken (`taken_away`). The systems
themselves are in the workflow's matrix.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List

import psutil
import pytest
from sdk_tasks import identity

from scaler import Client

HERE = Path(__file__).parent

EXPECTED = {
    "map": "True",
    "large": "True",
    "object": "True",
    "graph": "{'c': 4}",
    "nested": "4",
    "error": "ValueError",
    "cancelled": "True True",
    "limit": "TaskTimeoutError TaskTimeoutError",
    "shipped": "42",
    "output": "['hello\\n']",
}


def run_on(platform: str, *arguments: str, **variables: str) -> Dict[str, str]:
    """What a program printed that ran as if on another system: lines by their first word."""
    environment = {**os.environ, **variables, "SCALER_TEST_PLATFORM": platform}
    environment["PYTHONPATH"] = str(HERE / "taken_away")
    command = [sys.executable, str(HERE / "everyday.py"), *arguments]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110)
    lines: List[List[str]] = [line.split(" ", 1) for line in ran.stdout.splitlines() if " " in line]
    assert ran.returncode == 0 and ran.stdout.endswith("done\n"), ran.stdout + ran.stderr
    assert EXPECTED.keys() <= {line[0] for line in lines}, ran.stdout + ran.stderr
    return {line[0]: line[1] for line in lines}


def test_a_local_cluster_runs_on_macos(tmp_path: Path) -> None:
    printed = run_on("macos", "cluster", TMPDIR=str(tmp_path))
    assert {name: printed[name] for name in EXPECTED} == EXPECTED
    assert printed["info"] == "2 1"
    assert printed["memory"] == "TaskMemoryLimitError TaskMemoryLimitError"
    assert _ends(int(printed["program"])), "what a task had started ended with the cluster"
    assert not [each for each in tmp_path.iterdir() if each.name.startswith("scaler-") and any(each.iterdir())]


def test_a_client_runs_on_windows(client: Client) -> None:
    printed = run_on("windows", "client", client._address)
    assert {name: printed[name] for name in EXPECTED} == EXPECTED
    assert client.submit(identity, 1).result() == 1


def _ends(process_id: int) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if psutil.Process(process_id).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("Client(address='ipc:///tmp/x')", "no Unix domain sockets: use an address tcp://HOST:PORT"),
        ("Client()", "give the address of one"),
        ("SchedulerClusterCombo()", "schedulers and workers run on Linux and macOS"),
    ],
)
def test_what_cannot_be_on_windows_is_named(statement: str, words: str, tmp_path: Path) -> None:
    environment = {**os.environ, "SCALER_TEST_PLATFORM": "windows", "PYTHONPATH": str(HERE / "taken_away")}
    environment["SCALER_RUN_DIRECTORY"] = str(tmp_path)
    command = [sys.executable, "-c", f"from scaler import Client, SchedulerClusterCombo; {statement}"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert words in ran.stderr
