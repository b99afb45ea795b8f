"""Text with its width on screen, and figures in short form.

Rules:
- Names come from users and peers: control sequences and direction marks are made visible instead.
- A width is a number of terminal columns; it is only defined for results of `safe`.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

CUT = "+"  # the last column of what was cut

_PLAIN = re.compile(r"[ -~]*")
_INVISIBLE = "\N{REPLACEMENT CHARACTER}"


@lru_cache(maxsize=4096)
def safe(text: str) -> str:
    """The text on one line: control characters, lone surrogates and direction marks are replaced."""
    if _PLAIN.fullmatch(text):
        return text
    return "".join(map(_safe_character, unicodedata.normalize("NFC", text)))


def _safe_character(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Zs":
        return " "
    if category[0] == "C" or category in ("Zl", "Zp"):
        return _INVISIBLE
    if "\ufe00" <= character <= "\ufe0f" or character >= "\U000e0000":
        return ""  # terminals do not agree how wide the character before a variation selector is
    return character


@lru_cache(maxsize=4096)
def width(text: str) -> int:
    """How many columns it takes."""
    if _PLAIN.fullmatch(text):
        return len(text)
    return sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fit(text: str, columns: int) -> str:
    """The text, shortened to the width; a `+` marks where it was cut."""
    if width(text) <= columns:
        return text
    if columns <= 0:
        return ""
    return clip(text, columns - 1) + CUT


def clip(text: str, columns: int) -> str:
    """The part of the text that fits; a wide character that would be halved is left out."""
    if len(text) <= columns and _PLAIN.fullmatch(text):
        return text
    used = 0
    for index, character in enumerate(text):
        used += _character_width(character)
        if used > columns:
            return text[:index]
    return text


def left(text: str, columns: int) -> str:
    """Shortened or padded to that width, aligned to the left."""
    fitting = fit(text, columns)
    return fitting + " " * (columns - width(fitting))


def right(text: str, columns: int) -> str:
    """Shortened or padded to that width, aligned to the right."""
    fitting = fit(text, columns)
    return " " * (columns - width(fitting)) + fitting


def percent(permille: int) -> str:
    """Such as 0.5%, of one core."""
    return f"{permille / 10:.1f}%"


def count(number: int) -> str:
    """Such as 200,000."""
    return f"{number:,}"


def rate(per_second: float) -> str:
    """Such as 5,000/s; empty for none."""
    if per_second <= 0:
        return ""
    return f"{per_second:,.0f}/s" if per_second >= 9.95 else f"{per_second:.1f}/s"


def size(number_of_bytes: int) -> str:
    """Such as 37.1m."""
    value = float(number_of_bytes)
    if value < 1024:
        return f"{number_of_bytes}b"
    for unit in "kmgtp":
        value /= 1024
        if value < 999.95:
            return f"{value:.1f}{unit}"
    return f"{value / 1024:.1f}e"


def lag(microseconds: int) -> str:
    """Such as 0.7ms; 45us where that would be nothing."""
    if 0 < microseconds < 100:
        return f"{microseconds}us"
    if microseconds < 9950:
        tenths = f"{microseconds / 1000:.1f}"
        return f"{tenths[:-2] if tenths.endswith('.0') else tenths}ms"
    if microseconds < 999_500:
        return f"{microseconds / 1000:.0f}ms"
    return f"{microseconds / 1e6:.1f}s"


def duration(seconds: float) -> str:
    """Such as 12 s, 3 min, 2 h 5 min."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole} s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 60:
        return f"{minutes} min"
    if hours < 24:
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{days} d {hours % 24} h" if hours % 24 else f"{days} d"
