"""A bench for the agent's object store: it plays the scheduler."""

from __future__ import annotations

from typing import Any, List, Tuple

from scaler.worker.agent.core.effects import Send
from scaler.worker.agent.core.worker_objects import ObjectStore
from scaler_protocol import messages as m

CREATE = m.ObjectAction.CREATE
INLINE, SHARED, REMOTE = m.ObjectStorage.INLINE, m.ObjectStorage.SHARED, m.ObjectStorage.REMOTE
CHUNK = 1000


class Bench:
    def __init__(self, **welcome: Any) -> None:
        self.effects: List[Any] = []
        self.patterns: List[str] = []
        self.events: List[Tuple[str, int]] = []
        self.store = ObjectStore(self.effects, self.patterns.append)
        self.store.on_available = lambda object_id: self.events.append(("available", object_id))
        self.store.on_missing = lambda object_id: self.events.append(("missing", object_id))
        self.store.on_served = lambda object_id: self.events.append(("served", object_id))
        self.store.on_unserved = lambda object_id: self.events.append(("unserved", object_id))
        self.store.start_session(m.Welcome(session=3, limits=m.Limits(chunk_bytes=CHUNK), **welcome))

    def create(self, object_id: int, storage: int, content: bytes = b"", size: int = 0) -> None:
        instruction = m.ObjectInstruction(
            action=CREATE,
            ids=[object_id],
            sizes=[size or len(content)],
            storages=bytes([storage]),
            kinds=bytes([m.ObjectKind.FUNCTION]),
        )
        assert self.store.on_instruction(instruction, content if storage == INLINE else b"") == []

    def sent(self) -> List[Any]:
        """The messages sent since last asked."""
        effects, self.effects[:] = list(self.effects), []
        assert all(isinstance(effect, Send) for effect in effects)
        return [effect.message for effect in effects]

    def respond(self, request: m.ObjectRequest, content: bytes) -> None:
        response = m.ObjectResponse(id=request.id, offset=request.offset, size=len(content))
        self.store.on_response(response, content[request.offset : request.offset + request.length])

    def write_result(self, content: bytes) -> Tuple[int, bool]:
        """A processor writes a large result, which becomes an object."""
        path = self.store.write_prefix + "77-1"
        with open(path, "wb") as file:
            file.write(content)
        return self.store.adopt(path, len(content))
