"""A cluster of real programs that clients keep busy while its scheduler is replaced, or lost."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Dict

from quiet_addresses import quiet_address
from upgrades.version_skew import Build

LOAD = Path(__file__).with_name("upgrade_load.py")
DEADLINE_SECONDS = 60.0


class LoadingClient:
    """A process with a client that keeps the cluster busy."""

    def __init__(self, build: Build, address: str, folder: Path, number: int) -> None:
        self._path = folder / f"once-{number}"
        self.process = subprocess.Popen(
            [sys.executable, str(LOAD), address, str(folder), str(number)],
            env=build.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def wait_for_rounds(self, count: int) -> None:
        """Wait until so many more rounds are done, of which the last one began after this call."""
        self._skip_lines()
        for _ in range(count):
            assert self._lines.get(timeout=DEADLINE_SECONDS) == "a round is done\n"

    def _skip_lines(self) -> None:
        try:
            while True:
                self._lines.get_nowait()
        except Empty:
            pass

    def finish(self) -> Dict[str, Any]:
        """What came of all its futures."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(DEADLINE_SECONDS) == 0
        self._reader.join(DEADLINE_SECONDS)
        lines = []
        while not self._lines.empty():
            lines.append(self._lines.get())
        found: Dict[str, Any] = json.loads(lines[-1])
        return found

    def check(self) -> Dict[str, Any]:
        """Each future has the right value; those that may fail have not run twice."""
        found = self.finish()
        assert not found["wrong"] and not found["failed"], found
        begun = Counter(map(int, self._path.read_text().split()))
        assert set(begun.values()) == {1}, "a task that may run at most once ran again"
        assert begun.keys() >= set(found["once"])
        return found


class Cluster:
    """Programs of several versions, and a scheduler at one of the addresses that they have."""

    def __init__(self, stack: ExitStack, folder: Path, other_address: str = "") -> None:
        self.address = quiet_address()
        self.addresses = f"{self.address},{other_address}" if other_address else self.address
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
        self._start(build, "scaler.worker", self.addresses, "-n", "2", "-ll", "ERROR")

    def start_client(self, build: Build) -> LoadingClient:
        self._clients += 1
        client = LoadingClient(build, self.addresses, self._folder, self._clients)
        self._stack.callback(self._end, client.process)
        return client

    def replace_scheduler(self, build: Build, number: int, exit_code: int) -> None:
        self.scheduler.send_signal(number)
        assert self.scheduler.wait(DEADLINE_SECONDS) in (0, exit_code)  # earlier releases do not know SIGUSR1
        self.start_scheduler(build)
