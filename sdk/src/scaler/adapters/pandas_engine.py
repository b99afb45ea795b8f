"""The engine of pandas' `apply` and `map`: calls of the user's function run in a cluster, pandas does the rest.

    apply   frame ──in slices──▶ tasks: pandas makes the rows, the function is called ──▶ results ┐
    map     series ──pandas lists the values──▶ `map` of the cluster ───────────────────▶ results ┤
            frame, series ──▶ pandas' own apply or map, with a function that returns the next ◀───┘

Rules:
- pandas makes what the function gets, and puts its results together, as without an engine. So dtypes, labels and shapes
  are those of pandas, and nothing here has to know them.
- The function is called once for each row, column or value, in any order, in several processes.
- What is no Python function of the user's (a name such as "sum", a ufunc, a list or dict of functions) is left to
  pandas, which computes it faster than it could be sent.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy
from pandas import DataFrame, Series

from scaler.adapters.default_clients import client_for
from scaler.client.submitter import Submitter
from scaler.exceptions import ArgumentTypeError, InvalidArgumentError, MissingPackageError

try:
    from pandas.api.executors import BaseExecutionEngine
except ImportError as error:
    raise MissingPackageError(
        "scaler.pandas needs pandas 3, where `apply` takes engines: pip install 'pandas>=3'"
    ) from error

SLICES_PER_SLOT = 4
SLOTS_TIMEOUT_SECONDS = 1.0


class PandasEngine:
    """An engine for `DataFrame.apply(..., engine=...)` and `Series.map(..., engine=...)`.

    Parameters:
        address: of the scheduler. By default a scheduler is found as by `Client()`; if there is none, a local cluster
            with a slot for each CPU is started, which lasts until the program ends.
        client: a Client to use, or one with options, `client.options(priority=1)`.

    Raises what `Client` raises; ArgumentTypeError and InvalidArgumentError if an argument is invalid.
    """

    def __init__(self, address: Optional[str] = None, client: Optional[Submitter] = None) -> None:
        if client is not None and not isinstance(client, Submitter):
            raise ArgumentTypeError(f"client must be a Client, or one with options, got {type(client).__name__}")
        if client is not None and address is not None:
            raise InvalidArgumentError("address and client contradict each other: give one of them")
        self._address = address
        self._client = client if client is not None else client_for(address) if address is not None else None
        self.__pandas_udf__ = _Executor(self)

    @property
    def submitter(self) -> Submitter:
        """The client that tasks are submitted to."""
        return self._client if self._client is not None else client_for(self._address)


class _Executor(BaseExecutionEngine):  # type: ignore[misc]
    """What pandas calls."""

    def __init__(self, engine: PandasEngine) -> None:
        self._engine = engine

    def map(
        self,
        data: Series,
        func: Callable[..., Any],
        args: Tuple[Any, ...],
        kwargs: Dict[str, Any],
        decorator: Any,
        skip_na: bool,
    ) -> Series:
        """As `Series.map`."""
        na_action = "ignore" if skip_na else None
        if not _is_users(func):
            return data.map(func, na_action=na_action, **kwargs)
        values: List[Any] = []

        def note(value: Any) -> int:
            values.append(value)
            return len(values)  # each a different one: sparse series demand it

        data.map(note, na_action=na_action)
        results = iter(self._engine.submitter.map(_Call(func, args, kwargs), values, unpack=False))
        return data.map(lambda _: next(results), na_action=na_action)

    def apply(
        self,
        data: Any,
        func: Callable[..., Any],
        args: Tuple[Any, ...],
        kwargs: Dict[str, Any],
        decorator: Any,
        axis: Any,
    ) -> Any:
        """As `DataFrame.apply`; `data` is an array if it was called with `raw=True`."""
        along = 1 if axis in (1, "columns") else 0
        if not _is_users(func):
            if isinstance(data, DataFrame):
                return data.apply(func, axis=axis, args=args, **kwargs)
            return _apply_to_array(func, along, data, args, kwargs)
        call = _Call(func, args, kwargs)
        results = iter(self._results(call, data, along))
        if isinstance(data, DataFrame):
            return data.apply(lambda _: next(results), axis=axis)
        return _apply_to_array(lambda _: next(results), along, data, (), {})

    def _results(self, call: _Call, data: Any, axis: int) -> Iterator[Any]:
        submitter = self._engine.submitter
        slots = max(1, submitter._shell.wait_for_slots(SLOTS_TIMEOUT_SECONDS))
        slices = _slices(data, axis, slots * SLICES_PER_SLOT)
        for results in submitter.map(_Slice(call, axis), slices, unpack=False):
            yield from results


class _Call:
    """The user's function with its further arguments."""

    __slots__ = ("function", "_args", "_kwargs", "__weakref__")

    def __init__(self, function: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
        self.function = function
        self._args = args
        self._kwargs = kwargs

    def __call__(self, value: Any) -> Any:
        return self.function(value, *self._args, **self._kwargs)

    def __reduce__(self) -> Tuple[Any, ...]:
        return (_Call, (self.function, self._args, self._kwargs))


class _Slice:
    """The function of a task: calls the user's function for each row or column of a part."""

    __slots__ = ("function", "_axis", "_call", "__weakref__")

    def __init__(self, call: _Call, axis: int) -> None:
        self.function = call.function  # monitors show its name
        self._call = call
        self._axis = axis

    def __reduce__(self) -> Tuple[Any, ...]:
        return (_Slice, (self._call, self._axis))

    def __call__(self, part: Any) -> List[Any]:
        results: List[Any] = []

        def collect(value: Any) -> int:
            result = self._call(value)
            # pandas makes one series and changes its content for each row.
            results.append(result.copy(deep=False) if isinstance(result, Series) else result)
            return 0

        if isinstance(part, DataFrame):
            part.apply(collect, axis=self._axis)
        else:
            numpy.apply_along_axis(collect, self._axis, part)
        return results


def _slices(data: Any, axis: int, most: int) -> List[Any]:
    """The data in about equal parts with whole rows (axis 1) or columns (axis 0)."""
    count = data.shape[0] if axis == 1 else data.shape[1]
    bounds = numpy.linspace(0, count, min(most, count) + 1).astype(int)
    parts = [slice(begin, end) for begin, end in zip(bounds[:-1], bounds[1:])]
    located = data.iloc if isinstance(data, DataFrame) else data
    return [located[part] if axis == 1 else located[:, part] for part in parts]


def _apply_to_array(
    function: Callable[..., Any], axis: int, data: Any, args: Sequence[Any], kwargs: Dict[str, Any]
) -> Any:
    """As pandas does it with `raw=True`."""

    def call(*values: Any, **named: Any) -> Any:
        result = function(*values, **named)
        # numpy would cut texts to the length of the first one.
        return numpy.array(result, dtype=object) if isinstance(result, str) else result

    return numpy.apply_along_axis(call, axis, data, *args, **kwargs)


def _is_users(function: Any) -> bool:
    return callable(function) and not isinstance(function, numpy.ufunc)
