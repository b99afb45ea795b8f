"""Frames made by hand, word by word, for what no proper writer produces.

frame([struct_pointer(0, 1, 1), discriminant(m.Task), struct_pointer(0, 3, 7), ...], [...second segment])
"""

from __future__ import annotations

import struct
from typing import List, Sequence, Type

from scaler_protocol import messages as m
from scaler_protocol.wire.capnproto import Struct

BYTE, TWO_BYTES, FOUR_BYTES, EIGHT_BYTES, POINTER, COMPOSITE = 2, 3, 4, 5, 6, 7
LARGEST_COUNT = 0x1FFFFFFF


def struct_pointer(offset: int, data_words: int, pointer_words: int) -> int:
    return (offset & 0x3FFFFFFF) << 2 | data_words << 32 | pointer_words << 48


def list_pointer(offset: int, code: int, count: int) -> int:
    return (offset & 0x3FFFFFFF) << 2 | 1 | code << 32 | count << 35


def far_pointer(segment: int, word: int, double: bool = False) -> int:
    return word << 3 | double << 2 | 2 | segment << 32


def tag(count: int, data_words: int, pointer_words: int) -> int:
    """In front of the elements of a list of structs."""
    return struct_pointer(count, data_words, pointer_words)


def word_of(content: bytes) -> int:
    return int.from_bytes(content.ljust(8, b"\0"), "little")


def float_word(value: float) -> int:
    return word_of(struct.pack("<d", value))


def frame(*segments: Sequence[int]) -> bytes:
    sizes = [len(segments) - 1, *map(len, segments)]
    if len(sizes) % 2:
        sizes.append(0)
    words: List[int] = [word for segment in segments for word in segment]
    return struct.pack(f"<{len(sizes)}I", *sizes) + struct.pack(f"<{len(words)}Q", *words)


def message(member: Type[Struct], *words: int) -> List[int]:
    """The segment of a message whose member's words (data, pointers, then whatever they lead to) are given."""
    discriminant = m.MEMBERS.index(member)
    body = struct_pointer(0, member.DATA_WORDS, member.POINTER_WORDS)
    return [struct_pointer(0, 1, 1), discriminant, body, *words]


def message_with(member: Type[Struct], field: str, code: int, count: int, *content: int) -> List[int]:
    """The segment of a message of defaults but for one field, a list pointer to `content`."""
    words = message(member, *[0] * (member.DATA_WORDS + member.POINTER_WORDS))
    at = pointer_place(member, field)
    words[at] = list_pointer(len(words) - at - 1, code, count)
    return [*words, *content]


def pointer_place(member: Type[Struct], field: str) -> int:
    """Where in the segment of `message` the pointer of this field is. Fields get their pointers in order."""
    empty = member()
    pointers = [name for name in member.__slots__ if not isinstance(getattr(empty, name), (int, float))]
    return 3 + member.DATA_WORDS + pointers.index(field)
