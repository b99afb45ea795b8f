"""Which tasks of a graph are needed, in which order, and what each of them waits for.

    {"a": 1, "b": (inc, "a"), "c": (add, "b", "b")}, ["c"]  ──▶  keys b, c;  b waits for nothing, c for position 0

Rules:
- Only what the wanted keys need is looked at: the cost follows that, however large the graph is.
- Each task comes after those it waits for, and as close behind them as can be: the first tasks to run are those whose
  results are used up first.
- A key is looked for before anything else: what equals a key of the graph stands for it, as argument and within lists
  and tuples, tuples that are keys included.
- Each task's arguments are looked through once. What is found is kept as columns, one entry a task; it is noted where
  arguments are nothing but results of others, or nothing of the graph: most are, and nobody has to look again.
- Nothing is serialised or sent here: a graph with a cycle costs nothing but this.

Why this is not done by matrices is in ADR 0007.
"""

from __future__ import annotations

from array import array
from graphlib import CycleError
from typing import Any, Dict, Hashable, Iterator, List, Mapping, Sequence

from scaler.exceptions import GraphKeyError
from scaler.texts import description_of, repr_of

Graph = Mapping[Any, Any]

ONLY_RESULTS = 0  # the arguments are results of other tasks, each a different one
NO_KEYS = 1  # nothing in the arguments is a key
FLAT = 2  # some arguments are results of other tasks; nothing in the rest is a key
MIXED = 3  # any other


class GraphOrder:
    """The tasks that the wanted keys need, sorted.

    Raises:
        graphlib.CycleError: some of them wait for each other.
    """

    __slots__ = ("positions", "forms", "predecessors", "offsets")

    def __init__(self, graph: Graph, wanted: Sequence[Hashable]) -> None:
        self.positions: Dict[Any, int] = {}  # of tasks, by key
        self.forms = bytearray()  # ONLY_RESULTS, NO_KEYS, FLAT or MIXED
        self.predecessors = array("I")  # positions of the tasks whose results each needs, each once, as they are met
        self.offsets = array("I", [0])  # where a task's predecessors begin; one entry more than there are tasks
        for key in wanted:
            if key not in self.positions and is_task(graph[key]):
                self._add(graph, key)

    def __len__(self) -> int:
        return len(self.forms)

    def _add(self, graph: Graph, wanted: Any) -> None:
        """Append a task, after all that it needs and that is not there yet."""
        positions = self.positions
        opened: Dict[Any, List[Any]] = {}  # the way from the wanted key to the one looked at, with the keys they name
        remaining = [wanted]
        while remaining:
            key = remaining.pop()
            if key in positions:
                continue  # several need it
            named = opened.pop(key, None)
            if named is None:
                named = keys_named(graph, graph[key])
                missing = [each for each in named if each not in positions and is_task(graph[each])]
                if missing:
                    opened[key] = named
                    if not opened.keys().isdisjoint(missing):
                        _raise_cycle(list(opened), next(each for each in missing if each in opened))
                    remaining.append(key)
                    missing.reverse()  # the first is looked at first
                    remaining += missing
                    continue
            self._append(key, named, len(graph[key]) - 1)

    def _append(self, key: Any, named: List[Any], argument_count: int) -> None:
        """All that the task needs is there."""
        positions = self.positions
        if not named:
            self.forms.append(NO_KEYS)
        else:
            needed = [positions[each] for each in named if each in positions]
            form = FLAT if type(named) is list and len(needed) == len(named) else MIXED
            if len(needed) > 1:
                needed = list(dict.fromkeys(needed))
            self.forms.append(ONLY_RESULTS if form == FLAT and len(needed) == argument_count else form)
            self.predecessors.extend(needed)
        self.offsets.append(len(self.predecessors))
        positions[key] = len(positions)


class _Nested(List[Any]):
    """Keys of which some were found within lists and tuples."""

    __slots__ = ()


def keys_named(graph: Graph, task: Any) -> List[Any]:
    """The keys that a task's arguments name: a plain list if they are arguments themselves, none within others."""
    try:
        named = [value for value in task[1:] if value in graph]
    except Exception:  # one is not hashable: a list, or a literal; or worse, which is looked at one by one
        return _Nested(_keys_in(graph, task[1:]))
    if len(named) < len(task) - 1 and any(type(value) is tuple and value not in graph for value in task[1:]):
        return _Nested(_keys_in(graph, task[1:]))
    return named


def is_task(value: Any) -> bool:
    return type(value) is tuple and bool(value) and callable(value[0])


def is_key(graph: Graph, value: Any) -> bool:
    try:
        return value in graph
    except Exception as error:
        return _is_known_literal(value, error)


def _is_known_literal(value: Any, error: Exception) -> bool:
    """What was asked of `is_key` about something that cannot be looked for: False if it cannot be a key."""
    try:
        hash(value)
    except Exception:
        return False  # not hashable: a literal
    raise GraphKeyError(
        f"an argument of type {type(value).__name__} cannot be compared with the graph's keys, so nobody knows"
        f" whether it stands for one: {description_of(error)}"
    ) from error


def _keys_in(graph: Graph, arguments: Sequence[Any]) -> Iterator[Any]:
    """The keys that arguments name, however deep."""
    for value in arguments:
        if is_key(graph, value):
            yield value
        elif type(value) is list or type(value) is tuple:
            yield from _keys_in(graph, value)


def _raise_cycle(path: List[Any], closing: Any) -> None:
    cycle = [*path[path.index(closing) :], closing]
    cycle.reverse()  # as graphlib has it: each is needed by the next
    names = " -> ".join(map(repr_of, cycle if len(cycle) <= 20 else [*cycle[:19], "...", cycle[-1]]))
    text = f"tasks of the graph wait for each other: {names} (an argument that equals a key stands for that key)"
    raise CycleError(text, cycle)
