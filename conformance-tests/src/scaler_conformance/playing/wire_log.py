"""All messages between the suite and one implementation, with the time of each.

Rule: frames are kept unchanged, including invalid ones, and decoded only when they are shown.
"""

from __future__ import annotations

import time
from typing import List, NamedTuple, Sequence

from scaler_conformance.codec.schema_codec import SCHEMA, Message, UnreadableMessageError

_MOST_BYTES_SHOWN = 48
MOST_LINES = 400
"""Maximum length of a trace; lines in the middle are omitted."""


class WireEvent(NamedTuple):
    """One multipart message, or a note about another event."""

    seconds: float  # since the log began
    direction: str  # "->" to the implementation, "<-" from it, "--" a note
    peer: str  # which of the suite's conversations
    frames: Sequence[bytes]
    note: str

    def __str__(self) -> str:
        text = describe(self.frames) if self.direction != "--" else self.note
        return f"{self.seconds * 1000:9.1f} ms {self.direction} {self.peer:<12} {text}"


class WireLog:
    """The trace of one case."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._events: List[WireEvent] = []

    def sent(self, peer: str, frames: Sequence[bytes]) -> None:
        self._add("->", peer, frames)

    def received(self, peer: str, frames: Sequence[bytes]) -> None:
        self._add("<-", peer, frames)

    def note(self, text: str) -> None:
        self._add("--", "", (), text)

    def _add(self, direction: str, peer: str, frames: Sequence[bytes], note: str = "") -> None:
        self._events.append(WireEvent(time.monotonic() - self._began, direction, peer, frames, note))

    def lines(self, most: int = MOST_LINES) -> List[str]:
        """The trace for people, one line for each message."""
        events = list(self._events)
        if len(events) <= most:
            return list(map(str, events))
        half = most // 2
        left_out = f"    ... {len(events) - 2 * half} messages omitted ..."
        return [*map(str, events[:half]), left_out, *map(str, events[-half:])]


def describe(frames: Sequence[bytes]) -> str:
    """Frames, decoded if they are a message."""
    if not frames:
        return "no frames"
    try:
        type_, fields = SCHEMA.decode(frames)
        text = repr(Message(type_, fields, frames[1] if len(frames) > 1 else b""))
        return text if len(frames) <= 2 else f"{text} and {len(frames) - 2} more frames"
    except UnreadableMessageError as error:
        shown = " | ".join(f"{len(each)} bytes {each[:_MOST_BYTES_SHOWN].hex(' ')}" for each in frames[:4])
        return f"unreadable ({error}): {shown}"
