"""Which object files are in memory, and which of them leave it for the disk.

    announced whole ─────────────▶ RESIDENT ──▶ SPILLING ──▶ ON_DISK
    fetched ─▶ ARRIVING ─────────▶    │  ▲         │ failed     ▲
        │                             │  ╰─────────╯            │
        ╰── larger than the limit, or than the room there is ───╯

Rules:
- Each file is in one place. What is resident or arriving counts against the limit, what leaves does so no more.
- Past the limit, those leave that were least recently made or used; one that is larger than the limit leaves at once,
  and drives no other out.
- What cannot leave stays where it is, and is not lost; then nothing is tried for a while, and one line says why.
- One line of the log for a burst of objects that left, not one for each.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Dict, Iterable, List

from scaler_appliance.core.effects import Effect, Log, SpillObject
from scaler_appliance.core.objects.object_records import ObjectChanges, ObjectPlace, ObjectRecord

RETRY_SECONDS = 2.0
LOG_INTERVAL_SECONDS = 10.0
COMPLAINT_INTERVAL_SECONDS = 60.0


class ObjectMemory:
    """The files of all objects, by place.

    Parameters:
        limit_bytes: of what is in memory; 0: no limit.
        directory: where they leave for; for the log.
        changes: records what monitors are to get.
    """

    def __init__(self, effects: List[Effect], limit_bytes: int, directory: str, changes: ObjectChanges) -> None:
        self._effects = effects
        self._changes = changes
        self._directory = directory
        self.limit_bytes = limit_bytes
        self.resident: OrderedDict[int, ObjectRecord] = OrderedDict()  # least recently used first
        self.spilling: Dict[int, ObjectRecord] = {}
        self.bytes = dict.fromkeys(ObjectPlace, 0)
        self.failure = ""  # why nothing is tried at present
        self._retry_at = 0.0
        self._log_at = self._complain_at = 0.0
        self._unlogged_objects = self._unlogged_bytes = 0

    @property
    def bytes_to_stay(self) -> int:
        """In memory, and not on their way to the disk."""
        return self.bytes[ObjectPlace.RESIDENT] + self.bytes[ObjectPlace.ARRIVING]

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
        """An object ends, and its file with it."""
        self._move(record, ObjectPlace.NOWHERE)

    def use(self, object_ids: Iterable[int]) -> None:
        """Objects are needed: they are the last to leave."""
        resident = self.resident
        for object_id in object_ids:
            if object_id in resident:
                resident.move_to_end(object_id)

    def _relieve(self) -> None:
        """Let files leave until the others are within the limit."""
        while self.resident and not self.failure and self.bytes_to_stay > self.limit_bytes > 0:
            self._spill(next(iter(self.resident.values())))

    def _spill(self, record: ObjectRecord) -> None:
        if not self.failure:
            self._move(record, ObjectPlace.SPILLING)
            self._effects.append(SpillObject(record.object_id))

    def on_spilled(self, record: ObjectRecord) -> None:
        """A file is on disk now: one that was asked to, or one for which memory had no room."""
        if record.place not in (ObjectPlace.NOWHERE, ObjectPlace.ON_DISK):
            self._move(record, ObjectPlace.ON_DISK)
            self._unlogged_objects += 1
            self._unlogged_bytes += record.size

    def on_spill_failed(self, now: float, record: ObjectRecord, why: str) -> None:
        """A file could not be copied, or one that arrives not be put on disk: it stays in memory."""
        if record.place not in (ObjectPlace.SPILLING, ObjectPlace.ON_DISK):
            return
        is_whole = record.source is None
        self._move(record, ObjectPlace.RESIDENT if is_whole else ObjectPlace.ARRIVING)
        if is_whole:
            self.resident.move_to_end(record.object_id, last=False)
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
        """Try again what failed, and say what left."""
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

    def _move(self, record: ObjectRecord, place: ObjectPlace) -> None:
        """Every change of a file's place."""
        if record.place == ObjectPlace.RESIDENT:
            del self.resident[record.object_id]
        elif record.place == ObjectPlace.SPILLING:
            del self.spilling[record.object_id]
        self.bytes[record.place] -= record.size
        self.bytes[place] += record.size
        record.place = place
        self._changes.touch_large(record)
        if place == ObjectPlace.RESIDENT:
            self.resident[record.object_id] = record
        elif place == ObjectPlace.SPILLING:
            self.spilling[record.object_id] = record

    def check_invariants(self, records: Iterable[ObjectRecord]) -> None:
        """The places agree with the records, and what could leave and should has been asked to."""
        by_place: Dict[int, Dict[int, ObjectRecord]] = {place: {} for place in ObjectPlace}
        for record in records:
            by_place[record.place][record.object_id] = record
        assert by_place[ObjectPlace.RESIDENT] == self.resident and by_place[ObjectPlace.SPILLING] == self.spilling
        for place in ObjectPlace:
            if place != ObjectPlace.NOWHERE:
                size = sum(record.size for record in by_place[place].values())
                assert self.bytes[place] == size, f"{place.name}: {self.bytes[place]} bytes counted, {size} there"
        for record in self.resident.values():
            assert record.content is None and record.arrived == record.size
        if self.limit_bytes and not self.failure:
            assert self.bytes_to_stay <= self.limit_bytes or not self.resident, "files should leave memory"
