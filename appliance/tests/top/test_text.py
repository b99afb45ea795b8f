"""Names that come from anywhere, and figures in few columns."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as some

from scaler_appliance.top import text


def test_what_a_terminal_would_obey_is_made_visible() -> None:
    assert text.safe("\x1b[2Jwipe\r\nme\x07\x9b") == "�[2Jwipe��me��"
    assert text.safe("a\N{RIGHT-TO-LEFT OVERRIDE}b\N{LINE SEPARATOR}c\ud800") == "a�b�c�"


def test_ordinary_names_of_all_languages_stay() -> None:
    for name in ("worker-1", "données", "作業者", "работник", "हिन्दी"):
        assert text.safe(name) == unicodedata.normalize("NFC", name)


def test_wide_characters_take_two_columns_and_accents_none() -> None:
    assert text.width("abc") == 3
    assert text.width("作業者") == 6
    assert text.width(text.safe("e\u0301")) == 1
    assert text.width("n\u0328\u0301") == 1


def test_what_is_cut_says_so_and_halves_no_wide_character() -> None:
    assert text.fit("abcdef", 6) == "abcdef"
    assert text.fit("abcdef", 5) == "abcd+"
    assert text.fit("作業者", 5) == "作業+"
    assert text.fit("作業者", 4) == "作+"
    assert text.left("作業者", 4) == "作+ "
    assert text.right("作業者", 7) == " 作業者"
    assert text.fit("abc", 0) == ""


@given(some.text(alphabet=some.characters()), some.integers(0, 30))
def test_any_text_fits_where_it_shall(name: str, columns: int) -> None:
    shown = text.left(text.safe(name), columns)
    assert text.width(shown) == columns
    assert not any(unicodedata.category(character)[0] == "C" for character in shown)
    assert len(shown.splitlines()) <= 1


@pytest.mark.parametrize(
    ("function", "value", "written"),
    [
        (text.percent, 5, "0.5%"),
        (text.percent, 12_345, "1234.5%"),
        (text.count, 200_000, "200,000"),
        (text.rate, 0.0, ""),
        (text.rate, -3.0, ""),
        (text.rate, 1.54, "1.5/s"),
        (text.rate, 9.96, "10/s"),
        (text.rate, 5000.4, "5,000/s"),
        (text.size, 0, "0b"),
        (text.size, 1023, "1023b"),
        (text.size, 136_419_738, "130.1m"),
        (text.size, 1024**3 - 1, "1.0g"),
        (text.size, 2**64 - 1, "16.0e"),
        (text.lag, 0, "0ms"),
        (text.lag, 45, "45us"),
        (text.lag, 700, "0.7ms"),
        (text.lag, 1000, "1ms"),
        (text.lag, 9949, "9.9ms"),
        (text.lag, 12_345, "12ms"),
        (text.lag, 1_200_000, "1.2s"),
        (text.duration, 12.9, "12 s"),
        (text.duration, 120, "2 min"),
        (text.duration, 2 * 3600 + 300, "2 h 5 min"),
        (text.duration, 7200, "2 h"),
        (text.duration, 90_000, "1 d 1 h"),
        (text.duration, 2 * 86_400, "2 d"),
    ],
)
def test_figures_are_short(function: object, value: object, written: str) -> None:
    assert callable(function)
    assert function(value) == written
