"""Objects of a client: placing them in the cluster, keeping them, and getting at large results.

Rules:
- What a client has placed it keeps, as long as it holds the object or an unfinished task needs it: with its
  session, the scheduler lets go of an object, and the next session needs it again.
- An object's id, as this client and its user know it, never changes. On the wire it carries the session's number in
  its upper bits (`wire_id`), its number among the client's objects stays.
- On the scheduler's host a large object is a file in a directory of the client's own, written once; the scheduler's
  directory gets a hard link, so that keeping costs no memory and placing again no copy. What the scheduler spills to
  disk is linked to there.
- Elsewhere its bytes stay here, and the scheduler fetches them chunk by chunk; large results are fetched likewise.
- Objects are stored by user threads; the client's lock protects the rest, but for fetching, which is the I/O thread's.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import weakref
from array import array
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

from scaler.client.future import ScalerFuture
from scaler.client.shell.forks import reset_lock
from scaler.exceptions import MissingObjects, ObjectStorageFullError
from scaler.values.codecs import PYTHON_CODEC
from scaler.values.payload import INLINE_BYTES, Buffer, Parts, join, parts_size
from scaler.values.texts import too_large
from scaler_protocol import MalformedMessageError
from scaler_protocol import messages as m
from scaler_protocol.host.segments import (
    SPILL_NAME,
    ObjectDirectory,
    map_object,
    object_name,
    read_chunk,
    shares_directory,
)
from scaler_protocol.host.spill import (
    NoRoomError,
    follow_to_disk,
    is_on_disk,
    remove_file,
    share_file,
    write_where_room_is,
)

SESSION_SHIFT = 40
# SCL-OBJ-011
FETCH_WINDOW = 4  # chunks asked for and not arrived
_NUMBER_MASK = (1 << SESSION_SHIFT) - 1

Send = Callable[..., None]


class KeptObject:
    """An object of this client, and its content: bytes, or a file."""

    __slots__ = (
        "number",
        "object_id",
        "name",
        "kind",
        "size",
        "codec",
        "content",
        "path",
        "is_held",
        "references",
        "needs",
        "_owner",
        "__weakref__",
    )

    def __init__(self, number: int, name: str, kind: m.ObjectKind, size: int, codec: str) -> None:
        self.number = number
        self.object_id = 0  # until it is announced
        self.name = name
        self.kind = kind
        self.size = size
        self.codec = codec
        self.content: Optional[bytes] = None
        self.path = ""
        self.is_held = False  # by the client or its user
        self.references = 0  # unfinished tasks that have it among their arguments
        self.needs: Tuple[object, ...] = ()  # what has to be kept for as long
        self._owner = os.getpid()

    def read(self, offset: int, length: int) -> Buffer:
        """A part of the content. Raises OSError when its file is gone."""
        if self.content is None:
            return read_chunk(self.path, offset, length)
        return memoryview(self.content)[offset : offset + length]

    def remove(self) -> None:
        """Nobody needs the content any more."""
        path, self.path = self.path, ""
        if path and self._owner == os.getpid():  # and not a fork of it
            with contextlib.suppress(OSError):
                remove_file(path)

    def __del__(self) -> None:
        self.remove()  # a function's, which lives as long as batches that call it


class _Fetch:
    def __init__(self, future: ScalerFuture) -> None:
        self.future = future
        self.content: Optional[bytearray] = None  # its size comes with the first chunk
        self.requested = 0
        self.arrived = 0
        self.asked: Dict[int, int] = {}  # lengths of the requests without an answer, by offset


class Fetched(NamedTuple):
    future: ScalerFuture
    content: Optional[Buffer]
    error: Optional[Exception]


class ObjectChannel:
    def __init__(self, welcome: m.Welcome) -> None:
        self._numbers = itertools.count(1)
        self._sessions: Set[int] = set()  # all that this client has had
        self._kept: Dict[int, KeptObject] = {}  # by number: what is held, or an argument of unfinished tasks
        self._by_number: weakref.WeakValueDictionary[int, KeptObject] = weakref.WeakValueDictionary()
        self._own: Optional[ObjectDirectory] = None
        self._own_lock = threading.Lock()
        self._fetching: Dict[int, _Fetch] = {}
        self.start_session(welcome)

    def start_session(self, welcome: m.Welcome) -> None:
        """From now on ids carry this session's number; nothing is placed in it, and nothing is being fetched."""
        self._sessions.add(welcome.session)
        self._session_bits = welcome.session << SESSION_SHIFT
        self._directory = welcome.object_directory
        self._chunk_bytes = welcome.limits.chunk_bytes or 1 << 20
        self._maximum_object_bytes = welcome.limits.maximum_object_bytes
        self._is_shared = shares_directory(welcome.object_directory, welcome.object_directory_token)
        self._fetching.clear()

    # Placing and keeping --------------------------------------------------------------------------------------------

    def store(self, parts: Parts, name: str, kind: m.ObjectKind, codec: str = PYTHON_CODEC) -> KeptObject:
        """Keep serialised parts, for an object that nobody knows of yet. Any thread, without the lock.

        Raises ObjectStorageFullError when there is no room, or the scheduler takes no object so large.
        """
        size = parts_size(parts)
        if 0 < self._maximum_object_bytes < size:
            raise ObjectStorageFullError(f"nothing was sent: {too_large(size, self._maximum_object_bytes)}")
        kept = KeptObject(next(self._numbers), name, kind, size, codec)
        if size < INLINE_BYTES or not self._is_shared:
            kept.content = join(parts)
        else:
            path = os.path.join(self._own_directory(), object_name(kept.number))
            try:
                write_where_room_is(path, parts)
            except NoRoomError as error:
                raise ObjectStorageFullError(f"nothing was sent: {error.strerror}") from error
            kept.path = path
        return kept

    def _own_directory(self) -> str:
        with self._own_lock:
            if self._own is None:
                try:  # beside the scheduler's: links do not cross file systems
                    self._own = ObjectDirectory(os.path.dirname(self._directory))
                except OSError:
                    self._own = ObjectDirectory()
                spill = os.path.join(self._directory, SPILL_NAME)
                if os.path.islink(spill):
                    with contextlib.suppress(OSError):
                        self._own.open_spill(os.path.dirname(os.path.realpath(spill)))
            return self._own.path

    def hold(self, kept: KeptObject) -> None:
        """Give a stored object its id; from now on it is held, until `let_go`."""
        # SCL-OBJ-001
        kept.object_id = self._session_bits | kept.number
        kept.is_held = True
        self._kept[kept.number] = self._by_number[kept.number] = kept

    def is_taken(self, kept: KeptObject) -> bool:
        """Whether the scheduler of the present session takes an object so large."""
        return kept.size <= self._maximum_object_bytes or not self._maximum_object_bytes

    def announcement(self, kept: KeptObject) -> Tuple[m.ObjectInstruction, Tuple[Buffer, ...]]:
        """Message and payload that place an object in the present session."""
        object_id = self.wire_id(kept.object_id)
        payload: Tuple[Buffer, ...] = ()
        storage = m.ObjectStorage.REMOTE
        if kept.size < INLINE_BYTES:
            storage = m.ObjectStorage.INLINE
            payload = (kept.read(0, kept.size),)
        elif self._is_shared and kept.path:
            with contextlib.suppress(OSError):  # another file system: the scheduler fetches it
                # SCL-OBJ-008
                share_file(kept.path, os.path.join(self._directory, object_name(object_id)))
                storage = m.ObjectStorage.SHARED
        instruction = m.ObjectInstruction(
            action=m.ObjectAction.CREATE,
            ids=array("Q", [object_id]),
            sizes=array("Q", [kept.size]),
            storages=bytes([storage]),
            kinds=bytes([kept.kind]),
            names=[kept.name],
            codec=kept.codec,
        )
        return instruction, payload

    def wire_id(self, object_id: int) -> int:
        """What the scheduler calls an object now; those of other peers keep their ids."""
        if object_id >> SESSION_SHIFT in self._sessions:
            return self._session_bits | object_id & _NUMBER_MASK
        return object_id

    def is_own(self, object_id: int) -> bool:
        return object_id >> SESSION_SHIFT in self._sessions

    def find(self, object_id: int) -> Optional[KeptObject]:
        """An object of this client, while anybody needs it."""
        return self._by_number.get(object_id & _NUMBER_MASK) if self.is_own(object_id) else None

    def kept(self) -> List[KeptObject]:
        """Objects that the client holds, and those that are arguments of unfinished tasks."""
        return list(self._kept.values())

    def let_go(self, object_id: int) -> None:
        """The client does not need the object any more; its unfinished tasks may."""
        kept = self.find(object_id)
        if kept is not None:
            kept.is_held = False
            self._drop_unneeded(kept)

    def need(self, object_ids: Iterable[int], tasks: int = 1) -> Tuple[KeptObject, ...]:
        """So many tasks have these objects among their arguments; returns those of them that are kept here."""
        found = tuple(filter(None, map(self.find, object_ids)))
        for kept in found:
            kept.references += tasks
        return found

    def release(self, needed: Iterable[KeptObject]) -> None:
        """A task has its outcome."""
        for kept in needed:
            kept.references -= 1
            self._drop_unneeded(kept)

    def _drop_unneeded(self, kept: KeptObject) -> None:
        if not kept.is_held and not kept.references:
            self._kept.pop(kept.number, None)
            if kept.kind != m.ObjectKind.FUNCTION:
                kept.remove()

    def on_instruction(self, message: m.ObjectInstruction, lock: threading.Lock) -> None:
        """Files that the scheduler shares with us are on disk now: ours shall not keep them in memory."""
        # SCL-OBJ-016
        for object_id in message.ids if message.action == m.ObjectAction.SPILL else ():
            with lock:
                kept = self.find(object_id)
                if kept is not None and kept.path and not is_on_disk(kept.path):
                    with contextlib.suppress(OSError):  # it is gone there, or we have no place on that disk
                        follow_to_disk(os.path.join(self._directory, object_name(object_id)), kept.path)

    # SCL-OBJ-009
    def on_request(self, request: m.ObjectRequest, send: Send) -> None:
        """The scheduler fetches a part of an object that is here."""
        kept = self.find(request.id)
        if kept is not None and request.id == self.wire_id(request.id) and request.offset <= kept.size:
            with contextlib.suppress(OSError):
                chunk = kept.read(request.offset, request.length)
                send(m.ObjectResponse(id=request.id, offset=request.offset, size=kept.size), (chunk,))
                return
        send(m.ObjectResponse(id=request.id, offset=request.offset, status=m.ObjectResponseStatus.MISSING))

    # Large results --------------------------------------------------------------------------------------------------

    def open(self, object_id: int) -> Optional[Buffer]:
        """The content of an object in the shared directory; None when it must be fetched."""
        if not self._is_shared:
            return None
        try:
            return map_object(os.path.join(self._directory, object_name(object_id)))
        except OSError:
            return None

    def fetch(self, object_id: int, future: ScalerFuture, send: Send) -> None:
        """Begin to fetch a large result for a future."""
        fetch = self._fetching[object_id] = _Fetch(future)
        self._ask(object_id, fetch, 0, self._chunk_bytes, send)

    def _ask(self, object_id: int, fetch: _Fetch, offset: int, length: int, send: Send) -> None:
        fetch.asked[offset] = length
        send(m.ObjectRequest(id=object_id, offset=offset, length=length))

    def on_response(self, response: m.ObjectResponse, chunk: bytes, send: Send) -> Optional[Fetched]:
        """A chunk arrived; returns what was fetched when that was the last one."""
        fetch = self._fetching.get(response.id)
        if fetch is None:
            return None
        if response.status != m.ObjectResponseStatus.OK or (not chunk and response.size):
            del self._fetching[response.id]
            return Fetched(fetch.future, None, MissingObjects("the task's large result was lost before it was fetched"))
        asked = fetch.asked.pop(response.offset, -1)
        size = response.size if fetch.content is None else len(fetch.content)
        end = response.offset + len(chunk)
        if len(chunk) > asked or end > size or response.size != size:
            raise MalformedMessageError("a chunk of an object is not what was asked for, or leads beyond its end")
        if fetch.content is None:
            try:
                fetch.content = bytearray(size)
            except (MemoryError, OverflowError):
                del self._fetching[response.id]
                text = (
                    f"the result ({size} bytes) does not fit in this process's memory;"
                    " return less data or write it to a file"
                )
                return Fetched(fetch.future, None, ObjectStorageFullError(text))
            fetch.requested = min(self._chunk_bytes, size)
        fetch.content[response.offset : end] = chunk
        fetch.arrived += len(chunk)
        if len(chunk) < asked and end < size:  # the answer is shorter than the question
            self._ask(response.id, fetch, end, min(asked - len(chunk), size - end), send)
        while fetch.requested < size and len(fetch.asked) < FETCH_WINDOW:
            self._ask(response.id, fetch, fetch.requested, self._chunk_bytes, send)
            fetch.requested = min(fetch.requested + self._chunk_bytes, size)
        if fetch.arrived < size:
            return None
        del self._fetching[response.id]
        return Fetched(fetch.future, memoryview(fetch.content), None)

    def disown(self) -> None:
        """In a fork of the client's process: files stay, and end with the parent."""
        reset_lock(self._own_lock)
        if self._own is not None:
            self._own.disown()

    def close(self) -> None:
        self._kept.clear()
        self._fetching.clear()
        with self._own_lock:
            if self._own is not None:
                self._own.remove()
