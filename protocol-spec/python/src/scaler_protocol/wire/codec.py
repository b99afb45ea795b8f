"""The codec: message objects to frames and back.

Rules of this module:
- Four functions, no state. The encoding lives in `capnproto`, the structs in the generated `messages`.
- Decoding a frame gives one message or one `MalformedMessageError`, whatever its bytes are.

    m.Task(...) ── encode ──▶ frame 0 (bytes) ── ZeroMQ ──▶ frame 0 ── decode ──▶ m.Task(...)

The root of a frame is the schema's `Message`, a struct with only a union. Python needs no object of that class: the
member's own class identifies it.
"""

from __future__ import annotations

import struct
from typing import Dict, Tuple, Type, Union

from scaler_protocol.wire.capnproto import (
    WORD_BYTES,
    Reader,
    ReadStruct,
    Struct,
    StructType,
    Writer,
    segments,
    struct_pointer,
)
from scaler_protocol.wire.errors import InvalidFieldError
from scaler_protocol.wire.messages import MEMBERS, Member, Message, UnknownMessage

Frame = Union[bytes, bytearray, memoryview]

_UNION_WORDS = 2  # the struct `Message`: one word of data (the discriminant), one pointer
_UNION_POINTER = 1 << 32 | 1 << 48
_UNION = struct.Struct("<HxxxxxxQ")
_UNION_POINTER_AT = 24  # in a frame with the layout of ours
_HEAD = struct.Struct("<IIQHxxxxxxQ")  # of such a frame: segments - 1, words, root pointer, `_UNION`


def _layout(discriminant: int, member: Type[Struct]) -> Tuple[bytes, int, int]:
    """How frames with such a member begin: the union, and at which words the member's pointers are and it ends."""
    start = 1 + _UNION_WORDS
    pointer = struct_pointer(start - 3, member.DATA_WORDS, member.POINTER_WORDS)
    return (
        _UNION.pack(discriminant, pointer),
        start + member.DATA_WORDS,
        start + member.DATA_WORDS + member.POINTER_WORDS,
    )


_LAYOUTS: Dict[Type[Struct], Tuple[bytes, int, int]] = {
    member: _layout(discriminant, member) for discriminant, member in enumerate(MEMBERS)
}
_READS: Tuple[ReadStruct[Member], ...] = tuple(member.read for member in MEMBERS)
_ENCODING_ERRORS = (struct.error, TypeError, ValueError, OverflowError, AttributeError)


def encode(message: Message) -> bytes:
    """The frame that carries `message`, an instance of one of the union's members (`messages.MEMBERS`).

    Raises `InvalidFieldError` if the object is not such a member, or a field holds a value that it cannot carry.
    """
    layout = _LAYOUTS.get(type(message))
    if layout is None:
        raise InvalidFieldError(f"{type(message).__name__} is not a member of Message and cannot be sent")
    union, pointers_at, end = layout
    writer = Writer(end)
    try:
        content = message.write(writer, pointers_at)  # which appends what it points to
        return writer.frame(_UNION_POINTER, union, content)
    except _ENCODING_ERRORS as error:
        raise _blamed(message, error) from error


def decode(frame: Frame) -> Message:
    """The message in `frame`; an `UnknownMessage` if this version of the schema lacks that member.

    Raises `MalformedMessageError` if the bytes are malformed.
    """
    data = frame if type(frame) is bytes else bytes(frame)
    if len(data) >= _HEAD.size:
        last_segment, words, root, discriminant, pointer = _HEAD.unpack_from(data)
        # One segment that begins with the union: the way to the member is known, since latency depends on it.
        is_usual = root == _UNION_POINTER and not last_segment and len(data) == WORD_BYTES + words * WORD_BYTES
        if is_usual and pointer and discriminant < len(_READS):
            reader = Reader(data, (WORD_BYTES,), (len(data),))
            read: ReadStruct[Member] = _READS[discriminant]
            return reader.struct(pointer, 0, _UNION_POINTER_AT, read)
    return Reader(data, *segments(data)).root(_read_message)


def encode_struct(value: Struct) -> bytes:
    """A frame whose root is `value` itself, e.g. the `Failure` that is the payload of a failed task.

    Raises `InvalidFieldError` if a field holds a value that it cannot carry.
    """
    writer = Writer(1)
    try:
        return writer.frame(writer.struct(value, 0))
    except _ENCODING_ERRORS as error:
        raise _blamed(value, error) from error


def decode_struct(struct_class: Type[StructType], frame: Frame) -> StructType:
    """The counterpart of `encode_struct`: the root of `frame`, read as a `struct_class`.

    Raises `MalformedMessageError` if the bytes are malformed.
    """
    data = frame if type(frame) is bytes else bytes(frame)
    return Reader(data, *segments(data)).root(struct_class.read)


def _read_message(reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> Message:
    """The member that the union struct `Message` at byte `start` holds."""
    discriminant: int
    if data_words == 1 and pointer_words == 1:
        discriminant, pointer = _UNION.unpack_from(reader.data, start)
    else:
        discriminant, pointer = _UNION.unpack(reader.resized(start, data_words, pointer_words, 1, 1))
    if discriminant >= len(MEMBERS):
        return UnknownMessage(discriminant)
    if not pointer:
        return MEMBERS[discriminant]()
    return reader.struct(pointer, segment, start + data_words * 8, _READS[discriminant])


def _blamed(value: Struct, error: Exception) -> InvalidFieldError:
    """An error that names the field that cannot be written, found by trying each field alone."""
    for name in value.__slots__:
        probe = type(value)()
        setattr(probe, name, getattr(value, name))
        try:
            Writer(1).struct(probe, 0)
        except _ENCODING_ERRORS as field_error:
            return InvalidFieldError(f"{type(value).__name__}.{name} cannot be sent: {field_error}")
    return InvalidFieldError(f"{type(value).__name__} cannot be sent: {error}")
