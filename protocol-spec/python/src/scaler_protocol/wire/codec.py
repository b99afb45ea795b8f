"""The codec: message objects to frames and back.

Rules of this module:
- Five functions, no state but the tables of layouts. The encoding lives in `capnproto`, the structs in the generated
  `messages`.
- Decoding a frame gives one message or one `MalformedMessageError`, whatever its bytes are.

    m.Task(...) ── encode ──▶ frame 0 (bytes) ── ZeroMQ ──▶ frame 0 ── decode ──▶ m.Task(...)
                   │    └─ a lone task or result, of a known layout: one step (small_frames) ─┘    │
                   └───────── any other: word by word, with Writer and Reader (capnproto) ─────────┘

The root of a frame is the schema's `Message`, a struct with only a union. Python needs no object of that class: the
member's own class identifies it.
"""

from __future__ import annotations

import struct
from typing import Dict, Iterator, NamedTuple, Optional, Tuple, Type, Union

from scaler_protocol.wire.capnproto import (
    NO_LIMIT,
    WORD_BYTES,
    Reader,
    ReadStruct,
    Struct,
    StructType,
    Writer,
    segments,
    struct_pointer,
)
from scaler_protocol.wire.encoding_in_parts import BlockWriter, blocks_of
from scaler_protocol.wire.errors import InvalidFieldError
from scaler_protocol.wire.messages import MEMBERS, Member, Message, UnknownMessage
from scaler_protocol.wire.small_frames import (
    ARE_USED,
    LARGEST_BYTES,
    LayoutsBySizes,
    SmallMessage,
    WriteSmall,
    small_reads,
)

Frame = Union[bytes, bytearray, memoryview]

_UNION_WORDS = 2  # the struct `Message`: one word of data (the discriminant), one pointer
_UNION_POINTER = 1 << 32 | 1 << 48
_UNION = struct.Struct("<HxxxxxxQ")
_UNION_POINTER_AT = 24  # in a frame with the layout of ours
_DISCRIMINANT_AT = 16  # its lower byte
_HEAD = struct.Struct("<IIQHxxxxxxQ")  # of such a frame: segments - 1, words, root pointer, `_UNION`
_HEAD_BYTES = _HEAD.size


class _Form(NamedTuple):
    """How frames with a member of the union are written.

    Parameters:
        union: the words of the union.
        pointers_at, end: at which words of the segment the member's pointers are, and it ends.
        small: the member's `write_small`, and its layouts; None: this member has no small frames.
    """

    union: bytes
    pointers_at: int
    end: int
    small: Optional[Tuple[WriteSmall, LayoutsBySizes]]


def _form(discriminant: int, member: Type[Struct]) -> _Form:
    start = 1 + _UNION_WORDS
    pointers_at = start + member.DATA_WORDS
    union = _UNION.pack(discriminant, struct_pointer(start - 3, member.DATA_WORDS, member.POINTER_WORDS))
    small = None
    if ARE_USED and issubclass(member, SmallMessage):
        small = member.write_small, LayoutsBySizes(discriminant, member)
    return _Form(union, pointers_at, pointers_at + member.POINTER_WORDS, small)


_FORMS: Dict[Type[Struct], _Form] = {member: _form(discriminant, member) for discriminant, member in enumerate(MEMBERS)}
_READS: Tuple[ReadStruct[Member], ...] = tuple(member.read for member in MEMBERS)
_SMALL_READS = small_reads(form.small[1] for form in _FORMS.values() if form.small is not None)
_ENCODING_ERRORS = (struct.error, TypeError, ValueError, OverflowError, AttributeError)


def encode(message: Message) -> bytes:
    """The frame that carries `message`, an instance of one of the union's members (`messages.MEMBERS`).

    Raises `InvalidFieldError` if the object is not such a member, or a field holds a value that it cannot carry.
    """
    form = _FORMS.get(type(message))
    if form is None:
        raise InvalidFieldError(f"{type(message).__name__} is not a member of Message and cannot be sent")
    try:
        if form.small is not None:
            write_small, layouts = form.small
            parts = write_small(message)
            if parts is not None:
                values, contents = parts
                layout = layouts[tuple(map(len, contents))]
                if layout is not None:
                    return layout.pack(layout.head, *values, layout.pointers, *contents)
        return _encode_any(message, form)
    except _ENCODING_ERRORS as error:
        raise _blamed(message, error) from error


def _encode_any(message: Struct, form: _Form) -> bytes:
    """The general way: messages of any size."""
    writer = Writer(form.end)
    content = message.write(writer, form.pointers_at)  # which appends what it points to
    return writer.frame(_UNION_POINTER, form.union, content)


def encode_in_parts(message: Message) -> Iterator[Optional[bytes]]:
    """As `encode`, for a message with long lists of structs: None after each part, and then the frame.

    The message must not change meanwhile. Raises `InvalidFieldError` like `encode`.
    """
    form = _FORMS.get(type(message))
    if form is None:
        raise InvalidFieldError(f"{type(message).__name__} is not a member of Message and cannot be sent")
    try:
        for blocks in blocks_of(message):
            if blocks is None:
                yield None
            else:
                writer = BlockWriter(form.end, blocks)
                content = message.write(writer, form.pointers_at)
                yield writer.frame(_UNION_POINTER, form.union, content)
    except _ENCODING_ERRORS as error:
        raise _blamed(message, error) from error


def decode(frame: Frame, maximum_elements: int = NO_LIMIT) -> Message:
    """The message in `frame`; an `UnknownMessage` if this version of the schema lacks that member.

    Parameters:
        maximum_elements: how many elements all lists of structs and of texts may have; columns of numbers do not count.

    Raises `MalformedMessageError` if the bytes are malformed.
    """
    data = frame if type(frame) is bytes else bytes(frame)
    if len(data) <= LARGEST_BYTES and len(data) > _HEAD_BYTES:
        small = _SMALL_READS[data[_DISCRIMINANT_AT]]
        if small is not None:
            pointers, layouts, read_small = small
            layout = layouts[data[pointers]]
            if layout is not None and layout.size == len(data):
                values = layout.unpack(data)
                if values[0] == layout.head:
                    message: Optional[Message] = read_small(values)
                    if message is not None:
                        return message
    return _decode_any(data, maximum_elements)


def _decode_any(data: bytes, maximum_elements: int = NO_LIMIT) -> Message:
    """The general way: any layout, and the errors."""
    if len(data) >= _HEAD.size:
        last_segment, words, root, discriminant, pointer = _HEAD.unpack_from(data)
        # One segment that begins with the union: the way to the member is known, since latency depends on it.
        is_usual = root == _UNION_POINTER and not last_segment and len(data) == WORD_BYTES + words * WORD_BYTES
        if is_usual and pointer and discriminant < len(_READS):
            reader = Reader(data, (WORD_BYTES,), (len(data),), maximum_elements)
            read: ReadStruct[Member] = _READS[discriminant]
            return reader.struct(pointer, 0, _UNION_POINTER_AT, read)
    return Reader(data, *segments(data), maximum_elements).root(_read_message)


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
