"""The files of one worker: objects, results and code. Performs the core's file operations and reports their results.

Rules:
- Operations are carried out at once and in order. Files are memory-backed, or small enough for writing in the event
  loop. Only large chunks of objects are written beside it (`SideWork`), and what is written or removed meanwhile comes
  after them; and the memory of large files that are removed is given back later (`FileFreeing`).
- The worker's files are removed when it ends for any reason: the fork server, which outlives it, knows their patterns.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import time
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Set, Type, Union

from scaler.data_serving.data_connections import DataConnections
from scaler.data_serving.side_work import SideWork, Then, Work, error_of
from scaler.worker.agent.core.agent_core import AgentCore
from scaler.worker.agent.core.effects import (
    FindObject,
    KeepResult,
    LinkCopy,
    NameCopy,
    OpenObjects,
    ReadChunk,
    ReadNote,
    RemoveCode,
    RemoveFiles,
    RemoveLeftovers,
    UnpackCode,
    WriteChunk,
)
from scaler.worker.agent.shell.code_folders import CodeError, note_of_file, unpack
from scaler.worker.frames import Buffer, ContentPlace
from scaler_protocol.host.file_freeing import FileFreeing
from scaler_protocol.host.segments import (
    Neighbours,
    ObjectDirectory,
    default_parent,
    map_object,
    read_chunk,
    read_chunk_into,
    shares_directory,
    write_chunk,
)
from scaler_protocol.host.spill import NoRoomError, WriterLock, make_room

logger = logging.getLogger("scaler")


class WorkerFiles:
    """Carries out the file operations of a core.

    Parameters:
        core: gets their results.
        remove_at_end: called with a pattern of files that must not outlive the worker.
        connections: over which parts of objects come and go.
        side_work: of files.
    """

    def __init__(
        self,
        core: AgentCore,
        remove_at_end: Callable[[str], None],
        connections: DataConnections,
        side_work: SideWork,
    ) -> None:
        self._core = core
        self._connections = connections
        self._side_work = side_work
        self._freeing = FileFreeing()
        self._remove_at_end = remove_at_end
        self._beside: Set[str] = set()  # files that are in no directory of ours, or are being removed
        self._token = f"new-{os.getpid()}-{os.urandom(6).hex()}-"
        self._private: Optional[ObjectDirectory] = None
        self._neighbours: Optional[Neighbours] = None
        self._scheduler_directory = ""
        self._writer_lock: Optional[WriterLock] = None
        self.operations: Dict[Type[Any], Callable[[Any], None]] = {
            OpenObjects: self._open,
            FindObject: self._find,
            WriteChunk: self._write,
            NameCopy: self._name,
            LinkCopy: self._link,
            ReadChunk: self._read,
            KeepResult: self._keep,
            RemoveFiles: self._remove,
            RemoveLeftovers: lambda effect: self._remove_leftovers(f"{effect.process_id}-"),
            ReadNote: lambda effect: core.on_note_read(effect.function, note_of_file(effect.path)),
            UnpackCode: self._unpack,
            RemoveCode: self._remove_code,
        }

    # Directories ----------------------------------------------------------------------------------------------------

    def _open(self, effect: OpenObjects) -> None:
        is_shared = shares_directory(effect.directory, effect.token)
        self._scheduler_directory = effect.directory if is_shared else ""
        self._release_lock()
        prefix = os.path.join(effect.directory if is_shared else self._place_for_results(), self._token)
        if is_shared:
            with contextlib.suppress(OSError, MemoryError):  # then leftovers are removed with the scheduler
                self._writer_lock = WriterLock(prefix)
        if is_shared or self._private is None:
            self._remove_at_end(_escape(prefix) + "*")
        self._core.on_objects_opened(is_shared, prefix, time.monotonic())

    def _place_for_results(self) -> str:
        """The worker's own directory. If it cannot be made now, results are written beside it."""
        try:
            directory = self._own_directory()
        except (OSError, MemoryError) as error:
            parent = default_parent()
            logger.warning("Worker: no directory for objects can be made in %s: %s", parent, why(error))
            return parent
        if directory.spill is None:  # for which there was no room before
            self._open_spill(directory)
        return directory.path

    def _own_directory(self) -> ObjectDirectory:
        if self._private is None:
            self._private = ObjectDirectory()
            self._remove_at_end(_escape(self._private.path))
            self._open_spill(self._private)
        return self._private

    def _open_spill(self, directory: ObjectDirectory) -> None:
        with contextlib.suppress(OSError, MemoryError):
            self._remove_at_end(_escape(directory.open_spill().path))

    def _release_lock(self) -> None:
        if self._writer_lock is not None:
            self._writer_lock.release()
            self._writer_lock = None

    def close(self) -> None:
        """Remove all files of the worker from the disk."""
        self._side_work.close()
        self._remove_leftovers("")
        for path in list(self._beside):
            self._remove_path(path)
        self._release_lock()
        self._freeing.close()
        if self._private is not None:
            self._private.remove()

    # Objects --------------------------------------------------------------------------------------------------------

    def _find(self, effect: FindObject) -> None:
        self._core.on_object_found(effect.object_id, os.path.exists(effect.path))

    def _write(self, effect: WriteChunk) -> None:
        try:
            directory = self._own_directory().path
        except (OSError, MemoryError) as error:
            self._core.on_chunk_failed(effect.object_id, effect.fetch, why(error), True)
            return
        path = os.path.join(directory, f"{self._token}fetch{effect.fetch}")
        work, on_written = partial(self._write_part, effect, path), partial(self._on_written, effect, path)
        if self._side_work.is_aside(len(effect.chunk)):
            chunk = effect.chunk
            use_again = self._connections.keep(chunk) if isinstance(chunk, memoryview) else None
            self._side_work.put(work, partial(on_written, use_again))
        else:
            on_written(None, error_of(work))

    def _write_part(self, effect: WriteChunk, path: str) -> None:
        """In any thread. Raises OSError, MemoryError; nothing is left then of a file that would have begun with it."""
        if not effect.is_first:
            write_chunk(path, effect.offset, effect.chunk, is_first=False)
            return
        try:
            make_room(path, effect.size)
            write_chunk(path, effect.offset, effect.chunk)
        except (OSError, MemoryError):
            self._remove_file(path)
            raise

    def _name(self, effect: NameCopy) -> None:
        """When all of it is written."""
        target = os.path.join(os.path.dirname(effect.path), effect.name)
        self._in_order(partial(os.replace, effect.path, target), partial(self._on_named, effect, target))

    def _on_named(self, effect: NameCopy, target: str, error: Optional[Exception]) -> None:
        if error is None:
            self._core.on_copy_named(effect.object_id, effect.fetch, target)
        else:
            self._on_chunk_failed(effect, error)

    def _in_order(self, work: Work, then: Then) -> None:
        """Have something done after what is being written and removed."""
        if self._side_work.is_aside(0):
            self._side_work.put(work, then)
        else:
            then(error_of(work))

    def _link(self, effect: LinkCopy) -> None:
        """After the files that are being written or removed."""
        found: List[str] = []
        self._in_order(partial(self._link_copy, effect, found), partial(self._on_linked, effect, found))

    def _link_copy(self, effect: LinkCopy, found: List[str]) -> None:
        """In any thread. Raises OSError, MemoryError."""
        directory = self._own_directory().path
        if self._neighbours is None:
            self._neighbours = Neighbours(directory)
        if self._neighbours.link(effect.name, effect.size):
            found.append(os.path.join(directory, effect.name))

    def _on_linked(self, effect: LinkCopy, found: List[str], error: Optional[Exception]) -> None:
        if error is not None and not isinstance(error, (OSError, MemoryError)):
            raise error
        self._core.on_copy_linked(effect.object_id, effect.fetch, found[0] if found else "")

    def _remove_file(self, path: str) -> None:
        """In any thread."""
        with contextlib.suppress(OSError, MemoryError):
            self._freeing.remove(path)

    def _on_written(
        self, effect: WriteChunk, path: str, use_again: Optional[Callable[[], None]], error: Optional[Exception]
    ) -> None:
        if use_again is not None:
            use_again()
        if error is None:
            self._core.on_chunk_written(effect.object_id, effect.fetch, len(effect.chunk), path)
        else:
            self._on_chunk_failed(effect, error)

    def _on_chunk_failed(self, effect: Union[WriteChunk, NameCopy], error: Exception) -> None:
        if not isinstance(error, (OSError, MemoryError)):
            raise error
        is_full = isinstance(error, (NoRoomError, MemoryError))
        self._core.on_chunk_failed(effect.object_id, effect.fetch, why(error), is_full)

    def _read(self, effect: ReadChunk) -> None:
        chunk: Buffer = b""
        reason = ""
        try:
            if effect.connection:
                memory = self._connections.memory(effect.connection, effect.length)
                size = read_chunk_into(effect.path, effect.offset, memory)
                chunk = memory if size == len(memory) else memory[:size]
            else:
                chunk = read_chunk(effect.path, effect.offset, effect.length)
        except (OSError, MemoryError) as error:
            reason = why(error)
        self._core.on_chunk_read(effect.object_id, effect.offset, effect.length, chunk, reason, effect.connection)

    def _keep(self, effect: KeepResult) -> None:
        reason, directory = "", os.path.dirname(effect.target)
        try:
            os.rename(effect.path, effect.target)
            if directory != self._scheduler_directory and (self._private is None or directory != self._private.path):
                self._beside.add(effect.target)
        except (OSError, MemoryError) as error:
            is_gone = isinstance(error, FileNotFoundError) and not os.path.isdir(directory)
            reason = "its directory is gone, as after the end of its scheduler" if is_gone else why(error)
            self._remove_path(effect.path)
        self._core.on_result_kept(effect.object_id, effect.target, reason)

    def _remove(self, effect: RemoveFiles) -> None:
        for path in effect.paths:
            if self._side_work.is_aside(0):  # parts are being written, maybe of that file
                self._beside.add(path)  # so it goes at the end, if it has not gone before
                self._side_work.put(partial(self._remove_file, path), partial(self._on_removed, path))
            else:
                self._remove_path(path)

    def _on_removed(self, path: str, error: Optional[Exception]) -> None:
        self._beside.discard(path)

    def _remove_path(self, path: str) -> None:
        self._beside.discard(path)
        self._remove_file(path)

    def _remove_leftovers(self, process_id: str) -> None:
        """Remove what a processor, or any processor, was writing when it died."""
        for directory in (self._scheduler_directory, self._private.path if self._private is not None else ""):
            with contextlib.suppress(OSError, MemoryError):
                for name in os.listdir(directory) if directory else ():
                    if name.startswith(f"{self._token}{process_id}"):
                        self._remove_path(os.path.join(directory, name))

    # Code -----------------------------------------------------------------------------------------------------------

    def _unpack(self, effect: UnpackCode) -> None:
        try:
            folder = os.path.join(self._code_folder(), effect.digest)
            is_file = effect.place == ContentPlace.FILE
            data = map_object(os.fsdecode(bytes(effect.content))) if is_file else effect.content
            unpack(data, effect.digest, folder)
        except CodeError as error:
            self._core.on_code_failed(effect.digest, str(error))
        except (OSError, MemoryError) as error:
            self._core.on_code_failed(effect.digest, f"the client's code cannot be stored on this host: {why(error)}")
        else:
            self._core.on_code_unpacked(effect.digest, folder)

    def _code_folder(self) -> str:
        """The folder for clients' code: on disk, if possible."""
        directory = self._own_directory()
        return os.path.join((directory.spill or directory).path, "code")

    def _remove_code(self, effect: RemoveCode) -> None:
        for folder in effect.folders:
            shutil.rmtree(folder, ignore_errors=True)


def why(error: Exception) -> str:
    """The reason of an error of the system, in words."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or "out of memory"


def _escape(path: str) -> str:
    """A path as a glob pattern that matches it alone."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in path)
