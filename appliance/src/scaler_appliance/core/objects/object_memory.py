"""Which object files are in memory, and which of them are spilled to disk.

    announced whole ─────────────▶ RESIDENT ──▶ SPILLING ──▶ ON_DISK
    fetched ─▶ ARRIVING ─────────▶    │  ▲         │ failed     ▲
        │                             │  ╰─────────╯            │
        ╰── larger than the limit, or than the free room ───────╯

Rules:
- Each file is in one place. Resident and arriving files count against the limit, files that are being spilled do not.
- Above the limit, the files that were least recently created or used are spilled; one that is larger than the limit is
  spilled at once, without evicting others.
- While the scheduler's memory is short, files may use what is left of it; new small contents become files on disk.
- A file that cannot be spilled stays in memory, and is not lost. Then spilling pauses for a while, and one log line
  says why. It is tried again after the others: it may be larger than what the disk has left.
- A burst of spilled objects is logged in one line, and so are objects that fit neither in memory nor on disk.
"""

from __future__ import annotations

import math
from typing import Dict, Iterable, List, Optional

from scaler_appliance.core.effects import Effect, Log, SpillObject
from scaler_appliance.core.large_tables import LARGE, Table, in_chunks
from scaler_appliance.core.objects.object_records import ObjectChanges, ObjectPlace, ObjectRecord

RETRY_SECONDS = 2.0
LOG_INTERVAL_SECONDS = 10.0
COMPLAINT_INTERVAL_SECONDS = 60.0


class ObjectMemory:
    """The files of all objects, by place.

    Parameters:
        limit_bytes: of files in memory; 0: no limit.
        directory: where they are spilled to; for the log.
        changes: records changes for monitors.
    """

    def __init__(self, effects: List[Effect], limit_bytes: int, directory: str, changes: ObjectChanges) -> None:
        self._effects = effects
        self._changes = changes
        self._directory = directory
        self.most_bytes = self.limit_bytes = limit_bytes
        self.resident: Table[ObjectRecord] = {}  # by last use, so that those least recently used are first
        self.spilling: Table[ObjectRecord] = {}
        self._last_use = 0
        self.bytes = dict.fromkeys(ObjectPlace, 0)
        self.failure = ""  # why spilling is paused
        self._retry_at = 0.0
        self._log_at = self._complain_at = 0.0
        self._unlogged_objects = self._unlogged_bytes = 0
        self._unstored_objects = self._unstored_bytes = 0  # that are not in the log yet
        self._unstored_why = ""
        self._unstored_since = 0.0
        self._next_unstored_log_at = 0.0

    def __len__(self) -> int:
        """How many files there are in memory, but for those that arrive."""
        return len(self.resident) + len(self.spilling)

    @property
    def bytes_to_stay(self) -> int:
        """Bytes in memory that are not being spilled."""
        return self.bytes[ObjectPlace.RESIDENT] + self.bytes[ObjectPlace.ARRIVING]

    @property
    def leaving_bytes(self) -> int:
        """Bytes in memory that are being spilled."""
        return self.bytes[ObjectPlace.SPILLING]

    @property
    def can_spill(self) -> bool:
        """Whether there is a disk, which has had room."""
        return self.most_bytes > 0 and not self.failure

    def set_limit(self, limit_bytes: int) -> None:
        """From now on, files in memory may use this much; 0: as much as they want."""
        self.limit_bytes = limit_bytes
        self._relieve()

    def change_most(self, most_bytes: int, limit_bytes: int) -> None:
        """The user has changed the limit.

        Parameters:
            most_bytes: that files may use however much memory is free; 0: no limit.
            limit_bytes: that they may use now.
        """
        self.most_bytes = most_bytes
        self.set_limit(limit_bytes)

    def enter_on_disk(self, record: ObjectRecord) -> None:
        """The content of an object is about to become a file on disk."""
        self._move(record, ObjectPlace.ON_DISK)
        self._unlogged_objects += 1
        self._unlogged_bytes += record.size

    def enter(self, record: ObjectRecord) -> None:
        """The whole file of an object is in memory."""
        if self._is_larger_than_limit(record):
            self._move(record, ObjectPlace.RESIDENT)
            self._spill(record)
        else:
            self._move(record, ObjectPlace.RESIDENT)
            self._relieve()

    def expect(self, record: ObjectRecord) -> None:
        """The file of an object begins to arrive."""
        if self._is_larger_than_limit(record):
            self._move(record, ObjectPlace.ON_DISK)
        else:
            self._move(record, ObjectPlace.ARRIVING)
            self._relieve()

    def _is_larger_than_limit(self, record: ObjectRecord) -> bool:
        return record.size > self.limit_bytes > 0 and not self.failure

    def complete(self, record: ObjectRecord) -> None:
        """The last byte of a file has arrived."""
        if record.place == ObjectPlace.ARRIVING:
            self._move(record, ObjectPlace.RESIDENT)
            self._relieve()

    def leave(self, record: ObjectRecord) -> None:
        """Remove the file of an object that ended."""
        self._move(record, ObjectPlace.NOWHERE)

    def use(self, record: ObjectRecord) -> None:
        """An object was used: it is spilled last."""
        if record.place == ObjectPlace.RESIDENT:
            del self.resident[record.last_use]
            self._add_resident(record)

    def _add_resident(self, record: ObjectRecord) -> None:
        self._last_use = record.last_use = self._last_use + 1
        self.resident[record.last_use] = record
        if len(self.resident) == LARGE:
            self.resident = in_chunks(self.resident)

    def _relieve(self) -> None:
        """Spill files until the others are within the limit."""
        while self.resident and not self.failure and self.bytes_to_stay > self.limit_bytes > 0:
            self._spill(next(iter(self.resident.values())))

    def _spill(self, record: ObjectRecord) -> None:
        if not self.failure:
            self._move(record, ObjectPlace.SPILLING)
            self._effects.append(SpillObject(record.object_id))

    def on_spilled(self, record: ObjectRecord) -> None:
        """A file is on disk now, because it was spilled, or because memory had no room for it."""
        if record.place not in (ObjectPlace.NOWHERE, ObjectPlace.ON_DISK):
            self._move(record, ObjectPlace.ON_DISK)
            self._unlogged_objects += 1
            self._unlogged_bytes += record.size

    def on_spill_failed(self, now: float, record: Optional[ObjectRecord], why: str) -> None:
        """A file could not be spilled or received on disk: it stays in memory, unless its object has ended meanwhile.

        Others would not find room there now, either.
        """
        if record is not None:
            if record.place not in (ObjectPlace.SPILLING, ObjectPlace.ON_DISK):
                return
            is_whole = record.source is None
            self._move(record, ObjectPlace.RESIDENT if is_whole else ObjectPlace.ARRIVING)
        self._retry_at = now + RETRY_SECONDS
        self.failure = why
        if now >= self._complain_at:
            self._complain_at = now + COMPLAINT_INTERVAL_SECONDS
            self._effects.append(
                Log(
                    "ERROR",
                    f"Scheduler: objects stay in memory, beyond the limit of {self.limit_bytes} bytes, because they"
                    f" cannot be spilled to {self._directory}: {why}; make room there, or start the scheduler with"
                    " another --object-spill-directory",
                )
            )

    def watch(self, now: float) -> None:
        """Retry after a failure, and log what was spilled."""
        if self.failure and now >= self._retry_at and not self.spilling:
            self.failure = ""
            self._relieve()
        if self._unlogged_objects and (not self.spilling or now >= self._log_at):
            self._log_at = now + LOG_INTERVAL_SECONDS
            text = (
                f"Scheduler: spilled {self._unlogged_objects} objects of {self._unlogged_bytes} bytes to"
                f" {self._directory}; objects of {self.bytes[ObjectPlace.ON_DISK]} bytes are on disk now, of"
                f" {self.bytes_to_stay} in memory, whose limit is {self.limit_bytes or 'its room'}"
            )
            self._unlogged_objects = self._unlogged_bytes = 0
            self._effects.append(Log("INFO", text))
        if self._unstored_objects and now >= self._next_unstored_log_at:
            self._log_unstored(now)

    def on_not_stored(self, now: float, record: ObjectRecord, why: str) -> None:
        """Received bytes of an object could not be stored."""
        if not self._unstored_objects:
            self._unstored_since = now
        self._unstored_objects += 1
        self._unstored_bytes += record.size
        self._unstored_why = why
        if now >= self._next_unstored_log_at:
            self._log_unstored(now)

    def _log_unstored(self, now: float) -> None:
        what = f"an object of {self._unstored_bytes} bytes"
        if self._unstored_objects > 1:
            what = f"{self._unstored_objects} objects of {self._unstored_bytes} bytes"
        # Who reads the line should not look for a full disk at its time, when there may be room again.
        seconds = math.ceil(now - self._unstored_since)
        when = f" in the last {seconds} seconds" if seconds > 1 else ""
        self._effects.append(Log("ERROR", f"Scheduler: {what} could not be stored{when}: {self._unstored_why}"))
        self._next_unstored_log_at = now + COMPLAINT_INTERVAL_SECONDS
        self._unstored_objects = self._unstored_bytes = 0

    def _move(self, record: ObjectRecord, place: ObjectPlace) -> None:
        """Change a file's place."""
        if record.place == ObjectPlace.RESIDENT:
            del self.resident[record.last_use]
        elif record.place == ObjectPlace.SPILLING:
            del self.spilling[record.object_id]
        self.bytes[record.place] -= record.size
        self.bytes[place] += record.size
        record.place = place
        self._changes.touch_large(record)
        if place == ObjectPlace.RESIDENT:
            self._add_resident(record)
        elif place == ObjectPlace.SPILLING:
            self.spilling[record.object_id] = record
            if len(self.spilling) == LARGE:
                self.spilling = in_chunks(self.spilling)

    def check_invariants(self, records: Iterable[ObjectRecord]) -> None:
        """Check that the places agree with the records, and that files are spilled as they should be."""
        by_place: Dict[int, Dict[int, ObjectRecord]] = {place: {} for place in ObjectPlace}
        for record in records:
            by_place[record.place][record.object_id] = record
        resident = {record.object_id: record for record in self.resident.values()}
        assert by_place[ObjectPlace.RESIDENT] == resident and by_place[ObjectPlace.SPILLING] == self.spilling
        assert list(self.resident) == sorted([record.last_use for record in resident.values()])
        for place in ObjectPlace:
            if place != ObjectPlace.NOWHERE:
                size = sum(record.size for record in by_place[place].values())
                assert self.bytes[place] == size, f"{place.name}: {self.bytes[place]} bytes counted, {size} there"
        for record in self.resident.values():
            assert record.content is None and record.arrived == record.size
        if self.limit_bytes and not self.failure:
            assert self.bytes_to_stay <= self.limit_bytes or not self.resident, "files should leave memory"
