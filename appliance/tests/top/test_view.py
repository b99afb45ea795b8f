"""What keys do to a view."""

from __future__ import annotations

from typing import Iterable

import pytest

from scaler_appliance.top.rows import BY_KEY
from scaler_appliance.top.view import KEYS, Extent, View, press

EXTENT = Extent(rows=100, page=10)
FIRST = View()


def after(keys: Iterable[str], view: View = FIRST, extent: Extent = EXTENT) -> View:
    for key in keys:
        view = press(view, key, extent)
    return view


def test_letters_sort_as_the_shortcuts_line_says() -> None:
    titles = {key: after([key], View(sort="agt_cpu")).sort for key in "nCMcmfwdl"}
    assert titles == {
        "n": "worker",
        "C": "agt_cpu",
        "M": "agt_rss",
        "c": "cpu",
        "m": "rss",
        "f": "free",
        "w": "sent",
        "d": "queued",
        "l": "lag",
    }
    assert "".join(BY_KEY) == "nCMcmfwdl"


def test_the_same_letter_again_and_r_reverse_the_order() -> None:
    assert not after("m").is_reversed
    assert after("mm").is_reversed
    assert not after("mmr").is_reversed
    assert after("mmc") == View(sort="cpu")


def test_scrolling_stays_within_the_rows() -> None:
    assert after(["KEY_UP"]).offset == 0
    assert after(["KEY_DOWN", "j"]).offset == 2
    assert after(["KEY_PGDOWN"]).offset == 9
    assert after(["KEY_END"]).offset == 90
    assert after(["G", "KEY_DOWN"]).offset == 90
    assert after(["G", "k", "KEY_PGUP"]).offset == 80
    assert after(["G", "KEY_HOME"]).offset == 0


def test_rows_that_went_away_are_not_scrolled_back_through() -> None:
    assert press(View(offset=90), "KEY_UP", Extent(rows=20, page=10)).offset == 9
    assert press(View(offset=90), "KEY_UP", Extent(rows=5, page=10)).offset == 0


def test_a_filter_is_typed_and_kept() -> None:
    view = after(["/", "a", "q", " ", "KEY_BACKSPACE", "KEY_BACKSPACE", "b"], View(offset=7))
    assert (view.wanted, view.is_typing, view.offset, view.has_quit) == ("ab", True, 0, False)
    kept = after(["KEY_ENTER"], view)
    assert (kept.wanted, kept.is_typing) == ("ab", False)
    assert after(["KEY_ESCAPE"], kept).wanted == ""


def test_escape_while_typing_brings_the_filter_back_that_was_there() -> None:
    view = after(["/", "KEY_BACKSPACE", "x", "KEY_ESCAPE"], View(wanted="old"))
    assert (view.wanted, view.is_typing) == ("old", False)


def test_a_filter_takes_no_control_characters_and_has_an_end() -> None:
    assert after(["/", "\x1b", "\x00", "KEY_F5", "é"]).wanted == "é"
    assert len(after(["/", *"x" * 500]).wanted) == 100
    assert after(["/", *"abc", "\x15"]).wanted == ""


def test_space_pauses_and_goes_on() -> None:
    assert after(" ").is_paused
    assert not after("  ").is_paused


def test_any_key_leaves_the_help() -> None:
    assert after("?").shows_help
    assert after("?m") == View()
    assert after("?q").has_quit


@pytest.mark.parametrize("keys", ["q", "\x03", "/\x03", "?\x03"])
def test_q_and_interrupts_quit(keys: str) -> None:
    assert after(keys).has_quit


def test_keys_without_a_meaning_do_nothing() -> None:
    for key in ("x", "KEY_F9", "", "\x00", "KEY_LEFT"):
        assert after([key]) == View()


def test_help_names_every_key_that_does_something() -> None:
    names = " ".join(keys for keys, _ in KEYS)
    for key in [*BY_KEY, "r", "k", "j", "b", "g", "G", "/", "?", "h", "q"]:
        assert key in names.split() or f"{key}," in names.split(), key
