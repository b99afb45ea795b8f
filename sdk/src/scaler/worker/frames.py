"""Frames between the agent and its processors, on the socket pairs inside one worker.

    agent ── tasks, define, drop, collect garbage, settled, stop ──▶ processor
    agent ◀── results, given back, log, blocked, resumed ─────────── processor

Rules:
- One frame is one batch: a chunk of tasks of one function, the results of a part of a chunk. Columns, as on
  the wire.
- A chunk of tasks covers positions `first_position .. first_position + count - 1` of its processor's task
  stream; positions start at 1, only ever grow, and are all that results need to name their tasks.
- Parsing is incremental and bounded: a frame above MAXIMUM_BODY_BYTES is an error, not an allocation.
- Nothing is pickled here, and payloads are opaque.
"""

from __future__ import annotations

import enum
import json
import struct
from array import array
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple, Union

from scaler_protocol.wire.capnproto import column_from_bytes

Buffer = Union[bytes, bytearray, memoryview]
Buffers = List[Union[bytes, bytearray, memoryview, "array[int]"]]

MAXIMUM_BODY_BYTES = 1 << 30
"""The limit of a frame; the agent and the processors keep theirs far below it."""

JOINED_BELOW_BYTES = 16 * 1024
"""Small frames become one buffer, which is cheaper to send than several."""

HEADER = struct.Struct("<IHH")  # body bytes, kind, flags
_CHUNK = struct.Struct("<QQQIHHi4x")  # function, first position, client, count, attempt, reserved, priority
_RESULTS = struct.Struct("<QQII")  # first position, busy microseconds, count, reserved
_RANGE = struct.Struct("<QQ")  # first position, count
_DEFINITION = struct.Struct("<QBB6x")  # object id, kind, place
_LOG = struct.Struct("<QB7x")  # position, stream
LOG_HEAD_BYTES = _LOG.size
_LARGE = struct.Struct("<Q")  # size in bytes; the name of the file follows
_ITEM_BYTES = {"Q": 8, "I": 4, "H": 2}
_GARBAGE = struct.Struct("<Q")  # trim threshold in bytes


class FrameKind(enum.IntEnum):
    """The kind of a frame."""

    TASKS = 1
    DEFINE = 2
    DROP = 3
    COLLECT_GARBAGE = 4
    SETTLED = 5  # the agent has read that tasks were given back, and sends no more behind the running one
    STOP = 6
    OBJECT_DIRECTORY = 7  # where to write large results
    CODE = 8  # the client's code with which all tasks of the processor run; precedes the first of them
    RESULTS = 32
    GIVEN_BACK = 33
    BLOCKED = 34  # the running task waits for other tasks: its slot is free
    RESUMED = 35
    LOG = 36


class TasksFlag:
    """Flags of a TASKS frame. Plain numbers, because an enum's operators would dominate the cost of a single task."""

    DEPENDENCIES = 1
    PROFILING = 2
    STREAM_OUTPUT = 4


class ResultsFlag:
    """Flags of a RESULTS frame: which optional columns it has."""

    STATUSES = 1
    LARGE = 2
    PROFILES = 4


class ContentPlace(enum.IntEnum):
    """Where the content of a defined object is."""

    INLINE = 0  # in the frame
    FILE = 1  # the frame has the path of the file


class FrameError(Exception):
    """The other end sent bytes that are not a valid frame: its memory is damaged, or user code wrote to the socket."""


class Frame(NamedTuple):
    """One parsed frame; the body is a copy that the receiver may keep."""

    kind: int
    flags: int
    body: bytes


class TaskChunk(NamedTuple):
    """Tasks of one function, as a processor receives them."""

    function: int
    first_position: int
    client: int
    attempt: int
    priority: int
    task_count: int
    flags: int
    ids: array[int]
    sizes: array[int]
    dependency_counts: array[int]
    dependencies: array[int]
    body: bytes
    payload_offset: int  # in `body`


class Results(NamedTuple):
    """Outcomes of tasks `first_position` and those after it, as the agent receives them."""

    first_position: int
    busy_microseconds: int  # 0: not measured
    sizes: array[int]
    statuses: bytes  # TaskStatus; empty: all success
    large: bytes  # 1 where the payload names the file of a large result; empty: none
    profiles: Optional[Tuple[array[int], array[int], array[int]]]  # durations, CPU microseconds, peak bytes
    payload: memoryview


def frame(kind: int, flags: int, buffers: Buffers) -> Buffers:
    """A frame as a list of buffers; a small frame is one buffer, of bytes.

    Raises FrameError when it is too large.
    """
    size = 0
    for part in buffers:
        size += len(part) if type(part) is bytes else memoryview(part).nbytes
    if size > MAXIMUM_BODY_BYTES:
        raise FrameError(f"a frame of {size} bytes is above the limit of {MAXIMUM_BODY_BYTES}")
    header = HEADER.pack(size, kind, flags)
    return [b"".join((header, *buffers))] if size < JOINED_BELOW_BYTES else [header, *buffers]


# Agent to processor -----------------------------------------------------------------------------------------


def tasks_frame(
    *,
    function: int,
    first_position: int,
    client: int,
    attempt: int,
    priority: int = 0,
    flags: int,
    ids: array[int],
    sizes: array[int],
    payload: Buffer,
    dependency_counts: Optional[array[int]] = None,
    dependencies: Optional[array[int]] = None,
) -> Buffers:
    """A chunk of tasks."""
    fixed = _CHUNK.pack(function, first_position, client, len(ids), attempt, 0, priority)
    buffers: Buffers = [fixed, ids, sizes]
    if dependency_counts:
        assert dependencies is not None
        flags |= TasksFlag.DEPENDENCIES
        buffers += (dependency_counts, dependencies)
    buffers.append(payload)
    return frame(FrameKind.TASKS, flags, buffers)


def parse_tasks(flags: int, body: bytes) -> TaskChunk:
    """The content of a TASKS frame."""
    function, first_position, client, count, attempt, _, priority = _CHUNK.unpack_from(body)
    columns = _Columns(body, _CHUNK.size)
    ids, sizes = columns.take("Q", count), columns.take("I", count)
    counts, dependencies = array("H"), array("Q")
    if flags & TasksFlag.DEPENDENCIES:
        counts = columns.take("H", count)
        dependencies = columns.take("Q", sum(counts))
    return TaskChunk(
        function,
        first_position,
        client,
        attempt,
        priority,
        count,
        flags,
        ids,
        sizes,
        counts,
        dependencies,
        body,
        columns.offset,
    )


def define_frame(object_id: int, kind: int, place: ContentPlace, content: Buffer) -> Buffers:
    """The content of a function or value object, or the path of the file that has it."""
    return frame(FrameKind.DEFINE, 0, [_DEFINITION.pack(object_id, kind, place), content])


def parse_define(body: bytes) -> Tuple[int, int, int, memoryview]:
    """Object id, object kind, place, content or path."""
    object_id, kind, place = _DEFINITION.unpack_from(body)
    return object_id, kind, place, memoryview(body)[_DEFINITION.size :]


def drop_frame(object_ids: Sequence[int]) -> Buffers:
    """Objects that the processor is to forget."""
    return frame(FrameKind.DROP, 0, [array("Q", object_ids)])


def parse_drop(body: bytes) -> array[int]:
    return column_from_bytes("Q", body)


def collect_garbage_frame(trim_threshold_bytes: int) -> Buffers:
    """Collect garbage, and return memory to the system when more than the threshold is resident."""
    return frame(FrameKind.COLLECT_GARBAGE, 0, [_GARBAGE.pack(trim_threshold_bytes)])


def parse_collect_garbage(body: bytes) -> int:
    threshold: int = _GARBAGE.unpack_from(body)[0]
    return threshold


def object_directory_frame(prefix: str) -> Buffers:
    """Where to write large results: the start of the path of every file that the processor writes."""
    return frame(FrameKind.OBJECT_DIRECTORY, 0, [prefix.encode("utf-8", "surrogateescape")])


def parse_object_directory(body: bytes) -> str:
    return body.decode("utf-8", "surrogateescape")


def code_frame(key: str, folders: Sequence[str]) -> Buffers:
    """The client's code that a processor runs: its key, and the folders to import from."""
    return frame(FrameKind.CODE, 0, [json.dumps([key, list(folders)]).encode()])


def parse_code(body: bytes) -> Tuple[str, Tuple[str, ...]]:
    """Key and folders."""
    key, folders = json.loads(body)
    return str(key), tuple(folders)


# Processor to agent -----------------------------------------------------------------------------------------


def results_frame(
    *,
    first_position: int,
    busy_microseconds: int,
    payloads: Sequence[Buffer],
    statuses: bytes = b"",
    large: bytes = b"",
    profiles: Optional[Tuple[array[int], array[int], array[int]]] = None,
) -> Buffers:
    """Outcomes of consecutive tasks, one payload each."""
    flags = 0
    fixed = _RESULTS.pack(first_position, busy_microseconds, len(payloads), 0)
    buffers: Buffers = [fixed, array("I", map(len, payloads))]
    if statuses:
        flags |= ResultsFlag.STATUSES
        buffers.append(statuses)
    if large:
        flags |= ResultsFlag.LARGE
        buffers.append(large)
    if profiles is not None:
        flags |= ResultsFlag.PROFILES
        buffers += profiles
    buffers.append(b"".join(payloads))
    return frame(FrameKind.RESULTS, flags, buffers)


def parse_results(flags: int, body: bytes) -> Results:
    """The content of a RESULTS frame."""
    first_position, busy_microseconds, count, _ = _RESULTS.unpack_from(body)
    columns = _Columns(body, _RESULTS.size)
    sizes = columns.take("I", count)
    statuses = columns.take_bytes(count) if flags & ResultsFlag.STATUSES else b""
    large = columns.take_bytes(count) if flags & ResultsFlag.LARGE else b""
    profiles = None
    if flags & ResultsFlag.PROFILES:
        profiles = (columns.take("Q", count), columns.take("Q", count), columns.take("Q", count))
    payload = memoryview(body)[columns.offset :]
    return Results(first_position, busy_microseconds, sizes, statuses, large, profiles, payload)


def large_result(size: int, path: str) -> bytes:
    """The payload that stands for a large result: its size and the file it was written to."""
    return _LARGE.pack(size) + path.encode("utf-8", "surrogateescape")


def parse_large_result(payload: Buffer) -> Tuple[int, str]:
    """Size in bytes and path."""
    return _LARGE.unpack_from(payload)[0], bytes(payload[_LARGE.size :]).decode("utf-8", "surrogateescape")


def given_back_frame(ranges: Sequence[Tuple[int, int]]) -> Buffers:
    """Tasks that the processor gives back: first position and count of each consecutive range."""
    return frame(FrameKind.GIVEN_BACK, 0, [_RANGE.pack(first, count) for first, count in ranges])


def parse_given_back(body: bytes) -> List[Tuple[int, int]]:
    return list(_RANGE.iter_unpack(body))


def log_frame(position: int, stream: int, text: str) -> Buffers:
    """Text that the task at `position` printed to a stream (1: standard output, 2: standard error)."""
    return frame(FrameKind.LOG, 0, [_LOG.pack(position, stream), text.encode("utf-8", "replace")])


def parse_log(body: bytes) -> Tuple[int, int, str]:
    """Position, stream, text."""
    position, stream = _LOG.unpack_from(body)
    return position, stream, body[_LOG.size :].decode("utf-8", "replace")


def signal_frame(kind: FrameKind) -> Buffers:
    """A frame without content."""
    return frame(kind, 0, [])


# Reading ----------------------------------------------------------------------------------------------------


class _Columns:
    """Reads columns from the front of a body."""

    __slots__ = ("_body", "offset")

    def __init__(self, body: bytes, offset: int) -> None:
        self._body = body
        self.offset = offset

    def take(self, typecode: str, count: int) -> array[int]:
        end = self.offset + count * _ITEM_BYTES[typecode]
        if end > len(self._body):
            raise FrameError("a frame ends within one of its columns")
        column = column_from_bytes(typecode, self._body[self.offset : end])
        self.offset = end
        return column

    def take_bytes(self, count: int) -> bytes:
        end = self.offset + count
        if end > len(self._body):
            raise FrameError("a frame ends within one of its columns")
        column = self._body[self.offset : end]
        self.offset = end
        return column


def join(buffers: Buffers) -> bytes:
    """A frame as one bytes object, to be written at once."""
    parts: Any = buffers
    return b"".join(parts)
