"""Dask's collections on a cluster: values, options, errors and callbacks."""

from __future__ import annotations

import io
import os
import signal
import threading
import time
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, Dict, List, Tuple

import dask
import dask.array
import dask.bag
import numpy
import pytest
from dask.callbacks import Callback
from dask.diagnostics import ProgressBar
from dask.utils import SerializableLock
from sdk_tasks import notes_of

from scaler import Client
from scaler.adapters import dask_submission
from scaler.adapters.dask_locks import LockOrder
from scaler.adapters.dask_nodes import NodeBundle
from scaler.adapters.dask_order import NodeOrder, read_graph
from scaler.exceptions import GraphCycleError, GraphKeyError, ProcessorDiedError, SerializeObjectError
from scaler.values.pickling import Pickler


def inc(number: int) -> int:
    return number + 1


def add(left: Any, right: Any) -> Any:
    return left + right


def process_of(*_: Any) -> int:
    return os.getpid()


def fail(*_: Any) -> None:
    raise ZeroDivisionError("on purpose")


def fail_first(path: Path) -> int:
    """Fails unless it has been called before; returns the number of calls."""
    calls = len(path.read_text()) if path.exists() else 0
    path.write_text("x" * (calls + 1))
    if not calls:
        raise ConnectionError("at first")
    return calls + 1


def computed_inside(number: int) -> Tuple[int, List[int]]:
    collection = dask.array.arange(number, chunks=2).map_blocks(lambda block: block * 0 + os.getpid())
    return os.getpid(), sorted(set(collection.compute().tolist()))


class Exclusive:
    """A target of `dask.array.store` that two tasks must not write to at the same time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __setitem__(self, index: Any, block: Any) -> None:
        writing = self.folder / "writing"
        os.close(os.open(writing, os.O_CREAT | os.O_EXCL))
        time.sleep(0.01)  # as long as it takes to write
        self.folder.joinpath(f"{index[0].start}").write_text(f"{block.sum()}")
        writing.unlink()


class Unpicklable:
    def __reduce__(self) -> Any:
        raise TypeError("it cannot be pickled")


# Values -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["client", "dask_get"])
def test_collections_have_their_values_and_run_in_workers(any_client: Client, how: str) -> None:
    scheduler = any_client if how == "client" else any_client.dask_get
    numbers = numpy.arange(10_000).reshape(100, 100)
    array = dask.array.from_array(numbers, chunks=30)
    bag = dask.bag.from_sequence(range(20), npartitions=4)
    total = dask.delayed(add)(dask.delayed(inc)(1), 2)
    with dask.config.set(scheduler=scheduler):
        assert numpy.array_equal((array + array.T).compute(), numbers + numbers.T)
        assert (array.sum(axis=0).mean() * 2).compute() == pytest.approx(numbers.sum(axis=0).mean() * 2)
        assert bag.map(inc).filter(lambda number: number % 2).fold(add).compute() == 100
        assert dask.compute(total, {"sum": [array.sum()]}, 7) == (4, {"sum": [numbers.sum()]}, 7)
        assert dask.delayed(process_of)().compute() != os.getpid()


def test_the_keys_of_a_graph_may_be_one_or_nested_in_lists(any_client: Client) -> None:
    graph = {"a": 1, "b": (inc, "a"), "c": (sum, ["a", "b", (inc, "b")]), "d": "b", ("e", 0): (add, "d", "c")}
    get = any_client.dask_get
    assert get(graph, "c") == 6
    assert get(graph, ["a", "b", "d"]) == (1, 2, 2)
    assert get(graph, [["a", ("e", 0)], ["d"], "b"]) == ((1, 8), (2,), 2)
    assert get(graph, []) == ()


def test_get_takes_graphs_of_scaler_as_ever(any_client: Client) -> None:
    assert any_client.get({"a": 1, "b": (inc, "a")}, ["b", "a"]) == {"b": 2, "a": 1}
    with pytest.raises(TypeError, match="unexpected keyword argument 'priority'"):
        any_client.get({"a": 1}, ["a"], priority=1)


def test_large_data_and_large_nodes_are_sent_as_objects_and_not_in_bundles(
    any_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled: List[int] = []
    made = NodeBundle.__init__

    def count(self: NodeBundle, name: str, content: bytes, number: int, client: bytes) -> None:
        bundled.append(len(content))
        made(self, name, content, number, client)

    monkeypatch.setattr(NodeBundle, "__init__", count)
    numbers = numpy.random.default_rng(0).random((300, 1000))
    array = dask.array.from_array(numbers, chunks=(100, 1000))
    shared = dask.delayed(numbers)
    rows = [dask.delayed(lambda all_rows, row: all_rows[row].sum())(shared, row) for row in range(10)]
    assert array.sum().compute(scheduler=any_client) == pytest.approx(numbers.sum())
    assert numpy.allclose(dask.compute(*rows, scheduler=any_client), numbers.sum(axis=1)[:10])
    assert 0 < sum(bundled) < 100_000


def test_a_layer_with_more_nodes_than_a_bundle_takes_is_sent_in_several(
    any_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_submission, "MAXIMUM_NODES", 7)
    array = dask.array.ones(100, chunks=1)
    assert (array * 3 - array).sum(split_every=4).compute(scheduler=any_client) == 200


def test_a_node_gets_each_of_its_dependencies_by_name(any_client: Client) -> None:
    """Whether it is a result, data, or an alias of either."""
    graph = {
        "data": [1, 2],
        "b": (inc, 1),
        "also b": "b",
        "also data": "data",
        "all": (list, [["b", "also b", "data", "also data", "b"]]),
    }
    found = any_client.dask_get(graph, ["all", "also b", "also data"])
    assert found == ([[2, 2, [1, 2], [1, 2], 2]], 2, [1, 2])


@pytest.mark.parametrize("nodes_of_bundle", [1, 256])
def test_tasks_with_the_same_lock_run_one_after_the_other(
    any_client: Client, tmp_path: Path, nodes_of_bundle: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one bundle, a pickler sees the lock only once."""
    monkeypatch.setattr(dask_submission, "MAXIMUM_NODES", nodes_of_bundle)
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    ones = dask.array.ones(30, chunks=1)
    lock = (
        SerializableLock() if dask.__version__ < "2025" else True
    )  # the last Dask of Python 3.9 takes another by default
    dask.array.store([ones, ones + 1], [Exclusive(folder) for folder in folders], lock=lock, scheduler=any_client)
    written = [sorted((int(path.name), path.read_text()) for path in folder.iterdir()) for folder in folders]
    assert written == [[(place, value) for place in range(30)] for value in ("1.0", "2.0")]


def test_only_tasks_with_the_same_lock_wait_for_each_other() -> None:
    with LockOrder() as order:
        for position, locks in enumerate(["a", "", "b", "ab", "a"]):
            Pickler(io.BytesIO()).dump([SerializableLock(name) for name in locks])
            order.add(position, f"layer {locks}")
    assert order.after == {3: [0, 2], 4: [3]}
    with LockOrder() as other:
        Pickler(io.BytesIO()).dump([1])
    assert not other.has_locks and not other.after


def test_a_node_gets_nothing_from_those_that_it_waits_for_because_of_a_lock() -> None:
    nodes = NodeOrder(read_graph({"a": (inc, 1), "b": (inc, "a"), "c": (inc, "b")}), ["a", "b", "c"])
    nodes.wait_also({1: [0], 2: [0]})
    assert (nodes.keys, list(nodes.offsets), list(nodes.predecessors)) == (["a", "b", "c"], [0, 0, 1, 3], [0, 1, 0])


def test_compute_inside_a_node_runs_on_the_same_cluster(any_client: Client) -> None:
    outer, inner = dask.delayed(computed_inside)(8).compute(scheduler=any_client)
    assert inner and os.getpid() not in inner
    assert outer not in inner


def test_a_coroutine_function_is_awaited(any_client: Client) -> None:
    async def twice(number: int) -> int:
        return 2 * number

    assert dask.delayed(twice)(4).compute(scheduler=any_client) == 8


def test_persist_keeps_values(any_client: Client) -> None:
    array = dask.array.arange(10, chunks=5) + 1
    kept = array.persist(scheduler=any_client)
    assert kept.sum().compute(scheduler=any_client) == 55


def test_several_threads_compute_with_one_client(any_client: Client) -> None:
    found: Dict[int, Any] = {}

    def compute(number: int) -> None:
        found[number] = (dask.array.arange(40, chunks=3) * number).sum().compute(scheduler=any_client)

    threads = [threading.Thread(target=compute, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: 780 * number for number in range(4)}


# Errors -------------------------------------------------------------------------------------------------------------


def test_the_error_of_a_node_names_its_key(any_client: Client) -> None:
    failing = dask.delayed(fail)(dask_key_name="the-failing-one")
    with pytest.raises(ZeroDivisionError, match="on purpose") as caught:
        dask.delayed(inc)(failing).compute(scheduler=any_client)
    assert any("the-failing-one" in note for note in notes_of(caught.value)) or not hasattr(caught.value, "add_note")


def test_a_node_that_cannot_be_pickled_is_named(any_client: Client) -> None:
    with pytest.raises(SerializeObjectError, match=r"the-odd-one.*it cannot be pickled"):
        any_client.dask_get({"the-odd-one": (inc, Unpicklable())}, "the-odd-one")
    assert any_client.dask_get({"a": (inc, 1)}, "a") == 2


def test_invalid_graphs_are_refused(any_client: Client) -> None:
    with pytest.raises(GraphKeyError, match="'z' is not in the graph"):
        any_client.dask_get({"a": (inc, 1)}, ["a", "z"])
    with pytest.raises(GraphCycleError):
        any_client.dask_get({"a": (inc, "b"), "b": (inc, "a")}, "a")
    with pytest.raises(GraphKeyError):
        any_client.dask_get({"a": "b", "b": "a"}, "a")


# Options ------------------------------------------------------------------------------------------------------------


def test_retries_call_a_node_again(any_client: Client, tmp_path: Path) -> None:
    with dask.annotate(retries=2):
        annotated = dask.delayed(fail_first)(tmp_path / "annotated")
    assert annotated.compute(scheduler=any_client, optimize_graph=False) == 2
    assert dask.delayed(fail_first)(tmp_path / "argument").compute(scheduler=any_client, retries=1) == 2
    with pytest.raises(ConnectionError):
        dask.delayed(fail_first)(tmp_path / "none").compute(scheduler=any_client)


def test_resources_are_capabilities(any_client: Client) -> None:
    done = threading.Event()

    def compute() -> None:
        with pytest.raises(CancelledError):
            dask.delayed(inc)(1).compute(scheduler=any_client, resources={"absent": 1})
        done.set()

    thread = threading.Thread(target=compute)
    thread.start()
    assert not done.wait(0.3)
    any_client.clear()
    assert done.wait(30)
    thread.join()


# Callbacks ----------------------------------------------------------------------------------------------------------


class Recorder(Callback):  # type: ignore[misc]  # Dask's are not typed
    def __init__(self) -> None:
        self.calls: List[Any] = []

    def _start(self, dsk: Any) -> None:
        self.calls.append("start")

    def _start_state(self, dsk: Any, state: Any) -> None:
        self.calls.append("start_state")

    def _pretask(self, key: Any, dsk: Any, state: Any) -> None:
        self.calls.append(("pretask", key))

    def _posttask(self, key: Any, result: Any, dsk: Any, state: Any, worker_id: Any) -> None:
        self.calls.append(("posttask", key, result))

    def _finish(self, dsk: Any, state: Any, errored: bool) -> None:
        self.calls.append(("finish", len(state["finished"]), errored))


def test_callbacks_see_each_task_and_the_end(any_client: Client) -> None:
    graph = {"a": (inc, 1), "b": (inc, "a"), "c": (fail, "b")}
    with Recorder() as recorder:
        assert any_client.dask_get(graph, "b") == 3
    assert recorder.calls[:4] == ["start", "start_state", ("pretask", "a"), ("pretask", "b")]
    assert set(recorder.calls[4:6]) == {("posttask", "a", 2), ("posttask", "b", 3)}
    assert recorder.calls[6:] == [("finish", 2, False)]

    with Recorder() as recorder, pytest.raises(ZeroDivisionError):
        any_client.dask_get(graph, "c")
    assert recorder.calls[-1][0] == "finish"
    assert recorder.calls[-1][2]


def test_the_progress_bar_of_dask_comes_to_its_end(any_client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar(dt=0.01):
        dask.array.ones(50, chunks=5).sum().compute(scheduler=any_client)
    assert "100% Completed" in capsys.readouterr().out


# The order ----------------------------------------------------------------------------------------------------------


def test_only_needed_nodes_are_ordered_each_after_what_it_needs() -> None:
    graph = {"a": 1, "b": (inc, "a"), "c": (add, "b", "e"), "d": (fail,), "e": "b"}
    order = NodeOrder(read_graph(graph), ["c", "a"])
    assert order.keys == ["b", "c"]
    assert order.predecessors.tolist() == [0]
    assert order.offsets.tolist() == [0, 0, 1]
    assert order.data == {"a": 1}
    assert (order.find("e"), order.find("d"), order.find("a")) == (0, None, None)


# Ends ---------------------------------------------------------------------------------------------------------------


def wait_for(running: Path, go: Path) -> int:
    """Says that it runs, and in which process; waits until it may end."""
    running.write_text(str(os.getpid()))
    while not go.exists():
        time.sleep(0.01)
    return 1


def process_once_written(path: Path) -> int:
    while not path.exists() or not path.read_text():
        time.sleep(0.01)
    return int(path.read_text())


def test_ctrl_c_cancels_the_computation_and_leaves_the_client_usable(
    any_client: Client, done_files: List[Path]
) -> None:
    running, go = done_files
    waiting_thread = threading.get_ident()

    def interrupt() -> None:
        process_once_written(running)
        signal.pthread_kill(waiting_thread, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        dask.delayed(inc)(dask.delayed(wait_for)(running, go)).compute(scheduler=any_client)
    thread.join()
    process = process_once_written(running)
    while Path(f"/proc/{process}").exists():  # its task is stopped
        time.sleep(0.01)
    assert dask.delayed(inc)(1).compute(scheduler=any_client) == 2


def test_the_death_of_a_tasks_process_is_an_error_that_names_its_key(
    any_client: Client, done_files: List[Path]
) -> None:
    running, go = done_files
    thread = threading.Thread(target=lambda: os.kill(process_once_written(running), signal.SIGKILL))
    thread.start()
    waiting = dask.delayed(wait_for)(running, go, dask_key_name="the-waiting-one")
    with pytest.raises(ProcessorDiedError) as caught:
        dask.delayed(inc)(waiting).compute(scheduler=any_client)
    thread.join()
    assert any("the-waiting-one" in note for note in notes_of(caught.value)) or not hasattr(caught.value, "add_note")
