"""Small frames written and read by a remembered layout: never otherwise than the general way would.

Rule: the general way, `Writer` and `Reader`, is the reference here; other tests compare it with pycapnp.
"""

from __future__ import annotations

import random
import struct
from array import array
from typing import Any, Callable, List, Tuple, Type, Union

import pytest
from codec_assembler import BYTE, EIGHT_BYTES, list_pointer, struct_pointer
from codec_samples import examples, instances, repetitions
from hypothesis import given
from hypothesis import strategies as st

from scaler_protocol import InvalidFieldError, MalformedMessageError, decode, encode
from scaler_protocol import messages as m
from scaler_protocol.wire import codec
from scaler_protocol.wire.small_frames import (
    ARE_USED,
    LARGEST_BYTES,
    LARGEST_COUNT,
    DecodedTexts,
    EncodedTexts,
    LayoutsByPointers,
    LayoutsBySizes,
    SmallMessage,
)

SMALL: List[Type[Any]] = [member for member in m.MEMBERS if issubclass(member, SmallMessage)]
any_small: st.SearchStrategy[Any] = st.one_of([instances(member) for member in SMALL])
only_where_used = pytest.mark.skipif(not ARE_USED, reason="PyPy and big-endian machines take the general way")

OPTIONS_AT = 32 + 3 * 8 + 4 * 8  # the pointer to a Task's options, in bytes


def lone_task(**fields: Any) -> m.Task:
    return m.Task(ids=[1 << 20], payload_sizes=[16], function=5, codec="cloudpickle", attempt=1, **fields)


def lone_result(**fields: Any) -> m.TaskResult:
    return m.TaskResult(ids=[1 << 20], payload_sizes=[5], codec="cloudpickle", busy_microseconds=40, **fields)


def outcome(read: Callable[[bytes], Any], data: bytes) -> Tuple[str, Any]:
    """What reading gives: a message, or the text of the one error that is allowed."""
    try:
        return "message", read(data)
    except MalformedMessageError as error:
        return "refused", str(error)


def read_alike(data: Union[bytes, bytearray]) -> str:
    """Check that both ways read the same in `data`, twice, since the first time may teach a layout; say which kind."""
    content = bytes(data)
    expected = outcome(codec._decode_any, content)
    for _ in range(2):
        read = outcome(decode, content)
        assert read == expected or repr(read) == repr(expected)  # NaN, which a change may have made, equals nothing
    return expected[0]


def test_tasks_and_results_have_small_frames() -> None:
    assert [member.__name__ for member in SMALL] == ["Task", "TaskResult", "GraphTask", "GraphTaskResult"]


@given(any_small)
@examples(500)
def test_both_ways_write_the_same_bytes(message: Any) -> None:
    frame = codec._encode_any(message, codec._FORMS[type(message)])
    assert encode(message) == frame
    assert encode(message) == frame
    assert decode(frame) == message
    assert read_alike(frame) == "message"


@given(any_small, st.lists(st.tuples(st.integers(0), st.integers(0, 2**64 - 1)), min_size=1, max_size=4))
@examples(500)
def test_both_ways_read_the_same_in_frames_with_some_words_replaced(valid: Any, changes: List[Tuple[int, int]]) -> None:
    data = bytearray(encode(valid))
    for position, word in changes:
        start = position * 8 % len(data)
        data[start : start + 8] = word.to_bytes(8, "little")
    read_alike(data)


def test_both_ways_read_the_same_in_twenty_thousand_frames_with_some_bits_flipped() -> None:
    generator = random.Random(20_260_102)
    frames = [encode(each) for each in (lone_task(), lone_result(statuses=b"\1"), lone_task(function_name="f"))]
    counts = {"message": 0, "refused": 0}
    for _ in range(repetitions(20_000)):
        data = bytearray(generator.choice(frames))
        for _ in range(generator.randint(1, 3)):
            data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        counts[read_alike(data)] += 1
    assert min(counts.values()) > repetitions(1000), f"the fuzzer tests one side only: {counts}"


def replaced(data: bytes, at: int, content: bytes) -> bytes:
    return data[:at] + content + data[at + len(content) :]


TASK, RESULT = encode(lone_task()), encode(lone_result())


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (TASK + bytes(8), "refused"),
        (TASK[:-8], "refused"),
        (struct.pack("<II", 0, len(TASK) // 8) + TASK[8:] + bytes(8), "message"),  # a word that no pointer leads to
        (replaced(TASK, 0, b"\1"), "refused"),  # two segments
        (replaced(TASK, 8, bytes(8)), "message"),  # no root: the default of the union
        (replaced(TASK, 16, b"\x00\x01"), "message"),  # a member of a newer schema, with the same lower byte
        (replaced(TASK, 16, RESULT[16:17]), "refused"),
        (replaced(TASK, 24, bytes(8)), "message"),  # no member: the default
        (replaced(TASK, OPTIONS_AT, bytes(8)), "message"),  # no options
        (replaced(TASK, OPTIONS_AT, struct.pack("<Q", struct_pointer(8, 3, 1))), "message"),  # of an older schema
        (replaced(TASK, OPTIONS_AT, struct.pack("<Q", struct_pointer(8, 4, 2))), "refused"),  # too large by one word
        (replaced(TASK, OPTIONS_AT, struct.pack("<Q", struct_pointer(7, 4, 1))), "message"),  # other words
        (replaced(TASK, OPTIONS_AT + 8, struct.pack("<Q", list_pointer(0, BYTE, 0))), "refused"),  # bytes, no column
        (replaced(TASK, OPTIONS_AT + 16, struct.pack("<Q", list_pointer(0, EIGHT_BYTES, 0))), "message"),
        (replaced(TASK, len(TASK) - 8, struct.pack("<Q", list_pointer(0, 7, 0))), "refused"),  # capabilities
        (replaced(TASK, TASK.index(b"cloud"), b"\xff"), "refused"),  # not UTF-8
        (TASK.replace(b"cloudpickle\0", b"cloudpickle!"), "refused"),  # no NUL at the end
        (replaced(RESULT, len(RESULT) - 1, b"\1"), "message"),  # what pads contents is ignored
    ],
)
def test_a_frame_with_a_known_layout_but_for_one_thing_is_read_the_general_way(data: bytes, kind: str) -> None:
    decode(TASK), decode(RESULT)
    assert read_alike(data) == kind


@only_where_used
def test_a_known_layout_needs_neither_reader_nor_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "Reader", None)
    monkeypatch.setattr(codec, "Writer", None)
    for message in (lone_task(), lone_result(), lone_task(function_name="f", dependency_counts=[1], dependencies=[7])):
        assert decode(encode(message)) == message
    with pytest.raises(InvalidFieldError):
        encode(lone_task(options=m.TaskOptions(capabilities=[m.Capability(name="gpu")])))
    with pytest.raises(InvalidFieldError):
        encode(m.TaskResult(ids=range(LARGEST_COUNT + 1)))


def test_messages_of_one_layout_share_nothing_that_can_change() -> None:
    frame = encode(lone_task())
    first, second = decode(frame), decode(frame)
    assert isinstance(first, m.Task)
    for name in ("ids", "dependency_counts", "dependencies", "predecessor_counts", "predecessors"):
        getattr(first, name).append(9)
    first.options.priority = 3
    first.options.capabilities.append(m.Capability())
    assert second == decode(frame) == lone_task()
    made = m.Task()
    made.dependencies.append(9)
    assert m.Task().dependencies == array("Q")


def test_a_column_of_another_type_is_converted() -> None:
    task, result = lone_task(), lone_result()
    untyped: Any = task
    untyped.ids, untyped.payload_sizes = [1 << 20], array("Q", [16])
    assert encode(task) == TASK
    untyped = result
    untyped.ids = memoryview(array("Q", [1 << 20]))
    untyped.statuses = [0]
    assert encode(result) == encode(lone_result(statuses=b"\0"))


@pytest.mark.parametrize(("name", "value"), [("function", -1), ("codec", b"bytes"), ("codec", ["x"]), ("ids", [-1])])
def test_a_value_that_does_not_fit_is_named_with_its_field(name: str, value: Any) -> None:
    task = lone_task()
    setattr(task, name, value)
    with pytest.raises(InvalidFieldError, match=f"Task.{name}|column"):
        encode(task)


# SCL-SEC-005
def test_the_tables_are_bounded_and_hold_nothing_large() -> None:
    layouts = LayoutsBySizes(33, m.Task)
    by_pointers = LayoutsByPointers(layouts)
    encoded, decoded = EncodedTexts(), DecodedTexts()
    for number in range(2000):
        layouts[(8, 4, number % 100, number // 100, 32, 0, 0, 0, 0)]
        by_pointers[struct.pack("<9Q", *[number] * 9)]
        assert decoded[encoded[f"{number}"]] == f"{number}"
    assert 0 < len(layouts) <= 512
    assert 0 < len(by_pointers) <= 512
    assert 0 < len(encoded) <= 1024
    assert 0 < len(decoded) <= 1024
    assert layouts[(LARGEST_BYTES, 0, 0, 0, 0, 0, 0, 0, 0)] is None
    for text in ("x" * 200, "x" * 100_000):
        assert decoded[encoded[text]] == text
        assert text not in encoded
        assert encoded[text] not in decoded
        assert decode(encode(lone_task(function_name=text))) == lone_task(function_name=text)
