"""A submitted function is the function as it is at that moment, in a cluster, by every way of submitting."""

from __future__ import annotations

import functools
import gc
import io
import pickle
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Callable, Iterator, List, Tuple

import cloudpickle
import numpy as np
import pytest
from sdk_tasks import identity

from scaler import Client
from scaler.values.captures import LARGE_BUFFER_BYTES
from scaler.values.pickling import Pickler

# Large captures ------------------------------------------------------------------------------------------------------


@pytest.fixture
def count_sent(any_client: Client, monkeypatch: pytest.MonkeyPatch) -> List[str]:
    """The names of functions in the order in which they are sent."""
    sent: List[str] = []
    send = any_client._shell.functions._send

    def note_and_send(parts: Any, name: str) -> Any:
        sent.append(name)
        return send(parts, name)

    monkeypatch.setattr(any_client._shell.functions, "_send", note_and_send)
    return sent


def test_a_large_closure_is_serialised_and_sent_once(any_client: Client, count_sent: List[str]) -> None:
    array, blob, table = (
        np.ones(4_000_000),
        bytes(8_000_000),
        {"inside": np.ones((1000, 1000)).T, "bytes": bytes(3_000_000)},
    )

    def large(number: int) -> Tuple[int, float, int]:
        return number, float(array[0] + table["inside"][0, 0]), len(blob)

    futures = [any_client.submit(large, number) for number in range(1000)]

    assert [future.result() for future in futures] == [(number, 2.0, 8_000_000) for number in range(1000)]
    assert len(count_sent) == 1


def test_a_large_array_that_changed_in_place_is_sent_when_asked(any_client: Client) -> None:
    array = np.zeros(LARGE_BUFFER_BYTES)

    def first() -> float:
        return float(array[0])

    assert any_client.submit(first).result() == 0.0
    array[0] = 1.0
    assert any_client.submit_verbose(first, (), {}, reserialize=True).result() == 1.0
    array = np.full(LARGE_BUFFER_BYTES, 2.0)
    assert any_client.submit(first).result() == 2.0


def test_a_function_that_alternates_is_sent_once_for_each_state(any_client: Client, count_sent: List[str]) -> None:
    state = 0

    def alternating() -> int:
        return state

    for number in range(50):
        state = number % 2
        assert any_client.submit(alternating).result() == state
    assert len(count_sent) == 2


# In a cluster --------------------------------------------------------------------------------------------------------

Submit = Callable[..., Any]


def _submit(client: Client, function: Callable[[], Any]) -> Any:
    return client.submit(function).result()


def _verbose(client: Client, function: Callable[[], Any]) -> Any:
    return client.submit_verbose(function, (), {}).result()


def _large_argument(client: Client, function: Callable[..., Any]) -> Any:
    return client.submit(lambda result, _: result(), function, bytes(100_000)).result()


def _map(client: Client, function: Callable[[], Any]) -> Any:
    return client.starmap(function, [()])[0]


def _graph(client: Client, function: Callable[[], Any]) -> Any:
    return client.get({"a": (function,)}, ["a"])["a"]


def _view(client: Client, function: Callable[[], Any]) -> Any:
    return client.options(priority=1).submit(function).result()


def _nested(client: Client, function: Callable[[], Any]) -> Any:
    def parent(client: Client) -> List[Any]:
        counter = [0]

        def child() -> Any:
            return counter[0], function()

        first = client.submit(child).result()
        counter[0] = 1
        second = client.submit(child).result()
        assert (first[0], second[0]) == (0, 1)
        result: List[Any] = second[1]
        return result

    return client.submit(parent, client).result()


@pytest.mark.parametrize("ask", [_submit, _verbose, _large_argument, _map, _graph, _view, _nested])
def test_every_way_of_submitting_sees_the_present_state(any_client: Client, ask: Submit) -> None:
    rate, table = 1, {"a": 1}

    class Settings:
        rate = 1

    def function() -> Tuple[int, int, int]:
        return rate, table["a"], Settings.rate

    for number in (1, 2, 1, 3):
        rate = table["a"] = Settings.rate = number
        assert ask(any_client, function) == (number, number, number)
        assert Settings.rate == number, "what comes back leaves the class here alone"


def test_classes_have_the_attributes_that_each_task_was_submitted_with(any_client: Client) -> None:
    @dataclass
    class Point:
        x: int
        scale = 1

        def scaled(self) -> int:
            return self.x * self.scale

    open_class: Any = Point

    def captured() -> int:
        return Point.scale

    def argument(point: Any) -> Tuple[int, bool]:
        return point.scaled(), hasattr(type(point), "extra")

    futures = []
    for scale in (1, 2, 3, 2, 1):
        Point.scale = scale
        if scale == 2:
            open_class.extra = True
        elif hasattr(Point, "extra"):
            del open_class.extra
        futures.append((scale, any_client.submit(captured), any_client.submit(argument, Point(10))))
    for scale, first, second in futures:
        assert first.result() == scale
        assert second.result() == (10 * scale, scale == 2)
    returned = any_client.submit(identity, Point(5)).result()
    assert type(returned) is Point and returned == Point(5)


def test_threads_may_submit_a_function_whose_state_they_change(any_client: Client) -> None:
    states = list(range(10))
    local = threading.local()

    def with_state(expected: int) -> Tuple[int, int]:
        return expected, stateful.state

    stateful: Any = with_state

    lock = threading.Lock()
    futures: List[Any] = []

    def submit_all(first: int) -> None:
        local.first = first
        for number in range(100):
            with lock:
                stateful.state = states[(first + number) % 10]
                future = any_client.submit_verbose(stateful, (stateful.state,), {}, reserialize=number % 2 == 0)
            futures.append(future)

    threads = [threading.Thread(target=submit_all, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for future in futures:
        expected, found = future.result()
        assert expected == found


def test_two_threads_may_force_a_function_to_be_serialised_at_once(any_client: Client) -> None:
    array = np.zeros(1000)

    def total() -> float:
        return float(array.sum())

    failures: List[BaseException] = []

    def submit_all() -> None:
        try:
            for number in range(200):
                array[0] = number
                any_client.submit_verbose(total, (), {}, reserialize=True).result()
                any_client.submit(total).result()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=submit_all) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_methods_of_one_object_are_known_apart(any_client: Client) -> None:
    class Counter:
        def __init__(self) -> None:
            self.value = 1

        def get(self) -> int:
            return self.value

        def double(self) -> int:
            return 2 * self.value

    counter = Counter()
    for value in (1, 5):
        counter.value = value
        assert any_client.submit(counter.get).result() == value
        assert any_client.submit(counter.double).result() == 2 * value


@pytest.fixture
def odd_values() -> Iterator[List[Any]]:
    yield [OrderedDict(a=1), functools.partial(max, 1), range(3), frozenset({1}), (1, (2, (3,))), None, ..., 1j]


def test_values_of_many_types_are_captured(any_client: Client, odd_values: List[Any]) -> None:
    def captured() -> List[Any]:
        return odd_values

    for value in list(odd_values):
        odd_values[0] = value
        assert repr(any_client.submit(captured).result()) == repr(odd_values)


def _pickled_class() -> bytes:
    class Settings:
        rate = 7

    buffer = io.BytesIO()
    Pickler(buffer).dump(Settings)
    return buffer.getvalue()


def test_a_class_that_is_collected_while_it_is_loaded_again_has_its_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = _pickled_class()
    gc.collect()  # from now on the class is one from elsewhere
    make_skeleton = cloudpickle.cloudpickle._make_skeleton_class

    def make_after_collection(*arguments: Any) -> Any:
        gc.collect()
        return make_skeleton(*arguments)

    monkeypatch.setattr(cloudpickle.cloudpickle, "_make_skeleton_class", make_after_collection)
    gc.disable()
    try:
        assert pickle.loads(pickled).rate == 7  # and is garbage, which has not been collected yet
        assert pickle.loads(pickled).rate == 7
    finally:
        gc.enable()
