"""The code that a serialised function needs: a note appended to the pickle.

    [ pickle, in any form of `payload` ][ note, as JSON ][ its size ][ mark ]

Rules:
- The note is behind the pickle, where `pickle` ignores it: a worker without support for notes loads the function as
  before.
- A function that needs no code of its client has no note and no cost.
- A note is plain data that any process may read: nothing in it is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Dict, List, NamedTuple, Optional, Tuple, Union

Buffer = Union[bytes, bytearray, memoryview]
Parts = List[Buffer]

NOTICE_STREAM = 4
"""The TaskLog stream with notices for the client's user about the code that ran a task."""

MAXIMUM_NUMBER = (1 << 40) - 1
"""The number of an object among those of its client."""

MAXIMUM_NOTE_BYTES = 4 * 1024 * 1024
MAXIMUM_ARCHIVE_BYTES = 64 * 1024 * 1024
"""The digest of the files in an archive."""

DIGEST_CHARACTERS = 32
_HEXADECIMAL = frozenset("0123456789abcdef")
_MARK = b"\x00scaler\x01"
FOOTER = struct.Struct("<I8s")  # bytes of the note, mark


class CodeNote(NamedTuple):
    """The code that a function needs.

    Parameters:
        key: separates processors: a processor that ran tasks of one key runs no tasks of another. Empty: ordinary ones.
        archives: pairs of an object's number, among those of the function's client, and the digest of its content, in
            the order of the import path.
        modules: the digests of the sources of all local modules, as the client has imported them, because arguments may
            be instances of classes of any of them.
    """

    key: str = ""
    archives: Tuple[Tuple[int, str], ...] = ()
    modules: Dict[str, str] = {}  # noqa: RUF012 - never changed


NO_CODE = CodeNote()


def add_note(parts: Parts, note: CodeNote) -> None:
    """Append a note to a serialised function, unless the note is empty."""
    if note != NO_CODE or bytes(memoryview(parts[-1])[-len(_MARK) :]) == _MARK:
        data = json.dumps([note.key, note.archives, note.modules]).encode()
        if len(data) > MAXIMUM_NOTE_BYTES:  # too many modules to compare
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
    """A note from an untrusted source: `NO_CODE` if it is malformed."""
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
    """Whether it is a digest of an archive, which becomes the name of a folder."""
    return type(value) is str and len(value) == DIGEST_CHARACTERS and set(value) <= _HEXADECIMAL


def add_to_digest(digest: hashlib.blake2b, name: str, content: bytes) -> None:
    """Add one file to the digest of an archive: names and contents, in the order of names."""
    encoded = name.encode("utf-8", "surrogateescape")
    digest.update(b"%d %d " % (len(encoded), len(content)) + encoded + content)


class Notice(NamedTuple):
    """Information for the user of a client about the code that ran a task."""

    subject: str
    """The subject, such as a module: each is reported once."""

    text: str

    def to_log(self) -> str:
        return f"{self.subject}\n{self.text}"


def notice_from_log(text: str) -> Optional[Notice]:
    """The inverse of `Notice.to_log`; None for any other text."""
    subject, line_end, rest = text.partition("\n")
    return Notice(subject, rest.strip()) if line_end else None
