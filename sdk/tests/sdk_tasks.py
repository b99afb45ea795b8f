"""Functions that tests submit, found by name in this process and in the workers'; and how tests wait."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Callable, List


def identity(value: Any) -> Any:
    return value


def wait_for_file(path: str, running: str = "", seconds: float = 30.0) -> str:
    """Say that it runs, then wait until a file exists."""
    if running:
        Path(running).touch()
    deadline = time.monotonic() + seconds
    while not os.path.exists(path):
        assert time.monotonic() < deadline, "the file was not created"
        time.sleep(0.005)
    return path


def wait_until(path: Path, seconds: float = 30.0) -> None:
    """In a test: wait until a task has made the file."""
    wait_for_file(str(path), seconds=seconds)


def wait_for(is_so: Callable[[], Any], what: str, seconds: float = 60.0) -> None:
    """In a test: wait for what has no event."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        time.sleep(0.005)


def notes_of(error: BaseException) -> List[str]:
    """The notes of an exception, which Python has from 3.11 on."""
    return list(getattr(error, "__notes__", []))
