"""scaler_cluster as users start it: processes that die are replaced, and those that are asked to stop do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Iterator, List

import psutil
import pytest
from sdk_tasks import logged, wait_for

from scaler import Client, Scheduler
from scaler.restarts import EXIT_ERROR, Restarts
from scaler.worker.exit_codes import EXIT_NO_SCHEDULER, EXIT_USAGE

TIMEOUT_SECONDS = 30.0
PROGRAM = Path(sys.executable).with_name("scaler_cluster")


class Host:
    """A running scaler_cluster of one worker."""

    def __init__(self, address: str, log: Path) -> None:
        self.log = log
        command = [str(PROGRAM), address, "-n", "1", "--logging-paths", str(log)]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self.supervisor = psutil.Process(self.process.pid)

    def agent(self) -> psutil.Process:
        return self.supervisor.children()[0]

    def processes(self) -> List[psutil.Process]:
        return [self.supervisor, *self.supervisor.children(recursive=True)]

    def wait_for_line(self, text: str, count: int = 1) -> None:
        wait_for(lambda: logged(self.log).count(text) >= count, text)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Scheduler(logging_level="WARNING") as scheduler:
        yield scheduler.get_address()


@pytest.fixture
def host(address: str, tmp_path: Path) -> Iterator[Host]:
    """A host that has connected."""
    host = Host(address, tmp_path / "log")
    try:
        host.wait_for_line("connected as session")
        yield host
    finally:
        host.process.kill()
        host.process.wait()


def assert_that_it_serves(address: str) -> None:
    with Client(address=address) as client:
        assert client.submit(abs, -1).result(TIMEOUT_SECONDS) == 1


def assert_that_all_ended(processes: List[psutil.Process]) -> None:
    assert not psutil.wait_procs(processes, TIMEOUT_SECONDS)[1]


@pytest.mark.parametrize(("number", "name"), [(signal.SIGKILL, "SIGKILL"), (signal.SIGRTMIN + 3, "signal 37")])
def test_a_killed_agent_is_replaced(address: str, host: Host, number: int, name: str) -> None:
    agent = host.agent()
    agent.send_signal(number)
    host.wait_for_line("connected as session", 2)
    assert_that_it_serves(address)
    assert f"process {agent.pid} was killed by {name}, this process replaces it" in logged(host.log)
    assert host.process.poll() is None and host.agent().pid != agent.pid


def test_an_agent_whose_fork_server_was_killed_is_replaced(address: str, host: Host) -> None:
    agent = host.agent()
    agent.children()[0].kill()
    host.wait_for_line("connected as session", 2)
    assert_that_it_serves(address)
    assert f"process {agent.pid} ended with code {EXIT_ERROR}, this process replaces it" in logged(host.log)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_ends_all_of_it(host: Host, number: signal.Signals) -> None:
    processes = host.processes()
    host.process.send_signal(number)
    assert host.process.wait(TIMEOUT_SECONDS) == 0
    assert_that_all_ended(processes[1:])
    assert logged(host.log).count("connected as session") == 1


def test_a_supervisor_asked_to_stop_while_no_agent_runs_does_not_start_another(host: Host) -> None:
    os.kill(host.process.pid, signal.SIGSTOP)
    agent = host.agent()
    agent.kill()
    os.kill(host.process.pid, signal.SIGTERM)
    os.kill(host.process.pid, signal.SIGCONT)
    assert host.process.wait(TIMEOUT_SECONDS) in (0, 128 + signal.SIGKILL)
    assert logged(host.log).count("starting 1 worker with 1 slot,") == 1


def test_the_agent_ends_with_its_supervisor(host: Host) -> None:
    processes = host.processes()
    host.process.kill()
    assert_that_all_ended(processes)


def test_who_cannot_go_on_is_not_started_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [str(PROGRAM), "tcp://127.0.0.1:1", "-n", "1", "-ds", "0.2", "--logging-paths", str(log)]
    finished = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=TIMEOUT_SECONDS)
    assert finished.returncode == EXIT_NO_SCHEDULER
    assert logged(log).count("starting 1 worker with 1 slot,") == 1


def test_a_wrong_option_is_named_once() -> None:
    command = [str(PROGRAM), "tcp://127.0.0.1:1", "--nonsense"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    assert finished.returncode == EXIT_USAGE
    assert finished.stderr.count("--nonsense") == 1


def test_the_pause_grows_while_no_process_lasts_and_is_reset_when_one_has() -> None:
    restarts = Restarts()
    pauses = [restarts.pause_seconds(-signal.SIGKILL, 0.0) for _ in range(9)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    assert restarts.pause_seconds(-signal.SIGKILL, 60.0) == 0.1


def test_an_error_at_each_start_is_no_reason_to_go_on() -> None:
    restarts = Restarts()
    assert [restarts.pause_seconds(EXIT_ERROR, 0.0) is None for _ in range(5)] == [False] * 4 + [True]
    assert restarts.pause_seconds(EXIT_ERROR, 60.0) is not None
    assert restarts.pause_seconds(0, 60.0) is None and restarts.pause_seconds(EXIT_USAGE, 60.0) is None
