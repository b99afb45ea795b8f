"""Frames that are no message: each ends in `MalformedMessageError`, soon and in little memory, and never in
another error.
"""

from __future__ import annotations

import random
import struct
import sys
from typing import Any, List, Optional, Tuple, Union

import pytest
from codec_assembler import (
    BYTE,
    COMPOSITE,
    EIGHT_BYTES,
    FOUR_BYTES,
    LARGEST_COUNT,
    POINTER,
    far_pointer,
    frame,
    list_pointer,
    message,
    message_with,
    pointer_place,
    struct_pointer,
    tag,
    word_of,
)
from codec_samples import SAMPLES, any_member, examples, repetitions, sample
from hypothesis import given
from hypothesis import strategies as st

from scaler_protocol import MalformedMessageError, decode, decode_struct, encode, encode_struct
from scaler_protocol import messages as m
from scaler_protocol.wire.capnproto import SEGMENT_COUNT_LIMIT

CAPABILITY_POINTER = 3
NO_WORDS = [0] * 20


def malformed(data: Union[bytes, bytearray], why: str) -> None:
    """`data` is refused, and the reason names the fault and the place."""
    with pytest.raises(MalformedMessageError, match=why) as caught:
        decode(data)
    assert "byte" in str(caught.value) or "segments" in str(caught.value)


# --- the segment table ---


@pytest.mark.parametrize("size", range(8))
def test_shorter_than_a_segment_table(size: int) -> None:
    malformed(bytes(size), "too short")


@pytest.mark.parametrize("message", SAMPLES, ids=lambda message: type(message).__name__)
def test_cut_short_anywhere(message: Any) -> None:
    data = encode(message)
    for size in range(len(data)):
        malformed(data[:size], "too short|announced")


def test_longer_than_announced() -> None:
    malformed(encode(m.TaskCancel()) + b"\0", "announced")
    malformed(encode(m.TaskCancel()) * 2, "announced")


def test_announced_segments_that_are_not_there() -> None:
    malformed(struct.pack("<II", 0, 0xFFFFFFFF) + bytes(64), "announced")
    malformed(struct.pack("<4I", 2, 1, 1, 0xFFFFFFFF) + bytes(64), "announced")
    malformed(struct.pack("<4I", 2, 1, 1, 1) + bytes(16), "announced")
    malformed(struct.pack("<II", 100, 1), "too short")


def test_too_many_segments() -> None:
    malformed(frame(*[[0]] * (SEGMENT_COUNT_LIMIT + 1)), "segments")
    malformed(struct.pack("<II", 0xFFFFFFFF, 0), "segments")


def test_no_root_pointer() -> None:
    malformed(frame([]), "root")
    malformed(frame([], [0]), "root")


# --- pointers ---


@pytest.mark.parametrize("offset", [0, 1, 1000, 0x1FFFFFFF, -2, -3, -1000, -0x20000000])
def test_a_root_pointer_out_of_the_frame(offset: int) -> None:
    malformed(frame([struct_pointer(offset, 1, 1)]), "leaves segment 0")


def test_a_pointer_out_of_its_segment_into_the_next_one() -> None:
    words = message_with(m.TaskCancel, "ids", EIGHT_BYTES, 2, 1)
    malformed(frame(words, [2, 3]), "leaves segment 0")
    words = message_with(m.TaskCancel, "ids", EIGHT_BYTES, 2)
    words[-1] = list_pointer(1, EIGHT_BYTES, 1)
    malformed(frame(words, [2, 3]), "leaves segment 0")
    first = message(m.TaskCancel, 1, far_pointer(1, 0))
    malformed(frame(first, [list_pointer(-2, EIGHT_BYTES, 1)]), "leaves segment 1")


def test_a_struct_larger_than_the_frame() -> None:
    malformed(frame([struct_pointer(0, 0xFFFF, 0xFFFF), *NO_WORDS]), "leaves segment 0")
    words = message(m.TaskCancel, 0, 0)
    words[2] = struct_pointer(0, 0xFFFF, 0xFFFF)
    malformed(frame(words), "leaves segment 0")


def test_pointers_of_the_wrong_kind() -> None:
    malformed(frame([list_pointer(0, EIGHT_BYTES, 1), 0]), "list pointer, not a struct")
    malformed(frame([CAPABILITY_POINTER]), "capability pointer, not a struct")
    words = message_with(m.TaskCancel, "ids", EIGHT_BYTES, 1, 7)
    for wrong in (struct_pointer(0, 1, 0), CAPABILITY_POINTER, CAPABILITY_POINTER | 7 << 32):
        words[pointer_place(m.TaskCancel, "ids")] = wrong
        malformed(frame(words), "pointer, not a list pointer")


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 6, 7])
def test_a_column_with_elements_of_another_size(code: int) -> None:
    words = message_with(m.TaskCancel, "ids", code, 1, tag(1, 1, 0), 0)
    malformed(frame(words), "a column, but")


@pytest.mark.parametrize(
    ("member", "field", "code"),
    [
        (m.TaskCancelConfirm, "outcomes", FOUR_BYTES),
        (m.TaskCancelConfirm, "outcomes", POINTER),
        (m.TaskCancelConfirm, "outcomes", COMPOSITE),
        (m.TaskLog, "text", EIGHT_BYTES),
        (m.TaskLog, "text", POINTER),
        (m.Welcome, "scheduler_id", 1),
        (m.Hello, "codecs", BYTE),
        (m.Hello, "codecs", EIGHT_BYTES),
        (m.Hello, "capabilities", POINTER),
        (m.Hello, "capabilities", BYTE),
    ],
)
def test_a_list_with_elements_of_another_kind(member: Any, field: str, code: int) -> None:
    malformed(frame(message_with(member, field, code, 1, tag(1, 1, 0), 0)), "should lead to")


@pytest.mark.parametrize("code", range(8))
@pytest.mark.parametrize(
    ("member", "field"), [(m.Task, "ids"), (m.TaskLog, "text"), (m.Hello, "codecs"), (m.Heartbeat, "processors")]
)
def test_a_list_of_as_many_elements_as_a_pointer_can_say(member: Any, field: str, code: int) -> None:
    malformed(frame(message_with(member, field, code, LARGEST_COUNT, *NO_WORDS)), "leaves segment|should lead")


# --- text ---


def test_text_without_its_end() -> None:
    malformed(frame(message_with(m.TaskLog, "text", BYTE, 8, word_of(b"12345678"))), "NUL")
    malformed(frame(message_with(m.TaskLog, "text", BYTE, 0)), "NUL")


@pytest.mark.parametrize("content", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"ok\x80"])
def test_text_that_is_not_utf8(content: bytes) -> None:
    words = message_with(m.TaskLog, "text", BYTE, len(content) + 1, word_of(content))
    malformed(frame(words), "not UTF-8")


# --- lists of structs ---


@pytest.mark.parametrize("words", [0, 1, 3, LARGEST_COUNT])
def test_a_list_of_structs_beyond_its_segment(words: int) -> None:
    content = [tag(1, 4, 0)][: words + 1] if words else []
    malformed(frame(message_with(m.Heartbeat, "processors", COMPOSITE, words, *content)), "leaves segment 0")


def test_more_elements_than_the_list_has_room_for() -> None:
    for count in (2, 100, 0x3FFFFFFF):
        words = message_with(m.Heartbeat, "processors", COMPOSITE, 7, tag(count, 4, 0), *[0] * 7)
        malformed(frame(words), "too few")


@pytest.mark.parametrize("wrong", [1, 2, 3])
def test_a_list_of_structs_without_a_proper_tag(wrong: int) -> None:
    words = message_with(m.Heartbeat, "processors", COMPOSITE, 4, tag(1, 4, 0) | wrong, *[0] * 4)
    malformed(frame(words), "tag")


def test_structs_in_place_of_text_must_begin_with_text() -> None:
    for count, shape, content in ((1, (1, 0), [5]), (1, (0, 0), []), (0, (0, 0), [])):
        words = message_with(m.Hello, "codecs", COMPOSITE, len(content), tag(count, *shape), *content)
        malformed(frame(words), "stand for text and have no pointer")


# --- far pointers ---


@pytest.mark.parametrize("segment", [2, 3, 1000, 0xFFFFFFFF])
def test_a_far_pointer_to_a_segment_that_is_not_there(segment: int) -> None:
    malformed(frame([far_pointer(segment, 0)], [0]), f"segment {segment} of only 2")


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("word", [1, 2, LARGEST_COUNT])
def test_a_landing_pad_out_of_its_segment(double: bool, word: int) -> None:
    malformed(frame([far_pointer(1, word, double)], [0]), "landing pad .* leaves segment 1")


def test_a_double_landing_pad_that_is_cut() -> None:
    malformed(frame([far_pointer(1, 0, double=True)], [far_pointer(0, 0)]), "landing pad .* leaves segment 1")


def test_a_landing_pad_that_is_no_pointer_of_that_kind() -> None:
    for pad in (far_pointer(1, 0), CAPABILITY_POINTER, list_pointer(0, EIGHT_BYTES, 0)):
        malformed(frame([far_pointer(1, 0)], [pad]), "landing pad .* pointer, not a struct pointer")


def test_a_double_landing_pad_must_begin_with_a_single_far_pointer() -> None:
    for pad in (0, struct_pointer(0, 1, 1), far_pointer(1, 0, double=True), CAPABILITY_POINTER):
        malformed(frame([far_pointer(1, 0, double=True)], [pad, struct_pointer(0, 1, 1)]), "does not begin")


def test_content_of_a_double_far_pointer_out_of_its_segment() -> None:
    pad = [far_pointer(1, 1), struct_pointer(0, 1, 1)]
    malformed(frame([far_pointer(1, 0, double=True)], [*pad]), "leaves segment 1")
    pad = [far_pointer(1, 3), struct_pointer(0, 0, 0)]
    malformed(frame([far_pointer(1, 0, double=True)], [*pad]), "leaves segment 1")


@pytest.mark.parametrize("double", [False, True])
def test_far_pointers_in_a_circle(double: bool) -> None:
    circle = far_pointer(0, 0, double)
    malformed(frame([circle, circle]), "landing pad")


# --- more work than bytes ---


def test_one_long_text_that_many_pointers_share() -> None:
    text_words, pointers = 1000, 1000
    words = message_with(m.Hello, "codecs", POINTER, pointers)
    text_at = len(words) + pointers
    words += [list_pointer(text_at - at - 1, BYTE, 8 * text_words) for at in range(len(words), text_at)]
    words += [word_of(b"aaaaaaaa")] * (text_words - 1) + [word_of(b"aaaaaaa")]
    malformed(frame(words), "exceeds the read limit of a frame")


def test_one_list_of_structs_that_many_pointers_share() -> None:
    count = 1000
    words = message_with(m.SchedulerStatus, "new_workers", COMPOSITE, 4 * count, tag(count, 0, 4))
    list_at = len(words) + 4 * count
    for _ in range(count):  # name, host, implementation, capabilities: all the same ones
        words += [0, 0, 0, list_pointer(list_at - len(words) - 4, COMPOSITE, count)]
    words += [tag(count, 1, 0), *[0] * count]
    malformed(frame(words), "exceeds the read limit of a frame")


def test_one_large_struct_that_many_pointers_share() -> None:
    count, large = 1000, 5000
    words = message_with(m.SchedulerStatus, "new_workers", COMPOSITE, 4 * count, tag(count, 0, 4))
    implementation_at = len(words) + 4 * count
    for _ in range(count):
        words += [0, 0, struct_pointer(implementation_at - len(words) - 3, large, 0), 0]
    malformed(frame([*words, *[0] * large]), "exceeds the read limit of a frame")


@pytest.mark.parametrize("count", [2000, 10**6, 0x3FFFFFFF])
def test_a_multitude_of_structs_without_size(count: int) -> None:
    words = message_with(m.Heartbeat, "processors", COMPOSITE, 0, tag(count, 0, 0))
    malformed(frame(words), "exceeds the read limit of a frame")


def test_a_struct_that_contains_itself() -> None:
    # options -> the very Task; its capabilities -> a list that is the Task's own words
    words = message(m.Task, *[0] * (m.Task.DATA_WORDS + m.Task.POINTER_WORDS))
    at = pointer_place(m.Task, "options")
    words[at] = struct_pointer(3 - at - 1, 3, 9)
    assert decode(frame(words)) == m.Task(), "there is no way down from TaskOptions but its capabilities"
    words[at - 4] = list_pointer(-1, COMPOSITE, 4)
    with pytest.raises(MalformedMessageError):
        decode(frame(words))


def test_a_pointer_deep_as_the_frame_is_long() -> None:
    """Fields that we don't know are not followed, so no chain of pointers is longer than the schema is deep."""
    depth = 10_000
    chain = [struct_pointer(0, 0, 1)] * depth + [0]
    refusal = [struct_pointer(0, 1, 1), m.MEMBERS.index(m.Refusal), struct_pointer(0, 0, 3), 0, 0]
    assert decode(frame([*refusal, *chain])) == m.Refusal()
    lists = [list_pointer(0, POINTER, 1)] * depth + [0]
    hello = [struct_pointer(0, 1, 1), m.MEMBERS.index(m.Hello), struct_pointer(0, 0, 3), 0]
    malformed(frame([*hello, *lists]), "should lead to text")


@pytest.mark.skipif(sys.implementation.name == "pypy", reason="PyPy has no tracemalloc")
@pytest.mark.parametrize("count", [1000, 20_000])
def test_the_worst_frames_cost_memory_in_proportion_to_their_size(count: int) -> None:
    import tracemalloc

    # As many of the largest objects as the frame's size allows, none of which takes space in it.
    words = message_with(m.SchedulerStatus, "new_workers", COMPOSITE, 0, tag(2 * count, 0, 0), *[0] * count)
    data = frame(words)
    tracemalloc.start()
    try:
        decode(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 200 * len(data)


# --- anything at all ---


def decodes_or_is_refused(data: Union[bytes, bytearray]) -> Optional[m.Message]:
    """The message, which can be encoded again, or None when it is refused as malformed."""
    try:
        decoded = decode(data)
    except MalformedMessageError:
        return None
    if not isinstance(decoded, m.UnknownMessage):
        again = encode(decoded)
        assert encode(decode(again)) == again
    return decoded


@given(st.binary(max_size=200))
@examples(300)
def test_random_bytes(data: bytes) -> None:
    decodes_or_is_refused(data)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=20))
@examples(300)
def test_random_words(words: List[int]) -> None:
    decodes_or_is_refused(frame(words))


interesting_words = st.one_of(
    st.builds(struct_pointer, st.integers(-20, 20), st.integers(0, 9), st.integers(0, 9)),
    st.builds(list_pointer, st.integers(-20, 20), st.integers(0, 7), st.integers(0, 40)),
    st.builds(far_pointer, st.integers(0, 3), st.integers(0, 20), st.booleans()),
    st.sampled_from([0, 1, 2, 3, 2**32, 2**63, 2**64 - 1]),
    st.integers(0, 2**64 - 1),
)


@given(any_member, st.lists(st.tuples(st.integers(1), interesting_words), min_size=1, max_size=4))
@examples(500)
def test_messages_with_some_words_replaced(valid: Any, changes: List[Tuple[int, int]]) -> None:
    data = bytearray(encode(valid))
    for position, word in changes:
        start = 8 + position * 8 % (len(data) - 8)
        data[start : start + 8] = word.to_bytes(8, "little")
    decodes_or_is_refused(data)


@given(any_member, st.data())
@examples(300)
def test_messages_with_a_piece_cut_out_or_put_in(valid: Any, data: st.DataObject) -> None:
    content = encode(valid)
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, len(content)))
    inserted = data.draw(st.binary(max_size=24))
    changed = bytearray(content[:start] + inserted + content[end:])
    if len(changed) >= 8 and data.draw(st.booleans()):
        changed[:8] = struct.pack("<II", 0, (len(changed) - 8) // 8)
    decodes_or_is_refused(changed)


def test_fifty_thousand_messages_with_some_bits_flipped() -> None:
    generator = random.Random(20_260_101)
    frames = [bytearray(encode(each)) for each in SAMPLES]
    outcomes = {"decoded": 0, "refused": 0}
    for _ in range(repetitions(50_000)):
        data = bytearray(generator.choice(frames))
        for _ in range(generator.randint(1, 4)):
            data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        outcomes["refused" if decodes_or_is_refused(data) is None else "decoded"] += 1
    assert min(outcomes.values()) > repetitions(1000), f"the fuzzer tests one side only: {outcomes}"


def test_a_malformed_failure_payload_is_refused_as_well() -> None:
    data = encode_struct(sample(m.Failure))
    for size in range(len(data)):
        with pytest.raises(MalformedMessageError):
            decode_struct(m.Failure, data[:size])
    with pytest.raises(MalformedMessageError):
        decode_struct(m.Failure, frame([list_pointer(0, BYTE, 1), 0]))
