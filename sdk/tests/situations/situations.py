"""Everyday situations: what a user would write, and what it has to give.

Each situation is a function that is given an engine and returns a value; its docstring is its name on the page
docs/situations.md. `expected` is the value by the rules of Python, as if the function were called here with copies of
its arguments, or ERROR where no engine can do what is asked for, and has to say so. `ours` names the error by which we
refuse what could have a value.

Code of notebooks is run by `cell` in `__main__`, as a notebook does: in ours, nothing of it is known to the workers.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import datetime
import decimal
import fractions
import functools
import itertools
import linecache
import math
import multiprocessing
import os
import pathlib
import random
import re
import sqlite3
import sys
import threading
import time
import traceback
import types
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

from situation_engines import Engine

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
    """a helper was defined anew between two calls"""
    work = cell("def helper(x):\n    return x + 1\ndef work(x):\n    return helper(x)").work
    first = engine.run(work, 10)
    cell("def helper(x):\n    return x + 2")
    return [first, engine.run(work, 10)]


@situation("In a notebook", [1, 2])
def _(engine: Engine) -> Any:
    """a function was defined anew under its name"""
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
    """a method was defined anew between two calls"""
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


# Functions that hold something ----------------------------------------------------------------------------------------


@situation("Functions that hold something", [1, 2])
def _(engine: Engine) -> Any:
    """a variable that a closure captures was changed between two calls"""
    value = 1

    def get() -> int:
        return value

    first = engine.run(get)
    value = 2
    return [first, engine.run(get)]


@situation("Functions that hold something", [1, 3])
def _(engine: Engine) -> Any:
    """a list that a closure captures has grown"""
    numbers = [1]
    total = lambda: sum(numbers)
    first = engine.run(total)
    numbers.append(2)
    return [first, engine.run(total)]


@situation("Functions that hold something", [1, 2])
def _(engine: Engine) -> Any:
    """a default value was bound anew"""
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


@situation("Functions that hold something", [20, 30])
def _(engine: Engine) -> Any:
    """an attribute of a callable object was changed"""
    scale = Scale(2)
    first = engine.run(scale, 10)
    scale.factor = 3
    return [first, engine.run(scale, 10)]


@situation("Functions that hold something", [20, 30])
def _(engine: Engine) -> Any:
    """an attribute of the object of a bound method was changed"""
    scale = Scale(2)
    first = engine.run(scale.times, 10)
    scale.factor = 3
    return [first, engine.run(scale.times, 10)]


def look_up(table: Dict[str, int], key: str) -> int:
    return table[key]


@situation("Functions that hold something", [1, 2])
def _(engine: Engine) -> Any:
    """a dictionary in a `partial` was changed"""
    table = {"a": 1}
    find = functools.partial(look_up, table)
    first = engine.run(find, "a")
    table["a"] = 2
    return [first, engine.run(find, "a")]


@situation("Functions that hold something", ["Scale 1", -1])
def _(engine: Engine) -> Any:
    """a class method and a static method"""
    return [engine.run(Scale.named, 1), engine.run(Scale.plain, 1)]


@situation("Functions that hold something", [2, 2, 2])
def _(engine: Engine) -> Any:
    """lambdas made in a loop see its last value, as ever"""
    return [engine.run(function) for function in [lambda: number for number in range(3)]]  # noqa: B023


@situation("Functions that hold something", 8)
def _(engine: Engine) -> Any:
    """a function with a `functools.lru_cache`"""
    return engine.run(cell("import functools\n@functools.lru_cache\ndef cube(x):\n    return x ** 3").cube, 2)


@situation("Functions that hold something", [1, 0])
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
    """a task changes its argument, which stays as it was here"""
    numbers = [1]
    result = engine.run(append, numbers, 2)
    return [numbers, result]


@situation("Arguments", (1, 2, {"c": 3}))
def _(engine: Engine) -> Any:
    """keyword-only and other keyword arguments"""
    return engine.run(keyword_only, 1, b=2, c=3)


@situation("Arguments", True)
def _(engine: Engine) -> Any:
    """one object that is given twice is one object there"""
    value = [1]
    return engine.run(is_same, value, value)


@situation("Arguments", [True, True, True])
def _(engine: Engine) -> Any:
    """`None`, `...` and `NotImplemented` stay what they are"""
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
    """`map(len, [(1, 2), (3, 4)])`: tuples are values, too; ours takes them for arguments, and says so"""
    return engine.map(len, [(1, 2), (3, 4)])


@situation("`map`", [5, 7])
def _(engine: Engine) -> Any:
    """two iterables, of which the shorter one decides"""
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


# NumPy, pandas, Polars ------------------------------------------------------------------------------------------------


def set_first(array: Any) -> float:
    array[0] = 5
    return float(array.sum())


def zeros(size_bytes: int) -> Any:
    import numpy

    return numpy.zeros(size_bytes // 8)


def _array_argument(engine: Engine, size_bytes: int) -> Any:
    return engine.run(set_first, zeros(size_bytes))


def _array_result(engine: Engine, size_bytes: int) -> Any:
    return set_first(engine.run(zeros, size_bytes))


for _size_bytes in (1_000, 8_000, 10_000_000):
    for _way, _what in ((_array_argument, "a task writes into its array"), (_array_result, "we write into an array")):
        _run: Any = functools.partial(_way, size_bytes=_size_bytes)
        _run.__doc__ = f"{_what} of {_size_bytes:,} bytes".replace(",", " ")
        situation("NumPy, pandas, Polars", 5.0, needs="numpy")(_run)


@situation("NumPy, pandas, Polars", [True, [[0, 2], [6, 8]]], needs="numpy")
def _(engine: Engine) -> Any:
    """an array in Fortran's order, and one that is a view of every second row and column"""
    import numpy

    grid = numpy.arange(9).reshape(3, 3)
    fortran = engine.run(give, numpy.asfortranarray(grid))
    return [fortran.flags.f_contiguous and bool((fortran == grid).all()), engine.run(give, grid[::2, ::2]).tolist()]


def draw(_: int) -> float:
    import numpy

    time.sleep(0.05)  # so that several processes draw
    return float(numpy.random.rand())


@situation("NumPy, pandas, Polars", 8, needs="numpy")
def _(engine: Engine) -> Any:
    """random numbers of several processes differ: how many of 8"""
    return len(set(engine.map(draw, range(8))))


def frame_of(rows: int) -> Any:
    import pandas

    return pandas.DataFrame(
        {
            "number": range(rows),
            "kind": pandas.Categorical(["a", "b"] * (rows // 2)),
            "time": pandas.date_range("2026-01-01", periods=rows, tz="UTC"),
        }
    )


@situation("NumPy, pandas, Polars", [True, True], needs="pandas")
def _(engine: Engine) -> Any:
    """a data frame with categories and time zones, small and large"""
    return [engine.run(give, frame_of(rows)).equals(frame_of(rows)) for rows in (4, 20_000)]


def set_numbers(frame: Any) -> int:
    frame.loc[0, "number"] = 100
    frame["more"] = frame["number"] * 2
    return int(frame["more"].iloc[0])


@situation("NumPy, pandas, Polars", [200, 200], needs="pandas")
def _(engine: Engine) -> Any:
    """a task changes a data frame in place, a small and a large one"""
    return [engine.run(set_numbers, frame_of(rows)) for rows in (4, 20_000)]


@situation("NumPy, pandas, Polars", [True, 3], needs="polars")
def _(engine: Engine) -> Any:
    """a Polars frame, and a lazy one that the task collects"""
    import polars

    frame = polars.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    collected = engine.run(collect, frame.lazy())
    return [engine.run(give, frame).equals(frame), collected]


def collect(lazy: Any) -> int:
    return int(lazy.sum().collect()["a"][0])


# Exceptions -----------------------------------------------------------------------------------------------------------


class CodeError(Exception):
    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(f"failed with {code}")
        self.code = code
        self.detail = detail


class UserError(Exception):
    def __init__(self, user: str) -> None:
        super().__init__(f"no user {user}")


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    code: int


def fail_with_code() -> None:
    raise CodeError(5, detail="here")


def fail_with_user() -> None:
    raise UserError("me")


def fail_frozen() -> None:
    raise FrozenError(code=5)


def fail_from() -> None:
    raise ValueError("bad") from KeyError("why")


def fail_with_lock() -> None:
    error = ValueError("bad")
    error.lock = threading.Lock()  # type: ignore[attr-defined]
    raise error


def fail_with_note() -> None:
    error = ValueError("bad")
    error.__notes__ = ["a note"]  # type: ignore[attr-defined]
    raise error


def fail_in_group() -> None:
    raise ExceptionGroup("group", [CodeError(5, detail="here"), ValueError(1)])  # type: ignore[name-defined]  # noqa: F821


def fail_with(error: BaseException) -> None:
    raise error


def _raised(engine: Engine, kind: Any, function: Any, *args: Any) -> Any:
    """What a task raises; raises it here if it is of another class."""
    try:
        engine.run(function, *args)
    except kind as error:
        return error
    raise AssertionError("nothing was raised")


@situation("Exceptions", ["failed with 5", 5, "here"])
def _(engine: Engine) -> Any:
    """a class whose constructor has required and keyword-only parameters"""
    error = _raised(engine, CodeError, fail_with_code)
    return [str(error), error.code, error.detail]


@situation("Exceptions", "no user me")
def _(engine: Engine) -> Any:
    """a class whose constructor makes a text of its argument"""
    return str(_raised(engine, UserError, fail_with_user))


@situation("Exceptions", 5)
def _(engine: Engine) -> Any:
    """a class that is a frozen data class"""
    return _raised(engine, FrozenError, fail_frozen).code


@situation("Exceptions", "KeyError")
def _(engine: Engine) -> Any:
    """an exception that was raised `from` another one"""
    return type(_raised(engine, ValueError, fail_from).__cause__).__name__


@situation("Exceptions", "bad")
def _(engine: Engine) -> Any:
    """an exception with an attribute that cannot be pickled"""
    return str(_raised(engine, ValueError, fail_with_lock))


@situation("Exceptions", ["a note"])
def _(engine: Engine) -> Any:
    """an exception with a note"""
    return _raised(engine, ValueError, fail_with_note).__notes__


if sys.version_info >= (3, 11):

    @situation("Exceptions", [["CodeError", "ValueError"], 5])
    def _(engine: Engine) -> Any:
        """a group, and the attributes of its members"""
        group = _raised(engine, ExceptionGroup, fail_in_group)  # noqa: F821
        return [[type(each).__name__ for each in group.exceptions], group.exceptions[0].code]


@situation("Exceptions", [3, 3])
def _(engine: Engine) -> Any:
    """a task calls `sys.exit()`; the next one runs"""
    return [_raised(engine, SystemExit, sys.exit, 3).code, engine.run(add, 1, 2)]


@situation("Exceptions", [1, ()])
def _(engine: Engine) -> Any:
    """a task raises `StopIteration`, or `KeyboardInterrupt`"""
    stop = _raised(engine, StopIteration, fail_with, StopIteration(1))
    return [stop.value, _raised(engine, KeyboardInterrupt, fail_with, KeyboardInterrupt()).args]


@situation("Exceptions", 3)
def _(engine: Engine) -> Any:
    """the process of a task dies; the next task runs"""
    with contextlib.suppress(Exception):
        engine.run(os._exit, 3)
    return engine.run(add, 1, 2)


# Generators and asyncio -----------------------------------------------------------------------------------------------


def generate() -> Iterator[int]:
    yield 1


async def add_later(a: int, b: int = 1) -> int:
    await asyncio.sleep(0)
    return a + b


@situation("Generators and asyncio", ERROR)
def _(engine: Engine) -> Any:
    """a generator function as a task"""
    return engine.run(generate)


@situation("Generators and asyncio", 3)
def _(engine: Engine) -> Any:
    """an `async def` function as a task"""
    return engine.run(add_later, 1, 2)


@situation("Generators and asyncio", [1, 2])
def _(engine: Engine) -> Any:
    """`map` with an `async def` function"""
    return engine.map(add_later, [0, 1])


@situation("Generators and asyncio", [3, 5])
def _(engine: Engine) -> Any:
    """results are awaited in an event loop, by `run_in_executor`"""

    async def main() -> List[int]:
        loop = asyncio.get_running_loop()
        futures = [engine.submit(add, 1, 2), engine.submit(add, 2, 3)]
        waits = [loop.run_in_executor(None, future.result, engine.wait_seconds) for future in futures]
        return list(await asyncio.gather(*waits))

    return asyncio.run(main())


# Threads, processes, modules ------------------------------------------------------------------------------------------


@situation("Threads, processes, modules", list(range(100)))
def _(engine: Engine) -> Any:
    """eight threads submit"""
    with ThreadPoolExecutor(8) as threads:
        return list(threads.map(lambda number: engine.run(add, number, 0), range(100)))


def squares_in_threads(numbers: List[int]) -> List[int]:
    with ThreadPoolExecutor(4) as threads:
        return list(threads.map(lambda number: number * number, numbers))


@situation("Threads, processes, modules", [1, 4, 9])
def _(engine: Engine) -> Any:
    """a task starts threads"""
    return engine.run(squares_in_threads, [1, 2, 3])


def in_processes(numbers: List[int]) -> List[int]:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(abs, numbers)


@situation("Threads, processes, modules", [1, 2])
def _(engine: Engine) -> Any:
    """a task starts a `multiprocessing.Pool`"""
    return engine.run(in_processes, [-1, -2])


@situation("Threads, processes, modules", [True, 3])
def _(engine: Engine) -> Any:
    """this process forks, and goes on"""
    child = os.fork()
    if child == 0:
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return [status == 0, engine.run(add, 1, 2)]


def draw_plainly(_: int) -> float:
    time.sleep(0.05)
    return random.random()


@situation("Threads, processes, modules", 8)
def _(engine: Engine) -> Any:
    """random numbers of Python's own differ: how many of 8"""
    return len(set(engine.map(draw_plainly, range(8))))


@situation("Threads, processes, modules", 2)
def _(engine: Engine) -> Any:
    """the same call twice runs twice"""
    return len({engine.run(uuid.uuid4) for _ in range(2)})


def recursion(depth: int) -> int:
    return 0 if depth == 0 else 1 + recursion(depth - 1)


@situation("Threads, processes, modules", [True, 3])
def _(engine: Engine) -> Any:
    """recursion without end; the next task runs"""
    error = _raised(engine, RecursionError, recursion, -1)
    return ["recursion depth" in str(error), engine.run(add, 1, 2)]


@situation("Threads, processes, modules", math.pi)
def _(engine: Engine) -> Any:
    """a function of the standard library"""
    return engine.run(math.atan2, 0, -1)
