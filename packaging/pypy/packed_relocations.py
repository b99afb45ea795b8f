"""Packs the relative relocations of a shared library: the form RELR instead of RELA.

PyPy's library has 700 000 pointers to itself in its data, and for each of them 24 bytes that say where it is and to
what it points. In RELR, what it points to is in its place already, and where it is takes a bit or two:

    RELA    place, kind, target      place, kind, target      ...
    RELR    a place, then words of which each bit is one of the 63 words that follow: is it a pointer, too?

The library becomes smaller by 17 of its 59 MB, and so does the memory of its process, which reads them at each start.

Linkers lay out the first segment in one of two ways. Either the relocations are its end, and it is cut there, or code
follows them, and the segment is split around the gap:

    names, relocations | code | data         names, packed relocations | code | data
    names, relocations, code | data          names, packed relocations | code | data

Rules:
- Addresses stay. Only what comes behind the relocations in the file moves, by whole pages.
- A split needs an entry among the segments: that of the note by which debuggers know a build is used for it.
- What is not as expected is a NotPackedError, and nothing is changed then.
- The loader has to know RELR, as GNU's does since 2.36; it asks that a library which has it says so by a version.
- Sections are for linkers and debuggers, and are left out.

Source: the generic ABI's section on relative relocations, and <elf.h> for the numbers.
"""

from __future__ import annotations

import struct
from typing import Dict, List, NamedTuple, Optional, Tuple

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_RELOCATION = struct.Struct("<QQq")
_DYNAMIC_ENTRY = struct.Struct("<QQ")
_VERSIONS_OF_LIBRARY = struct.Struct("<HHIII")
_VERSION = struct.Struct("<IHHII")
_NOTE_HEADER = struct.Struct("<III4s")
_WORD = struct.Struct("<Q")

_LITTLE_ENDIAN_64 = b"\x7fELF\x02\x01"
_LOADED, _DYNAMIC, _NOTE = 1, 2, 4  # kinds of segments
_WRITABLE, _READABLE = 2, 4
_STRINGS, _RELOCATIONS, _RELOCATIONS_SIZE, _STRINGS_SIZE, _OF_CALLS_SIZE, _OF_CALLS = 5, 7, 8, 10, 2, 23
_PACKED_SIZE, _PACKED, _PACKED_ENTRY_SIZE, _RELATIVE_COUNT, _VERSIONS = 35, 36, 37, 0x6FFFFFF9, 0x6FFFFFFE

_RELATIVE_KINDS = {62: 8, 183: 1027}  # by the number of the processor: x86-64 and aarch64
_BUILD_ID = b"GNU\0", 3
_C_LIBRARY = b"libc.so.6"
_NEEDED_VERSION = b"GLIBC_ABI_DT_RELR"
_WORDS_OF_BITMAP = 63


class NotPackedError(Exception):
    """What is not as it would have to be."""


class _Segment(NamedTuple):
    kind: int
    flags: int
    offset: int
    address: int
    physical_address: int
    file_size: int
    memory_size: int
    alignment: int

    @property
    def end(self) -> int:
        return self.offset + self.file_size


def is_known_to(c_library: bytes) -> bool:
    """Whether the loader that comes with a C library, libc.so.6, knows RELR."""
    return _NEEDED_VERSION in c_library


def packed(library: bytes) -> bytes:
    """The library with its relative relocations packed; as it is, if they are already.

    Raises NotPackedError.
    """
    try:
        return _Library(library).packed()
    except (struct.error, IndexError, ValueError):
        raise NotPackedError("it is cut off or damaged") from None


def relr(places: List[int]) -> bytes:
    """The table of some places, which are multiples of a word's size and in ascending order."""
    words: List[int] = []
    index = 0
    while index < len(places):
        words.append(places[index])
        after = places[index] + _WORD.size
        index += 1
        while True:
            bitmap = 0
            while index < len(places) and places[index] < after + _WORDS_OF_BITMAP * _WORD.size:
                bitmap |= 1 << ((places[index] - after) // _WORD.size + 1)
                index += 1
            if not bitmap:
                break
            words.append(bitmap | 1)
            after += _WORDS_OF_BITMAP * _WORD.size
    return struct.pack(f"<{len(words)}Q", *words)


class _Library:
    def __init__(self, content: bytes) -> None:
        if content[:6] != _LITTLE_ENDIAN_64:
            raise NotPackedError("it is no ELF file of 64 bits, the lowest first")
        self.content = bytearray(content)
        self.header = _HEADER.unpack_from(content)
        self.segments_offset, segment_count = self.header[5], self.header[10]
        self.segments = [
            _Segment(*_SEGMENT.unpack_from(content, self.segments_offset + index * _SEGMENT.size))
            for index in range(segment_count)
        ]
        if any(segment.end > len(content) for segment in self.segments):
            raise NotPackedError("it is cut off")
        self.loaded = [segment for segment in self.segments if segment.kind == _LOADED]
        self.dynamic_segment = next((segment for segment in self.segments if segment.kind == _DYNAMIC), None)
        if self.dynamic_segment is None or self.header[2] not in _RELATIVE_KINDS:
            raise NotPackedError("it is no shared library for a processor that is known here")
        self.relative_kind = _RELATIVE_KINDS[self.header[2]]
        entries = self.content[self.dynamic_segment.offset : self.dynamic_segment.end]
        self.dynamic: List[Tuple[int, int]] = list(_DYNAMIC_ENTRY.iter_unpack(entries))
        self.dynamic = [entry for entry in self.dynamic if entry[0] != 0]
        self.values: Dict[int, int] = dict(self.dynamic)

    def packed(self) -> bytes:
        if _PACKED in self.values:
            return bytes(self.content)
        first = self.loaded[0]
        try:
            table, size = self.values[_RELOCATIONS], self.values[_RELOCATIONS_SIZE]
            calls, calls_size = self.values[_OF_CALLS], self.values[_OF_CALLS_SIZE]
        except KeyError:
            raise NotPackedError("it has not both kinds of relocations") from None
        tables_end = calls + calls_size
        if first.offset or first.address or not table + size <= calls <= tables_end <= first.end:
            raise NotPackedError("its relocations are not one behind the other in its first segment")
        kept, places = self._take_out(table, size)
        parts = kept, bytes(self.content[calls:tables_end]), relr(places)
        if tables_end < first.end:
            self._split(tables_end)
        kept_size, packed_size = len(kept), len(parts[2])
        version_address = table + sum(map(len, parts))
        new_end = version_address + _VERSION.size
        version = self._needed_version(version_address)
        self._set_dynamic(
            {
                _RELOCATIONS_SIZE: kept_size,
                _RELATIVE_COUNT: sum(kind == self.relative_kind for _, kind, _ in _RELOCATION.iter_unpack(kept)),
                _OF_CALLS: table + kept_size,
                _PACKED: table + kept_size + calls_size,
                _PACKED_SIZE: packed_size,
                _PACKED_ENTRY_SIZE: _WORD.size,
            }
        )
        return self._rewritten(table, b"".join(parts) + version, new_end)

    def _split(self, tables_end: int) -> None:
        """Make two segments of the first one, of which the second begins with the page where the relocations end."""
        first = self.loaded[0]
        page = max(segment.alignment for segment in self.loaded)
        start = tables_end // page * page
        spare = [segment for segment in self.segments if self._is_build_id(segment)]
        if not spare:
            raise NotPackedError("code follows its relocations, and it has no segment to spare")
        if first.flags & _WRITABLE or first.file_size != first.memory_size:
            raise NotPackedError("its first segment is not only code and constants")
        cut = first._replace(flags=_READABLE, file_size=start, memory_size=start)
        size = first.end - start
        code = first._replace(offset=start, address=start, physical_address=start, file_size=size, memory_size=size)
        self.content[start:tables_end] = bytes(tables_end - start)
        self.segments.remove(spare[0])
        index = self.segments.index(first)
        self.segments[index : index + 1] = [cut, code]
        self.loaded[:1] = [cut, code]

    def _is_build_id(self, segment: _Segment) -> bool:
        """Whether a segment is a note that names a build, and no other note."""
        if segment.kind != _NOTE:
            return False
        name_size, size, kind, name = _NOTE_HEADER.unpack_from(self.content, segment.offset)
        return (name, kind) == _BUILD_ID and segment.file_size == _NOTE_HEADER.size + size and name_size == len(name)

    def _take_out(self, table: int, size: int) -> Tuple[bytes, List[int]]:
        """Put targets in their places; the relocations that stay, and the places."""
        kept: List[bytes] = []
        places: List[int] = []
        for relocation in _RELOCATION.iter_unpack(bytes(self.content[table : table + size])):
            place, kind, target = relocation
            offset = self._offset(place) if kind == self.relative_kind and not place % _WORD.size else None
            if offset is None:
                kept.append(_RELOCATION.pack(*relocation))
            else:
                _WORD.pack_into(self.content, offset, target)
                places.append(place)
        return b"".join(kept), sorted(places)

    def _offset(self, address: int) -> Optional[int]:
        """Where in the file an address is; None if it is in no file."""
        for segment in self.loaded:
            if segment.address <= address <= segment.address + segment.file_size - _WORD.size:
                return address - segment.address + segment.offset
        return None

    def _text(self, offset: int) -> bytes:
        return bytes(self.content[offset : self.content.index(0, offset)])

    def _needed_version(self, address: int) -> bytes:
        """Ask the C library for the version that says it has RELR; the entry, which will be at an address."""
        strings = self._offset(self.values[_STRINGS])
        entry = self._offset(self.values[_VERSIONS]) if _VERSIONS in self.values else None
        last = max(self.loaded, key=lambda segment: segment.end)
        if strings is None or entry is None or not last.offset <= strings < last.end:
            raise NotPackedError("its names are not in its last segment, or it needs no versions")
        if last.file_size != last.memory_size or last.address != max(segment.address for segment in self.loaded):
            raise NotPackedError("no name can be added to its last segment")
        of_c_library = None
        highest = 0
        while True:
            _, count, name, first_version, to_next = _VERSIONS_OF_LIBRARY.unpack_from(self.content, entry)
            at = entry + first_version
            for _ in range(count):
                number, to_next_version = _VERSION.unpack_from(self.content, at)[2::2]
                highest = max(highest, number & 0x7FFF)
                last_version, at = at, at + to_next_version
            if self._text(strings + name) == _C_LIBRARY:
                of_c_library = entry, count, last_version
            if not to_next:
                break
            entry += to_next
        if of_c_library is None:
            raise NotPackedError("it does not need the C library")
        entry, count, last_version = of_c_library
        struct.pack_into("<H", self.content, entry + 2, count + 1)
        struct.pack_into("<I", self.content, last_version + 12, address - last_version)
        name = last.end - strings
        del self.content[last.end :]
        self.content += _NEEDED_VERSION + b"\0"
        index = self.segments.index(last)
        size = last.file_size + len(_NEEDED_VERSION) + 1
        self.segments[index] = last._replace(file_size=size, memory_size=size)
        self._set_dynamic({_STRINGS_SIZE: name + len(_NEEDED_VERSION) + 1})
        return _VERSION.pack(_hash(_NEEDED_VERSION), 0, highest + 1, name, 0)

    def _set_dynamic(self, changes: Dict[int, int]) -> None:
        assert self.dynamic_segment is not None
        self.values.update(changes)
        self.dynamic = [(kind, changes.get(kind, value)) for kind, value in self.dynamic]
        known = {kind for kind, _ in self.dynamic}
        self.dynamic += [(kind, value) for kind, value in changes.items() if kind not in known]
        room = self.dynamic_segment.file_size // _DYNAMIC_ENTRY.size
        if len(self.dynamic) >= room:  # the last one is empty
            raise NotPackedError("it has no room for what its loader needs to know")
        entries = b"".join(_DYNAMIC_ENTRY.pack(*entry) for entry in self.dynamic)
        start = self.dynamic_segment.offset
        self.content[start : self.dynamic_segment.end] = entries.ljust(self.dynamic_segment.file_size, b"\0")

    def _rewritten(self, table: int, tables: bytes, new_end: int) -> bytes:
        """The file with the first segment cut to its new end, and all others moved towards it."""
        first = self.loaded[0]
        page = max(segment.alignment for segment in self.loaded)
        following = min(segment.offset for segment in self.segments if segment.offset >= first.end)
        shift = (following - new_end) // page * page
        if shift < 0:
            raise NotPackedError("its relocations are too few")
        segments = []
        for segment in self.segments:
            if segment == first:
                segment = first._replace(file_size=new_end, memory_size=new_end)
            elif segment.offset >= first.end:
                segment = segment._replace(offset=segment.offset - shift)
            elif segment.end > table:
                raise NotPackedError("a segment is among its relocations")
            segments.append(segment)
        start = bytes(self.content[:table]) + tables
        content = bytearray(start.ljust(following - shift, b"\0") + self.content[following:])
        for index, segment in enumerate(segments):
            _SEGMENT.pack_into(content, self.segments_offset + index * _SEGMENT.size, *segment)
        header = list(self.header)
        header[6] = header[12] = header[13] = 0  # no sections: where they are, how many, and which has their names
        _HEADER.pack_into(content, 0, *header)
        return bytes(content)


def _hash(name: bytes) -> int:
    """By which the loader finds a version."""
    result = 0
    for byte in name:
        result = (result << 4) + byte
        result = (result ^ (result >> 24 & 0xF0)) & 0x0FFFFFFF
    return result
