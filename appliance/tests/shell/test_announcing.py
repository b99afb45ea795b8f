"""The scheduler lets programs of the same user on this host find it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Callable

import pytest
from scheduler_process import SchedulerProcess

from scaler_protocol.host.discovery import SCHEDULER, entries

Start = Callable[..., SchedulerProcess]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SCALER_RUN_DIRECTORY", str(tmp_path / "run"))
    return tmp_path / "run"


def test_it_is_found_until_it_stops(folder: Path, start: Start) -> None:
    scheduler = start()
    (entry,) = entries(SCHEDULER)
    assert (entry.address, entry.process_id) == (scheduler.address, scheduler.process.pid)
    assert entry.details == {
        "monitor_address": scheduler.monitor_address,
        "key_directory": os.environ["SCALER_KEY_DIRECTORY"],
    }
    scheduler.process.send_signal(signal.SIGTERM)
    assert scheduler.wait_for_end() == 0
    assert os.listdir(folder) == []


def test_one_at_relative_paths_is_found_from_every_folder(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    start("--monitor-address", "ipc://m", address="ipc://s")
    (entry,) = entries(SCHEDULER)
    assert entry.address == f"ipc://{tmp_path}/s"
    assert entry.details["monitor_address"] == f"ipc://{tmp_path}/m"


def test_one_that_was_killed_is_not_found(folder: Path, start: Start) -> None:
    killed, running = start(), start()
    assert [entry.address for entry in entries(SCHEDULER)] == [running.address, killed.address]
    killed.process.kill()
    killed.process.wait()
    assert [entry.address for entry in entries(SCHEDULER)] == [running.address]
    assert len(os.listdir(folder)) == 1


def test_it_need_not_be_found(folder: Path, start: Start) -> None:
    start("--no-announce")
    assert entries(SCHEDULER) == [] and not folder.exists()


def test_a_folder_that_cannot_be_trusted_is_said_and_the_scheduler_works(folder: Path, start: Start) -> None:
    folder.mkdir(mode=0o755)
    scheduler = start()
    assert "it is not announced" in scheduler.output()
    assert "others can access it" in scheduler.output()
    scheduler.client()
