"""Texts of peers, such as names, for lines of a log and for terminals.

Rule: nothing in such a text controls a terminal, or changes the direction of what follows. Colours may be kept.
"""

from __future__ import annotations

import re

# Control characters but for tab and the end of a line, direction marks, other ends of lines, and lone surrogates. The
# patterns are compiled when they are first needed, which takes longer than to import this module.
_UNSAFE = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
_COLOUR = "\x1b\\[[0-9;:]{0,64}m"


def escaped(text: str) -> str:
    """The text with its lines and tabs, and with no other character that a terminal might obey."""
    return text if text.isprintable() else re.sub(_UNSAFE, _visible, text)


def escaped_in_line(text: str) -> str:
    """The same on one line, for a name."""
    return escaped(text).replace("\n", "\\u000a")


def escaped_but_colours(text: str) -> str:
    """The text, its colours included: for what a task prints."""
    return text if text.isprintable() else re.sub(f"{_COLOUR}|{_UNSAFE}", _visible, text)


def _visible(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}" if len(found[0]) == 1 else found[0]
