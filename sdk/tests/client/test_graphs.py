"""Graphs of tasks, from the dictionary to the result."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError
from graphlib import CycleError
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
from object_files import nothing_is_left, object_files
from sdk_tasks import identity, notes_of

from scaler import Client, ScalerFuture, SchedulerClusterCombo, Serializer
from scaler.client import graph_submission as graph_module
from scaler.exceptions import (
    DeserializeObjectError,
    GraphKeyError,
    MissingObjects,
    ProcessorDiedError,
    SerializeObjectError,
    TaskRejectedError,
)
from scaler.graph import matrices, order
from scaler.values.payload import INLINE_BYTES
from scaler_protocol import messages as m

TIMEOUT_SECONDS = 100.0
PATH_OF_TESTS = {"PYTHONPATH": os.pathsep.join(sys.path)}


def inc(number: int) -> int:
    return number + 1


def add(left: Any, right: Any) -> Any:
    return left + right


def minus(left: int, right: int) -> int:
    return left - right


def arguments(*given: Any) -> Tuple[Any, ...]:
    return given


def fail(*given: Any) -> None:
    raise ZeroDivisionError("on purpose")


def wait_for(path: Path, *given: Any) -> None:
    """Say that it runs, and wait until it may end."""
    path.with_suffix(".runs").touch()
    while not path.exists():
        time.sleep(0.01)


def until_exists(path: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def value_of(client: Client, graph: Dict[Any, Any], key: Any) -> Any:
    return client.get(graph, [key])[key]


def reduction_tree(leaves: int) -> Dict[Any, Any]:
    """Sums of pairs of sums of pairs; the result is in "sum"."""
    graph: Dict[Any, Any] = {(0, leaf): (inc, leaf) for leaf in range(leaves)}
    level = list(graph)
    depth = 0
    while len(level) > 1:
        depth += 1
        pairs = list(zip(level[::2], level[1::2]))
        graph.update({(depth, index): (add, left, right) for index, (left, right) in enumerate(pairs)})
        level = [(depth, index) for index in range(len(pairs))] + level[2 * len(pairs) :]
    graph["sum"] = (identity, level[0])
    return graph


EXAMPLE: Dict[Any, Any] = {"a": 2, "b": 2, "c": (inc, "a"), "d": (add, "a", "b"), "e": (minus, "d", "c"), "f": add}


def test_the_standard_example_graph(client: Client) -> None:
    assert client.get(EXAMPLE, keys=["e"]) == {"e": 1}
    assert client.get(EXAMPLE, list("fedcba")) == {"f": add, "e": 1, "d": 4, "c": 3, "b": 2, "a": 2}
    assert list(client.get(EXAMPLE, list("fca"))) == ["f", "c", "a"], "in the order of the keys"
    futures = client.submit_graph(EXAMPLE, keys=["e", "a"])
    assert all(isinstance(future, ScalerFuture) for future in futures)
    assert [future.result(TIMEOUT_SECONDS) for future in futures] == [1, 2]


def test_without_blocking_there_is_a_future_for_each_key(client: Client) -> None:
    futures = client.get(EXAMPLE, ["a", "f", "d"], block=False)
    assert list(futures) == ["a", "f", "d"]
    assert futures["a"].done() and futures["a"].result() == 2 and futures["f"].result() is add
    assert futures["d"].result(TIMEOUT_SECONDS) == 4


def test_results_stand_for_keys_wherever_they_are(client: Client) -> None:
    graph = {
        "x": (inc, 1),
        "y": 10,
        "none": (arguments,),
        "nested": (arguments, ["x", ["y", ("x", 5)]], ("x",), [], (), {"x": "x"}, "z"),
        "twice": (arguments, "x", "x", 1, "x"),
        "mixed": (arguments, 1, "y", "x", None),
        "called": (arguments, (add, (inc, "x"), "y"), [(inc, 0)]),
    }
    assert client.get(graph, ["none", "nested", "twice", "mixed", "called"]) == {
        "none": (),
        "nested": ([2, [10, (2, 5)]], (2,), [], (), {"x": "x"}, "z"),
        "twice": (2, 2, 1, 2),
        "mixed": (1, 10, 2, None),
        "called": (13, [1]),
    }


def test_keys_are_any_hashable(client: Client) -> None:
    key = frozenset({1})
    graph = {("x", 0): (inc, 1), 7: (inc, ("x", 0)), None: (inc, 7), key: (add, None, 3.5), inc: (inc, 1)}
    assert client.get(graph, [("x", 0), 7, None, key, inc]) == {("x", 0): 2, 7: 3, None: 4, key: 7.5, inc: 2}


def test_functions_and_data_of_all_kinds_are_values(client: Client) -> None:
    offset = 5
    graph = {
        "function": inc,
        "apply": (lambda function, value: function(value) + offset, "function", 1),
        "partial": (functools.partial(add, 1), "apply"),
        "method": ("{}!".format, "partial"),
        "empty": (),
        "data": (arguments, "empty", "list", "missing"),
        "list": ["function"],
    }
    assert client.get(graph, ["method", "data", "empty"]) == {
        "method": "8!",
        "data": ((), ["function"], "missing"),
        "empty": (),
    }


def test_object_references_are_values_and_arguments(client: Client) -> None:
    reference = client.send_object([1, 2, 3])
    graph = {"o": reference, "sum": (sum, "o"), "both": (arguments, [reference, "sum"], "o"), "sum 2": (add, "sum", 1)}
    assert client.get(graph, ["both", "sum 2"]) == {"both": ([[1, 2, 3], 6], [1, 2, 3]), "sum 2": 7}
    assert value_of(client, graph, "o") == reference
    client.clear()
    with pytest.raises(MissingObjects):
        client.get(graph, ["sum"])


def test_only_what_the_keys_need_is_run(client: Client, tmp_path: Path) -> None:
    graph = {"a": (inc, 1), "b": (inc, "a"), "c": (Path.touch, tmp_path / "ran"), "d": (fail, "b"), "e": (inc, "e")}
    assert client.get(graph, ["b"]) == {"b": 3}
    assert not (tmp_path / "ran").exists()


def test_empty_graphs_and_no_keys(client: Client) -> None:
    assert client.get({}, []) == {} and client.submit_graph({}, []) == []
    assert client.get(EXAMPLE, []) == {} and client.get(EXAMPLE, [], block=False) == {}


def test_the_first_failure_is_raised_and_names_its_node(client: Client) -> None:
    graph = {"bad": (fail, 1), "x": (inc, "bad"), "y": (inc, "x"), "good": (inc, 1), "z": (inc, "good")}
    with pytest.raises(ZeroDivisionError, match="on purpose") as caught:
        client.get(graph, ["y"])
    assert notes_of(caught.value) == ["(raised by node 'bad' of the graph)"]
    assert "fail" in str(caught.value.__cause__), "with the traceback of the worker"
    futures = client.get(graph, ["bad", "x", "z"], block=False)
    assert futures["z"].result(TIMEOUT_SECONDS) == 3, "what does not depend on it goes on"
    for key in ("bad", "x"):
        error = futures[key].exception(TIMEOUT_SECONDS)
        assert isinstance(error, ZeroDivisionError) and notes_of(error) == ["(raised by node 'bad' of the graph)"]


def test_a_node_that_kills_its_processor_is_named(client: Client) -> None:
    future = client.submit_graph({"deadly": (os._exit, 3), "x": (inc, "deadly")}, ["x"])[0]
    error = future.exception(TIMEOUT_SECONDS)
    assert isinstance(error, ProcessorDiedError) and "'deadly'" in notes_of(error)[0]
    assert value_of(client, {"a": (inc, 1)}, "a") == 2


class Unloadable:
    def __reduce__(self) -> Tuple[Any, ...]:
        return (int, ("no number",))


def test_a_result_that_does_not_load_fails_the_node_that_needs_it(client: Client) -> None:
    future = client.submit_graph({"made": (Unloadable,), "used": (arguments, "made")}, ["used"])[0]
    error = future.exception(TIMEOUT_SECONDS)
    assert isinstance(error, DeserializeObjectError) and "'used'" in notes_of(error)[0]


def test_cycles_are_named(client: Client) -> None:
    graph: Dict[Any, Any] = {"a": (inc, "c"), "b": (inc, "a"), "c": (inc, [("b", 1)]), "d": (inc, "b"), "e": (inc, "e")}
    with pytest.raises(CycleError, match="'a'") as caught:
        client.get(graph, ["d"])
    cycle = caught.value.args[1]
    assert cycle[0] == cycle[-1] and set(cycle) == {"a", "b", "c"}
    for before, after in zip(cycle, cycle[1:]):
        assert before in str(graph[after]), "each is needed by the next, as graphlib has it"
    with pytest.raises(CycleError) as caught:
        client.submit_graph(graph, ["e"])
    assert caught.value.args[1] == ["e", "e"]


def test_keys_that_are_unknown_or_asked_for_twice(client: Client) -> None:
    with pytest.raises(KeyError, match="'missing' is not in the graph"):
        client.get(EXAMPLE, ["a", "missing"])
    with pytest.raises(GraphKeyError, match="'a' was given twice"):
        client.submit_graph(EXAMPLE, ["a", "b", "a"])
    with pytest.raises(TypeError, match=r"\['abc'\]"):
        client.get({"abc": 1}, "abc")
    with pytest.raises(TypeError):
        client.get({"abc": 1}, [["abc"]])  # type: ignore[list-item]  # wrong on purpose


def test_what_cannot_be_sent_is_named_and_nothing_is_left(any_client: Client) -> None:
    large = bytes(2 * INLINE_BYTES)
    for graph, name in (
        ({"large": large, "x": (arguments, "large"), "y": (arguments, "x", threading.Lock())}, "'y'"),
        ({"lock": [threading.Lock()], "y": (arguments, "lock")}, "'lock'"),
        ({"y": (functools.partial(arguments, threading.Lock()),)}, "function"),
    ):
        with pytest.raises(SerializeObjectError, match=name):
            any_client.get(graph, ["y"])
    assert nothing_is_left(any_client)


def test_a_graph_that_is_too_large_for_a_message(any_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(any_client._shell.welcome.limits, "maximum_message_bytes", 1000)
    with pytest.raises(TaskRejectedError, match="in parts"):
        any_client.get(reduction_tree(100), ["sum"])
    monkeypatch.setattr(any_client._shell.welcome.limits, "maximum_message_bytes", 0)
    monkeypatch.setattr(graph_module, "MAXIMUM_HEADER_BYTES", 1000)
    with pytest.raises(TaskRejectedError, match="in parts"):
        any_client.get(reduction_tree(100), ["sum"])


def test_large_values_travel_as_objects_and_none_is_left(client: Client) -> None:
    numpy = pytest.importorskip("numpy")
    data = numpy.arange(50_000)
    graph = {
        "data": data,
        "doubled": (numpy.multiply, "data", 2),
        "one": (numpy.add, "doubled", 1),
        "two": (numpy.add, "doubled", numpy.full(50_000, 2)),
        "small": (numpy.arange, 1000),
        "sums": (lambda *arrays: [int(array.sum()) for array in arrays], "one", "two", "data", "small"),
    }
    total = int(data.sum())
    result = client.get(graph, ["sums", "doubled"])
    assert result["sums"] == [2 * total + 50_000, 2 * total + 100_000, total, 499_500]
    assert (result["doubled"] == 2 * data).all()
    assert nothing_is_left(client)


def test_large_intermediate_results_never_come_to_the_client(
    any_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: List[Any] = []
    react = any_client._shell.core._reactions[m.TaskResult]

    def note_and_react(message: Any, payload: bytes) -> None:
        received.append((list(message.ids), len(payload)))
        react(message, payload)

    monkeypatch.setitem(any_client._shell.core._reactions, m.TaskResult, note_and_react)
    graph = {
        "bytes": (bytes, 10 * INLINE_BYTES),
        "small": (bytes, 1000),
        "length": (lambda *b: len(b), "bytes", "small"),
    }
    future = any_client.submit_graph(graph, ["length"])[0]
    assert future.result(TIMEOUT_SECONDS) == 2
    ((ids, size),) = received
    assert ids == [future.task_id] and size < 100
    assert nothing_is_left(any_client)


def test_ten_thousand_nodes(client: Client) -> None:
    graph = reduction_tree(5000)
    assert len(graph) == 10_000
    assert value_of(client, graph, "sum") == sum(range(1, 5001))
    assert client._shell.core.futures == {}


@pytest.mark.slow
@pytest.mark.exhaustive_on_pypy
def test_three_hundred_thousand_nodes(client: Client) -> None:
    """Its columns are larger than most headers."""
    assert value_of(client, reduction_tree(150_000), "sum") == sum(range(1, 150_001))
    assert client._shell.core.futures == {}


def test_a_node_with_many_predecessors_and_one_with_many_dependants(client: Client) -> None:
    graph: Dict[Any, Any] = {index: (add, "long", str(index)) for index in range(3000)}
    graph.update(long=(lambda: "x" * 1000,), all=(arguments, list(range(3000))))
    assert value_of(client, graph, "all")[0] == ["x" * 1000 + str(index) for index in range(3000)]


@pytest.mark.exhaustive_on_pypy
def test_a_deep_chain(client: Client) -> None:
    graph: Dict[Any, Any] = {index: (inc, index - 1) for index in range(1, 3001)}
    graph[0] = 0
    assert value_of(client, graph, 3000) == 3000


def test_many_functions_in_one_graph(client: Client) -> None:
    """More bound methods than the client keeps by themselves."""
    graph = {f"{index}": (f"{index} {{}}".format, index) for index in range(300)}
    assert client.get(graph, list(graph)) == {f"{index}": f"{index} {index}" for index in range(300)}


def test_cancelling_a_node_cancels_what_only_it_needed(any_client: Client, tmp_path: Path) -> None:
    go = tmp_path / "go"
    graph = {"wait": (wait_for, go), "a": (inc, 1), "b": (arguments, "wait", "a"), "c": (inc, "a")}
    futures = any_client.get(graph, ["b", "c"], block=False)
    until_exists(go.with_suffix(".runs"))
    assert futures["b"].cancel() and futures["b"].cancelled()
    with pytest.raises(CancelledError):
        futures["b"].result(TIMEOUT_SECONDS)
    assert futures["c"].result(TIMEOUT_SECONDS) == 3
    go.touch()
    assert nothing_is_left(any_client)


def test_clear_stops_a_graph_with_what_runs_of_it(any_client: Client, tmp_path: Path) -> None:
    go = tmp_path / "never"
    futures = any_client.submit_graph({"wait": (wait_for, go), "b": (identity, "wait"), "c": (identity, "b")}, ["c"])
    until_exists(go.with_suffix(".runs"))
    any_client.clear()
    assert futures[0].cancelled()
    both = any_client.submit_graph({key: (wait_for, tmp_path / key) for key in "xy"}, ["x", "y"])
    for key in "xy":  # both slots are free again
        until_exists((tmp_path / key).with_suffix(".runs"))
        (tmp_path / key).touch()
    assert [future.result(TIMEOUT_SECONDS) for future in both] == [None, None]


def test_get_cancels_the_rest_when_one_fails(any_client: Client, tmp_path: Path) -> None:
    graph = {"bad": (fail,), "wait": (wait_for, tmp_path / "go"), "b": (identity, "wait")}
    with pytest.raises(ZeroDivisionError):
        any_client.get(graph, ["b", "bad"])
    (tmp_path / "go").touch()
    assert nothing_is_left(any_client) and not any_client._shell.core.futures


def test_a_client_that_leaves_takes_its_graph_along(any_address: str, tmp_path: Path) -> None:
    with Client(address=any_address) as client:
        graph = {"wait": (wait_for, tmp_path / "never", bytes(2 * INLINE_BYTES)), "b": (len, "wait")}
        future = client.submit_graph({**graph, "large": (bytes, 2 * INLINE_BYTES), "c": (add, "large", "b")}, ["c"])[0]
        until_exists((tmp_path / "never").with_suffix(".runs"))
    with pytest.raises(CancelledError):
        future.result(TIMEOUT_SECONDS)
    with Client(address=any_address) as other:
        assert nothing_is_left(other)


def test_graphs_inside_of_tasks(any_client: Client) -> None:
    def fibonacci(client: Client, n: int) -> int:
        if n < 2:
            return n
        graph = {"n": n, "1": 1, "2": 2, "n-1": (minus, "n", "1"), "n-2": (minus, "n", "2")}
        less = client.get(graph, ["n-1", "n-2"])
        futures = [client.submit(fibonacci, client, less[key]) for key in ("n-1", "n-2")]
        return sum(future.result() for future in futures)

    assert any_client.submit(fibonacci, any_client, 5).result(TIMEOUT_SECONDS) == 5


class Marking(Serializer):
    """Shows who wrote what: pickles, each with a mark."""

    @staticmethod
    def serialize(obj: Any) -> bytes:
        import cloudpickle

        return b"M" + bytes(cloudpickle.dumps(obj))

    @staticmethod
    def deserialize(payload: bytes) -> Any:
        import cloudpickle

        assert payload[:1] == b"M"
        return cloudpickle.loads(payload[1:])


def test_a_serializer_of_ones_own_sees_values_and_no_keys(any_address: str) -> None:
    with Client(address=any_address, serializer=Marking()) as client:
        reference = client.send_object("o")
        graph = {
            "a": (inc, 1),
            "large": (bytes, 2 * INLINE_BYTES),
            "data": [1, 2],
            "all": (arguments, "a", ["a", (reference, "a", "data")], "literal"),
            "length": (len, "large"),
        }
        expected = {"all": (2, [2, ("o", 2, [1, 2])], "literal"), "length": 2 * INLINE_BYTES}
        assert client.get(graph, ["all", "length"]) == expected


REMOTE_WORKER = """
import scaler.worker.agent.shell.worker_files
scaler.worker.agent.shell.worker_files.shares_directory = lambda path, token: False   # as on another host

from scaler.worker.worker_program import main

main()
"""


def test_workers_on_another_host_send_large_results_through_the_scheduler() -> None:
    with SchedulerClusterCombo(n_workers=1, logging_level="WARNING") as combo, Client(combo.get_address()) as client:
        program = [sys.executable, "-c", REMOTE_WORKER, combo.get_address(), "-n", "1"]
        remote = subprocess.Popen([*program, "--logging-level", "WARNING"], env={**os.environ, **PATH_OF_TESTS})
        try:
            while client._shell.slots < 2:
                client.submit(identity, 0).result(TIMEOUT_SECONDS)
            graph: Dict[Any, Any] = {index: (bytes, 300_000 + index) for index in range(20)}
            graph.update({(index,): (len, index) for index in range(20)})
            assert list(client.get(graph, [(index,) for index in range(20)]).values()) == [
                300_000 + index for index in range(20)
            ]
            assert nothing_is_left(client) and object_files(client) == []
        finally:
            remote.terminate()
            remote.wait(TIMEOUT_SECONDS)


@pytest.mark.skipif(
    find_spec("suitesparse_graphblas") is None, reason="GraphBLAS is not installed: pip install 'scaler-sdk[graphblas]'"
)
def test_a_cluster_runs_what_matrices_sorted(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert matrices.load()
    monkeypatch.setattr(order, "FEWEST_FOR_MATRICES", 0)
    monkeypatch.setattr(order, "SMALL_PART", 1_000_000)
    monkeypatch.setattr(matrices, "FEWEST_TASKS_PER_LEVEL", 0)
    monkeypatch.setattr(order, "sort_depth_first", None)
    graph: Dict[Any, Any] = {("leaf", index): (abs, -index) for index in range(1000)}
    graph["tens"] = 10
    graph.update({("sum", index): (sum, [("leaf", index), ("leaf", 999 - index), "tens"]) for index in range(500)})
    graph["all"] = (sum, [("sum", index) for index in range(500)])
    graph["unused"] = (abs, "all")
    graph["both"] = (max, "all", ("leaf", 3), "tens")
    assert client.get(graph, ["both", ("sum", 7), "tens"]) == {"both": 504_500, ("sum", 7): 1009, "tens": 10}
