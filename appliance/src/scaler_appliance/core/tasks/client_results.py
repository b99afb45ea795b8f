"""Results to send to one client, gathered into few messages.

Rules:
- Columns are extended by whole slices; a column that no result has used yet does not exist.
- A message is closed when its payload reaches MAXIMUM_PAYLOAD_BYTES, so that a client never gets one huge message.
"""

from __future__ import annotations

from array import array
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from scaler_protocol import messages as m

Buffer = Union[bytes, bytearray, memoryview]

MAXIMUM_PAYLOAD_BYTES = 16 * 1024 * 1024

OPTIONAL_COLUMNS = ("objects", "durations_microseconds", "cpu_microseconds", "peak_memory_bytes")


class ResultSpan(NamedTuple):
    """A run of results, as columns."""

    sizes: array[int]
    payload: Buffer
    codec: str = ""
    statuses: bytes = b""  # empty: all success
    optional: Optional[Dict[str, array[int]]] = None  # by name of OPTIONAL_COLUMNS


class _OpenMessage:
    __slots__ = ("codec", "ids", "sizes", "statuses", "optional", "parts", "payload_bytes")

    def __init__(self, codec: str) -> None:
        self.codec = codec
        self.ids: array[int] = array("Q")
        self.sizes: array[int] = array("I")
        self.statuses: Optional[bytearray] = None
        self.optional: Dict[str, array[int]] = {}
        self.parts: List[Buffer] = []
        self.payload_bytes = 0

    def add(self, ids: array[int], span: ResultSpan) -> None:
        before = len(self.ids)
        if before:
            self.ids += ids
            self.sizes += span.sizes
        else:
            self.ids, self.sizes = ids, span.sizes
        if span.statuses and self.statuses is None:
            self.statuses = bytearray(before)
        if self.statuses is not None:
            self.statuses += span.statuses or bytes(len(ids))
        if span.optional or self.optional:
            self._add_optional(before, len(ids), span.optional or {})
        if len(span.payload):
            self.parts.append(span.payload)
            self.payload_bytes += len(span.payload)

    def _add_optional(self, before: int, count: int, given: Dict[str, array[int]]) -> None:
        for name in given:
            if name not in self.optional:
                self.optional[name] = array("Q", bytes(8 * before))
        for name, column in self.optional.items():
            column += given[name] if name in given else array("Q", bytes(8 * count))

    def message(self) -> m.TaskResult:
        result = m.TaskResult(ids=self.ids, payload_sizes=self.sizes, codec=self.codec)
        for name, column in self.optional.items():
            setattr(result, name, column)
        if self.statuses is not None:
            result.statuses = bytes(self.statuses)
        return result


class ClientResults:
    """Gathers results for one client until `drain`."""

    def __init__(self) -> None:
        self._messages: List[_OpenMessage] = []

    def add(self, ids: array[int], span: ResultSpan) -> None:
        """Add results of tasks `ids`, one entry of each column of `span` a task."""
        last = self._messages[-1] if self._messages else None
        if last is None or last.codec != span.codec or last.payload_bytes >= MAXIMUM_PAYLOAD_BYTES:
            last = _OpenMessage(span.codec)
            self._messages.append(last)
        last.add(ids, span)

    def drain(self) -> Iterator[Tuple[m.TaskResult, Sequence[Buffer]]]:
        messages, self._messages = self._messages, []
        for message in messages:
            yield message.message(), message.parts
