"""Object files on disk, for objects that do not fit in memory: links in an object directory.

    scaler-…/token
             0000000000000001          in memory: a file
             0000000000000002 ─┐       on disk: a link, through the link below
             spill ────────────┴────▶  scaler-…/token, 3fa9…

Rules:
- A file on disk is reached through a link with the object's name, so processes that open objects by name work
  unchanged. A file on disk is removed with its link.
- Free space is checked before a file is written, and files are written by `write`, never through a mapping: a full
  memory file system answers `write` with ENOSPC, and a mapping with SIGBUS.
- Partly written files of a killed writer are recognised by its `WriterLock`, which the system frees with the process.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Callable, Iterator, List, Sequence

from scaler_protocol.host import system
from scaler_protocol.host.segments import SPILL_NAME, is_lock_abandoned, names_in_parts, temporary_name, write_object
from scaler_protocol.wire.buffers import Buffer

LOCK_SUFFIX = "lock"
_COPY_BYTES = 1 << 20
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_RESERVED_PART = 64  # 1/64 stays free: other programs may get SIGBUS from a full file system
_MAXIMUM_RESERVED_BYTES = 64 << 20


class NoRoomError(OSError):
    """An object fits neither in memory nor on disk; the message says what to do."""


def is_about_room(error: OSError) -> bool:
    """Whether the error means that the file system, or the user's quota, is full."""
    return error.errno in _NO_ROOM


def has_room(directory: str, size: int) -> bool:
    """Whether the directory's file system keeps its reserve after `size` more bytes."""
    system = os.statvfs(directory)
    reserved_bytes = min(system.f_blocks * system.f_frsize // _RESERVED_PART, _MAXIMUM_RESERVED_BYTES)
    return size + reserved_bytes <= system.f_bavail * system.f_frsize


def make_room(path: str, size: int, prefers_disk: bool = False) -> bool:
    """Decide where to put a file of `size` bytes: if not in memory, `path` becomes a link to the disk.

    Returns whether it is on disk. Raises NoRoomError if the file fits in neither.
    """
    directory = os.path.dirname(path)
    spill = os.path.join(directory, SPILL_NAME)
    in_memory = not prefers_disk and has_room(directory, size)
    if not in_memory and os.path.isdir(spill) and has_room(spill, size):
        link_to_disk(path)
        return True
    if not in_memory and not (prefers_disk and has_room(directory, size)):
        raise _no_room(directory, size)
    return False


def link_to_disk(path: str) -> None:
    """Make `path` a link to a file on disk that does not exist yet: opening the link for writing creates it."""
    os.symlink(os.path.join(SPILL_NAME, unique_name()), path)


def write_where_room_is(path: str, parts: Sequence[Buffer]) -> int:
    """Like `write_object`: in memory, else on disk.

    Raises NoRoomError if the object fits in neither, and other OSErrors; no file is left then.
    """
    size = sum(map(len, parts))
    try:
        if not make_room(path, size):
            return write_object(path, parts)
    except NoRoomError:
        raise
    except OSError as error:  # another process has used the space since
        if not is_about_room(error):
            raise
        link_to_disk(path)
    try:
        return write_object(os.path.join(os.path.dirname(path), os.readlink(path)), parts)
    except OSError as error:
        os.unlink(path)
        if is_about_room(error) or isinstance(error, FileNotFoundError):  # no directory on disk
            raise _no_room(os.path.dirname(path), size) from error
        raise


def _no_room(directory: str, size: int) -> NoRoomError:
    places = [directory]
    spill = os.path.join(directory, SPILL_NAME)
    if os.path.isdir(spill):
        places.append(os.path.realpath(spill))
    free = " and ".join(f"{place} ({_free_bytes(place)} bytes free)" for place in places)
    return NoRoomError(
        errno.ENOSPC,
        f"no room for an object of {size} bytes in {free}: free memory or disk space there, delete objects (del,"
        " client.clear()), or start the scheduler with another --object-directory or --object-spill-directory",
    )


def _free_bytes(directory: str) -> int:
    try:
        found = os.statvfs(directory)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def unique_name() -> str:
    """A unique name of a file on disk; an object's own name could collide with that of its predecessor."""
    return os.urandom(12).hex()


def is_on_disk(path: str) -> bool:
    return os.path.islink(path)


def remove_file(path: str) -> None:
    """Remove an object's file, wherever it is.

    Raises FileNotFoundError if it does not exist.
    """
    try:
        target = os.path.join(os.path.dirname(path), os.readlink(path))
    except OSError:
        target = ""  # not a link
    if target:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(target)
    os.unlink(path)


def replace_by_link(path: str, target_name: str) -> None:
    """Replace a file in memory by a link to a complete file on disk; existing descriptors and mappings stay valid."""
    link = os.path.join(os.path.dirname(path), temporary_name())
    os.symlink(os.path.join(SPILL_NAME, target_name), link)
    try:
        os.rename(link, path)
    except BaseException:
        os.unlink(link)
        raise


def follow_to_disk(spilled: str, path: str) -> None:
    """Redirect a file that was shared in memory to disk, as its other name was. Both name it until both are removed.

    Raises OSError on failure, without changing anything.
    """
    name = unique_name()
    on_disk = os.path.join(os.path.dirname(path), SPILL_NAME, name)
    os.link(os.path.realpath(spilled), on_disk)
    try:
        replace_by_link(path, name)
    except BaseException:
        os.unlink(on_disk)
        raise


def share_file(path: str, target: str) -> None:
    """Give a file a second name in another object directory, without a copy: both name it until both are removed.

    Raises OSError if the two are on different file systems.
    """
    if not is_on_disk(path):
        os.link(path, target)
        return
    name = unique_name()
    on_disk = os.path.join(os.path.dirname(target), SPILL_NAME, name)
    os.link(os.path.realpath(path), on_disk)
    try:
        os.symlink(os.path.join(SPILL_NAME, name), target)
    except BaseException:
        os.unlink(on_disk)
        raise


def copy_file(source: str, target: str, is_wanted: Callable[[], bool]) -> bool:
    """Copy a file, as long as the copy is wanted, and return whether the copy is complete. Partial copies are removed.

    Raises OSError if the source cannot be read or the target cannot be written.
    """
    with open(source, "rb", buffering=0) as reading:
        size = os.fstat(reading.fileno()).st_size
        if not has_room(os.path.dirname(target), size):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.O_CLOEXEC, 0o600)
        is_whole = False
        try:
            with open(descriptor, "wb", buffering=0) as writing:
                while is_wanted():
                    piece = memoryview(reading.read(_COPY_BYTES) or b"")
                    if not len(piece):
                        is_whole = True
                        break
                    while len(piece):
                        piece = piece[writing.write(piece) :]
        finally:
            if not is_whole:
                os.unlink(target)
        return is_whole


class WriterLock:
    """Shows that the process that writes files with names beginning with `prefix` is alive.

    Raises OSError if the lock file cannot be created.
    """

    def __init__(self, prefix: str) -> None:
        self._path = f"{prefix}{LOCK_SUFFIX}"
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | system.O_CLOEXEC, 0o600)
        try:
            system.flock(self._descriptor, system.LOCK_EX)
            os.write(self._descriptor, b"held")
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give the files up. Idempotent."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError, MemoryError):
                os.unlink(self._path)
            descriptor, self._descriptor = self._descriptor, -1
            with contextlib.suppress(OSError):  # it is closed all the same
                os.close(descriptor)


def remove_orphans(directory: str) -> Iterator[None]:
    """Remove partly written files of killed writers from an object directory, some between two steps.

    Raises OSError.
    """
    dead: List[str] = []
    for names in names_in_parts(directory):
        prefixes = [name[: -len(LOCK_SUFFIX)] for name in names if name.endswith(f"-{LOCK_SUFFIX}")]
        dead += [each for each in prefixes if is_lock_abandoned(os.path.join(directory, f"{each}{LOCK_SUFFIX}"))]
        yield
    for names in names_in_parts(directory) if dead else ():
        for name in names:
            if name.startswith(tuple(dead)) and not name.endswith(LOCK_SUFFIX):
                _remove_if_there(os.path.join(directory, name))
        yield
    for prefix in dead:  # the locks last
        _remove_if_there(os.path.join(directory, f"{prefix}{LOCK_SUFFIX}"))


def _remove_if_there(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        remove_file(path)
