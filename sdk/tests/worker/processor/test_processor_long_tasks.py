"""A processor whose chunk has a long task, or one that waits for others: the tasks behind it do not wait."""

from __future__ import annotations

import os
import random
import socket
import sys
import threading
import time
from array import array
from types import ModuleType
from typing import Any, List

import pytest
from forked_processor import ForkedProcessor

from scaler import blocking
from scaler.worker import frames
from scaler.worker.frame_reader import FrameReader
from scaler.worker.frames import FrameKind
from scaler.worker.processor import processor as processor_module
from scaler.worker.processor.chunk_runner import RunningChunk
from scaler.worker.processor.processor import Processor, ProcessorSettings

# Long tasks do not hold up others
# ------------------------------------------------------------------------------------------


def waits_at(gate: int) -> Any:
    """A function that waits at the gate when it is told to."""

    def step(wait: bool) -> str:
        if wait:
            os.read(gate, 1)
            return "waited"
        return "did not wait"

    return step


def test_a_long_task_gives_back_the_tasks_behind_it_and_holds_back_no_result(
    watched_processor: ForkedProcessor,
) -> None:
    function = watched_processor.define_function(waits_at(watched_processor.gate_reader))
    first = watched_processor.send_calls(function, (False,), (False,), (True,), (False,), (False,))

    _, outcomes = watched_processor.receive_results()
    assert [outcome.position for outcome in outcomes] == [first, first + 1]
    assert watched_processor.given_back() == [(first + 3, 2)]
    watched_processor.send(frames.signal_frame(FrameKind.SETTLED))
    watched_processor.open_gate()

    outcome = watched_processor.outcome()
    assert (outcome.position, outcome.value) == (first + 2, "waited")
    watched_processor.assert_nothing_more()


@pytest.mark.parametrize("module", [sys, threading], ids=["sys", "threading"])
def test_tasks_that_remove_hooks_do_not_end_the_processor_of_the_next_ones(
    watched_processor: ForkedProcessor, module: ModuleType
) -> None:
    remove = watched_processor.define_function(lambda: setattr(module, "excepthook", None))
    watched_processor.send_calls(remove, ())
    assert watched_processor.outcome().value is None
    function = watched_processor.define_function(waits_at(watched_processor.gate_reader))
    first = watched_processor.send_calls(function, (True,), (False,))

    assert watched_processor.given_back() == [(first + 1, 1)]
    watched_processor.send(frames.signal_frame(FrameKind.SETTLED))
    watched_processor.open_gate()
    assert watched_processor.outcome().value == "waited"
    watched_processor.assert_nothing_more()


def test_what_comes_after_the_agent_has_settled_is_not_given_back() -> None:
    agent_end, processor_end = socket.socketpair()
    processor = Processor(processor_end, memoryview(array("Q", [0])), ProcessorSettings())
    processor._give_back([])
    for first in (1, 2):
        ids, sizes = array("Q", [first]), array("I", [0])
        chunk = frames.tasks_frame(
            function=1, first_position=first, client=3, attempt=1, flags=0, ids=ids, sizes=sizes, payload=b""
        )
        agent_end.sendall(frames.join(chunk))
        agent_end.sendall(frames.join(frames.signal_frame(FrameKind.SETTLED)) if first == 1 else b"")

    assert processor._drain() == [(1, 1)]
    frame = processor._next_frame()
    assert frame is not None and frames.parse_tasks(frame.flags, frame.body).first_position == 2
    agent_end.close()
    processor_end.close()


def has_watchdog(processor: Processor) -> bool:
    return processor._watchdog.is_alive()


def test_without_room_for_a_thread_there_is_no_watchdog_until_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def has_no_room(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    agent_end, processor_end = socket.socketpair()
    processor = Processor(processor_end, memoryview(array("Q", [0])), ProcessorSettings())
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(threading.Thread, "start", has_no_room)
        processor._want_watchdog()
    assert not has_watchdog(processor)
    processor._want_watchdog()
    assert has_watchdog(processor)
    agent_end.close()
    processor_end.close()


def test_a_long_task_gives_back_the_chunk_queued_behind_its_own(watched_processor: ForkedProcessor) -> None:
    function = watched_processor.define_function(waits_at(watched_processor.gate_reader))
    first = watched_processor.send_calls(function, (True,), (False,))
    second = watched_processor.send_calls(function, (False,), (False,), (False,))

    assert watched_processor.given_back() == [(first + 1, 1)]
    assert watched_processor.given_back() == [(second, 3)]
    watched_processor.send(frames.signal_frame(FrameKind.SETTLED))
    watched_processor.send(frames.signal_frame(FrameKind.SETTLED))
    watched_processor.open_gate()

    assert watched_processor.outcome().position == first
    watched_processor.assert_nothing_more()


def test_what_arrives_before_all_is_settled_is_given_back_too(watched_processor: ForkedProcessor) -> None:
    function = watched_processor.define_function(waits_at(watched_processor.gate_reader))
    first = watched_processor.send_calls(function, (True,), (False,))
    assert watched_processor.given_back() == [(first + 1, 1)]

    late_function = watched_processor.define_function(lambda: "late")
    late = watched_processor.send_calls(late_function, (), ())
    assert watched_processor.given_back() == [(late, 2)]
    watched_processor.send(frames.signal_frame(FrameKind.SETTLED))
    watched_processor.send(frames.signal_frame(FrameKind.SETTLED))
    watched_processor.open_gate()
    assert watched_processor.outcome().position == first

    watched_processor.send_calls(late_function, ())  # its definition was not lost with the tasks
    assert watched_processor.outcome().value == "late"


def test_the_watchdog_does_not_take_a_pause_between_two_tasks_for_the_end(
    monkeypatch: pytest.MonkeyPatch, finished_bit: int
) -> None:
    class Page:
        """A progress page that says at the first looks that a task has ended, and then that the next one runs."""

        def __init__(self) -> None:
            self.positions = [1 | finished_bit, 1 | finished_bit]

        def __getitem__(self, index: int) -> int:
            return self.positions.pop(0) if self.positions else 2

    monkeypatch.setattr(processor_module, "LOOK_INTERVAL_SECONDS", 0)
    agent_end, processor_end = socket.socketpair()
    with agent_end, processor_end:
        page: Any = Page()
        processor = Processor(processor_end, page, ProcessorSettings())
        ids, sizes = array("Q", [11, 12, 13]), array("I", [0, 0, 0])
        buffers = frames.tasks_frame(
            function=1, first_position=1, client=1, attempt=1, flags=0, ids=ids, sizes=sizes, payload=b""
        )
        chunk = RunningChunk(frames.parse_tasks(0, frames.join(buffers)[8:]))
        assert [next(chunk.remaining)[0], next(chunk.remaining)[0]] == [1, 2]
        processor._chunk = chunk
        agent_end.sendall(frames.join(frames.signal_frame(FrameKind.SETTLED)))

        processor._watch_while_busy()

        reader = FrameReader(agent_end)
        reader.fill()
        frame = reader.next()
        assert frame is not None
        assert (frame.kind, frames.parse_given_back(frame.body)) == (FrameKind.GIVEN_BACK, [(3, 1)])


def test_a_chunk_of_one_task_is_not_watched(watched_processor: ForkedProcessor) -> None:
    function = watched_processor.define_function(time.sleep)
    watched_processor.send_calls(function, (0.5,))

    assert watched_processor.outcome().value is None
    watched_processor.assert_nothing_more()


def test_each_task_is_either_run_or_given_back(watched_processor: ForkedProcessor) -> None:
    pause = random.Random(7)
    pauses = [[pause.choice([0, 0, 0, 0, 0.05, 0.2]) for _ in range(20)] for _ in range(8)]
    function = watched_processor.define_function(time.sleep)
    expected = set()
    for chunk in pauses:
        first = watched_processor.send_calls(function, *[(seconds,) for seconds in chunk])
        expected |= set(range(first, first + len(chunk)))

    seen: List[int] = []
    while len(seen) < len(expected):
        frame = watched_processor.receive()
        assert frame is not None, "the processor has ended"
        if frame.kind == FrameKind.RESULTS:
            results = frames.parse_results(frame.flags, frame.body)
            seen += range(results.first_position, results.first_position + len(results.sizes))
        else:
            assert frame.kind == FrameKind.GIVEN_BACK
            for first, count in frames.parse_given_back(frame.body):
                seen += range(first, first + count)
            watched_processor.send(frames.signal_frame(FrameKind.SETTLED))

    assert sorted(seen) == sorted(expected)
    watched_processor.assert_nothing_more()


def test_a_task_about_to_wait_for_others_frees_everything_at_once(processor: ForkedProcessor) -> None:
    def wait_for_others(waits: bool) -> Any:
        if waits:
            with blocking.announced(), blocking.announced():
                os.read(gate, 1)
        return waits

    gate = processor.gate_reader
    first = processor.send_calls(processor.define_function(wait_for_others), (False,), (True,), (False,))

    assert [outcome.position for outcome in processor.outcomes(1)] == [first]
    assert processor.given_back() == [(first + 2, 1)]
    processor.receive_kind(FrameKind.BLOCKED)
    processor.send(frames.signal_frame(FrameKind.SETTLED))
    processor.open_gate()
    processor.receive_kind(FrameKind.RESUMED)
    assert processor.outcome().position == first + 1
    processor.assert_nothing_more()


def test_a_lone_task_about_to_wait_says_so_and_takes_its_slot_back(processor: ForkedProcessor) -> None:
    def wait_for_others() -> str:
        with blocking.announced():
            os.read(gate, 1)
        return "done"

    gate = processor.gate_reader
    position = processor.send_calls(processor.define_function(wait_for_others), ())

    processor.receive_kind(FrameKind.BLOCKED)
    processor.open_gate()
    processor.receive_kind(FrameKind.RESUMED)
    outcome = processor.outcome()
    assert (outcome.position, outcome.value) == (position, "done")
    processor.assert_nothing_more()


def test_threads_that_a_task_left_waiting_do_not_keep_its_slot(processor: ForkedProcessor) -> None:
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

    processor.receive_kind(FrameKind.BLOCKED)
    assert processor.outcome().value is None
    processor.receive_kind(FrameKind.RESUMED)
    processor.open_gate()
    processor.assert_nothing_more()
