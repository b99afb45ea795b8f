"""Streams of `scaler.aio`: order, back-pressure, early ends, failing sources; and failing items."""

from __future__ import annotations

import asyncio
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, AsyncIterator, Iterator, List

import pytest
from aio.test_aio_client import play
from sdk_tasks import notes_of, wait_for_file

from scaler import aio
from scaler.exceptions import ArgumentTypeError, InvalidArgumentError, SerializeObjectError


def wait_if_first(item: int, go: str = "") -> int:
    if item == 0 and go:
        wait_for_file(go)
    elif item == 0:
        time.sleep(0.05)
    return item


def fail_at(item: int, position: int) -> int:
    if item == position:
        raise ValueError(f"item {item}")
    return item


async def numbers(count: int, every: int = 100) -> AsyncIterator[int]:
    for number in range(count):
        if number % every == 0:
            await asyncio.sleep(0.001)
        yield number


class Counting:
    """Counts up for ever, and knows how far it got and whether it was closed."""

    def __init__(self) -> None:
        self.count = 0
        self.is_closed = False

    def sync(self) -> Iterator[int]:
        try:
            while True:
                self.count += 1
                yield self.count
        finally:
            self.is_closed = True

    async def asynchronous(self) -> AsyncIterator[int]:
        try:
            while True:
                self.count += 1
                yield self.count
        finally:
            await asyncio.sleep(0)
            self.is_closed = True


async def collected(stream: AsyncIterator[Any]) -> List[Any]:
    return [each async for each in stream]


def test_results_come_in_order_or_as_they_are_computed(any_address: str) -> None:
    async def scene(client: aio.Client) -> None:
        assert await collected(client.map_stream(abs, range(0, -3000, -1))) == list(range(3000))
        assert await collected(client.map_stream(abs, numbers(3000))) == list(range(3000))
        assert await collected(client.map_stream(pow, numbers(50), range(40), buffersize=7)) == [
            n**n for n in range(40)
        ]
        assert (
            await collected(client.map_stream(abs, [])) == []
            and await collected(client.map_stream(abs, numbers(0))) == []
        )
        assert await collected(client.map_stream(wait_if_first, range(50))) == list(range(50))

    play(any_address, scene)


def test_a_slow_item_does_not_hold_up_what_may_come_in_any_order(any_address: str, done_files: List[Path]) -> None:
    go = done_files[1]

    async def scene(client: aio.Client) -> None:
        results: List[int] = []
        async for result in client.map_stream(wait_if_first, range(50), [str(go)] * 50, ordered=False):
            results.append(result)
            if len(results) == 20:
                go.touch()
        assert sorted(results) == list(range(50)) and results.index(0) >= 20

    play(any_address, scene)


@pytest.mark.parametrize("kind", ["sync", "asynchronous"])
def test_an_endless_source_is_taken_as_far_as_its_buffer_goes_and_closed_at_the_end(
    any_address: str, kind: str
) -> None:
    async def scene(client: aio.Client) -> None:
        source = Counting()
        stream = client.map_stream(abs, getattr(source, kind)(), buffersize=20)
        taken = 0
        async for result in stream:
            taken += 1
            # What was yielded in the batch of this result is not in the buffer any more.
            assert result == taken and source.count <= taken + 2 * 20 + 1
            if taken == 300:
                break
        await stream.aclose()
        assert source.is_closed and await client.submit(abs, -1) == 1

    play(any_address, scene)


def test_an_item_is_sent_before_the_next_one_is_there(any_address: str) -> None:
    async def scene(client: aio.Client) -> None:
        answers: asyncio.Queue[int] = asyncio.Queue()

        async def ping_pong() -> AsyncIterator[int]:
            yield 0
            while True:
                yield await answers.get() + 1  # the next item needs the result of the one before

        async for result in client.map_stream(abs, ping_pong()):
            if result == 20:
                break
            answers.put_nowait(result)

    play(any_address, scene)


def test_what_was_computed_before_a_failure_comes_first(any_address: str) -> None:
    async def fail_after(count: int) -> AsyncIterator[int]:
        async for number in numbers(count):
            yield number
        raise KeyError("the source's")

    def fail_after_items(count: int) -> Iterator[int]:
        yield from range(count)
        raise KeyError("the source's")

    async def scene(client: aio.Client) -> None:
        for source, error, count in (
            (client.map_stream(fail_at, range(2000), [1500] * 2000), ValueError, 1500),
            (client.map_stream(abs, fail_after(500)), KeyError, 500),
            (client.map_stream(abs, fail_after_items(500)), KeyError, 500),
            (client.map_stream(abs, [1, 2, (x for x in "unpicklable")]), SerializeObjectError, 2),
        ):
            results: List[Any] = []
            with pytest.raises(error) as caught:
                async for result in source:
                    results.append(result)
            assert len(results) == count
            if error is ValueError:
                assert "in fail_at" in str(caught.value.__cause__)
                assert notes_of(caught.value) == ["(raised by item 1500 of map)"]
        assert await client.submit(abs, -1) == 1

    play(any_address, scene)


def test_leaving_early_cancels_what_is_unfinished(any_address: str) -> None:
    async def scene(client: aio.Client) -> None:
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(collected(client.map_stream(time.sleep, [30.0] * 10)), 0.2)
        assert await asyncio.gather(*[client.submit(abs, -1) for _ in range(4)]) == [1] * 4, "the slots are free"
        while client._shell.core.futures:
            await asyncio.sleep(0.001)

    play(any_address, scene)


def test_a_loop_that_is_left_leaves_nothing_unfinished(any_address: str) -> None:
    async def scene(client: aio.Client) -> None:
        source = Counting()
        async for result in client.map_stream(abs, source.sync()):
            if result == 500:
                break
        assert all(each.done() for each in client._shell.core.futures.values())  # type: ignore[attr-defined]  # futures
        while not source.is_closed:
            await asyncio.sleep(0)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        play(any_address, scene)


def test_invalid_arguments_are_named(any_address: str) -> None:
    async def scene(client: aio.Client) -> None:
        invalid: Any = 1
        for iterables, buffersize, error in (
            ((), 1, ArgumentTypeError),
            ((invalid,), 1, ArgumentTypeError),
            (([],), 0, InvalidArgumentError),
        ):
            with pytest.raises(error):
                client.map_stream(abs, *iterables, buffersize=buffersize)
        with pytest.raises(SerializeObjectError):
            client.map_stream((x for x in "unpicklable").send, [1])

    play(any_address, scene)
