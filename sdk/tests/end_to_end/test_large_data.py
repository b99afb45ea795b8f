"""Large arguments, results and objects: sent once, intact, and by mapping on one host."""

from __future__ import annotations

import functools
import gc
import hashlib
import operator
import os
import subprocess
import sys
import threading
from typing import Any, Iterator, List, Tuple

import pytest
from object_files import nothing_is_left, object_files
from sdk_tasks import identity

from scaler import Client, ObjectReference
from scaler.client import functions
from scaler.client.shell import client_object_files as client_files
from scaler.values.payload import dump_function
from scaler_protocol import messages as m
from scaler_protocol.host.spill import remove_file

TIMEOUT_SECONDS = 100.0
HALF_GIGABYTE = 512 * 1024 * 1024


def digest(data: bytes) -> str:
    return hashlib.blake2b(data).hexdigest()


@pytest.fixture
def sent(any_client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[List[Any]]:
    """All messages that the client sends."""
    messages: List[Any] = []
    transport = any_client._shell.io.transport
    send = transport.send

    def record(message: Any, payload: Any = ()) -> None:
        messages.append(message)
        send(message, payload)

    monkeypatch.setattr(transport, "send", record)
    yield messages


@pytest.mark.slow
def test_half_a_gigabyte_goes_there_and_back_intact(any_client: Client) -> None:
    data = os.urandom(1024 * 1024) * (HALF_GIGABYTE // (1024 * 1024))
    result = any_client.submit(identity, data).result(TIMEOUT_SECONDS)
    assert len(result) == HALF_GIGABYTE and digest(result) == digest(data)
    del result
    gc.collect()
    assert nothing_is_left(any_client)


@pytest.mark.slow
def test_a_large_closure_is_serialised_once_and_travels_once(
    any_client: Client, sent: List[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 200 * 1024 * 1024
    pickled: List[Any] = []

    def note_and_dump(*args: Any) -> Any:
        pickled.append(args)
        return dump_function(*args)

    monkeypatch.setattr(functions, "dump_function", note_and_dump)

    function = functools.partial(lambda data, index: len(data) + index, bytes(size))
    futures = [any_client.submit(function, index) for index in range(1000)]
    assert [future.result(TIMEOUT_SECONDS) for future in futures] == [size + index for index in range(1000)]

    created = [message for message in sent if isinstance(message, m.ObjectInstruction) and message.action == 0]
    assert len(pickled) == 1, "serialised once"
    assert [list(message.sizes) for message in created] and sum(map(len, (c.ids for c in created))) == 1, "sent once"
    heartbeats = [message for message in sent if isinstance(message, m.Heartbeat)]
    assert any_client._shell.closed_because is None and len(heartbeats) == len({h.sequence for h in heartbeats})


def test_an_array_that_is_sent_once_is_a_read_only_view_in_every_task(any_client: Client) -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(1_000_000, dtype="float64")
    reference = any_client.send_object(array, name="numbers")
    assert type(reference) is ObjectReference
    assert reference.name == "numbers" and reference.size >= array.nbytes

    def look(values: Any, index: int) -> Tuple[bool, bool, float]:
        return values.flags.owndata, values.flags.writeable, float(values[index])

    futures = [any_client.submit(look, reference, index) for index in range(20)]
    assert [future.result(TIMEOUT_SECONDS) for future in futures] == [(False, False, float(n)) for n in range(20)]
    assert len(object_files(any_client)) == 1, "it is on this host once, however many tasks use it"
    with pytest.raises(ValueError, match=r"read-only \(arrays from send_object\(\), joblib and Dask are shared"):
        any_client.submit(fill, reference).result(TIMEOUT_SECONDS)
    any_client.clear()
    assert nothing_is_left(any_client)


def fill(values: Any, value: float = 7.0) -> Any:
    values[:] = value
    return values


@pytest.mark.parametrize("count", [1, 125, 1000, 100_000])
def test_arrays_of_any_size_are_writable_in_tasks_and_in_results(any_client: Client, count: int) -> None:
    numpy = pytest.importorskip("numpy")
    array, fixed = numpy.zeros(count), numpy.zeros(count)
    fixed.flags.writeable = False

    result = any_client.submit(fill, array).result(TIMEOUT_SECONDS)
    result += 1
    assert (result == 8.0).all() and (array == 0.0).all()
    (mapped,) = any_client.map(fill, [array])
    mapped += 1
    assert (mapped == 8.0).all()
    by_graph = any_client.get({"a": (fill, array), "b": (fill, "a", 1.0), "c": (fill, "a", 2.0)}, ["a", "b", "c"])
    assert {key: float(value.max()) for key, value in by_graph.items()} == {"a": 7.0, "b": 1.0, "c": 2.0}
    assert (any_client.submit(lambda: fill(array)).result(TIMEOUT_SECONDS) == 7.0).all()
    with pytest.raises(ValueError, match=r"read-only$"):
        any_client.submit(fill, fixed).result(TIMEOUT_SECONDS)


def test_what_a_task_writes_to_its_argument_no_other_task_sees(any_client: Client) -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.zeros(100_000)

    def add_one(values: Any) -> float:
        values += 1
        return float(values[0])

    assert [any_client.submit(add_one, array).result(TIMEOUT_SECONDS) for _ in range(10)] == [1.0] * 10
    graph = {"source": (numpy.zeros, 100_000), **{f"add {n}": (add_one, "source") for n in range(10)}}
    assert set(any_client.get(graph, [f"add {n}" for n in range(10)]).values()) == {1.0}
    assert (array == 0.0).all()


@pytest.mark.parametrize("count", [1000, 2000, 20_000])
def test_an_array_of_any_size_is_one_argument(any_client: Client, count: int) -> None:
    """Also one that is large enough for a buffer of its own, and too small to be an object."""
    numpy = pytest.importorskip("numpy")
    assert any_client.submit(len, numpy.zeros(count)).result(TIMEOUT_SECONDS) == count
    assert any_client.submit(sorted, numpy.arange(count), reverse=True).result(TIMEOUT_SECONDS)[0] == count - 1


def test_references_are_found_however_deep_they_are_nested(any_client: Client) -> None:
    reference = any_client.send_object([1, 2, 3])
    assert any_client.submit(identity, {"deep": [(reference, 4)]}).result(TIMEOUT_SECONDS) == {"deep": [([1, 2, 3], 4)]}
    assert any_client.submit(operator.add, reference, reference).result(TIMEOUT_SECONDS) == [1, 2, 3, 1, 2, 3]
    assert any_client.submit(sorted, reference, key=operator.neg).result(TIMEOUT_SECONDS) == [3, 2, 1]
    items: List[Any] = any_client.map(operator.getitem, [(reference, 0), (reference, 2)])
    assert items == [1, 3]


def test_large_arguments_and_results_leave_nothing_behind(any_client: Client) -> None:
    numpy = pytest.importorskip("numpy")
    futures = [any_client.submit(numpy.add, numpy.full(50_000, index), 1) for index in range(20)]
    for index, future in enumerate(futures):
        result = future.result(TIMEOUT_SECONDS)
        assert result.shape == (50_000,) and (result == index + 1).all()
    assert nothing_is_left(any_client)


def test_a_function_dies_with_its_last_use(any_client: Client, sent: List[Any]) -> None:
    def function(data: bytes = bytes(1_000_000)) -> int:
        return len(data)

    future = any_client.submit(function)
    del function
    gc.collect()
    another = any_client.submit(lambda: 1)  # a new function is an occasion to see which ones are gone
    assert (future.result(TIMEOUT_SECONDS), another.result(TIMEOUT_SECONDS)) == (1_000_000, 1)  # and follows that
    assert any(isinstance(message, m.ObjectInstruction) and message.action == m.ObjectAction.DELETE for message in sent)
    assert nothing_is_left(any_client)


REMOTE_CLIENT = """
import hashlib, sys
import scaler.client.shell.client_object_files
scaler.client.shell.client_object_files.shares_directory = lambda path, token: False   # as on another host

from scaler import Client
from sdk_tasks import identity

data = bytes(range(256)) * 40_000
with Client(address=sys.argv[1]) as client:
    assert client.submit(identity, data).result(60) == data
    reference = client.send_object(data)
    assert client.submit(len, reference).result(60) == len(data)
    assert client.submit(identity, reference).result(60) == data
    print("intact")
"""


def test_a_client_on_another_host_sends_and_fetches_in_chunks(any_address: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    finished = subprocess.run(
        [sys.executable, "-c", REMOTE_CLIENT, any_address],
        env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS,
    )  # fmt: skip
    assert (finished.stdout, finished.stderr) == ("intact\n", "")


def test_who_waits_has_the_result_before_the_file_of_the_argument_is_removed(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_result, is_removed = threading.Event(), threading.Event()
    was_waited_for: List[bool] = []

    def remove_afterwards(path: str) -> None:
        was_waited_for.append(not has_result.wait(TIMEOUT_SECONDS))
        remove_file(path)
        is_removed.set()

    monkeypatch.setattr(client_files, "remove_file", remove_afterwards)
    assert client.submit(len, bytes(10_000_000)).result(TIMEOUT_SECONDS) == 10_000_000
    has_result.set()
    assert is_removed.wait(TIMEOUT_SECONDS)
    assert was_waited_for == [False]
