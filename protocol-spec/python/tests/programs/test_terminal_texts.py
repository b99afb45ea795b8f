"""What a peer has named, printed or answered controls no terminal."""

from __future__ import annotations

import pytest

from scaler_protocol.programs.terminal_texts import escaped, escaped_but_colours, escaped_in_line

PLAIN = "a name, 100 \N{EURO SIGN} \N{CJK UNIFIED IDEOGRAPH-4E2D}"
UNSAFE = "\x00\x07\x08\x0b\x0c\r\x1b\x7f\x85\x9b\u061c\u200e\u200f\u2028\u2029\u202e\u2066\u2069\ud800"


def test_a_plain_text_stays_as_it_is() -> None:
    assert escaped(PLAIN) == escaped_in_line(PLAIN) == escaped_but_colours(PLAIN) == PLAIN


@pytest.mark.parametrize("character", UNSAFE, ids=lambda each: f"{ord(each):04x}")
def test_what_terminals_obey_is_shown(character: str) -> None:
    for each in (escaped, escaped_in_line, escaped_but_colours):
        assert each(f"a{character}b") == f"a\\u{ord(character):04x}b"


def test_lines_and_tabs_stay_but_in_a_name() -> None:
    assert escaped("a\tb\nc") == escaped_but_colours("a\tb\nc") == "a\tb\nc"
    assert escaped_in_line("a\tb\nc") == "a\tb\\u000ac"


@pytest.mark.parametrize("colour", ["\x1b[m", "\x1b[1;31m", "\x1b[38:2::255:0:0m"])
def test_colours_stay_if_they_may(colour: str) -> None:
    assert escaped_but_colours(f"{colour}red\x1b[0m") == f"{colour}red\x1b[0m"
    assert "\x1b" not in escaped(colour)


@pytest.mark.parametrize(
    "sequence",
    ["\x1b[2J", "\x1b[H", "\x1b]0;title\x07", "\x1b]52;c;cm0=\x1b\\", "\x1b[?1049h", "\x1b[>4;2m", "\x1bc", "\x1b"],
)
def test_sequences_that_are_no_colours_are_shown(sequence: str) -> None:
    assert "\x1b" not in escaped_but_colours(f"\x1b[31m{sequence}\x1b[0m").replace("\x1b[31m", "").replace(
        "\x1b[0m", ""
    )
