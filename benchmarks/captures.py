"""What asking costs whether a function is still what was sent. A command line of its own; prints JSON.

Rules: CPU time of this process, the least of many rounds, in microseconds. `check` is paid at each submission of a
function that has not changed, `serialise` where it has.
"""

from __future__ import annotations

import functools
import json
import os.path
import time
from typing import Any, Callable, Dict

import numpy

from scaler.client.functions import FunctionRegistry

number = 2
table: Dict[str, Any] = {"a": 1, "b": [1, 2, 3]}
small_array = numpy.zeros(100)
large_array = numpy.zeros(4_000_000)


def use_nothing(value: int) -> int:
    return value


def use_global(value: int) -> int:
    return value * number


def use_helper(value: int) -> int:
    return use_global(value)


class Settings:
    rate = 1

    def scaled(self, value: int) -> int:
        return value * self.rate


class Adder:
    def __init__(self) -> None:
        self.amount = 1

    def __call__(self, value: int) -> int:
        return value + self.amount


def use_class(value: int) -> int:
    return Settings().scaled(value)


def use_dictionary(value: int) -> int:
    return int(table["a"]) + value


def use_small_array() -> float:
    return float(small_array.sum())


def use_large_array() -> float:
    return float(large_array[0])


CALLABLES: dict[str, Callable[..., Any]] = {
    "of a module": os.path.join,
    "captures nothing": use_nothing,
    "a global": use_global,
    "a helper with a global": use_helper,
    "a class": use_class,
    "an instance": Adder(),
    "a bound method": Settings().scaled,
    "a partial": functools.partial(use_global, 1),
    "a dictionary": use_dictionary,
    "an array of 800 bytes": use_small_array,
    "an array of 32 MB": use_large_array,
}


def _microseconds(action: Callable[[], Any], times: int, rounds: int = 20) -> float:
    least = float("inf")
    for _ in range(rounds):
        begin = time.process_time()
        for _ in range(times):
            action()
        least = min(least, time.process_time() - begin)
    return round(least / times * 1e6, 2)


def measure() -> dict[str, dict[str, float]]:
    figures = {}
    for name, function in CALLABLES.items():
        registry = FunctionRegistry(None, lambda parts, name: 1, lambda object_id: None)
        registry.add(function)
        if registry.find(function) is None:
            raise RuntimeError(f"{name}: it has not changed, but is not known")
        figures[name] = {
            "check_microseconds": _microseconds(functools.partial(registry.find, function), 2000),
            "serialise_microseconds": _microseconds(functools.partial(registry.add, function), 3, 5),
        }
    return figures


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
