"""The code that clients ship: which functions need it, and what of it is on this host.

    function ─note─▶ archives ─fetched─▶ unpacked, once, to WORKER'S FOLDER/code/DIGEST/ ─▶ import path of processors

Rules:
- A folder is named for the digest of its content, which is checked: two clients with the same code share it, and two
  with different code have two. Its content never changes.
- Processors are dedicated: one that has run tasks with some code runs no task with other code (see `ProcessorPool`).
- A folder stays as long as a function here needs it, or a processor has it on its import path. All are below the
  worker's own folder, which is removed when the worker ends for any reason.
- An archive that was fetched and not unpacked goes with the last function that needs it. No task names it, so the
  scheduler does not know that it is here, and does not tell when it is deleted.
- The shell handles files: it reads notes, unpacks and removes, and reports the results.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, NamedTuple, Optional, Protocol, Set, Tuple

from scaler.values.code_notes import CodeNote, read_note
from scaler.worker.agent.core.effects import Effect, FunctionCode, ReadNote, RemoveCode, UnpackCode
from scaler.worker.frames import Buffer, ContentPlace
from scaler_protocol.session.ids import object_id_of, session_of


class CodeObjects(Protocol):
    """The methods of the worker's objects that are used here."""

    def is_available(self, object_id: int) -> bool: ...

    def definition(self, object_id: int) -> Optional[Tuple[int, ContentPlace, Buffer]]: ...

    def forget(self, object_id: int) -> None: ...


class _Needed(NamedTuple):
    """The code that a function needs.

    Parameters:
        key: with the digests of the archives in it, so that one key never stands for different code.
        client_key: the client's key.
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
        effects: shared with the rest of the core.
    """

    def __init__(self, objects: CodeObjects, effects: List[Effect]) -> None:
        self._objects = objects
        self._effects = effects
        self._needed: Dict[int, _Needed] = {}  # by function
        self._reading: Set[int] = set()  # functions whose notes are being read
        self._folders: Dict[str, str] = {}  # by digest
        self._unpacking: Dict[str, Set[int]] = {}  # by digest: the objects that are the archive

    def key(self, function: int) -> str:
        needed = self._need(function)
        return needed.key if needed is not None else ""

    def _need(self, function: int) -> Optional[_Needed]:
        """The code that a function needs; None while its note is being read."""
        needed = self._needed.get(function)
        if needed is not None or function in self._reading:
            return needed
        definition = self._objects.definition(function)
        if definition is None:
            return _NOTHING
        _, place, content = definition
        if place == ContentPlace.FILE:
            self._reading.add(function)
            self._effects.append(ReadNote(function, bytes(content).decode("utf-8", "surrogateescape")))
            return None
        return self._keep(function, read_note(content))

    def _keep(self, function: int, note: CodeNote) -> _Needed:
        session = session_of(function)
        archives = tuple((object_id_of(session, number), digest) for number, digest in note.archives)
        key = " ".join([note.key, *(digest for _, digest in archives)])
        needed = self._needed[function] = _Needed(key, note.key, archives)
        return needed

    def missing(self, function: int) -> Set[int]:
        needed = self._need(function)
        if needed is None:
            return {function}
        missing = set()
        for object_id, digest in needed.archives:
            if digest not in self._folders:
                missing.add(object_id)
                if self._objects.is_available(object_id):
                    self._unpack(object_id, digest)
        return missing

    def _unpack(self, object_id: int, digest: str) -> None:
        if digest not in self._unpacking:
            definition = self._objects.definition(object_id)
            assert definition is not None  # it is available
            _, place, content = definition
            self._unpacking[digest] = set()
            self._effects.append(UnpackCode(digest, place, content))
        self._unpacking[digest].add(object_id)

    def on_note_read(self, function: int, note: CodeNote) -> None:
        """The note of a function has been read."""
        if function in self._reading:  # else it was forgotten in the meantime
            self._reading.discard(function)
            self._keep(function, note)

    def on_unpacked(self, digest: str, folder: str) -> Set[int]:
        """An archive was unpacked, or could not be; returns the objects with this archive."""
        if folder and any(digest == each for needed in self._needed.values() for _, each in needed.archives):
            self._folders[digest] = folder
        elif folder:
            self._effects.append(RemoveCode((folder,)))  # the functions that needed it are gone
        archives = self._unpacking.pop(digest, set())
        for object_id in archives:
            self._objects.forget(object_id)
        return archives

    def contents(self, function: int) -> Tuple[str, List[str]]:
        needed = self._needed.get(function, _NOTHING)
        return needed.client_key, [self._folders[digest] for _, digest in needed.archives]

    def forget(self, functions: Iterable[int]) -> Set[str]:
        functions = list(functions)
        self._reading.difference_update(functions)
        gone = [needed for needed in (self._needed.pop(each, None) for each in functions) if needed is not None]
        if not gone:
            return set()
        unneeded = {archive for needed in gone for archive in needed.archives}
        for object_id, digest in unneeded.difference(*(needed.archives for needed in self._needed.values())):
            if object_id not in self._unpacking.get(digest, ()):  # the scheduler does not know that it may be here
                self._objects.forget(object_id)
        return {needed.key for needed in gone}.difference({""}, (needed.key for needed in self._needed.values()))

    def forget_all(self) -> Set[str]:
        self._reading.clear()
        return self.forget(list(self._needed))

    def sweep(self, folders_in_use: Set[str]) -> None:
        needed = {digest for each in self._needed.values() for _, digest in each.archives}
        unneeded = {
            digest: folder
            for digest, folder in self._folders.items()
            if digest not in needed and folder not in folders_in_use
        }
        for digest in unneeded:
            del self._folders[digest]
        if unneeded:
            self._effects.append(RemoveCode(tuple(unneeded.values())))
