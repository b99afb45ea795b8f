"""Archives of clients' code on disk: each is checked and unpacked to a folder.

Rule: no code of an archive is run or imported here, and no file of it is written outside its folder.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil

from scaler.values.code_notes import (
    FOOTER,
    MAXIMUM_ARCHIVE_BYTES,
    NO_CODE,
    CodeNote,
    add_to_digest,
    note_size,
    parse_note,
)
from scaler.worker.frames import Buffer


class CodeError(Exception):
    """Code that tasks need cannot be unpacked here; the message says why."""


def note_of_file(path: str) -> CodeNote:
    """The note of a function that is a file; `NO_CODE` when the file is gone, which the processor reports for each
    task."""
    try:
        with open(path, "rb") as file:
            length = file.seek(0, os.SEEK_END)
            file.seek(max(0, length - FOOTER.size))
            size = note_size(file.read())
            if not size:
                return NO_CODE
            file.seek(max(0, length - FOOTER.size - size))
            return parse_note(file.read(size))
    except (OSError, MemoryError):
        return NO_CODE


def unpack(content: Buffer, digest: str, folder: str) -> None:
    """Unpack an archive into a folder that does not exist yet.

    Raises CodeError when its content does not match its digest, and OSError; then no files are left.
    """
    import zipfile  # slow, and needed only where code is uploaded

    found = hashlib.blake2b(digest_size=16)
    partial = folder + ".new"
    shutil.rmtree(partial, ignore_errors=True)
    os.makedirs(partial)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > MAXIMUM_ARCHIVE_BYTES:
                raise CodeError("the client's code is too large")
            for entry in entries:
                if os.path.isabs(entry.filename) or ".." in entry.filename.split("/"):
                    raise CodeError(f"the client's code has a file {entry.filename!r}, which leads out of its folder")
                data = archive.read(entry)
                add_to_digest(found, entry.filename, data)
                path = os.path.join(partial, entry.filename)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "xb") as file:
                    file.write(data)
        if found.hexdigest() != digest:
            raise CodeError("the client's code does not match its digest")
        os.rename(partial, folder)
    except (CodeError, OSError, MemoryError):
        raise
    except Exception as error:  # `zipfile` may raise anything, because the bytes are untrusted
        raise CodeError(f"the client's code is not a valid archive: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
