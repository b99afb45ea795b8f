"""How Python objects become payload bytes and come back; used by clients and by processors.

Rules:
- The first byte of a payload identifies its form:
    (nothing)  no arguments
    0x80       a pickle; for arguments, a tuple (positional) or a list of [positional tuple, keyword dict]
    0x01       the arguments are the content of dependency 0; the other dependencies are numbered from 0 again
    0x02       a pickle followed by its out-of-band buffers, each aligned, so that an array is a view, not a copy
    0x03       written by the user's own Serializer
    0x04       for a graph's node: the results of its predecessors, then its own payload in one of the other forms;
               with (nothing) the results are the arguments, in order
    0x05       for a graph's node: a pickle of which arguments are results, and of the other arguments
- Exact builtin scalars, and small tuples of them, take `pickle`'s C path; everything else takes cloudpickle, because a
  class or function of `__main__` must travel by value.
- An ObjectReference inside arguments becomes a position in the task's dependency list, at any depth.
- Nothing here depends on sockets or tasks.
"""

from __future__ import annotations

import io
import pickle
import struct
import threading
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import cloudpickle

from scaler.serializer import Serializer
from scaler.values.pickling import Pickler
from scaler.values.sizes import INLINE_BYTES as INLINE_BYTES

Buffer = Union[bytes, bytearray, memoryview]
Parts = List[Buffer]

OUT_OF_BAND_BYTES = 4 * 1024
"""A buffer below this size stays inside its pickle: a separate buffer costs more than the copy."""

BY_DEPENDENCY = b"\x01"
_PICKLE_MARK = 0x80
_FRAMED_MARK = 0x02
_CUSTOM_MARK = 0x03
RESULTS_MARK = 0x04
_SLOTS_MARK = 0x05
_SLOTS = bytes([_SLOTS_MARK])
RESULT_IS_OBJECT = 0xFFFFFFFF  # in the place of a result's size
_ALIGNMENT = 64

PROTOCOL = 5
SCALAR_TYPES = frozenset({int, float, bool, str, type(None), complex})
"""Exact types that `pickle` and cloudpickle pickle identically."""

SMALL_CONTAINER_ITEMS = 32

_pickling = threading.local()

_Entry = Union[bytes, int, List[Any], Tuple[Any, ...], Dict[Any, Any]]
"""An argument written by a user's Serializer; the position of an object reference, or -1 - that of a predecessor's
result; a list, tuple or dictionary of entries that contains such a result."""


class ObjectReference(NamedTuple):
    """Stands for an object that `Client.send_object` stored in the cluster.

    Pass it to `submit`, `map` or inside any argument: the task receives the object itself.
    """

    name: str
    size: int
    object_id: int

    def __reduce__(self) -> Tuple[Any, ...]:
        references: Optional[List[ObjectReference]] = getattr(_pickling, "references", None)
        if references is None:
            return (ObjectReference, tuple(self))
        references.append(self)
        return (_resolve_reference, (len(references) - 1,))


def _resolve_reference(position: int) -> Any:
    return _pickling.dependencies[position](True)


class ResultOf:
    """Stands for the result of a predecessor in the arguments of a graph's node.

    Parameters:
        position: among the node's predecessors.
    """

    __slots__ = ("position",)

    def __init__(self, position: int) -> None:
        self.position = position

    def __reduce__(self) -> Tuple[Any, ...]:
        return (_resolve_result, (self.position,))


def _resolve_result(position: int) -> Any:
    return _pickling.results[position]()


class _LargeBytes:
    """Carries a large `bytes` through pickle out of band; plain pickle would copy it into the stream."""

    __slots__ = ("value",)

    def __init__(self, value: bytes) -> None:
        self.value = value

    def __reduce_ex__(self, protocol: Any) -> Tuple[Any, ...]:
        return (bytes, (pickle.PickleBuffer(self.value),))


def dump(value: Any) -> Parts:
    """Serialise any object; the joined parts are a payload, or the content of an object.

    Raises whatever the object's own reduction raises, pickle.PicklingError, TypeError, RecursionError.
    """
    buffers: List[memoryview] = []

    def keep_out_of_band(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < OUT_OF_BAND_BYTES:
            return True
        buffers.append(raw)
        return False

    with io.BytesIO() as stream:
        Pickler(stream, protocol=PROTOCOL, buffer_callback=keep_out_of_band).dump(_lift_bytes(value))
        data = stream.getvalue()
    return _frame(data, buffers) if buffers else [data]


def _lift_bytes(value: Any) -> Any:
    """Replace large `bytes` at the top level of `value` by a form that pickles without a copy."""
    if type(value) is bytes:
        return _LargeBytes(value) if len(value) >= INLINE_BYTES else value
    if type(value) in (tuple, list) and any(type(item) is bytes and len(item) >= INLINE_BYTES for item in value):
        return type(value)(_lift_bytes(item) for item in value)
    return value


def _frame(data: bytes, buffers: Sequence[memoryview]) -> Parts:
    header = struct.pack(f"<BxxxIQ{len(buffers)}Q", _FRAMED_MARK, len(buffers), len(data), *(b.nbytes for b in buffers))
    parts: Parts = [header, data]
    position = len(header) + len(data)
    for buffer in buffers:
        padding = -position % _ALIGNMENT
        parts += (bytes(padding), buffer)
        position += padding + buffer.nbytes
    return parts


def load(content: Buffer) -> Any:
    """Load what `dump` wrote.

    Arrays in it are writable, as with pickle: views of `content` if that is writable, which must then have no other
    user; otherwise copies.

    Raises whatever unpickling raises: any exception at all.
    """
    if len(content) and content[0] == _FRAMED_MARK:
        view = memoryview(content)
        return _load_framed(view, copy_buffers=view.readonly)
    return pickle.loads(content)


def load_shared(content: Buffer) -> Any:
    """Load what `dump` wrote for several users: arrays in it are read-only views of `content`."""
    view = memoryview(content).toreadonly()
    return _load_framed(view, copy_buffers=False) if len(view) and view[0] == _FRAMED_MARK else pickle.loads(view)


def _load_framed(view: memoryview, copy_buffers: bool) -> Any:
    _, count, size = struct.unpack_from("<BxxxIQ", view)
    lengths = struct.unpack_from(f"<{count}Q", view, 16)
    start = 16 + 8 * count
    position = start + size
    buffers: List[Buffer] = []
    for length in lengths:
        position += -position % _ALIGNMENT
        buffer = view[position : position + length]
        buffers.append(bytearray(buffer) if copy_buffers else buffer)
        position += length
    return pickle.loads(view[start : start + size], buffers=buffers)


def parts_size(parts: Sequence[Buffer]) -> int:
    return sum(map(len, parts))


def join(parts: Sequence[Buffer]) -> bytes:
    if len(parts) == 1 and isinstance(parts[0], bytes):
        return parts[0]
    return b"".join(parts)


def is_plain(values: Sequence[Any]) -> bool:
    """Whether all values are scalars, or small builtin containers of scalars, which `pickle` handles correctly and
    fast."""
    for value in values:
        kind = type(value)
        if kind in SCALAR_TYPES:
            continue
        if kind is bytes:
            if len(value) >= INLINE_BYTES:
                return False
        elif kind is tuple or kind is list:
            if len(value) > SMALL_CONTAINER_ITEMS or not SCALAR_TYPES.issuperset(map(type, value)):
                return False
        elif kind is dict:
            if len(value) > SMALL_CONTAINER_ITEMS or not (
                SCALAR_TYPES.issuperset(map(type, value)) and SCALAR_TYPES.issuperset(map(type, value.values()))
            ):
                return False
        else:
            return False
    return True


# Arguments ---------------------------------------------------------------------------------------------------------


def dump_arguments(
    args: Tuple[Any, ...],
    kwargs: Dict[str, Any],
    serializer: Optional[Serializer],
    references: List[ObjectReference],
) -> Parts:
    """Serialise the arguments of one task; object references in them are appended to `references`."""
    if serializer is not None:
        return _dump_custom_arguments(args, kwargs, serializer, references)
    arguments: Any
    if kwargs:
        arguments = [_lift_bytes(args), {name: _lift_bytes(value) for name, value in kwargs.items()}]
    else:
        arguments = args
    _pickling.references = references
    try:
        return dump(arguments)
    finally:
        _pickling.references = None


def _dump_custom_arguments(
    args: Tuple[Any, ...], kwargs: Dict[str, Any], serializer: Serializer, references: List[ObjectReference]
) -> Parts:
    def entry(value: Any) -> _Entry:
        if type(value) is ObjectReference:
            references.append(value)
            return len(references) - 1
        if type(value) is ResultOf:
            return -1 - value.position
        if type(value) in (list, tuple) and _contains_result(value):
            entries = list(map(entry, value))
            return entries if isinstance(value, list) else tuple(entries)
        if type(value) is dict and _contains_result(value):
            return {key: entry(item) for key, item in value.items()}
        return serializer.serialize(value)

    entries = ([entry(value) for value in args], {name: entry(value) for name, value in kwargs.items()})
    return [bytes([_CUSTOM_MARK]) + pickle.dumps(entries, PROTOCOL)]


def _contains_result(value: Any) -> bool:
    return contains(value, lambda item: type(item) is ResultOf)


def contains(value: Any, is_one: Callable[[Any], bool], above: Tuple[int, ...] = ()) -> bool:
    """Whether a value matches, or is a list, tuple or dictionary, possibly containing itself, with a match inside."""
    if type(value) not in (list, tuple, dict):
        return is_one(value)
    if id(value) in above:
        return False
    items = value.values() if type(value) is dict else value
    return any(contains(item, is_one, (*above, id(value))) for item in items)


def dump_node_arguments(args: Tuple[Any, ...]) -> Optional[bytes]:
    """Serialise arguments that are plain or results of predecessors, the short way; None if there are others."""
    slots = [(slot, value.position) for slot, value in enumerate(args) if type(value) is ResultOf]
    if [position for _, position in slots] == list(range(len(args))):
        return b""
    return dump_slots(slots, [None if type(value) is ResultOf else value for value in args])


def dump_slots(slots: List[Tuple[int, int]], others: List[Any]) -> Optional[bytes]:
    """Serialise arguments that include results of predecessors; None if the others are not plain.

    Parameters:
        slots: the positions of arguments that are results, each with its predecessor.
        others: the arguments, with None in place of results.
    """
    if not is_plain(others):
        return None
    if not slots:
        return pickle.dumps(tuple(others), PROTOCOL)
    return _SLOTS + pickle.dumps((slots, others), PROTOCOL)


def results_header(sizes: Sequence[int]) -> bytes:
    """What is in front of a node's payload and of the results that it gets: the sizes of these, RESULT_IS_OBJECT for
    each that is an object."""
    return struct.pack(f"<II{len(sizes)}I", RESULTS_MARK, len(sizes), *sizes)


def split_results(content: Buffer) -> Tuple[List[Optional[Buffer]], Buffer]:
    """The results at the start of a node's payload, None for each that is an object, and the node's own payload."""
    if not len(content) or content[0] != RESULTS_MARK:
        return [], content
    view = memoryview(content)
    (count,) = struct.unpack_from("<I", view, 4)
    position = 8 + 4 * count
    results: List[Optional[Buffer]] = []
    for size in struct.unpack_from(f"<{count}I", view, 8):
        if size == RESULT_IS_OBJECT:
            results.append(None)
        else:
            results.append(view[position : position + size])
            position += size
    return results, view[position:]


Loader = Callable[[bool], Any]
"""Loads an object that a task depends on: shared between tasks and read-only, or private to this task."""


def _results_loaders(
    results: List[Optional[Buffer]], objects: Sequence[Loader], serializer: Optional[Serializer]
) -> List[Callable[[], Any]]:
    remaining = iter(objects)
    return [
        partial(next(remaining), False) if each is None else partial(load_value, each, serializer) for each in results
    ]


def load_arguments(
    content: Buffer,
    dependencies: Sequence[Loader],
    serializer: Optional[Serializer],
    elsewhere: Buffer = b"",
) -> Tuple[Sequence[Any], Dict[str, Any]]:
    """Load what `dump_arguments` or `dump_node_arguments` wrote.

    Parameters:
        content: the payload.
        dependencies: one loader per object reference, in the order of the dependency list, followed by one for each
            result of a predecessor that is an object.
        elsewhere: for payloads of form 0x01, the content of the first dependency, which is then not in the list.

    Raises whatever unpickling raises: any exception at all.
    """
    if len(content) == 0:
        return (), {}
    results: List[Callable[[], Any]] = []
    if content[0] == RESULTS_MARK:
        found, content = split_results(content)
        first_object = len(dependencies) - found.count(None)
        results = _results_loaders(found, dependencies[first_object:], serializer)
        dependencies = dependencies[:first_object]
        if len(content) == 0:
            return [load_result() for load_result in results], {}
    if content == BY_DEPENDENCY:
        content = elsewhere
    elif content[0] == _SLOTS_MARK:
        slots, others = pickle.loads(memoryview(content)[1:])
        for slot, position in slots:
            others[slot] = results[position]()
        return others, {}
    _pickling.results = results
    try:
        return _load_dumped_arguments(content, dependencies, serializer)
    finally:
        _pickling.results = None


def _load_dumped_arguments(
    content: Buffer, dependencies: Sequence[Loader], serializer: Optional[Serializer]
) -> Tuple[Sequence[Any], Dict[str, Any]]:
    if content[0] == _CUSTOM_MARK:
        if serializer is None:
            raise pickle.UnpicklingError(
                "the arguments were written by a Serializer that did not come with the function"
            )
        entries, named = pickle.loads(memoryview(content)[1:])

        def value(entry: _Entry) -> Any:
            if isinstance(entry, int):
                return dependencies[entry](True) if entry >= 0 else _resolve_result(-1 - entry)
            if isinstance(entry, bytes):
                return serializer.deserialize(entry)
            if isinstance(entry, dict):
                return {key: value(item) for key, item in entry.items()}
            entries: Sequence[Any] = list(map(value, entry))
            return entries if isinstance(entry, list) else tuple(entries)

        return [value(entry) for entry in entries], {name: value(entry) for name, entry in named.items()}
    _pickling.dependencies = dependencies
    try:
        arguments = load(content)
    finally:
        _pickling.dependencies = None
    if type(arguments) is tuple:
        return arguments, {}
    args, kwargs = arguments
    return args, kwargs


def dump_alone(value: Any) -> Optional[Union[bytes, Parts]]:
    """Serialise a part of the arguments that are being dumped like a value of its own; None if it refers to objects.

    Raises like `dump`.
    """
    references: Optional[List[ObjectReference]] = getattr(_pickling, "references", None)
    found: List[ObjectReference] = []
    _pickling.references = found
    try:
        content = dump_value(value, None)
    finally:
        _pickling.references = references
    return None if found else content


# Functions, results and objects ------------------------------------------------------------------------------------


def dump_function(function: Callable[..., Any], serializer: Optional[Serializer]) -> Parts:
    """Serialise a function, with the Serializer that its arguments and results will use."""
    if serializer is None:
        return dump(function)
    pair = (cloudpickle.dumps(serializer, PROTOCOL), serializer.serialize(function))
    return [bytes([_CUSTOM_MARK]) + pickle.dumps(pair, PROTOCOL)]


def load_function(content: Buffer) -> Tuple[Callable[..., Any], Optional[Serializer]]:
    """Load what `dump_function` wrote: the function, and its Serializer if it has one."""
    if len(content) and content[0] == _CUSTOM_MARK:
        serializer_pickle, function_data = pickle.loads(memoryview(content)[1:])
        serializer = pickle.loads(serializer_pickle)
        return serializer.deserialize(function_data), serializer
    return load(content), None


def dump_value(value: Any, serializer: Optional[Serializer]) -> Union[bytes, Parts]:
    """Serialise a result or object: `bytes` if it is small enough to be sent inline, else its parts."""
    if serializer is None:
        if type(value) in SCALAR_TYPES:
            data = pickle.dumps(value, PROTOCOL)
            return data if len(data) < INLINE_BYTES else [data]
        parts = dump(value)
    else:
        parts = [bytes([_CUSTOM_MARK]), serializer.serialize(value)]
    return parts if parts_size(parts) >= INLINE_BYTES else join(parts)


def load_value(content: Buffer, serializer: Optional[Serializer], is_shared: bool = False) -> Any:
    """Load what `dump_value` wrote; arrays in it are read-only if several tasks share it."""
    if len(content) and content[0] == _CUSTOM_MARK:
        if serializer is None:
            raise pickle.UnpicklingError("the value was written by a Serializer that is unknown here")
        return serializer.deserialize(bytes(memoryview(content)[1:]))
    return load_shared(content) if is_shared else load(content)
