"""A Dask graph as numbered columns: which nodes the wanted keys need, in which order, and what each waits for.

    {"a": DataNode(1), "b": Task(inc, a), "c": Alias(b), "d": Task(add, b, c)}, ["d"]
                      ──▶  keys b, d;  b waits for nothing, d for position 0;  data a: 1

Rules:
- A node knows its dependencies: arguments are not searched for keys. An alias is no task: it stands for its target.
- Graphs of tuples, as Dask had them before 2024.12, are converted, by Dask itself if it can.
- Nothing is serialised or sent here.
"""

from __future__ import annotations

import sys
from array import array
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Type

from scaler.adapters.dask_nodes import TupleNode
from scaler.exceptions import GraphKeyError
from scaler.graph.graph_tasks import DATA
from scaler.graph.order import sort_depth_first
from scaler.values.texts import repr_of

Graph = Mapping[Any, Any]


class _Alias(NamedTuple):
    target: Any


class _Data(NamedTuple):
    value: Any


class DaskGraph(NamedTuple):
    """The nodes of a graph by key, and the types of those that are no tasks.

    Parameters:
        nodes: by key.
        alias: the type of nodes with a `target`.
        data: the type of nodes with a `value`.
    """

    nodes: Dict[Any, Any]
    alias: Type[Any]
    data: Type[Any]


def is_dask(graph: Any) -> bool:
    """Whether the first argument of `Client.get` is a graph of Dask: an expression, a HighLevelGraph, or a dictionary
    with nodes of Dask. Dictionaries of tuples look like graphs of Scaler: they are Dask's if Dask calls `get`."""
    if "dask" not in sys.modules:
        return False
    if type(graph) is not dict:
        return hasattr(graph, "__dask_graph__") or any(each.__module__ == _HIGH_LEVEL for each in type(graph).__mro__)
    caller = sys._getframe(_FRAMES_TO_CALLER).f_globals.get("__name__", "")
    if caller.partition(".")[0] == "dask":
        return True
    specification = sys.modules.get("dask._task_spec")
    return specification is not None and any(isinstance(value, specification.GraphNode) for value in graph.values())


_FRAMES_TO_CALLER = 2  # of `Client.get`, which calls `is_dask`
_HIGH_LEVEL = "dask.highlevelgraph"


def read_graph(graph: Any) -> DaskGraph:
    """The nodes of an expression, a HighLevelGraph, or a dictionary."""
    if not isinstance(graph, Mapping):
        graph = graph.__dask_graph__()
    if type(graph) is not dict:
        graph = graph.to_dict() if hasattr(graph, "to_dict") else dict(graph)
    try:
        from dask._task_spec import Alias, DataNode, GraphNode, convert_legacy_graph
    except ImportError:
        return DaskGraph({key: _converted(graph, key, value) for key, value in graph.items()}, _Alias, _Data)
    if not all(isinstance(value, GraphNode) for value in graph.values()):
        graph = convert_legacy_graph(graph)
    return DaskGraph(graph, Alias, DataNode)


def _converted(graph: Dict[Any, Any], key: Any, value: Any) -> Any:
    """A value of a graph of tuples as a node."""
    from dask.core import get_dependencies, istask

    try:
        if value in graph and value != key:
            return _Alias(value)
    except TypeError:
        pass  # not hashable, so not a key
    dependencies = get_dependencies(graph, task=value)
    if dependencies or istask(value) or type(value) is list:
        return TupleNode(value, tuple(dependencies))
    return _Data(value)


class NodeOrder:
    """The nodes that the wanted keys need, sorted: columns with one entry per node, by position.

    Parameters:
        graph: the whole graph.
        wanted: keys of it, or of data.

    Raises:
        GraphKeyError: a key that is wanted, or that a node needs, is not in the graph.
        GraphCycleError: nodes wait for each other in a cycle.
    """

    __slots__ = ("keys", "nodes", "names", "data", "offsets", "predecessors", "_graph", "_numbers", "_positions")

    def __init__(self, graph: DaskGraph, wanted: Sequence[Any]) -> None:
        self._graph = graph
        self._numbers: Dict[Any, int] = {}  # by key, those of aliases too; DATA for keys of data
        self.data: Dict[Any, Any] = {}  # values by key
        self.keys: List[Any] = []
        self.nodes: List[Any] = []
        self.names: List[Tuple[Any, ...]] = []  # the keys that each node needs
        needs, starts = array("I"), array("I", [0])
        roots = [number for number in [self._number_of(key, None) for key in wanted] if number != DATA]
        for node in self.nodes:  # it grows meanwhile
            names = in_order(node.dependencies)
            found = [self._number_of(name, node) for name in names]
            needs.extend(dict.fromkeys([number for number in found if number != DATA]))
            starts.append(len(needs))
            self.names.append(names)
        self._sort(needs, starts, roots)

    def _sort(self, needs: array[int], starts: array[int], roots: Sequence[int]) -> None:
        order, self._positions = sort_depth_first(self.keys, needs, starts, roots)
        self.keys = [self.keys[number] for number in order]
        self.nodes = [self.nodes[number] for number in order]
        self.names = [self.names[number] for number in order]
        # Where a node's predecessors start, with one entry more than there are nodes; and their positions.
        self.offsets = array("I", [0])
        numbers = array("I")
        for number in order:
            numbers += needs[starts[number] : starts[number + 1]]
            self.offsets.append(len(numbers))
        self.predecessors = array("I", map(self._positions.__getitem__, numbers))

    def wait_also(self, after: Mapping[int, Sequence[int]]) -> None:
        """Let nodes wait for further ones, whose results they do not get: positions before their own, by position."""
        if not after:
            return
        offsets, predecessors = array("I", [0]), array("I")
        for position in range(len(self.keys)):
            own = self.predecessors[self.offsets[position] : self.offsets[position + 1]]
            own.extend([each for each in after.get(position, ()) if each not in own])
            predecessors += own
            offsets.append(len(predecessors))
        self.offsets, self.predecessors = offsets, predecessors

    def _number_of(self, key: Any, needed_by: Any) -> int:
        number = self._numbers.get(key)
        return self._meet(key, needed_by) if number is None else number

    def _meet(self, key: Any, needed_by: Any) -> int:
        """Number a key that is met for the first time."""
        nodes, alias, data = self._graph
        passed = [key]
        node = nodes.get(key)
        while isinstance(node, alias) and len(passed) <= len(nodes):
            passed.append(node.target)
            node = nodes.get(node.target)
        target = passed[-1]
        number = self._numbers.get(target)
        if number is None:
            if node is None or isinstance(node, alias):
                whose = "" if needed_by is None else f", and {repr_of(getattr(needed_by, 'key', needed_by))} needs it"
                raise GraphKeyError(f"key {repr_of(target)} is not in the graph of Dask{whose}")
            number = DATA
            if isinstance(node, data):
                self.data[target] = node.value
            else:
                number = len(self.nodes)
                self.keys.append(target)
                self.nodes.append(node)
        for each in passed:
            self._numbers[each] = number
            if number == DATA:
                self.data[each] = self.data[target]
        return number

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, key: Any) -> Optional[int]:
        """The position of a node, also by an alias; None if the key is not that of a needed node."""
        number = self._numbers.get(key, DATA)
        position = DATA if number == DATA else self._positions[number]
        return None if position < 0 else position


def in_order(dependencies: Any) -> Tuple[Any, ...]:
    """The dependencies of a node, the same in each process: neighbours are neighbours in memory and time, too."""
    if len(dependencies) < 2:
        return tuple(dependencies)
    try:
        return tuple(sorted(dependencies))
    except TypeError:  # keys of several kinds
        return tuple(sorted(dependencies, key=repr))
