"""Two minutes of the soak: a real cluster under mixed load and faults. `make soak` runs it for hours.

Two minutes are as long as some processes need for the trend of their memory to be judged. In `make test`, clients hold
back, since other tests run beside this one; `make test-all` has as many tasks as the cluster takes.

SCALER_SOAK_MINUTES and SCALER_SOAK_SEED in the environment change how long it takes, and repeat the plan of a run (not
its effects: the system's timing is its own).
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import List

import pytest

from scaler.cluster.appliance import PROGRAM_VARIABLE, scheduler_command

MINUTES = float(os.environ.get("SCALER_SOAK_MINUTES", 2.0))
MOST_A_SECOND = 8.0  # submissions of each client, some of which are of a hundred tasks
LEAST_FAULTS_PER_MINUTE = 3  # none of 15 000 plans has fewer
SEED = int(os.environ.get("SCALER_SOAK_SEED", time.time_ns() % 10**6))
START_AND_END_SECONDS = 240.0
SOAK = str(Path(__file__).parent)


@pytest.fixture
def load(request: pytest.FixtureRequest) -> List[str]:
    """The options for the load of this run of the tests."""
    is_exhaustive = "not exhaustive" not in request.config.getoption("-m")
    return [] if is_exhaustive else ["--most-a-second", str(MOST_A_SECOND)]


def command(report: Path, *options: str) -> List[str]:
    return [sys.executable, SOAK, "--seed", str(SEED), "--report", str(report), *options]


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds processes by /proc")
@pytest.mark.timeout(60 * MINUTES + 2 * START_AND_END_SECONDS)
def test_nothing_is_lost_doubled_wrong_or_left_over(load: List[str], tmp_path: Path) -> None:
    report = tmp_path / "report"
    options = ["--minutes", str(MINUTES), *load]
    soak = subprocess.Popen(command(report, *options), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        output, _ = soak.communicate(timeout=60 * MINUTES + START_AND_END_SECONDS)
    finally:
        soak.kill()
        soak.wait()
    assert soak.returncode == 0, output
    figures = json.loads(report.with_suffix(".json").read_text())
    assert figures["outcomes"] > 1000, "a soak that does little proves little"
    assert sum(figures["faults"].values()) > LEAST_FAULTS_PER_MINUTE * MINUTES, "a soak with few faults proves little"
    print(report.with_suffix(".md").read_text())


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds processes by /proc")
def test_a_soak_that_is_interrupted_reports_what_failed(tmp_path: Path) -> None:
    scheduler = f'echo "[ERROR]2026-03-19 12:16:10-0400: a planted error"; exec {shlex.join(scheduler_command())} "$@"'
    environment = {**os.environ, PROGRAM_VARIABLE: shlex.join(["sh", "-c", scheduler, "sh"])}
    report = tmp_path / "report"
    with subprocess.Popen(command(report), stdout=subprocess.PIPE, text=True, env=environment) as soak:
        assert soak.stdout is not None
        lines = iter(soak.stdout)
        assert any("VIOLATION" in line and "a planted error" in line for line in lines)
        soak.send_signal(signal.SIGINT)
        output = "".join(lines)
    assert soak.returncode == 1, output
    page = report.with_suffix(".md").read_text()
    assert "FAILED" in page and "a planted error" in page and f"Seed {SEED}" in page
    assert json.loads(report.with_suffix(".json").read_text())["seed"] == SEED
