"""Objects on this host: where their content is, fetching those that are elsewhere, serving those that were made here.

    inline ── in memory ───────────────────────────────────────┐
    shared ── a file in the scheduler's directory ─────────────┼──▶ processors (bytes, or a path to map)
    elsewhere ── fetched, chunk by chunk, to a file of our own ┘

    large result ── renamed in the scheduler's directory if it is shared, else kept here until the scheduler has
                    fetched it

Rules:
- Whatever is not known is asked for: the scheduler answers every ObjectRequest, if only with "missing".
- A fetch keeps WINDOW requests open and no more, so that a large object never fills the connection.
- An outcome whose result is here is not sent before the scheduler has all of it (see `AgentCore.on_object_served`).
- What was not used for long is forgotten and asked for again when a task needs it; never what a task here needs.
- Effects and file operations only; sockets are elsewhere. Files are small enough, or memory-backed, for writing in the
  loop: a chunk at a time.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from array import array
from typing import Callable, Dict, Iterable, List, Optional, Set, Tuple

from scaler.exceptions import ObjectStorageFullError
from scaler.values.texts import too_large
from scaler.worker.agent.core.effects import Effect, Send
from scaler.worker.frames import Buffer, ContentPlace
from scaler_protocol import messages as m
from scaler_protocol.host.segments import ObjectDirectory, object_name, read_chunk, shares_directory, write_chunk
from scaler_protocol.host.spill import NoRoomError, WriterLock, make_room, remove_file

logger = logging.getLogger("scaler")

# SCL-OBJ-011
WINDOW = 4
DEFAULT_CHUNK_BYTES = 1024 * 1024
_SESSION_SHIFT = 40
_NAMED_FUNCTION_IDS = 0xFFFFFF << _SESSION_SHIFT  # beyond all sessions


class _Fetch:
    __slots__ = ("size", "requested", "received", "asked")

    def __init__(self, size: int) -> None:
        self.size = size  # 0: not known yet
        self.requested = 0
        self.received = 0
        self.asked: Dict[int, int] = {}  # lengths of the requests without an answer, by offset

    def is_answered_by(self, message: m.ObjectResponse, chunk: bytes) -> bool:
        """Whether these are bytes that were asked for, of the same object as those before."""
        length = self.asked.get(message.offset, -1)
        return (
            (len(chunk) > 0 or message.size == 0)
            and len(chunk) <= min(length, message.size - message.offset)
            and (message.size == self.size or not self.received)
        )


class _Serving:
    """A large result made here, until the scheduler has fetched it."""

    __slots__ = ("size", "sent")

    def __init__(self, size: int) -> None:
        self.size = size
        self.sent = 0


class ObjectStore:
    """The objects of one worker.

    Parameters:
        effects: where messages to the scheduler go.
        remove_at_end: told a pattern of files that must not outlive the worker.
    """

    def __init__(self, effects: List[Effect], remove_at_end: Callable[[str], None]) -> None:
        self.shared = False  # whether this host sees the scheduler's object directory
        self.on_available: Callable[[int], None] = lambda object_id: None
        self.on_missing: Callable[[int], None] = lambda object_id: None
        self.on_no_room: Callable[[int, str], None] = lambda object_id, why: self.on_missing(object_id)
        self.on_served: Callable[[int], None] = lambda object_id: None
        self.on_unserved: Callable[[int], None] = lambda object_id: None  # it is not here any more
        self._effects = effects
        self._remove_at_end = remove_at_end
        self._token = f"new-{os.getpid()}-{os.urandom(6).hex()}-"
        self._private: Optional[ObjectDirectory] = None
        self._scheduler_directory = ""
        self._writer_lock: Optional[WriterLock] = None
        self._session = 0
        self._chunk_bytes = DEFAULT_CHUNK_BYTES
        self._maximum_object_bytes = 0  # that the scheduler takes; 0: it has not said so
        self._next_number = 1
        self._kinds: Dict[int, int] = {}
        self._inline: Dict[int, bytes] = {}
        self._paths: Dict[int, str] = {}
        self._sizes: Dict[int, int] = {}  # of objects that are elsewhere
        self._fetches: Dict[int, _Fetch] = {}
        self._served: Dict[int, _Serving] = {}
        self._named_functions: Dict[bytes, int] = {}  # by definition
        self._definitions: Dict[int, bytes] = {}  # the same by id; no objects of the scheduler, which cannot end them
        self._last_uses: Dict[int, float] = {}  # since when nobody has asked for the content of what is here

    # Sessions -----------------------------------------------------------------------------------------------

    def start_session(self, welcome: m.Welcome) -> None:
        """Forget everything, and find out whether objects need not travel."""
        self._forget_all()
        self._session = welcome.session
        self._next_number = 1
        self._chunk_bytes = welcome.limits.chunk_bytes or DEFAULT_CHUNK_BYTES
        self._maximum_object_bytes = welcome.limits.maximum_object_bytes
        directory, token = welcome.object_directory, welcome.object_directory_token
        self.shared = shares_directory(directory, token)
        self._scheduler_directory = directory if self.shared else ""
        self._release_lock()
        if self.shared:
            with contextlib.suppress(OSError):  # a full disk: then leftovers go with the scheduler
                self._writer_lock = WriterLock(self.write_prefix)
            self._remove_at_end(os.path.join(_escape(directory), self._token + "*"))

    @property
    def write_prefix(self) -> str:
        """The start of the path of each file that a processor writes."""
        directory = self._scheduler_directory if self.shared else self._own_directory().path
        return os.path.join(directory, self._token)

    def close(self) -> None:
        """Remove what is ours from the disk."""
        self._forget_all()
        self.remove_leftovers("")
        self._release_lock()
        if self._private is not None:
            self._private.remove()

    def _release_lock(self) -> None:
        if self._writer_lock is not None:
            self._writer_lock.release()
            self._writer_lock = None

    def remove_leftovers(self, process_id: str) -> None:
        """Remove what a processor (by default: any) was writing when it died."""
        for directory in (self._scheduler_directory, self._private.path if self._private is not None else ""):
            with contextlib.suppress(OSError):
                for name in os.listdir(directory) if directory else ():
                    if name.startswith(f"{self._token}{process_id}"):
                        remove_file(os.path.join(directory, name))

    def _own_directory(self) -> ObjectDirectory:
        if self._private is None:
            self._private = ObjectDirectory()
            self._remove_at_end(_escape(self._private.path))
            with contextlib.suppress(OSError):
                self._remove_at_end(_escape(self._private.open_spill().path))
        return self._private

    def _forget_all(self) -> None:
        for object_id in [*self._paths, *self._fetches, *self._served]:
            self._unlink_own(object_id)
        for table in (self._kinds, self._inline, self._paths, self._sizes, self._fetches, self._served):
            table.clear()
        self._last_uses.clear()
        self._named_functions.clear()
        self._definitions.clear()

    def _unlink_own(self, object_id: int) -> None:
        if self._private is not None:
            with contextlib.suppress(OSError):
                remove_file(self._private.object_path(object_id))

    # What the core asks -------------------------------------------------------------------------------------

    def is_available(self, object_id: int) -> bool:
        """Whether processors can be given the object now. Id 0 stands for "none"."""
        if object_id == 0 or object_id in self._inline or object_id in self._paths or object_id in self._definitions:
            return True
        if self.shared and object_id not in self._sizes:
            path = os.path.join(self._scheduler_directory, object_name(object_id))
            if os.path.exists(path):
                self._paths[object_id] = path
                return True
        return False

    def named_function(self, definition: bytes) -> int:
        """The id of a function that came by name: of what processors are given for it."""
        object_id = self._named_functions.get(definition)
        if object_id is None:
            object_id = self._named_functions[definition] = _NAMED_FUNCTION_IDS + len(self._named_functions)
            self._definitions[object_id] = definition
        return object_id

    def definition(self, object_id: int) -> Optional[Tuple[int, ContentPlace, Buffer]]:
        """Kind, place and content of an available object."""
        named = self._definitions.get(object_id)
        if named is not None:
            return m.ObjectKind.VALUE, ContentPlace.INLINE, named
        kind = self._kinds.get(object_id, m.ObjectKind.VALUE)
        self._last_uses.pop(object_id, None)
        content = self._inline.get(object_id)
        if content is not None:
            return kind, ContentPlace.INLINE, content
        path = self._paths.get(object_id)
        return None if path is None else (kind, ContentPlace.FILE, os.fsencode(path))

    def forget(self, object_id: int) -> None:
        """Forget an object that is needed no more, though the scheduler may have it still."""
        self._unlink_own(object_id)
        for table in (self._kinds, self._inline, self._paths, self._last_uses):
            table.pop(object_id, None)

    def code_folder(self) -> str:
        """Where code of clients is unpacked: on disk, if there is a place."""
        directory = self._own_directory()
        return os.path.join((directory.spill or directory).path, "code")

    def forget_unused(self, now: float, retention_seconds: float, needed: Callable[[], Set[int]]) -> None:
        """Forget what nobody has asked for in so long; it is fetched again when it is.

        Parameters:
            needed: what tasks and processors have or will want, whenever they got it.
        """
        last_uses = self._last_uses
        here = (*self._inline, *self._paths)
        unused = [each for each in here if now - last_uses.setdefault(each, now) > retention_seconds]
        for object_id in set(unused).difference(needed()) if unused else ():
            self._inline.pop(object_id, None)
            self._paths.pop(object_id, None)
            del last_uses[object_id]
            self._unlink_own(object_id)

    def fetch(self, object_id: int) -> None:
        """Get an object from the scheduler; `on_available` or `on_missing` is called in the end."""
        if object_id in self._fetches:
            return
        fetch = self._fetches[object_id] = _Fetch(self._sizes.get(object_id, 0))
        self._request(object_id, fetch)

    def _request(self, object_id: int, fetch: _Fetch) -> None:
        while len(fetch.asked) < WINDOW:
            left = (fetch.size or self._chunk_bytes) - fetch.requested
            if left <= 0:
                return
            length = min(left, self._chunk_bytes)
            self._ask(object_id, fetch, fetch.requested, length)
            fetch.requested += length

    def _ask(self, object_id: int, fetch: _Fetch, offset: int, length: int) -> None:
        fetch.asked[offset] = length
        self._effects.append(Send(m.ObjectRequest(id=object_id, offset=offset, length=length)))

    def adopt(self, path: str, size: int) -> Tuple[int, bool]:
        """Make a file that a processor wrote an object: its id, 0 if it is gone, and whether the scheduler has it.

        Raises ObjectStorageFullError when it is larger than the scheduler allows; the file is removed then.
        """
        if 0 < self._maximum_object_bytes < size:
            with contextlib.suppress(OSError):
                remove_file(path)
            raise ObjectStorageFullError(f"the task ran, but {too_large(size, self._maximum_object_bytes)}")
        # SCL-OBJ-001, SCL-OBJ-012
        object_id = self._session << _SESSION_SHIFT | self._next_number
        self._next_number += 1
        directory = os.path.dirname(path)
        target = os.path.join(directory, object_name(object_id))
        try:
            # SCL-OBJ-008
            os.rename(path, target)
        except OSError as error:
            logger.error("a large result is lost: %s: %s", path, error.strerror)
            return 0, False
        storage = m.ObjectStorage.SHARED if self.shared else m.ObjectStorage.REMOTE
        if not self.shared:
            self._served[object_id] = _Serving(size)
        instruction = m.ObjectInstruction(
            action=m.ObjectAction.CREATE,
            ids=array("Q", [object_id]),
            sizes=array("Q", [size]),
            storages=bytes([storage]),
            kinds=bytes([m.ObjectKind.VALUE]),
        )
        self._effects.append(Send(instruction))
        return object_id, self.shared

    def discard(self, object_ids: Iterable[int]) -> None:
        """Remove adopted results of which no scheduler was told."""
        directory = self._scheduler_directory if self.shared else self._own_directory().path
        for object_id in object_ids:
            self._served.pop(object_id, None)
            with contextlib.suppress(OSError):
                remove_file(os.path.join(directory, object_name(object_id)))

    # From the scheduler -------------------------------------------------------------------------------------

    def on_instruction(self, message: m.ObjectInstruction, payload: bytes) -> List[int]:
        """Objects to come are announced, or others are gone; returns the ids of the latter.

        Raises ValueError when the message contradicts itself.
        """
        if message.action == m.ObjectAction.CREATE:
            self._create(message, payload)
            return []
        if message.action == m.ObjectAction.CLEAR:
            gone = [*self._inline, *self._paths, *self._sizes]
        elif message.action == m.ObjectAction.DELETE:
            gone = list(message.ids)
        else:
            # SCL-OBJ-016
            gone = []
        for object_id in gone:
            self._forget(object_id)
        return gone

    def _create(self, message: m.ObjectInstruction, payload: bytes) -> None:
        count = len(message.ids)
        kinds = message.kinds or bytes(count)  # ObjectKind.VALUE is 0
        if not count == len(message.sizes) == len(message.storages) == len(kinds):
            raise ValueError("the columns of an ObjectInstruction do not agree")
        start = 0
        columns = zip(message.ids, message.sizes, message.storages, kinds)
        for object_id, size, storage, kind in columns:
            self._kinds[object_id] = kind
            if storage == m.ObjectStorage.INLINE or size == 0:
                if start + size > len(payload):
                    raise ValueError("an ObjectInstruction's payload is shorter than its sizes")
                self._inline[object_id] = payload[start : start + size]
                start += size
            elif storage == m.ObjectStorage.SHARED and self.shared:
                self._paths[object_id] = os.path.join(self._scheduler_directory, object_name(object_id))
            else:
                # SCL-OBJ-017
                self._sizes[object_id] = size  # fetched when a task needs it

    # SCL-OBJ-018
    def _forget(self, object_id: int) -> None:
        self._unlink_own(object_id)
        known_elsewhere = object_id in self._fetches
        for table in (self._kinds, self._inline, self._paths, self._sizes, self._fetches):
            table.pop(object_id, None)
        self._last_uses.pop(object_id, None)
        if known_elsewhere:
            self.on_missing(object_id)
        if self._served.pop(object_id, None) is not None:
            self.on_unserved(object_id)

    def on_response(self, message: m.ObjectResponse, chunk: bytes) -> None:
        """A part of an object that is being fetched, or word that there is none."""
        object_id = message.id
        fetch = self._fetches.get(object_id)
        if fetch is None:
            return  # forgotten while it was on its way
        if message.status != m.ObjectResponseStatus.OK:
            self._give_up(object_id)
            return
        if not fetch.is_answered_by(message, chunk):
            logger.error("object %x: the bytes from %d are not those asked for", object_id, message.offset)
            self._give_up(object_id)
            return
        fetch.size = message.size
        path = self._own_directory().object_path(object_id)
        try:
            if not fetch.received:
                make_room(path, message.size)
            write_chunk(path, message.offset, chunk)
        except NoRoomError as error:
            logger.error("object %x cannot be stored: %s", object_id, error.strerror)
            self._give_up(object_id, str(error.strerror))
            return
        except OSError as error:
            logger.error("object %x (%d bytes) cannot be stored: %s", object_id, message.size, error.strerror)
            self._give_up(object_id)
            return
        fetch.received += len(chunk)
        fetch.requested = max(fetch.requested, fetch.received)
        left = min(fetch.asked.pop(message.offset) - len(chunk), fetch.size - message.offset - len(chunk))
        if left > 0:  # the answer is shorter than the question
            self._ask(object_id, fetch, message.offset + len(chunk), left)
        if fetch.received < fetch.size:
            self._request(object_id, fetch)
            return
        del self._fetches[object_id]
        self._paths[object_id] = path
        self.on_available(object_id)

    def _give_up(self, object_id: int, why: str = "") -> None:
        del self._fetches[object_id]
        self._unlink_own(object_id)
        if why:
            self.on_no_room(object_id, why)
        else:
            self.on_missing(object_id)

    # SCL-OBJ-009
    def on_request(self, message: m.ObjectRequest) -> None:
        """The scheduler fetches a large result."""
        serving = self._served.get(message.id)
        if serving is None or self._private is None or message.offset > serving.size:
            self._refuse(message)
            return
        path = self._private.object_path(message.id)
        length = min(message.length, self._chunk_bytes, serving.size - message.offset)
        try:
            chunk = read_chunk(path, message.offset, length)
            if len(chunk) < length:
                raise OSError(errno.EIO, "its file became shorter")
        except OSError as error:
            logger.error("a large result is lost: %s: %s", path, error.strerror)
            self._refuse(message)
            self._forget(message.id)
            return
        response = m.ObjectResponse(id=message.id, offset=message.offset, size=serving.size)
        self._effects.append(Send(response, chunk))
        if message.offset <= serving.sent:
            serving.sent = max(serving.sent, message.offset + len(chunk))
        if serving.sent >= serving.size:
            del self._served[message.id]
            self._unlink_own(message.id)
            self.on_served(message.id)

    def _refuse(self, message: m.ObjectRequest) -> None:
        missing = m.ObjectResponseStatus.MISSING
        self._effects.append(Send(m.ObjectResponse(id=message.id, offset=message.offset, status=missing)))


def _escape(path: str) -> str:
    """A path as a glob pattern that matches it alone."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in path)
