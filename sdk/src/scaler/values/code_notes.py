"""What a function's serialised form says of the code it needs: a note behind the pickle.

    [ pickle, in any form of `payload` ][ note, as JSON ][ its size ][ mark ]

Rules:
- The note stands behind the pickle, where `pickle` ignores it: a worker that knows nothing of notes loads the function
  as before.
- A function that needs no code of its client has no note, and costs nothing.
- A note is data that any process may read: nothing in it is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Dict, List, NamedTuple, Optional, Tuple, Union

Buffer = Union[bytes, bytearray, memoryview]
Parts = List[Buffer]

NOTICE_STREAM = 4
"""The stream of a TaskLog that tells the client's user about the code that ran a task."""

MAXIMUM_NUMBER = (1 << 40) - 1
"""Of an object among those of its client."""

MAXIMUM_NOTE_BYTES = 4 * 1024 * 1024
MAXIMUM_ARCHIVE_BYTES = 64 * 1024 * 1024
"""Of the files in an archive."""

DIGEST_CHARACTERS = 32
_HEXADECIMAL = frozenset("0123456789abcdef")
_MARK = b"\x00scaler\x01"
FOOTER = struct.Struct("<I8s")  # bytes of the note, mark


class CodeNote(NamedTuple):
    """What code a function needs.

    Parameters:
        key: tells processors apart: one that ran tasks of one key runs none of another. Empty: the ordinary ones.
        archives: pairs of an object's number, among those of the function's client, and the digest of its content, in
            the order of the import path.
        modules: the digests of the sources of all local modules, as the client has imported them. Arguments may be of
            classes of any.
    """

    key: str = ""
    archives: Tuple[Tuple[int, str], ...] = ()
    modules: Dict[str, str] = {}  # noqa: RUF012 - never changed


NO_CODE = CodeNote()


def add_note(parts: Parts, note: CodeNote) -> None:
    """Append a note to a serialised function, if there is something to say."""
    if note != NO_CODE or bytes(memoryview(parts[-1])[-len(_MARK) :]) == _MARK:
        data = json.dumps([note.key, note.archives, note.modules]).encode()
        if len(data) > MAXIMUM_NOTE_BYTES:  # modules without number are not compared
            data = json.dumps([note.key, note.archives, {}]).encode()
        parts.append(data + FOOTER.pack(len(data), _MARK))


def read_note(content: Buffer) -> CodeNote:
    """The note of a serialised function; `NO_CODE` if it has none."""
    size = note_size(content[-FOOTER.size :])
    return parse_note(content[-size - FOOTER.size : -FOOTER.size]) if size else NO_CODE


def without_note(content: Buffer) -> Buffer:
    """The pickle of a serialised function that has a note."""
    return content[: -note_size(content[-FOOTER.size :]) - FOOTER.size]


def note_size(footer: Buffer) -> int:
    """The size of a note whose footer this is; 0: it is none."""
    if len(footer) < FOOTER.size:
        return 0
    size, mark = FOOTER.unpack(footer)
    return int(size) if mark == _MARK and size <= MAXIMUM_NOTE_BYTES else 0


def parse_note(data: Buffer) -> CodeNote:
    """A note, which anybody may have written: `NO_CODE` when it is none."""
    try:
        key, archives, modules = json.loads(bytes(data))
        pairs = tuple((number, digest) for number, digest in archives)
        is_sound = (
            _is_short_text(key)
            and all(type(number) is int and 0 < number <= MAXIMUM_NUMBER for number, _ in pairs)
            and all(_is_digest(digest) for _, digest in pairs)
            and all(type(digest) is str for digest in modules.values())
        )
    except (ValueError, TypeError, AttributeError, RecursionError):
        return NO_CODE
    return CodeNote(key, pairs, modules) if is_sound else NO_CODE


def _is_short_text(value: object) -> bool:
    return type(value) is str and len(value) <= DIGEST_CHARACTERS


def _is_digest(value: object) -> bool:
    """Whether it is the digest of an archive, which becomes the name of a folder."""
    return type(value) is str and len(value) == DIGEST_CHARACTERS and set(value) <= _HEXADECIMAL


def add_to_digest(digest: hashlib.blake2b, name: str, content: bytes) -> None:
    """Count one file for the digest of an archive: of names and contents, in the order of names."""
    encoded = name.encode("utf-8", "surrogateescape")
    digest.update(b"%d %d " % (len(encoded), len(content)) + encoded + content)


class Notice(NamedTuple):
    """Something that the user of a client should know about the code that ran a task."""

    subject: str
    """What it is about, a module for instance: it is said once for each."""

    text: str

    def to_log(self) -> str:
        return f"{self.subject}\n{self.text}"


def notice_from_log(text: str) -> Optional[Notice]:
    """What `Notice.to_log` wrote; None when it did not."""
    subject, line_end, rest = text.partition("\n")
    return Notice(subject, rest.strip()) if line_end else None
