"""Whether a function can be called with certain arguments, asked before the task is sent.

    submit ─▶ how many positional arguments? ── within the record's Arity ─▶ sent
                                             └─ else, or with keywords ───▶ check_call: bind them to the function as it
                                                                            is now; TypeError only if that cannot work

Rules:
- A call that could work is never refused: what a decorator claims (`__signature__`, `__wrapped__`) is ignored, and
  every call is accepted if the parameters cannot be known for sure; then the worker reports the error.
- An Arity may be stale, as after `function.__defaults__ = …`: it only decides whether to call `check_call`, which reads
  the function itself.
- Known parameters are those of functions written in Python, their bound methods, their `functools.partial`, task
  functions, and instances whose class defines `__call__` in this way.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from typing import Any, Callable, Mapping, NamedTuple, Optional, Tuple

from scaler.exceptions import ArgumentTypeError

_MAXIMUM_NESTING = 8  # of partials of methods of partials…


class Arity(NamedTuple):
    """How many positional arguments, and no others, a function takes."""

    fewest: int
    most: int


ANY_ARITY = Arity(0, sys.maxsize)
"""The arity of a callable whose parameters are unknown."""

NO_ARITY = Arity(sys.maxsize, -1)
"""The arity of a function that always needs keyword arguments."""

_Bound = Tuple[types.FunctionType, Tuple[Any, ...], Mapping[str, Any]]


def arity_of(function: Callable[..., Any]) -> Arity:
    """The number of arguments that a call without keywords may have."""
    bound = _resolve(function, (), {})
    if bound is None:
        return ANY_ARITY
    plain, first, keywords = bound
    code = plain.__code__
    positional = code.co_varnames[: code.co_argcount]
    keyword_only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    named = [place for place, name in enumerate(positional) if place >= code.co_posonlyargcount and name in keywords]
    has_unknown = any(name not in positional[code.co_posonlyargcount :] + keyword_only for name in keywords)
    lacks_keywords = any(name not in keywords and name not in (plain.__kwdefaults__ or {}) for name in keyword_only)
    required = [place for place in range(code.co_argcount - len(plain.__defaults__ or ())) if place not in named]
    fewest = required[-1] + 1 if required else 0
    most = sys.maxsize if code.co_flags & inspect.CO_VARARGS else code.co_argcount
    if named:
        most = named[0]
    if lacks_keywords or fewest > most or (has_unknown and not code.co_flags & inspect.CO_VARKEYWORDS):
        return NO_ARITY
    return Arity(max(0, fewest - len(first)), most - len(first))


def check_call(function: Callable[..., Any], args: Tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raise TypeError if `function(*args, **kwargs)` cannot be called."""
    bound = _resolve(function, args, kwargs)
    if bound is None or _fits(*bound):
        return
    plain, all_args, all_kwargs = bound
    signature = _signature_of(plain)
    try:
        signature.bind(*all_args, **all_kwargs)
    except TypeError as error:
        raise ArgumentTypeError(
            f"{plain.__qualname__}{signature} cannot be called with these arguments: {error}"
        ) from None


def _resolve(function: Any, args: Tuple[Any, ...], kwargs: Mapping[str, Any]) -> Optional[_Bound]:
    """The Python function that is finally called, and its arguments; None if that cannot be known for sure."""
    for _ in range(_MAXIMUM_NESTING):
        kind = type(function)
        if kind is types.FunctionType:
            return function, args, kwargs
        if kind is types.MethodType:
            function, args = function.__func__, (function.__self__, *args)
        elif kind is functools.partial:
            if _has_placeholder(function):
                return None
            args, kwargs = (*function.args, *args), {**function.keywords, **kwargs}
            function = function.func
        elif getattr(kind, "_is_task_function", False):
            function = function.function
        elif isinstance(function, type):  # it depends on the metaclass, `__new__` and `__init__`
            return None
        else:
            call = inspect.getattr_static(kind, "__call__", None)
            if type(call) is not types.FunctionType:
                return None
            function, args = call, (function, *args)
    return None


def _has_placeholder(function: functools.partial[Any]) -> bool:
    placeholder = getattr(functools, "Placeholder", None)  # of Python 3.14
    return placeholder is not None and any(each is placeholder for each in function.args)


def _fits(function: types.FunctionType, args: Tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether the arguments certainly match the function's parameters."""
    code, defaults, count = function.__code__, function.__defaults__ or (), len(args)
    positional = code.co_argcount
    if count > positional and not code.co_flags & inspect.CO_VARARGS:
        return False
    names = code.co_varnames[: positional + code.co_kwonlyargcount]
    open_names = names[max(count, code.co_posonlyargcount) :]
    if not code.co_flags & inspect.CO_VARKEYWORDS and not all(name in open_names for name in kwargs):
        return False
    if any(name in kwargs for name in names[code.co_posonlyargcount : min(count, positional)]):
        return False
    required = names[count : positional - len(defaults)]
    if any(position < code.co_posonlyargcount for position in range(count, positional - len(defaults))):
        return False
    keyword_defaults = function.__kwdefaults__ or {}
    return all(name in kwargs for name in required) and all(
        name in kwargs or name in keyword_defaults for name in names[positional:]
    )


def _signature_of(function: types.FunctionType) -> inspect.Signature:
    """Its parameters as a call sees them, whatever a decorator says they are; without the values of defaults."""
    bare = types.FunctionType(function.__code__, {}, "", function.__defaults__, function.__closure__)
    bare.__kwdefaults__ = function.__kwdefaults__
    parameters = inspect.signature(bare).parameters.values()
    return inspect.Signature([each if each.default is each.empty else each.replace(default=...) for each in parameters])
