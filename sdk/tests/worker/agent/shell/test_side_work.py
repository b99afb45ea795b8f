"""Work beside an event loop: in order, with its errors, and in the loop's own thread if nothing else waits for that."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Iterator, List, Optional

import pytest

from scaler.data_serving import rounds as rounds_module
from scaler.data_serving.rounds import FEW_OTHERS, Rounds
from scaler.data_serving.side_work import SMALLEST_BYTES, SideWork
from scaler_protocol.programs.event_loop import BuiltinLoop

DEADLINE_SECONDS = 60.0


class Bench:
    """Side work of an event loop, and a diary of what was done, by which thread, and of its outcomes."""

    def __init__(self) -> None:
        self.loop = BuiltinLoop()
        self.rounds = Rounds(self.loop, lambda: None)
        self.side_work = SideWork(self.rounds)
        self.outcomes: List[Any] = []
        self.threads: List[int] = []

    def run(self, name: str, work: Callable[[], object] = lambda: None, size_bytes: int = SMALLEST_BYTES) -> None:
        def noted() -> None:
            self.threads.append(threading.get_ident())
            work()

        def then(error: Optional[Exception]) -> None:
            assert threading.get_ident() == threading.main_thread().ident
            self.outcomes.append((name, error))
            self.loop.stop()

        self.side_work.run(noted, then, size_bytes)

    def wait_for(self, count: int) -> None:
        """Run the loop until there are so many outcomes."""
        timer = self.loop.call_later(DEADLINE_SECONDS, self.loop.stop)
        while len(self.outcomes) < count:
            self.loop.run_forever()
        timer.cancel()

    def close(self) -> None:
        self.side_work.close()
        self.rounds.close()
        self.loop.close()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(rounds_module, "OTHERS_WITHIN_SECONDS", 1e9)
    made = Bench()
    yield made
    made.close()


@pytest.fixture
def busy(bench: Bench) -> Bench:
    """One whose event loop has others that wait for it."""
    for _ in range(FEW_OTHERS):
        bench.rounds.note_others()
    return bench


def test_work_is_done_in_order_in_another_thread(busy: Bench) -> None:
    done: List[int] = []
    for number in range(20):
        busy.run(str(number), lambda number=number: done.append(number))  # type: ignore[misc]  # a default
    busy.wait_for(20)
    assert done == list(range(20))
    assert busy.outcomes == [(str(number), None) for number in range(20)]
    assert len(set(busy.threads)) == 1 and threading.get_ident() not in busy.threads


def test_the_event_loop_goes_on_meanwhile(busy: Bench) -> None:
    gate = threading.Event()
    busy.run("work", lambda: gate.wait(DEADLINE_SECONDS))
    busy.loop.call_later(0.001, gate.set)
    busy.wait_for(1)
    assert gate.is_set()


def test_errors_are_outcomes(busy: Bench) -> None:
    def fail() -> None:
        raise OSError("no room")

    busy.run("fails", fail)
    busy.run("next")
    busy.wait_for(2)
    [(_, error), (_, none)] = busy.outcomes
    assert isinstance(error, OSError) and str(error) == "no room" and none is None


def test_small_work_is_done_at_once_unless_other_work_is_before_it(busy: Bench) -> None:
    busy.run("small", size_bytes=SMALLEST_BYTES - 1)
    assert busy.outcomes == [("small", None)] and busy.threads == [threading.get_ident()]
    gate = threading.Event()
    busy.run("large", lambda: gate.wait(DEADLINE_SECONDS))
    busy.run("small after it", size_bytes=1)
    assert len(busy.outcomes) == 1
    gate.set()
    busy.wait_for(3)
    assert [name for name, _ in busy.outcomes] == ["small", "large", "small after it"]


def test_work_is_done_at_once_if_nothing_else_waits_for_the_loop(bench: Bench) -> None:
    for _ in range(FEW_OTHERS - 1):
        bench.rounds.note_others()
    bench.run("large")
    assert bench.outcomes == [("large", None)] and bench.threads == [threading.get_ident()]


def test_work_is_done_at_once_for_ever_if_there_was_no_thread(busy: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", start)
        busy.run("large")
    busy.run("another")
    assert busy.outcomes == [("large", None), ("another", None)], "who asked before may have relied on the answer"
    assert set(busy.threads) == {threading.get_ident()}


def test_closing_waits_for_the_work_that_has_begun_and_drops_the_rest(busy: Bench) -> None:
    has_begun, gate = threading.Event(), threading.Event()

    def work() -> None:
        has_begun.set()
        gate.wait(DEADLINE_SECONDS)

    busy.run("begun", work)
    busy.run("waiting")
    assert has_begun.wait(DEADLINE_SECONDS)
    threading.Timer(0.01, gate.set).start()
    busy.side_work.close()
    assert gate.is_set() and len(busy.threads) == 1
    busy.side_work.close()
    busy.run("later")
    assert busy.outcomes == [("later", None)], "no thread is begun any more"


def has_others_after(pause_seconds: float, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether others count that come with such pauses."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    loop = BuiltinLoop()
    rounds = Rounds(loop, lambda: None)
    for _ in range(2 * FEW_OTHERS):
        now[0] += pause_seconds
        rounds.note_others()
    rounds.close()
    loop.close()
    return rounds.has_others


def test_what_comes_rarely_is_nothing_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not has_others_after(1.0, monkeypatch)
    assert has_others_after(0.01, monkeypatch)
