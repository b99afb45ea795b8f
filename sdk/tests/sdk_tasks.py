"""Functions that tests submit, found by name in this process and in the workers'; and how tests wait."""

from __future__ import annotations

import os
import signal
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


def logged(log: Path) -> str:
    """In a test: what programs have written to a log file, also before midnight, when it gets its date."""
    return "".join(each.read_text() for each in [*sorted(log.parent.glob(f"{log.name}.*")), log] if each.exists())


def notes_of(error: BaseException) -> List[str]:
    """The notes of an exception, which Python has from 3.11 on."""
    return list(getattr(error, "__notes__", []))


class Counter:
    """Counts, and remembers in which order it was called."""

    shared = "of the class"

    def __init__(self, start: int = 0) -> None:
        self.value = start
        self.order: List[int] = []

    def add(self, amount: int = 1) -> int:
        self.value += amount
        return self.value

    def note(self, number: int) -> None:
        self.order.append(number)

    def note_large(self, content: bytes) -> None:
        self.order.append(-1)

    async def add_later(self, amount: int) -> int:
        self.value += amount
        return self.value

    def fail(self, text: str) -> None:
        raise ValueError(text)

    def exit(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def process_id(self) -> int:
        return os.getpid()

    def keep(self, items: List[Any]) -> int:
        self.items = items
        return id(items)

    def large(self, size: int) -> bytes:
        return b"x" * size

    def size_of(self, content: bytes) -> int:
        return len(content)

    def wait_for(self, path: Path) -> None:
        (path.parent / "running").touch()
        while not path.exists():
            time.sleep(0.005)

    def close(self) -> str:
        return "its own"


class Broken:
    """Cannot be made."""

    def __init__(self) -> None:
        raise LookupError("no such model")

    def predict(self) -> None:
        raise AssertionError("there is no instance")
