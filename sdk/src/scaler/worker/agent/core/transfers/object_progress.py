"""How far an object has come: one that is fetched, and one that is kept here for others.

Rule: data only.
"""

from __future__ import annotations

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
