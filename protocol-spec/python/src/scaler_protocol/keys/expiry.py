"""When a key expires: Unix seconds as text, `2027-01-01T00:00:00Z`, and what people write instead.

Rules:
- No I/O and no clock: the current time is an argument.
- All times are in UTC; a date is its first second.
"""

from __future__ import annotations

import re
from typing import Tuple

from scaler_protocol.keys.errors import KeyFileError

_DAY_SECONDS = 86_400
_DAYS_IN_400_YEARS = 146_097
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:T(\d\d):(\d\d):(\d\d)Z)?", re.ASCII)
_LIFETIME = re.compile(r"(\d{1,6})([hdwy])", re.ASCII)
_UNIT_SECONDS = {"h": 3600, "d": _DAY_SECONDS, "w": 7 * _DAY_SECONDS, "y": 365 * _DAY_SECONDS}


def time_text(seconds: float) -> str:
    """A time as `2027-01-01T00:00:00Z`, rounded down to whole seconds.

    Raises KeyFileError if it is not in the years 1 to 9999.
    """
    if not abs(seconds) < 1e12:  # also if it is not a number
        raise KeyFileError(f"a time must be in the years 1 to 9999, got {seconds} Unix seconds")
    day, second = divmod(int(seconds // 1), _DAY_SECONDS)
    year, month, day_of_month = _date_of(day)
    if not 1 <= year <= 9999:
        raise KeyFileError(f"a time must be in the years 1 to 9999, got the year {year}")
    minute, second = divmod(second, 60)
    hour, minute = divmod(minute, 60)
    return f"{year:04}-{month:02}-{day_of_month:02}T{hour:02}:{minute:02}:{second:02}Z"


def parse_time(text: str) -> float:
    """Unix seconds of a time such as `2027-01-01T00:00:00Z`, or of a date such as `2027-01-01`.

    Raises KeyFileError.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise KeyFileError("a time must be like 2027-01-01T00:00:00Z or 2027-01-01")
    year, month, day, hour, minute, second = (int(each or 0) for each in found.groups())
    number = _day_of(year, month, day)
    if year < 1 or _date_of(number) != (year, month, day) or hour > 23 or minute > 59 or second > 59:
        raise KeyFileError(f"the calendar has no time {text}")
    return float(number * _DAY_SECONDS + hour * 3600 + minute * 60 + second)


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


def _day_of(year: int, month: int, day: int) -> int:
    """The number of a day in the Gregorian calendar, from 1970-01-01 on."""
    # Years begin in March here, so that a leap day is the last one.
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * _DAYS_IN_400_YEARS + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def _date_of(day: int) -> Tuple[int, int, int]:
    """Year, month and day of the month; the inverse of `_day_of`."""
    era, day_of_era = divmod(day + 719_468, _DAYS_IN_400_YEARS)
    year = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year + year // 4 - year // 100)
    month = (5 * day_of_year + 2) // 153
    day_of_month = day_of_year - (153 * month + 2) // 5 + 1
    month += 3 if month < 10 else -9
    return year + era * 400 + (month <= 2), month, day_of_month
