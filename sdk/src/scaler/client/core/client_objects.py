"""The objects of a client in its current session, and large results that are being fetched.

Rules:
- A client keeps the objects that it has placed while it holds them or an unfinished task needs them. When a session
  ends, the scheduler drops its objects, and the next session needs them again.
- What it has placed as kept is fetched by workers, too: it stays until the scheduler says that the object has ended.
  Functions are placed with the scheduler, however large.
- The id by which this client and its user know an object never changes. The id on the wire (`wire_id`) has the
  session's number in its upper bits and the same lower bits.
"""

from __future__ import annotations

import weakref
from array import array
from typing import Callable, Dict, Iterable, Iterator, List, MutableMapping, NamedTuple, Optional, Set, Tuple

from scaler.client.core.effects import DiscardObject, Effect, FollowToDisk, Outcome, Send, SendChunk
from scaler.client.core.handles import Buffer
from scaler.client.core.kept_objects import KeptObject
from scaler.exceptions import MissingObjects, ObjectStorageFullError
from scaler.values.sizes import DIRECT_BYTES, INLINE_BYTES
from scaler_protocol.session.features import KEPT_ARGUMENTS
from scaler_protocol.session.fetching import FetchWindow
from scaler_protocol.session.ids import NUMBER_MASK, SESSION_SHIFT, object_id_of, session_of
from scaler_protocol.wire import messages as m

Emit = Callable[[Effect], None]

NO_ROOM_FOR_RESULT = (
    "the task ran, but the scheduler had no room for its result: free memory or disk space there, delete objects (del,"
    " client.clear()), or start the scheduler with another --object-directory or --object-spill-directory"
)


class _Fetch:
    def __init__(self, outcome: Outcome, chunk_bytes: int) -> None:
        self.outcome = outcome
        self.window = FetchWindow(chunk_bytes)
        self.content: Optional[bytearray] = None  # its size comes with the first chunk


class Fetched(NamedTuple):
    """A large result, or the reason why it is missing."""

    outcome: Outcome
    error: Optional[Exception] = None


class ClientObjects:
    """Parameters:
    numbers: yields a new number for each new object.
    emit: takes effects, in order.
    references: finds objects while they are referenced; None: weak references.
    direct_bytes: objects of at least this size are kept for workers, if the scheduler knows that.
    """

    def __init__(
        self,
        welcome: m.Welcome,
        numbers: Iterator[int],
        emit: Emit,
        references: Optional[MutableMapping[int, KeptObject]] = None,
        direct_bytes: int = DIRECT_BYTES,
    ) -> None:
        self._direct_bytes = max(direct_bytes, INLINE_BYTES)
        self._served: Dict[int, KeptObject] = {}  # placed as kept, by id in the current session
        self._numbers = numbers
        self._emit = emit
        self._sessions: Set[int] = set()  # of this client: this one, and those that known objects come from
        self._kept: Dict[int, KeptObject] = {}  # by number: what is held, or an argument of unfinished tasks
        self._by_number: MutableMapping[int, KeptObject] = (
            weakref.WeakValueDictionary() if references is None else references
        )
        self._fetching: Dict[int, _Fetch] = {}
        self.start_session(welcome)

    def start_session(self, welcome: m.Welcome) -> None:
        """A session begins: ids carry its number, no object is placed in it yet, and nothing is being fetched."""
        self._sessions = {session_of(kept.object_id) for kept in self._by_number.values()}
        self._sessions.add(welcome.session)
        self._session_bits = object_id_of(welcome.session, 0)
        self._chunk_bytes = welcome.limits.chunk_bytes or 1 << 20
        self._maximum_object_bytes = welcome.limits.maximum_object_bytes
        self._fetching.clear()
        self._keeps = KEPT_ARGUMENTS in welcome.features
        served, self._served = self._served, {}
        for kept in served.values():
            self._drop_unneeded(kept)

    def close(self) -> None:
        self._kept.clear()
        self._served.clear()
        self._fetching.clear()

    # Placing and keeping --------------------------------------------------------------------------------------------

    def hold(self, kept: KeptObject) -> None:
        """Hold an object until `let_go`."""
        # SCL-OBJ-001
        kept.is_held = True
        self._sessions.add(session_of(kept.object_id))  # it may have been made just before this session
        self._kept[kept.number] = self._by_number[kept.number] = kept

    def copy(self, kept: KeptObject) -> KeptObject:
        """Another object with the same content, which is not held yet."""
        number = next(self._numbers)
        kind = m.ObjectKind.VALUE if kept.kind == m.ObjectKind.ARGUMENTS else kept.kind  # it is charged for already
        object_id = self._session_bits | number
        copy = KeptObject(number, object_id, kept.name, kind, kept.size, kept.codec, kept.content)
        copy.needs = kept.needs
        copy.sharers = kept.sharers
        copy.sharers.append(number)
        return copy

    def is_taken(self, kept: KeptObject) -> bool:
        """Whether the scheduler of the current session accepts an object of this size."""
        return kept.size <= self._maximum_object_bytes or not self._maximum_object_bytes

    def charged_bytes(self, object_id: int) -> int:
        """The bytes that are in flight from the moment this client deletes an object until its task has ended."""
        kept = self.find(object_id)
        is_charged = kept is not None and kept.kind == m.ObjectKind.ARGUMENTS and self.is_taken(kept)
        return kept.size if kept is not None and is_charged else 0

    def announcement(self, kept: KeptObject) -> Tuple[m.ObjectInstruction, Tuple[Buffer, ...]]:
        """The message and payload that place an object in the current session; a large one stays here until it is
        fetched."""
        is_inline = kept.size < INLINE_BYTES
        object_id, storage = (
            self.wire_id(kept.object_id),
            m.ObjectStorage.INLINE if is_inline else m.ObjectStorage.REMOTE,
        )
        # SCL-OBJ-038
        if self._keeps and kept.size >= self._direct_bytes and kept.kind != m.ObjectKind.FUNCTION:
            storage = m.ObjectStorage.KEPT
            self._served[object_id] = kept
        instruction = m.ObjectInstruction(
            action=m.ObjectAction.CREATE,
            ids=array("Q", [object_id]),
            sizes=array("Q", [kept.size]),
            storages=bytes([storage]),
            kinds=bytes([kept.kind]),
            names=[kept.name],
            codec=kept.codec,
        )
        return instruction, (kept.content,) if is_inline else ()

    def wire_id(self, object_id: int) -> int:
        """The id of an object at the scheduler in the current session; objects of other peers keep their ids."""
        if object_id >> SESSION_SHIFT in self._sessions:
            return self._session_bits | object_id & NUMBER_MASK
        return object_id

    def is_of_this_session(self, object_id: int) -> bool:
        """Whether the object was made in the current session, and not in one before it."""
        return object_id & ~NUMBER_MASK == self._session_bits

    def is_own(self, object_id: int) -> bool:
        return object_id >> SESSION_SHIFT in self._sessions

    def find(self, object_id: int) -> Optional[KeptObject]:
        """An object of this client, while it is needed."""
        if object_id >> SESSION_SHIFT in self._sessions:
            return self._by_number.get(object_id & NUMBER_MASK)
        return None

    def kept(self) -> List[KeptObject]:
        """Objects that the client holds, and arguments of unfinished tasks."""
        return list(self._kept.values())

    def let_go(self, object_id: int) -> None:
        """The client no longer holds the object; its unfinished tasks may still need it."""
        kept = self.find(object_id)
        if kept is not None:
            kept.is_held = False
            self._drop_unneeded(kept)

    def need(self, object_ids: Iterable[int], tasks: int = 1) -> Tuple[KeptObject, ...]:
        """Count tasks that have these objects among their arguments; returns the objects that are kept here."""
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
        if not kept.is_held and not kept.references and not self._is_served(kept):
            self._kept.pop(kept.number, None)
            if kept.number in kept.sharers:
                kept.sharers.remove(kept.number)
            # A function's object lives as long as batches that call it.
            if kept.kind != m.ObjectKind.FUNCTION and not kept.sharers:
                self._emit(DiscardObject(kept))

    def _is_served(self, kept: KeptObject) -> bool:
        return bool(self._served) and self.wire_id(kept.object_id) in self._served

    def served(self, object_id: int) -> Optional[KeptObject]:
        """What is kept for workers under an id of the current session."""
        return self._served.get(object_id)

    def on_instruction(self, message: m.ObjectInstruction) -> None:
        """Files that the scheduler shares with us are on disk now, or objects that are kept here have ended."""
        # SCL-OBJ-043
        for object_id in message.ids if message.action == m.ObjectAction.DELETE else ():
            ended = self._served.pop(object_id, None)
            if ended is not None:
                self._drop_unneeded(ended)
        # SCL-OBJ-016
        for object_id in message.ids if message.action == m.ObjectAction.SPILL else ():
            kept = self.find(object_id)
            if kept is not None:
                self._emit(FollowToDisk(kept, object_id))

    # SCL-OBJ-009
    def on_request(self, request: m.ObjectRequest) -> None:
        """The scheduler requests a part of an object that is kept here."""
        kept = self._served.get(request.id) or self.find(request.id)
        if kept is not None and request.id == self.wire_id(request.id) and request.offset <= kept.size:
            self._emit(SendChunk(kept, request))
        else:
            self._emit(Send(missing(request)))

    # Large results --------------------------------------------------------------------------------------------------

    def fetch(self, object_id: int, outcome: Outcome) -> None:
        """Begin to fetch a large result."""
        fetch = self._fetching[object_id] = _Fetch(outcome, self._chunk_bytes)
        self._request_more(object_id, fetch)

    def _request_more(self, object_id: int, fetch: _Fetch) -> None:
        # SCL-OBJ-011
        for offset, length in fetch.window.requests():
            self._emit(Send(m.ObjectRequest(id=object_id, offset=offset, length=length)))

    def on_response(self, response: m.ObjectResponse, chunk: bytes) -> Optional[Fetched]:
        """A chunk arrived; returns what was fetched when that was the last one.

        Raises MalformedMessageError if the chunk is not one that was requested.
        """
        fetch = self._fetching.get(response.id)
        if fetch is None:
            return None
        if response.status != m.ObjectResponseStatus.OK or (not chunk and response.size):
            del self._fetching[response.id]
            if response.missing_reason == m.MissingReason.NO_ROOM:
                return Fetched(fetch.outcome, ObjectStorageFullError(NO_ROOM_FOR_RESULT))
            return Fetched(fetch.outcome, MissingObjects("the task's large result was lost before it was fetched"))
        fetch.window.accept(response.offset, len(chunk), response.size)
        if fetch.content is None:
            try:
                fetch.content = bytearray(response.size)
            except (MemoryError, OverflowError):
                del self._fetching[response.id]
                text = (
                    f"the result ({response.size} bytes) does not fit in this process's memory;"
                    " return less data or write it to a file"
                )
                return Fetched(fetch.outcome, ObjectStorageFullError(text))
        fetch.content[response.offset : response.offset + len(chunk)] = chunk
        self._request_more(response.id, fetch)
        if not fetch.window.is_complete:
            return None
        del self._fetching[response.id]
        return Fetched(fetch.outcome._replace(payload=memoryview(fetch.content)))


def missing(request: m.ObjectRequest) -> m.ObjectResponse:
    """The answer to a request for an object that is not here."""
    return m.ObjectResponse(id=request.id, offset=request.offset, status=m.ObjectResponseStatus.MISSING)
