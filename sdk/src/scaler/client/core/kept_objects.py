"""Objects of this client: what it has placed in the cluster, and keeps in order to place it again.

Rules: where the content is, in memory or in a file, only the shell knows; it is opaque here.
"""

from __future__ import annotations

from typing import Any, List, Tuple

from scaler_protocol.wire import messages as m


class KeptObject:
    """An object of this client.

    Parameters:
        number: among this client's objects.
        object_id: by which the client and its user know it; it never changes.
        size: of the content, in bytes.
        content: bytes, or what the shell keeps in their place.
    """

    __slots__ = (
        "number", "object_id", "name", "kind", "size", "codec", "content", "is_held", "references", "needs",
        "sharers",        "__weakref__",
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
        self.references = 0  # unfinished tasks that have it among their arguments
        self.needs: Tuple[object, ...] = ()  # what has to be kept for as long
        self.sharers: List[int] = [number]  # the numbers of the objects that have this content, shared by all of them
