"""Sizes and durations as people write them: `2GiB`, `500MB`, `30s`, `250ms`, `1h30min`.

Rules:
- This is the only reader of units: command lines, the environment, TOML files and the arguments of Python functions all
  accept the same forms.
- Ambiguous texts are rejected: `1G` may be 10^9 or 2^30 bytes. In durations, `m` is minutes, like `min`.
- A size above zero never becomes zero, which many options read as "no limit": fractions of a byte are rounded up.
"""

from __future__ import annotations

import re

SIZE_FORMS = "4096, 500MB or 2GiB"
DURATION_FORMS = "90, 30s, 250ms or 1h30min"

_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
# Compiled by `re` when they are first used, which is at few starts.
_SIZE = rf"{_NUMBER}\s*([kmgtp]?)(i?)b"
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_DURATION = r"\s*".join(rf"(?:{_NUMBER}\s*(?:{unit}))?" for unit in ("d", "h", "min|m", "s", "ms"))
_DURATION_SECONDS = (86400, 3600, 60, 1, 0.001)


def parse_bytes(text: str) -> int:
    """Parse a size, in bytes; units are case-insensitive.

    Raises ValueError if the text is not a size.
    """
    text = text.strip()
    match = re.fullmatch(_SIZE, text, re.IGNORECASE)
    if match is None:
        return int(text)
    number, prefix, binary = match.groups()
    if binary and not prefix:
        raise ValueError(text)
    whole, _, fraction = number.partition(".")
    multiplied = int(whole + fraction) * (1024 if binary else 1000) ** _POWERS[prefix.lower()]
    return int(-(-multiplied // 10 ** len(fraction)))


def parse_seconds(text: str) -> float:
    """Parse a duration, in seconds: a number, or numbers with units from the largest to the smallest.

    Raises ValueError if the text is not a duration.
    """
    text = text.strip()
    match = re.fullmatch(_DURATION, text)
    if match is None or not text:
        return float(text)
    return float(sum(float(number) * unit for number, unit in zip(match.groups(), _DURATION_SECONDS) if number))
