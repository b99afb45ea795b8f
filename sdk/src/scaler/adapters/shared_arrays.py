"""Arrays in the arguments of tasks: each is sent once, and mapped by all processes that use it.

    submit ──pickling──▶ numpy.ndarray, large or medium ──▶ sent with `send_object`, once ──▶ a reference
                                  └── small ──▶ in the arguments

Rules:
- An array is known by its identity, wherever it is in the arguments: in a list, an attribute, the columns of a table.
- Of a large array, tasks get read-only views of one copy in shared memory, as from joblib's memory maps. Of a medium
  one, each task gets a writable copy: as far as tasks can tell, it was sent with their arguments.
- An array that no longer exists here is deleted in the cluster as soon as no unfinished task needs it.
- The content of a large array is that of the moment when it was sent: `release` before it may have changed. That of a
  medium one is compared each time.
- Arrays are only looked for inside `with`, in the thread that entered it.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from types import TracebackType
from typing import Any, Deque, Dict, NamedTuple, Optional, Tuple, Type

from scaler.client import Client
from scaler.values.payload import INLINE_BYTES, ObjectReference
from scaler.values.pickling import Pickler

_active = threading.local()


class _Sent(NamedTuple):
    """
    Parameters:
        content: a copy of a medium array.
    """

    array: weakref.ref[Any]
    reference: ObjectReference
    content: Any


class SharedArrays:
    """The large arrays that were sent for tasks of one client.

    Parameters:
        client: that the tasks are submitted to.
        large_bytes: from which size on tasks get read-only views.
    """

    def __init__(self, client: Client, large_bytes: int) -> None:
        self._client = client
        self._large_bytes = large_bytes
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
        is_large = array.nbytes >= self._large_bytes
        if (not is_large and array.nbytes < INLINE_BYTES) or array.dtype.hasobject:
            return None
        reference = self._reference_to(array, is_large)
        return reference.__reduce__() if is_large else (_copied, (reference,))

    def _reference_to(self, array: Any, is_large: bool) -> ObjectReference:
        with self._lock:
            self._delete_dead()
            key = id(array)
            sent = self._sent.get(key)
            if sent is not None and sent.array() is array:
                if is_large or _is_equal(array, sent.content):
                    return sent.reference
                self._delete(key, sent.reference)
            reference, dead = self._send(array), self._dead
            observed = weakref.ref(array, lambda _: dead.append((key, reference)))
            self._sent[key] = _Sent(observed, reference, None if is_large else array.copy(order="K"))
            return reference

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
            self._delete(*self._dead.popleft())

    def _delete(self, key: int, reference: ObjectReference) -> None:
        """The caller holds the lock."""
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


def _is_equal(array: Any, content: Any) -> bool:
    """Whether an array has the content that it had, bit by bit."""
    if (array.dtype, array.shape, array.strides) != (content.dtype, content.shape, content.strides):
        return False  # or its memory is not contiguous: then it is sent each time
    import numpy

    bits, others = (each.ravel(order="K").view(numpy.uint8) for each in (array, content))
    return bool((bits == others).all())


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
