"""Recordings: everything that reached a core, in a file, from which its decisions can be repeated.

    magic, header ─ block ─ block ─ block …      block: length, CRC, zlib(records)      record: kind, time, length, body

Rules:
- A record is whole or not there: blocks are appended, and one that is cut off or damaged ends the recording.
- Payloads are left out unless they were asked for: the core never looks into them, so bytes of the same number will do.
- Now and then a digest of what the core decided is recorded, so that a replay knows whether it repeats the same.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import IO, Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from scaler_appliance import __version__
from scaler_appliance.core.effects import Effect, Send, StoreChunk
from scaler_appliance.core.state import Settings
from scaler_appliance.shell.core_inputs import InputKind
from scaler_protocol import encode
from scaler_protocol import messages as m

MAGIC = b"scaler recording 1\n"
DIGEST = 0  # the kind of a record that is no input

_LENGTH = struct.Struct("<I")
_BLOCK = struct.Struct("<II")  # length, CRC-32
_RECORD = struct.Struct("<BdI")  # kind, time, length of the body
_DIGEST = struct.Struct("<QII")
_KINDS_OF_A_PEER = (InputKind.PEER_GONE, InputKind.CONGESTION)


class RecordingError(Exception):
    """A file is not a recording, or its beginning is damaged."""


class Header(NamedTuple):
    """What a recording begins with.

    Parameters:
        began: by the clock of the inputs, in seconds.
        began_unix: the same moment in seconds since 1970.
        has_payloads: whether payloads are in it.
    """

    version: str
    settings: Settings
    began: float
    began_unix: float
    has_payloads: bool


class Input(NamedTuple):
    """One thing that happened.

    Parameters:
        number: counted from 1.
        time: by the core's clock, in seconds.
        arguments: see InputKind; where payloads were left out, those of frames are zeros.
    """

    number: int
    kind: InputKind
    time: float
    arguments: Tuple[Any, ...]


class Digest(NamedTuple):
    """What the core had decided by then.

    Parameters:
        effects: how many there had been in all.
        last: how many of them were taken last.
        crc: of these.
    """

    effects: int
    last: int
    crc: int


# Writing --------------------------------------------------------------------------------------------------------------


def header_bytes(header: Header) -> bytes:
    settings: Dict[str, Any] = {
        name: value.hex() if isinstance(value, bytes) else value for name, value in header.settings._asdict().items()
    }
    implementation = header.settings.implementation
    settings["implementation"] = {
        "name": implementation.name,
        "version": implementation.version,
        "language": implementation.language,
    }
    text = json.dumps({**header._asdict(), "settings": settings}).encode()
    return MAGIC + _LENGTH.pack(len(text)) + text


def frames_record(time: float, peer: bytes, sizes: Sequence[int], content: bytes) -> bytes:
    """An InputKind.FRAMES.

    Parameters:
        sizes: of all frames.
        content: of the first frame, or of all.
    """
    head = struct.pack(f"<BB{len(sizes)}I", len(peer), len(sizes), *sizes)
    length = len(head) + len(peer) + len(content)
    return b"".join((_RECORD.pack(InputKind.FRAMES, time, length), head, peer, content))


def record(kind: InputKind, time: float, arguments: Sequence[Any]) -> bytes:
    """Any other input."""
    if not arguments:
        return _RECORD.pack(kind, time, 0)
    body = json.dumps([each.hex() if isinstance(each, bytes) else each for each in arguments]).encode()
    return _RECORD.pack(kind, time, len(body)) + body


def digest_record(time: float, digest: Digest) -> bytes:
    return _RECORD.pack(DIGEST, time, _DIGEST.size) + _DIGEST.pack(*digest)


def block(records: bytes) -> bytes:
    """What is appended to a file."""
    content = zlib.compress(records, 1)
    return _BLOCK.pack(len(content), zlib.crc32(content)) + content


def crc_of(effects: Sequence[Effect]) -> int:
    """Of everything that does not depend on the bytes of payloads."""
    crc = 0
    for effect in effects:
        if isinstance(effect, Send):
            size = sum(map(len, effect.payload))
            text = b"%b %d %b" % (effect.peer, size, encode(effect.message))
        elif isinstance(effect, StoreChunk):
            text = repr(effect._replace(chunk=b"", size=len(effect.chunk))).encode()
        else:
            text = repr(effect).encode()
        crc = zlib.crc32(text, crc)
    return crc


# Reading --------------------------------------------------------------------------------------------------------------


class Recording:
    """A recording that is read from a file.

    Parameters:
        file: at its beginning.

    Raises RecordingError if it is none.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.header = _read_header(file)
        self.is_cut = False
        """After reading all: whether the end is missing or damaged."""

    def records(self) -> Iterator[Tuple[float, Any]]:
        """The time and the Input or Digest, one after the other."""
        number = 0
        for content in self._blocks():
            offset = 0
            while offset < len(content):
                kind, time, length = _RECORD.unpack_from(content, offset)
                offset += _RECORD.size
                body = content[offset : offset + length]
                offset += length
                if kind == DIGEST:
                    yield time, Digest(*_DIGEST.unpack(body))
                    continue
                number += 1
                arguments = self._arguments(InputKind(kind), body)
                yield time, Input(number, InputKind(kind), time, arguments)

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

    def _arguments(self, kind: InputKind, body: bytes) -> Tuple[Any, ...]:
        if not body:
            return ()
        if kind != InputKind.FRAMES:
            arguments = json.loads(body)
            return (bytes.fromhex(arguments[0]), *arguments[1:]) if kind in _KINDS_OF_A_PEER else tuple(arguments)
        peer_size, count = body[0], body[1]
        sizes: Tuple[int, ...] = struct.unpack_from(f"<{count}I", body, 2)
        offset = 2 + 4 * count
        peer = body[offset : offset + peer_size]
        offset += peer_size
        frames: List[bytes] = []
        for size in sizes:
            frames.append(body[offset : offset + size] if self.header.has_payloads or not frames else bytes(size))
            offset += size
        return peer, frames


def _read_header(file: IO[bytes]) -> Header:
    try:
        if file.read(len(MAGIC)) != MAGIC:
            raise RecordingError("the file is not a recording of a scheduler")
        (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
        fields = json.loads(file.read(length))
        settings = dict(fields["settings"])
        settings["implementation"] = m.Implementation(**settings["implementation"])
        for name in ("scheduler_id", "object_directory_token"):
            settings[name] = bytes.fromhex(settings[name])
        return Header(**{**fields, "settings": Settings(**settings)})
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise RecordingError(f"the beginning of the recording cannot be read: {error}") from error


def version() -> str:
    """Of the core that is recorded: another one may decide otherwise."""
    return __version__
