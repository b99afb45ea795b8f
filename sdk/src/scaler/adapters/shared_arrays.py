"""Large arrays in the arguments of tasks: each is sent once, and mapped by all processes that use it.

    submit ──pickling──▶ numpy.ndarray, large ──▶ sent with `send_object`, once ──▶ a reference in the arguments
                                  └── small ────▶ in the arguments

Rules:
- An array is known by its identity, wherever it is in the arguments: in a list, an attribute, the columns of a table.
- Tasks get read-only views of one copy in shared memory, as from joblib's memory maps; or private copies, on request.
- An array that no longer exists here is deleted in the cluster as soon as no unfinished task needs it.
- The content is that of the moment when the array was sent: `release` before it may have changed.
- Arrays are only looked for inside `with`, in the thread that entered it.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from types import TracebackType
from typing import Any, Deque, Dict, NamedTuple, Optional, Tuple, Type

from scaler.client import Client
from scaler.values.payload import ObjectReference
from scaler.values.pickling import Pickler

_active = threading.local()


class _Sent(NamedTuple):
    array: weakref.ref[Any]
    reference: ObjectReference


class SharedArrays:
    """The large arrays that were sent for tasks of one client.

    Parameters:
        client: that the tasks are submitted to.
        minimum_bytes: smaller arrays stay in the arguments.
        is_copied: each task gets a writable copy of its own.
    """

    def __init__(self, client: Client, minimum_bytes: int, is_copied: bool = False) -> None:
        self._client = client
        self._minimum_bytes = minimum_bytes
        self._is_copied = is_copied
        self._sent: Dict[int, _Sent] = {}
        self._dead: Deque[Tuple[int, ObjectReference]] = deque()  # filled by the garbage collector, in any thread
        self._lock = threading.Lock()
        _look_for_arrays()

    def __enter__(self) -> SharedArrays:
        _active.arrays = self
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        _active.arrays = None

    def reduction_of(self, array: Any) -> Optional[Tuple[Any, ...]]:
        """How an array is pickled as a reference; None if it stays in the arguments."""
        if array.nbytes < self._minimum_bytes or array.dtype.hasobject:
            return None
        reference = self._reference_to(array)
        return (_copied, (reference,)) if self._is_copied else reference.__reduce__()

    def _reference_to(self, array: Any) -> ObjectReference:
        with self._lock:
            self._delete_dead()
            sent = self._sent.get(id(array))
            if sent is None or sent.array() is not array:
                key, dead = id(array), self._dead
                reference = self._send(array)
                observed = weakref.ref(array, lambda _: dead.append((key, reference)))
                sent = self._sent[key] = _Sent(observed, reference)
            return sent.reference

    def _send(self, array: Any) -> ObjectReference:
        import numpy

        plain = numpy.asarray(array)
        if not (plain.flags.c_contiguous or plain.flags.f_contiguous):
            plain = plain.copy(order="K")  # so that it is mapped, not part of a pickle
        _active.arrays = None
        try:
            return self._client.send_object(plain)
        finally:
            _active.arrays = self

    def _delete_dead(self) -> None:
        """The caller holds the lock."""
        while self._dead:
            key, reference = self._dead.popleft()
            sent = self._sent.get(key)
            if sent is not None and sent.reference is reference:
                del self._sent[key]
                self._client._shell.release_value(reference.object_id)

    def release(self) -> None:
        """Delete all arrays in the cluster that no unfinished task needs."""
        with self._lock:
            self._delete_dead()
            sent, self._sent = self._sent, {}
            for each in sent.values():
                self._client._shell.release_value(each.reference.object_id)


def _copied(array: Any) -> Any:
    return array.copy(order="K")


def _reduce_array(array: Any) -> Any:
    arrays: Optional[SharedArrays] = getattr(_active, "arrays", None)
    reduced = arrays.reduction_of(array) if arrays is not None else None
    return array.__reduce_ex__(5) if reduced is None else reduced


def _look_for_arrays() -> None:
    """From now on, arrays are pickled by `_reduce_array`."""
    table = Pickler.dispatch_table.maps[0]
    try:
        import numpy
    except ImportError:
        return
    table[numpy.ndarray] = table[numpy.memmap] = _reduce_array
