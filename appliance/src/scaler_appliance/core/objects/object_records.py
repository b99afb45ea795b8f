"""The scheduler's record of one object, and which objects are published individually.

Rule: data and small accessors only.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Dict, List, NamedTuple, Optional, Set

from scaler_appliance.core.large_tables import LARGE, Table, in_chunks
from scaler_appliance.core.monitoring.changes import Changes
from scaler_protocol import messages as m
from scaler_protocol.keys.allow_list import DEFAULT_TENANT


class ObjectPlace(IntEnum):
    """Where the file of an object is."""

    NOWHERE = 0  # it has none
    ARRIVING = 1  # in memory, and not whole
    RESIDENT = 2  # in memory
    SPILLING = 3  # in memory, and being copied to the disk
    ON_DISK = 4


class ChunkRequest(NamedTuple):
    peer: bytes
    session: int  # of the peer; when it has ended there is no answer
    offset: int
    length: int


class NodeResult(NamedTuple):
    """Which node of a graph an object is the result of."""

    client: int  # session
    graph: int  # its first task id
    node: int


HERE = -1
"""In the place of a holder's session: the scheduler itself."""


class Holder:
    """A worker, or its client, that has all bytes of an object.

    Attributes:
        copies: how many other workers have fetched them from it, or do so now.
    """

    __slots__ = ("peer", "copies")

    def __init__(self, peer: bytes) -> None:
        self.peer = peer
        self.copies = 0


class Copies:
    """Who has all bytes of an object beside the scheduler, and the workers that fetch them. All by session.

    Parameters:
        size: of the object, in bytes.

    Attributes:
        from_here: how many workers have fetched them from the scheduler, or do so now.
        transfers: the holder by the worker that fetches from it; HERE: the scheduler.
        waiting: workers that wait until they can be told a holder, in order.
        failed: holders from which a worker could not fetch.
    """

    __slots__ = ("size", "holders", "from_here", "transfers", "waiting", "failed")

    def __init__(self, size: int) -> None:
        self.size = size
        self.holders: Dict[int, Holder] = {}
        self.from_here = 0
        self.transfers: Dict[int, int] = {}
        self.waiting: Dict[int, None] = {}
        self.failed: Dict[int, Set[int]] = {}


class ObjectRecord:
    __slots__ = (
        "object_id", "owner", "size", "kind", "name", "codec", "content", "place", "arrived", "requested",
        "source", "waiting", "references", "held", "announced_to", "charged_to", "is_dirty", "is_lost", "lacks_room",
        "tenant", "is_over_quota", "last_use", "copies", "made_by", "is_maker_lost", "awaits_rerun", "sender",
        "is_being_written", "is_kept_by_client",
    )  # fmt: skip

    def __init__(
        self, object_id: int, owner: int, size: int, kind: int, name: str, codec: str, tenant: str = DEFAULT_TENANT
    ) -> None:
        self.object_id = object_id
        self.owner = owner  # session that holds it
        self.tenant = tenant  # whose it is; ANY_TENANT: a result that no task's outcome has named yet
        self.size = size
        self.kind = kind
        self.name = name
        self.codec = codec
        self.content: Optional[bytes] = None  # of an inline object
        self.place = ObjectPlace.NOWHERE  # of its file
        self.last_use = 0  # of it, in the order of all uses
        self.arrived = size  # bytes that can be read
        self.requested = size
        self.source: Optional[bytes] = None  # peer that sends it to us
        self.sender = 0  # session of that peer
        self.waiting: List[ChunkRequest] = []
        self.references = 0  # unfinished tasks or batches that need it
        self.held = True  # by its owner
        self.is_kept_by_client = False  # its maker, which learns of its end
        self.charged_to = 0  # session of the client whose task's arguments it is
        self.announced_to: Set[int] = set()  # sessions of workers
        self.is_dirty = False  # for monitors
        self.is_being_written = False  # its last bytes are here, and may turn out to have no room
        self.is_lost = False  # received bytes could not be stored, and the rest is dropped
        self.is_over_quota = False  # its tenant may have no more, and its bytes are not kept
        self.lacks_room = False  # its bytes could not be stored because memory and disk are full
        self.copies: Optional[Copies] = (
            None  # at workers or its client, which send them when they are requested; None: none were asked for
        )
        self.made_by: Optional[NodeResult] = (
            None  # the node that may run again if its bytes are lost with their holders
        )
        self.is_maker_lost = False  # its bytes were lost with their last holder
        self.awaits_rerun = False  # and the tasks that need it have not been taken back yet

    @property
    def number(self) -> int:
        """Its number for monitors."""
        return self.object_id

    @property
    def missing_reason(self) -> m.MissingReason:
        """Why its bytes are missing, if they are."""
        if self.is_maker_lost:
            return m.MissingReason.MAKER_LOST
        return m.MissingReason.NO_ROOM if self.lacks_room or self.is_over_quota else m.MissingReason.UNKNOWN

    @property
    def is_broken(self) -> bool:
        """Whether bytes are missing that can no longer arrive."""
        return self.is_lost or (self.arrived < self.size and self.source is None and not self.has_holders)

    @property
    def is_arriving(self) -> bool:
        """Whether its bytes are on their way here."""
        return self.source is not None

    @property
    def has_holders(self) -> bool:
        """Whether workers, or its client, have all of its bytes."""
        return self.copies is not None and bool(self.copies.holders)

    @property
    def is_here(self) -> bool:
        """Whether all of its bytes are here, or on their way."""
        return not self.is_lost and (self.arrived >= self.size or self.source is not None)

    @property
    def is_elsewhere(self) -> bool:
        """Whether only workers, or its client, have all of its bytes."""
        return self.arrived < self.size and self.has_holders


class ObjectChanges(Changes[ObjectRecord]):
    """Large objects that have changed since the last publication.

    Parameters:
        large_bytes: objects of at least this size are published individually.
    """

    __slots__ = ("large", "_large_bytes")

    def __init__(self, large_bytes: int) -> None:
        super().__init__()
        self.large: Table[ObjectRecord] = {}  # all of them
        self._large_bytes = large_bytes

    def is_large(self, record: ObjectRecord) -> bool:
        return record.size >= self._large_bytes

    def add(self, number: int, entry: ObjectRecord) -> None:
        self.large[number] = entry
        if len(self.large) == LARGE:
            self.large = in_chunks(self.large)
        super().add(number, entry)

    def forget(self, number: int, entry: ObjectRecord) -> None:
        del self.large[number]
        super().forget(number, entry)

    def touch_large(self, record: ObjectRecord) -> None:
        """Record a change of an object."""
        if record.size >= self._large_bytes:
            self.touch(record.object_id, record)


def failure_of_missing(object_id: int, record: Optional[ObjectRecord]) -> m.Failure:
    """The failure of a task that needs an object which does not exist, or whose bytes are missing."""
    if record is not None and record.is_over_quota:
        text = (
            f"object {object_id:016x} of {record.size} bytes exceeds what the objects of the tenant {record.tenant} may"
            " take: delete objects (del, client.clear()), or ask for a larger quota (--tenant)"
        )
    elif record is not None and record.is_maker_lost:
        text = (
            f"object {object_id:016x} of {record.size} bytes was lost with the"
            f" {'client' if record.is_kept_by_client else 'worker'} that had made it and had the only copy: submit the"
            " tasks again"
        )
    elif record is not None and record.lacks_room:
        text = (
            f"the scheduler had no room for object {object_id:016x} of {record.size} bytes: free memory or disk space"
            " there, delete objects (del, client.clear()), or start the scheduler with another --object-directory or"
            " --object-spill-directory"
        )
    else:
        text = f"object {object_id:016x} does not exist (any more): was it cleared, or its client disconnected?"
    reason = m.MissingReason.UNKNOWN if record is None else record.missing_reason
    return m.Failure(kind=m.FailureKind.OBJECT_MISSING, message=text, attempts=1, missing_reason=reason)
