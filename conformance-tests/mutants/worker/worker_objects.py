"""The objects of the reference worker: what the scheduler announced, and large results.

Rules:
- An object is `there` when its content is, `missing` when the scheduler said so or deleted it; between the two it is
  being fetched, with no more than WINDOW requests open.
- One method, one duty, as in the worker.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from scaler_conformance.codec.schema_codec import Message

WINDOW = 4
INLINE, SHARED, REMOTE, KEPT, HELD = 0, 1, 2, 3, 4
KEPT_RESULTS = "keptResults"


class _Fetch:
    def __init__(self) -> None:
        self.content = bytearray()
        self.size: Optional[int] = None
        self.requested = 0


class WorkerObjects:
    """Of one worker; `owner` sends."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.directory = ""  # of the scheduler, when this worker sees it
        self.contents: Dict[int, bytes] = {}
        self.announced: Set[int] = set()
        self.missing: Set[int] = set()
        self.reasons: Dict[int, str] = {}  # that the scheduler gave for them
        self.fetches: Dict[int, _Fetch] = {}
        self.mine: Dict[int, bytes] = {}
        self.keeps = False  # what it makes, until the scheduler deletes it
        self.owed: Set[int] = set()  # kept objects that the scheduler has neither fetched nor deleted
        self.held: Dict[int, int] = {}  # sizes of objects that other workers have
        self.number = 0
        self.chunk_bytes = 1 << 20

    def begin(self, welcome: Message) -> None:
        """A session begins."""
        self.chunk_bytes = welcome.limits.chunkBytes or 1 << 20
        self.number = 0
        self.keeps = KEPT_RESULTS in welcome.features
        self.directory = welcome.objectDirectory if self.sees_token(welcome) else ""

    def sees_token(self, welcome: Message) -> bool:
        try:
            with open(os.path.join(welcome.objectDirectory, "token"), "rb") as file:
                return bool(welcome.objectDirectory) and file.read() == welcome.objectDirectoryToken
        except OSError:
            return False

    def clear(self) -> None:
        for table in (self.contents, self.fetches, self.mine):
            table.clear()
        self.announced.clear()
        self.missing.clear()
        self.owed.clear()
        self.held.clear()

    def close(self) -> None:
        self.clear()

    # What tasks need ------------------------------------------------------------------------------------------------

    def is_there(self, object_id: int) -> bool:
        return object_id in self.contents

    def is_missing(self, object_id: int) -> bool:
        return object_id in self.missing

    def content(self, object_id: int) -> bytes:
        return self.contents[object_id]

    def on_instruction(self, message: Message) -> None:
        if message.action == "create":
            self.create_announced(message)
        elif message.action == "delete":
            self.forget(message.ids)
        elif message.action == "clear":
            self.forget([*self.contents, *self.fetches])

    def create_announced(self, message: Message) -> None:
        start = 0
        for object_id, size, storage in zip(message.ids, message.sizes, message.storages):
            self.missing.discard(object_id)
            self.announced.add(object_id)
            if storage == INLINE or size == 0:
                self.contents[object_id] = message.payload[start : start + size]
                start += size
            elif storage == SHARED and self.directory:
                self.read_shared(object_id)
            elif storage == HELD:
                self.held[object_id] = size

    def read_shared(self, object_id: int) -> None:
        with open(os.path.join(self.directory, f"{object_id:016x}"), "rb") as file:
            self.contents[object_id] = file.read()

    def forget(self, object_ids: Sequence[int]) -> None:
        for object_id in object_ids:
            self.contents.pop(object_id, None)
            self.fetches.pop(object_id, None)
            self.owner.transfers.stop(object_id)
            self.forget_kept(object_id)
            self.announced.discard(object_id)
            self.missing.add(object_id)

    def forget_kept(self, object_id: int) -> None:
        self.mine.pop(object_id, None)
        self.owed.discard(object_id)

    def fetch_missing(self, object_ids: List[int]) -> None:
        """Ask for what is not there."""
        for object_id in object_ids:
            if not self.is_there(object_id) and object_id not in self.fetches and object_id not in self.missing:
                self.fetches[object_id] = _Fetch()
                if object_id in self.held and self.owner.transfers.is_used:
                    self.owner.transfers.fetch(object_id)
                else:
                    self.request_more(object_id, self.fetches[object_id])

    def fetch_from_scheduler(self, object_id: int) -> None:
        """Fetch the rest of what other workers had."""
        fetch = self.fetches[object_id]
        fetch.requested = len(fetch.content)
        self.request_more(object_id, fetch)

    def complete_copy(self, object_id: int) -> None:
        """All bytes of an object of other workers are here, and stay until it is deleted."""
        self.contents[object_id] = bytes(self.fetches.pop(object_id).content)
        self.keep_copy(object_id)

    def keep_copy(self, object_id: int) -> None:
        self.mine[object_id] = self.contents[object_id]

    def request_more(self, object_id: int, fetch: _Fetch) -> None:
        while self.may_request(fetch):
            left = self.chunk_bytes if fetch.size is None else fetch.size - fetch.requested
            length = min(left, self.chunk_bytes)
            self.owner.send("ObjectRequest", id=object_id, offset=fetch.requested, length=length)
            fetch.requested += length

    def may_request(self, fetch: _Fetch) -> bool:
        if fetch.size is None:
            return fetch.requested == 0
        open_bytes = fetch.requested - len(fetch.content)
        return fetch.requested < fetch.size and open_bytes < WINDOW * self.chunk_bytes

    def on_response(self, message: Message) -> None:
        fetch = self.fetches.get(message.id)
        if fetch is None:
            return
        if message.status != "ok":
            del self.fetches[message.id]
            self.missing.add(message.id)
            if message.missingReason == "noRoom":
                self.reasons[message.id] = message.missingReason
            return
        fetch.size = message.size
        fetch.content += message.payload
        fetch.requested = max(fetch.requested, len(fetch.content))
        if len(fetch.content) >= message.size:
            if message.id in self.held:
                self.complete_copy(message.id)
                self.owner.transfers.report_copy_of_scheduler(message.id)
            else:
                del self.fetches[message.id]
                self.contents[message.id] = bytes(fetch.content)
        else:
            fetch.requested = max(fetch.requested, len(fetch.content))
            self.request_more(message.id, fetch)

    # Large results --------------------------------------------------------------------------------------------------

    def create(self, content: bytes) -> Tuple[int, bool]:
        """Make an object of a result: its id, and whether its outcome may be sent by now."""
        object_id = self.new_id()
        if self.directory:
            self.write_shared(object_id, content)
        else:
            self.mine[object_id] = content
        self.announce(object_id, len(content), SHARED if self.directory else KEPT if self.keeps else REMOTE)
        if self.keeps and not self.directory:
            self.keep(object_id, content)
        return object_id, bool(self.directory) or self.keeps

    def keep(self, object_id: int, content: bytes) -> None:
        """Use it here, too."""
        self.contents[object_id] = content
        self.owed.add(object_id)

    @property
    def owes_any(self) -> bool:
        return bool(self.owed)

    def new_id(self) -> int:
        self.number += 1
        return int(self.owner.session) << 40 | self.number

    def write_shared(self, object_id: int, content: bytes) -> None:
        draft = os.path.join(self.directory, f"new-{object_id:x}")
        with open(draft, "wb") as file:
            file.write(content)
        os.rename(draft, os.path.join(self.directory, f"{object_id:016x}"))

    def announce(self, object_id: int, size: int, storage: int) -> None:
        self.owner.send(
            "ObjectInstruction",
            action="create",
            ids=[object_id],
            sizes=[size],
            storages=[storage],
            kinds=[0],
            codec="json",
        )

    def on_request(self, message: Message) -> None:
        content = self.mine.get(message.id)
        if content is None or message.offset > len(content):
            self.owner.send("ObjectResponse", id=message.id, offset=message.offset, status="missing")
            return
        chunk = self.chunk(content, message.offset, message.length)
        self.owner.send("ObjectResponse", chunk, id=message.id, offset=message.offset, status="ok", size=len(content))
        if message.offset + len(chunk) >= len(content):
            self.on_fetched(message.id)

    def on_fetched(self, object_id: int) -> None:
        self.owed.discard(object_id)
        self.owner.on_served(object_id)

    def chunk(self, content: bytes, offset: int, length: int) -> bytes:
        return content[offset : offset + length]
