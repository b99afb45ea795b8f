"""A processor, forked for real, with the test in the agent's place at the other end of the socket pair."""

from __future__ import annotations

import os
import pickle
import random
import signal
import sys
import threading
import time
from typing import Any

import pytest

from scaler import blocking
from scaler import payload as payloads
from scaler.exceptions import DeserializeObjectError, ResultNotSerializableError
from scaler.serializer import Serializer
from scaler.worker import frames
from scaler.worker.frames import Kind, Place, TasksFlag
from scaler.worker.processor import current
from scaler_protocol import messages as m

# Ordinary tasks -------------------------------------------------------------------------------------------------------


def test_outcomes_come_in_the_order_of_the_chunk(processor):
    function = processor.define_function(lambda x: x * 2)
    first = processor.send_calls(function, *[(i,) for i in range(500)])

    outcomes = processor.outcomes(500)

    assert [outcome.position for outcome in outcomes] == list(range(first, first + 500))
    assert [outcome.value for outcome in outcomes] == [i * 2 for i in range(500)]
    processor.assert_nothing_more()


def test_arguments_of_every_form_reach_the_function(processor):
    def describe(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    function = processor.define_function(describe)
    named = pickle.dumps([(1,), {"key": [2]}], 5)
    processor.send_payloads(function, [b"", pickle.dumps((1, "two"), 5), named])

    values = [outcome.value for outcome in processor.outcomes(3)]

    assert values == [((), {}), ((1, "two"), {}), ((1,), {"key": [2]})]


@pytest.mark.parametrize("value", [None, True, 3, 2.5, 1j, "text", b"bytes", [1, {2}], {"a": (None,)}])
def test_results_of_every_type_come_back(processor, value):
    assert processor.call(lambda: value).value == value


def test_the_processor_measures_how_long_it_was_busy(processor):
    function = processor.define_function(time.sleep)
    processor.send_calls(function, (0.01,))

    results, _ = processor.receive_results()

    assert results.busy_microseconds >= 10_000


# Failures -------------------------------------------------------------------------------------------------------------


def test_an_exception_of_the_function_is_its_outcome_and_the_others_run(processor):
    function = processor.define_function(lambda x: 1 // x)
    processor.send_calls(function, (1,), (0,), (-1,))

    good, bad, other = processor.outcomes(3)

    assert (good.value, other.value) == (1, -1)
    assert bad.status == m.TaskStatus.FAILED
    assert bad.failure.kind == m.FailureKind.TASK_RAISED
    assert bad.failure.worker == "processor under test"
    assert "<lambda>" in bad.failure.traceback
    assert "chunk_runner" not in bad.failure.traceback
    assert isinstance(bad.exception, ZeroDivisionError)


def test_a_function_that_does_not_load_fails_each_of_its_tasks(processor):
    function = processor.define(b"\x80\x05this is no pickle", m.ObjectKind.FUNCTION)
    processor.send_calls(function, (1,), (2,))
    processor.send_calls(function, (3,))

    outcomes = processor.outcomes(3)

    assert [outcome.failure.kind for outcome in outcomes] == [m.FailureKind.FUNCTION_NOT_LOADED] * 3
    assert isinstance(outcomes[0].exception, DeserializeObjectError)
    processor.assert_nothing_more()


def test_a_function_that_does_not_load_is_tried_once(processor, tmp_path):
    def load(path: str) -> None:
        with open(path, "a") as file:
            file.write("tried\n")
        raise ImportError("no module of that name here")

    class Function:
        def __reduce__(self) -> Any:
            return load, (str(tmp_path / "tries"),)

    function = processor.define(payloads.join(payloads.dump(Function())), m.ObjectKind.FUNCTION)
    processor.send_calls(function, (1,), (2,))
    processor.send_calls(function, (3,))

    assert "no module of that name" in processor.outcomes(3)[2].failure.message
    assert (tmp_path / "tries").read_text() == "tried\n"


def test_arguments_that_do_not_load_fail_their_task_only(processor):
    function = processor.define_function(lambda x: x)
    processor.send_payloads(function, [pickle.dumps((1,), 5), b"\x80\x05garbage", b"\xffgarbage", pickle.dumps((2,), 5)])

    first, bad, worse, last = processor.outcomes(4)

    assert (first.value, last.value) == (1, 2)
    assert bad.failure.kind == worse.failure.kind == m.FailureKind.ARGUMENT_NOT_LOADED


def test_a_result_that_cannot_be_pickled_fails_its_task(processor):
    outcome = processor.call(threading.Lock)

    assert outcome.failure.kind == m.FailureKind.RESULT_NOT_SERIALIZABLE
    assert isinstance(outcome.exception, ResultNotSerializableError)


def test_an_exception_that_cannot_be_pickled_is_described(processor):
    def fail() -> None:
        error = RuntimeError("it holds a lock")
        error.lock = threading.Lock()  # type: ignore[attr-defined]
        raise error

    outcome = processor.call(fail)

    assert outcome.failure.kind == m.FailureKind.EXCEPTION_NOT_SERIALIZABLE
    assert "it holds a lock" in outcome.failure.message
    assert "RuntimeError" in outcome.failure.traceback


def test_an_exception_that_cannot_be_unpickled_is_described(processor):
    class NeedsTwo(Exception):
        def __init__(self, one: str, two: str) -> None:
            super().__init__(f"{one} and {two}")

    def fail() -> None:
        raise NeedsTwo("this", "that")

    outcome = processor.call(fail)

    assert outcome.failure.kind == m.FailureKind.EXCEPTION_NOT_SERIALIZABLE
    assert "this and that" in outcome.failure.message


def test_an_exception_too_large_to_travel_inline_is_described(processor):
    def fail() -> None:
        raise ValueError("x" * 100_000)

    outcome = processor.call(fail)

    assert outcome.failure.kind == m.FailureKind.EXCEPTION_NOT_SERIALIZABLE
    assert "ValueError" in outcome.failure.message
    assert len(outcome.payload) < payloads.INLINE_BYTES


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_what_would_end_a_process_ends_the_task_only(processor, error):
    def fail() -> None:
        raise error

    outcome = processor.call(fail)

    assert type(outcome.exception) is type(error)
    processor.assert_nothing_more()


def test_endless_recursion_ends_the_task_only(processor):
    def recurse() -> Any:
        return recurse()

    assert isinstance(processor.call(recurse).exception, RecursionError)
    processor.assert_nothing_more()


def test_the_attempt_is_part_of_the_failure(processor):
    function = processor.define_function(lambda: 1 // 0)
    processor.send_payloads(function, [b""], attempt=3)

    assert processor.outcome().failure.attempts == 3


# Ends -----------------------------------------------------------------------------------------------------------------


def test_exiting_hard_ends_the_processor_and_the_page_names_the_task(processor, finished_bit):
    def step(exits: bool) -> None:
        if exits:
            os._exit(5)

    function = processor.define_function(step)
    first = processor.send_calls(function, (False,), (False,), (True,), (False,))

    while processor.receive() is not None:
        pass

    assert os.WEXITSTATUS(processor.wait_for_end()) == 5
    assert processor.progress[0] == first + 2
    assert not processor.progress[0] & finished_bit


def test_a_killed_idle_processor_had_finished_its_task(processor, finished_bit):
    assert processor.call(lambda: 1).value == 1
    os.kill(processor.process_id, signal.SIGKILL)

    assert processor.receive() is None
    assert os.WTERMSIG(processor.wait_for_end()) == signal.SIGKILL
    assert processor.progress[0] == 1 | finished_bit


def test_the_processor_ends_with_its_agent(processor):
    assert processor.call(lambda: 1).value == 1
    processor.stream.close()

    assert processor.wait_for_end() == 0


def test_the_processor_ends_when_told(processor):
    processor.send(frames.signal_frame(Kind.STOP))

    assert processor.receive() is None
    assert processor.wait_for_end() == 0


# Long tasks hold nobody back ------------------------------------------------------------------------------------------


def waits_at(gate: int) -> Any:
    """A function that waits at the gate when it is told to."""

    def step(wait: bool) -> str:
        if wait:
            os.read(gate, 1)
            return "waited"
        return "did not wait"

    return step


def test_a_long_task_gives_back_the_tasks_behind_it_and_holds_back_no_result(processor):
    function = processor.define_function(waits_at(processor.gate_reader))
    first = processor.send_calls(function, (False,), (False,), (True,), (False,), (False,))

    results, outcomes = processor.receive_results()
    assert [outcome.position for outcome in outcomes] == [first, first + 1]
    assert processor.given_back() == [(first + 3, 2)]
    processor.send(frames.signal_frame(Kind.SETTLED))
    processor.open_gate()

    outcome = processor.outcome()
    assert (outcome.position, outcome.value) == (first + 2, "waited")
    processor.assert_nothing_more()


def test_a_long_task_gives_back_the_chunk_queued_behind_its_own(processor):
    function = processor.define_function(waits_at(processor.gate_reader))
    first = processor.send_calls(function, (True,), (False,))
    second = processor.send_calls(function, (False,), (False,), (False,))

    assert processor.given_back() == [(first + 1, 1)]
    assert processor.given_back() == [(second, 3)]
    processor.send(frames.signal_frame(Kind.SETTLED))
    processor.send(frames.signal_frame(Kind.SETTLED))
    processor.open_gate()

    assert processor.outcome().position == first
    processor.assert_nothing_more()


def test_what_arrives_before_all_is_settled_is_given_back_too(processor):
    function = processor.define_function(waits_at(processor.gate_reader))
    first = processor.send_calls(function, (True,), (False,))
    assert processor.given_back() == [(first + 1, 1)]

    late_function = processor.define_function(lambda: "late")
    late = processor.send_calls(late_function, (), ())
    assert processor.given_back() == [(late, 2)]
    processor.send(frames.signal_frame(Kind.SETTLED))
    processor.send(frames.signal_frame(Kind.SETTLED))
    processor.open_gate()
    assert processor.outcome().position == first

    processor.send_calls(late_function, ())  # its definition was not lost with the tasks
    assert processor.outcome().value == "late"


def test_a_chunk_of_one_task_is_not_watched(processor):
    function = processor.define_function(time.sleep)
    processor.send_calls(function, (0.2,))

    assert processor.outcome().value is None
    processor.assert_nothing_more()


def test_each_task_is_either_run_or_given_back(processor):
    pause = random.Random(7)
    pauses = [[pause.choice([0, 0, 0, 0.015, 0.03]) for _ in range(20)] for _ in range(12)]
    function = processor.define_function(time.sleep)
    expected = set()
    for chunk in pauses:
        first = processor.send_calls(function, *[(seconds,) for seconds in chunk])
        expected |= set(range(first, first + len(chunk)))

    seen = []
    while len(seen) < len(expected):
        frame = processor.receive()
        if frame.kind == Kind.RESULTS:
            results = frames.parse_results(frame.flags, frame.body)
            seen += range(results.first_position, results.first_position + len(results.sizes))
        else:
            assert frame.kind == Kind.GIVEN_BACK
            for first, count in frames.parse_given_back(frame.body):
                seen += range(first, first + count)
            processor.send(frames.signal_frame(Kind.SETTLED))

    assert sorted(seen) == sorted(expected)
    processor.assert_nothing_more()


def test_a_task_about_to_wait_for_others_frees_everything_at_once(processor):
    def wait_for_others(waits: bool) -> Any:
        if waits:
            with blocking.announced(), blocking.announced():
                os.read(gate, 1)
        return waits

    gate = processor.gate_reader
    first = processor.send_calls(processor.define_function(wait_for_others), (False,), (True,), (False,))

    assert [outcome.position for outcome in processor.outcomes(1)] == [first]
    assert processor.given_back() == [(first + 2, 1)]
    processor.receive_kind(Kind.BLOCKED)
    processor.send(frames.signal_frame(Kind.SETTLED))
    processor.open_gate()
    processor.receive_kind(Kind.RESUMED)
    assert processor.outcome().position == first + 1
    processor.assert_nothing_more()


def test_a_lone_task_about_to_wait_says_so_and_takes_its_slot_back(processor):
    def wait_for_others() -> int:
        with blocking.announced():
            os.read(gate, 1)
        return current().current_instance

    gate = processor.gate_reader
    position = processor.send_calls(processor.define_function(wait_for_others), ())

    processor.receive_kind(Kind.BLOCKED)
    processor.open_gate()
    processor.receive_kind(Kind.RESUMED)
    assert processor.outcome().value == 1000 + position
    processor.assert_nothing_more()


def test_threads_that_a_task_left_waiting_do_not_keep_its_slot(processor):
    def leave_thread() -> None:
        def wait() -> None:
            with blocking.announced():
                said.set()
                os.read(gate, 1)

        said = threading.Event()
        threading.Thread(target=wait, daemon=True).start()
        said.wait()

    gate = processor.gate_reader
    processor.send_calls(processor.define_function(leave_thread), ())

    processor.receive_kind(Kind.BLOCKED)
    assert processor.outcome().value is None
    processor.receive_kind(Kind.RESUMED)
    processor.open_gate()
    processor.assert_nothing_more()


# Objects --------------------------------------------------------------------------------------------------------------


def test_a_large_result_goes_to_a_file(processor, tmp_path):
    outcome = processor.call(bytes, 200_000)

    assert outcome.large
    size, path = frames.parse_large_result(outcome.payload)
    assert os.path.dirname(path) == str(tmp_path)
    assert os.path.getsize(path) == size
    with open(path, "rb") as file:
        assert payloads.load_value(file.read(), None) == bytes(200_000)


def test_a_large_result_that_cannot_be_written_fails_its_task(processor, tmp_path):
    processor.send(frames.object_directory_frame(str(tmp_path / "missing" / "new-")))

    assert processor.call(bytes, 200_000).failure.kind == m.FailureKind.RESULT_NOT_SERIALIZABLE
    processor.assert_nothing_more()


def reference(position_of_id: int) -> payloads.ObjectReference:
    return payloads.ObjectReference("", 0, position_of_id)


def with_references(*args: Any) -> bytes:
    references: list = []
    return payloads.join(payloads.dump_arguments(args, {}, None, references))


def test_references_become_the_objects_wherever_their_content_is(processor, tmp_path):
    (tmp_path / "content").write_bytes(payloads.join(payloads.dump([3, 4])))
    inline = processor.define(payloads.join(payloads.dump([1, 2])))
    in_file = processor.define(str(tmp_path / "content").encode(), place=Place.FILE)
    function = processor.define_function(lambda a, b, c: (a, b, c))

    content = with_references(reference(inline), "plain", reference(in_file))
    processor.send_payloads(function, [content, content], dependencies=[[inline, in_file]] * 2)

    assert [outcome.value for outcome in processor.outcomes(2)] == [([1, 2], "plain", [3, 4])] * 2


def test_arguments_that_are_an_object_themselves(processor):
    value = processor.define(payloads.join(payloads.dump("the other")))
    arguments = processor.define(with_references("large", reference(value)))
    function = processor.define_function(lambda a, b: (a, b))

    processor.send_payloads(function, [payloads.BY_DEPENDENCY], dependencies=[[arguments, value]])

    assert processor.outcome().value == ("large", "the other")


def test_an_object_that_is_gone_fails_the_task(processor, tmp_path):
    dropped = processor.define(payloads.join(payloads.dump(1)))
    unlinked = processor.define(str(tmp_path / "nothing here").encode(), place=Place.FILE)
    processor.send(frames.drop_frame([dropped]))
    function = processor.define_function(lambda x: x)

    for object_id in (dropped, unlinked):
        processor.send_payloads(function, [with_references(reference(object_id))], dependencies=[[object_id]])

    assert [o.failure.kind for o in processor.outcomes(2)] == [m.FailureKind.OBJECT_MISSING] * 2


def test_an_array_is_a_view_of_the_file_and_not_a_copy(processor, tmp_path):
    numpy = pytest.importorskip("numpy")
    path = tmp_path / "array"
    path.write_bytes(payloads.join(payloads.dump(numpy.arange(100_000))))
    array = processor.define(str(path).encode(), place=Place.FILE)
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


def test_the_users_own_serializer_is_used_for_function_arguments_and_result(processor):
    function = processor.define_function(lambda a, b: a + b, Reversing())
    content = payloads.join(payloads.dump_arguments((1,), {"b": 2}, Reversing(), []))
    processor.send_payloads(function, [content])

    outcome = processor.outcome()

    assert outcome.status == m.TaskStatus.SUCCESS
    assert payloads.load_value(outcome.payload, Reversing()) == 3


# What a task may ask for ----------------------------------------------------------------------------------------------


def test_profiling_measures_each_task(processor):
    def work(size: int) -> int:
        return len(bytearray(size))

    function = processor.define_function(work)
    processor.send_calls(function, (64 << 20,), (10,), flags=TasksFlag.PROFILING)

    measured = []
    while len(measured) < 2:
        results, outcomes = processor.receive_results()
        measured += list(zip(*results.profiles))
    (duration, cpu_time, peak), (_, _, small_peak) = measured

    assert duration > 0
    assert cpu_time > 0
    assert peak > 60 << 20
    assert small_peak < 30 << 20


def test_what_a_task_prints_is_sent_with_its_position(processor):
    def talk(word: str) -> str:
        print(word)
        print("no end of line", end="")
        print("trouble", file=sys.stderr)
        return word

    function = processor.define_function(talk)
    first = processor.send_calls(function, ("one",), ("two",), flags=TasksFlag.STREAM_OUTPUT)

    assert [outcome.value for outcome in processor.outcomes(2)] == ["one", "two"]
    assert processor.logs == [
        (first, 1, "one\n"),
        (first, 2, "trouble\n"),
        (first, 1, "no end of line"),
        (first + 1, 1, "two\n"),
        (first + 1, 2, "trouble\n"),
        (first + 1, 1, "no end of line"),
    ]


def test_a_child_that_user_code_forked_leaves_the_socket_alone(processor):
    def fork(really: bool) -> str:
        if really and os.fork() == 0:
            return "from the child"
        return "from the parent"

    function = processor.define_function(fork)
    processor.send_calls(function, (True,), (False,), (False,))

    assert [outcome.value for outcome in processor.outcomes(3)] == ["from the parent"] * 3
    processor.assert_nothing_more()


def test_garbage_is_collected_on_request(processor):
    def make_cycle() -> None:
        import gc

        class Node:
            def __del__(self) -> None:
                sys.collected = True  # type: ignore[attr-defined]

        gc.disable()
        node = Node()
        node.itself = node  # type: ignore[attr-defined]

    def was_collected() -> bool:
        return hasattr(sys, "collected")

    processor.call(make_cycle)
    assert processor.call(was_collected).value is False
    processor.send(frames.collect_garbage_frame(0))
    assert processor.call(was_collected).value is True
