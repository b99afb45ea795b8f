"""Clients and workers without an address: they find the scheduler of the same user on the same host."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest

from scaler import Client, Scheduler
from scaler.exceptions import SchedulerNotFoundError
from scaler_protocol.host.discovery import SCHEDULER, entries

TIMEOUT_SECONDS = 60


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else is found than what a test starts."""
    monkeypatch.setenv("SCALER_RUN_DIRECTORY", str(tmp_path / "run"))
    monkeypatch.delenv("SCALER_ADDRESS", raising=False)


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    with Scheduler(announce=True, logging_level="WARNING") as scheduler:
        yield scheduler


def address_of_nested_client() -> str:
    with Client() as client:
        assert client.submit(abs, -1).result() == 1
        return client._address


def test_client_and_workers_need_no_address(scheduler: Scheduler) -> None:
    command = [sys.executable, "-m", "scaler.worker", "-n", "1", "--exit-when-stdin-closes"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as worker, Client() as client:
        assert client._address == scheduler.get_address()
        assert client.submit(pow, 2, 10).result(TIMEOUT_SECONDS) == 1024
        assert worker.stdin is not None
        worker.stdin.close()


def test_a_client_inside_a_task_finds_the_scheduler_of_its_task(scheduler: Scheduler) -> None:
    command = [sys.executable, "-m", "scaler.worker", "-n", "1", "--exit-when-stdin-closes"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as worker, Client() as client:
        assert client.submit(abs, -1).result(TIMEOUT_SECONDS) == 1  # the worker has chosen its scheduler
        with Scheduler(announce=True, logging_level="WARNING") as newer:
            assert entries(SCHEDULER)[0].process_id == newer.pid
            future = client.submit(address_of_nested_client)
            assert future.result(TIMEOUT_SECONDS) == scheduler.get_address()
        assert worker.stdin is not None
        worker.stdin.close()


def test_a_local_cluster_is_its_programs_own() -> None:
    with Scheduler(logging_level="WARNING"):
        with pytest.raises(SchedulerNotFoundError, match="scaler dev"):
            Client()


def test_workers_without_any_scheduler_say_what_to_do() -> None:
    for module in ("scaler.worker.worker_program", "scaler.worker.supervisor"):
        program = f"import sys; from {module} import main; sys.exit(main())"
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
        assert ended.returncode == 2
        assert "no scheduler of this user runs on this host: start one with `scaler dev`" in ended.stderr
