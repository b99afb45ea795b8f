"""Arguments by their earlier names, accepted according to the table.

    @accepts_earlier("Client")
    def __init__(self, …)        Client(address, object_storage_address="…") warns, and continues without it

Rules:
- A call with today's names costs one extra set operation; decorated functions are called rarely.
- `inspect.signature` shows the earlier names too, because libraries use it to find the arguments to pass on.
- Type checkers see only today's parameters.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from typing import Any, Callable, Dict, Set, Tuple, Type, TypeVar

from scaler.compat.compatibility_table import ARGUMENTS

F = TypeVar("F", bound=Callable[..., Any])

_warned: Set[Tuple[str, str]] = set()


def accepts_earlier(owner: str) -> Callable[[F], F]:
    """Let a function accept the arguments of earlier generations, too.

    Parameters:
        owner: their owner in the table: a class, for its `__init__`, or `Class.method`.
    """
    earlier = ARGUMENTS[owner]

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        names = earlier.keys() - signature.parameters.keys()

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if kwargs and not names.isdisjoint(kwargs):
                for name in sorted(names & kwargs.keys()):
                    _translate(owner, name, kwargs, signature)
            return function(*args, **kwargs)

        added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in sorted(names)]
        parameters = sorted([*signature.parameters.values(), *added], key=lambda parameter: parameter.kind)
        call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate


def _translate(owner: str, name: str, kwargs: Dict[str, Any], signature: inspect.Signature) -> None:
    """Replace one earlier argument in `kwargs` by its meaning."""
    becomes, why = ARGUMENTS[owner][name]
    value = kwargs.pop(name)
    if not becomes:
        if value:
            _warn_once(owner, name, f"{owner}: {name} has no effect: {why}", UserWarning)
        return
    _warn_once(owner, name, f"{owner}: {name} was renamed to {becomes}", DeprecationWarning)
    default = signature.parameters[becomes].default
    if becomes not in kwargs or kwargs[becomes] == default:
        kwargs[becomes] = value
    elif value not in (default, kwargs[becomes]):
        warnings.warn(
            f"{owner}: both {becomes}={kwargs[becomes]!r} and {name}={value!r} are given, which are the same argument:"
            f" using {becomes}",
            UserWarning,
            stacklevel=3,
        )


def _warn_once(owner: str, name: str, text: str, category: Type[Warning]) -> None:
    if (owner, name) not in _warned:
        _warned.add((owner, name))
        warnings.warn(text, category, stacklevel=4)
