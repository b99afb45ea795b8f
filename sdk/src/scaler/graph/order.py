"""Which tasks of a graph are needed, in which order, and which tasks each of them waits for.

    {"a": 1, "b": (inc, "a"), "c": (add, "b", "b")}, ["c"]  ──▶  keys b, c;  b waits for nothing, c for position 0

Rules:
- Only the needs of the wanted keys are read: the cost depends on them, not on the size of the graph.
- Each task comes after the tasks it waits for, and as close behind them as possible: the first tasks to run are those
  whose results are used up first.
- Keys are looked up before anything else: an object that equals a key of the graph stands for it, as an argument and
  within lists and tuples, including tuples that are keys.
- Each task's arguments are read once, and tasks get numbers; from then on everything is columns of numbers. The form
  records whether arguments are only results of other tasks, or contain no keys: this holds for most tasks, and saves a
  second look.
- Nothing is serialised or sent here: a graph with a cycle has no other cost.
- Exception: very large graphs, of which more than a small part is needed, are read at once (`columns`) and sorted by
  GraphBLAS (`matrices`), if it is installed. The result is the same except for the order, which is close to depth
  first. ADR 0011 gives the conditions and reasons.
"""

from __future__ import annotations

import sys
from array import array
from itertools import islice
from typing import Any, Dict, Hashable, List, NoReturn, Optional, Sequence, Tuple

from scaler.exceptions import GraphCycleError
from scaler.graph.graph_tasks import DATA, FLAT, MIXED, NO_KEYS, ONLY_RESULTS, Graph, is_task, keys_in
from scaler.values.texts import repr_of

_UNSEEN, _OPENED = -1, -2  # in place of a task's position
_NOTHING = object()

FEWEST_FOR_MATRICES = 10_000
"""The size of a graph for which GraphBLAS is used, if it is imported. Importing it, and NumPy before it, costs time
once per process: if they are not imported, the graph must be larger by as many entries as make up for that."""
FEWEST_TO_IMPORT_GRAPHBLAS = 200_000
FEWEST_TO_IMPORT_NUMPY = 500_000
SMALL_PART = 8
"""If less than one entry in this many is needed, only the needed ones are read. This is unknown beforehand, so this
part is read first in any case."""


class GraphOrder:
    """The tasks that the wanted keys need, sorted: columns with one entry per task, by position.

    Raises:
        GraphCycleError: some of them wait for each other in a cycle.
    """

    __slots__ = ("keys", "tasks", "forms", "predecessors", "offsets", "_numbers", "_positions")

    def __init__(self, graph: Graph, wanted: Sequence[Hashable]) -> None:
        self.keys: List[Any]
        self.tasks: List[Any]
        self.forms: bytearray  # ONLY_RESULTS, NO_KEYS, FLAT or MIXED
        # Where a task's predecessors start, with one entry more than there are tasks; and the positions of the tasks
        # whose results each needs, without duplicates, in order of first use.
        self.offsets: array[int]
        self.predecessors: array[int]
        self._numbers: Dict[Any, int]
        self._positions: Sequence[int]  # by number; negative if the task is not needed
        found = NeededTasks(graph, wanted)
        if may_use_matrices(graph) and not found.read(len(graph) // SMALL_PART) and self._take_columns(graph, wanted):
            return
        found.read()
        self._take(found)

    def _take(self, found: NeededTasks) -> None:
        """Sort the needed tasks, one by one."""
        order, self._positions = sort_depth_first(found.keys, found.needs, found.starts, found.roots)
        self._numbers = found.numbers
        self.keys = [found.keys[number] for number in order]
        self.tasks = [found.tasks[number] for number in order]
        self.forms = bytearray([found.forms[number] for number in order])
        self.offsets = array("I", [0])
        numbers = array("I")
        needs, starts = found.needs, found.starts
        for number in order:
            numbers += needs[starts[number] : starts[number + 1]]
            self.offsets.append(len(numbers))
        self.predecessors = array("I", map(self._positions.__getitem__, numbers))

    def _take_columns(self, graph: Graph, wanted: Sequence[Hashable]) -> bool:
        """Read and sort with matrices; returns whether that was possible."""
        from scaler.graph import graph_columns as graph_columns
        from scaler.graph import matrices as graph_matrices

        columns = graph_columns.read_columns(graph) if graph_matrices.load() else None
        if columns is None:
            return False
        self._numbers = columns.numbers
        roots = list(dict.fromkeys([number for number in map(columns.numbers.__getitem__, wanted) if number != DATA]))
        order = graph_matrices.order_of(columns.starts, columns.needs, roots)
        if order is None:
            needs, starts = graph_columns.array_of(columns.needs), graph_columns.array_of(columns.starts)
            order = sort_depth_first(columns.keys, needs, starts, roots)[0]
        chosen = columns.in_order(order)
        self.keys, self.tasks, self.forms, self.offsets, self.predecessors, self._positions = chosen
        return True

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, key: Any) -> Optional[int]:
        """The position of a task; None if the key is not that of a needed task."""
        number = self._numbers.get(key, DATA)
        position = DATA if number == DATA else self._positions[number]
        return None if position < 0 else position


def may_use_matrices(graph: Graph) -> bool:
    """Whether a graph is large enough for GraphBLAS, and GraphBLAS is installed."""
    if len(graph) < FEWEST_FOR_MATRICES or type(graph) is not dict:
        return False
    if "suitesparse_graphblas" not in sys.modules:
        if len(graph) < (FEWEST_TO_IMPORT_GRAPHBLAS if "numpy" in sys.modules else FEWEST_TO_IMPORT_NUMPY):
            return False
    from scaler.graph import matrices as graph_matrices

    return graph_matrices.is_installed()


class NeededTasks:
    """The needs of the wanted keys, as columns with one entry per task, numbered in the order in which tasks are
    met."""

    __slots__ = ("numbers", "keys", "tasks", "forms", "needs", "starts", "roots", "_graph")

    def __init__(self, graph: Graph, wanted: Sequence[Hashable]) -> None:
        self._graph = graph
        self.numbers: Dict[Any, int] = {}  # by key; DATA for keys of data
        self.keys: List[Any] = []
        self.tasks: List[Tuple[Any, ...]] = []
        self.forms = bytearray()
        self.needs = array("I")  # numbers of the tasks that each needs, without duplicates, in order of first use
        self.starts = array("I", [0])  # where a task's needs start; one entry more than there are tasks
        self.roots = [number for number in map(self._number_of, wanted) if number != DATA]

    def read(self, limit: Optional[int] = None) -> bool:
        """Read tasks until all needed ones are read, or `limit` are met; returns whether all are read."""
        tasks = self.tasks
        while limit is not None and len(self.forms) < len(tasks):
            task = tasks[len(self.forms)]
            if len(tasks) + len(task) + sum([len(value) for value in task if type(value) is list]) > limit:
                return False
            self._read_next(task)
        for task in islice(tasks, len(self.forms), None):  # `tasks` grows meanwhile
            self._read_next(task)
        return True

    def _read_next(self, task: Tuple[Any, ...]) -> None:
        self.forms.append(self._read(task))
        self.starts.append(len(self.needs))

    def _number_of(self, key: Any) -> int:
        number = self.numbers.get(key)
        return self._met(key, self._graph[key]) if number is None else number

    def _met(self, key: Any, value: Any) -> int:
        """Number a key of the graph that is met for the first time."""
        number = DATA
        if is_task(value):
            number = len(self.tasks)
            self.keys.append(key)
            self.tasks.append(value)
        self.numbers[key] = number
        return number

    def _read(self, task: Tuple[Any, ...]) -> int:
        """Record a task's needs; returns the form of its arguments."""
        find, look_up, needs = self.numbers.get, self._graph.get, self.needs
        start = len(needs)
        data_count = 0
        try:
            for value in task[1:]:
                number = find(value)
                if number is None:
                    found = look_up(value, _NOTHING)
                    if found is _NOTHING:
                        if type(value) is tuple:
                            return self._read_nested(task, start)
                        continue
                    number = self._met(value, found)
                if number == DATA:
                    data_count += 1
                else:
                    needs.append(number)
        except Exception:  # one is unhashable: a list, or a literal; or worse, so look at each separately
            return self._read_nested(task, start)
        count = len(needs) - start
        if count > 1:
            count = self._name_once(needs[start:], start)
        if data_count:
            return MIXED
        if count == len(task) - 1:
            return ONLY_RESULTS if count else NO_KEYS
        return FLAT if count else NO_KEYS

    def _read_nested(self, task: Tuple[Any, ...], start: int) -> int:
        """Read a task whose arguments may contain keys within lists and tuples."""
        named = list(map(self._number_of, keys_in(self._graph, task[1:])))
        self._name_once([number for number in named if number != DATA], start)
        return MIXED if named else NO_KEYS

    def _name_once(self, named: Sequence[int], start: int) -> int:
        once = dict.fromkeys(named)
        self.needs[start:] = array("I", once)
        return len(once)


def sort_depth_first(
    keys: Sequence[Any], needs: array[int], starts: array[int], roots: Sequence[int]
) -> Tuple[List[int], List[int]]:
    """Numbers in the order of positions, each after its needs; and positions by number.

    Parameters:
        keys: of all tasks, for error messages.
        needs, starts, roots: as in `NeededTasks`; tasks that the roots do not need have a negative position.
    """
    positions = [_UNSEEN] * len(keys)
    order: List[int] = []
    remaining = list(roots[::-1])
    while remaining:
        number = remaining.pop()
        if number < 0:
            number = ~number  # it was opened, and its needs are placed
        elif positions[number] == _UNSEEN:
            start, end = starts[number], starts[number + 1]
            if start < end:
                positions[number] = _OPENED
                remaining.append(~number)
                remaining += needs[start:end][::-1]  # the first is processed first
                continue
        elif positions[number] == _OPENED:
            _raise_cycle(keys, [~each for each in remaining if each < 0], number)
        else:
            continue  # several tasks need it
        positions[number] = len(order)
        order.append(number)
    return order, positions


def _raise_cycle(keys: Sequence[Any], path: List[int], closing: int) -> NoReturn:
    """Raise for a cycle: each opened task on the path needs the next, and the last needs one of them."""
    cycle = [keys[number] for number in [*path[path.index(closing) :], closing]]
    cycle.reverse()  # graphlib's order: each is needed by the next
    names = " -> ".join(map(repr_of, cycle if len(cycle) <= 20 else [*cycle[:19], "...", cycle[-1]]))
    text = f"tasks of the graph wait for each other: {names} (an argument that equals a key stands for that key)"
    raise GraphCycleError(text, cycle)
