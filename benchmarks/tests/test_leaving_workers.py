"""A hundred busy workers that get SIGTERM, one after the other, while tasks are submitted all the time."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import leaving
import pytest

SIGNALS = 100


@pytest.mark.slow
@pytest.mark.exhaustive  # minutes: each signal is a worker that starts and ends
@pytest.mark.timeout(1800)
def test_nothing_is_lost_and_nothing_runs_twice_when_busy_workers_are_asked_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # where workers find the module of the tasks
    found = leaving.measure(SIGNALS, folder=str(tmp_path))
    print(found)
    assert found["of busy workers"] > SIGNALS // 2
    assert found["tasks"] > 10 * SIGNALS
    lost = ("tasks without their result", "tasks that never ran", "tasks that ran more than once")
    assert {name: found[name] for name in lost} == dict.fromkeys(lost, 0), found["faults"]
    assert found["exit codes"] == {"0": SIGNALS + leaving.WORKERS}
