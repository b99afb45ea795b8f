"""All tasks of a very large graph, read at once into columns of numbers; needs NumPy.

    {"a": 1, "b": (inc, "a"), "c": (add, "b", "b")}  ──▶  keys b, c;  forms MIXED, FLAT;  needs: of b none, of c 0

Rules:
- The columns of a task are those of `order.NeededTasks`; but the whole graph is read, because looking up whole columns
  costs half as much as looking up one task after the other.
- No object is created per task: iterators of the standard library process chunks of tasks, and vectors the rest.
- A task whose arguments name keys within lists or tuples is searched separately, and then represented as if it had
  these keys as arguments.
- An argument that cannot be looked up may belong to a task that is not needed. So nothing is raised here: there are no
  columns then, and the reader that visits only needed tasks finds out whether it matters.
"""

from __future__ import annotations

from array import array
from collections import deque
from importlib import import_module
from itertools import chain, compress, repeat
from operator import itemgetter
from typing import Any, Dict, List, Optional, Sequence, Tuple

from scaler.graph.graph_tasks import DATA, FLAT, MIXED, NO_KEYS, ONLY_RESULTS, Graph, is_task, keys_in

_UNKNOWN = -2  # in place of a number: not a key
_CHUNK_TASKS = 8192

Vector = Any  # numpy.ndarray, which is imported on demand
Numbers = Any  # array.array


class GraphAsColumns:
    """The tasks of a graph, in its order: columns with one entry per task."""

    __slots__ = ("numbers", "keys", "tasks", "forms", "needs", "starts")

    def __init__(
        self, numbers: Dict[Any, int], keys: List[Any], tasks: List[Any], forms: Vector, needs: Vector, starts: Vector
    ) -> None:
        self.numbers = numbers  # by key; DATA for keys of data
        self.keys = keys
        self.tasks = tasks
        self.forms = forms  # ONLY_RESULTS, NO_KEYS, FLAT or MIXED
        self.needs = needs  # numbers of the tasks whose results each needs, without duplicates, in order of first use
        self.starts = starts  # where a task's needs start; one entry more than there are tasks

    def in_order(self, order: Sequence[int]) -> Tuple[List[Any], List[Any], bytearray, Numbers, Numbers, Numbers]:
        """The columns of a `GraphOrder`: keys, tasks, forms, offsets, predecessors; and positions by number."""
        np = import_module("numpy")
        chosen = np.asarray(order, dtype="int64")
        positions = np.full(len(self.keys), DATA, dtype="int32")
        positions[chosen] = np.arange(len(chosen), dtype="int32")
        counts = np.diff(self.starts)[chosen]
        offsets = np.zeros(len(chosen) + 1, dtype="int64")
        np.cumsum(counts, out=offsets[1:])
        places = np.repeat(self.starts[chosen] - offsets[:-1], counts)
        places += np.arange(len(places))
        predecessors = positions[self.needs[places]]
        numbers = chosen.tolist()
        keys, tasks = list(map(self.keys.__getitem__, numbers)), list(map(self.tasks.__getitem__, numbers))
        forms = bytearray(self.forms[chosen])
        return keys, tasks, forms, array_of(offsets), array_of(predecessors), array_of(positions, "i")


def array_of(column: Vector, typecode: str = "I") -> Numbers:
    """A column as an array of the standard library."""
    numbers = array(typecode)
    numbers.frombytes(column.astype(typecode).tobytes())
    return numbers


def read_columns(graph: Graph) -> Optional[GraphAsColumns]:
    """Read a dictionary; None if something in it cannot be looked up."""
    np = import_module("numpy")
    found: List[Vector] = []
    counts: List[Vector] = []
    try:
        keys, tasks, data = _tasks_and_data(graph)
        numbers = dict(zip(keys, range(len(keys))))
        numbers.update(dict.fromkeys(data, DATA))
        reader = _Reader(np, graph, numbers)
        for start in range(0, len(tasks), _CHUNK_TASKS):
            chunk = tasks[start : start + _CHUNK_TASKS]
            found.append(reader.read(start, chunk))
            counts.append(np.fromiter(map(len, chunk), "int64", len(chunk)))
    except Exception:
        return None
    if not tasks:
        return None
    forms, needs, starts = _forms_and_needs(np, np.concatenate(found), np.concatenate(counts))
    for number, form in reader.nested.items():
        forms[number] = form
    return GraphAsColumns(numbers, keys, tasks, forms, needs, starts)


def _tasks_and_data(graph: Graph) -> Tuple[List[Any], List[Any], List[Any]]:
    """The keys of tasks, the tasks, and the keys of data."""
    keys, values = list(graph), list(graph.values())
    if set(map(type, values)) == {tuple} and all(values) and all(map(callable, map(itemgetter(0), values))):
        return keys, values, []
    are_tasks = bytes(map(is_task, values))
    are_data = bytes(map((1).__sub__, are_tasks))
    return list(compress(keys, are_tasks)), list(compress(values, are_tasks)), list(compress(keys, are_data))


class _Reader:
    """Looks up the keys that tasks name, chunk by chunk."""

    def __init__(self, np: Any, graph: Graph, numbers: Dict[Any, int]) -> None:
        self._np = np
        self._graph = graph
        self._find = numbers.get
        self.nested: Dict[int, int] = {}  # forms, by number, of tasks that were searched separately

    def read(self, start: int, tasks: List[Any]) -> Vector:
        """Numbers of the keys that tasks name, or _UNKNOWN, functions included; replaces tasks by stand-ins where
        necessary."""
        try:
            found = self._look_up(tasks)
        except Exception:  # one is unhashable: a list, or a literal; or worse, so look at each separately
            for index, task in enumerate(tasks):
                try:
                    deque(map(self._find, task[1:]), maxlen=0)
                    tasks[index] = (None, *task[1:])  # functions need not be hashable
                except Exception:
                    tasks[index] = self._look_through(start + index, task)
            found = self._look_up(tasks)
        unknown = found == _UNKNOWN
        if tuple in set(map(type, compress(chain.from_iterable(tasks), unknown.tobytes()))):
            for index, task in enumerate(tasks):
                if any(type(value) is tuple and self._find(value) is None for value in task[1:]):
                    tasks[index] = self._look_through(start + index, task)
            found = self._look_up(tasks)
        return found

    def _look_up(self, tasks: List[Any]) -> Vector:
        return self._np.fromiter(map(self._find, chain.from_iterable(tasks), repeat(_UNKNOWN)), "int32")

    def _look_through(self, number: int, task: Tuple[Any, ...]) -> Tuple[Any, ...]:
        """A task's stand-in: the keys that it names, at any depth."""
        named = keys_in(self._graph, task[1:])
        self.nested[number] = MIXED if named else NO_KEYS
        return (None, *named)


def _forms_and_needs(np: Any, found: Vector, counts: Vector) -> Tuple[Vector, Vector, Vector]:
    """The lookup results, function by function and argument by argument, as forms, needs and starts of needs."""
    ends = np.cumsum(counts)
    found[ends - counts] = _UNKNOWN  # functions are not keys, even if they equal one
    argument_counts = counts - 1
    owners = np.repeat(np.arange(len(counts), dtype="int32"), counts)
    is_need = found >= 0
    needs, owners_of_needs = found[is_need], owners[is_need]
    has_data = np.zeros(len(counts), dtype=bool)
    has_data[owners[found == DATA]] = True
    needs, need_counts = _each_once(np, needs, owners_of_needs, len(counts))
    forms = np.full(len(counts), FLAT, dtype="uint8")
    forms[need_counts == argument_counts] = ONLY_RESULTS
    forms[need_counts == 0] = NO_KEYS
    forms[has_data] = MIXED
    starts = np.zeros(len(counts) + 1, dtype="int64")
    np.cumsum(need_counts, out=starts[1:])
    return forms, needs, starts


def _each_once(np: Any, needs: Vector, owners: Vector, count: int) -> Tuple[Vector, Vector]:
    """The needs of each owner without duplicates, in order of first use, and their number."""
    need_counts = np.bincount(owners, minlength=count)
    pairs = owners.astype("int64") * count + needs
    if (pairs[1:] > pairs[:-1]).all():
        return needs, need_counts
    by_pair = np.argsort(pairs, kind="stable")
    ordered = pairs[by_pair]
    is_first = np.ones(len(needs), dtype=bool)
    is_first[by_pair[1:]] = ordered[1:] != ordered[:-1]
    if is_first.all():
        return needs, need_counts
    return needs[is_first], np.bincount(owners[is_first], minlength=count)
