"""Numbers for the objects of a session that cannot be guessed from one another.

    1, 2, 3 ... ──▶ a secret order of all numbers below 2^39 ──▶ 214 748 364 777, 90 071 992 547 ...

Rules:
- No number comes twice, however many there are (SCL-OBJ-001): they are the image of 1, 2, 3 and so on under a
  permutation, a Feistel network of four rounds (Luby and Rackoff, 1988).
- Who knows the id of an object may read it, within its tenant. So ids are as good as secrets there.
"""

from __future__ import annotations

import itertools
from functools import partial
from hashlib import blake2b
from typing import Iterator

SECRET_BYTES = 16
_LEFT_BITS, _RIGHT_BITS = 20, 19
_LEFT_MASK, _RIGHT_MASK = (1 << _LEFT_BITS) - 1, (1 << _RIGHT_BITS) - 1
_ROUNDS = 4


def object_numbers(secret: bytes) -> Iterator[int]:
    """Numbers from 1 to 2^39 - 1, each once; several threads may take some.

    Parameters:
        secret: random, of 16 to 64 bytes.
    """
    return filter(None, map(partial(_permute, secret), itertools.count(1)))


def _permute(secret: bytes, number: int) -> int:
    left, right = number >> _RIGHT_BITS & _LEFT_MASK, number & _RIGHT_MASK
    for count in range(_ROUNDS):
        is_left = count % 2 == 0
        half = right if is_left else left
        digest = blake2b(bytes((count,)) + half.to_bytes(3, "big"), key=secret, digest_size=3).digest()
        mixed = int.from_bytes(digest, "big")
        if is_left:
            left ^= mixed & _LEFT_MASK
        else:
            right ^= mixed & _RIGHT_MASK
    return left << _RIGHT_BITS | right
