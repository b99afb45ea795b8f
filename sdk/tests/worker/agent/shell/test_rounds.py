"""Rounds: all ready callbacks are called, and then, once, the end of the round."""

from __future__ import annotations

import asyncio
import os
from typing import Callable, Iterator, List, Tuple

import pytest

from scaler.data_serving.rounds import Rounds


class Bench:
    """An event loop with rounds on it, pipes to make descriptors ready, and a diary."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.diary: List[str] = []
        self.rounds = Rounds(self.loop, lambda: self.diary.append("end"))
        self._descriptors: List[int] = []

    def pipe(self) -> Tuple[int, int]:
        ends = os.pipe()
        self._descriptors += ends
        return ends

    def reader(self, name: str) -> Tuple[int, int]:
        """A pipe that is read into the diary."""
        read_end, write_end = self.pipe()
        self.rounds.add_reader(read_end, lambda: self.diary.append(name + os.read(read_end, 100).decode()))
        return read_end, write_end

    def run_until(self, condition: Callable[[], bool]) -> None:
        async def wait() -> None:
            while not condition():
                await asyncio.sleep(0)

        self.loop.run_until_complete(asyncio.wait_for(wait(), 20))

    def close(self) -> None:
        self.rounds.close()
        self.loop.close()
        for descriptor in self._descriptors:
            os.close(descriptor)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def test_a_round_ends_once_however_many_were_ready(bench: Bench) -> None:
    ends = [bench.reader(name)[1] for name in "abc"]
    for end in ends:
        os.write(end, b"!")
    bench.run_until(lambda: "end" in bench.diary)
    assert sorted(bench.diary[:3]) == ["a!", "b!", "c!"]
    assert bench.diary[3:] == ["end"]


def test_who_was_removed_is_not_called(bench: Bench) -> None:
    read_end, write_end = bench.reader("a")
    _, other = bench.reader("b")
    bench.rounds.remove_reader(read_end)
    bench.rounds.remove_reader(read_end)
    bench.rounds.remove_writer(read_end)
    os.write(write_end, b"!")
    os.write(other, b"!")
    bench.run_until(lambda: "end" in bench.diary)
    assert bench.diary == ["b!", "end"]


def test_who_is_removed_within_the_round_is_not_called_either(bench: Bench) -> None:
    first, second = bench.pipe(), bench.pipe()

    def remove(other: int) -> Callable[[], None]:
        def on_readable() -> None:
            bench.diary.append("called")
            bench.rounds.remove_reader(other)

        return on_readable

    bench.rounds.add_reader(first[0], remove(second[0]))
    bench.rounds.add_reader(second[0], remove(first[0]))
    os.write(first[1], b"!")
    os.write(second[1], b"!")
    bench.run_until(lambda: "end" in bench.diary)
    assert bench.diary[:2] == ["called", "end"]


def test_writers_are_called_while_there_is_room(bench: Bench) -> None:
    _, write_end = bench.pipe()

    def write() -> None:
        bench.diary.append("room")
        bench.rounds.remove_writer(write_end)

    bench.rounds.add_writer(write_end, write)
    bench.run_until(lambda: "end" in bench.diary)
    assert bench.diary == ["room", "end"]


def test_the_event_loops_own_timers_keep_running(bench: Bench) -> None:
    read_end, write_end = bench.pipe()
    os.write(write_end, b"!")
    bench.rounds.add_reader(read_end, lambda: bench.diary.append("busy"))  # never reads: always ready
    bench.loop.call_soon(bench.diary.append, "timer")
    bench.run_until(lambda: bench.diary.count("end") > 3 and "timer" in bench.diary)
