"""The parameters of a URL's query: checked, and within bounds.

Rule: an invalid query always raises a QueryError.
"""

from __future__ import annotations

import difflib
import math
from typing import Iterable, List, Mapping, Optional

MAXIMUM_TEXT_LENGTH = 1000


class QueryError(ValueError):
    """A query that cannot be answered; the message says what is valid."""


class Query:
    """Parameters by name; unknown ones are ignored.

    Parameters:
        parameters: texts as received.
    """

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._parameters = parameters

    def text(self, name: str, default: str = "") -> str:
        """Raises QueryError when it is too long."""
        text = self._parameters.get(name, default)
        if len(text) > MAXIMUM_TEXT_LENGTH:
            raise QueryError(f"{name}: longer than {MAXIMUM_TEXT_LENGTH} characters")
        return text

    def whole(self, name: str, default: int, lowest: int = 0, highest: int = 2**64 - 1) -> int:
        """A whole number within bounds. Raises QueryError."""
        found = self.optional_whole(name, lowest, highest)
        return default if found is None else found

    def optional_whole(self, name: str, lowest: int = 0, highest: int = 2**64 - 1) -> Optional[int]:
        """A whole number within bounds, None if it is missing or empty. Raises QueryError."""
        text = self._parameters.get(name, "")
        if not text:
            return None
        is_number = len(text) <= 20 and text.isascii() and text.isdigit()
        if not is_number or not lowest <= int(text) <= highest:
            raise QueryError(f"{name}: {text[:40]!r} is not a whole number from {lowest} to {highest}")
        return int(text)

    def optional_seconds(self, name: str) -> Optional[float]:
        """A time or a duration, None if it is missing or empty. Raises QueryError."""
        text = self._parameters.get(name, "")
        if not text:
            return None
        try:
            seconds = float(text[:40])
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds < 1e11:
            raise QueryError(f"{name}: {text[:40]!r} is not a number of seconds")
        return seconds

    def words(self, name: str) -> List[str]:
        """The words of a text, in lower case."""
        return self.text(name).casefold().split()


def one_of(name: str, text: str, choices: Iterable[str]) -> str:
    """Raises QueryError when the text is not one of the choices, with the closest one as a hint."""
    known = list(choices)
    if text in known:
        return text
    near = difflib.get_close_matches(text[:100], known, 1)
    hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(known)}"
    raise QueryError(f"{name}: there is no {text[:100]!r}; {hint}")
