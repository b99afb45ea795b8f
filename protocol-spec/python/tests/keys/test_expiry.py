"""Times as people write them, without a clock."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.keys.expiry import parse_expiry, parse_time, time_text

NEW_YEAR_2027 = 1_798_761_600.0
DAY_SECONDS = 86_400


@given(st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31, 23, 59, 59)))
def test_the_calendar_is_that_of_the_standard_library(moment: datetime) -> None:
    moment = moment.replace(microsecond=0, tzinfo=timezone.utc)
    text = moment.replace(tzinfo=None).isoformat() + "Z"

    assert parse_time(text) == moment.timestamp()
    assert time_text(moment.timestamp()) == text


def test_a_date_is_its_first_second_and_parts_of_seconds_are_cut_off() -> None:
    assert parse_time("2027-01-01") == parse_time("2027-01-01T00:00:00Z") == NEW_YEAR_2027
    assert time_text(NEW_YEAR_2027 + 0.99) == "2027-01-01T00:00:00Z"
    assert time_text(-0.5) == "1969-12-31T23:59:59Z"


@pytest.mark.parametrize(
    "text", ["2027-02-29", "2027-13-01", "2027-00-01", "2027-01-00", "0000-01-01", "2027-01-01T24:00:00Z"]
)
def test_a_day_that_the_calendar_lacks_is_an_error(text: str) -> None:
    with pytest.raises(KeyFileError, match=f"no time {text}"):
        parse_time(text)


@pytest.mark.parametrize(
    "text", ["", "tomorrow", "2027-1-1", "2027-01-01T00:00:00", "2027-01-01 00:00", "２０２７-01-01"]
)
def test_other_texts_are_errors_that_show_how_to_write_a_time(text: str) -> None:
    with pytest.raises(KeyFileError, match="like 2027-01-01T00:00:00Z or 2027-01-01"):
        parse_time(text)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -float("inf"), 4e11, -1e11])
def test_a_time_that_no_text_stands_for_is_an_error(seconds: float) -> None:
    with pytest.raises(KeyFileError, match="in the years 1 to 9999"):
        time_text(seconds)


@pytest.mark.parametrize(("text", "days"), [("90d", 90), ("2w", 14), ("1y", 365), ("48h", 2)])
def test_a_lifetime_begins_now(text: str, days: int) -> None:
    assert parse_expiry(text, NEW_YEAR_2027 + 0.5) == NEW_YEAR_2027 + days * DAY_SECONDS


def test_a_key_expires_in_the_future() -> None:
    assert parse_expiry("2027-01-01", NEW_YEAR_2027 - 1) == NEW_YEAR_2027
    for text in ("2027-01-01", "2020-01-01", "0d"):
        with pytest.raises(KeyFileError, match=f"must expire in the future, got '{text}'"):
            parse_expiry(text, NEW_YEAR_2027)
    with pytest.raises(KeyFileError, match=r"a lifetime like 90d or 12h .* got '90'"):
        parse_expiry("90", NEW_YEAR_2027)
    with pytest.raises(KeyFileError, match="years 1 to 9999"):
        parse_expiry("999999y", NEW_YEAR_2027)
