"""Outcomes on their way to the scheduler, gathered into as few TaskResult messages as one turn of the loop
allows.

Rules:
- Columns grow by whole slices; a column that no outcome has used yet does not exist.
- Outcomes share a message when their codec is the same, when both or neither are profiled, and when both or
  neither come from short tasks: the message has one figure for the time they took, from which the scheduler
  learns how long a function runs.
- No message is larger than half of what the scheduler takes, unless one outcome alone is.
- While there are monitors, a message says for each addition which processor it came from and how long that was busy. A
  message that was begun before says so of none.
"""

from __future__ import annotations

from array import array
from typing import Dict, List, Optional, Tuple

from scaler.worker.frames import Buffer
from scaler_protocol import messages as m

SHORT_TASK_MICROSECONDS = 1000
MAXIMUM_PAYLOAD_BYTES = 16 * 1024 * 1024
ENTRY_BYTES = 64  # at most, of one outcome in all columns

Profiles = Tuple["array[int]", "array[int]", "array[int]"]


class _Group:
    __slots__ = (
        "ids",
        "sizes",
        "statuses",
        "objects",
        "payloads",
        "bytes",
        "busy_microseconds",
        "profiles",
        "runs",
    )

    def __init__(self, is_watched: bool) -> None:
        self.ids: array[int] = array("Q")
        self.sizes: array[int] = array("I")
        self.statuses: Optional[bytearray] = None
        self.objects: Optional[array[int]] = None
        self.payloads: List[Buffer] = []
        self.bytes = 0  # of the payload and, at most, of the columns
        self.busy_microseconds = 0
        self.profiles: Optional[Profiles] = None
        self.runs: Optional[array[int]] = array("Q") if is_watched else None

    def add(
        self,
        ids: array[int],
        sizes: array[int],
        payload: Buffer,
        statuses: bytes,
        objects: Optional[array[int]],
    ) -> None:
        before, count = len(self.ids), len(ids)
        self.ids += ids
        self.sizes += sizes
        if len(payload):
            self.payloads.append(payload)
        self.bytes += len(payload) + ENTRY_BYTES * count
        if statuses and self.statuses is None:
            self.statuses = bytearray(before)
        if self.statuses is not None:
            self.statuses += statuses or bytes(count)
        if objects is not None and self.objects is None:
            self.objects = array("Q", bytes(8 * before))
        if self.objects is not None:
            self.objects += array("Q", bytes(8 * count)) if objects is None else objects

    def message(self, codec: str) -> m.TaskResult:
        # SCL-WRK-005, SCL-COD-005
        message = m.TaskResult(
            ids=self.ids, payload_sizes=self.sizes, codec=codec, busy_microseconds=self.busy_microseconds
        )
        if self.statuses is not None:
            message.statuses = bytes(self.statuses)
        if self.objects is not None:
            message.objects = self.objects
        # SCL-WRK-009
        if self.profiles is not None:
            message.durations_microseconds, message.cpu_microseconds, message.peak_memory_bytes = self.profiles
        # SCL-WRK-032
        if self.runs is not None:
            message.runs = self.runs
        return message


class ResultMessages:
    """Gathers outcomes until `drain`."""

    def __init__(self) -> None:
        self._groups: Dict[Tuple[str, bool, bool], _Group] = {}
        self._full: List[Tuple[m.TaskResult, bytes]] = []
        self._maximum_bytes = MAXIMUM_PAYLOAD_BYTES
        self.is_watched = False  # monitors want to know which processor ran which task

    def keep_to(self, maximum_message_bytes: int) -> None:
        """Make no message larger than this; 0: the scheduler has not said what it takes."""
        self._maximum_bytes = min(MAXIMUM_PAYLOAD_BYTES, maximum_message_bytes // 2 or MAXIMUM_PAYLOAD_BYTES)

    def __bool__(self) -> bool:
        return bool(self._groups or self._full)

    def add(
        self,
        codec: str,
        ids: array[int],
        sizes: array[int],
        payload: Buffer,
        *,
        statuses: bytes = b"",
        objects: Optional[array[int]] = None,
        busy_microseconds: int = 0,
        profiles: Optional[Profiles] = None,
        processor: int = 0,
    ) -> None:
        """Add outcomes, one entry of each column a task; empty columns are those of ordinary successes.

        Parameters:
            processor: id of the process that ran them; 0: none did.
        """
        # SCL-SEC-007
        if len(ids) > 1 and len(payload) + ENTRY_BYTES * len(ids) > self._maximum_bytes:
            self._add_in_halves(codec, ids, sizes, payload, statuses, objects, busy_microseconds, profiles, processor)
            return
        # SCL-WRK-007
        key = (codec, profiles is not None, busy_microseconds >= SHORT_TASK_MICROSECONDS * len(ids))
        group = self._groups.get(key)
        if group is not None and group.bytes + len(payload) + ENTRY_BYTES * len(ids) > self._maximum_bytes:
            self._full.append((group.message(codec), b"".join(group.payloads)))
            group = None
        if group is None:
            group = self._groups[key] = _Group(self.is_watched)
        group.add(ids, sizes, payload, statuses, objects)
        # SCL-WRK-008
        group.busy_microseconds += busy_microseconds
        if group.runs is not None:
            group.runs.extend((len(ids), processor, busy_microseconds))
        if profiles is not None:
            if group.profiles is None:
                group.profiles = (array("Q"), array("Q"), array("Q"))
            for column, addition in zip(group.profiles, profiles):
                column += addition

    def _add_in_halves(
        self,
        codec: str,
        ids: array[int],
        sizes: array[int],
        payload: Buffer,
        statuses: bytes,
        objects: Optional[array[int]],
        busy_microseconds: int,
        profiles: Optional[Profiles],
        processor: int,
    ) -> None:
        """Add what is too much for one message."""
        half = len(ids) // 2
        cut = sum(sizes[:half])
        for place, part in ((slice(0, half), payload[:cut]), (slice(half, None), payload[cut:])):
            count = len(ids[place])
            self.add(
                codec,
                ids[place],
                sizes[place],
                part,
                statuses=statuses[place],
                objects=None if objects is None else objects[place],
                busy_microseconds=busy_microseconds * count // len(ids),
                profiles=None if profiles is None else (profiles[0][place], profiles[1][place], profiles[2][place]),
                processor=processor,
            )

    def drain(self) -> List[Tuple[m.TaskResult, bytes]]:
        """The messages with their payload frames."""
        messages = self._full
        for (codec, _, _), group in self._groups.items():
            messages.append((group.message(codec), b"".join(group.payloads)))
        self._groups, self._full = {}, []
        return messages

    def clear(self) -> None:
        self._groups, self._full = {}, []
