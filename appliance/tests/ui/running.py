"""scaler_ui as a real process, and a played scheduler that it may watch.

Rule: every wait is for an event, with a deadline that fails the test.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Optional
from urllib.parse import urlsplit

from feed.played_status import PlayedScheduler, Publisher

DEADLINE_SECONDS = 30.0
MODULE = ["-m", "scaler_appliance.ui"]


class Program:
    """A scaler_ui that runs, and is announced in a folder of its own."""

    def __init__(self, interpreter: str, folder: Path, *arguments: str, **environment: str) -> None:
        environment = {"SCALER_RUN_DIRECTORY": str(folder / "run"), **environment}
        self.headers: Dict[str, str] = {}  # of each request
        self._link_file = folder / f"link-{time.monotonic_ns()}"
        self.process = subprocess.Popen(
            [interpreter, *MODULE, *arguments, "--link-file", str(self._link_file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )

    @property
    def link(self) -> str:
        """Waits until it is there."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not self._link_file.exists():
            assert self.process.poll() is None, self.output()
            assert time.monotonic() < deadline, "it does not listen"
            time.sleep(0.01)
        return self._link_file.read_text().strip()

    def connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.link)
        return http.client.HTTPConnection("127.0.0.1", parts.port or 80, timeout=DEADLINE_SECONDS)

    def get(self, path: str, headers: Optional[Dict[str, str]] = None) -> Any:
        connection = self.connect()
        try:
            connection.request("GET", path, headers={**self.headers, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def wait_for(self, path: str, is_wanted: Callable[[Any], bool]) -> Any:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            found = json.loads(self.get(path)[1])
            if is_wanted(found):
                return found
            assert time.monotonic() < deadline, found
            time.sleep(0.05)

    def open_events(self, path: str) -> http.client.HTTPResponse:
        connection = self.connect()
        connection.request("GET", path, headers=self.headers)
        return connection.getresponse()

    def output(self) -> str:
        return self.process.communicate(timeout=DEADLINE_SECONDS)[0]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=DEADLINE_SECONDS)


def event(answer: http.client.HTTPResponse) -> Any:
    while True:
        line = answer.readline()
        assert line, "the stream ended"
        if line.startswith(b"data: "):
            return json.loads(line[len(b"data: ") :])


class Publishing:
    """A played scheduler that publishes ten times a second, until it is closed."""

    def __init__(self, address: str, scheduler: PlayedScheduler) -> None:
        self._publisher = Publisher(address, scheduler)
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_closing.wait(0.1):
            self._publisher.publish()

    def close(self) -> None:
        self._is_closing.set()
        self._thread.join()
        self._publisher.close()
