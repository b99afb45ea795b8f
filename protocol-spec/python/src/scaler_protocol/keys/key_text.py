"""Keys as text: Z85 (ZeroMQ RFC 32), in which the 32 bytes of a key are 40 printable characters.

Rules:
- No I/O.
- Each text stands for one sequence of bytes only: a group of five characters above 2^32 - 1 is rejected.
- No text begins with `#`: the first character of a group is at most the 83rd of the alphabet. So a line that begins
  with `#` is never a key.
- An error does not quote the text, which may be a secret.
"""

from __future__ import annotations

import hashlib

from scaler_protocol.keys.errors import KeyFileError

KEY_BYTES = 32
KEY_CHARACTERS = 40
ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"

_VALUES = {character: value for value, character in enumerate(ALPHABET)}
_PLACES = tuple(len(ALPHABET) ** exponent for exponent in (4, 3, 2, 1, 0))


def z85_encode(data: bytes) -> str:
    """Five characters for each four bytes.

    Raises ValueError if the number of bytes is not a multiple of 4.
    """
    if len(data) % 4:
        raise ValueError(f"Z85 encodes a multiple of 4 bytes, got {len(data)}")
    groups = (int.from_bytes(data[start : start + 4], "big") for start in range(0, len(data), 4))
    return "".join(ALPHABET[group // place % len(ALPHABET)] for group in groups for place in _PLACES)


def z85_decode(text: str) -> bytes:
    """The inverse of `z85_encode`.

    Raises ValueError if the text is not what `z85_encode` returns for any bytes.
    """
    if len(text) % 5:
        raise ValueError(f"Z85 has a multiple of 5 characters, got {len(text)}")
    try:
        values = [_VALUES[character] for character in text]
    except KeyError:
        raise ValueError("a character is not in the alphabet of Z85") from None
    groups = (sum(map(int.__mul__, values[start : start + 5], _PLACES)) for start in range(0, len(values), 5))
    try:
        return b"".join(group.to_bytes(4, "big") for group in groups)
    except OverflowError:
        raise ValueError("five characters stand for more than 32 bits") from None


def encode_key(key: bytes) -> str:
    """A key of 32 bytes as 40 characters."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"keys have {KEY_BYTES} bytes, got {len(key)}")
    return z85_encode(key)


def decode_key(text: str) -> bytes:
    """The key of 32 bytes that 40 characters stand for.

    Raises KeyFileError.
    """
    if len(text) != KEY_CHARACTERS:
        raise KeyFileError(f"a key has {KEY_CHARACTERS} characters (Z85), got {len(text)}")
    try:
        return z85_decode(text)
    except ValueError as error:
        raise KeyFileError(f"a key is malformed: {error}") from None


def fingerprint(public_key: bytes) -> str:
    """A short name for a public key that people can compare: 16 digits of its SHA-256, as `0123-4567-89ab-cdef`."""
    digits = hashlib.sha256(public_key).hexdigest()
    return "-".join(digits[start : start + 4] for start in range(0, 16, 4))
