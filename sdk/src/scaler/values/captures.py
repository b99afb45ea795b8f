"""What a function captures, and whether pickling it again would give a different result.

A function that travels by value takes what it refers to along: globals, closure, defaults, attributes. Any of these may
change between two submissions, and the second must run with the values at that time. Pickling each time would be
correct but slow, so a snapshot remembers what pickling has read, and compares:

    function ── code, defaults, closure, ──▶ numbers, texts, modules          the same object
        │       globals that it names    ├─▶ functions, classes, instances    the same object, its captures unchanged
        │                                └─▶ lists, arrays, anything else     pickled, and compared
        └── found in its module (travels by reference) ──▶ still found there

Rules:
- A snapshot that holds means: pickling now gives the same result as then. In doubt it does not hold, which only costs
  time.
- The one exception: the content of a buffer of LARGE_BUFFER_BYTES or more (of an array, say) is not compared. It counts
  as unchanged while it is the same memory.
- A snapshot keeps only numbers, texts and bytes alive. Of other objects it holds the identities, and weak references
  that end the snapshot when one of them dies, because another object may then get the same identity.
- Comparing identities runs no user code; pickling runs the user code that pickling runs.
"""

from __future__ import annotations

import abc
import copyreg
import enum
import functools
import hashlib
import io
import pickle
import sys
import types
import weakref
from itertools import repeat
from operator import attrgetter
from typing import Any, Callable, ClassVar, Dict, Iterable, List, Optional, Tuple, Union

import cloudpickle
from cloudpickle import cloudpickle as by_value

LARGE_BUFFER_BYTES = 1024 * 1024
"""The content of buffers of this size or more is not compared."""

_STAMP_BYTES = 64 * 1024
"""A longer stamp is replaced by its digest."""

_PROTOCOL = 5
_HEAP_TYPE = 1 << 9  # the flag of mutable classes; classes defined statically in C lack it
_MISSING = object()

_modules: Dict[str, Any] = sys.modules
by_value_modules = by_value._PICKLE_BY_VALUE_MODULES
_global_names: Callable[[types.CodeType], Iterable[str]] = by_value._extract_code_globals
_slot_names: Callable[[Any], List[str]] = getattr(copyreg, "_slotnames")  # noqa: B009
_find_by_reference: Callable[[Any], Optional[Tuple[types.ModuleType, str]]] = by_value._lookup_module_and_qualname

_ATOMS = frozenset(
    {int, float, complex, str, bytes, bool, type(None), type(...), type(NotImplemented), range, types.CodeType}
)
_IMMUTABLE_NAMES = frozenset(
    {
        ("datetime", "date"),
        ("datetime", "datetime"),
        ("datetime", "time"),
        ("datetime", "timedelta"),
        ("datetime", "timezone"),
        ("decimal", "Decimal"),
        ("fractions", "Fraction"),
        ("re", "Pattern"),
        ("uuid", "UUID"),
        *((module, name) for module in ("pathlib", "pathlib._local") for name in ("PosixPath", "PurePosixPath")),
    }
)
"""Types of the standard library with immutable values, by module and name, so that they need not be imported."""

_DEFAULT_PICKLING = [(name, getattr(object, name, None)) for name in ("__reduce_ex__", "__reduce__", "__getstate__")]

_NEVER_CHANGED_IN_CLASSES = frozenset(
    {"__dict__", "__weakref__", "__dataclass_fields__", "__dataclass_params__", "__annotations_cache__", "_abc_impl"}
    | {"__annotate__", "__annotate_func__", "__static_attributes__", "__firstlineno__", "__abstractmethods__"}
)
_DESCRIPTORS = (
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
)


class Reference:
    """The snapshot of a function or class that travels by the name of its module: its contents are not read.

    Parameters:
        module: the name of the module.
        name: of the object in the module; a dotted name is an attribute of an attribute.
    """

    __slots__ = ("module", "name", "_find")

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name
        self._find = attrgetter(name)

    def holds(self, value: Any) -> bool:
        """Whether the same reference still leads to the object."""
        if by_value_modules and isinstance(value, (types.FunctionType, type)):
            return find_reference(value) is not None
        try:
            return self._find(_modules[self.module]) is value
        except (KeyError, AttributeError):
            return False

    def is_same(self, value: Any, volatile: List[Any]) -> bool:
        return self.holds(value)


class Snapshot:
    """What pickling a function or a class has read.

    Parameters:
        pickler: the class that pickles small mutable objects, to compare them.

    Raises whatever pickling the captured objects raises: any exception at all.
    """

    __slots__ = ("_root", "_pickler", "_dead", "_references", "_constants", "_registry", "_module_count", "_stamp")

    def __init__(self, value: Any, pickler: Callable[..., pickle.Pickler]) -> None:
        self._pickler = pickler
        self._dead: List[Any] = []  # filled by weak references, at any time
        self._references: List[weakref.ref[Any]] = []
        self._constants: List[Any] = []
        self._registry = frozenset(by_value_modules)
        self._module_count = 0  # of all modules, if it matters which submodules are imported
        root = _Walk(self).node(value)
        if root is None:
            raise TypeError(f"the captures of a {type(value).__name__} cannot be followed")
        self._root = root
        volatile: List[Any] = []
        if not root.is_same(value, volatile):
            raise RuntimeError(f"a {type(value).__name__} changed while it was inspected")
        self._stamp = self._stamp_of(volatile) if volatile else None

    def holds(self, value: Any) -> bool:
        """Whether pickling the same object now gives the same result as then. Raises nothing."""
        try:
            if self._dead or by_value_modules != self._registry:
                return False
            if self._module_count and self._module_count != len(_modules):
                return False
            volatile: List[Any] = []
            if not self._root.is_same(value, volatile):
                return False
            return not volatile or self._stamp_of(volatile) == self._stamp
        except Exception:  # another thread is changing it, or a captured object can no longer be pickled
            return False

    def watch(self, value: Any) -> bool:
        """End this snapshot when an object dies; returns whether that is possible."""
        try:
            self._references.append(weakref.ref(value, self._dead.append))
        except TypeError:
            return False
        return True

    def keep(self, value: Any) -> None:
        self._constants.append(value)

    def watch_imports(self) -> None:
        """Account for the submodules: which of them are imported decides what a package's functions find."""
        self._module_count = len(_modules)

    def _stamp_of(self, volatile: List[Any]) -> Tuple[Any, ...]:
        buffers: List[Any] = []

        def is_in_band(buffer: pickle.PickleBuffer) -> bool:
            if buffer.raw().nbytes < LARGE_BUFFER_BYTES:
                return True
            identity = self._identity_of(buffer)
            if identity is None:
                return True
            buffers.append(identity)
            return False

        volatile = [self._without_large_items(value, buffers) for value in volatile]
        with io.BytesIO() as stream:
            self._pickler(stream, protocol=_PROTOCOL, buffer_callback=is_in_band).dump(volatile)
            data: Any = stream.getvalue() if stream.tell() < _STAMP_BYTES else _digest(stream.getbuffer())
        return (data, buffers)

    def _without_large_items(self, value: Any, buffers: List[Any]) -> Any:
        """A list, tuple or dict with its large immutable items replaced, so that comparing does not copy them."""
        kind = type(value)
        if kind is dict:
            if any(map(_is_large, value.values())):
                return {key: self._token_if_large(item, buffers) for key, item in value.items()}
        elif kind is list or kind is tuple:
            if any(map(_is_large, value)):
                return kind(self._token_if_large(item, buffers) for item in value)
        return value

    def _token_if_large(self, item: Any, buffers: List[Any]) -> Any:
        if not _is_large(item):
            return item
        if not any(item is kept for kept in self._constants):
            self.keep(item)
        buffers.append(id(item))
        return None

    def _identity_of(self, buffer: pickle.PickleBuffer) -> Optional[Tuple[Any, ...]]:
        """An identifier of a buffer's memory; None if it may change while this snapshot lives."""
        with buffer.raw() as view:
            owner: Any = view.obj
            size = view.nbytes
        interface = getattr(owner, "__array_interface__", None)
        address = interface["data"][0] if isinstance(interface, dict) else 0
        while address and getattr(owner, "base", None) is not None:
            owner = owner.base  # a view of an array may die before its memory does
        if not any(reference() is owner for reference in self._references) and not self.watch(owner):
            return None
        return (id(owner), address, size)


Captures = Union[Reference, Snapshot]


def find_reference(value: Any) -> Optional[Reference]:
    """The reference by which a function or class travels; None if it travels by value."""
    if not by_value._should_pickle_by_reference(value):
        return None
    found = _find_by_reference(value)
    return None if found is None else Reference(found[0].__name__, found[1])


def _find_global(value: Any) -> Optional[Reference]:
    """The reference by which a callable that is neither function nor class, such as a ufunc, travels."""
    module = getattr(value, "__module__", None)
    if type(module) is not str or not callable(value):
        return None
    reduce = cloudpickle.Pickler.dispatch_table.get(type(value))  # with those of copyreg
    reduced = reduce(value) if reduce is not None else value.__reduce_ex__(_PROTOCOL)
    reference = Reference(module, reduced) if type(reduced) is str else None
    return reference if reference is not None and reference.holds(value) else None


def take(value: Any, pickler: Callable[..., pickle.Pickler]) -> Optional[Captures]:
    """A snapshot of a callable or class; None if its captures cannot be followed and may change at any time.

    Parameters:
        pickler: as in `Snapshot`.
    """
    try:
        if isinstance(value, (types.FunctionType, type)):
            reference = find_reference(value)
            if reference is not None:
                return reference
        elif isinstance(value, types.BuiltinFunctionType) and isinstance(value.__self__, types.ModuleType):
            return Reference(value.__self__.__name__, value.__qualname__)
        elif not _can_be_followed(value):
            return _find_global(value)
        return Snapshot(value, pickler)
    except Exception:  # including RecursionError; unpicklable objects fail where they are pickled
        return None


# Nodes: the objects that are followed --------------------------------------------------------------------------------


class _Node:
    """What one object captures directly.

    `children` are captured objects with captures of their own; `volatile` are captured objects that must be pickled to
    detect changes. Both are positions in the result of `read`.
    """

    __slots__ = ("ids", "children", "volatile")

    ids: Tuple[int, ...]
    children: List[Tuple[int, Union[_Node, Reference]]]
    volatile: List[int]

    def read(self, owner: Any) -> List[Any]:
        """All objects that it captures, in a fixed order. Reading creates none of them."""
        raise NotImplementedError

    def is_same(self, owner: Any, volatile: List[Any]) -> bool:
        """Whether it captures the same objects, recursively; appends the objects that must be pickled to be sure."""
        values = self.read(owner)
        if tuple(map(id, values)) != self.ids:
            return False
        for position, child in self.children:
            if not child.is_same(values[position], volatile):
                return False
        for position in self.volatile:
            volatile.append(values[position])
        return True


class _FunctionNode(_Node):
    __slots__ = ("_names", "_empty_parts")

    _parts: ClassVar[Callable[[Any], Tuple[Any, ...]]] = attrgetter(
        "__code__", "__defaults__", "__kwdefaults__", "__closure__", "__dict__", "__annotations__"
    )

    def __init__(self, function: types.FunctionType) -> None:
        self._names = tuple(_global_names(function.__code__))
        # A function without captures, like most lambdas, is compared as a whole.
        parts = _FunctionNode._parts(function)
        is_empty = not self._names and not any(parts[1:])
        self._empty_parts = tuple({} if part == {} else part for part in parts) if is_empty else None

    def is_same(self, owner: Any, volatile: List[Any]) -> bool:
        if self._empty_parts is not None:
            return _FunctionNode._parts(owner) == self._empty_parts
        return super().is_same(owner, volatile)

    def read(self, owner: Any) -> List[Any]:
        code, defaults, named_defaults, cells, attributes, annotations = _FunctionNode._parts(owner)
        values = [code]
        if self._names:
            values += map(owner.__globals__.get, self._names, repeat(_MISSING))
        if cells is not None:
            values += map(_content_of, cells)
        if defaults is not None:
            values += defaults
        for named in (named_defaults, attributes, annotations):
            if named:
                values += named
                values += named.values()
        return values


def _content_of(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


class _ClassNode(_Node):
    __slots__ = ()

    def read(self, owner: Any) -> List[Any]:
        namespace: Dict[str, Any] = dict(owner.__dict__)
        values = [type(owner), *owner.__bases__, *namespace]
        if "_abc_impl" in namespace:
            values += (reference() for reference in abc._get_dump(owner)[0])  # type: ignore[attr-defined]
        for name, value in namespace.items():
            kind = type(value)
            if kind is types.FunctionType:
                values.append(value)
            elif kind is staticmethod or kind is classmethod:
                values.append(value.__func__)
            elif kind is property:
                values += (value.fget, value.fset, value.fdel)
            elif kind in _DESCRIPTORS or name in _NEVER_CHANGED_IN_CLASSES:
                continue
            elif kind is dict and name == "__annotations__":
                values += value
                values += value.values()
            else:
                values.append(value)
        return values


class _EnumNode(_Node):
    """The members of an Enum do not change after it is created."""

    __slots__ = ()

    def read(self, owner: Any) -> List[Any]:
        functions = [value for value in owner.__dict__.values() if type(value) is types.FunctionType]
        return [type(owner), *owner.__bases__, *functions]


class _InstanceNode(_Node):
    __slots__ = ()

    def read(self, owner: Any) -> List[Any]:
        attributes = vars(owner)
        return [type(owner), *attributes, *attributes.values()]


class _PartialNode(_Node):
    __slots__ = ()

    def read(self, owner: Any) -> List[Any]:
        attributes = owner.__dict__
        named = owner.keywords
        return [owner.func, *owner.args, *named, *named.values(), *attributes, *attributes.values()]


class _MethodNode(_Node):
    __slots__ = ()

    def read(self, owner: Any) -> List[Any]:
        return [owner.__func__, owner.__self__]


class _Walk:
    """Creates the nodes of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._met: Dict[int, Any] = {id(_MISSING): _MISSING}  # by identity; keeps the objects alive meanwhile

    def node(self, value: Any) -> Optional[_Node]:
        """A node for an object that can be followed, else None."""
        node: _Node
        if type(value) is types.FunctionType:
            node = _FunctionNode(value)
        elif type(value) is functools.partial:
            node = _PartialNode()
        elif type(value) is types.MethodType:
            node = _MethodNode()
        elif isinstance(value, type):
            node = _EnumNode() if isinstance(value, enum.EnumMeta) else _ClassNode()
        elif _is_plain_instance(value):
            node = _InstanceNode()
        else:
            return None
        self._met[id(value)] = value
        values = node.read(value)
        node.ids = tuple(map(id, values))
        node.children, node.volatile = [], []
        for position, captured in enumerate(values):
            self._add(node, position, captured)
        return node

    def _add(self, node: _Node, position: int, captured: Any) -> None:
        if id(captured) in self._met:
            return
        if _is_constant(captured):
            self._met[id(captured)] = captured
            self._snapshot.keep(captured)
        elif type(captured) is types.ModuleType and by_value._should_pickle_by_reference(captured):
            self._met[id(captured)] = captured
            self._snapshot.watch(captured)
            if captured.__package__:
                self._snapshot.watch_imports()
        elif not self._snapshot.watch(captured):  # its identity may be reused after its death, unnoticed
            node.volatile.append(position)
        elif isinstance(captured, (types.FunctionType, type)):
            self._met[id(captured)] = captured
            child = find_reference(captured) or self.node(captured)
            if child is not None:
                node.children.append((position, child))
            else:
                node.volatile.append(position)
        else:
            child = self.node(captured) or _find_global(captured)
            if child is not None:
                node.children.append((position, child))
            else:
                self._met[id(captured)] = captured
                node.volatile.append(position)


def _is_constant(value: Any) -> bool:
    """Whether an object is immutable and refers to immutable objects only."""
    kind = type(value)
    if kind in _ATOMS:
        return True
    if kind is tuple or kind is frozenset:
        return all(map(_is_constant, value))
    if kind is type:
        return not value.__flags__ & _HEAP_TYPE
    if kind is types.BuiltinFunctionType:
        return value.__self__ is None or type(value.__self__) is types.ModuleType
    return (kind.__module__, kind.__qualname__) in _IMMUTABLE_NAMES


def _can_be_followed(value: Any) -> bool:
    return type(value) in (types.FunctionType, types.MethodType, functools.partial) or _is_plain_instance(value)


def _is_plain_instance(value: Any) -> bool:
    """Whether pickling an object reads only its class and its `__dict__`."""
    kind: Any = type(value)
    return (
        all(getattr(kind, name, None) is default for name, default in _DEFAULT_PICKLING)
        and not hasattr(kind, "__getnewargs__")
        and not hasattr(kind, "__getnewargs_ex__")
        and not isinstance(value, (list, dict, type, types.ModuleType))
        and type(getattr(value, "__dict__", None)) is dict
        and bool(kind.__flags__ & _HEAP_TYPE)
        and kind not in copyreg.dispatch_table
        and kind not in cloudpickle.Pickler.dispatch_table
        and not _slot_names(kind)
    )


def _is_large(value: Any) -> bool:
    return (type(value) is bytes or type(value) is str) and len(value) >= LARGE_BUFFER_BYTES


def _digest(data: Any) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
