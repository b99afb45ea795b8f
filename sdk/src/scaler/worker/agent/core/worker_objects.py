"""Objects on this host: where their content is, fetching those of other hosts, and serving those that were made here.

    inline ── in memory ───────────────────────────────────────┐
    shared ── a file in the scheduler's directory ─────────────┼──▶ processors (bytes, or a path to map)
    elsewhere ── fetched, chunk by chunk, to a file of our own ┤   from other workers that have it, or the scheduler
         └────── a file of another worker on this host, linked ┘   if it is whole

    large result ── renamed in the scheduler's directory if it is shared, else kept here until the scheduler deletes it
                    (an old scheduler: until it has fetched it); tasks here use it where it is, other workers fetch it

Rules:
- Unknown objects are requested: the scheduler answers every ObjectRequest, if only with "missing".
- A fetch keeps a few requests open (see `FetchWindow`), and requests more when received parts are on disk.
- What others hold is looked for on this host before it is requested: when a task needs it, and again when the scheduler
  names a holder on this host, for which this worker may have waited. A file that is found there becomes ours, too.
- Files of our own are named after the object and the scheduler's token: another scheduler, whose workers may be on the
  same host, has objects with the same id.
- An outcome whose result is here is sent when the file has its name. With an old scheduler, it is not sent before that
  has all of it (see `ObjectListener`).
- Objects that were not used for long are forgotten, and requested again when a task needs them. Objects that a task
  here needs are kept, and so are results that were made here, or fetched from other workers.
- The shell handles files: this table requests file operations and gets their results.
"""

from __future__ import annotations

from array import array
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple

from scaler.worker.agent.core.effects import (
    ERROR,
    Effect,
    FindObject,
    KeepResult,
    LinkCopy,
    Log,
    NameCopy,
    ObjectListener,
    ObjectSource,
    RemoveFiles,
    Send,
    WriteChunk,
)
from scaler.worker.agent.core.function_ids.named_function_ids import NamedFunctionIds
from scaler.worker.agent.core.transfers.direct_fetches import FetchOwner
from scaler.worker.agent.core.transfers.object_progress import GivenUpRequests, ObjectFetch
from scaler.worker.agent.core.transfers.served_files import ServedFiles
from scaler.worker.agent.core.transfers.worker_transfers import WorkerTransfers
from scaler.worker.frames import Buffer, ContentPlace
from scaler_protocol import MalformedMessageError
from scaler_protocol import messages as m
from scaler_protocol.session.features import KEPT_RESULTS
from scaler_protocol.session.fetching import FetchWindow
from scaler_protocol.session.ids import object_id_of

DEFAULT_CHUNK_BYTES = 1024 * 1024
NO_ROOM_AT_SCHEDULER = (
    "could not be stored by the scheduler: free memory or disk space there, delete objects (del, client.clear()), or"
    " start it with another --object-directory or --object-spill-directory"
)


class WorkerObjects(ObjectSource, FetchOwner):
    """The objects of one worker.

    Parameters:
        effects: shared with the rest of the core.
        numbers: yields a new number for each object of this worker.

    Attributes:
        data_address: where others reach this worker, if it has listed the feature `peerFetch`.
        served: what is here for others.
    """

    listener: ObjectListener

    def __init__(self, effects: List[Effect], numbers: Iterator[int]) -> None:
        self.named_functions = NamedFunctionIds()
        self.served = ServedFiles(effects, self._is_open, self._forget, self._on_fetched)
        self.transfers = WorkerTransfers(effects, self, self.served.on_request)
        self.data_address = ""
        self.is_shared = False  # whether this host sees the scheduler's object directory
        self._keeps = False  # results until the scheduler deletes them
        self._effects = effects
        self._directory = ""  # for results, and with the scheduler's objects if it is shared
        self._token = ""  # of the scheduler
        self._session = 0
        self._chunk_bytes = DEFAULT_CHUNK_BYTES
        self._maximum_object_bytes = 0
        self._numbers = numbers
        self._next_fetch = 1
        self._kinds: Dict[int, int] = {}
        self._inline: Dict[int, bytes] = {}
        self._paths: Dict[int, str] = {}
        self._own_files: Dict[int, str] = {}  # paths of those that were fetched
        self._sizes: Dict[int, int] = {}  # of objects that are elsewhere
        self._held: Set[int] = set()  # those of them that other workers have
        self._looked_for: Set[int] = set()  # in the scheduler's directory
        self._fetches: Dict[int, ObjectFetch] = {}
        self._given_up = GivenUpRequests()
        self._kept: Dict[int, Tuple[str, int]] = {}  # results being renamed: path and size
        self._last_uses: Dict[int, float] = {}  # when the content of objects that are here was last used

    @property
    def maximum_object_bytes(self) -> int:
        return self._maximum_object_bytes

    # Sessions -----------------------------------------------------------------------------------------------

    def start_session(self, welcome: m.Welcome) -> None:
        """Start with nothing; `open` follows before anything else."""
        self.forget_all()
        self._session = welcome.session
        self._token = welcome.object_directory_token.hex()
        self._chunk_bytes = welcome.limits.chunk_bytes or DEFAULT_CHUNK_BYTES
        self._maximum_object_bytes = welcome.limits.maximum_object_bytes
        self._keeps = KEPT_RESULTS in welcome.features
        self.served.start_session(self._chunk_bytes, self._keeps)
        self.transfers.start_session(welcome, self.data_address)

    def open(self, is_shared: bool, write_prefix: str) -> None:
        """It is known now whether objects are shared through memory.

        Parameters:
            write_prefix: the start of the path of each file that a processor writes.
        """
        self.is_shared = is_shared
        self._directory = write_prefix.rpartition("/")[0]

    def forget_all(self) -> None:
        """The session has ended: its objects are gone."""
        paths = [*self._own_files.values(), *self.served.paths.values()]
        paths += [fetch.path for fetch in self._fetches.values() if fetch.path]
        self._remove(paths)
        tables = (self._kinds, self._inline, self._paths, self._own_files, self._sizes, self._fetches)
        self._looked_for.clear()
        self._held.clear()
        self.named_functions.clear()
        self.transfers.clear()
        self._given_up.clear()
        self.served.clear()
        for table in (*tables, self._kept, self._last_uses):
            table.clear()

    def _remove(self, paths: Iterable[str]) -> None:
        found = tuple(paths)
        if found:
            self._effects.append(RemoveFiles(found))

    def _remove_own(self, object_id: int) -> None:
        path = self._own_files.pop(object_id, "")
        if path:
            self._remove([path])

    # What tasks ask -----------------------------------------------------------------------------------------

    def is_available(self, object_id: int) -> bool:
        """Whether the object can be given to processors now. Id 0 stands for no object."""
        return (
            object_id == 0 or object_id in self._inline or object_id in self._paths or object_id in self.named_functions
        )

    def places(self) -> Dict[int, str]:
        """Where each object is, for people."""
        found = dict.fromkeys(self._sizes, "elsewhere")
        found.update(dict.fromkeys(self._looked_for, "looked for"))
        found.update(dict.fromkeys(self._fetches, "being fetched"))
        found.update(dict.fromkeys(self._inline, "in memory"))
        found.update({each: f"in {path}" for each, path in self._paths.items()})
        found.update({each: f"result, to be {path}" for each, (path, _) in self._kept.items()})
        found.update({each: f"result, in {path}" for each, path in self.served.paths.items()})
        return found

    def definition(self, object_id: int) -> Optional[Tuple[int, ContentPlace, Buffer]]:
        """Kind, place and content of an available object."""
        named = self.named_functions.find(object_id)
        if named is not None:
            return m.ObjectKind.VALUE, ContentPlace.INLINE, named
        kind = self._kinds.get(object_id, m.ObjectKind.VALUE)
        self._last_uses.pop(object_id, None)
        content = self._inline.get(object_id)
        if content is not None:
            return kind, ContentPlace.INLINE, content
        path = self._paths.get(object_id)
        return None if path is None else (kind, ContentPlace.FILE, path.encode("utf-8", "surrogateescape"))

    def forget(self, object_id: int) -> None:
        """Forget an object that is no longer needed, although the scheduler may still have it. No task waits for it."""
        self._remove_own(object_id)
        fetch = self._fetches.pop(object_id, None)
        if fetch is not None:
            self._end_fetch(object_id, fetch, is_told=True)
        self._looked_for.discard(object_id)
        for table in (self._kinds, self._inline, self._paths, self._last_uses):
            table.pop(object_id, None)

    def forget_unused(self, now: float, retention_seconds: float, needed: Callable[[], Set[int]]) -> None:
        """Forget objects that were not used for this long; they are fetched again when a task needs them.

        Parameters:
            needed: the objects that tasks and processors have or will need, however old.
        """
        last_uses = self._last_uses
        here = [each for each in (*self._inline, *self._paths) if each not in self.served]
        unused = [each for each in here if now - last_uses.setdefault(each, now) > retention_seconds]
        for object_id in set(unused).difference(needed()) if unused else ():
            self._inline.pop(object_id, None)
            self._paths.pop(object_id, None)
            del last_uses[object_id]
            self._remove_own(object_id)

    # Fetching -----------------------------------------------------------------------------------------------

    def fetch(self, object_id: int) -> None:
        """Get an object; the listener's `on_object_available` or `on_object_missing` follows."""
        if object_id in self._fetches or object_id in self._looked_for:
            return
        if self.is_shared and object_id not in self._sizes:
            self._looked_for.add(object_id)
            self._effects.append(FindObject(object_id, self._shared_path(object_id)))
        else:
            self._start_fetch(object_id)

    def _shared_path(self, object_id: int) -> str:
        return f"{self._directory}/{object_name(object_id)}"

    def on_found(self, object_id: int, is_there: bool) -> None:
        """Whether the scheduler's directory has an object that was not announced."""
        if object_id not in self._looked_for:
            return
        self._looked_for.discard(object_id)
        if is_there:
            self._paths[object_id] = self._shared_path(object_id)
            self.listener.on_object_available(object_id)
        else:
            self._start_fetch(object_id)

    def _start_fetch(self, object_id: int) -> None:
        window = FetchWindow(self._chunk_bytes, self._sizes.get(object_id))
        fetch = self._fetches[object_id] = ObjectFetch(self._next_fetch, window)
        self._next_fetch += 1
        if not (object_id in self._held and self.transfers.is_used):
            self._request(object_id, fetch)
            return
        fetch.is_direct = True
        if self._token:
            self.look_nearby(object_id)
        else:
            self.transfers.fetches.begin(object_id, fetch)

    def look_nearby(self, object_id: int) -> None:
        """See whether another worker on this host has the whole object, before it is fetched."""
        name, size = self._own_name(object_id), self._sizes[object_id]
        self._effects.append(LinkCopy(object_id, self._fetches[object_id].number, name, size))

    def on_copy_linked(self, object_id: int, number: int, path: str) -> None:
        """Another worker on this host has the whole object, which is our file now as well; or none has it.

        Parameters:
            path: of that file; empty: none.
        """
        fetch = self._fetches.get(object_id)
        if path:
            self.on_copy_named(object_id, number, path)
        elif fetch is not None and fetch.number == number:
            self.transfers.fetches.go_on(object_id, fetch)

    def on_copy_named(self, object_id: int, number: int, path: str) -> None:
        """The whole object is in a file of ours that has its name."""
        fetch = self._fetches.get(object_id)
        if fetch is None or fetch.number != number:
            if object_id not in self._paths:
                self._remove([path])  # before another fetch can give it to its own file
            return
        del self._fetches[object_id]
        self._paths[object_id] = path
        if object_id in self._held and self.transfers.is_used:
            self._keep_copy(object_id, path, fetch)
        else:
            self._own_files[object_id] = path
        self.listener.on_object_available(object_id)

    def _own_name(self, object_id: int) -> str:
        """Of the file of an object that is not in the scheduler's directory."""
        return f"{object_name(object_id)}-{self._token}" if self._token else object_name(object_id)

    # SCL-OBJ-011
    def _request(self, object_id: int, fetch: ObjectFetch) -> None:
        fetches = self.transfers.fetches
        if fetch.is_direct and not fetches.is_ready(object_id):
            return  # until it is known from whom
        for offset, length in fetch.window.requests():
            if fetch.is_direct:
                fetches.request(object_id, offset, length)
            else:
                self._effects.append(Send(m.ObjectRequest(id=object_id, offset=offset, length=length)))

    def on_holder_ready(self, object_id: int) -> None:
        self._request(object_id, self._fetches[object_id])

    # SCL-OBJ-028
    def on_no_holder(self, object_id: int) -> None:
        fetch = self._fetches[object_id]
        fetch.is_direct = False
        self._request(object_id, fetch)

    def on_part_received(self, object_id: int, message: m.ObjectResponse, chunk: Buffer) -> None:
        self._take_part(object_id, self._fetches[object_id], message, chunk)

    def _take_part(self, object_id: int, fetch: ObjectFetch, message: m.ObjectResponse, chunk: Buffer) -> None:
        """Requested bytes have come. Raises MalformedMessageError if they were not requested."""
        # SCL-OBJ-034
        is_first = not fetch.window.received_bytes
        fetch.window.accept(message.offset, len(chunk), message.size, fetch.is_direct)
        effect = WriteChunk(object_id, fetch.number, message.offset, chunk, message.size, is_first)
        self._effects.append(effect)

    def on_response(self, message: m.ObjectResponse, chunk: bytes) -> None:
        """A part of an object that is being fetched, or the answer that it is missing."""
        object_id = message.id
        fetch = self._fetches.get(object_id)
        if self._given_up.take(object_id, message.offset) or fetch is None or fetch.is_direct:
            return  # forgotten in the meantime
        if message.status != m.ObjectResponseStatus.OK:
            has_room = message.missing_reason != m.MissingReason.NO_ROOM
            fetch.window.refuse(message.offset)
            self._give_up(object_id, "" if has_room else NO_ROOM_AT_SCHEDULER, message.missing_reason)
            return
        try:
            self._take_part(object_id, fetch, message, chunk)
        except MalformedMessageError as error:
            self._effects.append(Log(ERROR, f"object {object_id:x} cannot be fetched: {error}"))
            fetch.window.refuse(message.offset)
            self._give_up(object_id)

    def on_chunk_written(self, object_id: int, number: int, length: int, path: str) -> None:
        """The file of a fetched object has more bytes."""
        fetch = self._fetches.get(object_id)
        if fetch is None or fetch.number != number:
            self._remove([path])  # forgotten in the meantime
            return
        fetch.path = path
        fetch.written_bytes += length
        if not fetch.window.is_complete or fetch.is_writing:
            self._request(object_id, fetch)
        else:
            self._effects.append(NameCopy(object_id, number, path, self._own_name(object_id)))

    # SCL-OBJ-029
    def _keep_copy(self, object_id: int, path: str, fetch: ObjectFetch) -> None:
        """An object is here that other workers have: from now on it can be fetched here, too."""
        self.served.add(object_id, path, fetch.window.size or 0)
        self._effects.append(Send(_about(m.ObjectAction.HOLD, object_id)))
        self.transfers.fetches.end(object_id, is_told=False)

    def _end_fetch(self, object_id: int, fetch: ObjectFetch, is_told: bool) -> None:
        """An object is not fetched any further, and what has come of it is removed."""
        if fetch.path:
            self._remove([fetch.path])
        if fetch.is_direct:
            self.transfers.fetches.end(object_id, is_told)
        else:
            self._given_up.add(object_id, fetch.window.unanswered)
            if is_told and object_id in self._held:
                self._effects.append(Send(_about(m.ObjectAction.DROP, object_id)))

    def on_chunk_failed(self, object_id: int, number: int, why: str, is_full: bool) -> None:
        """A part of a fetched object could not be written, because the disk is full or for another reason."""
        fetch = self._fetches.get(object_id)
        if fetch is None or fetch.number != number:
            return
        self._effects.append(
            Log(ERROR, f"object {object_id:x} ({fetch.window.size or 0} bytes) cannot be stored: {why}")
        )
        self._give_up(object_id, f"cannot be stored on this host: {why}" if is_full else "")

    def _give_up(self, object_id: int, why: str = "", reason: int = m.MissingReason.UNKNOWN) -> None:
        """Parameters:
        why: it has no room here or at the scheduler; empty: it is missing for another reason.
        reason: which one, as the scheduler says.
        """
        self._end_fetch(object_id, self._fetches.pop(object_id), is_told=True)
        if why:
            self.listener.on_no_room_for_object(object_id, why)
        else:
            self.listener.on_object_missing(object_id, is_maker_lost=reason == m.MissingReason.MAKER_LOST)

    # Results ------------------------------------------------------------------------------------------------

    def adopt(self, path: str, size: int) -> int:
        """Make an object of a file that a processor wrote: its id, or 0 when it is larger than the scheduler allows.

        The listener's `on_object_served` follows when the scheduler has it, or `on_object_unserved` when it is gone.
        """
        if 0 < self._maximum_object_bytes < size:
            self._remove([path])
            return 0
        # SCL-OBJ-001, SCL-OBJ-012
        object_id = object_id_of(self._session, next(self._numbers))
        target = self._result_path(path.rpartition("/")[0], object_id)
        self._kept[object_id] = target, size
        # SCL-OBJ-008
        self._effects.append(KeepResult(object_id, path, target))
        return object_id

    def on_kept(self, object_id: int, target: str, why: str = "") -> None:
        """The file of a large result was renamed to its object's name, or is gone.

        Parameters:
            why: the reason why it is gone; empty if it was renamed.
        """
        path, size = self._kept.pop(object_id, ("", 0))
        if not path:
            if not why:
                self._remove([target])  # of a session that has ended
            return
        if why:
            self._effects.append(Log(ERROR, f"a large result is lost: {path}: {why}"))
            self.listener.on_object_unserved(object_id)
            return
        # SCL-OBJ-021
        of_its_own = m.ObjectStorage.KEPT if self._keeps else m.ObjectStorage.REMOTE
        storage = m.ObjectStorage.SHARED if self.is_shared else of_its_own
        instruction = m.ObjectInstruction(
            action=m.ObjectAction.CREATE,
            ids=array("Q", [object_id]),
            sizes=array("Q", [size]),
            storages=bytes([storage]),
            kinds=bytes([m.ObjectKind.VALUE]),
        )
        self._effects.append(Send(instruction))
        if not self.is_shared:
            self.served.add(object_id, path, size)
        if self._keeps and not self.is_shared:
            self._paths[object_id] = path
        if self._keeps or self.is_shared:
            self.listener.on_object_served(object_id)

    @property
    def owes_results(self) -> bool:
        """Whether results are here that the scheduler has neither fetched nor deleted."""
        return self.served.are_owed

    def _is_open(self, connection: int) -> bool:
        return self.transfers.service.is_open(connection)

    def _on_fetched(self, object_id: int) -> None:
        """An old scheduler has all bytes of a result."""
        self._remove([self.served.pop(object_id)])
        self.listener.on_object_served(object_id)

    def discard(self, object_ids: Iterable[int]) -> None:
        """Remove kept results that were never announced."""
        for object_id in object_ids:
            self.served.pop(object_id)
            self._remove([self._result_path(self._directory, object_id)])

    def _result_path(self, directory: str, object_id: int) -> str:
        return f"{directory}/{object_name(object_id) if self.is_shared else self._own_name(object_id)}"

    # From the scheduler -------------------------------------------------------------------------------------

    def on_instruction(self, message: m.ObjectInstruction, payload: bytes) -> List[int]:
        """Objects are announced or deleted; returns the ids of deleted ones.

        Raises MalformedMessageError if the message contradicts itself.
        """
        if message.action == m.ObjectAction.CREATE:
            self._create(message, payload)
            return []
        if message.action == m.ObjectAction.CLEAR:
            gone = [*self._inline, *self._paths, *self._sizes]
        elif message.action == m.ObjectAction.DELETE:
            gone = list(message.ids)
        elif message.action == m.ObjectAction.DROP:
            self.served.owe_no_more(message.ids)
            gone = []
        else:
            # SCL-OBJ-016
            gone = []
        for object_id in gone:
            self._forget(object_id)
        return gone

    def _create(self, message: m.ObjectInstruction, payload: bytes) -> None:
        message.check_columns()
        kinds = message.kinds or bytes(len(message.ids))  # ObjectKind.VALUE is 0
        start = 0
        columns = zip(message.ids, message.sizes, message.storages, kinds)
        for object_id, size, storage, kind in columns:
            self._kinds[object_id] = kind
            if storage == m.ObjectStorage.INLINE or size == 0:
                if start + size > len(payload):
                    raise MalformedMessageError("an ObjectInstruction's payload is shorter than its sizes")
                self._inline[object_id] = payload[start : start + size]
                start += size
            elif storage == m.ObjectStorage.SHARED and self.is_shared:
                self._paths[object_id] = self._shared_path(object_id)
            else:
                # SCL-OBJ-017
                self._sizes[object_id] = size  # fetched when a task needs it
                if storage == m.ObjectStorage.HELD:
                    self._held.add(object_id)

    # SCL-OBJ-018
    def _forget(self, object_id: int) -> None:
        self._remove_own(object_id)
        fetch = self._fetches.pop(object_id, None)
        if fetch is not None:
            self._end_fetch(object_id, fetch, is_told=False)
        is_awaited = fetch is not None or object_id in self._looked_for
        self._looked_for.discard(object_id)
        self._held.discard(object_id)
        self.transfers.service.forget(object_id)
        for table in (self._kinds, self._inline, self._paths, self._sizes, self._last_uses):
            table.pop(object_id, None)
        if is_awaited:
            self.listener.on_object_missing(object_id)
        path = self.served.pop(object_id)
        kept = self._kept.pop(object_id, None)
        if path:
            self._remove([path])
        if path or kept is not None:
            self.listener.on_object_unserved(object_id)


def _about(action: m.ObjectAction, object_id: int) -> m.ObjectInstruction:
    """What the scheduler learns about a copy here."""
    return m.ObjectInstruction(action=action, ids=array("Q", [object_id]))


def object_name(object_id: int) -> str:
    """The file name of an object: its id in 16 hexadecimal digits."""
    return f"{object_id:016x}"
