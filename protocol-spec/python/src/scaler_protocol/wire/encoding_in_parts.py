"""Encoding a message that has long lists of structs in parts, so that its sender can do other things in between.

    message ──▶ its lists of structs, some elements at a time ──▶ blocks ──▶ the frame, into which they are copied

Rules:
- The frame is the one that `codec.encode` makes.
- A list is a block of its own: pointers are relative, so those in it are right wherever it is in the frame. They lead
  from its elements, whose number is known from the beginning, to what is appended behind these.
- Columns are not encoded in parts: they are copied as blocks of memory anyway.
"""

from __future__ import annotations

import struct
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence

from scaler_protocol.wire.capnproto import WORD_BYTES, Struct, Writer
from scaler_protocol.wire.errors import InvalidFieldError

PART_BYTES = 128 * 1024
"""About so much is written at a time, which takes CPython 3.11 some 3 ms."""

_LIST_OF_STRUCTS = 1 | 7 << 32  # kind and element code of a pointer
_WORD = struct.Struct("<Q")


class Block(NamedTuple):
    """A list of structs that is encoded.

    Parameters:
        pointer: to the list, if it were directly behind the pointer.
    """

    content: bytes
    pointer: int


class BlockWriter(Writer):
    """A writer of a message some of whose lists are encoded.

    Parameters:
        end: as of a `Writer`.
        blocks: of these lists, by the `id` of the list.
    """

    __slots__ = ("_blocks",)

    def __init__(self, end: int, blocks: Dict[int, Block]) -> None:
        super().__init__(end)
        self._blocks = blocks

    def structs(self, values: Sequence[Struct], at: int) -> int:
        block = self._blocks.get(id(values))
        if block is None:
            return super().structs(values, at)
        start = self.end
        self.end = start + len(block.content) // WORD_BYTES
        self.parts.append(block.content)
        return (start - at - 1) << 2 | block.pointer


def blocks_of(message: Struct) -> Iterator[Optional[Dict[int, Block]]]:
    """Encode the lists of structs among a message's fields: None after each part, and then the blocks.

    The lists must not change before the frame is made.
    """
    blocks: Dict[int, Block] = {}
    for name in message.__slots__:
        values = getattr(message, name)
        if type(values) is list and values and isinstance(values[0], Struct):
            for block in _encoded(values):
                if block is None:
                    yield None
                else:
                    blocks[id(values)] = block
    yield blocks


def _encoded(values: List[Struct]) -> Iterator[Optional[Block]]:
    kind, count = type(values[0]), len(values)
    element_words = kind.DATA_WORDS + kind.POINTER_WORDS
    words = count * element_words
    elements = [_WORD.pack(count << 2 | kind.DATA_WORDS << 32 | kind.POINTER_WORDS << 48)]
    writer = Writer(1 + words)  # appends behind the elements
    appended: List[bytes] = []
    pointers_at, until = 1 + kind.DATA_WORDS, PART_BYTES
    for value in values:
        if type(value) is not kind:
            raise InvalidFieldError(f"the elements of a list of {kind.__name__} have different classes")
        elements.append(value.write(writer, pointers_at))
        pointers_at += element_words
        written = (writer.end - words + pointers_at) * WORD_BYTES
        if written >= until:
            until = written + PART_BYTES
            appended.append(b"".join(writer.parts))
            writer.parts.clear()
            elements = [b"".join(elements)]
            yield None
    yield Block(b"".join([*elements, *appended, *writer.parts]), _LIST_OF_STRUCTS | words << 35)
