"""The scheduler's objects: their owners, the tasks that need them, where their bytes are.

Rules:
- An object lives exactly as long as its owner holds it or an unfinished task needs it.
- Only small objects (mostly functions) have their bytes in the core, unless memory is short; others are files in the
  object directory, of which the core knows the size and the received part.
- Bytes of an object on another host are fetched by request, a few chunks at a time, in order; requests for bytes that
  have not arrived yet wait. If their source is gone, all waiting requests are refused.
- Of very many requests that have waited for the same bytes, AT_ONCE are answered in one call.
- Workers may have the bytes of an object until it ends: the one that made it, and those that fetched it; and so may
  the client that made it. The scheduler fetches them when a peer needs them from it, and not before; or when tasks of
  another client need them, since they must not end with the one that made it. If a holder is gone, it goes on with
  another one; if all are, and the bytes have not been fetched, the object is lost.
- Large objects that are here, and that several tasks may need, are announced to workers that do not see our files as if
  others had them: so the first of these fetch them here, and the others from those.
"""

from __future__ import annotations

from array import array
from collections import deque
from typing import Callable, Deque, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from scaler_appliance.core.effects import Effect, RemoveObject, Send, SendChunk, StoreChunk
from scaler_appliance.core.large_tables import LARGE, Table, drained, in_chunks
from scaler_appliance.core.memory_budget import MemoryBudget
from scaler_appliance.core.objects.object_memory import ObjectMemory
from scaler_appliance.core.objects.object_records import (
    ChunkRequest,
    Copies,
    Holder,
    ObjectChanges,
    ObjectPlace,
    ObjectRecord,
)
from scaler_appliance.core.objects.object_transfers import ObjectTransfers, fetches_from_workers
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_protocol import messages as m
from scaler_protocol.session.fetching import FETCH_WINDOW_CHUNKS


class ObjectUsage(NamedTuple):
    """How many objects, and their size."""

    objects: int
    size_bytes: int


_NO_USAGE = ObjectUsage(0, 0)

AT_ONCE = 64  # answers to requests that have waited
UNITS_OF_AN_ANSWER = 4
REQUESTS_PER_UNIT = 16  # that are only looked at


class _Requests(NamedTuple):
    """Requests for parts of one object that have waited, the first one last."""

    record: ObjectRecord
    requests: List[ChunkRequest]
    is_refused: bool


class ObjectTable:
    """All objects by id, with the effects of creating and deleting them.

    Parameters:
        memory: keeps the places of all files.
        changes: records what monitors are to get.
        budget: says when memory is short.
        smallest_file_bytes: of a content that is then kept on disk.
        is_current: whether a peer has this session still.
        transfers: between workers.
        spread_bytes: of objects that are counted in `spread`.

    Attributes:
        spread: how many objects workers fetch from one another, if they do not see our files.
        on_sent: called with the session and the object when a peer has been sent its last part.
        to_answer: requests that have waited; while there are any, `answer_some` has something to do.
    """

    def __init__(
        self,
        effects: List[Effect],
        chunk_bytes: int,
        memory: ObjectMemory,
        changes: ObjectChanges,
        budget: MemoryBudget,
        smallest_file_bytes: int,
        is_current: Callable[[bytes, int], bool],
        transfers: ObjectTransfers,
        spread_bytes: int,
    ) -> None:
        self._spread_bytes = spread_bytes
        self.spread = 0
        self.on_sent: Callable[[int, int], None] = lambda session, object_id: None
        self._is_current = is_current
        self._transfers = transfers
        self._smallest_file_bytes = smallest_file_bytes
        self._effects = effects
        self._budget = budget
        self._changes = changes
        self.memory = memory
        self._chunk_bytes = chunk_bytes
        self._records: Table[ObjectRecord] = {}
        self._arriving: Dict[int, Table[ObjectRecord]] = {}  # by sender's session, then id
        self._kept: Dict[int, Table[ObjectRecord]] = {}  # those that workers have: by holder's session, then id
        self._of_clients: Dict[int, Table[ObjectRecord]] = {}  # those that their clients keep, likewise
        self._requesters: Dict[int, Table[ObjectRecord]] = {}  # objects of which a session waits for parts
        self.to_answer: Deque[_Requests] = deque()  # that have waited, and are many
        self._being_written: List[ObjectRecord] = []
        self.total_bytes = 0
        self._usage: Dict[str, ObjectUsage] = {}  # by tenant

    def __len__(self) -> int:
        return len(self._records)

    def find(self, object_id: int) -> Optional[ObjectRecord]:
        """The object, also while only unfinished tasks keep it alive."""
        return self._records.get(object_id)

    def find_of(self, object_id: int, tenant: str) -> Optional[ObjectRecord]:
        """The object if it is the tenant's: to a tenant, the objects of others do not exist."""
        record = self._records.get(object_id)
        return record if record is not None and record.tenant == tenant else None

    def refer(self, object_id: int, tenant: str, client: int = 0) -> bool:
        """Count a reference to the object if it exists; returns whether a tenant's new task may need it.

        That is so if it is the tenant's, its owner holds it, and its bytes are here, arriving, or at a holder.

        Parameters:
            client: session whose task it is; 0: any.
        """
        record = self._records.get(object_id)
        if record is None:
            return False
        record.references += 1
        # SCL-OBJ-040
        if record.is_kept_by_client and record.is_elsewhere and record.owner != client and record.tenant == tenant:
            self.fetch(record)
        return record.held and record.tenant == tenant and not record.is_broken

    def use(self, object_ids: Iterable[int]) -> None:
        """Objects were used: their files go to disk last."""
        for object_id in object_ids:
            record = self._records.get(object_id)
            if record is not None:
                self.memory.use(record)

    def records(self) -> List[ObjectRecord]:
        return list(self._records.values())

    def add(self, record: ObjectRecord) -> None:
        assert record.object_id not in self._records
        self._records[record.object_id] = record
        if len(self._records) == LARGE:
            self._records = in_chunks(self._records)
        self.total_bytes += record.size
        self.spread += record.size >= self._spread_bytes
        self._count(record, 1)
        if self._changes.is_large(record):
            self._changes.add(record.object_id, record)

    def _count(self, record: ObjectRecord, sign: int) -> None:
        before = self._usage.get(record.tenant, _NO_USAGE)
        size_bytes = 0 if record.is_over_quota else record.size
        self._usage[record.tenant] = ObjectUsage(before.objects + sign, before.size_bytes + sign * size_bytes)

    def usage_of(self, tenant: str) -> ObjectUsage:
        """What belongs to a tenant."""
        return self._usage.get(tenant, _NO_USAGE)

    def hand_over(self, record: ObjectRecord, tenant: str) -> None:
        """An object belongs to a tenant from now on."""
        if record.tenant != tenant:
            self._count(record, -1)
            record.tenant = tenant
            self._count(record, 1)

    def check_usage(self) -> None:
        """Check that what is counted for each tenant is what it has."""
        for tenant, usage in self._usage.items():
            own = [record for record in self._records.values() if record.tenant == tenant]
            sizes = [record.size for record in own if not record.is_over_quota]
            assert usage == (len(own), sum(sizes)), f"{usage} is counted for {tenant}"

    def keep_content(self, record: ObjectRecord, content: bytes) -> None:
        """Keep the bytes of a small object that was added: here, or on disk while memory is short."""
        if self._budget.is_short and record.size >= self._smallest_file_bytes and self.memory.can_spill:
            self.memory.enter_on_disk(record)
            self._write_last(record, StoreChunk(record.object_id, 0, content, True, record.size, True))
        else:
            record.content = content

    def start_transfer(self, record: ObjectRecord, source: bytes, sender: int) -> None:
        """Fetch an object whose bytes are with a peer on another host.

        Parameters:
            sender: the session of the peer.
        """
        record.arrived = record.requested = 0
        self.memory.expect(record)
        self._receive_from(record, source, sender)

    def _receive_from(self, record: ObjectRecord, source: bytes, sender: int) -> None:
        record.source, record.sender = source, sender
        _enter(self._arriving, sender, record)
        self._request_more(record)

    def leave_with(self, record: ObjectRecord, maker: bytes, session: int) -> None:
        """The bytes of an object stay with the worker or client that made it."""
        record.arrived = record.requested = 0
        self._add_holder(record, maker, session, self._of_clients if record.is_kept_by_client else self._kept)

    # SCL-OBJ-029
    def add_copy(self, record: ObjectRecord, peer: bytes, session: int) -> None:
        """A worker has fetched all bytes of an object, and keeps them."""
        self._transfers.complete(session, record)
        if record.copies is None or session not in record.copies.holders:
            self._add_holder(record, peer, session, self._kept)
        self._transfers.answer_waiting(record)

    def _add_holder(
        self, record: ObjectRecord, peer: bytes, session: int, tables: Dict[int, Table[ObjectRecord]]
    ) -> None:
        if record.copies is None:
            record.copies = Copies(record.size)
        record.copies.holders[session] = Holder(peer)
        _enter(tables, session, record)

    def kept_by(self, session: int) -> Table[ObjectRecord]:
        """The objects of which a worker has all bytes, or that a client keeps, by id."""
        return self._kept.get(session) or self._of_clients.get(session, {})

    @property
    def has_kept(self) -> bool:
        """Whether a worker or a client keeps any object."""
        return bool(self._kept or self._of_clients)

    def fetch(self, record: ObjectRecord, session: int = 0) -> None:
        """Fetch the bytes of an object that workers have, unless they are here or on their way.

        Parameters:
            session: of the holder to fetch them from; 0: any.
        """
        if record.is_elsewhere and record.source is None:
            assert record.copies is not None
            holders = record.copies.holders
            session = session or min(holders, key=lambda number: holders[number].copies)
            self.start_transfer(record, holders[session].peer, session)

    def lose_holder(self, record: ObjectRecord, session: int) -> None:
        """A holder of an object is gone. If it was the last one, and the bytes are not all here, what has arrived
        is dropped, and peers that wait for them wait until the tasks that need it have been taken back."""
        self.forget_holder(record, session)
        is_arriving = record.source is not None and record.sender != session
        if record.arrived >= record.size or is_arriving or self.go_on(record):
            return
        record.is_maker_lost = record.awaits_rerun = True
        record.is_lost = record.lacks_room = False
        record.source = None
        record.arrived = record.requested = 0
        self._arrives_no_more(record)
        self._changes.touch_large(record)
        self._remove_file(record)
        self._settle_copies(record)

    def go_on(self, record: ObjectRecord) -> bool:
        """Of an object of which a holder is gone, go on at the offset that has been reached with another one; returns
        whether there is one."""
        if record.copies is None or not record.has_holders:
            return False
        if record.source is not None:
            self._arrives_no_more(record)
            record.requested = record.arrived
            session, holder = next(iter(record.copies.holders.items()))
            self._receive_from(record, holder.peer, session)
        return True

    def forget_holder(self, record: ObjectRecord, session: int, is_deleted: bool = False) -> None:
        """A holder keeps the bytes of an object no longer.

        Parameters:
            is_deleted: because the object has ended.
        """
        copies = record.copies
        if copies is None or copies.holders.pop(session, None) is None:
            return
        for tables in (self._kept, self._of_clients):
            kept = tables.get(session)
            if kept is not None and kept.pop(record.object_id, None) is not None and not kept:
                del tables[session]
        if not is_deleted:
            self._settle_copies(record)

    def _settle_copies(self, record: ObjectRecord) -> None:
        """Some bytes are gone: those who wait are told others that have them, or to ask here if there are none."""
        if not record.is_here:
            self._transfers.end_here(record)
        if record.has_holders or record.is_here:
            self._transfers.answer_waiting(record)
        else:
            self._transfers.end_all(record, is_deleted=False)

    def _request_more(self, record: ObjectRecord) -> None:
        assert record.source is not None
        # SCL-OBJ-011
        window = FETCH_WINDOW_CHUNKS * self._chunk_bytes
        while record.requested < record.size and record.requested - record.arrived < window:
            length = min(self._chunk_bytes, record.size - record.requested)
            request = m.ObjectRequest(id=record.object_id, offset=record.requested, length=length)
            self._effects.append(Send(record.source, request))
            record.requested += length

    def length_asked_for(self, record: ObjectRecord) -> int:
        """The expected size of the next chunk in bytes; -1: none was requested."""
        if record.arrived >= record.requested:
            return -1
        return min(self._chunk_bytes, record.size - record.arrived)

    def on_chunk(self, record: ObjectRecord, chunk: bytes) -> None:
        """The next chunk of an object arrived; chunks come in order because one connection carries them."""
        offset = record.arrived
        record.arrived += len(chunk)
        is_whole = record.arrived >= record.size
        if record.is_lost:
            self.give_up(record) if is_whole else self._request_more(record)
            if is_whole and record.has_holders:  # which are still there
                record.is_lost = False
            return
        on_disk = record.place == ObjectPlace.ON_DISK
        effect = StoreChunk(record.object_id, offset, chunk, is_whole, record.size, on_disk)
        if not is_whole:
            self._effects.append(effect)
            self._request_more(record)
        else:
            self._write_last(record, effect)
            self.memory.complete(record)
            record.lacks_room = False  # it may have found none before
            record.source = None
            self._arrives_no_more(record)
            self._changes.touch_large(record)
        self._answer_waiting(record, is_refused=False)

    # SCL-OBJ-008
    def _write_last(self, record: ObjectRecord, effect: StoreChunk) -> None:
        """Write the last bytes of a file: until that is done, no worker is told that it can read it."""
        self._effects.append(effect)
        record.is_being_written = True
        self._being_written.append(record)

    def on_effects_taken(self) -> None:
        """Files are written now; the core hears which could not be before it decides anything else."""
        for record in self._being_written:
            record.is_being_written = False
        self._being_written.clear()

    def forget_requests(self, session: int) -> Iterator[int]:
        """Requests of a session that has ended wait no longer: steps."""
        for record in drained(self._requesters.pop(session, {})):
            count = len(record.waiting)
            record.waiting = [request for request in record.waiting if request.session != session]
            yield 1 + count // REQUESTS_PER_UNIT

    def arriving_from(self, session: int) -> Table[ObjectRecord]:
        """The objects that a session is sending."""
        return self._arriving.get(session, {})

    def _arrives_no_more(self, record: ObjectRecord) -> None:
        arriving = self._arriving.get(record.sender)
        if arriving is not None and arriving.pop(record.object_id, None) is not None and not arriving:
            del self._arriving[record.sender]

    def _answer_waiting(self, record: ObjectRecord, is_refused: bool) -> None:
        """Requests for parts of an object need not wait any more."""
        if record.waiting:
            requests, record.waiting = record.waiting, []
            requests.reverse()
            self.to_answer.append(_Requests(record, requests, is_refused))
            if len(self.to_answer) == 1:
                self.answer_some(AT_ONCE * UNITS_OF_AN_ANSWER)

    def answer_some(self, units: int) -> None:
        """Answer requests that have waited, with so much work."""
        limit, done = max(1, units // UNITS_OF_AN_ANSWER), 0
        while self.to_answer and done < limit:
            record, requests, is_refused = self.to_answer[0]
            while requests and done < limit:
                request = requests.pop()
                done += 1
                awaited = self._requesters.get(request.session)
                if awaited is not None and awaited.pop(record.object_id, None) is not None and not awaited:
                    del self._requesters[request.session]
                # It may have said Hello again on the same connection, where the answer would be wrong.
                if not self._is_current(request.peer, request.session):
                    continue
                if is_refused:
                    self.refuse(request.peer, record.object_id, request.offset, record.missing_reason)
                else:
                    self.serve(record, request)
            if not requests:
                self.to_answer.popleft()

    def give_up(self, record: ObjectRecord) -> None:
        """The rest of an object's bytes will not arrive, or what arrived cannot be read."""
        record.source = None
        record.arrived = min(record.arrived, record.size - 1)
        if record.has_holders:
            record.arrived = record.requested = 0
        self._arrives_no_more(record)
        self._changes.touch_large(record)
        self._remove_file(record)
        self._settle_copies(record)
        self._refuse_waiting(record)

    def discard(self, record: ObjectRecord) -> None:
        """Received bytes of an object cannot be stored; the rest is fetched nevertheless.

        Its creator is a worker, which may report the task's outcome only after the last byte was requested; or a client
        that keeps it, from which it may be fetched again: answers to the first requests must have come by then.
        """
        record.is_lost = True
        self._changes.touch_large(record)
        self._remove_file(record)
        self._settle_copies(record)
        self._refuse_waiting(record)

    def _refuse_waiting(self, record: ObjectRecord) -> None:
        self._answer_waiting(record, is_refused=True)

    # SCL-OBJ-010
    def serve(self, record: ObjectRecord, request: ChunkRequest) -> None:
        """Send a part of an object, now or as soon as it has arrived."""
        length = min(request.length, self._chunk_bytes, max(0, record.size - request.offset))
        if request.offset > record.size or (record.is_broken and not record.awaits_rerun):
            self.refuse(request.peer, record.object_id, request.offset, record.missing_reason)
        elif request.offset + length > record.arrived:
            record.waiting.append(request)
            _enter(self._requesters, request.session, record)
            self.fetch(record)
        elif record.content is not None:
            chunk = memoryview(record.content)[request.offset : request.offset + length]
            response = m.ObjectResponse(id=record.object_id, offset=request.offset, size=record.size)
            self._effects.append(Send(request.peer, response, (chunk,)))
        else:
            self.memory.use(record)
            part = SendChunk(request.peer, record.object_id, request.offset, length, record.size)
            self._effects.append(part)
            if request.offset + length >= record.size:
                self.on_sent(request.session, record.object_id)

    # SCL-OBJ-019
    def refuse(
        self, peer: bytes, object_id: int, offset: int, reason: m.MissingReason = m.MissingReason.UNKNOWN
    ) -> None:
        status = m.ObjectResponseStatus.MISSING
        response = m.ObjectResponse(id=object_id, offset=offset, status=status, missing_reason=reason)
        self._effects.append(Send(peer, response))

    def release(self, record: ObjectRecord, count: int = 1) -> List[int]:
        """`count` tasks no longer need the object; returns the holders to be notified if it was deleted."""
        record.references -= count
        assert record.references >= 0, f"object {record.object_id:x} released too often"
        return self._remove_if_unused(record)

    def let_go(self, record: ObjectRecord) -> List[int]:
        """The owner no longer holds the object; returns the holders to be notified if it was deleted."""
        record.held = False
        self._changes.touch_large(record)
        return self._remove_if_unused(record)

    def _remove_if_unused(self, record: ObjectRecord) -> List[int]:
        # SCL-OBJ-004
        if record.held or record.references:
            return []
        del self._records[record.object_id]
        self._arrives_no_more(record)
        for session in list(record.copies.holders) if record.copies is not None else ():
            self.forget_holder(record, session, is_deleted=True)
        self._transfers.end_all(record, is_deleted=True)
        self.total_bytes -= record.size
        self.spread -= record.size >= self._spread_bytes
        self._count(record, -1)
        self._remove_file(record)
        self._changes.forget(record.object_id, record) if self._changes.is_large(record) else None
        self._refuse_waiting(record)
        return sorted(record.announced_to)

    def _remove_file(self, record: ObjectRecord) -> None:
        if record.place != ObjectPlace.NOWHERE:
            self.memory.leave(record)
            self._effects.append(RemoveObject(record.object_id))


def _enter(tables: Dict[int, Table[ObjectRecord]], session: int, record: ObjectRecord) -> None:
    """Add an object to the table of a session."""
    table = tables.setdefault(session, {})
    table[record.object_id] = record
    if len(table) == LARGE:
        tables[session] = in_chunks(table)


def announcement(
    records: List[ObjectRecord], worker: WorkerSession, spread_bytes: int
) -> Tuple[m.ObjectInstruction, List[bytes]]:
    """The message that announces objects of one codec to a worker, with its payload."""
    storages = bytes([_storage_of(record, worker, spread_bytes) for record in records])
    instruction = m.ObjectInstruction(
        action=m.ObjectAction.CREATE,
        ids=array("Q", [record.object_id for record in records]),
        sizes=array("Q", [record.size for record in records]),
        storages=storages,
        kinds=bytes(record.kind for record in records),
        codec=records[0].codec,
    )
    return instruction, [record.content for record in records if record.content is not None]


def has_to_fetch(record: ObjectRecord, worker: WorkerSession, spread_bytes: int) -> bool:
    """Whether a worker that has not got an object fetches it when a task needs it, which takes time."""
    if record.content is not None or not fetches_from_workers(worker):
        return False
    return record.is_elsewhere or (worker.is_apart and record.size >= spread_bytes)


def _storage_of(record: ObjectRecord, worker: WorkerSession, spread_bytes: int) -> int:
    if record.content is not None:
        return m.ObjectStorage.INLINE
    # What one task needs goes there from here, without a ticket.
    is_of_many = record.kind != m.ObjectKind.ARGUMENTS or record.references > 1
    is_spread = is_of_many and has_to_fetch(record, worker, spread_bytes)
    if record.arrived >= record.size and not record.is_being_written and not is_spread:
        return m.ObjectStorage.SHARED
    # SCL-OBJ-033
    is_held = is_spread or (record.has_holders and fetches_from_workers(worker))
    return m.ObjectStorage.HELD if is_held else m.ObjectStorage.REMOTE
