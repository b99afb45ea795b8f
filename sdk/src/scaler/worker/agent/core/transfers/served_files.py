"""What is here for others: large results that were made here, and copies that were fetched; the scheduler and other
workers request their parts.

    ObjectRequest ─▶ ReadChunk ─▶ ObjectResponse, to the scheduler or over a data connection
                         └── the file is gone: missing, and the object is forgotten

Rules:
- It is kept until the scheduler deletes it. Of an old scheduler: until that has fetched it.
- Every request is answered, if only with "missing"; but not on a data connection that has ended.

Source: SCL-OBJ-009, SCL-OBJ-021, SCL-OBJ-029.
"""

from __future__ import annotations

from array import array
from typing import Callable, Dict, Iterable, List

from scaler.worker.agent.core.effects import ERROR, Effect, Log, ReadChunk, Send, SendData
from scaler.worker.agent.core.transfers.object_progress import ServedObject
from scaler.worker.frames import Buffer
from scaler_protocol import messages as m


class ServedFiles:
    """Parameters:
    effects: shared with the rest of the core.
    is_open: whether a data connection is.
    forget: called with an object whose file is gone.
    on_fetched: called with a result that an old scheduler has fetched: it is not served any more.
    """

    def __init__(
        self,
        effects: List[Effect],
        is_open: Callable[[int], bool],
        forget: Callable[[int], None],
        on_fetched: Callable[[int], None],
    ) -> None:
        self._effects = effects
        self._is_open = is_open
        self._forget = forget
        self._on_fetched = on_fetched
        self._chunk_bytes = 0
        self._keeps = False  # until the scheduler deletes them
        self._served: Dict[int, ServedObject] = {}

    def __contains__(self, object_id: int) -> bool:
        return object_id in self._served

    def __len__(self) -> int:
        return len(self._served)

    @property
    def paths(self) -> Dict[int, str]:
        """Their files, by object."""
        return {object_id: served.path for object_id, served in self._served.items()}

    @property
    def are_owed(self) -> bool:
        """Whether the scheduler has neither fetched nor deleted all of them."""
        return any(served.sent < served.size for served in self._served.values())

    def start_session(self, chunk_bytes: int, keeps: bool) -> None:
        """
        Parameters:
            chunk_bytes: of a part, at most.
            keeps: the scheduler deletes what it does not need any more.
        """
        self._chunk_bytes, self._keeps = chunk_bytes, keeps

    def add(self, object_id: int, path: str, size: int) -> None:
        """Serve this file from now on."""
        self._served[object_id] = ServedObject(path, size)

    def pop(self, object_id: int) -> str:
        """Serve an object no longer; returns its path, or an empty one if it was not served."""
        served = self._served.pop(object_id, None)
        return "" if served is None else served.path

    # SCL-OBJ-023
    def owe_no_more(self, object_ids: Iterable[int]) -> None:
        """The scheduler does not need these from here."""
        for object_id in object_ids:
            served = self._served.get(object_id)
            if served is not None:
                served.sent = served.size

    def clear(self) -> None:
        """The session has ended."""
        self._served.clear()

    # SCL-OBJ-009
    def on_request(self, request: m.ObjectRequest, connection: int = 0) -> None:
        """A part is requested.

        Parameters:
            connection: to the worker that requests it, with a ticket; 0: the scheduler does.
        """
        served = self._served.get(request.id)
        if served is None or request.offset > served.size:
            self._refuse(request.id, request.offset, connection)
            return
        length = min(request.length, self._chunk_bytes, served.size - request.offset)
        self._effects.append(ReadChunk(request.id, served.path, request.offset, length, connection))

    def on_chunk_read(
        self, object_id: int, offset: int, length: int, chunk: Buffer, why: str = "", connection: int = 0
    ) -> None:
        """A part of an object.

        Parameters:
            length: the requested number of bytes.
            why: the reason why it could not be read; empty if it was read.
            connection: to the worker that requested it; 0: the scheduler did.
        """
        served = self._served.get(object_id)
        if served is None:
            self._refuse(object_id, offset, connection)
            return
        if not why and len(chunk) < length:
            why = "its file became shorter"
        if why:
            self._effects.append(Log(ERROR, f"a large result is lost: {served.path}: {why}"))
            self._refuse(object_id, offset, connection)
            if connection:
                drop = m.ObjectInstruction(action=m.ObjectAction.DROP, ids=array("Q", [object_id]))
                self._effects.append(Send(drop))
            self._forget(object_id)
            return
        response = m.ObjectResponse(id=object_id, offset=offset, size=served.size)
        if connection:
            if self._is_open(connection):
                self._effects.append(SendData(connection, response, chunk))
            return
        self._effects.append(Send(response, chunk))
        if offset <= served.sent:
            served.sent = max(served.sent, offset + len(chunk))
        if served.sent >= served.size and not self._keeps:
            self._on_fetched(object_id)

    def _refuse(self, object_id: int, offset: int, connection: int) -> None:
        response = m.ObjectResponse(id=object_id, offset=offset, status=m.ObjectResponseStatus.MISSING)
        if not connection:
            self._effects.append(Send(response))
        elif self._is_open(connection):
            self._effects.append(SendData(connection, response))
