"""The .xz format without compression: LZMA2 has chunks that are stored as they are.

For files that are unpacked much more often than they are sent, such as those of tests. The decoder cannot tell.
Source: https://tukaani.org/xz/xz-file-format.txt, version 1.2.1; the chunks are in liblzma's lzma2_decoder.c.
"""

from __future__ import annotations

import struct
import zlib

CHUNK_BYTES = 1 << 16
_STREAM_FLAGS = b"\x00\x01"  # the check is CRC32
_LZMA2_FILTER = b"\x00\x21\x01\x00"  # one filter, LZMA2, which has one byte of properties: the smallest dictionary
_FIRST_CHUNK, _CHUNK, _END = 1, 2, b"\x00"  # the first one resets the dictionary


def stored(content: bytes) -> bytes:
    """A stream of .xz with this content."""
    chunks = [content[at : at + CHUNK_BYTES] for at in range(0, len(content), CHUNK_BYTES)]
    parts = [_block_header()]
    for index, chunk in enumerate(chunks):
        parts += [struct.pack(">BH", _CHUNK if index else _FIRST_CHUNK, len(chunk) - 1), chunk]
    parts.append(_END)
    size = sum(map(len, parts))
    check = _checksum(content)
    parts += [_padding(size), check]
    index_field = _padded(b"\x00\x01" + _varint(size + len(check)) + _varint(len(content)))
    index_field += _checksum(index_field)
    footer = struct.pack("<I", len(index_field) // 4 - 1) + _STREAM_FLAGS
    header = b"\xfd7zXZ\x00" + _STREAM_FLAGS + _checksum(_STREAM_FLAGS)
    return b"".join([header, *parts, index_field, _checksum(footer), footer, b"YZ"])


def _block_header() -> bytes:
    header = _padded(b"\x00" + _LZMA2_FILTER)
    size_in_words = (len(header) + 4) // 4
    header = bytes([size_in_words - 1]) + header[1:]
    return header + _checksum(header)


def _checksum(content: bytes) -> bytes:
    return struct.pack("<I", zlib.crc32(content))


def _padding(size: int) -> bytes:
    return bytes(-size % 4)


def _padded(content: bytes) -> bytes:
    return content + _padding(len(content))


def _varint(number: int) -> bytes:
    """Seven bits in each byte, the lowest first."""
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
