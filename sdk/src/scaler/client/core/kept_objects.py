"""Objects that this client has placed in the cluster, and keeps so that it can place them again.

Rules: the content is opaque here; only the shell knows whether it is in memory or in a file.
"""

from __future__ import annotations

from typing import Any, List, Tuple

from scaler_protocol.wire import messages as m


class KeptObject:
    """An object of this client.

    Parameters:
        number: among this client's objects.
        object_id: the id for the client and its user, which never changes.
        size: of the content, in bytes.
        content: bytes, or what the shell keeps instead.
    """

    __slots__ = (
        "number", "object_id", "name", "kind", "size", "codec", "content", "is_held", "references", "needs",
        "sharers", "__weakref__",
    )  # fmt: skip

    def __init__(
        self, number: int, object_id: int, name: str, kind: m.ObjectKind, size: int, codec: str, content: Any
    ) -> None:
        self.number = number
        self.object_id = object_id
        self.name = name
        self.kind = kind
        self.size = size
        self.codec = codec
        self.content = content
        self.is_held = False  # by the client or its user
        self.references = 0  # the number of unfinished tasks with it among their arguments
        self.needs: Tuple[object, ...] = ()  # what must be kept as long as this object
        self.sharers: List[int] = [number]  # the numbers of the objects that have this content, shared by all of them
