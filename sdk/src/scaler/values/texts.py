"""Descriptions of errors and objects, even if the objects themselves are faulty.

Rules:
- Describing never fails: an object whose own `__str__` or `__repr__` raises is described without it.
- Descriptions are for people, and bounded: a long text is shortened to its beginning and its end.
"""

from __future__ import annotations

import re
from typing import Any

TEXT_CHARACTERS = 4_000
"""The limit of an exception's text, or of an object's repr."""

_UNPICKLABLE = re.compile(r"^can(?:no|')t pickle '?(generator|coroutine|async_generator)'? object")
_ADVICE = {
    "generator": "; a generator cannot leave its process: use list(...) of it",
    "coroutine": "; a coroutine cannot leave its process: make the task's function `async def` and await it there",
    "async_generator": "; an asynchronous generator cannot leave its process: use a list, [item async for item in ...]",
}


def text_of(error: BaseException) -> str:
    """The text of an exception, or its type if the text is empty."""
    try:
        return shortened(str(error), TEXT_CHARACTERS) or type(error).__name__
    except BaseException:  # the user's own __str__ may raise anything, SystemExit included
        return f"{type(error).__name__} (its text cannot be shown)"


def description_of(error: BaseException) -> str:
    """An exception's type and text."""
    name, text = type(error).__name__, text_of(error)
    found = _UNPICKLABLE.search(text)
    if found is not None:
        text += _ADVICE[found[1]]
    return text if text.startswith(name) else f"{name}: {text}"


def repr_of(value: Any) -> str:
    """The repr of an object, or its type if the repr fails."""
    try:
        return shortened(repr(value), TEXT_CHARACTERS)
    except BaseException:
        return f"<{type(value).__name__} whose repr fails>"


def counted(number: int, noun: str) -> str:
    """A number with a noun, such as "1 slot" or "3 slots"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def shortened(text: str, characters: int) -> str:
    """The beginning and end of a text longer than `characters`; the end is usually the most informative part."""
    if len(text) <= characters:
        return text
    beginning, end = characters // 4, characters - characters // 4
    return f"{text[:beginning]}\n[... {len(text) - characters} characters ...]\n{text[-end:]}"


def too_large(size: int, limit: int) -> str:
    """The error text for an object of `size` bytes, above the scheduler's limit, with advice."""
    return (
        f"an object of {size} bytes is larger than the scheduler allows ({limit} bytes): divide it, or start the"
        " scheduler with a larger --maximum-object-bytes"
    )
