"""cloudpickle, and a word on code that another Python made.

Rule: a code object, of a function or class that travels by value, says which Python it is for. Another one would load
some of it and run something else, or die: it refuses it instead, and says what to do.
"""

from __future__ import annotations

import sys
import types
from collections import ChainMap
from typing import Any, ClassVar, Tuple

import cloudpickle

_IMPLEMENTATIONS = {"cpython": "CPython", "pypy": "PyPy"}

THIS_PYTHON = "{} {}.{}".format(
    _IMPLEMENTATIONS.get(sys.implementation.name, sys.implementation.name), *sys.version_info[:2]
)
"""What code is for: its form changes with every minor version."""

_TABLE = cloudpickle.Pickler.dispatch_table
_reduce_to_arguments = _TABLE[types.CodeType]


class OtherPythonError(Exception):
    """What a client sent was made by another version of Python than the worker's, or the other way round."""


def make_code(made_by: str, *arguments: Any) -> types.CodeType:
    """A code object from the arguments of its type.

    Raises OtherPythonError when it is for another Python than this one.
    """
    if made_by != THIS_PYTHON:
        raise OtherPythonError(
            f"its code was made by {made_by}, and this is {THIS_PYTHON}: run the client and the workers with the same"
            " version of Python, or put the code into a module that is installed on both"
        )
    return types.CodeType(*arguments)


def _reduce_code(code: types.CodeType) -> Tuple[Any, ...]:
    _, arguments = _reduce_to_arguments(code)
    return make_code, (THIS_PYTHON, *arguments)


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle's, but for code objects."""

    # As many tables as before: each is asked for every object that is no builtin.
    dispatch_table: ClassVar[ChainMap[Any, Any]] = ChainMap(
        {**_TABLE.maps[0], types.CodeType: _reduce_code}, *_TABLE.maps[1:]
    )
