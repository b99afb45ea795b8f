"""Encoding and decoding with this package on both sides: what goes in comes out, and what cannot is named."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from array import array
from typing import Any, List, Type

import pytest
from codec_samples import ALL_CLASSES, SAMPLES, any_member, any_struct, examples
from hypothesis import given
from hypothesis import strategies as st

import scaler_protocol
from scaler_protocol import InvalidFieldError, ProtocolError, decode, decode_struct, encode, encode_struct
from scaler_protocol import messages as m
from scaler_protocol.wire import capnproto as wire
from scaler_protocol.wire import codec, encoding_in_parts
from scaler_protocol.wire.capnproto import Struct


@given(any_member)
@examples(300)
def test_every_message_comes_back_as_it_went(message: Any) -> None:
    assert decode(encode(message)) == message


@given(any_member, st.integers(1, 200))
@examples(200)
def test_every_message_encoded_in_parts_is_the_same_frame(message: Any, part_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding_in_parts, "PART_BYTES", part_bytes)
        *parts, frame = codec.encode_in_parts(message)
    assert frame == encode(message) and not any(parts)


def test_a_part_of_a_message_has_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding_in_parts, "PART_BYTES", 1000)
    written: List[str] = []
    write_text = wire.Writer.text

    def count(writer: wire.Writer, value: str, at: int) -> int:
        written.append(value)
        return write_text(writer, value, at)

    monkeypatch.setattr(wire.Writer, "text", count)
    names = ["x" * 80] * 100 + ["y" * 2000] * 3
    status = m.SchedulerStatus(new_functions=[m.FunctionIdentity(number=1, name=name) for name in names])
    sizes = []
    for _ in codec.encode_in_parts(status):
        sizes.append(sum(map(len, written)))
        written.clear()
    assert sum(sizes) == sum(map(len, names)) and len(sizes) > 10
    assert max(sizes) <= 1000 + 2000, "a part, and the element that ends it"


def test_a_field_that_cannot_be_sent_in_parts_is_named() -> None:
    status = m.SchedulerStatus(new_functions=[m.FunctionIdentity(number=-1)])
    with pytest.raises(InvalidFieldError, match=r"SchedulerStatus\.new_functions cannot be sent"):
        list(codec.encode_in_parts(status))
    mixed: List[Any] = [m.FunctionIdentity(), m.WorkerIdentity()]
    with pytest.raises(InvalidFieldError, match="different classes"):
        list(codec.encode_in_parts(m.SchedulerStatus(new_functions=mixed)))
    no_message: Any = m.FunctionIdentity()
    with pytest.raises(InvalidFieldError, match="not a member"):
        list(codec.encode_in_parts(no_message))


@given(any_struct)
@examples(200)
def test_every_struct_comes_back_as_the_root_of_a_frame(value: Any) -> None:
    assert decode_struct(type(value), encode_struct(value)) == value


@pytest.mark.parametrize("message", SAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_with_all_fields_set_comes_back(message: Any) -> None:
    frame = encode(message)
    assert len(frame) % 8 == 0
    assert decode(frame) == message
    assert decode(bytearray(frame)) == message
    assert decode(memoryview(frame)) == message


@pytest.mark.parametrize("member", m.MEMBERS, ids=lambda member: member.__name__)
def test_a_message_of_defaults_comes_back(member: Any) -> None:
    assert decode(encode(member())) == member()


def test_a_decoded_message_has_the_documented_types() -> None:
    task = decode(encode(m.Task(ids=[1], payload_sizes=[2], dependency_counts=[3], dependencies=[4])))
    assert isinstance(task, m.Task)
    columns = task.ids, task.payload_sizes, task.dependency_counts, task.dependencies
    assert [(type(column), column.typecode) for column in columns] == [(array, code) for code in "QIHQ"]
    result = decode(encode(m.TaskResult(statuses=[m.TaskStatus.SUCCESS, m.TaskStatus.LOST])))
    assert isinstance(result, m.TaskResult)
    assert result.statuses == b"\0\3"
    hello = decode(encode(m.Hello(role=m.Role.WORKER, codecs=("json",))))
    assert isinstance(hello, m.Hello)
    assert hello.role is m.Role.WORKER
    assert hello.codecs == ["json"]
    assert hello.implementation == m.Implementation()


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, 3],
        (1, 2, 3),
        range(1, 4),
        b"\1\2\3",
        bytearray(b"\1\2\3"),
        memoryview(b"\1\2\3"),
        array("B", [1, 2, 3]),
        array("I", [1, 2, 3]),
        array("Q", [1, 2, 3]),
        memoryview(array("Q", [0, 1, 2, 3]))[1:],
        memoryview(array("Q", [1, 0, 2, 0, 3]))[::2],
    ],
    ids=lambda values: type(values).__name__,
)
def test_any_sequence_of_numbers_makes_a_column(values: Any) -> None:
    message = m.TaskResult(ids=values, statuses=values, payload_sizes=values)
    assert message.ids == array("Q", [1, 2, 3])
    assert message.statuses == b"\1\2\3"
    assert message.payload_sizes == array("I", [1, 2, 3])
    assigned = m.TaskResult()
    assigned.ids, assigned.statuses, assigned.payload_sizes = values, values, values  # against the annotation
    assert decode(encode(assigned)) == message


def test_an_array_of_the_right_type_is_not_copied() -> None:
    ids = array("Q", [1, 2])
    assert m.Task(ids=ids).ids is ids


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 9, 1000])
def test_columns_of_any_length_are_padded_to_words(count: int) -> None:
    message = m.Task(
        ids=range(count), payload_sizes=range(count), dependency_counts=range(count), function_name="x" * count
    )
    assert decode(encode(message)) == message
    result = m.TaskResult(statuses=bytes(count))
    assert decode(encode(result)) == result


def test_numbers_are_little_endian_on_the_wire_whatever_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    message = m.Task(ids=[1, 2**63], payload_sizes=[7])
    frame = encode(message)
    swapped = m.Task(ids=[1 << 56, 128], payload_sizes=[7 << 24])
    monkeypatch.setattr(wire, "_BIG_ENDIAN", not wire._BIG_ENDIAN)
    forms = {member: form._replace(small=None) for member, form in codec._FORMS.items()}
    monkeypatch.setattr(codec, "_FORMS", forms)  # the layouts of small frames are for little-endian machines
    monkeypatch.setattr(codec, "LARGEST_BYTES", 0)
    # This machine's bytes now count as those of the other kind: columns are swapped on the way out and in.
    assert encode(swapped) == frame
    assert decode(frame) == swapped
    assert swapped.ids == array("Q", [1 << 56, 128]), "the sender's own column stays as it was"


def test_an_unknown_enum_value_stays_a_number() -> None:
    refusal = decode(encode(m.Refusal(reason=999)))
    assert isinstance(refusal, m.Refusal)
    assert refusal.reason == 999
    assert not isinstance(refusal.reason, m.RefusalReason)


def test_an_unknown_member_of_the_union_is_named_by_its_number() -> None:
    newer = bytearray(encode(m.Task(ids=[1])))
    newer[16:18] = (999).to_bytes(2, "little")
    assert decode(newer) == m.UnknownMessage(999)


def test_text_without_utf8_form_is_escaped_rather_than_lost() -> None:
    failure = decode_struct(m.Failure, encode_struct(m.Failure(message="caf\udce9")))
    assert failure.message == "caf\\udce9"


def test_text_may_contain_nul() -> None:
    log = m.TaskLog(text="a\0b\0")
    assert decode(encode(log)) == log


untyped: Any = m
"""For values that type checkers refuse as well."""


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (lambda: untyped.Heartbeat(queued=-1), "Heartbeat.queued"),
        (lambda: untyped.Heartbeat(sequence=2**64), "Heartbeat.sequence"),
        (lambda: untyped.Refusal(reason=2**16), "Refusal.reason"),
        (lambda: untyped.TaskLog(text=b"bytes"), "TaskLog.text"),
        (lambda: untyped.TaskLog(id="7"), "TaskLog.id"),
        (lambda: untyped.Hello(codecs=[1]), "Hello.codecs"),
        (lambda: untyped.Hello(capabilities=[untyped.Capability(amount="many")]), "Hello.capabilities"),
        (lambda: untyped.Hello(capabilities=[untyped.Capability(), untyped.Limits()]), "Hello.capabilities"),
        (lambda: untyped.Task(options="fast"), "Task.options"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_field(message: Any, field: str) -> None:
    with pytest.raises(InvalidFieldError, match=field):
        encode(message())


@pytest.mark.parametrize("values", [[-1], [2**64], ["1"], [1.5], 7, [None]])
def test_a_column_takes_only_numbers_that_fit(values: Any) -> None:
    with pytest.raises(InvalidFieldError, match="column"):
        m.Task(ids=values)


@pytest.mark.parametrize("values", [[-1], [256], ["1"], 7, array("I", [256]), memoryview(array("I", [256]))])
def test_a_column_of_bytes_takes_only_bytes(values: Any) -> None:
    with pytest.raises(InvalidFieldError, match="bytes"):
        m.TaskResult(statuses=values)


def test_a_message_too_long_for_the_format_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_SEGMENT_WORDS_LIMIT", 100)  # the real limit is 4 GiB
    with pytest.raises(InvalidFieldError, match=r"TaskCancel.* cannot be sent: .* bytes does not fit"):
        encode(m.TaskCancel(ids=range(100)))


@pytest.mark.parametrize("value", [m.Implementation(), m.UnknownMessage(40), None, b"bytes"])
def test_only_members_of_the_union_are_messages(value: Any) -> None:
    with pytest.raises(InvalidFieldError, match=type(value).__name__):
        encode(value)


def test_messages_are_compared_by_class_and_content() -> None:
    assert m.DisconnectResponse() == m.DisconnectResponse()
    assert m.DisconnectResponse() != m.ClientShutdown()
    assert m.TaskCancel(ids=[1]) != m.TaskCancel(ids=[2])
    assert m.TaskCancel(ids=[1]) != "TaskCancel"
    with pytest.raises(TypeError, match="unhashable"):
        hash(m.TaskCancel())


def test_messages_have_no_other_fields() -> None:
    with pytest.raises(AttributeError):
        untyped.TaskCancel().idz = [1]
    with pytest.raises(TypeError):
        untyped.TaskCancel([1])


def test_defaults_are_not_shared() -> None:
    first, second = m.Hello(), m.Hello()
    first.codecs.append("json")
    first.implementation.name = "first"
    assert second == m.Hello()


def test_a_batch_is_shown_in_one_short_line() -> None:
    shown = repr(m.Task(ids=range(100_000), codec="cloudpickle", function_name="x" * 10_000))
    assert "array of 100000" in shown
    assert "codec='cloudpickle'" in shown
    assert len(shown) < 1000


@pytest.mark.parametrize("struct_class", ALL_CLASSES, ids=lambda each: each.__name__)
def test_messages_can_be_copied_and_pickled(struct_class: Type[Struct]) -> None:
    value = struct_class()
    assert copy.deepcopy(value) == value
    assert pickle.loads(pickle.dumps(value)) == value


def test_both_named_errors_are_protocol_errors() -> None:
    assert issubclass(scaler_protocol.MalformedMessageError, ProtocolError)
    assert issubclass(InvalidFieldError, ProtocolError)
    assert (scaler_protocol.PROTOCOL_MAJOR, scaler_protocol.PROTOCOL_MINOR_MIN) == (1, 0)


DROP_MESSAGES = """
from scaler_protocol import decode, encode, messages

frame = encode(messages.BalanceResponse(request_id=1, ids=range(5)))

def drop(count):
    for _ in range(count):
        decode(frame)

for _ in range(5):
    drop(20_000)
assert decode(frame) == messages.BalanceResponse(request_id=1, ids=range(5))
"""


def test_decoded_messages_may_be_dropped_at_once() -> None:
    """A regression of PyPy 7.3.11, where this loop corrupted the heap: see `wire.column_from_bytes`.

    It takes a process of its own, whose compiler has seen nothing else.
    """
    done = subprocess.run([sys.executable, "-c", DROP_MESSAGES], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
