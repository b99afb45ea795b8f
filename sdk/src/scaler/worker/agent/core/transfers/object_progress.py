"""How far an object has come: one that is fetched, one that is kept here for others, and one that was given up.

Rule: data and small accessors only.
"""

from __future__ import annotations

from typing import Dict, Iterable, List

from scaler_protocol.session.fetching import FetchWindow


class ObjectFetch:
    """
    Attributes:
        is_direct: it comes from another worker.
        path: of its file, once something was written.
    """

    __slots__ = ("number", "window", "written_bytes", "path", "is_direct")

    def __init__(self, number: int, window: FetchWindow) -> None:
        self.number = number
        self.window = window
        self.written_bytes = 0
        self.path = ""
        self.is_direct = False

    @property
    def is_writing(self) -> bool:
        """Whether bytes have come that are not written yet."""
        return self.written_bytes < self.window.received_bytes


class ServedObject:
    """A large result made here, or a copy fetched from another worker, until the scheduler deletes it. Of an old
    scheduler: until that has fetched it.

    Attributes:
        sent: how many bytes the scheduler has got, or does not need.
    """

    __slots__ = ("path", "size", "sent")

    def __init__(self, path: str, size: int) -> None:
        self.path = path
        self.size = size
        self.sent = 0


class GivenUpRequests:
    """Requests to the scheduler for objects that are not fetched any more. Each is still answered once, maybe when the
    same object is being fetched again: that is no answer to a request of the new fetch."""

    def __init__(self) -> None:
        self._offsets: Dict[int, List[int]] = {}  # by object

    def add(self, object_id: int, offsets: Iterable[int]) -> None:
        found = [*self._offsets.pop(object_id, ()), *offsets]
        if found:
            self._offsets[object_id] = found

    # SCL-OBJ-037
    def take(self, object_id: int, offset: int) -> bool:
        """An answer has come; whether it is to one of them."""
        offsets = self._offsets.get(object_id, [])
        if offset not in offsets:
            return False
        offsets.remove(offset)
        if not offsets:
            del self._offsets[object_id]
        return True

    def clear(self) -> None:
        """The session has ended: no answers follow."""
        self._offsets.clear()
