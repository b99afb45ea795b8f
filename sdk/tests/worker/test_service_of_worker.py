"""scaler_cluster as a service: it notifies the service manager, and nothing that it starts does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Iterator, List

import psutil
import pytest
from played_service_manager import PlayedServiceManager
from sdk_tasks import wait_for

from scaler import Client, Scheduler, SchedulerClusterCombo
from scaler_protocol.programs.service_manager import VARIABLES

TIMEOUT_SECONDS = 30.0
WATCHDOG_SECONDS = 0.6
PROGRAM = Path(sys.executable).with_name("scaler_cluster")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Scheduler(logging_level="WARNING") as scheduler:
        yield scheduler.get_address()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[PlayedServiceManager]:
    made = PlayedServiceManager(str(tmp_path / "notify"))
    yield made
    made.close()


@pytest.fixture
def service(address: str, manager: PlayedServiceManager) -> Iterator[psutil.Process]:
    """The main process of a worker that has connected."""
    command = [str(PROGRAM), address, "-n", "1", "-ll", "WARNING"]
    environment = {**os.environ, **manager.environment(WATCHDOG_SECONDS), "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment)
    assert manager.take_other() == ["READY=1", f"STATUS=connecting to {address}"]
    assert manager.take_other() == [f"STATUS=connected to {address}"]
    yield psutil.Process(process.pid)
    process.kill()
    process.wait()


def variables_of_task() -> List[str]:
    return [name for name in VARIABLES if name in os.environ]


def variables_of_command() -> List[str]:
    code = "import os; print(' '.join(os.environ))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    return [name for name in VARIABLES if name in found]


def test_a_worker_gives_signs_of_life_and_its_tasks_know_nothing_of_the_service_manager(
    address: str, service: psutil.Process, manager: PlayedServiceManager
) -> None:
    with Client(address=address) as client:
        assert client.submit(variables_of_task).result() == []
        assert client.submit(variables_of_command).result() == []
    manager.drain()
    senders = {manager.take_with_sender()[1] for _ in range(3)}
    (agent,) = service.children()
    assert senders == {agent.pid}, "it is the agent whose loop has to go on"
    service.terminate()
    assert manager.take_other() == ["STOPPING=1", "STATUS=stopping: SIGTERM"]
    service.wait(TIMEOUT_SECONDS)


def test_a_frozen_agent_gives_no_sign_of_life(service: psutil.Process, manager: PlayedServiceManager) -> None:
    (agent,) = service.children()
    agent.suspend()
    wait_for(lambda: agent.status() == psutil.STATUS_STOPPED, "the agent to stop")
    manager.drain()
    assert manager.has_nothing(3 * WATCHDOG_SECONDS)
    agent.resume()
    manager.take_until("WATCHDOG=1")


def test_an_agent_that_was_killed_is_no_end_and_the_next_one_is_ready(
    address: str, service: psutil.Process, manager: PlayedServiceManager
) -> None:
    service.children()[0].kill()
    assert manager.take_other() == ["READY=1", f"STATUS=connecting to {address}"]
    assert manager.take_other() == [f"STATUS=connected to {address}"]
    manager.take_until("WATCHDOG=1")


def test_a_worker_says_that_its_scheduler_is_gone_and_ends_with_one_that_was_stopped(
    manager: PlayedServiceManager, tmp_path: Path
) -> None:
    with Scheduler(logging_level="ERROR") as scheduler:
        command = [str(PROGRAM), scheduler.get_address(), "-n", "1", "-ll", "ERROR"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env={**os.environ, **manager.environment()})
        manager.take_until(f"STATUS=connected to {scheduler.get_address()}")
    assert manager.take_until("STOPPING=1")[1] == "STATUS=stopping: the worker ended with code 0"
    assert process.wait(TIMEOUT_SECONDS) == 0


def test_a_local_cluster_of_a_service_does_not_notify_in_its_name(
    manager: PlayedServiceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in manager.environment(WATCHDOG_SECONDS).items():
        monkeypatch.setenv(name, value)
    with SchedulerClusterCombo(n_workers=1, logging_level="WARNING") as cluster:
        with Client(address=cluster.get_address()) as client:
            assert client.submit(variables_of_task).result() == []
    assert manager.has_nothing()
    assert os.environ["NOTIFY_SOCKET"] == manager.name, "it is the program's own"
