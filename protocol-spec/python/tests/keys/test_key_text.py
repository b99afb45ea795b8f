"""Z85: the vectors of RFC 32, and pyzmq as a second opinion."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.keys.key_text import (
    ALPHABET,
    decode_key,
    encode_key,
    fingerprint,
    z85_decode,
    z85_encode,
)

RFC_32 = [
    ("864fd26fb559f75b", "HelloWorld"),
    (  # the two keys of ZeroMQ's own documentation
        "8e0bdd697628b91d8f245587ee95c5b04d48963f79259877b49cd9063aead3b7",
        "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6",
    ),
    (
        "7bb864b489afa3671fbe69101f94b38972f24816dfb01b51656b3fec8dfd0888",
        "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs",
    ),
]


@pytest.mark.parametrize(("data", "text"), RFC_32)
def test_the_vectors_of_the_rfc(data: str, text: str) -> None:
    assert z85_encode(bytes.fromhex(data)) == text
    assert z85_decode(text) == bytes.fromhex(data)


@given(st.binary(min_size=32, max_size=32))
def test_a_key_has_one_text_of_40_characters_and_pyzmq_has_the_same(key: bytes) -> None:
    z85 = pytest.importorskip("zmq.utils.z85")
    text = encode_key(key)

    assert len(text) == 40 and decode_key(text) == key
    assert z85.encode(key) == text.encode() and z85.decode(text) == key


@given(st.text(ALPHABET, min_size=5, max_size=5))
def test_each_text_that_is_read_is_the_one_that_would_be_written(text: str) -> None:
    try:
        data = z85_decode(text)
    except ValueError:
        assert sum(ALPHABET.index(character) * 85 ** (4 - at) for at, character in enumerate(text)) >= 2**32
    else:
        assert z85_encode(data) == text


def test_no_key_begins_like_a_comment() -> None:
    assert encode_key(b"\xff" * 32).startswith("%nSc0")
    with pytest.raises(KeyFileError, match="more than 32 bits"):
        decode_key("#" * 40)


def test_numbers_of_bytes_that_z85_cannot_encode_are_errors() -> None:
    with pytest.raises(ValueError, match="multiple of 4 bytes, got 3"):
        z85_encode(b"abc")
    with pytest.raises(ValueError, match="multiple of 5 characters, got 4"):
        z85_decode("abcd")
    with pytest.raises(ValueError, match="keys have 32 bytes, got 28"):
        encode_key(bytes(28))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "got 0"),
        ("0" * 39, "got 39"),
        ("0" * 45, "got 45"),
        ("0" * 39 + "~", "alphabet"),
        ("0" * 39 + "é", "alphabet"),
        ("0" * 39 + "\n", "alphabet"),
    ],
)
def test_what_is_not_a_key_is_an_error_that_does_not_quote_it(text: str, problem: str) -> None:
    with pytest.raises(KeyFileError, match=problem) as caught:
        decode_key(text)
    assert "0000" not in str(caught.value)


def test_a_fingerprint_is_short_and_belongs_to_one_key() -> None:
    assert fingerprint(bytes(32)) == "6668-7aad-f862-bd77"  # the SHA-256 of 32 zeros
    assert fingerprint(b"\x01" * 32) != fingerprint(bytes(32))
