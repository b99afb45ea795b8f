"""Maps whose results arrive one by one: lazy, in order or not, in bounded memory."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from operator import add
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest
from sdk_tasks import identity, wait_for, wait_for_file, wait_until

from scaler import Client
from scaler.exceptions import ArgumentTypeError, DisconnectedError, InvalidArgumentError, SerializeObjectError

TIMEOUT_SECONDS = 30.0


class Taken:
    """Counts what was taken from an endless iterable, and by which threads."""

    def __init__(self) -> None:
        self.count = 0
        self.threads = {threading.get_ident()}

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self.threads.add(threading.get_ident())
        self.count += 1
        return self.count - 1


def fails_at(limit: int) -> Callable[[int], int]:
    def function(number: int) -> int:
        if number == limit:
            raise ValueError(f"no {number}")
        return number

    return function


class Bag:
    """Something that can be referred to weakly."""


def make_bag(_: int) -> Bag:
    return Bag()


# In order -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("buffersize", [1, 2, 7, 100, 5000])
def test_results_come_in_order(any_client: Client, buffersize: int) -> None:
    assert list(any_client.map(identity, range(1000), buffersize=buffersize)) == list(range(1000))
    assert list(any_client.map(add, range(9), itertools.count(), buffersize=buffersize)) == list(range(0, 18, 2))


@pytest.mark.parametrize("buffersize", [1, 3, 50])
def test_an_endless_iterable_is_taken_as_far_as_the_buffer_reaches_in_the_consuming_thread(
    any_client: Client, buffersize: int
) -> None:
    taken = Taken()
    stream = any_client.map(identity, taken, buffersize=buffersize)
    for number in range(200):
        assert next(stream) == number
        assert taken.count <= number + 1 + buffersize
    assert taken.threads == {threading.get_ident()}
    stream.close()


def test_the_next_item_runs_while_a_result_is_looked_at(any_client: Client, tmp_path: Path) -> None:
    def touch(path: Path) -> Path:
        path.touch()
        return path

    stream = any_client.map(touch, (tmp_path / str(number) for number in range(2)), buffersize=1)
    assert next(stream).name == "0"
    wait_until(tmp_path / "1")
    assert next(stream).name == "1"


def test_tuples_are_unpacked_as_by_map(any_client: Client) -> None:
    def pairs() -> Iterator[Any]:
        yield from [(1, 2), (3, 4)]
        yield 5

    stream = any_client.map(add, pairs(), buffersize=10)
    assert [next(stream), next(stream)] == [3, 7]
    with pytest.raises(ArgumentTypeError, match="item 2 of map is of type int, but the first is a tuple"):
        next(stream)
    assert list(any_client.map(len, iter([(1, 2), ()]), unpack=False, buffersize=2)) == [2, 0]
    assert list(any_client.map(add, [[1, 2]], unpack=True, buffersize=2)) == [3]
    with pytest.raises(TypeError, match="this one was unpacked into 2 arguments"):
        list(any_client.map(identity, [(1, 2)], buffersize=2))


def test_nothing_gives_nothing(any_client: Client) -> None:
    assert list(any_client.map(identity, [], buffersize=3)) == []
    assert list(any_client.imap_unordered(identity, iter(()))) == []
    assert list(any_client.as_completed([])) == []


@pytest.mark.parametrize("buffersize", [1, 10, 1000])
def test_results_before_an_item_that_fails_come_first(any_client: Client, buffersize: int) -> None:
    stream = any_client.map(fails_at(57), itertools.count(), buffersize=buffersize)
    results: List[int] = []
    with pytest.raises(ValueError, match="no 57") as caught:
        results.extend(stream)
    assert results == list(range(57))
    assert caught.value.__dict__["__notes__"] == ["(raised by item 57 of map)"]
    assert "fails_at" in str(caught.value.__cause__)  # the traceback there
    assert next(stream, None) is None


def test_an_exception_of_the_iterable_comes_after_the_results_before_it(any_client: Client) -> None:
    def numbers() -> Iterator[int]:
        yield from range(5)
        raise LookupError("no more")

    for stream in (any_client.map(identity, numbers(), buffersize=100), any_client.imap_unordered(identity, numbers())):
        results: List[int] = []
        with pytest.raises(LookupError, match="no more"):
            results.extend(stream)
        assert sorted(results) == list(range(5))


def test_an_item_that_cannot_be_sent_fails_after_the_results_before_it(any_client: Client) -> None:
    stream = any_client.map(identity, [1, 2, threading.Lock(), 4], buffersize=1)
    assert [next(stream), next(stream)] == [1, 2]
    with pytest.raises(SerializeObjectError) as caught:
        next(stream)
    assert caught.value.__dict__["__notes__"] == ["(item 2 of map)"]


def test_an_interrupt_in_the_iterable_is_raised_at_once(any_client: Client) -> None:
    def numbers() -> Iterator[int]:
        yield 0
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(any_client.map(identity, numbers(), buffersize=10))


def test_a_result_that_was_yielded_is_not_kept(any_client: Client) -> None:
    streams: List[Any] = [any_client.map(make_bag, range(20), buffersize=5)]
    streams.append(any_client.imap_unordered(make_bag, range(20)))
    for stream in streams:
        for bag in stream:
            reference = weakref.ref(bag)
            del bag
            assert reference() is None


@pytest.mark.parametrize("end", ["close", "forget"])
@pytest.mark.parametrize("kind", ["map", "unordered", "as_completed"])
def test_a_stream_that_ends_early_cancels_what_has_not_started(
    any_client: Client, done_files: List[Path], end: str, kind: str
) -> None:
    """Also one that was never asked for a result."""
    go = str(done_files[1])
    done = any_client.submit(identity, 1)
    done.result(TIMEOUT_SECONDS)
    blockers = [any_client.submit(wait_for_file, go) for _ in range(2)]  # on both slots
    submitted: List[Any] = []

    def futures() -> Iterator[Any]:
        yield done
        while True:
            submitted.append(any_client.submit(identity, 1))
            yield submitted[-1]

    if kind == "map":
        stream: Any = any_client.map(identity, itertools.count(), buffersize=4)
    elif kind == "unordered":
        stream = any_client.imap_unordered(identity, itertools.count(), buffersize=4)
    else:
        stream = any_client.as_completed(futures(), buffersize=4)
        assert next(stream) is done
    wait_for(lambda: any_client._shell.unfinished_count > 2, "the items to be sent")
    if end == "close":
        stream.close()
    del stream
    gc.collect()
    wait_for(lambda: any_client._shell.unfinished_count == 2, "the cancellation")
    assert len(submitted) == 3 * (kind == "as_completed")
    assert all(future.cancelled() for future in submitted)
    done_files[1].touch()
    assert [each.result(TIMEOUT_SECONDS) for each in blockers] == [go, go]


def test_items_that_refer_to_many_objects_are_sent_in_smaller_chunks(
    any_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scaler.client.submission.MAXIMUM_DEPENDENCIES", 20)
    reference = any_client.send_object(b"12")
    few, many = [([reference._replace() for _ in range(count)],) for count in (5, 25)]
    stream = any_client.map(len, [*[few] * 300, many], buffersize=250)
    assert list(itertools.islice(stream, 300)) == [5] * 300
    with pytest.raises(ValueError, match="refer to 25 objects"):
        next(stream)


def test_a_time_limit_applies_to_each_call(any_client: Client) -> None:
    assert list(any_client.options(timeout=20).map(identity, range(30), buffersize=5)) == list(range(30))


def test_coroutine_functions_are_run(any_client: Client) -> None:
    async def double(number: int) -> int:
        if number == 30:
            raise ValueError("thirty")
        return 2 * number

    stream = any_client.map(double, itertools.count(), buffersize=20)
    assert [next(stream) for _ in range(30)] == list(range(0, 60, 2))
    with pytest.raises(ValueError, match="thirty"):
        next(stream)


def test_a_stream_inside_a_task_uses_the_cluster(any_client: Client) -> None:
    def nested(client: Client) -> int:
        total: int = sum(client.map(abs, iter(range(-50, 0)), buffersize=10))
        total += sum(client.imap_unordered(abs, [-1, -2]))
        return total

    assert any_client.submit(nested, any_client).result(TIMEOUT_SECONDS) == sum(range(51)) + 3


def test_a_client_that_disconnects_ends_its_streams(any_address: str) -> None:
    client = Client(any_address)
    stream = client.map(identity, itertools.count(), buffersize=10)
    assert next(stream) == 0
    client.disconnect()
    with pytest.raises((CancelledError, DisconnectedError)):
        list(itertools.islice(stream, 100))


@pytest.mark.parametrize("buffersize", ["foo", 2.0, True])
def test_a_buffersize_is_an_integer(any_client: Client, buffersize: Any) -> None:
    calls: List[Callable[[], Any]] = [
        lambda: any_client.map(str, range(4), buffersize=buffersize),
        lambda: any_client.imap_unordered(str, range(4), buffersize=buffersize),
        lambda: any_client.as_completed([], buffersize=buffersize),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="buffersize must be an integer or None"):
            call()


def test_a_buffersize_is_positive(any_client: Client) -> None:
    for buffersize in (0, -1):
        with pytest.raises(InvalidArgumentError, match="buffersize must be None or > 0"):
            any_client.map(str, range(4), buffersize=buffersize)


# In any order ---------------------------------------------------------------------------------------------------------


def test_results_come_as_they_arrive(any_client: Client, done_files: List[Path]) -> None:
    go = done_files[1]

    def wait_at_zero(number: int) -> int:
        if number == 0:
            wait_for_file(str(go))
        return number

    stream = any_client.imap_unordered(wait_at_zero, range(500))
    seen = [next(stream) for _ in range(100)]
    assert 0 not in seen
    go.touch()
    assert sorted(seen + list(stream)) == list(range(500))


def test_without_consumption_few_items_are_taken(any_client: Client) -> None:
    taken = Taken()
    stream = any_client.imap_unordered(identity, taken, buffersize=100)
    for count in range(1, 1000):
        next(stream)
        assert taken.count <= count + 100
    stream.close()


def test_a_failure_ends_an_unordered_map_after_what_has_arrived(any_client: Client) -> None:
    results: List[int] = []
    with pytest.raises(ValueError, match="no 300"):
        results.extend(any_client.imap_unordered(fails_at(300), range(100_000)))
    assert set(results) <= set(range(100_000)) - {300}


# As completed ---------------------------------------------------------------------------------------------------------


def test_futures_come_as_they_are_done(any_client: Client, done_files: List[Path]) -> None:
    go = done_files[1]
    slow = any_client.submit(wait_for_file, str(go))
    quick = [any_client.submit(identity, number) for number in range(50)]
    foreign: Future[int] = Future()
    foreign.set_result(1)
    stream = any_client.as_completed([slow, *quick, foreign, *quick])
    first = [next(stream) for _ in range(51)]
    assert set(first) == {*quick, foreign}
    go.touch()
    assert list(stream) == [slow]


def test_a_generator_of_futures_runs_as_far_as_the_buffer_reaches(any_client: Client) -> None:
    taken: Dict[Any, int] = {}

    def submitted() -> Iterator[Any]:
        for number in itertools.count():
            future = any_client.submit(identity, number)
            taken[future] = number
            yield future

    stream = any_client.as_completed(submitted(), buffersize=3)
    for count in range(1, 101):
        future = next(stream)
        assert future.done() and future.result() == taken[future]
        assert len(taken) <= count + 3
    stream.close()


def test_the_time_is_limited_and_finished_futures_come_first(any_client: Client, done_files: List[Path]) -> None:
    slow = any_client.submit(wait_for_file, str(done_files[1]))
    done = any_client.submit(identity, 1)
    done.result(TIMEOUT_SECONDS)
    seen = []
    with pytest.raises(FutureTimeoutError, match=r"1 \(of 2\) futures unfinished"):
        for future in any_client.as_completed([slow, done], timeout_seconds=0):
            seen.append(future)
    assert seen == [done]
    done_files[1].touch()
    slow.result(TIMEOUT_SECONDS)


def test_what_is_not_a_future_is_named_after_the_futures_before_it(any_client: Client) -> None:
    future = any_client.submit(identity, 1)
    items: List[Any] = [future, None]
    stream = any_client.as_completed(items)
    assert next(stream) is future
    with pytest.raises(ArgumentTypeError, match="takes futures, got NoneType"):
        next(stream)


def test_a_future_that_was_yielded_is_not_kept(any_client: Client) -> None:
    for future in any_client.as_completed((any_client.submit(make_bag, number) for number in range(10)), buffersize=2):
        reference = weakref.ref(future.result())
        del future
        gc.collect()
        assert reference() is None
