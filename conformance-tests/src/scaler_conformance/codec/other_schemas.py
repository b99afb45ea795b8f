"""The protocol as it may look in a newer and in an older version, derived from the text of the schema.

Rules:
- In `tomorrow`, every struct has two more fields, every enum one more member (`unheardOf`), and Message one more type.
- In `yesterday`, some structs are shorter: messages lack the fields that were added later.
- Both follow the rules by which the schema may evolve, so a peer must work with either.
"""

from __future__ import annotations

import functools
import re
import tempfile
from pathlib import Path
from typing import Callable, List

from scaler_conformance.codec.schema_codec import Schema
from scaler_conformance.judging.register import SPECIFICATION

UNHEARD_OF = "UnheardOf"
_BLOCK = re.compile(r"(?ms)^(struct|enum) (\w+) ((?:\$[^\n{]*)?)\{(\}|.*?^\})")
_STATEMENT = re.compile(r"[^;{}]+;")
FIELDS_OF_YESTERDAY = {
    "Hello": 15,
    "HeartbeatEcho": 3,
    "SchedulerStatus": 36,
    "Welcome": 9,
    "Task": 6,
    "TaskOptions": 4,
    "Heartbeat": 1,
    "Limits": 3,
    "ObjectInstruction": 4,
    "ObjectRequest": 3,
    "ObjectResponse": 4,
    "Failure": 8,
    "DisconnectRequest": 2,
    "InfoRequest": 2,
    "Info": 10,
    "Units": 3,
}

Rewrite = Callable[[str, str, List[str]], List[str]]


@functools.cache
def tomorrow() -> Schema:
    """A newer minor version."""
    return _rewritten(_grown, f"struct {UNHEARD_OF} {{\n  text @0 :Text;\n}}\n")


@functools.cache
def yesterday() -> Schema:
    """An older version with shorter structs."""
    return _rewritten(lambda kind, name, lines: lines[: FIELDS_OF_YESTERDAY.get(name, len(lines))], "")


def _grown(kind: str, name: str, lines: List[str]) -> List[str]:
    next_number = 1 + max([int(number) for line in lines for number in re.findall(r"@(\d+)", line)], default=-1)
    if name == "Message":
        return [*lines, f"unheardOf @{next_number} :{UNHEARD_OF};"]
    if kind == "enum":
        return [*lines, f"unheardOf @{next_number};"]
    return [*lines, f"addedText @{next_number} :Text;", f"addedNumber @{next_number + 1} :UInt64;"]


def _rewritten(rewrite: Rewrite, addition: str) -> Schema:
    with tempfile.TemporaryDirectory(prefix="scaler-conformance-") as folder:
        for path in (SPECIFICATION / "schema").glob("*.capnp"):
            text = re.sub(r"#.*", "", path.read_text(encoding="utf-8"))
            text = _BLOCK.sub(lambda found: _block(rewrite, *found.groups()), text)
            text += addition if path.name == "message.capnp" else ""
            (Path(folder) / path.name).write_text(text, encoding="utf-8")
        return Schema(Path(folder))


def _block(rewrite: Rewrite, kind: str, name: str, annotations: str, body: str) -> str:
    """One struct or enum, rewritten. No block of the schema contains another, except Message with its union."""
    lines = [line.strip() for line in _STATEMENT.findall(body)]
    lines = rewrite(kind, name, lines)
    inner = "\n".join(f"  {line}" for line in lines)
    inner = f"  union {{\n{inner}\n  }}" if name == "Message" else inner
    return f"{kind} {name} {annotations}{{\n{inner}\n}}"
