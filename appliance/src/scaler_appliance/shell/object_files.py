"""The files of objects that the scheduler keeps, in memory and on disk.

Rules:
- An object that is being received is written under a temporary name, and renamed when it is complete.
- A missing file is an answer (`None`), not an error: peers may delete what they shared.
- Readers find a file by its name, wherever it is (see `scaler_protocol.host.spill`).
"""

from __future__ import annotations

import errno
import logging
import os
import re
from contextlib import suppress
from typing import Callable, Dict, Generator, Iterator, Optional, Set

from scaler_appliance.core.effects import Send, SendChunk, SpillObject, StoreChunk
from scaler_appliance.core.objects.object_table import ObjectTable
from scaler_appliance.shell.core_inputs import CoreInputs, InputKind
from scaler_appliance.shell.spilling import Copied, Spiller
from scaler_protocol import messages as m
from scaler_protocol.host.file_freeing import FileFreeing
from scaler_protocol.host.segments import (
    SPILL_NAME,
    ObjectDirectory,
    names_in_parts,
    read_chunk,
    remove_abandoned,
    temporary_name,
    write_chunk,
)
from scaler_protocol.host.spill import (
    copy_file,
    is_about_room,
    is_on_disk,
    make_room,
    remove_orphans,
    replace_by_link,
    unique_name,
)
from scaler_protocol.programs.event_loop import EventLoop
from scaler_protocol.session.ids import session_of

logger = logging.getLogger("scaler")

SWEEPS = 2  # for directories, after a session's end

_OBJECT_NAME = re.compile("[0-9a-f]{16}")


class ObjectFiles:
    """Object files in the scheduler's directory.

    Parameters:
        directory: owned by this process; removed by `close`.
        on_copied: called with the outcome of each `copy_to_disk`, on another thread.
    """

    def __init__(self, directory: ObjectDirectory, on_copied: Callable[[Copied], None]) -> None:
        self.directory = directory
        self._receiving: Dict[int, str] = {}
        self._ended_sessions: Set[int] = set()
        self._sweeps_left = 0
        self._freeing = FileFreeing()
        self._spiller = Spiller(directory, on_copied) if directory.spill is not None else None

    def store_chunk(self, chunk: StoreChunk) -> bool:
        """Write the next part of an object that is being received, where there is room; returns whether that is on
        disk.

        Raises OSError when it cannot be stored; its earlier parts are then removed.
        """
        object_id = chunk.object_id
        if chunk.offset and object_id not in self._receiving:
            raise FileNotFoundError("its earlier parts could not be stored")
        try:
            if not chunk.offset:
                path = self._receiving[object_id] = os.path.join(self.directory.path, temporary_name())
                make_room(path, chunk.size, chunk.on_disk)
            path = self._receiving[object_id]
            try:
                write_chunk(path, chunk.offset, chunk.chunk)
            except OSError as error:  # others have used the room since
                if is_on_disk(path) or self.directory.spill is None or not is_about_room(error):
                    raise
                self._move_to_disk(path)
                write_chunk(path, chunk.offset, chunk.chunk)
            on_disk = is_on_disk(path)
            if chunk.is_last:
                os.rename(self._receiving.pop(object_id), self.directory.object_path(object_id))
        except OSError:
            self.remove(object_id)
            raise
        return on_disk

    @staticmethod
    def _move_to_disk(path: str) -> None:
        """Go on with a file on disk that was begun in memory. Raises OSError if it has no room there."""
        name = unique_name()
        copy_file(path, os.path.join(os.path.dirname(path), SPILL_NAME, name), lambda: True)
        replace_by_link(path, name)

    def read_chunk(self, object_id: int, offset: int, length: int) -> Optional[bytes]:
        """A part of an object, or None when it cannot be read."""
        path = self._receiving.get(object_id) or self.directory.object_path(object_id)
        try:
            chunk = read_chunk(path, offset, length)
        except FileNotFoundError:
            return None
        except OSError as error:
            logger.error("Scheduler: object %016x cannot be read: %s", object_id, error.strerror)
            return None
        if len(chunk) < length:
            logger.error("Scheduler: the file of object %016x is shorter than announced", object_id)
            return None
        return chunk

    def remove(self, object_id: int) -> None:
        if self._spiller is not None:
            self._spiller.forget(object_id)
        path = self._receiving.pop(object_id, None) or self.directory.object_path(object_id)
        with suppress(FileNotFoundError):
            if self._spiller is not None and is_on_disk(path):
                self._spiller.delete(os.path.join(self.directory.path, os.readlink(path)))
                os.unlink(path)
            else:
                self._freeing.remove(path)

    # From memory to disk --------------------------------------------------------------------------------------------

    def is_on_disk(self, object_id: int) -> bool:
        return is_on_disk(self.directory.object_path(object_id))

    def exists(self, object_id: int) -> bool:
        return os.path.exists(self.directory.object_path(object_id))

    def copy_to_disk(self, object_id: int) -> None:
        """Begin to copy a file; there is no outcome if the object is removed before that has begun."""
        assert self._spiller is not None
        self._spiller.spill(object_id)

    def use_copy(self, object_id: int, name: str) -> None:
        """Replace an object's file by its finished copy.

        Raises OSError when that fails; the object stays where it is.
        """
        path = self.directory.object_path(object_id)
        try:
            with self._freeing.freed_later(path):
                replace_by_link(path, name)
        except OSError:
            self.drop_copy(name)
            raise

    def drop_copy(self, name: str) -> None:
        """Remove a copy that came too late."""
        assert self.directory.spill is not None and self._spiller is not None
        self._spiller.delete(os.path.join(self.directory.spill.path, name))

    def restore(self) -> None:
        """Make the directory again if another program has removed it; the log then says so."""
        path = self.directory.path
        try:
            is_restored = self.directory.restore()
        except OSError as error:
            text = "Scheduler: a directory of objects, %s, was removed, and cannot be made again: %s"
            logger.error(text, error.filename or path, error.strerror or error)
            return
        if is_restored:
            logger.error(
                "Scheduler: another program has removed the directory of objects, %s, or the one on disk: the objects"
                " there are lost, and new ones can be stored again. systemd does so when the user logs out: set"
                " RemoveIPC=no in its logind.conf, or run `loginctl enable-linger`",
                path,
            )

    # Leftovers of peers ----------------------------------------------------------------------------------------------

    def end_session(self, session: int) -> None:
        """A session has ended: files of it may be left."""
        self._ended_sessions.add(session)

    def sweep(self, is_known: Callable[[int], bool]) -> Generator[None, None, None]:
        """Remove files of ended sessions that belong to no object: never announced, or too late. Some at a time.

        Parameters:
            is_known: whether there is an object with an id.
        """
        if self._ended_sessions:
            sessions, self._ended_sessions = self._ended_sessions, set()
            try:
                yield from self.remove_of_sessions(sessions, is_known)
            except OSError as error:
                logger.warning("Scheduler: files of ended sessions could not be removed: %s", error.strerror)
                self._ended_sessions |= sessions  # the next sweep tries again
            self._sweeps_left = SWEEPS
        if self._sweeps_left:  # directories of killed peers: their connection may end before they release the lock
            self._sweeps_left -= 1
            yield from self.remove_abandoned()

    def remove_of_sessions(self, sessions: Set[int], is_kept: Callable[[int], bool]) -> Iterator[None]:
        """Remove the files of objects that these sessions have made and that are not kept, some between two steps.

        Raises OSError.
        """
        for names in names_in_parts(self.directory.path):
            for object_id in [int(name, 16) for name in names if _OBJECT_NAME.fullmatch(name)]:
                if session_of(object_id) in sessions and not is_kept(object_id):
                    self.remove(object_id)
            yield

    def remove_abandoned(self) -> Iterator[None]:
        """Remove leftovers of killed peers, in steps: directories beside ours, and half-written files in ours."""
        with suppress(OSError):  # another process may be removing the same
            yield from remove_orphans(self.directory.path)
        for directory in filter(None, (self.directory, self.directory.spill)):
            with suppress(OSError):
                yield from remove_abandoned(os.path.dirname(directory.path))

    def close(self) -> None:
        if self._spiller is not None:
            self._spiller.close()
        self._freeing.close()
        self.directory.remove()


class ObjectEffects:
    """Performs what the core decides about files of objects, and tells it the outcome.

    Parameters:
        loop: whose time it is.
    """

    def __init__(self, objects: ObjectTable, files: ObjectFiles, inputs: CoreInputs, loop: EventLoop) -> None:
        self._objects = objects
        self._files = files
        self._inputs = inputs
        self._loop = loop

    def _tell(self, kind: InputKind, *arguments: object) -> None:
        self._inputs.call(kind, self._loop.time(), *arguments)

    def store_chunk(self, effect: StoreChunk) -> None:
        """Store a part of an object that has arrived."""
        try:
            on_disk = self._files.store_chunk(effect)
            if on_disk and not effect.on_disk:
                self._tell(InputKind.OBJECT_SPILLED, effect.object_id)
            elif effect.on_disk and not on_disk and not effect.offset:
                self._tell(InputKind.OBJECT_SPILL_FAILED, effect.object_id, os.strerror(errno.ENOSPC))
        except OSError as error:
            why = error.strerror or str(error)
            self._tell(InputKind.OBJECT_UNREADABLE, effect.object_id, why, is_about_room(error))

    def spill(self, effect: SpillObject) -> None:
        """Begin to move a file to disk; `on_copied` follows, unless it is there."""
        if self._files.is_on_disk(effect.object_id):  # its creator had no room for it in memory
            self._tell(InputKind.OBJECT_SPILLED, effect.object_id)
        else:
            self._files.copy_to_disk(effect.object_id)

    def on_copied(self, copied: Copied) -> None:
        """An object file has been copied to disk, or could not be."""
        object_id = copied.object_id
        if self._objects.find(object_id) is None:
            if copied.name:
                self._files.drop_copy(copied.name)
            if copied.error is not None and is_about_room(copied.error):
                self._tell(InputKind.OBJECT_SPILL_FAILED, object_id, copied.error.strerror or str(copied.error))
            return
        try:
            if copied.error is not None:
                raise copied.error
            if copied.name:
                self._files.use_copy(object_id, copied.name)
                self._tell(InputKind.OBJECT_SPILLED, object_id)
        except OSError as error:
            if self._files.exists(object_id):
                self._tell(InputKind.OBJECT_SPILL_FAILED, object_id, error.strerror or str(error))
            else:
                logger.error("Scheduler: object %016x is lost: a peer has removed its file", object_id)
                self._tell(InputKind.OBJECT_UNREADABLE, object_id)

    def read_part(self, effect: SendChunk) -> Send:
        """The answer to a request for a part of an object."""
        chunk = self._files.read_chunk(effect.object_id, effect.offset, effect.length)
        response = m.ObjectResponse(id=effect.object_id, offset=effect.offset, size=effect.size)
        if chunk is None:  # it may be that it could not be stored, just now
            response.status = m.ObjectResponseStatus.MISSING
            record = self._objects.find(effect.object_id)
            response.missing_reason = m.MissingReason.UNKNOWN if record is None else record.missing_reason
        return Send(effect.peer, response, (chunk or b"",))
