"""This package's codec against the real Cap'n Proto, both ways: the library (pycapnp) and the `capnp` program."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import pytest
from capnp_bridge import (
    CAPNP_PROGRAM,
    COMMON_MODULE,
    SCHEMA,
    SCHEMA_MODULE,
    build,
    capnp_program,
    convert,
    fill,
    frame_of,
    frames_in,
    member_field,
    read_frame,
    read_into,
    segmented_frame_of,
)
from codec_samples import SAMPLES, any_member, examples, instances
from hypothesis import given

from scaler_protocol import MalformedMessageError, decode, decode_struct, encode, encode_struct
from scaler_protocol import messages as m

needs_program = pytest.mark.skipif(CAPNP_PROGRAM is None, reason="the `capnp` program is not installed")
each_sample = pytest.mark.parametrize("message", SAMPLES, ids=lambda message: type(message).__name__)


def segment_count(frame: bytes) -> int:
    return int(struct.unpack_from("<I", frame)[0]) + 1


@given(any_member)
@examples(500)
def test_capnp_reads_what_we_write(message: Any) -> None:
    assert read_frame(encode(message)) == message


@given(any_member)
@examples(500)
def test_we_read_what_capnp_writes(message: Any) -> None:
    assert decode(frame_of(message)) == message


@given(any_member)
@examples(500)
def test_we_read_what_capnp_scatters_over_segments(message: Any) -> None:
    frame = segmented_frame_of(message)
    assert segment_count(frame) > 1
    assert decode(frame) == message


@each_sample
def test_every_field_of_every_message_is_read_both_ways(message: Any) -> None:
    assert read_frame(encode(message)) == message
    assert decode(frame_of(message)) == message
    assert decode(segmented_frame_of(message)) == message


def test_what_we_accept_of_damaged_frames_capnp_reads_alike() -> None:
    generator = random.Random(20_260_102)
    frames = [write(message) for message in SAMPLES for write in (encode, frame_of, segmented_frame_of)]
    compared = 0
    for _ in range(8_000):
        data = bytearray(generator.choice(frames))
        for _ in range(generator.randint(1, 3)):
            data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        try:
            message = decode(data)
        except MalformedMessageError:
            continue
        if not isinstance(message, m.UnknownMessage):
            assert encode(read_frame(bytes(data))) == encode(message)
            compared += 1
    assert compared > 1_000


@pytest.mark.parametrize("first_segment_words", [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48])
def test_any_size_of_the_first_segment_will_do(first_segment_words: int) -> None:
    for message in SAMPLES:
        frame = bytes(build(message, num_first_segment_words=first_segment_words).to_bytes())
        assert decode(frame) == message


def test_a_frame_of_ours_is_no_longer_than_capnps() -> None:
    for message in SAMPLES:
        assert len(encode(message)) <= len(frame_of(message))


@given(instances(m.Failure))
@examples(100)
def test_a_failure_is_a_root_of_its_own(failure: m.Failure) -> None:
    with COMMON_MODULE.Failure.from_bytes(encode_struct(failure)) as root:
        assert read_into(m.Failure, root) == failure
    builder = COMMON_MODULE.Failure.new_message()
    fill(builder, failure)
    assert decode_struct(m.Failure, builder.to_bytes()) == failure


def test_a_message_that_capnp_left_empty_has_the_defaults() -> None:
    for member in m.MEMBERS:
        root = SCHEMA_MODULE.Message.new_message()
        root.init(member_field(member()))
        assert decode(root.to_bytes()) == member()


@needs_program
def test_the_program_reads_what_we_write_and_we_what_it_writes() -> None:
    stream = b"".join(encode(message) for message in SAMPLES)
    text = convert("binary:text", stream)
    answer = convert("text:binary", text)
    assert [decode(frame) for frame in frames_in(answer)] == SAMPLES


@needs_program
def test_the_program_shows_our_values_under_their_names() -> None:
    task = m.Task(
        ids=[2**64 - 1, 5],
        payload_sizes=[2**32 - 1, 0],
        codec="cloudpickle",
        options=m.TaskOptions(priority=-7, at_most_once=True),
    )
    shown = json.loads(convert("binary:json", encode(task)))["task"]
    assert shown["ids"] == ["18446744073709551615", "5"]
    assert shown["payloadSizes"] == [4294967295, 0]
    assert shown["codec"] == "cloudpickle"
    assert shown["options"]["priority"] == -7
    assert (shown["options"]["profiling"], shown["options"]["atMostOnce"]) == (False, True)


@needs_program
def test_we_read_the_programs_json() -> None:
    written = '{"refusal": {"reason": "notGreeted", "message": "who?", "implementation": {"name": "x"}}}'
    (frame,) = frames_in(convert("json:binary", written.encode()))
    assert decode(frame) == m.Refusal(
        reason=m.RefusalReason.NOT_GREETED, message="who?", implementation=m.Implementation(name="x")
    )


@needs_program
@each_sample
def test_we_read_the_canonical_form(message: Any) -> None:
    """The canonical form leaves out all trailing zero words of a struct: structs are shorter than in the schema."""
    for each in (message, type(message)()):
        segment = convert("binary:canonical", encode(each))
        assert decode(struct.pack("<II", 0, len(segment) // 8) + segment) == each


@needs_program
def test_the_program_takes_a_failure_payload() -> None:
    failure = m.Failure(kind=m.FailureKind.TASK_RAISED, type_name="builtins.ValueError", exception=b"\x80\5")
    arguments = ["convert", "binary:text", str(SCHEMA / "common.capnp"), "Failure"]
    text = capnp_program(*arguments, content=encode_struct(failure)).decode()
    assert 'typeName = "builtins.ValueError"' in text
    assert 'exception = "\\200\\005"' in text
