"""What is in protocol-spec/traces: see its README.md. Pure Python, for every interpreter."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import List, NamedTuple

TRACES = Path(__file__).resolve().parents[2] / "traces"
_PIECE = re.compile(r"\[(?P<byte>[0-9a-f]{2})\*(?P<count>\d+)\]|(?P<hex>[0-9a-f]+)")


class Line(NamedTuple):
    peer: str
    is_from_peer: bool
    message: str  # its class; empty: no message; "closed": the connection ended
    frames: List[bytes]


def names() -> List[str]:
    return sorted(path.stem for path in TRACES.glob("*.jsonl"))


def lines_of(name: str) -> List[Line]:
    """The conversation, in order."""
    _, *rest = (TRACES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    lines = []
    for entry in map(json.loads, rest):
        if "event" in entry:
            lines.append(Line(entry["peer"], True, entry["event"], []))
        else:
            is_from_peer = entry["to"] == "scheduler"
            peer = entry["from"] if is_from_peer else entry["to"]
            lines.append(Line(peer, is_from_peer, entry["message"], [frame_from(text) for text in entry["frames"]]))
    return lines


def frame_from(text: str) -> bytes:
    parts = []
    end = 0
    for piece in _PIECE.finditer(text):
        assert piece.start() == end, text
        end = piece.end()
        hexadecimal = piece["hex"]
        parts.append(bytes.fromhex(hexadecimal) if hexadecimal else bytes.fromhex(piece["byte"]) * int(piece["count"]))
    assert end == len(text), text
    return b"".join(parts)
