"""pandas' `apply` and `map` on a cluster: the same results as without an engine, and errors of the user's function."""

from __future__ import annotations

import os
from typing import Any, Callable, Tuple

import pytest

from scaler import Client
from scaler.exceptions import ArgumentTypeError, InvalidArgumentError

pandas = pytest.importorskip("pandas", "3.0")
testing: Any = pandas.testing


@pytest.fixture
def engine(any_client: Client) -> Any:
    from scaler.pandas import PandasEngine

    return PandasEngine(client=any_client.options(priority=1))


@pytest.fixture
def frame() -> Any:
    days = pandas.date_range("2026-01-01", periods=23, name="day")
    numbers = pandas.Series(range(23), index=days)
    return pandas.DataFrame({"whole": numbers, "part": numbers / 3, "text": numbers.astype(str), "day": days})


def first_two(row: Any, *more: Any, **named: Any) -> Any:
    return (row.iloc[0], row.iloc[1], *more, *named.values())


FUNCTIONS = {
    "numbers": lambda row: row["whole"] * 2,
    "whole and part": lambda row: row["whole"] if row["whole"] % 2 else row["part"],
    "texts": lambda row: row["text"] + "!",
    "missing": lambda row: None if row["whole"] < 20 else row["whole"],
    "series": lambda row: row[["whole", "part"]],
    "other labels": lambda row: pandas.Series({"a": row["whole"], "b": row["text"]}),
    "the row": lambda row: row,
    "names": lambda row: row.name,
    "lists": lambda row: [row["whole"]] * 2,
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=list(FUNCTIONS))
def test_rows_give_what_pandas_gives(engine: Any, frame: Any, function: Callable[[Any], Any]) -> None:
    expected, result = frame.apply(function, axis=1), frame.apply(function, axis=1, engine=engine)
    same = testing.assert_frame_equal if isinstance(expected, pandas.DataFrame) else testing.assert_series_equal
    same(result, expected)


def test_columns_arrays_and_arguments_give_what_pandas_gives(engine: Any, frame: Any) -> None:
    options: Tuple[Any, ...] = ((0, False), (0, True), (1, True))
    numbers = frame[["whole", "part"]]
    for axis, raw in options:
        for function in (lambda values: values.max(), lambda values: values * 2, lambda values: "text"):
            expected = numbers.apply(function, axis=axis, raw=raw)
            assert numbers.apply(function, axis=axis, raw=raw, engine=engine).equals(expected)
    expected = frame.apply(first_two, axis="columns", args=(1,), named=2)
    testing.assert_series_equal(frame.apply(first_two, axis="columns", args=(1,), named=2, engine=engine), expected)
    testing.assert_series_equal(numbers.apply("sum", engine=engine), numbers.sum())


def test_values_of_any_dtype_give_what_pandas_gives(engine: Any, frame: Any) -> None:
    columns = [frame[name] for name in frame]
    columns += [frame["text"].astype("category"), frame["part"].where(frame["whole"] > 3).astype("Float64")]
    columns += [pandas.Series([0, 0, 1], dtype="Sparse[int]"), pandas.Series([], dtype=float)]
    for column in columns:
        for na_action in (None, "ignore"):
            expected = column.map(repr, na_action=na_action)
            testing.assert_series_equal(column.map(repr, na_action=na_action, engine=engine), expected)


def test_functions_run_in_the_cluster(engine: Any, frame: Any) -> None:
    assert os.getpid() not in set(frame.apply(lambda row: os.getpid(), axis=1, engine=engine))
    assert os.getpid() not in set(frame["whole"].map(lambda value: os.getpid(), engine=engine))


def test_an_exception_of_the_function_reaches_the_caller(engine: Any, frame: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        frame.apply(lambda row: 1 // row["whole"], axis=1, engine=engine)
    with pytest.raises(ZeroDivisionError):
        frame["whole"].map(lambda value: 1 // int(value), engine=engine)


def test_invalid_arguments_are_refused(any_client: Client) -> None:
    from scaler.pandas import PandasEngine

    with pytest.raises(ArgumentTypeError, match="client must be"):
        PandasEngine(client=any_client.map)  # type: ignore[arg-type]  # the error is tested
    with pytest.raises(InvalidArgumentError, match="contradict"):
        PandasEngine("tcp://127.0.0.1:1", client=any_client)
