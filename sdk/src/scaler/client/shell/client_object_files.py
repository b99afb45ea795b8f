"""The content of a client's objects: in memory, or in files that are shared with the scheduler's host.

Rules:
- On the scheduler's host a large object is a file in the client's own directory, written once. The scheduler's
  directory gets a hard link, so that keeping it costs no memory and placing it again no copy. When the scheduler spills
  it to disk, the client links to that file.
- On other hosts its bytes stay in the client, and the scheduler fetches them chunk by chunk, as it fetches large
  results.
- Objects are stored by user threads; all else is the I/O thread's.
- Removing a large file takes longer than a round trip. So files are removed when no thread waits for it.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict, List, Optional, Union

from scaler.exceptions import ObjectStorageFullError
from scaler.values.payload import INLINE_BYTES, Buffer, Parts, join, parts_size
from scaler.values.texts import too_large
from scaler_protocol.host.segments import SPILL_NAME, ObjectDirectory, map_object, object_name, read_chunk
from scaler_protocol.host.segments import shares_directory as shares_directory
from scaler_protocol.host.spill import (
    NoRoomError,
    follow_to_disk,
    is_on_disk,
    remove_file,
    share_file,
    write_where_room_is,
)
from scaler_protocol.wire import messages as m

COMPARED_BYTES = 64 * 1024  # at once; copies of 128 KiB and more are made in memory that is new each time


class FileContent:
    """A file of this process, which is removed with the last reference to this object at the latest."""

    path = ""  # Ctrl-C may come before the file exists
    _owner = 0

    def __init__(self, path: str) -> None:
        self._owner = os.getpid()
        self.path = path

    def remove(self) -> None:
        path, self.path = self.path, ""
        if path and self._owner == os.getpid():  # and not a fork of it
            with contextlib.suppress(OSError, MemoryError):
                remove_file(path)

    def __del__(self) -> None:
        self.remove()


Content = Union[bytes, FileContent]


class ClientObjectFiles:
    """The files of one client."""

    def __init__(self, welcome: m.Welcome) -> None:
        self.own: Optional[ObjectDirectory] = None
        self._made: Dict[str, ObjectDirectory] = {}
        self._discarded: List[FileContent] = []  # that are still there
        self.start_session(welcome)

    def start_session(self, welcome: m.Welcome) -> None:
        """Share files with this scheduler from now on."""
        self._directory = welcome.object_directory
        self._maximum_object_bytes = welcome.limits.maximum_object_bytes
        self._is_shared = shares_directory(welcome.object_directory, welcome.object_directory_token)

    def store(self, parts: Parts, number: int) -> Content:
        """Keep the serialised parts of the object with this number. User threads.

        Raises ObjectStorageFullError when there is no room, or the object exceeds the scheduler's limit.
        """
        size = parts_size(parts)
        if 0 < self._maximum_object_bytes < size:
            raise ObjectStorageFullError(f"nothing was sent: {too_large(size, self._maximum_object_bytes)}")
        if size < INLINE_BYTES or not self._is_shared:
            return join(parts)
        path = os.path.join(self.own_directory(), object_name(number))
        try:
            self._write(path, parts)
        except NoRoomError as error:
            raise ObjectStorageFullError(f"nothing was sent: {error.strerror}") from error
        return FileContent(path)

    def _write(self, path: str, parts: Parts) -> None:
        """Raises NoRoomError."""
        directory = self.own
        assert directory is not None
        has_spill = directory.spill is not None
        try:
            write_where_room_is(path, parts)
        except NoRoomError:
            if has_spill:
                raise
            self._open_spill(directory)  # for which there was no room, or no place, before
            if directory.spill is None:
                raise
            write_where_room_is(path, parts)

    def own_directory(self) -> str:
        """The directory of this client's files, made when it is first needed. Any thread.

        There is no lock that Ctrl-C could leave locked: of two directories that are made at once, the first one counts.
        """
        if self.own is None:
            made = self._make_directory()
            self.own = self._made.setdefault("own", made)
            if self.own is not made:
                made.remove()
        else:
            with contextlib.suppress(OSError, MemoryError):
                self.own.restore()  # another program may have removed it
        return self.own.path

    def _make_directory(self) -> ObjectDirectory:
        try:  # beside the scheduler's: links do not cross file systems
            made = ObjectDirectory(os.path.dirname(self._directory))
        except OSError:
            made = ObjectDirectory()
        self._open_spill(made)
        return made

    def _open_spill(self, directory: ObjectDirectory) -> None:
        """Have room on the scheduler's disk, if it has one and that can be done now."""
        spill = os.path.join(self._directory, SPILL_NAME)
        if os.path.islink(spill):
            with contextlib.suppress(OSError, MemoryError):
                directory.open_spill(os.path.dirname(os.path.realpath(spill)))

    def share(self, content: Content, object_id: int) -> bool:
        """Link a file into the scheduler's directory; False if the scheduler has to fetch it."""
        if self._is_shared and isinstance(content, FileContent) and content.path:
            with contextlib.suppress(OSError, MemoryError):  # another file system
                # SCL-OBJ-008
                share_file(content.path, os.path.join(self._directory, object_name(object_id)))
                return True
        return False

    def follow_to_disk(self, content: Content, object_id: int) -> None:
        """The scheduler's copy is on disk now: drop ours from memory."""
        if isinstance(content, FileContent) and content.path and not is_on_disk(content.path):
            with contextlib.suppress(OSError, MemoryError):  # it is gone there, or we have no place on that disk
                follow_to_disk(os.path.join(self._directory, object_name(object_id)), content.path)

    def open_result(self, object_id: int) -> Optional[Buffer]:
        """The content of an object in the shared directory; None when it must be fetched."""
        if not self._is_shared:
            return None
        try:
            return map_object(os.path.join(self._directory, object_name(object_id)))
        except (OSError, MemoryError):
            return None

    def discard(self, content: Content) -> None:
        """Discard content that is no longer needed: `remove_discarded` removes its file."""
        if isinstance(content, FileContent):
            self._discarded.append(content)

    def remove_discarded(self) -> None:
        """Remove the files of discarded contents, which may take milliseconds."""
        while self._discarded:
            self._discarded.pop().remove()

    def after_fork_in_child(self) -> None:
        """In a fork of the client's process: leave the files to the parent."""
        if self.own is not None:
            self.own.after_fork_in_child()

    def close(self) -> None:
        if self.own is not None:
            self.own.remove()


def read(content: Any, offset: int, length: int) -> Buffer:
    """A part of the content. Raises OSError when its file is gone."""
    if isinstance(content, FileContent):
        return read_chunk(content.path, offset, length)
    return memoryview(content)[offset : offset + length]


def has_parts(content: Content, parts: Parts) -> bool:
    """Whether a content of the same size has these bytes."""
    try:
        stored = memoryview(map_object(content.path) if isinstance(content, FileContent) else content)
    except (OSError, MemoryError):
        return False
    offset = 0
    for part in parts:
        view = memoryview(part)
        for start in range(0, len(view), COMPARED_BYTES):
            piece = view[start : start + COMPARED_BYTES]
            # Views are compared byte by byte, copies at once.
            if bytes(stored[offset : offset + len(piece)]) != bytes(piece):
                return False
            offset += len(piece)
    return True
