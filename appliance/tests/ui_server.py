"""A real `scaler_ui` for tests and screenshots, and a played cluster that it can show.

Rules: the server is a process of its own, at a free port; it says where it listens by a file; it ends with its standard
input at the latest.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Callable, Tuple

from feed.played_status import PlayedScheduler, Publisher

DEADLINE_SECONDS = 30.0


class UiServer:
    """`scaler_ui MONITOR_ADDRESS OPTIONS`, ready when this returns."""

    def __init__(self, folder: Path, monitor_address: str, *options: str) -> None:
        link_file = folder / "link"
        link_file.unlink(missing_ok=True)
        self._output = folder / "ui-output"
        command = [sys.executable, "-m", "scaler_appliance.ui", monitor_address, "--port", "0"]
        command += ["--link-file", str(link_file), "--exit-when-stdin-closes", *options]
        with open(self._output, "wb") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (link_file.exists() and link_file.read_text().endswith("\n")):
            assert self.process.poll() is None and time.monotonic() < deadline, self.output()
            time.sleep(0.02)
        self.url = link_file.read_text().strip()

    def output(self) -> str:
        return self._output.read_text()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(DEADLINE_SECONDS)


class PlayedCluster:
    """A synthetic scheduler that publishes in a thread; see `PlayedScheduler` for the parameters."""

    def __init__(self, address: str, interval_seconds: float, scheduler: PlayedScheduler) -> None:
        self.scheduler = scheduler
        self._interval = interval_seconds
        self._publisher = Publisher(address, self.scheduler)
        self.monitor_address = address
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._publish, daemon=True)
        self._thread.start()

    def _publish(self) -> None:
        while not self._ends.wait(self._interval):
            self._publisher.publish()

    def close(self) -> None:
        self._ends.set()
        self._thread.join(DEADLINE_SECONDS)
        self._publisher.close()


StartUi = Callable[..., UiServer]
Play = Callable[..., PlayedCluster]


def monitor_address_of(address: str) -> str:
    """Where a scheduler at `address` publishes unless told otherwise."""
    host, port = _split(address)
    return f"ipc:///tmp/{host}_{port}_monitor"


def _split(address: str) -> Tuple[str, str]:
    host, _, port = address.rpartition("://")[2].partition(":")
    return host, port
