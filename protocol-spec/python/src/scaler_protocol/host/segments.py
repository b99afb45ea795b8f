"""Object files: how peers on one host share large objects without sending them.

Rules:
- An object is one file, named after its id, in a directory that one process owns. It is written once, under a temporary
  name, then renamed: a file with an object's name is always complete.
- Readers map the file privately: their writes stay private, and use memory only then. An unlinked file lives on for
  the processes that mapped it, so deleting never affects a reader.
- The owner of a directory holds a lock on its `token` file. A directory whose lock is free was left by a killed owner,
  and the next owner to start removes it.
- It also shares a lock on the directory itself: systemd-tmpfiles, which removes what has not been used for some days
  from /tmp, passes over directories that are locked, and what is in them.
- Sharing is proven, not assumed: a peer that can read the scheduler's token at the path sees the same file system, and
  the owner of that file is the user whose files both can read.
- Objects that do not fit in memory are on disk, behind a link (see `spill`).
- Owners of one user that have the same object may have one file of it: it gets a name in each directory.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import mmap
import os
import shutil
import stat
import tempfile
import time
from typing import Iterator, List, Optional, Sequence

from scaler_protocol.host import system
from scaler_protocol.wire.buffers import Buffer, flat_view

TOKEN_NAME = "token"
SPILL_NAME = "spill"
NAMES_OF_A_PART = 512  # whose files are removed within 5 ms
_NONE = -1  # no descriptor
_SETTLED_NANOSECONDS = 1_000_000_000  # a file system counts time in steps: a change may follow with the same time
_MAXIMUM_BUFFERS_PER_WRITE = 512  # below IOV_MAX of every system
_MAXIMUM_BYTES_PER_WRITE = 1 << 30
_temporary_numbers = itertools.count(1)


def object_name(object_id: int) -> str:
    """The file name of an object: its id in 16 hexadecimal digits."""
    return f"{object_id:016x}"


class ObjectDirectory:
    """A directory of object files that this process owns, on the fastest file system available.

    Parameters:
        parent: where to create it; by default `/dev/shm` (memory), else the system's temporary directory.

    Raises OSError if it cannot be created.
    """

    def __init__(self, parent: Optional[str] = None) -> None:
        self.spill: Optional[ObjectDirectory] = None
        parent = os.path.abspath(parent or default_parent())  # peers and links read it from other folders
        for _ in remove_abandoned(parent):
            pass
        self.path = tempfile.mkdtemp(prefix=_prefix(), dir=parent)
        self.token = os.urandom(16)
        self._lock = _NONE
        try:
            self._token_file = self._locked_token_file()
            self._lock_directory()
        except BaseException:
            shutil.rmtree(self.path, ignore_errors=True)
            self._unlock_directory()
            raise

    def _lock_directory(self) -> None:
        self._unlock_directory()
        with contextlib.suppress(OSError, MemoryError):  # it does without: what is old may be removed
            self._lock = os.open(self.path, os.O_RDONLY | system.O_CLOEXEC)
            system.flock(self._lock, system.LOCK_SH | system.LOCK_NB)

    def _unlock_directory(self) -> None:
        lock, self._lock = self._lock, _NONE
        if lock != _NONE:
            with contextlib.suppress(OSError):  # it is closed all the same
                os.close(lock)

    def _locked_token_file(self) -> io.FileIO:
        token_file = open(os.path.join(self.path, TOKEN_NAME), "xb", buffering=0)
        try:
            system.flock(token_file, system.LOCK_EX)
            token_file.write(self.token)
        except BaseException:
            token_file.close()
            raise
        return token_file

    def restore(self) -> bool:
        """Make the directory again where another program has removed it; returns whether one had.

        systemd does that in /dev/shm when the user logs out (RemoveIPC in logind.conf), and what cleans up /tmp. The
        objects are lost, but others can be stored.

        Raises OSError if it cannot be made, also because another user has taken its name.
        """
        is_restored = self._restore_own()
        return (self.spill is not None and self.spill.restore()) or is_restored

    def _restore_own(self) -> bool:
        if self._token_file.closed or os.fstat(self._token_file.fileno()).st_nlink:
            return False  # it is there, or on a disk that is away and may come back
        try:
            os.mkdir(self.path, 0o700)
        except FileExistsError:
            if not _is_ours(self.path):
                raise
        if self.spill is not None and not os.path.lexists(os.path.join(self.path, SPILL_NAME)):
            os.symlink(self.spill.path, os.path.join(self.path, SPILL_NAME))
        try:
            made = self._locked_token_file()
        except FileExistsError:  # another thread has just done all this
            return False
        removed, self._token_file = self._token_file, made
        removed.close()
        self._lock_directory()
        return True

    def object_path(self, object_id: int) -> str:
        return os.path.join(self.path, object_name(object_id))

    def after_fork_in_child(self) -> None:
        """Called in a forked child: the directory is abandoned as soon as the owner ends."""
        if self.spill is not None:
            self.spill.after_fork_in_child()
        self._token_file.close()
        self._unlock_directory()

    def open_spill(self, parent: Optional[str] = None) -> ObjectDirectory:
        """Create a directory for objects that do not fit in this one, unless it exists.

        Parameters:
            parent: where to create it, on disk; by default the system's temporary directory.

        Raises OSError if it cannot be created.
        """
        if self.spill is None:
            spill = ObjectDirectory(parent or tempfile.gettempdir())
            try:
                os.symlink(spill.path, os.path.join(self.path, SPILL_NAME))
            except BaseException:
                spill.remove()
                raise
            self.spill = spill
        return self.spill

    def remove(self) -> None:
        """Remove the directory and its contents, including those on disk. Idempotent."""
        if self.spill is not None:
            self.spill.remove()
        shutil.rmtree(self.path, ignore_errors=True)
        self._token_file.close()
        self._unlock_directory()


def _prefix() -> str:
    """Of the names of this user's directories."""
    return f"scaler-{system.user_id()}-"


def default_parent() -> str:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()


def names_in_parts(directory: str) -> Iterator[List[str]]:
    """The names in a directory, some at a time. Raises OSError."""
    with os.scandir(directory) as entries:
        while names := [entry.name for entry in itertools.islice(entries, NAMES_OF_A_PART)]:
            yield names


class Neighbours:
    """The other object directories of this user beside one.

    Parameters:
        directory: its path.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._found: List[str] = []
        self._as_of_nanoseconds = -1  # when the last one was made or removed

    def link(self, name: str, size: int) -> bool:
        """Give a file in another directory this name here as well, if there is one.

        Its bytes are there once, until both files are removed. What is on disk, behind a link, is not found.

        Parameters:
            name: of the file in any of the directories, by which it is known to be whole.
            size: that it has, in bytes.

        Raises OSError if the directories cannot be listed.
        """
        for path in self._directories():
            with contextlib.suppress(OSError):  # it is not there, or on another file system
                if _link_file(os.path.join(path, name), os.path.join(self._directory, name), size):
                    return True
        return False

    def _directories(self) -> List[str]:
        """They are listed again when one has come or gone: to look at hundreds takes milliseconds."""
        parent, own = os.path.split(self._directory)
        changed_at = os.stat(parent).st_mtime_ns
        if changed_at != self._as_of_nanoseconds:
            is_settled = time.time_ns() - changed_at > _SETTLED_NANOSECONDS
            self._as_of_nanoseconds = changed_at if is_settled else -1
            prefix = _prefix()
            names = [each for found in names_in_parts(parent) for each in found if each.startswith(prefix)]
            paths = [os.path.join(parent, each) for each in names if each != own]
            self._found = [path for path in paths if _is_ours(path)]
        return self._found


def _is_ours(path: str) -> bool:
    """Whether this user has made a directory, so that no other one could put a file there."""
    try:
        found = os.lstat(path)
    except OSError:
        return False  # it has just gone
    return stat.S_ISDIR(found.st_mode) and found.st_uid == system.user_id()


def _link_file(source: str, target: str, size: int) -> bool:
    """Whether `source` is a file of this size, and `target` now, too. Raises OSError."""
    if not _is_file(source, size):
        return False
    os.link(source, target)
    if _is_file(target, size):
        return True
    os.unlink(target)  # a link to the disk has just taken its place: that is another owner's
    return False


def _is_file(path: str, size: int) -> bool:
    found = os.lstat(path)
    return stat.S_ISREG(found.st_mode) and found.st_size == size


def remove_abandoned(parent: str) -> Iterator[None]:
    """Remove this user's object directories whose owners have ended, some files between two steps. Raises OSError."""
    prefix = _prefix()
    for found in names_in_parts(parent):
        for path in [os.path.join(parent, name) for name in found if name.startswith(prefix)]:
            if not is_lock_abandoned(os.path.join(path, TOKEN_NAME)):
                continue
            with contextlib.suppress(OSError):  # another process may be removing the same
                for names in names_in_parts(path):
                    for name in names:
                        if name != TOKEN_NAME:  # by which the next sweep would recognise what is left
                            os.unlink(os.path.join(path, name))
                    yield
            shutil.rmtree(path, ignore_errors=True)
        yield


def is_lock_abandoned(path: str) -> bool:
    """Whether the file exists and its owner, which had locked it, has ended."""
    try:
        locked_file = open(path, "rb")
    except OSError:
        return False  # just being created or removed
    with locked_file:
        try:
            system.flock(locked_file, system.LOCK_EX | system.LOCK_NB)
        except OSError:
            return False
        return os.fstat(locked_file.fileno()).st_size > 0  # an empty file belongs to an owner that is starting


# SCL-OBJ-007
def shares_directory(path: str, token: bytes) -> bool:
    """Whether this process sees the same directory as the peer that named it, and is of the same user.

    Root, which may write to any user's directory, would leave files there that this user cannot read.
    """
    if not path or not token:
        return False
    spill = os.path.join(path, SPILL_NAME)
    try:
        if os.path.islink(spill) and not os.access(os.path.join(spill, TOKEN_NAME), os.R_OK):
            return False  # a container that shares the memory but not the disk
        with open(os.path.join(path, TOKEN_NAME), "rb") as token_file:
            if os.fstat(token_file.fileno()).st_uid != system.user_id():
                return False
            return token_file.read(len(token) + 1) == token and os.access(path, os.W_OK)
    except (OSError, MemoryError, ValueError):  # ValueError: the path is malformed
        return False


def temporary_name() -> str:
    """A unique file name that no object uses."""
    return f"new-{os.getpid()}-{next(_temporary_numbers)}"


def write_object(path: str, parts: Sequence[Buffer]) -> int:
    """Write `parts` one after the other to a new file and return its size in bytes.

    Raises OSError if there is no room; no file is left then.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.O_CLOEXEC, 0o600)
    try:
        try:
            return _write_all(descriptor, [flat_view(part) for part in parts if len(part)])
        finally:
            os.close(descriptor)  # may fail as well
    except BaseException:
        os.unlink(path)
        raise


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

    Writing to the view modifies a private copy of the pages.

    Raises FileNotFoundError if the object does not exist (any more).
    """
    descriptor = os.open(path, os.O_RDONLY | system.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY))
    finally:
        os.close(descriptor)


def read_chunk(path: str, offset: int, length: int) -> bytes:
    """Up to `length` bytes of an object file, starting at `offset`."""
    descriptor = os.open(path, os.O_RDONLY | system.O_CLOEXEC)
    try:
        chunk = os.pread(descriptor, length, offset)
        while 0 < len(chunk) < length:
            more = os.pread(descriptor, length - len(chunk), offset + len(chunk))
            if not more:
                break  # the end of the file
            chunk += more
        return chunk
    finally:
        os.close(descriptor)


def read_chunk_into(path: str, offset: int, memory: memoryview) -> int:
    """Fill `memory` from an object file, starting at `offset`; returns the number of bytes, fewer at the file's end.

    Raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | system.O_CLOEXEC)
    try:
        size = 0
        while size < len(memory):
            count = _read_some(descriptor, memory[size:], offset + size)
            if not count:
                break
            size += count
        return size
    finally:
        os.close(descriptor)


def _read_some(descriptor: int, memory: memoryview, offset: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [memory], offset)
    chunk = os.pread(descriptor, len(memory), offset)  # PyPy 3.9 has no preadv
    memory[: len(chunk)] = chunk
    return len(chunk)


def write_chunk(path: str, offset: int, chunk: Buffer, is_first: bool = True) -> None:
    """Write one chunk of an object file that is being received; the first chunk creates the file.

    Raises OSError; FileNotFoundError if it is not the first one, and the file is gone.
    """
    create = os.O_CREAT if is_first else 0
    descriptor = os.open(path, os.O_WRONLY | create | system.O_CLOEXEC, 0o600)
    try:
        view = flat_view(chunk)
        while len(view):
            written = os.pwrite(descriptor, view, offset)
            view = view[written:]
            offset += written
    finally:
        os.close(descriptor)
