"""The function of a task whose executor has an initializer: runs it in each processor, before the first of its tasks.

    first function  ──▶ its copy of the initializer runs ──▶ what it changed in its globals
    other functions ──▶ the same changes, in their copies of the globals

Rules:
- It runs once in each processor for each executor. If it fails there, it is not tried again: all tasks of the executor
  fail in that processor.
- Functions of `__main__` travel by value, each with a copy of the globals that it names. A global variable that the
  initializer sets has to be seen by all of them, as if they were in one module.
- Only the arguments of the initializer travel as bytes: they are pickled once, and not compared at each submission.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, NamedTuple, Optional

from scaler.exceptions import InitializerError
from scaler.values.coroutines import awaited
from scaler.values.payload import load_value
from scaler.values.texts import description_of


class _Outcome(NamedTuple):
    """What came of an initializer.

    Parameters:
        variables: the globals of the copy that ran.
        changed: those that it has set.
        failure: what it raised.
    """

    variables: Dict[str, Any]
    changed: Dict[str, Any]
    failure: Optional[Exception]


_outcomes: Dict[bytes, _Outcome] = {}
"""What came of the initializers that this processor has run, by the executor's key."""


class Initialized:
    """A function that needs an initializer.

    Parameters:
        function: the user's.
        key: of the executor.
        arguments: of the initializer, as `dump_value` writes them.
    """

    _is_ready = False  # in a processor: the function sees what the initializer has set

    def __init__(
        self, function: Callable[..., Any], key: bytes, initializer: Callable[..., object], arguments: bytes
    ) -> None:
        self.function = function
        self.key = key
        self.initializer = initializer
        self.arguments = arguments

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if not self._is_ready:
            self._get_ready()
        return awaited(self.function)(*args, **kwargs)

    def _get_ready(self) -> None:
        variables = _globals_of(self.initializer)
        outcome = _outcomes.get(self.key)
        if outcome is None:
            outcome = _outcomes[self.key] = self._initialize(variables)
        if outcome.failure is not None:
            raise InitializerError(
                f"the executor's initializer has failed with {description_of(outcome.failure)}: correct it, and make"
                " another executor"
            ) from outcome.failure
        if variables is not outcome.variables:
            variables.update(outcome.changed)
        self._is_ready = True

    def _initialize(self, variables: Dict[str, Any]) -> _Outcome:
        before = dict(variables)
        failure: Optional[Exception] = None
        try:
            awaited(self.initializer)(*load_value(self.arguments, None))
        except Exception as error:
            failure = error
        changed = {name: value for name, value in variables.items() if before.get(name, _MISSING) is not value}
        return _Outcome(variables, changed, failure)


_MISSING = object()


def _globals_of(function: Any) -> Dict[str, Any]:
    """The globals of a function, or of what a partial or a method calls; empty for anything else."""
    while not hasattr(function, "__globals__"):
        inner = function.func if isinstance(function, functools.partial) else getattr(function, "__func__", None)
        if inner is None:
            return {}
        function = inner
    found: Dict[str, Any] = function.__globals__
    return found
