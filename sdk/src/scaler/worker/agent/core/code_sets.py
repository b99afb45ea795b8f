"""The code that clients ship: in a folder for each archive, on the worker's host, as long as somebody needs it.

    function ─note─▶ archives ─fetched, unpacked, once─▶ WORKER'S FOLDER/code/DIGEST/ ─▶ import path of processors

Rules:
- A folder is named for the digest of its content, which is checked: two clients with the same code share it, and two
  with different code have two. What is in it never changes.
- Processors are dedicated: one that has run tasks with some code runs no task with other code (see `ProcessorPool`).
- A folder stays as long as a function here needs it, or a processor has it on its import path. All are below the
  worker's own folder, which goes with the worker however that ends.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import shutil
import zipfile
from typing import Dict, Iterable, List, NamedTuple, Optional, Protocol, Set, Tuple

from scaler.values.code_notes import (
    MAXIMUM_ARCHIVE_BYTES,
    NO_CODE,
    Buffer,
    CodeNote,
    add_to_digest,
    read_note,
    read_note_of_file,
)
from scaler.worker.agent.core.effects import CodeError, FunctionCode
from scaler.worker.frames import ContentPlace
from scaler_protocol.host.segments import map_object

logger = logging.getLogger("scaler")

_SESSION_SHIFT = 40


class Objects(Protocol):
    """What this needs of the object store."""

    def is_available(self, object_id: int) -> bool: ...

    def definition(self, object_id: int) -> Optional[Tuple[int, ContentPlace, Buffer]]: ...

    def forget(self, object_id: int) -> None: ...

    def code_folder(self) -> str: ...


class _Needed(NamedTuple):
    """What a function needs.

    Parameters:
        key: with the digests of the archives in it, so that nobody's key stands for other code.
        client_key: as the client has it.
        archives: ids and digests.
    """

    key: str
    client_key: str
    archives: Tuple[Tuple[int, str], ...]


_NOTHING = _Needed("", "", ())


class CodeSets(FunctionCode):
    """The code that the functions of one worker need.

    Parameters:
        objects: where functions and archives are.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._needed: Dict[int, _Needed] = {}  # by function
        self._folders: Dict[str, str] = {}  # by digest

    def key(self, function: int) -> str:
        return self._need(function).key

    def _need(self, function: int) -> _Needed:
        needed = self._needed.get(function)
        if needed is None:
            definition = self._objects.definition(function)
            if definition is None:
                return _NOTHING
            note = _read(definition)
            session = function >> _SESSION_SHIFT << _SESSION_SHIFT
            archives = tuple((session | number, digest) for number, digest in note.archives)
            key = " ".join([note.key, *(digest for _, digest in archives)])
            needed = self._needed[function] = _Needed(key, note.key, archives)
        return needed

    def missing(self, function: int) -> Set[int]:
        missing = set()
        for object_id, digest in self._need(function).archives:
            if digest in self._folders:
                continue
            if self._objects.is_available(object_id):
                self._folders[digest] = self._unpack(object_id, digest)
            else:
                missing.add(object_id)
        return missing

    def _unpack(self, object_id: int, digest: str) -> str:
        definition = self._objects.definition(object_id)
        assert definition is not None  # it is available
        _, place, content = definition
        try:
            folder = os.path.join(self._objects.code_folder(), digest)
            data = map_object(os.fsdecode(bytes(content))) if place == ContentPlace.FILE else content
            unpack(data, digest, folder)
        except OSError as error:
            raise CodeError(f"the client's code cannot be stored on this host: {error.strerror or error}") from error
        finally:
            self._objects.forget(object_id)
        logger.debug("Worker: the code %s was unpacked to %s", digest, folder)
        return folder

    def contents(self, function: int) -> Tuple[str, List[str]]:
        needed = self._need(function)
        return needed.client_key, [self._folders[digest] for _, digest in needed.archives]

    def forget(self, functions: Iterable[int]) -> Set[str]:
        keys = {needed.key for needed in (self._needed.pop(each, None) for each in functions) if needed is not None}
        return keys.difference({""}, (needed.key for needed in self._needed.values())) if keys else keys

    def forget_all(self) -> Set[str]:
        return self.forget(list(self._needed))

    def sweep(self, folders_in_use: Set[str]) -> None:
        needed = {digest for each in self._needed.values() for _, digest in each.archives}
        for digest, folder in list(self._folders.items()):
            if digest not in needed and folder not in folders_in_use:
                del self._folders[digest]
                shutil.rmtree(folder, ignore_errors=True)


def _read(definition: Tuple[int, ContentPlace, Buffer]) -> CodeNote:
    _, place, content = definition
    if place != ContentPlace.FILE:
        return read_note(content)
    try:
        return read_note_of_file(os.fsdecode(bytes(content)))
    except OSError:
        return NO_CODE  # it is gone: the processor says so for each task


def unpack(content: Buffer, digest: str, folder: str) -> None:
    """Unpack an archive into a folder that is not there yet.

    Raises CodeError when it is not what its digest says, and OSError; nothing is left behind then.
    """
    found = hashlib.blake2b(digest_size=16)
    partial = folder + ".new"
    shutil.rmtree(partial, ignore_errors=True)
    os.makedirs(partial)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > MAXIMUM_ARCHIVE_BYTES:
                raise CodeError("the client's code is too large")
            for entry in entries:
                if os.path.isabs(entry.filename) or ".." in entry.filename.split("/"):
                    raise CodeError(f"the client's code has a file {entry.filename!r}, which leads out of its folder")
                data = archive.read(entry)
                add_to_digest(found, entry.filename, data)
                path = os.path.join(partial, entry.filename)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "xb") as file:
                    file.write(data)
        if found.hexdigest() != digest:
            raise CodeError("the client's code is not what its digest says")
        os.rename(partial, folder)
    except (CodeError, OSError):
        raise
    except Exception as error:  # of `zipfile`, at bytes that anybody may have sent
        raise CodeError(f"the client's code is no archive: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
