"""`scaler replay FILE` repeats what a scheduler has recorded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from scaler import Client
from scaler.cluster.cluster import Cluster
from scaler.cluster.scheduler import SchedulerProcess

REPLAY = [sys.executable, "-m", "scaler.programs", "replay"]


def test_a_recording_is_repeated(tmp_path: Path) -> None:
    path = tmp_path / "recording"
    options = ["tcp://127.0.0.1:0", "--exit-when-stdin-closes", "--record", str(path), "-ll", "WARNING"]
    with SchedulerProcess(options) as scheduler:
        assert isinstance(scheduler, SchedulerProcess)
        with Cluster(address=scheduler.get_address(), n_workers=1, logging_level="WARNING"):
            with Client(scheduler.get_address()) as client:
                assert client.map(abs, range(-100, 0)) == list(range(100, 0, -1))

    finished = subprocess.run([*REPLAY, str(path)], capture_output=True, text=True, timeout=60)
    assert finished.returncode == 0, finished.stderr
    assert "digests_compared" in finished.stdout and "clients: 0\n" in finished.stdout


def test_what_cannot_be_repeated_is_said(tmp_path: Path) -> None:
    finished = subprocess.run([*REPLAY, str(tmp_path / "missing")], capture_output=True, text=True, timeout=60)
    assert finished.returncode == 1 and "No such file" in finished.stderr
