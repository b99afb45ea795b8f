"""`scaler_scheduler ping` says whether a scheduler serves, and does not bother it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest
from quiet_addresses import quiet_address
from scheduler_process import SchedulerProcess

pytestmark = pytest.mark.usefixtures("folders")
TIMEOUT_SECONDS = 60
WITHOUT_LOCAL_SOCKET = "tcp://127.0.0.2:0"


@pytest.fixture
def scheduler(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SchedulerProcess]:
    address = getattr(request, "param", "tcp://127.0.0.1:0")
    running = SchedulerProcess(sys.executable, tmp_path / "address", address, "-ma", "tcp://127.0.0.1:0")
    running.wait_until_ready()
    yield running
    running.close()


def ping(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "scaler_appliance", "ping", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )


@pytest.mark.parametrize(
    ("scheduler", "how"),
    [("tcp://127.0.0.1:0", "by a local socket"), (WITHOUT_LOCAL_SOCKET, "encrypted")],
    indirect=["scheduler"],
)
def test_a_scheduler_that_serves_answers_and_logs_nothing(scheduler: SchedulerProcess, how: str) -> None:
    scheduler.wait_for_output("StatusReporter: started")
    before = scheduler.output()
    finished = ping(scheduler.address)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout.startswith(f"the scheduler at {scheduler.address} answered after ")
    assert finished.stdout.endswith(f" ms, {how}\n")

    # When it has stopped, it has read the end of every connection.
    scheduler.process.send_signal(signal.SIGTERM)
    assert scheduler.wait_for_end() == 0
    added = scheduler.output()[len(before) :].splitlines()
    assert [line for line in added if "shutting down" not in line and "stopped" not in line] == []


def test_without_an_address_it_asks_the_scheduler_of_this_user_on_this_host(scheduler: SchedulerProcess) -> None:
    assert f"the scheduler at {scheduler.address} answered" in ping().stdout


def test_without_any_scheduler_it_says_what_to_do() -> None:
    finished = ping()
    assert finished.returncode == 2
    assert "no scheduler of this user runs on this host" in finished.stderr


def test_a_scheduler_that_stands_still_does_not_answer(scheduler: SchedulerProcess) -> None:
    scheduler.process.send_signal(signal.SIGSTOP)
    try:
        finished = ping(scheduler.address, "--timeout-seconds", "0.2")
    finally:
        scheduler.process.send_signal(signal.SIGCONT)
    assert finished.returncode == 1
    assert finished.stderr.endswith(" did not answer within 0.2 s\n")


def test_where_nothing_listens_it_says_so() -> None:
    address = quiet_address()
    finished = ping(address, "--insecure")
    assert finished.returncode == 1
    assert finished.stderr.startswith(f"scaler_scheduler ping: nothing listens at {address} ")


@pytest.mark.parametrize("scheduler", [WITHOUT_LOCAL_SOCKET], indirect=True)
def test_a_program_without_a_key_learns_that_it_needs_one(scheduler: SchedulerProcess, tmp_path: Path) -> None:
    elsewhere = {"SCALER_KEY_DIRECTORY": str(tmp_path / "others"), "SCALER_RUN_DIRECTORY": str(tmp_path / "nothing")}
    finished = ping(scheduler.address, **elsewhere)
    assert finished.returncode == 1
    assert "there is no key for the scheduler at" in finished.stderr
    finished = ping(scheduler.address, "--insecure", **elsewhere)
    assert finished.returncode == 1
    assert "requires keys" in finished.stderr
