"""Recordings: files with all inputs of a core, from which its decisions can be repeated.

    magic, header ─ block ─ block ─ block …      block: length, CRC, zlib(records)      record: kind, time, length, body

Rules:
- Records are complete: blocks are appended, and one that is cut off or damaged ends the recording.
- Payloads are left out unless requested: a core never reads them, so any bytes of the same size will do.
- From time to time a digest of the core's effects is recorded, so that a replay detects differences.
- What a core reads by itself while it handles an input (a shared memory page, a random number) follows the input.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import IO, Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

MAGIC = b"scaler recording 1\n"
SCHEDULER, WORKER, CLIENT = "scheduler", "worker", "client"

DIGEST = 0  # the kinds of records that are no inputs
READS = 255

_LENGTH = struct.Struct("<I")
_BLOCK = struct.Struct("<II")  # length, CRC-32
_RECORD = struct.Struct("<BdI")  # kind, time, length of the body
_DIGEST = struct.Struct("<QII")

Buffer = Union[bytes, bytearray, memoryview]


class RecordingError(Exception):
    """A file is not a recording, or its beginning is damaged."""


class Header(NamedTuple):
    """The header of a recording.

    Parameters:
        version: of the core that is recorded: another one may decide otherwise.
        settings: what the core was made with, as JSON.
        began: by the clock of the inputs, in seconds.
        began_unix: the same moment in seconds since 1970.
        has_payloads: whether payloads are in it.
        core: whose it is.
    """

    version: str
    settings: Dict[str, Any]
    began: float
    began_unix: float
    has_payloads: bool
    core: str = SCHEDULER


class RecordedInput(NamedTuple):
    """One input.

    Parameters:
        number: counted from 1.
        time: by the core's clock, in seconds.
        body: the arguments, as the core's part of the format has them.
        reads: what the core read while it handled the input, in order.
    """

    number: int
    kind: int
    time: float
    body: bytes
    reads: List[Any]


class Digest(NamedTuple):
    """A digest of the core's effects up to this point.

    Parameters:
        effects: the total number so far.
        last: the number of effects that were taken last.
        crc: of these.
    """

    effects: int
    last: int
    crc: int


# Writing --------------------------------------------------------------------------------------------------------------


def header_bytes(header: Header) -> bytes:
    text = json.dumps(header._asdict()).encode()
    return MAGIC + _LENGTH.pack(len(text)) + text


def record(kind: int, time: float, body: bytes) -> bytes:
    return _RECORD.pack(kind, time, len(body)) + body


def digest_record(time: float, digest: Digest) -> bytes:
    return record(DIGEST, time, _DIGEST.pack(*digest))


def block(records: bytes) -> bytes:
    """A block to append to a file."""
    content = zlib.compress(records, 1)
    return _BLOCK.pack(len(content), zlib.crc32(content)) + content


class Body:
    """Arguments for a record: JSON, followed by the bytes that it refers to.

    Parameters:
        has_payloads: whether payloads are recorded.
    """

    def __init__(self, has_payloads: bool) -> None:
        self.has_payloads = has_payloads
        self._buffers: List[Buffer] = []

    def kept(self, content: Buffer) -> Dict[str, int]:
        """Bytes that the core reads, in JSON."""
        self._buffers.append(content)
        return {"kept": len(content)}

    def payload(self, content: Buffer) -> Dict[str, int]:
        """Bytes that the core does not look into, in JSON."""
        if self.has_payloads:
            self._buffers.append(content)
        return {"payload": len(content)}

    def parts(self, *parts: Dict[str, int]) -> Dict[str, Sequence[Dict[str, int]]]:
        """Bytes some of which the core reads, in JSON."""
        return {"parts": parts}

    def encode(self, value: Any) -> bytes:
        text = json.dumps(value, separators=(",", ":")).encode()
        return b"".join((_LENGTH.pack(len(text)), text, *self._buffers))


# Reading --------------------------------------------------------------------------------------------------------------


def decode_body(body: bytes, has_payloads: bool) -> Any:
    """What `Body.encode` was given; payloads that were left out are zeros."""
    (length,) = _LENGTH.unpack_from(body)
    offset = _LENGTH.size + length

    def restore(found: Dict[str, Any]) -> Any:
        nonlocal offset
        if "parts" in found:
            return b"".join(found["parts"])
        if "payload" in found and not has_payloads:
            return bytes(found["payload"])
        size = found["payload"] if "payload" in found else found["kept"]
        offset += size
        return body[offset - size : offset]

    return json.loads(body[_LENGTH.size : _LENGTH.size + length], object_hook=restore)


class Recording:
    """A recording that is read from a file.

    Parameters:
        file: at its beginning.

    Raises RecordingError if it is not a recording.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.header = _read_header(file)
        self.is_cut = False
        """After reading all: whether the end is missing or damaged."""

    def records(self) -> Iterator[Tuple[float, Union[RecordedInput, Digest]]]:
        """The time and the input or digest, one after the other."""
        waiting: Optional[RecordedInput] = None  # for what was read while it was handled
        number = 0
        for kind, time, body in self._records():
            if kind == READS:
                if waiting is not None:
                    waiting.reads.extend(decode_body(body, self.header.has_payloads))
                continue
            if waiting is not None:
                yield waiting.time, waiting
                waiting = None
            if kind == DIGEST:
                yield time, Digest(*_DIGEST.unpack(body))
            else:
                number += 1
                waiting = RecordedInput(number, kind, time, body, [])
        if waiting is not None:
            yield waiting.time, waiting

    def _records(self) -> Iterator[Tuple[int, float, bytes]]:
        for content in self._blocks():
            offset = 0
            while offset < len(content):
                kind, time, length = _RECORD.unpack_from(content, offset)
                offset += _RECORD.size + length
                yield kind, time, content[offset - length : offset]

    def _blocks(self) -> Iterator[bytes]:
        while True:
            head = self._file.read(_BLOCK.size)
            if not head:
                return
            length, crc = _BLOCK.unpack(head) if len(head) == _BLOCK.size else (1, 0)
            content = self._file.read(length)
            if len(content) < length or zlib.crc32(content) != crc:
                self.is_cut = True
                return
            yield zlib.decompress(content)


def _read_header(file: IO[bytes]) -> Header:
    try:
        if file.read(len(MAGIC)) != MAGIC:
            raise RecordingError("the file is not a recording")
        (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
        return Header(**json.loads(file.read(length)))
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise RecordingError(f"the beginning of the recording cannot be read: {error}") from error
