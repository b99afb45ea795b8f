"""Everyday situations: what a user would write, and what it has to give.

Each situation is a function that is given an engine and returns a value; its docstring is its name on the page
docs/situations.md. `expected` is the value by the rules of Python, as if the function were called here with copies of
its arguments, or ERROR where no engine can do what is asked for, and has to say so. `ours` names the error by which we
refuse what could have a value.

Code of notebooks is run by `cell` in `__main__`, as a notebook does: in ours, nothing of it is known to the workers.
"""

from __future__ import annotations

import collections
import contextlib
import datetime
import decimal
import fractions
import functools
import importlib
import itertools
import linecache
import os
import pathlib
import re
import sqlite3
import sys
import threading
import traceback
import types
import uuid
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from situation_engines import WORKERS, Engine

FOLDER_VARIABLE = "SITUATIONS_FOLDER"
"""Names a folder in which this process and the workers look for modules."""


class _Error:
    """What cannot be done, and has to be refused."""

    def __repr__(self) -> str:
        return "an error"


ERROR = _Error()


class Situation(NamedTuple):
    """
    Parameters:
        ours: the error by which we refuse; empty: ours gives what is expected.
        needs: a module that has to be there.
    """

    group: str
    name: str
    run: Callable[[Engine], Any]
    expected: Any
    ours: str
    needs: str


SITUATIONS: List[Situation] = []


def situation(group: str, expected: Any, *, ours: str = "", needs: str = "") -> Callable[[Any], Any]:
    def add(run: Any) -> Any:
        name = " ".join(run.__doc__.split()).rstrip(".")
        SITUATIONS.append(Situation(group, name, run, expected, ours, needs))
        return run

    return add


_cells = itertools.count(1)


def cell(source: str) -> types.SimpleNamespace:
    """Run a cell of a notebook; returns the notebook's names."""
    source = "\n".join(line[4:] for line in source.strip("\n").splitlines()) + "\n" if source[0] == "\n" else source
    name = f"<ipython-input-{next(_cells)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    notebook = sys.modules["__main__"].__dict__
    exec(compile(source, name, "exec", dont_inherit=True), notebook)
    return types.SimpleNamespace(**notebook)


# In a notebook --------------------------------------------------------------------------------------------------------


@situation("In a notebook", 6)
def _(engine: Engine) -> Any:
    """a function that was defined in a cell"""
    return engine.run(cell("def double(x):\n    return 2 * x").double, 3)


@situation("In a notebook", 9)
def _(engine: Engine) -> Any:
    """a lambda"""
    return engine.run(lambda x: x * x, 3)


@situation("In a notebook", [20, 30])
def _(engine: Engine) -> Any:
    """a global variable was changed between two calls"""
    scale = cell("factor = 2\ndef scale(x):\n    return factor * x").scale
    first = engine.run(scale, 10)
    cell("factor = 3")
    return [first, engine.run(scale, 10)]


@situation("In a notebook", [20, 30])
def _(engine: Engine) -> Any:
    """the same with `map`"""
    scale = cell("factor = 2\ndef scale(x):\n    return factor * x").scale
    first = engine.map(scale, [10])
    cell("factor = 3")
    return first + engine.map(scale, [10])


@situation("In a notebook", [11, 12])
def _(engine: Engine) -> Any:
    """a helper was redefined between two calls"""
    work = cell("def helper(x):\n    return x + 1\ndef work(x):\n    return helper(x)").work
    first = engine.run(work, 10)
    cell("def helper(x):\n    return x + 2")
    return [first, engine.run(work, 10)]


@situation("In a notebook", [1, 2])
def _(engine: Engine) -> Any:
    """a function was redefined under its name"""
    first = engine.run(cell("def answer():\n    return 1").answer)
    return [first, engine.run(cell("def answer():\n    return 2").answer)]


@situation("In a notebook", 3.0)
def _(engine: Engine) -> Any:
    """a module that was imported in another cell"""
    cell("import math as mathematics")
    return engine.run(cell("def root(x):\n    return mathematics.sqrt(x)").root, 9)


@situation("In a notebook", True)
def _(engine: Engine) -> Any:
    """two functions of two cells that call each other"""
    cell("def is_even(n):\n    return n == 0 or is_odd(n - 1)")
    return engine.run(cell("def is_odd(n):\n    return n != 0 and is_even(n - 1)").is_odd, 7)


@situation("In a notebook", (5, True))
def _(engine: Engine) -> Any:
    """an object of a cell's class as an argument and as the result"""
    names = cell(
        "class Box:\n    def __init__(self, x):\n        self.x = x\ndef more(box):\n    return Box(box.x + 1)"
    )
    box = engine.run(names.more, names.Box(4))
    return box.x, isinstance(box, names.Box)


@situation("In a notebook", [1, 2])
def _(engine: Engine) -> Any:
    """a method was redefined between two calls"""
    names = cell("class Model:\n    def value(self):\n        return 1\ndef ask(model):\n    return model.value()")
    model = names.Model()
    first = engine.run(names.ask, model)
    cell("def value(self):\n    return 2\nModel.value = value")
    return [first, engine.run(names.ask, model)]


@situation("In a notebook", True)
def _(engine: Engine) -> Any:
    """a data class comes back equal to what was sent"""
    names = cell("import dataclasses\n@dataclasses.dataclass\nclass Point:\n    x: int\n    y: int = 2")
    point = names.Point(1)
    return engine.run(lambda given: given, point) == point


@situation("In a notebook", True)
def _(engine: Engine) -> Any:
    """a member of an `Enum` comes back as the same object"""
    color = cell("import enum\nclass Color(enum.Enum):\n    RED = 1").Color
    return engine.run(cell("def same(given):\n    return given").same, color.RED) is color.RED


@situation("In a notebook", 120)
def _(engine: Engine) -> Any:
    """a recursive function"""
    return engine.run(cell("def product(n):\n    return 1 if n == 0 else n * product(n - 1)").product, 5)


@situation("In a notebook", True)
def _(engine: Engine) -> Any:
    """the traceback shows the line of the cell"""
    try:
        engine.run(cell("def fail(x):\n    return 1 / x  # here").fail, 0)
    except ZeroDivisionError as error:
        return "# here" in "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return False


@situation("In a notebook", 8)
def _(engine: Engine) -> Any:
    """a function behind a decorator of another cell"""
    cell(
        "import functools\ndef twice(f):\n    @functools.wraps(f)\n    def g(x):\n        return f(f(x))\n    return g"
    )
    return engine.run(cell("@twice\ndef add(x):\n    return x + 3").add, 2)


# Functions with state ----------------------------------------------------------------------------------------


@situation("Functions with state", [1, 2])
def _(engine: Engine) -> Any:
    """a variable that a closure captures was changed between two calls"""
    value = 1

    def get() -> int:
        return value

    first = engine.run(get)
    value = 2
    return [first, engine.run(get)]


@situation("Functions with state", [1, 3])
def _(engine: Engine) -> Any:
    """a list that a closure captures has grown"""
    numbers = [1]
    total = lambda: sum(numbers)
    first = engine.run(total)
    numbers.append(2)
    return [first, engine.run(total)]


@situation("Functions with state", [1, 2])
def _(engine: Engine) -> Any:
    """a default value was rebound"""
    get = cell("def get(x=1):\n    return x").get
    first = engine.run(get)
    get.__defaults__ = (2,)
    return [first, engine.run(get)]


class Scale:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, x: int) -> int:
        return self.factor * x

    def times(self, x: int) -> int:
        return self.factor * x

    @classmethod
    def named(cls, x: int) -> str:
        return f"{cls.__name__} {x}"

    @staticmethod
    def plain(x: int) -> int:
        return -x


@situation("Functions with state", [20, 30])
def _(engine: Engine) -> Any:
    """an attribute of a callable object was changed"""
    scale = Scale(2)
    first = engine.run(scale, 10)
    scale.factor = 3
    return [first, engine.run(scale, 10)]


@situation("Functions with state", [20, 30])
def _(engine: Engine) -> Any:
    """an attribute of the object of a bound method was changed"""
    scale = Scale(2)
    first = engine.run(scale.times, 10)
    scale.factor = 3
    return [first, engine.run(scale.times, 10)]


def look_up(table: Dict[str, int], key: str) -> int:
    return table[key]


@situation("Functions with state", [1, 2])
def _(engine: Engine) -> Any:
    """a dictionary in a `partial` was changed"""
    table = {"a": 1}
    find = functools.partial(look_up, table)
    first = engine.run(find, "a")
    table["a"] = 2
    return [first, engine.run(find, "a")]


@situation("Functions with state", ["Scale 1", -1])
def _(engine: Engine) -> Any:
    """a class method and a static method"""
    return [engine.run(Scale.named, 1), engine.run(Scale.plain, 1)]


@situation("Functions with state", [2, 2, 2])
def _(engine: Engine) -> Any:
    """lambdas made in a loop see its last value, as in Python"""
    return [engine.run(function) for function in [lambda: number for number in range(3)]]  # noqa: B023


@situation("Functions with state", 8)
def _(engine: Engine) -> Any:
    """a function with a `functools.lru_cache`"""
    return engine.run(cell("import functools\n@functools.lru_cache\ndef cube(x):\n    return x ** 3").cube, 2)


@situation("Functions with state", [1, 0])
def _(engine: Engine) -> Any:
    """what a task assigns to a captured variable stays in the task"""
    count = 0

    def increment() -> int:
        nonlocal count
        count += 1
        return count

    return [engine.run(increment), count]


# Arguments ------------------------------------------------------------------------------------------------------------


def append(numbers: List[int], number: int) -> List[int]:
    numbers.append(number)
    return numbers


def keyword_only(a: int, *, b: int, **others: int) -> Tuple[Any, ...]:
    return a, b, others


def is_same(a: Any, b: Any) -> bool:
    return a is b


def give(value: Any) -> Any:
    return value


def add(a: int, b: int) -> int:
    return a + b


def count(*arguments: Any) -> int:
    return len(arguments)


@situation("Arguments", [[1], [1, 2]])
def _(engine: Engine) -> Any:
    """a task changes its argument, and the caller's object is unchanged"""
    numbers = [1]
    result = engine.run(append, numbers, 2)
    return [numbers, result]


@situation("Arguments", (1, 2, {"c": 3}))
def _(engine: Engine) -> Any:
    """keyword-only and other keyword arguments"""
    return engine.run(keyword_only, 1, b=2, c=3)


@situation("Arguments", True)
def _(engine: Engine) -> Any:
    """an object that is passed twice is one object in the task"""
    value = [1]
    return engine.run(is_same, value, value)


@situation("Arguments", [True, True, True])
def _(engine: Engine) -> Any:
    """`None`, `...` and `NotImplemented` keep their identity"""
    return [engine.run(give, value) is value for value in (None, ..., NotImplemented)]


@situation("Arguments", [1, True])
def _(engine: Engine) -> Any:
    """a list that contains itself"""
    value: List[Any] = [1]
    value.append(value)
    result = engine.run(give, value)
    return [result[0], result[1] is result]


@situation("Arguments", True)
def _(engine: Engine) -> Any:
    """dates, decimals, paths, patterns, sets and so on"""
    utc = datetime.timezone.utc
    values = [
        datetime.datetime(2026, 1, 2, tzinfo=utc),
        decimal.Decimal("1.10"),
        fractions.Fraction(1, 3),
        pathlib.Path("/a/b"),
        uuid.UUID(int=5),
        re.compile("a+"),
        frozenset({1, 2}),
        collections.OrderedDict(b=1, a=2),
        collections.defaultdict(list, a=[1]),
        range(5),
        slice(1, 2),
        b"bytes",
        bytearray(b"bytes"),
        1 << 200,
    ]
    return engine.run(give, values) == values


@situation("Arguments", True)
def _(engine: Engine) -> Any:
    """10 million bytes, there and back"""
    data = bytes(range(250)) * 40_000
    return engine.run(give, data) == data


@situation("Arguments", ERROR)
def _(engine: Engine) -> Any:
    """a generator as an argument"""
    return engine.run(sum, (number for number in range(3)))


@situation("Arguments", ERROR)
def _(engine: Engine) -> Any:
    """a lock as an argument"""
    return engine.run(give, threading.Lock())


@situation("Arguments", ERROR)
def _(engine: Engine) -> Any:
    """an open database as an argument"""
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        return engine.run(give, database)


@situation("Arguments", ERROR)
def _(engine: Engine) -> Any:
    """arguments that the function does not take"""
    return engine.run(add, 1, 2, 3)


# `map` ----------------------------------------------------------------------------------------------------------------


@situation("`map`", [1, 1])
def _(engine: Engine) -> Any:
    """`map(len, [["abc"], ["de"]])`: lists are values"""
    return engine.map(len, [["abc"], ["de"]])


@situation("`map`", [2, 2], ours="TypeError")
def _(engine: Engine) -> Any:
    """`map(len, [(1, 2), (3, 4)])`: tuples are values, too; Scaler takes them as arguments, and its error says so"""
    return engine.map(len, [(1, 2), (3, 4)])


@situation("`map`", [5, 7])
def _(engine: Engine) -> Any:
    """two iterables of different lengths"""
    return engine.map(add, [1, 2, 3], [4, 5])


@situation("`map`", [0, 1, 2])
def _(engine: Engine) -> Any:
    """a generator as the iterable"""
    return engine.map(give, (number for number in range(3)))


@situation("`map`", ["a", "b"])
def _(engine: Engine) -> Any:
    """a dictionary as the iterable"""
    return engine.map(give, {"a": 1, "b": 2})


@situation("`map`", [])
def _(engine: Engine) -> Any:
    """an empty iterable"""
    return engine.map(give, [])


def invert(number: int) -> float:
    return 1 / number


@situation("`map`", ERROR)
def _(engine: Engine) -> Any:
    """one of the calls fails"""
    return engine.map(invert, [1, 0, 2])


# They add theirs to those of this module.
import situations_of_arrays  # noqa: E402, F401
import situations_of_failures  # noqa: E402, F401


@situation("Arguments", 7)
def _(engine: Engine) -> Any:
    """a future as an argument stands for its result"""
    return engine.run(add, engine.submit(add, 1, 2), 4)


@situation("Arguments", 10)
def _(engine: Engine) -> Any:
    """futures in a list as an argument"""
    return engine.run(sum, [engine.submit(add, number, 1) for number in range(4)])


# Its tasks wait for each other, so that each worker runs one of them before the edit and one after it.
_EDITED_MODULE = """
import os, pathlib, time
def answer(meeting):
    place = pathlib.Path(meeting)
    (place / str(os.getpid())).touch()
    end = time.monotonic() + 30
    while len(list(place.iterdir())) < {workers} and time.monotonic() < end:
        time.sleep(0.01)
    return {answer}
"""


@situation("Threads, processes, modules", [[1, 1], [2, 2]])
def _(engine: Engine) -> Any:
    """a local module was edited and reloaded between two calls"""
    folder = pathlib.Path(os.environ[FOLDER_VARIABLE])
    file = folder / "edited_module.py"
    answers = []
    for answer in (1, 2):
        file.write_text("# edited\n" * answer + _EDITED_MODULE.format(workers=WORKERS, answer=answer))
        importlib.invalidate_caches()
        module = importlib.reload(importlib.import_module(file.stem))
        meeting = folder / f"meeting {answer}"
        meeting.mkdir()
        futures = [engine.submit(module.answer, f"{meeting}{'/.' * number}") for number in range(WORKERS)]
        answers.append([future.result(engine.wait_seconds) for future in futures])
    return answers
