"""The event loop does what asyncio's does, as far as programs use it; each test that can runs on both."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import subprocess
import sys
import threading
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest

from scaler_protocol.programs.event_loop import FEW_CANCELLED, BuiltinLoop, Completion, EventLoop, make_event_loop


@pytest.fixture(params=["builtin", "asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> Iterator[EventLoop]:
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    made: Any = asyncio.new_event_loop() if request.param == "asyncio" else make_event_loop(request.param)
    with contextlib.closing(made):
        yield made


@pytest.fixture
def pipe() -> Iterator[Tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


class Clock:
    """It goes on when nothing is ready, as far as the next timer."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


# Calls -------------------------------------------------------------------------------------------------------------


def test_calls_come_in_order_and_what_they_add_comes_in_the_next_turn(loop: EventLoop) -> None:
    diary: List[str] = []

    def first() -> None:
        diary.append("first")
        loop.call_soon(diary.append, "next turn")
        loop.call_soon(loop.stop)

    loop.call_soon(first)
    loop.call_soon(diary.append, "second")
    loop.run_forever()
    assert diary == ["first", "second", "next turn"]


def test_a_call_that_is_cancelled_does_not_come(loop: EventLoop) -> None:
    diary: List[str] = []
    later: List[Any] = []
    loop.call_soon(lambda: later[0].cancel())
    later.append(loop.call_soon(diary.append, "cancelled in the turn in which it is due"))
    timer = loop.call_later(0.001, diary.append, "cancelled")
    timer.cancel()
    timer.cancel()
    loop.call_later(0.002, loop.stop)
    loop.run_forever()
    assert diary == []


def test_timers_come_by_their_time(loop: EventLoop) -> None:
    diary: List[int] = []
    due: List[Tuple[float, float]] = []  # not before, and not after: this process may wait for its processor in between
    begin = loop.time()
    for number, seconds in enumerate([0.02, 0.001, 0.01]):
        before = loop.time()
        loop.call_later(seconds, diary.append, number)
        due.append((before + seconds, loop.time() + seconds))
    loop.call_later(0.03, loop.stop)
    loop.run_forever()
    assert sorted(diary) == [0, 1, 2] and loop.time() - begin >= 0.029
    assert all(due[one][0] <= due[later][1] for one, later in itertools.combinations(diary, 2)), (diary, due)


def test_timers_of_one_moment_come_in_order() -> None:
    diary: List[int] = []
    with contextlib.closing(BuiltinLoop(Clock())) as loop:
        for number in range(10):
            loop.call_later(0.0, diary.append, number)
        loop.call_later(0.0, loop.stop)
        loop.run_forever()
    assert diary == list(range(10))


def test_cancelled_timers_are_dropped_before_they_are_due() -> None:
    """An agent sets and cancels one at almost every turn."""
    with contextlib.closing(BuiltinLoop()) as loop:
        kept = [loop.call_later(3600.0, print) for _ in range(10)]
        for _ in range(10 * FEW_CANCELLED):
            loop.call_later(1800.0, print).cancel()
        assert len(loop._timers) <= FEW_CANCELLED + len(kept)
        kept[0].cancel()
        loop.call_soon(loop.stop)
        loop.run_forever()
        assert sum(not call.is_cancelled for _, _, call in loop._timers) == len(kept) - 1


def test_the_count_of_cancelled_timers_is_right_however_they_end() -> None:
    clock = Clock()
    with contextlib.closing(BuiltinLoop(clock)) as loop:
        timers = [loop.call_later(delay, loop.stop) for delay in (1.0, 2.0, 3.0, 4.0)]
        timers[1].cancel()
        timers[3].cancel()
        clock.now += 10.0
        loop.run_forever()  # two of them were due, and two are gone
        assert not loop._timers and loop._cancelled_timers == 0
        for timer in timers:
            timer.cancel()
        assert loop._cancelled_timers == 0


def test_another_thread_wakes_the_loop(loop: EventLoop) -> None:
    outcome: Completion[str] = Completion(loop)
    is_waiting = threading.Event()

    def call() -> None:
        is_waiting.wait()
        for _ in range(70_000):  # more than the pipe takes
            loop.call_soon_threadsafe(len, "")
        loop.call_soon_threadsafe(outcome.set_result, "called")

    thread = threading.Thread(target=call)
    thread.start()
    loop.call_soon(is_waiting.set)
    assert outcome.wait() == "called"
    thread.join()


def test_a_closed_loop_takes_no_calls_of_threads() -> None:
    loop = BuiltinLoop()
    loop.close()
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_soon_threadsafe(print)


# Descriptors -------------------------------------------------------------------------------------------------------


def test_a_reader_is_called_in_each_turn_until_all_is_read(loop: EventLoop, pipe: Tuple[int, int]) -> None:
    diary: List[bytes] = []

    def read(size: int) -> None:
        diary.append(os.read(pipe[0], size))
        if len(diary) == 3:
            loop.stop()

    loop.add_reader(pipe[0], read, 1)
    os.write(pipe[1], b"abc")
    loop.run_forever()
    assert diary == [b"a", b"b", b"c"]
    loop.remove_reader(pipe[0])


def test_the_end_of_a_stream_is_something_to_read(loop: EventLoop) -> None:
    reader, writer = os.pipe()
    loop.add_reader(reader, loop.stop)
    os.close(writer)
    loop.run_forever()
    loop.remove_reader(reader)
    os.close(reader)


def test_a_reader_that_was_removed_in_the_same_turn_is_not_called(loop: EventLoop) -> None:
    pipes = [os.pipe(), os.pipe()]
    diary: List[int] = []

    def on_readable(number: int) -> None:
        diary.append(number)
        for reader, _ in pipes:
            loop.remove_reader(reader)
        loop.call_soon(loop.stop)

    for number, (reader, writer) in enumerate(pipes):
        loop.add_reader(reader, on_readable, number)
        os.write(writer, b"!")
    loop.run_forever()
    assert len(diary) == 1
    assert not loop.remove_reader(pipes[0][0]), "it was removed before"
    for end in [*pipes[0], *pipes[1]]:
        os.close(end)


def test_another_reader_takes_the_place_of_the_first(loop: EventLoop, pipe: Tuple[int, int]) -> None:
    diary: List[str] = []

    def note() -> None:
        diary.append("second")
        loop.stop()

    loop.add_reader(pipe[0], diary.append, "first")
    loop.add_reader(pipe[0], note)
    os.write(pipe[1], b"!")
    loop.run_forever()
    assert set(diary) == {"second"}
    loop.remove_reader(pipe[0])


def test_a_number_that_was_closed_and_is_used_again_is_watched(loop: EventLoop) -> None:
    """Who closes a descriptor and removes it afterwards does no harm to the next one."""
    reader, writer = os.pipe()
    loop.add_reader(reader, pytest.fail)
    os.close(reader)
    os.close(writer)
    loop.remove_reader(reader)
    again, writer = os.pipe()
    assert again == reader
    loop.add_reader(again, loop.stop)
    os.write(writer, b"!")
    loop.run_forever()
    loop.remove_reader(again)
    os.close(again)
    os.close(writer)


def test_what_cannot_be_watched_is_an_error(loop: EventLoop, tmp_path: Any) -> None:
    with (tmp_path / "file").open("w") as file, pytest.raises(OSError):
        loop.add_reader(file.fileno(), print)
    loop.call_soon(loop.stop)
    loop.run_forever()


# Signals -----------------------------------------------------------------------------------------------------------


def test_a_signal_is_handled_in_a_turn_also_if_the_loop_waits(loop: EventLoop) -> None:
    diary: List[str] = []

    def note(name: str) -> None:
        diary.append(name)
        loop.stop()

    loop.add_signal_handler(signal.SIGUSR1, note, "SIGUSR1")
    timer = threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGUSR1])
    timer.start()
    loop.run_forever()
    timer.join()
    assert diary == ["SIGUSR1"]


def test_a_signal_does_what_it_does_by_default_once_its_handler_is_removed() -> None:
    with contextlib.closing(BuiltinLoop()) as loop:
        loop.add_signal_handler(signal.SIGUSR1, print)
        assert loop.remove_signal_handler(signal.SIGUSR1)
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
        assert not loop.remove_signal_handler(signal.SIGUSR1)


@pytest.mark.parametrize("kind", ["builtin", "uvloop"])
def test_the_handler_of_now_gets_the_signals_that_came_before_the_loop_ran(kind: str) -> None:
    """A program is told to stop while it starts; or a standby begins to serve, and the signal came just before."""
    if kind == "uvloop":
        pytest.importorskip("uvloop")
    diary: List[str] = []
    with contextlib.closing(make_event_loop(kind)) as loop:
        loop.add_signal_handler(signal.SIGUSR1, diary.append, "before")
        signal.raise_signal(signal.SIGUSR1)
        loop.add_signal_handler(signal.SIGUSR1, diary.append, "now")
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.remove_signal_handler(signal.SIGUSR1)
    assert diary == ["now"]


def test_a_signal_that_waits_when_its_handler_is_removed_does_nothing(loop: EventLoop) -> None:
    loop.add_signal_handler(signal.SIGUSR1, pytest.fail)
    loop.call_soon(signal.raise_signal, signal.SIGUSR1)
    loop.call_soon(loop.remove_signal_handler, signal.SIGUSR1)
    loop.call_later(0.01, loop.stop)
    loop.run_forever()


@pytest.mark.parametrize("kind", ["builtin", "uvloop"])
def test_a_closed_loop_leaves_signals_as_they_were_by_default(kind: str) -> None:
    if kind == "uvloop":
        pytest.importorskip("uvloop")
    loop = make_event_loop(kind)
    for number in (signal.SIGUSR1, signal.SIGINT):
        loop.add_signal_handler(number, print)
    loop.close()
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.set_wakeup_fd(-1) == -1


# Exceptions --------------------------------------------------------------------------------------------------------


def test_what_a_callback_raises_goes_to_the_handler_and_the_others_are_called(loop: EventLoop) -> None:
    caught: List[Dict[str, Any]] = []
    diary: List[str] = []
    loop.set_exception_handler(lambda its_loop, context: caught.append({"loop": its_loop, **context}))
    loop.call_soon(lambda: 1 // 0)
    loop.call_soon(diary.append, "called")
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert diary == ["called"]
    [context] = caught
    assert context["loop"] is loop and isinstance(context["exception"], ZeroDivisionError) and context["message"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_ends_a_program_ends_the_loop_which_can_go_on(loop: EventLoop, error: Callable[[], BaseException]) -> None:
    def end() -> None:
        raise error()

    diary: List[str] = []
    loop.call_soon(end)
    loop.call_soon(diary.append, "called")
    loop.call_soon(loop.stop)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        loop.run_forever()
    loop.run_forever()
    assert diary == ["called"]


def test_without_a_handler_it_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with contextlib.closing(BuiltinLoop()) as loop, caplog.at_level(logging.ERROR):
        loop.call_soon(lambda: 1 // 0)
        loop.call_soon(loop.stop)
        loop.run_forever()
    assert "exception in " in caplog.text and "ZeroDivisionError" in caplog.text


# The outcome -------------------------------------------------------------------------------------------------------


def test_an_outcome_ends_the_loop_with_its_turn(loop: EventLoop) -> None:
    outcome: Completion[int] = Completion(loop)
    assert not outcome.done()
    with pytest.raises(RuntimeError, match="not known"):
        outcome.result()
    loop.call_soon(outcome.set_result, 7)
    assert outcome.wait() == 7 and outcome.done() and outcome.wait() == outcome.result() == 7


def test_an_outcome_that_is_known_before_is_not_waited_for_and_the_next_one_is(loop: EventLoop) -> None:
    known: Completion[int] = Completion(loop)
    known.set_result(1)
    assert known.wait() == 1
    other: Completion[int] = Completion(loop)
    loop.call_later(0.01, other.set_result, 2)
    assert other.wait() == 2, "the loop ran although it had been told to stop before"


def test_an_error_is_raised_by_who_waits(loop: EventLoop) -> None:
    outcome: Completion[int] = Completion(loop)
    loop.call_soon(outcome.set_exception, OSError("what failed"))
    with pytest.raises(OSError, match="what failed"):
        outcome.wait()


# What it is for ----------------------------------------------------------------------------------------------------


def test_it_imports_no_asyncio() -> None:
    program = "import sys; from scaler_protocol.programs.event_loop import make_event_loop; make_event_loop('builtin')"
    program += "; print('asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"False\n"


def test_no_loop_is_left_half_made_where_descriptors_have_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(os.listdir("/proc/self/fd"))

    def fail() -> None:
        raise OSError(24, "too many open files")

    monkeypatch.setattr("scaler_protocol.host.readiness.epoll", fail)
    with pytest.raises(OSError, match="too many"):
        BuiltinLoop()
    assert set(os.listdir("/proc/self/fd")) == before
