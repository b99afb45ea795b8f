"""The part of TOML that files of keys use: one line for each name, with a text or a list of texts.

    role = "worker"
    server_keys = ["...", "..."]   # comments are allowed

Rules:
- No I/O. All that is accepted here is TOML, and means the same there.
- Texts have neither quotes nor backslashes, so there is nothing to escape.
- Errors name the line, and do not quote it: it may contain a secret. Therefore this is not the reader of configuration
  files, which quotes; nor does it need the package `tomli` before Python 3.11.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Sequence, Union

from scaler_protocol.keys.errors import KeyFileError

Value = Union[str, List[str]]

_TEXT = r'"([^"\\\x00-\x1f\x7f]*)"'
_COMMENT = r"[ \t]*(?:#[^\x00-\x08\x0a-\x1f\x7f]*)?"
_ENTRY = re.compile(
    rf"[ \t]*([A-Za-z_]+)[ \t]*=[ \t]*(?:{_TEXT}|\[[ \t]*((?:{_TEXT}[ \t]*,[ \t]*)*(?:{_TEXT}[ \t]*)?)\]){_COMMENT}"
)
_BLANK = re.compile(_COMMENT)
_ONE_TEXT = re.compile(_TEXT)


def parse_entries(text: str, where: str) -> Dict[str, Value]:
    """The entries of a text by name.

    Parameters:
        where: the name of the file, for errors.

    Raises KeyFileError, with the line's number.
    """
    entries: Dict[str, Value] = {}
    for number, line in enumerate(text.split("\n"), 1):
        line = line[:-1] if line.endswith("\r") else line
        if _BLANK.fullmatch(line):
            continue
        found = _ENTRY.fullmatch(line)
        if found is None:
            raise KeyFileError(
                f'{where}, line {number}: a line must be NAME = "TEXT" or NAME = ["TEXT", "TEXT"] on one line'
            )
        name, value, values = found[1], found[2], found[3]
        if name in entries:
            raise KeyFileError(f"{where}, line {number}: {name} is written twice")
        entries[name] = value if value is not None else _ONE_TEXT.findall(values)
    return entries


def entries_text(comment: Sequence[str], entries: Mapping[str, Value]) -> str:
    """The inverse of `parse_entries`, with lines of comments before it.

    The texts must have neither quotes, nor backslashes, nor control characters.
    """
    lines = [f"# {line}" for line in comment]
    for name, value in entries.items():
        texts = [value] if isinstance(value, str) else value
        assert all(_ONE_TEXT.fullmatch(f'"{each}"') for each in texts), f"{name} cannot be written without escapes"
        quoted = [f'"{each}"' for each in texts]
        lines.append(f"{name} = {quoted[0] if isinstance(value, str) else '[' + ', '.join(quoted) + ']'}")
    return "".join(f"{line}\n" for line in lines)
