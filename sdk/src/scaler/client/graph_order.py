"""Which tasks of a graph are needed, in which order, and what each of them waits for.

    {"a": 1, "b": (inc, "a"), "c": (add, "b", "b")}, ["c"]  ──▶  keys b, c;  b waits for nothing, c for position 0

Rules:
- Only what the wanted keys need is looked at: the cost follows that, however large the graph is.
- Each task comes after those it waits for, and as close behind them as can be: the first tasks to run are those whose
  results are used up first.
- A key is looked for before anything else: what equals a key of the graph stands for it, as argument and within lists
  and tuples, tuples that are keys included.
- Each task's arguments are looked through once, and tasks get numbers; from there on all is columns of numbers. It is
  noted where arguments are nothing but results of others, or nothing of the graph: most are, and nobody looks again.
- Nothing is serialised or sent here: a graph with a cycle costs nothing but this.

Why this is not done by matrices is in ADR 0007.
"""

from __future__ import annotations

from array import array
from graphlib import CycleError
from typing import Any, Dict, Hashable, Iterator, List, Mapping, NoReturn, Optional, Sequence, Tuple

from scaler.exceptions import GraphKeyError
from scaler.texts import description_of, repr_of

Graph = Mapping[Any, Any]

ONLY_RESULTS = 0  # the arguments are results of other tasks, each a different one
NO_KEYS = 1  # nothing in the arguments is a key
FLAT = 2  # some arguments are results of other tasks; nothing in the rest is a key
MIXED = 3  # any other

DATA = -1  # instead of a task's number
_UNSEEN, _OPENED = -1, -2  # instead of a task's position
_NOTHING = object()


class GraphOrder:
    """The tasks that the wanted keys need, sorted: columns with one entry a task, by position.

    Raises:
        graphlib.CycleError: some of them wait for each other.
    """

    __slots__ = ("keys", "tasks", "forms", "predecessors", "offsets", "_numbers", "_positions")

    def __init__(self, graph: Graph, wanted: Sequence[Hashable]) -> None:
        found = NeededTasks(graph, wanted)
        order, self._positions = found.sorted()
        self._numbers = found.numbers
        self.keys: List[Any] = [found.keys[number] for number in order]
        self.tasks: List[Any] = [found.tasks[number] for number in order]
        self.forms = bytearray([found.forms[number] for number in order])  # ONLY_RESULTS, NO_KEYS, FLAT or MIXED
        # Where a task's predecessors begin, one entry more than there are tasks; and the positions of the tasks whose
        # results each needs, each once, as they are met.
        self.offsets = array("I", [0])
        numbers = array("I")
        needs, starts = found.needs, found.starts
        for number in order:
            numbers += needs[starts[number] : starts[number + 1]]
            self.offsets.append(len(numbers))
        self.predecessors = array("I", map(self._positions.__getitem__, numbers))

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, key: Any) -> Optional[int]:
        """The position of a task; None if the key stands for none that is needed."""
        number = self._numbers.get(key, DATA)
        return None if number == DATA else self._positions[number]


class NeededTasks:
    """What the wanted keys need, as columns with one entry a task, by numbers in the order in which tasks are met."""

    __slots__ = ("numbers", "keys", "tasks", "forms", "needs", "starts", "_graph", "_roots")

    def __init__(self, graph: Graph, wanted: Sequence[Hashable]) -> None:
        self._graph = graph
        self.numbers: Dict[Any, int] = {}  # by key; DATA for what is none
        self.keys: List[Any] = []
        self.tasks: List[Tuple[Any, ...]] = []
        self.forms = bytearray()
        self.needs = array("I")  # numbers of the tasks whose results each needs, each once, as they are met
        self.starts = array("I", [0])  # where a task's needs begin; one entry more than there are tasks
        self._roots = [number for number in map(self._number_of, wanted) if number != DATA]
        for task in self.tasks:  # meanwhile there are more
            self.forms.append(self._read(task))
            self.starts.append(len(self.needs))

    def _number_of(self, key: Any) -> int:
        number = self.numbers.get(key)
        return self._met(key, self._graph[key]) if number is None else number

    def _met(self, key: Any, value: Any) -> int:
        """A key of the graph is met for the first time."""
        number = DATA
        if is_task(value):
            number = len(self.tasks)
            self.keys.append(key)
            self.tasks.append(value)
        self.numbers[key] = number
        return number

    def _read(self, task: Tuple[Any, ...]) -> int:
        """Note what a task needs; returns the form of its arguments."""
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
        except Exception:  # one is not hashable: a list, or a literal; or worse, which is looked at one by one
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
        """Some arguments may be named within lists and tuples."""
        named = list(map(self._number_of, _keys_in(self._graph, task[1:])))
        self._name_once([number for number in named if number != DATA], start)
        return MIXED if named else NO_KEYS

    def _name_once(self, named: Sequence[int], start: int) -> int:
        once = dict.fromkeys(named)
        self.needs[start:] = array("I", once)
        return len(once)

    def sorted(self) -> Tuple[List[int], List[int]]:
        """Numbers in the order of positions, each after all that it needs; and positions by number."""
        needs, starts = self.needs, self.starts
        positions = [_UNSEEN] * len(self.tasks)
        order: List[int] = []
        remaining = self._roots[::-1]
        while remaining:
            number = remaining.pop()
            if number < 0:
                number = ~number  # it was opened, and all that it needs is there
            elif positions[number] == _UNSEEN:
                start, end = starts[number], starts[number + 1]
                if start < end:
                    positions[number] = _OPENED
                    remaining.append(~number)
                    remaining += needs[start:end][::-1]  # the first is looked at first
                    continue
            elif positions[number] == _OPENED:
                self._raise_cycle([~each for each in remaining if each < 0], number)
            else:
                continue  # several need it
            positions[number] = len(order)
            order.append(number)
        return order, positions

    def _raise_cycle(self, path: List[int], closing: int) -> NoReturn:
        """What is opened needs, in this order, each the next; and the last needs one of them."""
        cycle = [self.keys[number] for number in [*path[path.index(closing) :], closing]]
        cycle.reverse()  # as graphlib has it: each is needed by the next
        names = " -> ".join(map(repr_of, cycle if len(cycle) <= 20 else [*cycle[:19], "...", cycle[-1]]))
        text = f"tasks of the graph wait for each other: {names} (an argument that equals a key stands for that key)"
        raise CycleError(text, cycle)


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
