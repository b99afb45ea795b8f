"""Copies object files from memory to disk, while the scheduler continues.

    loop ── object id ──▶ thread: copy, piece by piece ── outcome ──▶ loop: put a link in the file's place

Rules:
- The thread only makes copies and deletes files on disk, which also takes long. The event loop decides whether a copy
  is still wanted and replaces the file, so that an object that is removed in the meantime leaves no files.
- One copy at a time, because more would not make a disk faster.
- A system without room for a thread costs the copy that was asked for, and the next one tries again.
"""

from __future__ import annotations

import errno
import os
import queue
import threading
from contextlib import suppress
from typing import Callable, NamedTuple, Optional, Set, Union

from scaler_protocol.host.segments import ObjectDirectory
from scaler_protocol.host.spill import copy_file, unique_name

CLOSE_TIMEOUT_SECONDS = 2.0


class Copied(NamedTuple):
    """The outcome for one object."""

    object_id: int
    name: str  # of the complete copy in the directory on disk; empty: there is none
    error: Optional[OSError]  # None without a copy: it was no longer wanted


class Spiller:
    """A thread that copies files from an object directory to the one on disk that belongs to it.

    Parameters:
        on_copied: called with each outcome, on that thread, or on the caller's if there is no room for one.
    """

    def __init__(self, directory: ObjectDirectory, on_copied: Callable[[Copied], None]) -> None:
        assert directory.spill is not None
        self._directory = directory
        self._target = directory.spill.path
        self._on_copied = on_copied
        self._wanted: Set[int] = set()
        self._queue: queue.SimpleQueue[Union[int, str, None]] = queue.SimpleQueue()  # to copy, to delete, to end
        self._thread: Optional[threading.Thread] = None

    def spill(self, object_id: int) -> None:
        self._wanted.add(object_id)
        try:
            self._put(object_id)
        except (RuntimeError, MemoryError) as error:
            self._on_copied(Copied(object_id, "", OSError(errno.EAGAIN, f"no room for a thread: {error}")))

    def delete(self, path: str) -> None:
        """Delete a file on disk, after earlier requests."""
        try:
            self._put(path)
        except (RuntimeError, MemoryError):
            _delete(path)

    def _put(self, what: Union[int, str]) -> None:
        """Raises RuntimeError or MemoryError if there is no thread, nor room for one."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="scaler-spill", daemon=True)
            thread.start()
            self._thread = thread
        self._queue.put(what)

    def forget(self, object_id: int) -> None:
        """An object is removed: its copy is no longer wanted."""
        self._wanted.discard(object_id)

    def close(self) -> None:
        """Stop, if necessary in the middle of a file, without waiting for a disk that does not respond."""
        self._wanted.clear()
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT_SECONDS)

    def _run(self) -> None:
        while True:
            what = self._queue.get()
            if what is None:
                return
            if isinstance(what, str):
                _delete(what)
            elif what in self._wanted:
                self._on_copied(self._copy(what))

    def _copy(self, object_id: int) -> Copied:
        name = unique_name()
        source, target = self._directory.object_path(object_id), os.path.join(self._target, name)
        try:
            is_whole = copy_file(source, target, lambda: object_id in self._wanted)
        except OSError as error:
            return Copied(object_id, "", error)
        return Copied(object_id, name if is_whole else "", None)


def _delete(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
