"""The source lines of code that is not in a file: cells of notebooks, interactive input, `python -c`.

    client: source_of(code) ── with the code object ──▶ worker: register(...) ── linecache ──▶ tracebacks, inspect

Rules:
- The lines are those that a traceback in the client would show, limited to the code object itself. They are sent with
  it, in the same pickle, so they never come from a later version of the cell.
- Code from a file has none; if a worker has a file of that name, the file is used.
- A worker keeps the lines of MAXIMUM_CELLS cells.
"""

from __future__ import annotations

import dis
import itertools
import linecache
import os
import types
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

MAXIMUM_LINES = 2_000
"""Of one code object."""

MAXIMUM_CELLS = 1_000

_lines_of_code: Optional[Callable[[types.CodeType], Optional[Sequence[str]]]] = getattr(
    linecache, "_getlines_from_code", None
)
"""Since Python 3.13: interactive input and `-c`, which all have the same name."""

_registered: Dict[str, List[str]] = {}  # the lines, by name


class Source(NamedTuple):
    """Lines of a cell.

    Parameters:
        first: the number of the first line, from 1.
    """

    first: int
    lines: List[str]


def source_of(code: types.CodeType) -> Optional[Source]:
    """The lines of a code object; None if a file has them, or they are unknown."""
    lines = _known_lines(code)
    if not lines:
        return None
    first = max(1, code.co_firstlineno)
    last = _last_line(code)
    if last - first >= MAXIMUM_LINES:
        last = first + MAXIMUM_LINES - 1
    return Source(first, list(lines[first - 1 : last]))


def _known_lines(code: types.CodeType) -> Optional[Sequence[str]]:
    own = _lines_of_code(code) if _lines_of_code is not None else None
    if own:  # others may have the same file name
        return own
    entry: Any = linecache.cache.get(code.co_filename)
    # An entry for a file has a time; an entry for a cell has none, except in old versions of IPython.
    if entry is not None and len(entry) == 4 and (entry[1] is None or not os.path.exists(code.co_filename)):
        lines: Sequence[str] = entry[2]
        return lines
    return None


def _last_line(code: types.CodeType) -> int:
    last = code.co_firstlineno
    for _, line in dis.findlinestarts(code):
        last = max(last, line or 0)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            last = max(last, _last_line(constant))
    return last


def register(name: str, source: Source) -> str:
    """Show these lines in tracebacks of code with this file name from now on.

    Returns the name that the code must have: a different one if the name already has other lines, because all prompts
    use the same names for their inputs.
    """
    first, new = source
    for number in itertools.count(1):
        shown = name if number == 1 else f"{name} ({number})"
        lines = _registered.get(shown)
        if lines is None:
            if shown in linecache.cache or os.path.exists(shown):
                return name
            _forget_oldest()
            lines = _registered[shown] = []
        known = lines[first - 1 : first - 1 + len(new)]
        if all(old in ("\n", line) for old, line in zip(known, new)):
            lines.extend(["\n"] * (first - 1 + len(new) - len(lines)))
            lines[first - 1 : first - 1 + len(new)] = new
            linecache.cache[shown] = (sum(map(len, lines)), None, lines, shown)
            return shown
    raise AssertionError("unreachable: the numbers are endless")


def _forget_oldest() -> None:
    while len(_registered) >= MAXIMUM_CELLS:
        oldest = next(iter(_registered))
        del _registered[oldest]
        linecache.cache.pop(oldest, None)
