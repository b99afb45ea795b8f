"""A scheduler is replaced by another version at the same address, under load: no future is lost by it.

Clients and workers of both versions go on. The newer version is a build of this tree whose protocol has grown (see
`version_skew`); `make dist-previous` adds the file of an earlier release.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence

import pytest
from quiet_addresses import quiet_address
from upgrades.loading_client import DEADLINE_SECONDS, LOAD, LoadingClient
from upgrades.version_skew import REPOSITORY, Build, newer_build, this_build

PREVIOUS = REPOSITORY / "dist/previous/scaler_scheduler"
CURRENT = REPOSITORY / "dist/pypy/scaler_scheduler"


class SingleFile(Build):
    """A scheduler as one file, in which its version is."""

    def __init__(self, path: Path) -> None:
        super().__init__(REPOSITORY)
        self._path = path

    def command(self, program: str, *arguments: str) -> List[str]:
        assert program == "scaler_appliance"
        return [str(self._path), *arguments]


def single_file(path: Path, command: str) -> SingleFile:
    """A file that was built before, if it was."""
    if not os.access(path, os.X_OK):
        pytest.skip(f"there is no {path.relative_to(REPOSITORY)}: {command}")
    return SingleFile(path)


class Cluster:
    """Programs of several versions at one address."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.address = quiet_address()
        self._stack, self._folder = stack, folder
        self._monitor = f"ipc://{folder}/monitor"
        self._clients = 0

    def _start(self, build: Build, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            build.command(program, *arguments), env=build.environment(), stdin=subprocess.DEVNULL
        )
        self._stack.callback(self._end, process)
        return process

    @staticmethod
    def _end(process: subprocess.Popen[Any]) -> None:
        process.kill()
        process.wait()

    def start_scheduler(self, build: Build) -> None:
        options = ["--monitor-address", self._monitor, "-ll", "WARNING"]
        self.scheduler = self._start(build, "scaler_appliance", self.address, *options)

    def start_worker(self, build: Build) -> None:
        self._start(build, "scaler.worker", self.address, "-n", "2", "-ll", "ERROR")

    def start_client(self, build: Build) -> LoadingClient:
        self._clients += 1
        command = [sys.executable, str(LOAD), self.address, str(self._folder), str(self._clients)]
        client = LoadingClient(command, self._folder / f"once-{self._clients}", build.environment())
        self._stack.callback(client.kill)
        return client

    def replace_scheduler(self, build: Build, number: int, exit_code: int) -> None:
        self.scheduler.send_signal(number)
        assert self.scheduler.wait(DEADLINE_SECONDS) in (0, exit_code)  # earlier releases do not know SIGUSR1
        self.start_scheduler(build)


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Build:
    return newer_build(tmp_path_factory.mktemp("newer"))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(stack, tmp_path)


def upgrade(
    cluster: Cluster,
    schedulers: Sequence[Build],
    peers: Sequence[Build],
    number: int,
    exit_code: int = 0,
    rounds: int = 2,
) -> List[Dict[str, Any]]:
    """Run these schedulers one after the other, under the load of a client and a worker of each peer's version.

    Parameters:
        number: of the signal that ends each of them.
        rounds: of work, for which each scheduler stays.
    """
    cluster.start_scheduler(schedulers[0])
    for build in peers:
        cluster.start_worker(build)
    clients = [cluster.start_client(build) for build in peers]
    for build in schedulers[1:]:
        for client in clients:
            client.wait_for_rounds(1)
        cluster.replace_scheduler(build, number, exit_code)
        for client in clients:
            client.wait_for_rounds(rounds)
    return [client.check() for client in clients]


def test_a_newer_scheduler_takes_over_from_an_older_one_and_an_older_one_again(newer: Build, cluster: Cluster) -> None:
    this = this_build()
    assert newer.version("scaler_appliance") != this.version("scaler_appliance")
    for found in upgrade(cluster, [this, newer, this], [this, newer], signal.SIGUSR1, rounds=1):
        assert found["right"] > 3 * 60
        assert found["once"], "tasks that may run at most once run, when their scheduler stays"


@pytest.mark.exhaustive
@pytest.mark.parametrize("peer", ["older", "newer"])
def test_a_scheduler_that_was_killed_is_replaced_by_another_version(newer: Build, cluster: Cluster, peer: str) -> None:
    this = this_build()
    peers = [this, this] if peer == "older" else [newer, newer]
    upgrade(cluster, [newer, this, newer, this, newer], peers, signal.SIGKILL, -signal.SIGKILL)


@pytest.mark.exhaustive
def test_many_restarts_in_a_row_lose_nothing(newer: Build, cluster: Cluster) -> None:
    this = this_build()
    upgrade(cluster, [this, newer] * 5, [this, newer, this], signal.SIGUSR1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGKILL])
def test_this_scheduler_takes_over_from_the_file_of_the_previous_release(cluster: Cluster, number: int) -> None:
    this, previous = this_build(), single_file(PREVIOUS, "make dist-previous TAG=...")
    upgrade(cluster, [previous, this], [this, this], number, -number)


@pytest.mark.exhaustive
def test_single_files_take_over_from_each_other(newer: Build, cluster: Cluster) -> None:
    this, previous = this_build(), single_file(PREVIOUS, "make dist-previous TAG=...")
    current = single_file(CURRENT, "make dist-pypy")
    upgrade(cluster, [previous, current, previous, current], [this, newer], signal.SIGUSR1, -signal.SIGUSR1)
