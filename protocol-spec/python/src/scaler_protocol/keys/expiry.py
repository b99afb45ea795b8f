"""When a key expires: Unix seconds as text, `2027-01-01T00:00:00Z`, and what people write instead.

Rules:
- No I/O and no clock: the current time is an argument.
- All times are in UTC, so that `datetime` needs no time zone; a date is its first second.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from scaler_protocol.keys.errors import KeyFileError

_DAY_SECONDS = 86_400
_EPOCH = datetime(1970, 1, 1)
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:T(\d\d):(\d\d):(\d\d)Z)?", re.ASCII)
_LIFETIME = re.compile(r"(\d{1,6})([hdwy])", re.ASCII)
_UNIT_SECONDS = {"h": 3600, "d": _DAY_SECONDS, "w": 7 * _DAY_SECONDS, "y": 365 * _DAY_SECONDS}


def time_text(seconds: float) -> str:
    """A time as `2027-01-01T00:00:00Z`, rounded down to whole seconds.

    Raises KeyFileError if it is not in the years 1 to 9999.
    """
    try:
        moment = _EPOCH + timedelta(seconds=seconds // 1)
    except (OverflowError, ValueError):
        raise KeyFileError(f"a time must be in the years 1 to 9999, got {seconds} Unix seconds") from None
    return moment.isoformat() + "Z"


def parse_time(text: str) -> float:
    """Unix seconds of a time such as `2027-01-01T00:00:00Z`, or of a date such as `2027-01-01`.

    Raises KeyFileError.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise KeyFileError("a time must be like 2027-01-01T00:00:00Z or 2027-01-01")
    year, month, day, hour, minute, second = (int(each or 0) for each in found.groups())
    try:
        return (datetime(year, month, day, hour, minute, second) - _EPOCH).total_seconds()
    except ValueError:
        raise KeyFileError(f"the calendar has no time {text}") from None


def parse_expiry(text: str, now: float) -> float:
    """Unix seconds of a lifetime such as `90d` (h, d, w, y), from `now` on, or of a time as in `parse_time`.

    Raises KeyFileError if it is malformed, or not in the future.
    """
    lifetime = _LIFETIME.fullmatch(text)
    if lifetime is not None:
        expires = float(int(now) + int(lifetime[1]) * _UNIT_SECONDS[lifetime[2]])
    else:
        try:
            expires = parse_time(text)
        except KeyFileError as error:
            raise KeyFileError(f"{error}, or a lifetime like 90d or 12h (h, d, w, y); got {text!r}") from None
    if expires <= now:
        raise KeyFileError(f"the key must expire in the future, got {text!r}")
    time_text(expires)  # whether it is a year that can be written
    return expires
