"""What a processor does with large results, and with arguments that are objects of their own."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any, List

import pytest
from forked_processor import ForkedProcessor

from scaler.serializer import Serializer
from scaler.values import payload as payloads
from scaler.worker import frames
from scaler.worker.frames import ContentPlace
from scaler_protocol import messages as m

# Objects --------------------------------------------------------------------------------------------------------------


def test_a_large_result_goes_to_a_file(processor: ForkedProcessor, tmp_path: Path) -> None:
    outcome = processor.call(bytes, 200_000)

    assert outcome.large
    size, path = frames.parse_large_result(outcome.payload)
    assert os.path.dirname(path) == str(tmp_path)
    assert os.path.getsize(path) == size
    with open(path, "rb") as file:
        assert payloads.load_value(file.read(), None) == bytes(200_000)


def test_a_large_result_that_cannot_be_written_fails_its_task(processor: ForkedProcessor, tmp_path: Path) -> None:
    processor.send(frames.object_directory_frame(str(tmp_path / "missing" / "new-")))

    assert processor.call(bytes, 200_000).failure.kind == m.FailureKind.RESULT_NOT_SERIALIZABLE
    processor.assert_nothing_more()


def reference(position_of_id: int) -> payloads.ObjectReference:
    return payloads.ObjectReference("", 0, position_of_id)


def with_references(*args: Any) -> bytes:
    references: List[payloads.ObjectReference] = []
    return payloads.join(payloads.dump_arguments(args, {}, None, references))


def test_references_become_the_objects_wherever_their_content_is(processor: ForkedProcessor, tmp_path: Path) -> None:
    (tmp_path / "content").write_bytes(payloads.join(payloads.dump([3, 4])))
    inline = processor.define(payloads.join(payloads.dump([1, 2])))
    in_file = processor.define(str(tmp_path / "content").encode(), place=ContentPlace.FILE)
    function = processor.define_function(lambda a, b, c: (a, b, c))

    content = with_references(reference(inline), "plain", reference(in_file))
    processor.send_payloads(function, [content, content], dependencies=[[inline, in_file]] * 2)

    assert [outcome.value for outcome in processor.outcomes(2)] == [([1, 2], "plain", [3, 4])] * 2


def test_arguments_that_are_an_object_themselves(processor: ForkedProcessor) -> None:
    value = processor.define(payloads.join(payloads.dump("the other")))
    arguments = processor.define(with_references("large", reference(value)))
    function = processor.define_function(lambda a, b: (a, b))

    processor.send_payloads(function, [payloads.BY_DEPENDENCY], dependencies=[[arguments, value]])

    assert processor.outcome().value == ("large", "the other")


def test_an_object_that_is_gone_fails_the_task(processor: ForkedProcessor, tmp_path: Path) -> None:
    dropped = processor.define(payloads.join(payloads.dump(1)))
    unlinked = processor.define(str(tmp_path / "nothing here").encode(), place=ContentPlace.FILE)
    processor.send(frames.drop_frame([dropped]))
    function = processor.define_function(lambda x: x)

    for object_id in (dropped, unlinked):
        processor.send_payloads(function, [with_references(reference(object_id))], dependencies=[[object_id]])

    assert [o.failure.kind for o in processor.outcomes(2)] == [m.FailureKind.OBJECT_MISSING] * 2


def test_an_array_is_a_view_of_the_file_and_not_a_copy(processor: ForkedProcessor, tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    path = tmp_path / "array"
    path.write_bytes(payloads.join(payloads.dump(numpy.arange(100_000))))
    array = processor.define(str(path).encode(), place=ContentPlace.FILE)
    function = processor.define_function(lambda a: (int(a.sum()), a.flags.owndata, a.flags.writeable))

    processor.send_payloads(function, [with_references(reference(array))], dependencies=[[array]])

    assert processor.outcome().value == (4999950000, False, False)


class Reversing(Serializer):
    @staticmethod
    def serialize(obj: Any) -> bytes:
        import cloudpickle

        return bytes(cloudpickle.dumps(obj))[::-1]

    @staticmethod
    def deserialize(payload: bytes) -> Any:
        return pickle.loads(payload[::-1])


def test_the_users_own_serializer_is_used_for_function_arguments_and_result(processor: ForkedProcessor) -> None:
    function = processor.define_function(lambda a, b: a + b, Reversing())
    content = payloads.join(payloads.dump_arguments((1,), {"b": 2}, Reversing(), []))
    processor.send_payloads(function, [content])

    outcome = processor.outcome()

    assert outcome.status == m.TaskStatus.SUCCESS
    assert payloads.load_value(outcome.payload, Reversing()) == 3
