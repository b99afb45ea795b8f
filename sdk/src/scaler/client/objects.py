"""Objects of a client: placing them in the cluster, and getting at large results.

Rules:
- On the scheduler's host an object is written once into the scheduler's object directory, and read by mapping the file.
- Elsewhere its bytes stay here until the scheduler has fetched them, chunk by chunk; large results are fetched
  likewise.
- Creating is done by user threads, each with ids of its own; everything else by the I/O thread.
"""

from __future__ import annotations

import itertools
import os
from array import array
from typing import Callable, Dict, NamedTuple, Optional, Tuple

from scaler.client.future import ScalerFuture
from scaler.exceptions import MissingObjects
from scaler.payload import INLINE_BYTES, Buffer, Parts, join, parts_size
from scaler_protocol import messages as m
from scaler_protocol.segments import map_object, object_name, shares_directory, write_object

SESSION_SHIFT = 40
FETCH_WINDOW = 4  # chunks asked for and not arrived

Send = Callable[..., None]


class _Fetch:
    def __init__(self, future: ScalerFuture) -> None:
        self.future = future
        self.content: Optional[bytearray] = None  # its size comes with the first chunk
        self.requested = 0
        self.arrived = 0


class Fetched(NamedTuple):
    future: ScalerFuture
    content: Optional[Buffer]
    error: Optional[Exception]


class ObjectChannel:
    def __init__(self, welcome: m.Welcome) -> None:
        self._ids = itertools.count((welcome.session << SESSION_SHIFT) + 1)
        self._directory = welcome.object_directory
        self._chunk_bytes = welcome.limits.chunk_bytes or 1 << 20
        self._is_shared = shares_directory(welcome.object_directory, welcome.object_directory_token)
        self._serving: Dict[int, bytes] = {}
        self._fetching: Dict[int, _Fetch] = {}

    def create(
        self, parts: Parts, name: str, kind: m.ObjectKind
    ) -> Tuple[int, m.ObjectInstruction, Tuple[Buffer, ...]]:
        """Make an object of serialised parts; returns its id, and the message and payload that announce it.

        Raises OSError when the object directory has no room for it.
        """
        object_id = next(self._ids)
        size = parts_size(parts)
        payload: Tuple[Buffer, ...] = ()
        if size < INLINE_BYTES:
            storage = m.ObjectStorage.INLINE
            payload = (join(parts),)
        elif self._is_shared:
            storage = m.ObjectStorage.SHARED
            write_object(os.path.join(self._directory, object_name(object_id)), parts)
        else:
            storage = m.ObjectStorage.REMOTE
            self._serving[object_id] = join(parts)
        instruction = m.ObjectInstruction(
            action=m.ObjectAction.CREATE,
            ids=array("Q", [object_id]),
            sizes=array("Q", [size]),
            storages=bytes([storage]),
            kinds=bytes([kind]),
            names=[name],
            codec="cloudpickle",
        )
        return object_id, instruction, payload

    def on_request(self, request: m.ObjectRequest, send: Send) -> None:
        """The scheduler fetches a part of an object that is here; with the last part it is not needed here any more."""
        content = self._serving.get(request.id)
        if content is None:
            send(m.ObjectResponse(id=request.id, offset=request.offset, status=m.ObjectResponseStatus.MISSING))
            return
        end = request.offset + request.length
        response = m.ObjectResponse(id=request.id, offset=request.offset, size=len(content))
        send(response, (memoryview(content)[request.offset : end],))
        if end >= len(content):
            del self._serving[request.id]

    def open(self, object_id: int) -> Optional[Buffer]:
        """The content of an object in the shared directory; None when it must be fetched."""
        if not self._is_shared:
            return None
        try:
            return map_object(os.path.join(self._directory, object_name(object_id)))
        except OSError:
            return None

    def fetch(self, object_id: int, future: ScalerFuture, send: Send) -> None:
        """Begin to fetch a large result for a future."""
        self._fetching[object_id] = _Fetch(future)
        send(m.ObjectRequest(id=object_id, offset=0, length=self._chunk_bytes))

    def on_response(self, response: m.ObjectResponse, chunk: bytes, send: Send) -> Optional[Fetched]:
        """A chunk arrived; returns what was fetched when that was the last one."""
        fetch = self._fetching.get(response.id)
        if fetch is None:
            return None
        if response.status != m.ObjectResponseStatus.OK or (not chunk and response.size):
            del self._fetching[response.id]
            return Fetched(fetch.future, None, MissingObjects("the task's large result was lost before it was fetched"))
        if fetch.content is None:
            fetch.content = bytearray(response.size)
            fetch.requested = min(self._chunk_bytes, response.size)
        fetch.content[response.offset : response.offset + len(chunk)] = chunk
        fetch.arrived += len(chunk)
        while fetch.requested < response.size and fetch.requested - fetch.arrived < FETCH_WINDOW * self._chunk_bytes:
            send(m.ObjectRequest(id=response.id, offset=fetch.requested, length=self._chunk_bytes))
            fetch.requested = min(fetch.requested + self._chunk_bytes, response.size)
        if fetch.arrived < response.size:
            return None
        del self._fetching[response.id]
        return Fetched(fetch.future, memoryview(fetch.content), None)

    def close(self) -> None:
        self._serving.clear()
        self._fetching.clear()
