"""cloudpickle, with additions for code and classes that travel by value, and for exceptions.

Rules:
- A code object records the version of Python that made it. Another version might load it and misbehave or crash: it
  rejects the code instead, and says what to do.
- A class records the version of its attributes. In the process that created the class, arriving pickles never change
  it. Elsewhere it has the attributes of the version that arrived last, and a function that was loaded earlier gets the
  attributes of its own version back before it runs (`ClassesOfLoad`).
- Code that is not in a file includes the source lines for tracebacks (`cell_sources`).
- Exceptions are pickled as described in `exception_reduction`.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
import threading
import types
import uuid
import weakref
from collections import ChainMap
from typing import Any, Callable, ClassVar, Dict, FrozenSet, List, NamedTuple, Optional, Set, Tuple

import cloudpickle
from cloudpickle import cloudpickle as by_value

from scaler.exceptions import OtherPythonError
from scaler.values.captures import Captures, take
from scaler.values.cell_sources import Source, register, source_of
from scaler.values.exception_reduction import reduction_of

_IMPLEMENTATIONS = {"cpython": "CPython", "pypy": "PyPy"}

THIS_PYTHON = "{} {}.{}".format(
    _IMPLEMENTATIONS.get(sys.implementation.name, sys.implementation.name), *sys.version_info[:2]
)
"""The version in code objects: their format changes with every minor version."""

_TABLE = cloudpickle.Pickler.dispatch_table
_reduce_to_arguments = _TABLE[types.CodeType]

_FILENAME = [isinstance(each, str) for each in _reduce_to_arguments(compile("", "", "exec"))[1]].index(True)
"""Which argument is the name of the file. From version 3.1.3 on, cloudpickle replaces it, and tracebacks lack lines."""


def make_code(made_by: str, *arguments: Any) -> types.CodeType:
    """A code object from the arguments of its type.

    Raises OtherPythonError if another version of Python made it.
    """
    if made_by != THIS_PYTHON:
        raise OtherPythonError(
            f"its code was made by {made_by}, and this is {THIS_PYTHON}: run the client and the workers with the same"
            " version of Python, or put the code into a module that is installed on both"
        )
    return types.CodeType(*arguments)


def make_code_of_cell(made_by: str, source: Source, *arguments: Any) -> types.CodeType:
    """Like `make_code`, for code that is not in a file."""
    code = make_code(made_by, *arguments)
    name = register(code.co_filename, source)
    return code if name == code.co_filename else code.replace(co_filename=name)


def _reduce_code(code: types.CodeType) -> Tuple[Any, ...]:
    _, arguments = _reduce_to_arguments(code)
    # A copy, as cloudpickle makes: if two functions shared the string, their pickles would depend on each other.
    arguments = (*arguments[:_FILENAME], "".join(code.co_filename), *arguments[_FILENAME + 1 :])
    source = source_of(code)
    if source is not None:
        return make_code_of_cell, (THIS_PYTHON, source, *arguments)
    return make_code, (THIS_PYTHON, *arguments)


def _cached(function: Callable[..., Any], parameters: Dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _reduce_cached(cached: Any) -> Any:
    """Reduces a function with a `functools.lru_cache` like its function; the cached values are not sent."""
    if by_value._lookup_module_and_qualname(cached) is not None:
        return cached.__reduce__()
    return _cached, (cached.__wrapped__, cached.cache_parameters())


# Versions of classes -------------------------------------------------------------------------------------------------

Version = Optional[Tuple[str, int]]
"""The process that changed a class, and a number of its own; None: unknown, so every arrival counts as a change."""


class _VersionedClass(NamedTuple):
    captures: Optional[Captures]
    version: Version


class _Arrived(NamedTuple):
    """The current state of a class from elsewhere: its version, None before the first, and its attributes."""

    version: Version
    names: FrozenSet[str]


class _Versions:
    """The versions of classes in this process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._arrived: weakref.WeakKeyDictionary[type, _Arrived] = weakref.WeakKeyDictionary()
        self._known: weakref.WeakKeyDictionary[type, _VersionedClass] = weakref.WeakKeyDictionary()
        self._asked: Set[int] = set()  # identities of classes whose captures this thread is examining
        self._numbers = itertools.count(1)
        self._process = ""

    def of(self, made: type) -> Version:
        """The current version of a class."""
        with self.lock:
            if id(made) in self._asked:  # it refers to itself through its captures
                return None
            self._asked.add(id(made))
            try:
                known = self._known.get(made)
                if known is not None and known.captures is not None and known.captures.holds(made):
                    return known.version
                captures = captures_of(made)
                if not self._process:
                    self._process = uuid.uuid4().hex
                version = None if captures is None else (self._process, next(self._numbers))
                self._known[made] = _VersionedClass(captures, version)
                return version
            finally:
                self._asked.discard(id(made))

    def add(self, made: type) -> None:
        """Register a class that has arrived, without its attributes."""
        self._arrived[made] = _Arrived(None, frozenset())

    def set(self, made: type, version: Version, state: Any) -> None:
        """Give a class that has arrived the attributes of a version."""
        with self.lock:
            arrived = self._arrived.get(made)
            if arrived is None or (version is not None and arrived.version == version):
                return
            by_value._class_setstate(made, state)
            names = frozenset(state[0])
            for name in arrived.names - names:  # cloudpickle does not remove these
                delattr(made, name)
            self._arrived[made] = _Arrived(version, names)
            self._known[made] = _VersionedClass(captures_of(made), version)

    def after_fork_in_child(self) -> None:
        self.lock = threading.RLock()
        self._asked.clear()
        self._process = ""


_versions = _Versions()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_versions.after_fork_in_child)

_loading = threading.local()


class ClassesOfLoad:
    """The classes that a payload contained, recorded while it is loaded in a `with` block, and their attributes.

    Cached functions share their classes with payloads that are loaded later.
    """

    def __init__(self) -> None:
        self._classes: List[Tuple[type, Version, Any]] = []

    def __enter__(self) -> ClassesOfLoad:
        _loading.classes = self._classes
        return self

    def __exit__(self, *_: object) -> None:
        _loading.classes = None

    def __bool__(self) -> bool:
        return bool(self._classes)

    def restore(self) -> None:
        """Give the classes the attributes of their own payload."""
        for made, version, state in self._classes:
            _versions.set(made, version, state)


def make_class(make: Callable[..., type], *arguments: Any) -> type:
    """A class without its attributes, unless this process already has it; `arguments` are cloudpickle's."""
    tracker_id = arguments[-2]
    with _versions.lock:
        known = by_value._DYNAMIC_CLASS_TRACKER_BY_ID.get(tracker_id)  # kept: else it might be collected meanwhile
        made = make(*arguments)
        if made is not known:
            _versions.add(made)
        return made


def set_class_state(made: type, versioned_state: Tuple[Version, Any]) -> None:
    """Give a class that has arrived the attributes of its version."""
    version, state = versioned_state
    _versions.set(made, version, state)
    classes = getattr(_loading, "classes", None)
    if classes is not None:
        classes.append((made, version, state))


def _versioned(reduced: Tuple[Any, ...], made: type) -> Tuple[Any, ...]:
    """cloudpickle's reduction of a class that travels by value, with its version added."""
    make, arguments, state, *_ = reduced
    return (make_class, (make, *arguments), (_versions.of(made), state), None, None, set_class_state)


_CACHED: Any = type(functools.lru_cache(make_code))
_REDUCERS_OF_CACHED = (
    {} if _CACHED is types.FunctionType else {_CACHED: _reduce_cached}
)  # in Python code, it is a function


def _refuse_foreign_future(obj: Any) -> None:
    """Raises TypeError for a future that could never complete in another process."""
    kind = type(obj)
    packages = {each.__module__.partition(".")[0] for each in kind.__mro__}  # avoids imports
    has_own_reduction = any("__reduce__" in each.__dict__ for each in kind.__mro__[:-1])
    if "distributed" in packages or (packages & {"asyncio", "_asyncio", "concurrent"} and not has_own_reduction):
        raise TypeError(
            f"{kind.__module__}.{kind.__qualname__} is a future of another library, which a task cannot wait for: pass"
            " its result()"
        )


def is_found_by_name(value: Any) -> bool:
    """Whether other processes find an object by its module and name, as they find functions."""
    if getattr(value, "__qualname__", None) is None:
        return False
    found = by_value._lookup_module_and_qualname(value)
    return found is not None and not by_value._is_registered_pickle_by_value(found[0])


def reduce_with(kind: type, reduce: Callable[[Any], Any]) -> None:
    """Pickle objects of a type with this function, here and where users pickle with cloudpickle."""
    for pickler in (cloudpickle.Pickler, Pickler):
        pickler.dispatch_table[kind] = reduce


def captures_of(value: Any) -> Optional[Captures]:
    """A snapshot of what pickling a callable or class reads; None if it may change at any time."""
    return take(value, Pickler)


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle's pickler, with special handling of code objects, classes and exceptions."""

    # The same number of tables as in cloudpickle: each is searched for every object that is not a builtin.
    dispatch_table: ClassVar[ChainMap[Any, Any]] = ChainMap(
        {**_TABLE.maps[0], types.CodeType: _reduce_code, **_REDUCERS_OF_CACHED}, *_TABLE.maps[1:]
    )

    if hasattr(cloudpickle.Pickler, "reducer_override"):

        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, BaseException):
                return reduction_of(obj)
            if hasattr(type(obj), "add_done_callback"):
                _refuse_foreign_future(obj)
            reduced = super().reducer_override(obj)
            if type(reduced) is tuple and reduced[-1] is by_value._class_setstate:
                return _versioned(reduced, obj)
            return reduced

    else:  # PyPy's pickler is in Python: this method saves every class, metaclasses included

        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, BaseException):
                return reduction_of(obj)
            if hasattr(type(obj), "add_done_callback"):
                _refuse_foreign_future(obj)
            return NotImplemented

        def save_global(self, obj: Any, name: Any = None, pack: Any = None) -> None:
            if name is None and isinstance(obj, type) and not by_value._should_pickle_by_reference(obj):
                reduced = by_value._class_reduce(obj)
                if reduced[-1] is by_value._class_setstate:
                    self._save_reduce_pickle5(*_versioned(reduced, obj), obj=obj)
                    return
            super().save_global(obj, name=name)

        dispatch: ClassVar[Any] = {**cloudpickle.Pickler.dispatch, type: save_global}
