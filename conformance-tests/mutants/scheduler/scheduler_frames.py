"""Headers as the reference scheduler reads them: by pycapnp, and the checks that it leaves to its caller."""

from __future__ import annotations

import struct
from typing import Any, Dict, Tuple

import capnp

from scaler_conformance.codec.schema_codec import (
    SCHEMA,
    Struct,
    UnreadableMessageError,
    _plain_fields,
    _reason,
    _type_name,
)

UNKNOWN = ""
MOST_SEGMENTS = 512


def check_table(frame: bytes) -> None:
    """Raises UnreadableMessageError when the segment table does not add up to the frame."""
    if len(frame) < 8:
        raise UnreadableMessageError("no segment table")
    count = struct.unpack("<I", frame[:4])[0] + 1
    if count > MOST_SEGMENTS:
        raise UnreadableMessageError(f"{count} segments")
    table = 4 * (count + 1 + (count + 1) % 2)
    if len(frame) < table:
        raise UnreadableMessageError("a segment table that is cut")
    words = sum(struct.unpack(f"<{count}I", frame[4 : 4 + 4 * count]))
    if table + 8 * words != len(frame):
        raise UnreadableMessageError("a segment table that does not add up")


def decode(frame: bytes, words: int) -> Tuple[str, Dict[str, Any]]:
    """Type and fields of a header; the type is UNKNOWN for a member that the schema does not have.

    Parameters:
        words: how much of it may be read, all pointers counted.

    Raises UnreadableMessageError.
    """
    try:
        with SCHEMA._module.Message.from_bytes(frame, traversal_limit_in_words=words, nesting_limit=64) as root:
            try:
                member = str(root.which())
            except capnp.KjException as error:
                if "non-union" in str(error):
                    return UNKNOWN, {}
                raise
            return _type_name(member), _plain_fields(getattr(root, member))
    except (capnp.KjException, IndexError, ValueError, UnicodeDecodeError) as error:
        raise UnreadableMessageError(_reason(error)) from None


def plain(value: Any) -> Any:
    """What was decoded, as it is encoded again."""
    if isinstance(value, Struct):
        return {name: plain(each) for name, each in value.fields().items()}
    return [plain(each) for each in value] if isinstance(value, list) else value
