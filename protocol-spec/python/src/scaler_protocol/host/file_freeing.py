"""Removes large files without waiting until the system has given their memory back, which takes a second for 8 GiB.

    loop: open the file, take its name ── descriptor ──▶ thread: close it, and with it goes the last reference

Rules:
- The name is gone at once, as without a thread.
- Who has the file mapped keeps its bytes, as ever: they are freed when that one lets go of them.
- Any thread may remove files.
- Whatever is missing for this, a descriptor or a thread, costs time and nothing else: then the file is freed at once.
"""

from __future__ import annotations

import os
import queue
import threading
from contextlib import contextmanager, suppress
from typing import Iterator, Optional

from scaler_protocol.host.spill import remove_file

LARGE_BYTES = 16 * 1024 * 1024
"""From this size on: some two milliseconds."""
MOST_WAITING = 64  # files: each has a descriptor


class FileFreeing:
    """A thread that frees files, once there is one to free."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[int] = queue.SimpleQueue()  # descriptors
        self._thread: Optional[threading.Thread] = None
        self._null = -1
        self._starting = threading.Lock()

    def remove(self, path: str) -> None:
        """Remove an object's file, wherever it is.

        Raises FileNotFoundError if it does not exist, and other OSErrors.
        """
        with self.freed_later(path):
            remove_file(path)

    @contextmanager
    def freed_later(self, path: str) -> Iterator[None]:
        """The file that has this name is freed on the thread, if the block takes the name from it."""
        descriptor = -1
        with suppress(OSError, MemoryError):
            if os.stat(path).st_size >= LARGE_BYTES and self._queue.qsize() < MOST_WAITING:
                descriptor = os.open(path, os.O_RDONLY)
        try:
            yield
        finally:
            if descriptor >= 0:
                self._free(descriptor)

    def _free(self, descriptor: int) -> None:
        try:
            self._start()
        except (RuntimeError, OSError, MemoryError):
            os.close(descriptor)
        else:
            self._queue.put(descriptor)

    def close(self) -> None:
        """End the thread after the files that wait, without waiting for it. A later `remove` starts another one."""
        if self._thread is not None:
            self._thread = None
            self._queue.put(-1)

    def _start(self) -> None:
        """Raises RuntimeError, OSError or MemoryError if there is no thread, nor room for one."""
        with self._starting:
            if self._thread is None:
                if self._null < 0:
                    self._null = os.open(os.devnull, os.O_RDONLY)
                thread = threading.Thread(target=self._run, name="scaler-free", daemon=True)
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        while True:
            descriptor = self._queue.get()
            if descriptor < 0:
                return
            with suppress(OSError):
                os.dup2(self._null, descriptor)  # frees the file; PyPy's `close` would stop other threads meanwhile
            with suppress(OSError):
                os.close(descriptor)
