"""Classes that tests make actors of."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, List


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
