"""Frames that no encoder would write: well-formed ones with one fault each, and an endless sequence of random ones.

Rule: all randomness comes from the generator that is passed: the same seed gives the same frames.
"""

from __future__ import annotations

import random
import struct
from typing import Callable, Iterator, List, Sequence

_WORD = 8


def faulty_headers(good: bytes) -> List[bytes]:
    """Invalid headers, each with another fault, derived from a well-formed one with a single segment."""
    segment = good[_WORD:]
    words = len(segment) // _WORD
    return [
        b"",
        b"\x00",
        b"not a message at all",
        good[:-_WORD],
        good[:20],
        good + bytes(_WORD),
        struct.pack("<II", 0, 0x7FFFFFFF) + segment,  # a segment of 16 GiB
        struct.pack("<II", 0xFFFFFFFE, 1) + segment,  # 4 Gi segments
        struct.pack("<II", 0, words) + bytes(len(segment)),  # a null root
        struct.pack("<II", 0, 1) + struct.pack("<II", 0xFFFFFFFC, 0xFFFF),  # a root that points out of its segment
        struct.pack("<II", 0, 1) + struct.pack("<II", 1, 0xFFFFFFFE),  # a root that is a list of 2^29 words
        struct.pack("<II", 0, 1) + struct.pack("<II", 0xFFFFFFFE, 0xFFFFFFFF),  # a far pointer to nowhere
        struct.pack("<II", 0, 1) + struct.pack("<II", 3, 0),  # a capability
        struct.pack("<II", 0, 2) + struct.pack("<IHH", 0, 0, 1) + struct.pack("<IHH", 0xFFFFFFFC, 0, 1),  # a circle
    ]


def mutated(good: Sequence[bytes], generator: random.Random) -> Iterator[List[bytes]]:
    """An endless sequence of messages (their frames), made from well-formed headers by small changes."""
    changes: List[Callable[[bytearray, random.Random], bytearray]] = [
        _flip,
        _flip,
        _truncate,
        _stretch,
        _smash,
        _splice,
    ]
    while True:
        header = bytearray(generator.choice(good))
        for _ in range(generator.choice((1, 1, 2, 4))):
            header = generator.choice(changes)(header, generator)
        frames = [bytes(header)]
        while generator.random() < 0.3 and len(frames) < 5:
            frames.append(generator.randbytes(generator.randrange(40)))
        yield frames


def _flip(header: bytearray, generator: random.Random) -> bytearray:
    if header:
        header[generator.randrange(len(header))] ^= 1 << generator.randrange(8)
    return header


def _smash(header: bytearray, generator: random.Random) -> bytearray:
    """Replace a word by one that is likely to cause trouble."""
    if len(header) >= _WORD:
        at = generator.randrange(len(header) // _WORD) * _WORD
        word = generator.choice((0, 2**64 - 1, 2**63, 0x7FFFFFFF, 1 << 32, generator.getrandbits(64)))
        header[at : at + _WORD] = struct.pack("<Q", word)
    return header


def _truncate(header: bytearray, generator: random.Random) -> bytearray:
    return header[: generator.randrange(len(header) + 1)]


def _stretch(header: bytearray, generator: random.Random) -> bytearray:
    return header + bytes(generator.choice((1, _WORD, 64)))


def _splice(header: bytearray, generator: random.Random) -> bytearray:
    """Copy a part over another."""
    if len(header) > 2 * _WORD:
        size = generator.randrange(1, 3) * _WORD
        source, target = (generator.randrange(len(header) - size) for _ in range(2))
        header[target : target + size] = header[source : source + size]
    return header
