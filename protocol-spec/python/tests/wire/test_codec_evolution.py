"""Peers of another minor version: their schema has more, or less, than ours, and both sides still understand
each other.

The other schemas are derived from ours: one where every struct, enum and the union has something more at its
end, one where every struct has lost its last field, and, for each number of fields, one where no struct has more. So
each field has a case in which the other side does not know it yet.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterator, List

import pytest
from capnp_bridge import (
    SCHEMA,
    build,
    camel,
    fill_what_is_newer,
    load,
    member_field,
    ordinal,
    read_into,
    rewritten_schema,
    with_more,
)
from codec_samples import SAMPLES, default_fields

from scaler_protocol import decode, encode
from scaler_protocol import messages as m
from scaler_protocol.wire.capnproto import Struct

MESSAGES = pytest.mark.parametrize("message", SAMPLES, ids=lambda message: type(message).__name__)


def with_less(kind: str, name: str, lines: List[str]) -> List[str]:
    if kind == "enum" or name == "Message":
        return lines
    last = max(map(ordinal, lines), default=-1)
    return [line for line in lines if ordinal(line) != last]


def with_at_most(count: int, kind: str, name: str, lines: List[str]) -> List[str]:
    return lines if kind == "enum" or name == "Message" else [line for line in lines if ordinal(line) < count]


def all_fields() -> Iterator[str]:
    """Of all structs of the schema, as STRUCT.FIELD@ORDINAL."""
    for path in SCHEMA.glob("*.capnp"):
        for name, body in re.findall(r"(?ms)^struct (\w+)[^{]*\{(.*?)^\}", path.read_text()):
            yield from (f"{name}.{field}@{number}" for field, number in re.findall(r"(\w+) @(\d+) :", body))


MOST_FIELDS = 1 + max(int(field.rpartition("@")[2]) for field in all_fields() if not field.startswith("Message."))


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load(rewritten_schema(tmp_path_factory.mktemp("newer"), with_more) / "message.capnp")


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load(rewritten_schema(tmp_path_factory.mktemp("older"), with_less) / "message.capnp")


@MESSAGES
@pytest.mark.parametrize("words", [1, 1024], ids=["many segments", "one segment"])
def test_we_read_the_fields_we_know_from_a_newer_peer(newer: Any, message: Any, words: int) -> None:
    root = build(message, newer, num_first_segment_words=words)
    fill_what_is_newer(getattr(root, member_field(message)))
    assert decode(root.to_bytes()) == message


@MESSAGES
def test_a_newer_peer_reads_ours(newer: Any, message: Any) -> None:
    with newer.Message.from_bytes(encode(message)) as root:
        body = getattr(root, member_field(message))
        assert read_into(type(message), body) == message
        assert (body.newerNumber, body.newerText, body.newerFlag, len(body.newerList)) == (0, "", False, 0)


def test_a_newer_message_is_unknown_and_no_error(newer: Any) -> None:
    root = newer.Message.new_message(newerMessage="hello from the future")
    assert decode(root.to_bytes()) == m.UnknownMessage(len(m.MEMBERS))


def test_a_newer_enum_value_is_a_number(newer: Any) -> None:
    root = newer.Message.new_message()
    root.init("refusal").reason = "newerMember"
    refusal = decode(root.to_bytes())
    assert isinstance(refusal, m.Refusal)
    assert refusal.reason == len(m.RefusalReason)


def without_last_fields(older_schema: Any, value: Any) -> Any:
    """A copy of `value` with defaults where an older peer has no field."""
    fields = {}
    for name, default in default_fields(type(value)):
        content = getattr(value, name)
        if camel(name) not in older_schema.fields:
            fields[name] = default
        elif isinstance(content, Struct):
            fields[name] = without_last_fields(older_schema.fields[camel(name)].schema, content)
        elif isinstance(content, list) and isinstance(content[0], Struct):
            inner = older_schema.fields[camel(name)].schema.elementType
            fields[name] = [without_last_fields(inner, item) for item in content]
        else:
            fields[name] = content
    return type(value)(**fields)


@MESSAGES
def test_what_an_older_peer_does_not_send_has_its_default(older: Any, message: Any) -> None:
    root = build(message, older)
    schema = getattr(root, member_field(message)).schema
    assert decode(root.to_bytes()) == without_last_fields(schema, message)


@pytest.mark.parametrize("count", range(MOST_FIELDS))
def test_each_field_may_be_unknown_to_the_other_side(count: int, tmp_path: Path) -> None:
    rewrite: Callable[[str, str, List[str]], List[str]] = partial(with_at_most, count)
    older = load(rewritten_schema(tmp_path, rewrite) / "message.capnp")
    for message in SAMPLES:
        root = build(message, older)
        schema = getattr(root, member_field(message)).schema
        assert decode(root.to_bytes()) == without_last_fields(schema, message)
        check_that_it_is_read(older, message)


@MESSAGES
def test_an_older_peer_reads_ours(older: Any, message: Any) -> None:
    check_that_it_is_read(older, message)


def check_that_it_is_read(older: Any, message: Any) -> None:
    """By a peer with this schema, as far as it knows the fields."""
    with older.Message.from_bytes(encode(message)) as root:
        body = getattr(root, member_field(message))
        for name, _ in default_fields(type(message)):
            if camel(name) in body.schema.fields and isinstance(getattr(message, name), (int, float, str)):
                content = getattr(body, camel(name))
                assert (content.raw if hasattr(content, "raw") else content) == getattr(message, name)
