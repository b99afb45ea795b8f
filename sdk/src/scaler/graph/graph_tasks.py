"""The entries of a graph: data and tasks, and the keys that a task's arguments name.

Rules:
- A task is a tuple whose first item is callable. Everything else is data.
- An object that equals a key of the graph stands for that key, also within lists and tuples.
"""

from __future__ import annotations

from typing import Any, List, Mapping, Sequence

from scaler.exceptions import GraphKeyError
from scaler.values.texts import description_of

Graph = Mapping[Any, Any]

ONLY_RESULTS = 0  # the arguments are results of other tasks, each a different one
NO_KEYS = 1  # the arguments contain no keys
FLAT = 2  # some arguments are results of other tasks; the rest contain no keys
MIXED = 3  # any other

DATA = -1  # in place of a task's number


def is_task(value: Any) -> bool:
    return type(value) is tuple and bool(value) and callable(value[0])


def is_key(graph: Graph, value: Any) -> bool:
    try:
        return value in graph
    except Exception as error:
        return _is_known_literal(value, error)


def _is_known_literal(value: Any, error: Exception) -> bool:
    """Decide about an object whose lookup with `is_key` failed: False if it cannot be a key."""
    try:
        hash(value)
    except Exception:
        return False  # unhashable: a literal
    raise GraphKeyError(
        f"an argument of type {type(value).__name__} cannot be compared with the graph's keys, so it is unknown"
        f" whether it stands for one: {description_of(error)}"
    ) from error


def keys_in(graph: Graph, arguments: Sequence[Any]) -> List[Any]:
    """The keys that arguments name, at any depth."""
    named: List[Any] = []
    _gather_keys(graph, arguments, named)
    return named


def _gather_keys(graph: Graph, values: Sequence[Any], named: List[Any]) -> None:
    try:
        if all(map(graph.__contains__, values)):
            named += values
            return
    except Exception:  # one is unhashable; or worse, so look at each separately
        pass
    for value in values:
        if is_key(graph, value):
            named.append(value)
        elif type(value) is list or type(value) is tuple:
            _gather_keys(graph, value, named)
