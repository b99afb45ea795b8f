"""Checks of user-supplied arguments: durations, sizes and counts.

Rules:
- A duration is a number of seconds or a text such as "30s", a size a number of bytes or a text such as "1GB"; the forms
  are those of the programs' options (see `scaler_protocol.programs.units`).
- An error names the argument, its value and what to write instead.
"""

from __future__ import annotations

from math import inf, isnan
from typing import Any, Optional, Union

from scaler.exceptions import ArgumentTypeError, InvalidArgumentError
from scaler_protocol.programs.units import DURATION_FORMS, SIZE_FORMS, parse_bytes, parse_seconds

Duration = Union[float, str]
"""Seconds, or a text such as "30s", "250ms" or "5min"."""

Size = Union[int, str]
"""Bytes, or a text such as "1GB" or "512MiB"."""

_A_DURATION = f"a duration: a number of seconds, or a text such as {DURATION_FORMS}"
_A_SIZE = f"a size: a whole number of bytes, or a text such as {SIZE_FORMS}"


def seconds(name: str, value: Any, minimum: float = 0.0, below: Optional[float] = None) -> float:
    """A duration in seconds, at least `minimum` and below `below`; without `below` it may be infinite.

    Raises ArgumentTypeError and InvalidArgumentError.
    """
    if isinstance(value, str):
        try:
            number = parse_seconds(value)
        except ValueError:
            raise InvalidArgumentError(f"{name} must be {_A_DURATION}, got {value!r}") from None
    elif isinstance(value, bool) or not hasattr(value, "__float__"):
        raise ArgumentTypeError(f"{name} must be {_A_DURATION}, got {type(value).__name__}")
    else:
        try:
            number = float(value)
        except OverflowError:
            number = inf
    if isnan(number) or number < minimum or (below is not None and number >= below):
        upper = "" if below is None else f" and < {below:g}"
        raise InvalidArgumentError(f"{name} must be >= {minimum:g}{upper} seconds, got {value!r}")
    return number


def size_in_bytes(name: str, value: Any, minimum: int = 0, below: int = 1 << 64) -> int:
    """A size in bytes, at least `minimum` and below `below`.

    Raises ArgumentTypeError and InvalidArgumentError.
    """
    if not isinstance(value, str):
        return whole(name, value, minimum, below, _A_SIZE)
    try:
        number = parse_bytes(value)
    except ValueError:
        raise InvalidArgumentError(f"{name} must be {_A_SIZE}, got {value!r}") from None
    return whole(name, number, minimum, below)


def whole(name: str, value: Any, minimum: int = 0, below: float = inf, what: str = "a whole number") -> int:
    """A whole number, at least `minimum` and below `below`.

    Raises ArgumentTypeError and InvalidArgumentError.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentTypeError(f"{name} must be {what}, got {type(value).__name__}")
    number: int = value.__index__()
    if not minimum <= number < below:
        upper = "" if below == inf else f" and < {below}"
        raise InvalidArgumentError(f"{name} must be >= {minimum}{upper}, got {number}")
    return number
