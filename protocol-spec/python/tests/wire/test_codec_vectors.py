"""The vectors of the specification: what interpreters without pycapnp are held to."""

from __future__ import annotations

from typing import Any

import pytest
from codec_samples import SAMPLES
from vector_files import message_from, names, read, read_json

from scaler_protocol import MalformedMessageError, decode, decode_struct, encode, encode_struct
from scaler_protocol import messages as m

INVALID = names("invalid")


@pytest.mark.parametrize("name", names("valid"))
def test_a_valid_header_means_what_its_json_says(name: str) -> None:
    frame, meaning = read(f"valid/{name}"), read_json(f"valid/{name}")
    expected = message_from(meaning)
    decoded: Any = decode_struct(m.Failure, frame) if meaning["root"] == "Failure" else decode(frame)
    assert decoded == expected
    if not isinstance(expected, m.UnknownMessage):
        again = encode_struct(decoded) if meaning["root"] == "Failure" else encode(decoded)
        assert (decode_struct(m.Failure, again) if meaning["root"] == "Failure" else decode(again)) == expected


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_header_is_refused_and_a_valid_one_in_an_invalid_message_is_read(name: str) -> None:
    frame = read(f"invalid/{name}")
    if read_json(f"invalid/{name}")["level"] == "header":
        with pytest.raises(MalformedMessageError):
            decode(frame)
    else:
        assert not isinstance(decode(frame), m.UnknownMessage)


def test_there_are_vectors_of_each_message_in_one_and_in_many_segments() -> None:
    for message in SAMPLES:
        name = type(message).__name__
        assert {"full", "segments", "defaults", "null", "newer"} <= {
            each.split("/")[1] for each in names("valid") if each.split("/")[0] == name
        }
        assert read(f"valid/{name}/full")[:4] == b"\0\0\0\0"
        assert read(f"valid/{name}/segments")[:4] != b"\0\0\0\0"
    assert len(INVALID) > 50


@pytest.mark.parametrize("name", ["Task", "TaskResult", "Heartbeat", "TaskCancel", "BalanceResponse"])
def test_the_hot_messages_are_written_byte_for_byte_as_capnp_does(name: str) -> None:
    (message,) = (each for each in SAMPLES if type(each).__name__ == name)
    assert encode(message) == read(f"valid/{name}/full")
