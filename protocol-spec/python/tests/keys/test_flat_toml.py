"""The lines of key files are TOML, and mean there what they mean here."""

from __future__ import annotations

import sys
from typing import Dict, List, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.keys.flat_toml import entries_text, parse_entries

texts = st.text(st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters='"\\'))
names = st.from_regex("[A-Za-z_]+", fullmatch=True).filter(str.isascii)


@given(st.dictionaries(names, texts | st.lists(texts, max_size=3), max_size=5))
def test_what_is_written_is_read_here_and_by_readers_of_toml(entries: Dict[str, Union[str, List[str]]]) -> None:
    text = entries_text(["A comment."], entries)

    assert parse_entries(text, "f") == entries
    if sys.version_info >= (3, 11):
        import tomllib

        assert tomllib.loads(text) == entries


@given(st.text('ab=[]",#\\ \t\n'))
def test_what_is_read_here_is_read_alike_by_readers_of_toml(text: str) -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python before 3.11 cannot read TOML")
    try:
        entries = parse_entries(text, "f")
    except KeyFileError:
        return
    assert tomllib.loads(text) == entries


def test_people_may_write_blanks_and_comments() -> None:
    text = '# Mine.\r\n\n  one="1"\t# the first\r\nmany = [ "a" , "b#c", ] # and more\nnone = []'

    assert parse_entries(text, "f") == {"one": "1", "many": ["a", "b#c"], "none": []}


@pytest.mark.parametrize(
    "line",
    ["secret", "key = secret", 'key = "secret', 'key = "sec\\u0072et"', '[secret]\nkey = "secret"', '"key" = "secret"'],
)
def test_other_lines_are_errors_that_do_not_quote_them(line: str) -> None:
    with pytest.raises(KeyFileError, match=r"^f, line 2: a line must be NAME = ") as caught:
        parse_entries(f"# comment\n{line}\n", "f")
    assert "secret" not in str(caught.value)


def test_a_name_that_is_written_twice_is_an_error() -> None:
    with pytest.raises(KeyFileError, match=r"^f, line 2: key is written twice"):
        parse_entries('key = "a"\nkey = "b"', "f")
