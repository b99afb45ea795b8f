"""The layouts of small frames, remembered: a lone task or result is written and read in one step.

Small frames of one kind of message differ in their values, and hardly ever in their layout. The layout follows from
the sizes of the contents, because `Writer` appends what pointers lead to in their order, each padded to whole words:

    head            data words   pointers   content   content      content
    32s             QIIQ         72s        8s        4s4x         12s4x     ...     one format of `struct` for all
    table to union  values       words      ids       sizes        codec

Rules of this module:
- A layout is made from sizes, never from what a peer says. Reading derives the sizes from a frame's pointers, makes the
  layout that our writer gives contents of these sizes, and uses it only if the head, the pointers and the length are
  the frame's, bit for bit. Then the pointers need no further checks: contents lie in the frame, apart from each other.
  Any other frame takes the general way, through `Reader`, which also says what is wrong with a malformed one.
- The tables are bounded, and are cleared when full. They hold layouts, pointers and short texts; no frame, no column.
- PyPy compiles the general way well enough, and layouts describe this machine's byte order: neither PyPy nor big-endian
  machines use them.
"""

from __future__ import annotations

import struct
import sys
from typing import Any, Callable, ClassVar, Dict, Iterable, List, Optional, Sequence, Tuple, Type

from scaler_protocol.wire.capnproto import WORD_BYTES, Struct, struct_pointer, utf8

ARE_USED = sys.implementation.name != "pypy" and sys.byteorder == "little"
LARGEST_BYTES = 512
LARGEST_COUNT = 16
"""Batches of more entries take the general way."""

_LARGEST_TEXT_BYTES = 64
_LAYOUTS_KNOWN = 512  # of each kind of message
_TEXTS_KNOWN = 1024
_HEAD = struct.Struct("<IIQHxxxxxxQ")  # segments - 1, words, root pointer, and the union: its member, and a pointer
_UNION_POINTER = struct_pointer(0, 1, 1)


class SmallMessage(Struct):
    """Base of the messages whose small frames are written and read in one step."""

    __slots__ = ()

    DATA_FORMAT: ClassVar[str]
    CONTENTS: ClassVar[Tuple[Tuple[int, int], ...]]
    """What each pointer leads to: the pointer's bits apart from offset and count, and the bytes of an element of the
    list; 0 for a struct, which has always the same size.
    """

    def write_small(self) -> Optional[Tuple[Tuple[Any, ...], Tuple[bytes, ...]]]:
        """The values of the data words, and the content of each pointer; None if the message is not small."""
        raise NotImplementedError

    @classmethod
    def read_small(cls, values: Tuple[Any, ...]) -> Optional[SmallMessage]:
        """The message whose frame, unpacked by its layout, is `values`; None if the general way must read it."""
        raise NotImplementedError


WriteSmall = Callable[[Any], Optional[Tuple[Tuple[Any, ...], Tuple[bytes, ...]]]]
ReadSmall = Callable[[Tuple[Any, ...]], Optional[Any]]


class Layout:
    """How a small frame is laid out."""

    __slots__ = ("head", "pointers", "size", "pack", "unpack")

    def __init__(self, head: bytes, data_format: str, pointers: Sequence[int], sizes: Sequence[int]) -> None:
        contents = "".join(f"{size}s{-size % WORD_BYTES}x" for size in sizes)
        frame = struct.Struct(f"<{_HEAD.size}s{data_format}{WORD_BYTES * len(pointers)}s{contents}")
        self.head = head
        self.pointers = struct.pack(f"<{len(pointers)}Q", *pointers)
        self.size, self.pack, self.unpack = frame.size, frame.pack, frame.unpack


class LayoutsBySizes(Dict[Tuple[int, ...], Optional[Layout]]):
    """The layouts of one kind of message, by the sizes of its contents; None where the frame is not small.

    Parameters:
        discriminant: the number of the member in the union.
    """

    def __init__(self, discriminant: int, member: Type[SmallMessage]) -> None:
        self.discriminant, self.member = discriminant, member

    def __missing__(self, sizes: Tuple[int, ...]) -> Optional[Layout]:
        if sum(sizes) > LARGEST_BYTES:
            return None
        member = self.member
        at = 3 + member.DATA_WORDS  # words of the segment: root pointer, union, data
        end = at + member.POINTER_WORDS
        pointers = []
        for place, (size, (kind, item_bytes)) in enumerate(zip(sizes, member.CONTENTS), at):
            count = size // item_bytes if item_bytes else 0
            pointers.append((end - place - 1) << 2 | kind | count << 35 if size else 0)
            end += -(-size // WORD_BYTES)
        pointer = struct_pointer(0, member.DATA_WORDS, member.POINTER_WORDS)
        head = _HEAD.pack(0, end, _UNION_POINTER, self.discriminant, pointer)
        layout = Layout(head, member.DATA_FORMAT, pointers, sizes)
        if layout.size > LARGEST_BYTES:
            return None
        _remember(self, _LAYOUTS_KNOWN, sizes, layout)
        return layout


class LayoutsByPointers(Dict[bytes, Optional[Layout]]):
    """The same layouts, by the pointers of a frame; None where pointers are not as our writer's."""

    def __init__(self, by_sizes: LayoutsBySizes) -> None:
        self._by_sizes = by_sizes

    def __missing__(self, pointers: bytes) -> Optional[Layout]:
        member = self._by_sizes.member
        if len(pointers) != WORD_BYTES * member.POINTER_WORDS:
            return None
        sizes = []
        for word, (kind, item_bytes) in zip(struct.unpack(f"<{member.POINTER_WORDS}Q", pointers), member.CONTENTS):
            struct_words = (kind >> 32 & 0xFFFF) + (kind >> 48)
            sizes.append(((word >> 35) * item_bytes if item_bytes else struct_words * WORD_BYTES) if word else 0)
        layout = self._by_sizes[tuple(sizes)]
        if layout is not None and layout.pointers != pointers:
            layout = None
        _remember(self, _LAYOUTS_KNOWN, pointers, layout)
        return layout


def small_reads(
    layouts: Iterable[LayoutsBySizes],
) -> List[Optional[Tuple[slice, LayoutsByPointers, ReadSmall]]]:
    """By the lower byte of the discriminant: where a frame has its pointers, its layouts, and how to read it."""
    reads: List[Optional[Tuple[slice, LayoutsByPointers, ReadSmall]]] = [None] * 256
    for by_sizes in layouts:
        member = by_sizes.member
        pointers_at = _HEAD.size + WORD_BYTES * member.DATA_WORDS
        pointers = slice(pointers_at, pointers_at + WORD_BYTES * member.POINTER_WORDS)
        reads[by_sizes.discriminant] = pointers, LayoutsByPointers(by_sizes), member.read_small
    return reads


class EncodedTexts(Dict[str, bytes]):
    """Short texts as they travel, which are the same again and again: names of functions and codecs."""

    def __missing__(self, text: str) -> bytes:
        content = utf8(text)
        if len(content) <= _LARGEST_TEXT_BYTES and type(text) is str:
            _remember(self, _TEXTS_KNOWN, text, content)
        return content


class DecodedTexts(Dict[bytes, Optional[str]]):
    """The counterpart of `EncodedTexts`; None for what is no text."""

    def __missing__(self, content: bytes) -> Optional[str]:
        # SCL-SEC-003
        if content[-1]:
            return None
        try:
            text = content[:-1].decode()
        except UnicodeDecodeError:
            return None
        if len(content) <= _LARGEST_TEXT_BYTES:
            _remember(self, _TEXTS_KNOWN, content, text)
        return text


ENCODED_TEXTS = EncodedTexts()
DECODED_TEXTS = DecodedTexts()


def _remember(table: Dict[Any, Any], limit: int, key: object, value: object) -> None:
    if len(table) >= limit:
        table.clear()
    table[key] = value
