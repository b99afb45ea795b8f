"""Well-formed frames that this package's writer never makes: other peers' writers may."""

from __future__ import annotations

from typing import List, Tuple

import pytest
from codec_assembler import (
    BYTE,
    COMPOSITE,
    EIGHT_BYTES,
    POINTER,
    far_pointer,
    float_word,
    frame,
    list_pointer,
    message,
    message_with,
    pointer_place,
    struct_pointer,
    tag,
    word_of,
)

from scaler_protocol import decode, decode_struct
from scaler_protocol import messages as m

TASK_CANCEL = m.MEMBERS.index(m.TaskCancel)


def test_a_near_pointer_may_point_backwards() -> None:
    # root -> word 3 (the union) -> word 1 (TaskCancel: force, ids) -> word 5 (a number)
    words = [struct_pointer(2, 1, 1), 1, list_pointer(2, EIGHT_BYTES, 1), TASK_CANCEL, struct_pointer(-4, 1, 1), 7]
    assert decode(frame(words)) == m.TaskCancel(ids=[7], force=True)


def test_a_far_pointer_leads_to_a_pointer_in_another_segment() -> None:
    first = message(m.TaskCancel, 1, far_pointer(1, 2))
    second = [10, 11, list_pointer(-3, EIGHT_BYTES, 2)]
    assert decode(frame(first, second)) == m.TaskCancel(ids=[10, 11], force=True)


def test_a_far_pointer_may_stay_in_its_own_segment() -> None:
    words = message(m.TaskCancel, 1, far_pointer(0, 5), list_pointer(0, EIGHT_BYTES, 1), 10)
    assert decode(frame(words)) == m.TaskCancel(ids=[10], force=True)


def test_a_double_far_pointer_leads_to_content_in_a_third_segment() -> None:
    first = message(m.TaskCancel, 1, far_pointer(1, 1, double=True))
    second = [0, far_pointer(2, 1), list_pointer(0, EIGHT_BYTES, 2)]
    third = [99, 10, 11]
    assert decode(frame(first, second, third)) == m.TaskCancel(ids=[10, 11], force=True)


def test_the_root_pointer_itself_may_be_far() -> None:
    body = [struct_pointer(0, 1, 1), TASK_CANCEL, struct_pointer(0, 1, 1), 1, list_pointer(0, EIGHT_BYTES, 1), 7]
    expected = m.TaskCancel(ids=[7], force=True)
    assert decode(frame([far_pointer(1, 0)], body)) == expected
    assert decode(frame([far_pointer(1, 0, double=True)], [far_pointer(2, 0), body[0]], body[1:])) == expected


def test_texts_and_structs_are_found_across_segments() -> None:
    first = message(m.Hello, *[0] * (m.Hello.DATA_WORDS + m.Hello.POINTER_WORDS))
    first[pointer_place(m.Hello, "codecs")] = far_pointer(1, 0)
    first[pointer_place(m.Hello, "capabilities")] = far_pointer(2, 0, double=True)
    second = [list_pointer(0, POINTER, 2), far_pointer(3, 0), 0]
    third = [far_pointer(3, 2), list_pointer(0, COMPOSITE, 4)]
    fourth = [list_pointer(0, BYTE, 5), word_of(b"json"), tag(2, 1, 1)]
    fourth += [float_word(4.0), list_pointer(2, BYTE, 4), 0, 0, word_of(b"gpu")]
    capabilities = [m.Capability(name="gpu", amount=4.0), m.Capability()]
    assert decode(frame(first, second, third, fourth)) == m.Hello(codecs=["json", ""], capabilities=capabilities)


def test_null_is_the_default_everywhere() -> None:
    assert decode(frame([0])) == m.Hello(), "a null root is a message of defaults"
    assert decode(frame([struct_pointer(0, 1, 1), TASK_CANCEL, 0])) == m.TaskCancel()
    assert decode(frame(message(m.Task, *[0] * (m.Task.DATA_WORDS + m.Task.POINTER_WORDS)))) == m.Task()
    assert decode_struct(m.Failure, frame([0])) == m.Failure()


def test_a_struct_without_any_words_is_one_of_defaults() -> None:
    assert decode(frame([struct_pointer(-1, 0, 0)])) == m.Hello()
    assert decode(frame([struct_pointer(0, 1, 1), TASK_CANCEL, struct_pointer(-1, 0, 0)])) == m.TaskCancel()
    assert decode(frame([struct_pointer(0, 1, 0), TASK_CANCEL])) == m.TaskCancel()


@pytest.mark.parametrize(
    ("shape", "content"),
    [((1, 0), [7, 8]), ((7, 1), [7, *[0] * 5, 99, struct_pointer(100, 3, 3), 8, *[0] * 5, 99, 0])],
    ids=["an older peer's", "a newer peer's"],
)
def test_elements_of_another_size_are_cut_or_filled_up(shape: Tuple[int, int], content: List[int]) -> None:
    words = message_with(m.Heartbeat, "processors", COMPOSITE, len(content), tag(2, *shape), *content)
    expected = [m.ProcessorStatus(process_id=7), m.ProcessorStatus(process_id=8)]
    assert decode(frame(words)) == m.Heartbeat(processors=expected), "newer fields are not even looked at"


def test_elements_without_any_words_are_defaults() -> None:
    words = message_with(m.Heartbeat, "processors", COMPOSITE, 0, tag(1000, 0, 0))
    assert decode(frame(words)) == m.Heartbeat(processors=[m.ProcessorStatus() for _ in range(1000)])


def test_a_list_of_structs_may_have_words_to_spare() -> None:
    words = message_with(m.Heartbeat, "processors", COMPOSITE, 3, tag(1, 1, 0), 7, 1, 2)
    assert decode(frame(words)) == m.Heartbeat(processors=[m.ProcessorStatus(process_id=7)])


def test_a_list_of_text_may_have_become_one_of_structs() -> None:
    elements = [5, list_pointer(2, BYTE, 5), 6, 0, word_of(b"json")]
    words = message_with(m.Hello, "codecs", COMPOSITE, 4, tag(2, 1, 1), *elements)
    assert decode(frame(words)) == m.Hello(codecs=["json", ""])


def test_empty_lists_need_not_be_null() -> None:
    assert decode(frame(message_with(m.TaskCancel, "ids", EIGHT_BYTES, 0))) == m.TaskCancel()
    empty = message_with(m.Heartbeat, "processors", COMPOSITE, 0, tag(0, 4, 0))
    assert decode(frame(empty)) == m.Heartbeat()
    assert decode(frame(message_with(m.TaskLog, "text", BYTE, 1, 0))) == m.TaskLog()


def test_unused_words_and_segments_are_skipped() -> None:
    words = message(m.TaskCancel, 1, list_pointer(2, EIGHT_BYTES, 1), 98, 99, 7, 97)
    assert decode(frame(words, [1, 2, 3], [])) == m.TaskCancel(ids=[7], force=True)


def test_two_pointers_may_share_their_content() -> None:
    # Wasteful, and no writer we know does it; each word may be visited twice.
    words = message_with(m.TaskResult, "ids", EIGHT_BYTES, 2, 5, 6)
    objects = pointer_place(m.TaskResult, "objects")
    words[objects] = list_pointer(len(words) - 2 - objects - 1, EIGHT_BYTES, 2)
    assert decode(frame(words)) == m.TaskResult(ids=[5, 6], objects=[5, 6])


@pytest.mark.parametrize("size", [2, 3, 4, 5, 511, 512])
def test_many_segments_are_fine(size: int) -> None:
    segments: List[List[int]] = [[] for _ in range(size - 1)]
    segments[0] = message(m.TaskCancel, 1, far_pointer(size - 1, 0))
    assert decode(frame(*segments, [list_pointer(0, EIGHT_BYTES, 1), 7])) == m.TaskCancel(ids=[7], force=True)
