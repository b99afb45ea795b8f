"""Object files: how peers on one host share large objects without sending them.

Rules:
- An object is one file, named after its id, in a directory that one process owns. It is written once, under a temporary
  name, then renamed: whoever sees the name sees the whole content.
- Readers map the file privately: what they write stays theirs, and costs memory only then. An unlinked file lives on
  for those who mapped it, so deleting never hurts a reader.
- The owner of a directory holds a lock on its `token` file. A directory whose lock is free was left by an owner that
  was killed, and the next owner to start removes it.
- Sharing is proven, not assumed: a peer that reads the token the scheduler sent it sees the same file system.
- What memory has no room for is on disk, behind a link (see `spill`).
"""

from __future__ import annotations

import fcntl
import itertools
import mmap
import os
import shutil
import tempfile
from typing import List, Optional, Sequence

from scaler_protocol.wire.buffers import Buffer, flat_view

TOKEN_NAME = "token"
SPILL_NAME = "spill"
_DIRECTORY_PREFIX = "scaler-"
_MAXIMUM_BUFFERS_PER_WRITE = 512  # below every system's IOV_MAX
_MAXIMUM_BYTES_PER_WRITE = 1 << 30
_temporary_numbers = itertools.count(1)


def object_name(object_id: int) -> str:
    """The file name of an object: its id in 16 hexadecimal digits."""
    return f"{object_id:016x}"


class ObjectDirectory:
    """A directory of object files that this process owns, made on the fastest file system there is.

    Parameters:
        parent: where to make it; by default `/dev/shm` (memory), else the system's temporary directory.

    Raises OSError when it cannot be made.
    """

    def __init__(self, parent: Optional[str] = None) -> None:
        self.spill: Optional[ObjectDirectory] = None
        parent = parent or default_parent()
        sweep_abandoned(parent)
        self.path = tempfile.mkdtemp(prefix=f"{_DIRECTORY_PREFIX}{os.getuid()}-", dir=parent)
        self.token = os.urandom(16)
        self._token_file = open(os.path.join(self.path, TOKEN_NAME), "xb", buffering=0)
        fcntl.flock(self._token_file, fcntl.LOCK_EX)
        self._token_file.write(self.token)

    def object_path(self, object_id: int) -> str:
        return os.path.join(self.path, object_name(object_id))

    def disown(self) -> None:
        """In a fork of the owner: the directory is to be abandoned as soon as the owner ends."""
        if self.spill is not None:
            self.spill.disown()
        self._token_file.close()

    def open_spill(self, parent: Optional[str] = None) -> ObjectDirectory:
        """Make a directory for what has no room in this one, unless there is one.

        Parameters:
            parent: where to make it, on disk; by default the system's temporary directory.

        Raises OSError when it cannot be made.
        """
        if self.spill is None:
            spill = ObjectDirectory(parent or tempfile.gettempdir())
            try:
                os.symlink(spill.path, os.path.join(self.path, SPILL_NAME))
            except OSError:
                spill.remove()
                raise
            self.spill = spill
        return self.spill

    def remove(self) -> None:
        """Remove the directory and everything in it, also what is on disk. Safe to call twice."""
        if self.spill is not None:
            self.spill.remove()
        shutil.rmtree(self.path, ignore_errors=True)
        self._token_file.close()


def default_parent() -> str:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()


def sweep_abandoned(parent: str) -> List[str]:
    """Remove this user's object directories whose owner is gone, and return their paths."""
    removed = []
    prefix = f"{_DIRECTORY_PREFIX}{os.getuid()}-"
    for name in os.listdir(parent):
        path = os.path.join(parent, name)
        if name.startswith(prefix) and is_lock_abandoned(os.path.join(path, TOKEN_NAME)):
            shutil.rmtree(path, ignore_errors=True)
            removed.append(path)
    return removed


def is_lock_abandoned(path: str) -> bool:
    """Whether a file is there that its owner had locked, and the owner has ended."""
    try:
        locked_file = open(path, "rb")
    except OSError:
        return False  # being made or being removed right now
    with locked_file:
        try:
            fcntl.flock(locked_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return os.fstat(locked_file.fileno()).st_size > 0  # an empty one belongs to an owner still starting


# SCL-OBJ-007
def shares_directory(path: str, token: bytes) -> bool:
    """Whether this process sees the same directory as the peer that named it."""
    if not path or not token:
        return False
    spill = os.path.join(path, SPILL_NAME)
    try:
        if os.path.islink(spill) and not os.access(os.path.join(spill, TOKEN_NAME), os.R_OK):
            return False  # it shares the memory and not the disk: a container
        with open(os.path.join(path, TOKEN_NAME), "rb") as token_file:
            return token_file.read(len(token) + 1) == token and os.access(path, os.W_OK)
    except (OSError, ValueError):  # the latter: what can be no path
        return False


def temporary_name() -> str:
    """A file name that no object and no other process uses."""
    return f"new-{os.getpid()}-{next(_temporary_numbers)}"


def write_object(path: str, parts: Sequence[Buffer]) -> int:
    """Write `parts` one after the other to a new file and return its size in bytes.

    Raises OSError when there is no room; nothing is left behind then.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        return _write_all(descriptor, [flat_view(part) for part in parts if len(part)])
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, views: List[memoryview]) -> int:
    total = 0
    while views:
        batch: List[memoryview] = []
        size = 0
        for view in views[:_MAXIMUM_BUFFERS_PER_WRITE]:
            batch.append(view[: _MAXIMUM_BYTES_PER_WRITE - size])
            size += len(batch[-1])
            if size >= _MAXIMUM_BYTES_PER_WRITE:
                break
        written = _write_some(descriptor, batch)
        total += written
        while written:
            if written >= len(views[0]):
                written -= len(views.pop(0))
            else:
                views[0] = views[0][written:]
                written = 0
    return total


def _write_some(descriptor: int, views: List[memoryview]) -> int:
    if hasattr(os, "writev"):
        return os.writev(descriptor, views)
    return os.write(descriptor, views[0])  # PyPy 3.9 has no writev


def map_object(path: str) -> memoryview:
    """A private view of a whole object file; the mapping lives as long as any view of it.

    Whoever writes to it changes a copy of those pages, which nobody else sees.

    Raises FileNotFoundError when the object does not exist (any more).
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY))
    finally:
        os.close(descriptor)


def read_chunk(path: str, offset: int, length: int) -> bytes:
    """Up to `length` bytes of an object file from `offset` on."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, length, offset)
    finally:
        os.close(descriptor)


def write_chunk(path: str, offset: int, chunk: Buffer) -> None:
    """Write one chunk of an object file that is being received; the file is made at the first one."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        view = flat_view(chunk)
        while len(view):
            written = os.pwrite(descriptor, view, offset)
            view = view[written:]
            offset += written
    finally:
        os.close(descriptor)
