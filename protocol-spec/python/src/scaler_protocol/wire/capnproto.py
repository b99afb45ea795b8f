"""Cap'n Proto's wire format: reading and writing structs, lists and text, one step below the message classes.

Rules of this module:
- It knows the encoding but no schema. Only the generated classes in `messages` call it.
- A position is a byte offset into the whole frame when reading, a word offset into the segment when writing.
- The reader trusts no byte. Each pointer is checked against the segment it points into before anything is read from
  there, and each word read is charged to a budget in proportion to the frame's size, so that a small frame cannot
  cause a lot of work.
- Every fault in a frame ends in `MalformedMessageError`, which says what and where.
- Columns (lists of numbers) move as blocks of memory, never one element at a time.

A frame (Cap'n Proto's stream encoding, unpacked):

    u32 segments - 1 | u32 words of segment 0, u32 words of segment 1 ... padded to 8 bytes | segment 0, 1 ...

A pointer (one 64-bit word; the lowest two bits are its kind):

    struct  0 | 30 bits: signed offset, words from the pointer's end | 16: data words | 16: pointer words
    list    1 | 30 bits: signed offset                               | 3: element code | 29: element count
    far     2 | 1 bit: double | 29 bits: word in the other segment   | 32: segment number
    other   3 | capabilities, which this protocol does not use
"""

from __future__ import annotations

import struct
import sys
from array import array
from typing import Any, Callable, ClassVar, Dict, List, NoReturn, Sequence, Tuple, TypeVar, Union

from scaler_protocol.wire.errors import InvalidFieldError, MalformedMessageError

WORD_BYTES = 8
SEGMENT_COUNT_LIMIT = 512

# The cost limit of reading, in words. A well-formed message visits each of its words once; two visits are allowed.
# Zero-sized structs take no space in a list and are charged a word each: the constant allows them in short frames.
# SCL-SEC-005
TRAVERSAL_FACTOR = 2
TRAVERSAL_GRACE_WORDS = 1024

Column = Union["array[int]", bytes, bytearray, memoryview, Sequence[int]]
NOTHING: Tuple[int, ...] = ()
"""The default of every column: creating an empty one costs less than testing values."""

StructType = TypeVar("StructType", bound="Struct")
Element = TypeVar("Element")
ReadStruct = Callable[["Reader", int, int, int, int], Element]

_KIND_STRUCT = 0
_KIND_LIST = 1
_KIND_FAR = 2
_CODE_BYTE = 2
_CODE_POINTER = 6
_CODE_COMPOSITE = 7
_KIND_NAMES = ("struct", "list", "far", "capability")
_LIST_BITS = (0, 1, 8, 16, 32, 64, 64, 64)  # element code -> bits of an element
_LIST_CODES = {1: 2, 2: 3, 4: 4, 8: 5}  # bytes of an element -> element code
COLUMN_KINDS = {  # by typecode: what pointers to columns have in common, and the bytes of an element
    typecode: (_KIND_LIST | _LIST_CODES[array(typecode).itemsize] << 32, array(typecode).itemsize)
    for typecode in "bBhHiIqQ"
}

_SEGMENT_WORDS_LIMIT = 1 << 29  # what the 30-bit signed offset of a pointer can span
_EMPTY_STRUCT = 0xFFFFFFFC  # offset -1: takes no space, and is not null
_NULS = tuple(bytes(count) for count in range(9))
_BIG_ENDIAN = sys.byteorder == "big"
_PYPY = sys.implementation.name == "pypy"
_KEPT_ALIVE: List[Any] = [None]
_WORD = struct.Struct("<Q")
_PREFIX = struct.Struct("<IIQ")
_POINTERS_KNOWN = 4096


class Struct:
    """Base of all message classes: equality, representation, and the interface for the reader and the writer."""

    __slots__: Tuple[str, ...] = ()
    __hash__ = None  # type: ignore[assignment]  # mutable

    DATA_WORDS: ClassVar[int]
    POINTER_WORDS: ClassVar[int]

    def write(self, writer: Writer, at: int) -> bytes:
        """The struct's own words; the objects it points to are appended to the writer.

        `at`: the word position of its pointers.
        """
        raise NotImplementedError

    @classmethod
    def read(
        cls: type[StructType], reader: Reader, segment: int, start: int, data_words: int, pointer_words: int
    ) -> StructType:
        """The struct at byte `start`; its data and pointers are known to lie within the segment."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={_shortened(getattr(self, name))}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"


def _shortened(value: Any) -> str:
    """A representation short enough for a log line: a batch has thousands of entries."""
    limit = 64 if isinstance(value, (str, bytes)) else 8
    if isinstance(value, (str, bytes, array, list)) and len(value) > limit:
        return f"<{type(value).__name__} of {len(value)}: {value[:limit]!r}...>"
    return repr(value)


def column(typecode: str, values: Column) -> array[int]:
    """`values`, a sequence of numbers, as an array of `typecode`; returned unchanged if it already is one.

    Raises `InvalidFieldError` if a value is not a number or does not fit.
    """
    if type(values) is array and values.typecode == typecode:
        return values
    if isinstance(values, memoryview) and values.format == typecode and values.c_contiguous:
        return column_from_bytes(typecode, values.cast("B"))
    try:
        return array(typecode, list(values))
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidFieldError(f"a column of type {typecode!r} cannot hold these values: {error}") from error


def column_from_bytes(typecode: str, content: Union[bytes, memoryview]) -> array[int]:
    """The numbers whose memory is `content`, in this machine's byte order."""
    # SCL-TRN-011
    result = array(typecode)
    result.frombytes(content)
    if _PYPY:
        # PyPy 7.3.11 can lose an array *during* that call if it is not used afterwards: its compiled code fetches the
        # address of the array's memory, then creates `content` if that is a slice, which may collect the array, and
        # copies into freed memory. Dropping a decoded message unread would crash. So the array is used afterwards (and
        # this one column stays in memory until the next).
        _KEPT_ALIVE[0] = result
    return result


def octets(values: Column) -> bytes:
    """`values`, a sequence of numbers below 256, as bytes; bytes are returned unchanged.

    Raises `InvalidFieldError` if a value is not such a number.
    """
    if type(values) is bytes:
        return values
    if isinstance(values, memoryview) and values.format == "B":
        return values.tobytes()
    if isinstance(values, array) and values.typecode == "B":
        return values.tobytes()
    try:
        return bytes(values) if isinstance(values, (bytes, bytearray)) else bytes(list(values))
    except (TypeError, ValueError) as error:
        raise InvalidFieldError(f"bytes cannot hold these values: {error}") from error


# --- writing ---


def utf8(text: str) -> bytes:
    """The text as it travels, with the NUL at its end."""
    try:
        return text.encode() + b"\0"
    except UnicodeEncodeError:
        # Lone surrogates (undecodable file names, a task's output) have no UTF-8 form. Text is for people to read:
        # escape them rather than lose the message.
        return text.encode("utf-8", "backslashreplace") + b"\0"


def struct_pointer(offset: int, data_words: int, pointer_words: int) -> int:
    """The pointer to a struct, which is `offset` words behind it."""
    if not data_words and not pointer_words:
        return _EMPTY_STRUCT
    return (offset & 0x3FFFFFFF) << 2 | data_words << 32 | pointer_words << 48


class Writer:
    """Builds one segment: a list of byte strings to be joined, and the number of words in them so far.

    Each method appends one object at the end and returns the pointer to it. `at` is the word position where the caller
    will store that pointer.

    Parameters:
        end: the words that come before the parts: the root pointer, and what `frame` gets besides.
    """

    __slots__ = ("parts", "end")

    def __init__(self, end: int) -> None:
        self.parts: List[Union[bytes, array[int]]] = []
        self.end = end

    def struct(self, value: Struct, at: int) -> int:
        data_words = value.DATA_WORDS
        pointer_words = value.POINTER_WORDS
        if not data_words and not pointer_words:
            return struct_pointer(0, 0, 0)
        start = self.end
        self.end = start + data_words + pointer_words
        parts = self.parts
        slot = len(parts)
        parts.append(b"")
        parts[slot] = value.write(self, start + data_words)
        return struct_pointer(start - at - 1, data_words, pointer_words)

    def column(self, values: array[int], typecode: str, at: int) -> int:
        if type(values) is not array or values.typecode != typecode:
            values = column(typecode, values)
        count = len(values)
        kind, item_bytes = COLUMN_KINDS[typecode]
        size = count * item_bytes
        if _BIG_ENDIAN:
            values = values[:]
            values.byteswap()
        self.parts.append(values)
        if size & 7:
            self.parts.append(_NULS[-size & 7])
        start = self.end
        self.end = start + (size + 7 >> 3)
        return (start - at - 1) << 2 | kind | count << 35

    def octets(self, values: bytes, at: int) -> int:
        if type(values) is not bytes:
            values = octets(values)
        size = len(values)
        self.parts.append(values)
        if size & 7:
            self.parts.append(_NULS[-size & 7])
        start = self.end
        self.end = start + (size + 7 >> 3)
        return (start - at - 1) << 2 | _KIND_LIST | _CODE_BYTE << 32 | size << 35

    def text(self, value: str, at: int) -> int:
        content = utf8(value)
        size = len(content)
        self.parts.append(content)
        if size & 7:
            self.parts.append(_NULS[-size & 7])
        start = self.end
        self.end = start + (size + 7 >> 3)
        return (start - at - 1) << 2 | _KIND_LIST | _CODE_BYTE << 32 | size << 35

    def texts(self, values: Sequence[str], at: int) -> int:
        count = len(values)
        start = self.end
        self.end = start + count
        slot = len(self.parts)
        self.parts.append(b"")
        pointers = [self.text(value, start + index) if value else 0 for index, value in enumerate(values)]
        self.parts[slot] = struct.pack(f"<{count}Q", *pointers)
        return (start - at - 1) << 2 | _KIND_LIST | _CODE_POINTER << 32 | count << 35

    def structs(self, values: Sequence[Struct], at: int) -> int:
        data_words = values[0].DATA_WORDS
        pointer_words = values[0].POINTER_WORDS
        count = len(values)
        start = self.end
        words = count * (data_words + pointer_words)
        self.end = start + 1 + words
        slot = len(self.parts)
        self.parts.append(b"")
        bodies = [_WORD.pack(count << 2 | data_words << 32 | pointer_words << 48)]
        pointers_at = start + 1 + data_words
        for value in values:
            bodies.append(value.write(self, pointers_at))
            pointers_at += data_words + pointer_words
        self.parts[slot] = body = b"".join(bodies)
        if len(body) != (1 + words) * WORD_BYTES:
            raise InvalidFieldError(f"the elements of a list of {type(values[0]).__name__} have different classes")
        return (start - at - 1) << 2 | _KIND_LIST | _CODE_COMPOSITE << 32 | words << 35

    def frame(self, root: int, *first: bytes) -> bytes:
        """The finished frame. In the segment, the root pointer is followed by `first` and the parts."""
        if self.end >= _SEGMENT_WORDS_LIMIT:
            raise InvalidFieldError(f"a message of {self.end * WORD_BYTES} bytes does not fit one segment")
        return b"".join([_PREFIX.pack(0, self.end, root), *first, *self.parts])


# --- reading ---

# What pointers say, by their words, since messages of one kind have the same pointers again and again. Arithmetic with
# numbers of 64 bits costs several times as much as looking them up.
_STRUCTS: Dict[int, Tuple[int, int, int, int]] = {}  # bytes from the pointer to the struct, words, data words, pointers
_LISTS: Dict[int, Tuple[int, int, int, int]] = {}  # bytes from the pointer to the list, its words and bytes, code


def _offset(word: int) -> int:
    """Bytes from a struct or list pointer to what it points to."""
    return 8 + ((word & 0xFFFFFFFC ^ 0x80000000) - 0x80000000 << 1)


def _struct_pointer(word: int) -> Tuple[int, int, int, int]:
    data_words, pointer_words = word >> 32 & 0xFFFF, word >> 48
    return _remember(_STRUCTS, word, (_offset(word), data_words + pointer_words, data_words, pointer_words))


def _list_pointer(word: int) -> Tuple[int, int, int, int]:
    code, count = word >> 32 & 7, word >> 35
    bits = count * _LIST_BITS[code] + (64 if code == _CODE_COMPOSITE else 0)  # its tag
    return _remember(_LISTS, word, (_offset(word), bits + 63 >> 6, bits + 7 >> 3, code))


def _remember(
    known: Dict[int, Tuple[int, int, int, int]], word: int, said: Tuple[int, int, int, int]
) -> Tuple[int, int, int, int]:
    if len(known) >= _POINTERS_KNOWN:
        known.clear()
    known[word] = said
    return said


NO_LIMIT = 1 << 62


class Reader:
    """One frame being read.

    Each method takes a pointer (its word, its segment, its byte position `at`) and returns what it points to.

    Parameters:
        starts, ends: what `segments` has said of the data.
        maximum_elements: of all lists of structs and of texts together, which cost most.
    """

    __slots__ = ("data", "starts", "ends", "budget", "elements_left")

    def __init__(
        self, data: bytes, starts: Sequence[int], ends: Sequence[int], maximum_elements: int = NO_LIMIT
    ) -> None:
        self.data = data
        self.elements_left = maximum_elements
        self.starts, self.ends = starts, ends
        self.budget = TRAVERSAL_FACTOR * (len(data) // WORD_BYTES) + TRAVERSAL_GRACE_WORDS

    def root(self, read: ReadStruct[Element]) -> Element:
        start = self.starts[0]
        if self.ends[0] - start < WORD_BYTES:
            raise MalformedMessageError(f"segment 0 at byte {start} is empty: no root pointer")
        return self.struct(_WORD.unpack_from(self.data, start)[0], 0, start, read)

    def struct(self, word: int, segment: int, at: int, read: ReadStruct[Element]) -> Element:
        said = _STRUCTS.get(word)
        if said is not None or word & 3 == _KIND_STRUCT:
            offset, words, data_words, pointer_words = said or _struct_pointer(word)
            start = at + offset
        else:
            word, segment, start = self._follow(word, at, _KIND_STRUCT)
            _, words, data_words, pointer_words = _struct_pointer(word)
        if start < self.starts[segment] or start + words * 8 > self.ends[segment]:
            self._out_of_bounds("a struct", segment, at, start, words * 8)
        self.budget -= words
        if self.budget < 0:
            self._over_budget(at)
        return read(self, segment, start, data_words, pointer_words)

    # SCL-TRN-006
    def resized(
        self, start: int, data_words: int, pointer_words: int, own_data_words: int, own_pointer_words: int
    ) -> bytes:
        """The words of a newer or older schema's struct, truncated or padded with zeros (defaults) to ours."""
        pointers_at = start + data_words * 8
        data = self.data[start : start + min(data_words, own_data_words) * 8]
        pointers = self.data[pointers_at : pointers_at + min(pointer_words, own_pointer_words) * 8]
        return data.ljust(own_data_words * 8, b"\0") + pointers.ljust(own_pointer_words * 8, b"\0")

    def column(self, word: int, segment: int, at: int, typecode: str, item_bytes: int) -> array[int]:
        _, start, end, code = self._list(word, segment, at)
        if code != _LIST_CODES[item_bytes]:
            self._wrong_element("a column", code, at)
        if not (_PYPY or _BIG_ENDIAN):
            return array(typecode, self.data[start:end])
        result = column_from_bytes(typecode, self.data[start:end])
        if _BIG_ENDIAN:
            result.byteswap()
        return result

    def octets(self, word: int, segment: int, at: int) -> bytes:
        _, start, end, code = self._list(word, segment, at)
        if code != _CODE_BYTE:
            self._wrong_element("bytes", code, at)
        return self.data[start:end]

    def text(self, word: int, segment: int, at: int) -> str:
        _, start, end, code = self._list(word, segment, at)
        if code != _CODE_BYTE:
            self._wrong_element("text", code, at)
        if start == end or self.data[end - 1]:
            # SCL-SEC-003
            raise MalformedMessageError(f"text at byte {start} does not end with NUL")
        try:
            return self.data[start : end - 1].decode()
        except UnicodeDecodeError as error:
            raise MalformedMessageError(f"text at byte {start} is not UTF-8: {error.reason}") from None

    def texts(self, word: int, segment: int, at: int) -> List[str]:
        segment, start, end, code = self._list(word, segment, at)
        if code == _CODE_COMPOSITE:  # a newer schema may have turned them into structs whose first field is the text
            if not _WORD.unpack_from(self.data, start)[0] >> 48:
                raise MalformedMessageError(f"the structs at byte {start} stand for text and have no pointer")
            return self._elements(segment, start, end, at, _read_first_text)
        if code != _CODE_POINTER:
            self._wrong_element("a list of text", code, at)
        places = range(start, end, 8)
        self._count(len(places), at)
        pointers = struct.unpack_from(f"<{len(places)}Q", self.data, start)
        return [self.text(pointer, segment, place) if pointer else "" for pointer, place in zip(pointers, places)]

    def structs(self, word: int, segment: int, at: int, read: ReadStruct[Element]) -> List[Element]:
        segment, start, end, code = self._list(word, segment, at)
        if code != _CODE_COMPOSITE:
            self._wrong_element("a list of structs", code, at)
        return self._elements(segment, start, end, at, read)

    def _elements(self, segment: int, start: int, end: int, at: int, read: ReadStruct[Element]) -> List[Element]:
        """The structs in a list, which begins with a tag: a struct pointer with a count in place of the offset."""
        words = (end - start >> 3) - 1
        tag = _WORD.unpack_from(self.data, start)[0]
        count = (tag & 0xFFFFFFFF) >> 2
        data_words = tag >> 32 & 0xFFFF
        pointer_words = tag >> 48
        element_words = data_words + pointer_words
        if tag & 3 != _KIND_STRUCT:
            raise MalformedMessageError(f"the tag of the list at byte {start} is not a struct pointer")
        if count * element_words > words:
            raise MalformedMessageError(f"the list at byte {start} has {words} words, too few for {count} elements")
        self._count(count, at)
        if not element_words:
            self.budget -= count
            if self.budget < 0:
                self._over_budget(at)
            return [read(self, segment, start + 8, 0, 0) for _ in range(count)]
        first = start + 8
        step = element_words * 8
        places = range(first, first + count * step, step)
        return [read(self, segment, place, data_words, pointer_words) for place in places]

    # SCL-SEC-014
    def _count(self, elements: int, at: int) -> None:
        self.elements_left -= elements
        if self.elements_left < 0:
            raise MalformedMessageError(f"the list of {elements} structs or texts at byte {at} exceeds the limit")

    def _list(self, word: int, segment: int, at: int) -> Tuple[int, int, int, int]:
        """Segment, start and end of a list, and the code of its elements; a list of structs begins with its tag."""
        said = _LISTS.get(word)
        if said is not None or word & 3 == _KIND_LIST:
            offset, words, size, code = said or _list_pointer(word)
            start = at + offset
        else:
            word, segment, start = self._follow(word, at, _KIND_LIST)
            _, words, size, code = _list_pointer(word)
        if start < self.starts[segment] or start + words * 8 > self.ends[segment]:
            self._out_of_bounds("a list", segment, at, start, words * 8)
        self.budget -= words
        if self.budget < 0:
            self._over_budget(at)
        return segment, start, start + size, code

    # SCL-TRN-005
    def _follow(self, word: int, at: int, kind: int) -> Tuple[int, int, int]:
        """Follow a far pointer to (word that describes the content, segment and position of the content).

        A far pointer leads to a landing pad in another segment. The pad is one word, an ordinary pointer, or two words:
        another far pointer to the content and a word that describes it (a pointer without an offset).
        """
        wanted = _KIND_NAMES[kind]
        if word & 3 != _KIND_FAR:
            found = _KIND_NAMES[word & 3]
            raise MalformedMessageError(f"the pointer at byte {at} is a {found} pointer, not a {wanted} pointer")
        pad_words = 2 if word & 4 else 1
        segment, pad = self._far_target(word, at, pad_words)
        self.budget -= pad_words
        tag = _WORD.unpack_from(self.data, pad + pad_words * 8 - 8)[0]
        if tag & 3 != kind:
            found = _KIND_NAMES[tag & 3]
            raise MalformedMessageError(f"the landing pad at byte {pad} has a {found} pointer, not a {wanted} pointer")
        if pad_words == 1:
            return tag, segment, pad + _offset(tag)
        far = _WORD.unpack_from(self.data, pad)[0]
        if far & 7 != _KIND_FAR:
            raise MalformedMessageError(f"the landing pad at byte {pad} does not begin with a single far pointer")
        return (tag, *self._far_target(far, pad, 0))

    def _far_target(self, word: int, at: int, words: int) -> Tuple[int, int]:
        segment = word >> 32
        if segment >= len(self.starts):
            raise MalformedMessageError(
                f"the far pointer at byte {at} names segment {segment} of only {len(self.starts)}"
            )
        start = self.starts[segment] + (word & 0xFFFFFFF8)
        if start + words * 8 > self.ends[segment]:
            self._out_of_bounds("a landing pad", segment, at, start, words * 8)
        return segment, start

    # SCL-SEC-003
    def _out_of_bounds(self, what: str, segment: int, at: int, start: int, size: int) -> NoReturn:
        raise MalformedMessageError(
            f"the pointer at byte {at} to {what} at bytes {start} to {start + size} leaves segment {segment}"
            f" (bytes {self.starts[segment]} to {self.ends[segment]})"
        )

    def _over_budget(self, at: int) -> NoReturn:
        raise MalformedMessageError(
            f"the pointer at byte {at} exceeds the read limit of a frame of {len(self.data)} bytes"
        )

    # SCL-SEC-003
    def _wrong_element(self, what: str, code: int, at: int) -> NoReturn:
        raise MalformedMessageError(
            f"the pointer at byte {at} should lead to {what}, but the size code of its elements is {code}"
        )


def _read_first_text(reader: Reader, segment: int, start: int, data_words: int, pointer_words: int) -> str:
    at = start + data_words * 8
    word = _WORD.unpack_from(reader.data, at)[0]
    return reader.text(word, segment, at) if word else ""


def segments(data: bytes) -> Tuple[Sequence[int], Sequence[int]]:
    """Byte positions where the segments start and end."""
    size = len(data)
    if size < WORD_BYTES:
        raise MalformedMessageError(f"a frame of {size} bytes is too short for a segment table")
    last, words = struct.unpack_from("<II", data)
    if last == 0:
        if size != WORD_BYTES + words * WORD_BYTES:
            raise MalformedMessageError(f"segment of {words} words announced in a frame of {size} bytes")
        return (WORD_BYTES,), (size,)
    count = last + 1
    # SCL-SEC-004
    if count > SEGMENT_COUNT_LIMIT:
        raise MalformedMessageError(f"{count} segments; at most {SEGMENT_COUNT_LIMIT} are accepted")
    end = (4 + 4 * count + 7) // WORD_BYTES * WORD_BYTES
    if size < end:
        raise MalformedMessageError(f"a frame of {size} bytes is too short for a table of {count} segments")
    starts, ends = [], []
    for words in struct.unpack_from(f"<{count}I", data, 4):
        starts.append(end)
        end += words * WORD_BYTES
        ends.append(end)
    # SCL-SEC-004
    if end != size:
        raise MalformedMessageError(f"segments of {end} bytes in all announced in a frame of {size} bytes")
    return starts, ends
