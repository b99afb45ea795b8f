"""Lines of a frame: pieces of text, each with a style.

Rule: a style is a meaning; the screen decides how it looks.
"""

from __future__ import annotations

from typing import Iterable, List, NamedTuple, Tuple

from scaler_appliance.top import text

PLAIN, TITLE, SORTED, BAD, NOTICE, FAINT, STOPPED = "", "title", "sorted", "bad", "notice", "faint", "stopped"
ALARM = "alarm"  # a notice that must not be overlooked


class Span(NamedTuple):
    """Safe text in one style."""

    text: str
    style: str = PLAIN


Line = Tuple[Span, ...]


def line(content: str, style: str = PLAIN) -> Line:
    return (Span(content, style),)


def plain(lines: Iterable[Line]) -> List[str]:
    """The lines without styles."""
    return ["".join(span.text for span in each).rstrip() for each in lines]


def width_of(content: Line) -> int:
    return sum(text.width(span.text) for span in content)


def clip(content: Line, columns: int) -> Line:
    """The part of a line that fits."""
    spans: List[Span] = []
    for span in content:
        room = columns - sum(text.width(each.text) for each in spans)
        if text.width(span.text) > room:
            return (*spans, Span(text.clip(span.text, room), span.style))
        spans.append(span)
    return content


def padded(content: Line, columns: int) -> Line:
    """A line padded or clipped to that width."""
    missing = columns - width_of(content)
    return (*content, Span(" " * missing)) if missing > 0 else clip(content, columns)


def stopped(content: Line) -> Line:
    """The line with its figures dimmed, because they are old; notices stay as they are."""
    return tuple(span if span.style in (NOTICE, ALARM) else span._replace(style=STOPPED) for span in content)
