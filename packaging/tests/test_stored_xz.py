"""What is stored as .xz without compression is what any decoder of .xz reads."""

from __future__ import annotations

import lzma
import random

import pytest
from stored_xz import CHUNK_BYTES, stored


@pytest.mark.parametrize("size", [0, 1, 3, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 5 * CHUNK_BYTES + 7])
def test_what_is_stored_is_unpacked(size: int) -> None:
    content = random.Random(size).randbytes(size)
    assert lzma.decompress(stored(content)) == content
    assert lzma.decompress(stored(content) + lzma.compress(b"another stream")) == content + b"another stream"


@pytest.mark.parametrize("place", [13, 30, 70_000, 99_999])
def test_damage_is_noticed(place: int) -> None:
    damaged = bytearray(stored(bytes(100_000)))
    damaged[place] ^= 1
    with pytest.raises(lzma.LZMAError):
        lzma.decompress(bytes(damaged))
