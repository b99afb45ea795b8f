"""Which tasks of a graph are needed, and in which order: found task by task, and at once by matrices."""

from __future__ import annotations

import random
import subprocess
import sys
from graphlib import CycleError
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Callable, Dict, Hashable, List, Sequence, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.exceptions import GraphKeyError
from scaler.graph import graph_columns as graph_columns
from scaler.graph import matrices as graph_matrices
from scaler.graph import order as graph_order
from scaler.graph.order import GraphOrder

Graph = Dict[Any, Any]

needs_graphblas = pytest.mark.skipif(
    find_spec("suitesparse_graphblas") is None, reason="GraphBLAS is not installed: pip install 'scaler-sdk[graphblas]'"
)


def by_tasks(graph: Graph, wanted: Sequence[Hashable]) -> GraphOrder:
    """As graphs are sorted that are not very large."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_order, "FEWEST_FOR_MATRICES", len(graph) + 1)
        return GraphOrder(graph, wanted)


def by_matrices(
    graph: Graph, wanted: Sequence[Hashable], tasks_per_level: int = 0, corrections: int = 1000
) -> GraphOrder:
    """As very large graphs are sorted; by default matrices go on, however long it takes."""
    assert graph_matrices.load()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_order, "FEWEST_FOR_MATRICES", 0)
        patch.setattr(graph_order, "SMALL_PART", len(graph) + 1)  # nothing is looked at beforehand
        patch.setattr(graph_matrices, "FEWEST_TASKS_PER_LEVEL", tasks_per_level)
        patch.setattr(graph_matrices, "MOST_CORRECTIONS", corrections)
        return GraphOrder(graph, wanted)


def content(order: GraphOrder) -> Dict[Any, Tuple[Any, int, List[Any]]]:
    """Of each task by its key: the task itself, the form of its arguments, and the keys that it needs."""
    keys, offsets, predecessors = order.keys, order.offsets, order.predecessors
    assert len(keys) == len(order.tasks) == len(order.forms) == len(offsets) - 1 and offsets[-1] == len(predecessors)
    found = {}
    for position, key in enumerate(keys):
        before = predecessors[offsets[position] : offsets[position + 1]]
        assert all(each < position for each in before), "each comes after those that it waits for"
        found[key] = (order.tasks[position], order.forms[position], [keys[each] for each in before])
    assert len(found) == len(keys), "each comes once"
    return found


def assert_same(graph: Graph, wanted: Sequence[Hashable], **limits: int) -> None:
    """Both ways come to the same, or fail in the same words (or name True what the other way names 1)."""
    try:
        expected = by_tasks(graph, wanted)
    except (CycleError, GraphKeyError) as error:
        with pytest.raises(type(error)) as caught:
            by_matrices(graph, wanted, **limits)
        assert caught.value.args[-1] == error.args[-1]
        return
    order = by_matrices(graph, wanted, **limits)
    assert content(order) == content(expected)
    for position, key in enumerate(order.keys):
        assert order.find(key) == position
    assert [key for key in graph if order.find(key) is None] == [key for key in graph if expected.find(key) is None]
    assert order.find("no key at all") is None


def function(*arguments: Any) -> Any:
    return arguments


def tree(leaves: int, is_next: bool = True) -> Graph:
    """Pairs of pairs; of neighbours, or of what is as far away as can be."""
    graph: Graph = {("leaf", index): (function, index) for index in range(leaves)}
    level = list(graph)
    while len(level) > 1:
        half = len(level) // 2
        pairs = zip(level[::2], level[1::2]) if is_next else zip(level[:half], level[half:])
        above = {(len(level), index): (function, *pair) for index, pair in enumerate(pairs)}
        graph.update(above)
        level = [*above, *level[2 * half :]]
    graph["root"] = (function, level[0])
    return graph


def chain(length: int) -> Graph:
    return {index: (function, index - 1, "literal") if index else (function,) for index in range(length)}


def fan(width: int) -> Graph:
    middle: Graph = {("middle", index): (function, "source", index) for index in range(width)}
    return {"source": (function, 1), **middle, "root": (function, list(middle), "source")}


def layers(depth: int, width: int) -> Graph:
    """Each needs some of the three layers before."""
    dice = random.Random(depth * width)
    graph: Graph = {}
    for layer in range(depth):
        for index in range(width):
            before = [(max(0, layer - dice.randint(1, 3)), dice.randrange(width)) for _ in range(3)] if layer else []
            graph[layer, index] = (function, *before)
    graph["root"] = (function, [(depth - 1, index) for index in range(width)])
    return graph


def shuffled(graph: Graph) -> Graph:
    items = list(graph.items())
    random.Random(len(graph)).shuffle(items)
    return dict(items)


def peak_of_results(order: GraphOrder) -> int:
    """How many results exist at most if tasks run one by one, those first that became ready last."""
    offsets, count = order.offsets, len(order)
    missing = [offsets[position + 1] - offsets[position] for position in range(count)]
    dependants: List[List[int]] = [[] for _ in range(count)]
    for position in range(count):
        for each in order.predecessors[offsets[position] : offsets[position + 1]]:
            dependants[each].append(position)
    waiting = list(map(len, dependants))
    ready = [position for position in range(count) if not missing[position]][::-1]
    peak = results = 0
    while ready:
        position = ready.pop()
        results += 1
        peak = max(peak, results)
        for each in order.predecessors[offsets[position] : offsets[position + 1]]:
            waiting[each] -= 1
            results -= not waiting[each]
        for each in reversed(dependants[position]):
            missing[each] -= 1
            if not missing[each]:
                ready.append(each)
    return peak


# What is in the arguments of a task of a random graph: keys, small ones more often, and all that is none.
_keys = st.integers(0, 30)
_plain = st.one_of(_keys, _keys, st.sampled_from(["text", None, 3.5, (), ("tuple",), 77, function, True]))
_arguments = st.one_of(
    _plain,
    _plain,
    st.lists(_plain, max_size=4),
    st.tuples(_plain, st.lists(_keys, max_size=2)),
    st.tuples(st.just(function), _keys),
    st.dictionaries(_keys, _keys, max_size=1),
)
_values = st.one_of(
    st.lists(_plain, max_size=4).map(lambda arguments: (function, *arguments)),
    st.lists(_arguments, max_size=4).map(lambda arguments: (function, *arguments)),
    st.sampled_from([1, [], (), "data", (1, 2), function]),
)


@needs_graphblas
@settings(max_examples=400, deadline=None)
@given(
    graph=st.dictionaries(st.one_of(_keys, st.just(("tuple",)), st.just(function)), _values, min_size=1), data=st.data()
)
def test_random_graphs_are_the_same_both_ways(graph: Graph, data: st.DataObject) -> None:
    wanted = data.draw(st.lists(st.sampled_from(list(graph)), unique=True))
    assert_same(graph, wanted)
    assert_same(graph, wanted, tasks_per_level=data.draw(st.integers(0, 20)), corrections=data.draw(st.integers(0, 3)))


@needs_graphblas
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_random_graphs_without_cycles_are_sorted_by_matrices_alone(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 40))
    needs = [data.draw(st.lists(st.integers(0, index - 1), max_size=5)) if index else [] for index in range(count)]
    names = data.draw(st.permutations(range(count)))
    items = [
        (names[index], (function, *[names[each] for each in each_needs])) for index, each_needs in enumerate(needs)
    ]
    graph = dict(data.draw(st.permutations(items)))
    wanted = data.draw(st.lists(st.sampled_from(list(graph)), min_size=1, unique=True))
    with pytest.MonkeyPatch.context() as patch:
        by_tasks(graph, wanted)
        expected = content(by_tasks(graph, wanted))
        patch.setattr(graph_order, "sort_depth_first", None)
        assert content(by_matrices(graph, wanted)) == expected


SHAPES: List[Callable[[], Graph]] = [
    lambda: tree(5000),
    lambda: tree(5000, is_next=False),
    lambda: shuffled(tree(5000)),
    lambda: fan(20_000),
    lambda: shuffled(fan(20_000)),
    lambda: layers(20, 500),
    lambda: shuffled(layers(20, 500)),
]


@needs_graphblas
@pytest.mark.parametrize("make", SHAPES)
def test_shapes_are_the_same_both_ways(make: Callable[[], Graph]) -> None:
    graph = make()
    assert_same(graph, ["root"])
    keys = [key for key in graph if key != "root"]
    assert_same(graph, keys[:1] + keys[len(keys) // 2 : len(keys) // 2 + 3])


@needs_graphblas
@pytest.mark.parametrize("is_next", [True, False])
def test_matrices_go_through_a_tree_depth_first(is_next: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = shuffled(tree(5000, is_next))
    expected = by_tasks(graph, ["root"])
    assert peak_of_results(expected) < 40, "the first tasks to run are those whose results are used up first"
    monkeypatch.setattr(graph_order, "sort_depth_first", None)
    assert by_matrices(graph, ["root"]).keys == expected.keys


@needs_graphblas
def test_where_much_is_shared_no_more_results_wait_than_depth_first(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = layers(20, 500)
    expected = peak_of_results(by_tasks(graph, ["root"]))
    monkeypatch.setattr(graph_order, "sort_depth_first", None)
    assert peak_of_results(by_matrices(graph, ["root"])) < 1.25 * expected


@needs_graphblas
def test_a_deep_chain_is_sorted_task_by_task() -> None:
    graph = shuffled(chain(20_000))
    order = by_matrices(graph, [19_999], tasks_per_level=graph_matrices.FEWEST_TASKS_PER_LEVEL)
    assert order.keys == list(range(20_000)), "in its only order"
    assert content(order) == content(by_tasks(graph, [19_999]))


@needs_graphblas
def test_a_cycle_has_the_same_name_in_a_large_graph() -> None:
    graph = tree(5000)
    graph["leaf", 17] = (function, "x")
    graph["x"] = (function, [("y",), "z"])
    graph["y",] = (function, "z")
    graph["z"] = (function, "x", "z")
    with pytest.raises(CycleError, match=r"'x' -> 'z'|'z' -> ") as caught:
        by_matrices(graph, ["root"], tasks_per_level=1, corrections=4)
    with pytest.raises(CycleError) as expected:
        by_tasks(graph, ["root"])
    assert caught.value.args == expected.value.args
    assert len(by_matrices(graph, [("leaf", 16)])) == 1, "the cycle is not needed"
    graph["self"] = (function, "self")
    assert_same(graph, ["self", "root"])


class Uncomparable:
    """Looks like a key to a dictionary, and then cannot be compared with it."""

    def __hash__(self) -> int:
        return hash("root")

    def __eq__(self, other: object) -> bool:
        raise ValueError("on purpose")


@needs_graphblas
def test_what_cannot_be_looked_up_matters_only_where_it_is_needed() -> None:
    graph = tree(100)
    graph["odd"] = (function, Uncomparable())
    assert_same(graph, ["root"])
    assert_same(graph, ["odd"])
    assert graph_columns.read_columns(graph) is None


class UnhashableFunction:
    __hash__ = None  # type: ignore[assignment]  # as users make a class unhashable

    def __call__(self) -> None:
        pass


@needs_graphblas
def test_functions_that_are_not_hashable_or_that_are_keys() -> None:
    odd = UnhashableFunction()
    assert_same({"a": (odd,), "b": (odd, "a", 1), function: (function, "b", "a"), "c": (function, function)}, ["c"])


# The choice -----------------------------------------------------------------------------------------------------------


@needs_graphblas
def test_matrices_are_for_large_graphs_and_larger_ones_if_they_must_be_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert graph_matrices.load()

    def smallest() -> List[int]:
        steps = [
            graph_order.FEWEST_FOR_MATRICES,
            graph_order.FEWEST_TO_IMPORT_GRAPHBLAS,
            graph_order.FEWEST_TO_IMPORT_NUMPY,
        ]
        return [
            count
            for step in steps
            for count in (step - 1, step)
            if graph_order.may_use_matrices(dict.fromkeys(range(count)))
        ]

    first, second, third = (
        graph_order.FEWEST_FOR_MATRICES, graph_order.FEWEST_TO_IMPORT_GRAPHBLAS, graph_order.FEWEST_TO_IMPORT_NUMPY
    )  # fmt: skip
    assert smallest()[0] == first
    monkeypatch.delitem(sys.modules, "suitesparse_graphblas")
    assert smallest()[0] == second
    monkeypatch.delitem(sys.modules, "numpy")
    assert smallest() == [third]
    monkeypatch.setattr(graph_matrices, "is_installed", lambda: False)
    assert smallest() == []


@needs_graphblas
def test_a_small_part_of_a_large_graph_is_looked_at_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert graph_matrices.load()
    graph = {**chain(graph_order.FEWEST_FOR_MATRICES), "list": (function, [1] * graph_order.FEWEST_FOR_MATRICES)}
    read = []
    monkeypatch.setattr(graph_columns, "read_columns", lambda graph: read.append(len(graph)))
    assert len(GraphOrder(graph, [1200])) == 1201 and not read
    assert len(GraphOrder(graph, [1300])) == 1301 and len(read) == 1
    assert len(GraphOrder(graph, ["list"])) == 3 and len(read) == 2, "a long list may be all of the graph"


def test_without_graphblas_large_graphs_are_sorted_task_by_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_order, "FEWEST_FOR_MATRICES", 0)
    monkeypatch.setattr(graph_order, "FEWEST_TO_IMPORT_GRAPHBLAS", 0)
    monkeypatch.setattr(graph_order, "FEWEST_TO_IMPORT_NUMPY", 0)
    monkeypatch.setattr(graph_matrices, "load", lambda: False)
    monkeypatch.setattr(graph_matrices, "is_installed", lambda: True)
    assert GraphOrder(chain(100), [99]).keys == list(range(100)), "it is installed, and does not work"
    monkeypatch.setattr(graph_matrices, "is_installed", lambda: False)
    assert GraphOrder(chain(100), [99]).keys == list(range(100))


@needs_graphblas
def test_matrices_leave_no_thread_and_no_file(tmp_path: Path) -> None:
    """Threads would not survive a fork; and what GraphBLAS compiles it would store in the user's home."""
    program = f"""
import os, sys
sys.path[:] = {[str(Path(__file__).parent), *sys.path]!r}
import numpy
from test_order import by_matrices, layers, tree
thread_count = lambda: len(os.listdir("/proc/self/task"))
before = thread_count()
graph = tree(50_000)
by_matrices(graph, ["root"])
assert thread_count() == before, (thread_count(), before)
child = os.fork()
if not child:
    by_matrices(layers(20, 2000), ["root"])
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    environment = {"HOME": str(tmp_path), "OMP_NUM_THREADS": "4"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=100)
    assert list(tmp_path.iterdir()) == []
