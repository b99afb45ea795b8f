"""Objects of a reference client: what it creates, and the large results that it fetches.

Rules:
- Objects go inline, by the shared directory, or stay here to be requested; results by the directory or by request.
- One method, one duty: so that a mutant can break just that.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Optional

from mutants.client.client_tasks import Fetch, Task
from scaler_conformance.codec.schema_codec import SCHEMA, Message

STORAGES = SCHEMA.enum("ObjectStorage")
KINDS = SCHEMA.enum("ObjectKind")
MOST_REQUESTS = 4


class ClientObjects:
    """The objects of one session after the other."""

    most_requests = MOST_REQUESTS

    def __init__(self, client: Any) -> None:
        self.client = client
        self.session = 0
        self.directory = ""
        self.chunk_bytes = self.inline_bytes = 1 << 16
        self.next_number = 1
        self.contents: Dict[int, bytes] = {}
        self.fetches: Dict[int, Fetch] = {}
        self.user_objects: Dict[int, int] = {}  # ids in this session, by the adapter's numbers

    def begin(self, welcome: Any) -> None:
        self.session = welcome.session
        self.next_number = 1
        self.chunk_bytes = welcome.limits.chunkBytes or 1 << 16
        self.inline_bytes = welcome.limits.inlineBytes or 1 << 16
        self.directory = welcome.objectDirectory if self.shares(welcome) else ""

    def shares(self, welcome: Any) -> bool:
        """Whether the scheduler's directory is here, as its token tells."""
        try:
            with open(os.path.join(welcome.objectDirectory, "token"), "rb") as file:
                return bool(welcome.objectDirectoryToken) and file.read() == welcome.objectDirectoryToken
        except OSError:
            return False

    def clear(self) -> None:
        self.contents.clear()
        self.fetches.clear()
        self.user_objects.clear()

    def close(self) -> None:
        self.clear()

    # Creating -------------------------------------------------------------------------------------------------------

    def new_id(self) -> int:
        number = self.next_number
        self.next_number += 1
        return self.session << 40 | number

    def create(self, content: bytes, codec: str, kind: int = 3) -> int:
        """Announce an object; its id."""
        object_id = self.new_id()
        storage = "inline" if len(content) < self.inline_bytes else "shared" if self.directory else "remote"
        serving = self.client.serving
        if storage == "remote" and kind != 1 and serving.keeps(len(content)):
            storage = "kept"
            serving.kept[object_id] = content
        if storage == "remote":
            self.contents[object_id] = content
        if storage == "shared":
            self.write(object_id, content)
        self.announce(object_id, content, storage, codec, kind)
        return object_id

    def user_object(self, number: int, size: int) -> int:
        """An object that the user made, created in this session if it is not yet; its id."""
        if number not in self.user_objects:
            self.user_objects[number] = self.create(bytes(index % 251 for index in range(size)), "raw", kind=0)
        return self.user_objects[number]

    def delete_user_objects(self) -> None:
        if self.user_objects:
            self.client.send("ObjectInstruction", action="delete", ids=list(self.user_objects.values()))
        for object_id in self.user_objects.values():
            self.client.serving.on_deleted(object_id)
        self.user_objects.clear()

    def write(self, object_id: int, content: bytes) -> None:
        path = os.path.join(self.directory, f"{object_id:016x}")
        with open(os.path.join(self.directory, f"new-{object_id:016x}"), "wb") as file:
            file.write(content)
        os.rename(file.name, path)

    def announce(self, object_id: int, content: bytes, storage: str, codec: str, kind: int) -> None:
        self.client.send(
            "ObjectInstruction",
            content if storage == "inline" else b"",
            action="create",
            ids=[object_id],
            sizes=[len(content)],
            storages=[STORAGES.index(storage)],
            kinds=[kind],
            codec=codec,
        )

    def on_request(self, message: Message) -> None:
        content = self.contents.get(message.id, self.client.serving.kept.get(message.id))
        if content is None or message.offset > len(content):
            self.client.send("ObjectResponse", id=message.id, offset=message.offset, status="missing")
            return
        chunk = self.chunk(content, message.offset, message.length)
        self.client.send("ObjectResponse", chunk, id=message.id, offset=message.offset, status="ok", size=len(content))

    def chunk(self, content: bytes, offset: int, length: int) -> bytes:
        return content[offset : offset + length]

    # Fetching -------------------------------------------------------------------------------------------------------

    def fetch(self, task: Task, object_id: int) -> None:
        """Get a large result: by the directory, or by requests."""
        fetch = Fetch(task, object_id)
        content = self.read_shared(object_id)
        if content is not None:
            fetch.content = content
            self.client.end_fetch(fetch)
            self.client.take_result(task, 0, content, "")
            return
        self.fetches[object_id] = fetch
        self.request(fetch)

    def read_shared(self, object_id: int) -> Optional[bytes]:
        if not self.directory:
            return None
        try:
            with open(os.path.join(self.directory, f"{object_id:016x}"), "rb") as file:
                return file.read()
        except OSError:
            return None

    def request(self, fetch: Fetch) -> None:
        """Ask for the next chunk."""
        self.client.send("ObjectRequest", id=fetch.object_id, offset=fetch.requested, length=self.chunk_bytes)
        fetch.requested += self.chunk_bytes

    def take_chunk(self, fetch: Fetch, message: Message) -> bool:
        """Take in a chunk; whether it was the last one."""
        fetch.size = message.size
        fetch.content += message.payload
        while fetch.requested < message.size and self.may_ask_more(fetch):
            self.request(fetch)
        return bool(len(fetch.content) >= message.size)

    def may_ask_more(self, fetch: Fetch) -> bool:
        return fetch.requested - len(fetch.content) < self.most_requests * self.chunk_bytes
