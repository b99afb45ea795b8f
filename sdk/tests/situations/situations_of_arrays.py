"""Situations about arrays and data frames."""

from __future__ import annotations

import functools
import time
from typing import Any

from situation_engines import Engine
from situations import give, situation

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
    for _way, _what in (
        (_array_argument, "a task writes into its array"),
        (_array_result, "the caller writes into an array"),
    ):
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
