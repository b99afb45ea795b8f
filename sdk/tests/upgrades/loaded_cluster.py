"""A cluster of real programs that clients keep busy while its scheduler is replaced, or lost."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from quiet_addresses import quiet_address
from upgrades.loading_client import DEADLINE_SECONDS, LOAD, LoadingClient
from upgrades.version_skew import Build


class Cluster:
    """Programs of several versions, and a scheduler at one of the addresses that they have."""

    def __init__(self, stack: ExitStack, folder: Path, other_address: str = "") -> None:
        self.address = quiet_address()
        self.addresses = f"{self.address},{other_address}" if other_address else self.address
        self._stack, self._folder = stack, folder
        self._monitor = f"ipc://{folder}/monitor"
        self.provision_log = str(folder / "provision.log")
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
        self._start(build, "scaler.worker", self.addresses, "-n", "2", "-ll", "ERROR")

    def start_provisioner(self, build: Build, *options: str) -> subprocess.Popen[bytes]:
        return self._start(build, "scaler.provision", self.addresses, *options, "--logging-paths", self.provision_log)

    def start_client(self, build: Build) -> LoadingClient:
        self._clients += 1
        command = [sys.executable, str(LOAD), self.addresses, str(self._folder), str(self._clients)]
        client = LoadingClient(command, self._folder / f"once-{self._clients}", build.environment())
        self._stack.callback(client.kill)
        return client

    def replace_scheduler(self, build: Build, number: int, exit_code: int) -> None:
        self.scheduler.send_signal(number)
        assert self.scheduler.wait(DEADLINE_SECONDS) in (0, exit_code)  # earlier releases do not know SIGUSR1
        self.start_scheduler(build)
