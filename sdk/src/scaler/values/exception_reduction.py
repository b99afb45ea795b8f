"""Taking an exception apart and rebuilding it with its own type and attributes, whatever its constructor takes.

    error ── reduction_of ──▶ (rebuild, (class, arguments), state, ..., restore) ── pickle ──▶ error

Rules:
- No user-defined constructor is called again: its parameters may differ from `args`.
- An exception with a `__reduce__` of its own is pickled by that. One that adds nothing to a builtin exception is
  pickled like the builtin.
- Attributes are restored even if the class forbids setting them.
"""

from __future__ import annotations

import copyreg
from typing import Any, Dict, NamedTuple, Optional, Tuple, Type

ARGUMENTS: Any = BaseException.__dict__["args"]


class State(NamedTuple):
    """The state of an exception, besides its type.

    Parameters:
        arguments: `args`.
        attributes: its `__dict__`.
        members: what its class or a builtin base stores elsewhere.
    """

    arguments: Tuple[Any, ...]
    attributes: Dict[str, Any]
    members: Dict[str, Any]


def builtin_base(kind: Type[BaseException]) -> Type[BaseException]:
    """The builtin exception that determines the internal layout of a class of exceptions."""
    while kind.__module__ != "builtins":
        kind = kind.__base__  # type: ignore[assignment]  # BaseException is one
    return kind


def reduces_itself(kind: Any) -> bool:
    """Whether a class defines how its exceptions are pickled."""
    base: Any = builtin_base(kind)
    return (
        kind.__reduce__ is not base.__reduce__
        or kind.__reduce_ex__ is not base.__reduce_ex__
        or kind in copyreg.dispatch_table
    )


def is_builtin_inside(kind: Any) -> bool:
    """Whether a class creates and changes its exceptions like its builtin base, so that pickle handles them."""
    base: Any = builtin_base(kind)
    return kind is base or (
        kind.__init__ is base.__init__
        and kind.__new__ is base.__new__
        and kind.__setattr__ is base.__setattr__
        and not _slots(kind)
    )


def reduction_of(error: BaseException) -> Any:
    """The reduction of an exception for a pickler; NotImplemented to use the pickler's own."""
    kind = type(error)
    if reduces_itself(kind) or is_builtin_inside(kind):
        return NotImplemented
    arguments, state = taken_apart(error)
    return (rebuild, (kind, arguments), state, None, None, restore)


def taken_apart(error: BaseException) -> Tuple[Tuple[Any, ...], State]:
    """The arguments of the builtin base's constructor, and the state."""
    kind = type(error)
    base: Any = builtin_base(kind)
    attributes = dict(error.__dict__)
    _, arguments, *rest = base.__reduce__(error)
    kept = rest[0] if rest and isinstance(rest[0], dict) else {}
    members = {name: value for name, value in kept.items() if name not in attributes}
    for name in _slots(kind):
        try:
            members[name] = getattr(error, name)
        except AttributeError:
            pass  # it was never set
    if hasattr(base, "derive"):  # a group: its `args` are the constructor's arguments, not its members
        arguments = (error.message, list(error.exceptions))  # type: ignore[attr-defined]
    return arguments, State(ARGUMENTS.__get__(error), attributes, members)


def _slots(kind: Any) -> Tuple[str, ...]:
    return tuple(name for name in copyreg._slotnames(kind) if name != "__dict__")  # type: ignore[attr-defined]


def rebuild(kind: Any, arguments: Tuple[Any, ...]) -> BaseException:
    """Create an exception of a class as its builtin base does."""
    base: Any = builtin_base(kind)
    try:
        error: BaseException = base.__new__(kind, *arguments)
    except TypeError:  # a base class in C between the two has its own constructor
        error = kind.__new__(kind, *arguments)
    try:
        base.__init__(error, *arguments)
    except Exception:
        pass  # the class did not call it either
    return error


def restore(error: BaseException, state: Tuple[Any, ...]) -> None:
    """Restore the state of an exception."""
    arguments, attributes, members = state
    ARGUMENTS.__set__(error, arguments)
    own: Optional[Any] = getattr(type(error), "__setstate__", None)
    if own is not None and own is not getattr(builtin_base(type(error)), "__setstate__", None):
        own(error, attributes)
    else:
        error.__dict__.update(attributes)
    for name, value in members.items():
        BaseException.__setattr__(error, name, value)
