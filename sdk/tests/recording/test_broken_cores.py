"""Bugs in cores of ours, planted in real processes: nothing is lost, each wait ends, and they are repeated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Iterator, List

import faulty_client
import faulty_worker
import pytest
from sdk_tasks import identity, logged, wait_for

from scaler import Client, Cluster, Scheduler
from scaler.client.shell.client_replay import ClientReplay
from scaler.restarts import EXIT_BROKEN_INVARIANT
from scaler.worker.agent.core.task_flow import TaskFlow
from scaler.worker.agent.shell.agent_recording import INPUTS
from scaler.worker.agent.shell.agent_replay import AgentReplay
from scaler_protocol.recording.recording_file import Recording
from scaler_protocol.recording.replaying import CoreFailedError

TIMEOUT_SECONDS = 60.0
TASKS = 400


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Scheduler(logging_level="WARNING") as scheduler:
        yield scheduler.get_address()


def replayed(path: str) -> AgentReplay:
    with open(path, "rb") as file:
        replay = AgentReplay(Recording(file))
        replay.run()
    return replay


class Worker:
    """A supervised worker whose agent fails once."""

    def __init__(self, address: str, folder: Path, *options: str) -> None:
        self.log = folder / "log"
        script = [sys.executable, faulty_worker.__file__, str(folder / "marker"), address]
        command = [*script, "-n", "2", "--logging-paths", str(self.log), *options]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(TIMEOUT_SECONDS)


def test_a_worker_with_a_bug_is_replaced_and_no_task_is_lost(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "recording"
    with Worker(address, tmp_path, "--record", str(path)) as worker:
        with Client(address) as client:
            futures = [client.submit(identity, number) for number in range(TASKS)]
            assert [future.result(TIMEOUT_SECONDS) for future in futures] == list(range(TASKS))
        text = logged(worker.log)
        assert f"ended with code {EXIT_BROKEN_INVARIANT}, this process replaces it" in text
        assert f"a bug in the worker: it ends with exit code {EXIT_BROKEN_INVARIANT}" in text
        assert f"scaler replay {path}.failed" in text and "AssertionError: a planted fault" in text
        assert text.count("connected as session") == 2

    kept = f"{path}.failed"
    replay = replayed(kept)  # without the fault
    assert replay.last_input is not None and INPUTS[replay.last_input.kind - 1] == "on_frames"
    assert replay.digests > 0
    on_results = TaskFlow.on_results
    (tmp_path / "marker").unlink()
    monkeypatch.setattr(TaskFlow, "on_results", on_results)  # so that it is undone
    faulty_worker.plant(tmp_path / "marker")
    with pytest.raises(CoreFailedError, match="on_frames: AssertionError: a planted fault"):
        replayed(kept)


def test_a_worker_that_does_not_record_says_how_to(address: str, tmp_path: Path) -> None:
    with Worker(address, tmp_path) as worker, Client(address) as client:
        assert client.map(identity, range(TASKS)) == list(range(TASKS))
        wait_for(lambda: "this process replaces it" in logged(worker.log), "the worker was replaced")
        assert "start it with --record FILE to find out more" in logged(worker.log)
    assert {each.name.partition(".")[0] for each in tmp_path.iterdir()} == {"log", "marker"}


def run_client(address: str, where: str, **environment: str) -> List[str]:
    command = [sys.executable, faulty_client.__file__, address, where]
    variables = {**os.environ, **environment}
    run = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    assert run.returncode == 0, run.stderr
    assert "AssertionError: a planted fault" in run.stderr
    return run.stdout.splitlines()


@pytest.mark.parametrize("where", ["commands", "results", "effects"])
def test_a_client_with_a_bug_ends_its_futures_with_an_error_that_says_where(
    address: str, where: str, tmp_path: Path
) -> None:
    with Cluster(address, n_workers=1, logging_level="WARNING"):
        *facts, error = run_client(address, where, SCALER_RECORD=str(tmp_path / "recording-%p"))
    assert facts == ["results True", "errors True", "waits True"]
    (path,) = tmp_path.iterdir()
    assert path.name.endswith(".failed") and f"scaler replay {path}" in error
    assert "a bug in the client has ended this client (AssertionError: a planted fault)" in error
    with open(path, "rb") as file:
        replay = ClientReplay(Recording(file))
        replay.run()
    assert replay.digests > 0 and replay.core.next_task_id > 0


def test_a_client_that_does_not_record_says_how_to(address: str) -> None:
    with Cluster(address, n_workers=1, logging_level="WARNING"):
        *facts, error = run_client(address, "results")
    assert facts == ["results True", "errors True", "waits True"]
    assert "set SCALER_RECORD=FILE to find out more" in error
