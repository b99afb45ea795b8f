"""A processor, forked for real, with the test in the agent's place at the other end of the socket pair."""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, List, Tuple

import pytest
from forked_processor import ForkedProcessor

from scaler.exceptions import DeserializeObjectError, ResultNotSerializableError
from scaler.values import payload as payloads
from scaler.worker import frames, resident_memory
from scaler.worker.frames import FrameKind, TasksFlag
from scaler.worker.processor.chunk_runner import _Profile
from scaler.worker.progress import LOADING
from scaler_protocol import messages as m

# Ordinary tasks -------------------------------------------------------------------------------------------------------


def test_outcomes_come_in_the_order_of_the_chunk(processor: ForkedProcessor) -> None:
    function = processor.define_function(lambda x: x * 2)
    first = processor.send_calls(function, *[(i,) for i in range(500)])

    outcomes = processor.outcomes(500)

    assert [outcome.position for outcome in outcomes] == list(range(first, first + 500))
    assert [outcome.value for outcome in outcomes] == [i * 2 for i in range(500)]
    processor.assert_nothing_more()


def test_arguments_of_every_form_reach_the_function(processor: ForkedProcessor) -> None:
    def describe(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    function = processor.define_function(describe)
    named = pickle.dumps([(1,), {"key": [2]}], 5)
    processor.send_payloads(function, [b"", pickle.dumps((1, "two"), 5), named])

    values = [outcome.value for outcome in processor.outcomes(3)]

    assert values == [((), {}), ((1, "two"), {}), ((1,), {"key": [2]})]


@pytest.mark.parametrize("value", [None, True, 3, 2.5, 1j, "text", b"bytes", [1, {2}], {"a": (None,)}])
def test_results_of_every_type_come_back(processor: ForkedProcessor, value: Any) -> None:
    assert processor.call(lambda: value).value == value


def test_the_processor_measures_how_long_it_was_busy(processor: ForkedProcessor) -> None:
    function = processor.define_function(time.sleep)
    processor.send_calls(function, (0.01,))

    results, _ = processor.receive_results()

    assert results.busy_microseconds >= 10_000


# Failures -------------------------------------------------------------------------------------------------------------


def test_an_exception_of_the_function_is_its_outcome_and_the_others_run(processor: ForkedProcessor) -> None:
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


def test_a_function_that_does_not_load_fails_each_of_its_tasks(processor: ForkedProcessor) -> None:
    function = processor.define(b"\x80\x05this is no pickle", m.ObjectKind.FUNCTION)
    processor.send_calls(function, (1,), (2,))
    processor.send_calls(function, (3,))

    outcomes = processor.outcomes(3)

    assert [outcome.failure.kind for outcome in outcomes] == [m.FailureKind.FUNCTION_NOT_LOADED] * 3
    assert isinstance(outcomes[0].exception, DeserializeObjectError)
    processor.assert_nothing_more()


def test_a_function_that_does_not_load_is_tried_once(processor: ForkedProcessor, tmp_path: Path) -> None:
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


def test_arguments_that_do_not_load_fail_their_task_only(processor: ForkedProcessor) -> None:
    function = processor.define_function(lambda x: x)
    processor.send_payloads(
        function, [pickle.dumps((1,), 5), b"\x80\x05garbage", b"\xffgarbage", pickle.dumps((2,), 5)]
    )

    first, bad, worse, last = processor.outcomes(4)

    assert (first.value, last.value) == (1, 2)
    assert bad.failure.kind == worse.failure.kind == m.FailureKind.ARGUMENT_NOT_LOADED


def test_a_result_that_cannot_be_pickled_fails_its_task(processor: ForkedProcessor) -> None:
    class Stubborn:
        def __reduce__(self) -> Any:
            raise TypeError("it will not be pickled")

    outcome = processor.call(lambda: Stubborn())

    assert "it will not be pickled" in outcome.failure.message
    assert outcome.failure.kind == m.FailureKind.RESULT_NOT_SERIALIZABLE
    assert isinstance(outcome.exception, ResultNotSerializableError)


def test_an_exception_that_cannot_be_pickled_is_described(processor: ForkedProcessor) -> None:
    def fail() -> None:
        LockedError = type("LockedError", (RuntimeError,), {"lock": threading.Lock()})
        raise LockedError("its class holds a lock")

    outcome = processor.call(fail)

    assert outcome.failure.kind == m.FailureKind.EXCEPTION_NOT_SERIALIZABLE
    assert "its class holds a lock" in outcome.failure.message
    assert "LockedError" in outcome.failure.traceback


def test_an_exception_too_large_to_travel_inline_is_shortened(processor: ForkedProcessor) -> None:
    def fail() -> None:
        raise ValueError("x" * 100_000)

    outcome = processor.call(fail)

    assert outcome.failure.kind == m.FailureKind.TASK_RAISED
    assert "ValueError" in outcome.failure.traceback
    assert len(outcome.payload) < payloads.INLINE_BYTES


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_what_would_end_a_process_ends_the_task_only(processor: ForkedProcessor, error: BaseException) -> None:
    def fail() -> None:
        raise error

    outcome = processor.call(fail)

    assert type(outcome.exception) is type(error)
    processor.assert_nothing_more()


def test_endless_recursion_ends_the_task_only(processor: ForkedProcessor) -> None:
    def recurse() -> Any:
        return recurse()

    assert isinstance(processor.call(recurse).exception, RecursionError)
    processor.assert_nothing_more()


def test_the_attempt_is_part_of_the_failure(processor: ForkedProcessor) -> None:
    function = processor.define_function(lambda: 1 // 0)
    processor.send_payloads(function, [b""], attempt=3)

    assert processor.outcome().failure.attempts == 3


# Ends -----------------------------------------------------------------------------------------------------------------


def test_exiting_hard_ends_the_processor_and_the_page_names_the_task(
    processor: ForkedProcessor, finished_bit: int
) -> None:
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


def test_a_function_that_ends_the_processor_when_it_is_loaded_is_that_of_the_task_on_the_page(
    processor: ForkedProcessor,
) -> None:
    class Function:
        def __reduce__(self) -> Any:
            return os._exit, (5,)

    function = processor.define(payloads.join(payloads.dump(Function())), m.ObjectKind.FUNCTION)
    first = processor.send_calls(function, (1,), (2,))

    assert processor.receive() is None
    assert os.WEXITSTATUS(processor.wait_for_end()) == 5
    assert processor.progress[0] == first | LOADING


def test_a_killed_idle_processor_had_finished_its_task(processor: ForkedProcessor, finished_bit: int) -> None:
    assert processor.call(lambda: 1).value == 1
    os.kill(processor.process_id, signal.SIGKILL)

    assert processor.receive() is None
    assert os.WTERMSIG(processor.wait_for_end()) == signal.SIGKILL
    assert processor.progress[0] == 1 | finished_bit


def test_the_processor_ends_with_its_agent(processor: ForkedProcessor) -> None:
    assert processor.call(lambda: 1).value == 1
    processor.stream.close()

    assert processor.wait_for_end() == 0


def test_the_processor_ends_when_told(processor: ForkedProcessor) -> None:
    processor.send(frames.signal_frame(FrameKind.STOP))

    assert processor.receive() is None
    assert processor.wait_for_end() == 0


# What a task may ask for ----------------------------------------------------------------------------------------------


def free_memory() -> None:
    """Give back what is not used any more, also what the C library keeps to use it again."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def test_profiling_measures_each_task(processor: ForkedProcessor) -> None:
    def work(size: int) -> int:
        return len(bytearray(size))

    # What earlier tests left in the process that was forked would be freed, or used again, while a task is measured.
    processor.send_calls(processor.define_function(free_memory), ())
    processor.receive_results()
    function = processor.define_function(work)
    processor.send_calls(function, (64 << 20,), (10,), flags=TasksFlag.PROFILING)

    measured: List[Tuple[int, ...]] = []
    while len(measured) < 2:
        results, _ = processor.receive_results()
        assert results.profiles is not None
        measured += zip(*results.profiles)
    (duration, cpu_time, peak), (_, _, small_peak) = measured

    assert duration > 0
    assert cpu_time > 0
    assert peak > 60 << 20
    assert small_peak < 30 << 20


@pytest.mark.parametrize(
    "peaks, residents, expected_bytes",
    [
        pytest.param([700, 900], [300, 400], 600, id="its peak is higher than any before"),
        pytest.param([700, 700], [300, 400], 100, id="another task has had a higher one"),
    ],
)
def test_a_peak_that_cannot_be_reset_counts_if_it_is_the_highest(
    monkeypatch: pytest.MonkeyPatch, peaks: List[int], residents: List[int], expected_bytes: int
) -> None:
    monkeypatch.setattr(resident_memory, "reset_peak", lambda: False)
    monkeypatch.setattr(resident_memory, "peak_bytes", lambda: peaks.pop(0))
    monkeypatch.setattr(resident_memory, "resident_bytes", lambda: residents.pop(0))

    _, _, peak = _Profile().end()

    assert peak == expected_bytes


def test_what_a_task_prints_is_sent_with_its_position(processor: ForkedProcessor) -> None:
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


def test_much_that_a_task_prints_at_once_is_sent_in_pieces(processor: ForkedProcessor) -> None:
    text = "".join(map(str, range(50_000)))
    function = processor.define_function(print)
    first = processor.send_calls(function, (text,), flags=TasksFlag.STREAM_OUTPUT)

    processor.outcomes(1)
    assert {(position, stream) for position, stream, _ in processor.logs} == {(first, 1)}
    assert max(len(piece) for _, _, piece in processor.logs) == 1 << 16
    assert "".join(piece for _, _, piece in processor.logs) == text + "\n"


def test_a_child_that_user_code_forked_leaves_the_socket_alone(processor: ForkedProcessor) -> None:
    def fork(really: bool) -> str:
        if really and os.fork() == 0:
            return "from the child"
        return "from the parent"

    function = processor.define_function(fork)
    processor.send_calls(function, (True,), (False,), (False,))

    assert [outcome.value for outcome in processor.outcomes(3)] == ["from the parent"] * 3
    processor.assert_nothing_more()


def test_garbage_is_collected_on_request(processor: ForkedProcessor) -> None:
    def make_cycle() -> None:
        import gc

        class Node:
            def __del__(self) -> None:
                sys.collected = True  # type: ignore[attr-defined]  # set by hand

        gc.disable()
        node = Node()
        node.itself = node  # type: ignore[attr-defined]  # set by hand

    def was_collected() -> bool:
        return hasattr(sys, "collected")

    processor.call(make_cycle)
    assert processor.call(was_collected).value is False
    processor.send(frames.collect_garbage_frame(0))
    assert processor.call(was_collected).value is True
