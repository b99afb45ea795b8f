"""The reference scheduler's objects: it has the bytes of all of them, or asks their makers for them."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any, Dict, List, Set, Tuple

from mutants.scheduler.scheduler_state import Client, Object, Peer, Refused, Task, Worker
from mutants.scheduler.scheduler_tasks import agree
from scaler_conformance.codec.schema_codec import Message

INLINE, SHARED, REMOTE, KEPT = 0, 1, 2, 3
HELD = 4
KEPT_RESULTS = "keptResults"
PEER_FETCH = "peerFetch"
KEPT_ARGUMENTS = "keptArguments"
TICKET_MILLISECONDS = 30_000
MOST_REQUESTS = 4
OK, MISSING = "ok", "missing"
ROOM_BYTES = 1 << 30


class ObjectKeeper:
    """Mixin of ReferenceScheduler."""

    send: Any
    workers: List[Worker]
    queue: List[Task]
    on_object_missing: Any
    check_payload: Any
    instances: Dict[int, Task]
    on_outcome: Any

    def __init__(self) -> None:
        super().__init__()
        self.objects: Dict[int, Object] = {}
        self.issued_tickets: Dict[int, List[Tuple[Peer, int, bytes]]] = {}  # by fetcher
        self.unreached: Set[int] = set()  # clients from which a worker could not fetch
        self.object_limit = 1 << 40
        self.chunk_bytes = 32 * 1024
        self.token = os.urandom(16)
        self._directory = ""
        self.held: Dict[int, Tuple[Task, Message, int, bytes]] = {}  # outcomes, by the object that is fetched first

    def directory(self) -> str:
        """Where peers on this host leave files."""
        if not self._directory:
            self._directory = tempfile.mkdtemp(prefix="reference-scheduler-")
            with open(f"{self._directory}/token", "wb") as file:
                file.write(self.token)
        return self._directory

    def close_objects(self) -> None:
        if self._directory:
            shutil.rmtree(self._directory, ignore_errors=True)

    # What peers say -------------------------------------------------------------------------------------------------

    def on_object_instruction(self, peer: Peer, message: Message) -> None:
        if message.action == "create":
            self.create(peer, message)
        elif message.action == "delete":
            for each in message.ids:
                self.delete(peer, each)
        elif message.action == "clear":
            self.let_go_all(peer)
        elif message.action in ("hold", "drop") and self.fetches_from_workers(peer):
            self.on_copy(peer, message)
        else:
            raise Refused("malformed", f"action {message.action}")

    def on_copy(self, peer: Peer, message: Message) -> None:
        """A worker has copies of objects, or has them no longer: this scheduler names the makers of objects only."""

    def create(self, peer: Peer, message: Message) -> None:
        self.check_object_columns(peer, message)
        for id_, size in zip(message.ids, message.sizes):
            self.check_id(peer, id_)
            self.check_object_size(size)
        kinds, names = message.kinds or [0] * len(message.ids), message.names or [""] * len(message.ids)
        start = 0
        for id_, size, storage, kind, name in zip(message.ids, message.sizes, message.storages, kinds, names):
            made = self.objects[id_] = Object(id_, size, kind, name, message.codec, peer)
            if storage == INLINE:
                made.content += message.payload[start : start + size]
                start += size
            elif storage == SHARED:
                with open(f"{self.directory()}/{id_:016x}", "rb") as file:
                    made.content += file.read()
            elif storage == KEPT and isinstance(peer, Worker):
                made.is_kept = True
                peer.announced.add(id_)
                self.on_kept(made)
            elif storage == KEPT:
                made.is_kept = True
            else:
                self.fetch(made)

    def on_kept(self, kept: Object) -> None:
        """A worker keeps an object: nothing is asked for yet."""

    # Results that are fetched first ---------------------------------------------------------------------------------

    def is_fetched_first(self, task: Task, object_id: int) -> bool:
        kept = self.objects.get(object_id)
        return kept is not None and kept.is_kept and not kept.is_complete and task.is_target

    def is_held_back(self, task: Task, message: Message, index: int, payload: bytes, object_id: int) -> bool:
        """Whether an outcome waits for the bytes of its result."""
        if not self.is_fetched_first(task, object_id):
            return False
        if object_id not in self.held:
            self.held[object_id] = task, message, index, payload
            self.fetch(self.objects[object_id])
        return True

    def report_if_complete(self, kept: Object) -> None:
        """More of its bytes are here; with the last ones, the outcome that waits for them is reported."""
        if kept.is_complete and kept.id in self.held:
            task, message, index, payload = self.held.pop(kept.id)
            if self.instances.get(task.instance) is task:
                self.on_outcome(task, message, index, payload, kept.id)

    def check_object_columns(self, peer: Peer, message: Message) -> None:
        count = len(message.ids)
        agree(len(message.sizes) == count and len(message.storages) == count, "sizes or storages")
        agree(len(message.kinds) in (0, count) and len(message.names) in (0, count), "kinds or names")
        keeps = (KEPT_RESULTS if isinstance(peer, Worker) else KEPT_ARGUMENTS) in peer.hello.features
        agree(
            all(each in (INLINE, SHARED, REMOTE) or (each == KEPT and keeps) for each in message.storages), "a storage"
        )
        inline = sum(size for size, storage in zip(message.sizes, message.storages) if storage == INLINE)
        self.check_payload(message, inline)

    def check_id(self, peer: Peer, object_id: int) -> None:
        self.check_is_free(object_id)
        self.check_is_of_session(peer, object_id)

    def check_is_free(self, object_id: int) -> None:
        if object_id in self.objects:
            raise Refused("protocolViolation", f"object {object_id:x} exists")

    def check_is_of_session(self, peer: Peer, object_id: int) -> None:
        if object_id >> 40 != peer.number or not 0 < object_id & ((1 << 40) - 1) < 1 << 39:
            raise Refused("protocolViolation", f"object {object_id:x} is not one of session {peer.number}")

    def check_object_size(self, size: int) -> None:
        if size > self.object_limit:
            raise Refused("limitExceeded", f"an object of {size} bytes")

    # Lives ----------------------------------------------------------------------------------------------------------

    def delete(self, peer: Peer, object_id: int) -> None:
        found = self.objects.get(object_id)
        if found is not None and found.owner is peer:
            self.let_go(found)

    def let_go_all(self, peer: Peer) -> None:
        for each in [each for each in self.objects.values() if each.owner is peer]:
            self.let_go(each)
        if peer.is_gone:
            for each in [each for each in self.objects.values() if each.source is peer and not each.is_complete]:
                self.on_content_missing(each)

    def let_go(self, kept: Object) -> None:
        """Its owner does not want it any more."""
        if isinstance(kept.owner, Client):
            kept.owner.large_results.pop(kept.id, None)
        kept.owner = None
        if not self.is_needed(kept):
            self.end_object(kept)

    def is_needed(self, kept: Object) -> bool:
        return kept.needs > 0

    def end_need(self, kept: Object) -> None:
        kept.needs -= 1
        if kept.owner is None and kept.needs <= 0:
            self.end_object(kept)

    def end_object(self, kept: Object) -> None:
        if self.objects.pop(kept.id, None) is None:
            return
        for reader, offset, _ in kept.readers:
            self.answer(reader, kept.id, offset, MISSING)
        for worker in self.workers:
            if kept.id in worker.announced:
                worker.announced.discard(kept.id)
                self.tell_deletion(worker, kept.id)
        if kept.is_kept and isinstance(kept.source, Client) and not kept.source.is_gone:
            self.tell_keeper(kept)

    def tell_keeper(self, kept: Object) -> None:
        """The client that keeps an object learns that it has ended."""
        self.send(kept.source, "ObjectInstruction", action="delete", ids=[kept.id])

    def on_named_by(self, client: Client, kept: Object) -> None:
        """A task of a client needs an object: another client's must not end with it."""
        if kept.is_kept and isinstance(kept.source, Client) and kept.source is not client and not kept.asked:
            self.fetch(kept)

    def tell_deletion(self, worker: Worker, object_id: int) -> None:
        self.send(worker, "ObjectInstruction", action="delete", ids=[object_id])

    def announce(self, worker: Worker, object_id: int) -> None:
        if object_id in worker.announced:
            return
        worker.announced.add(object_id)
        kept = self.objects[object_id]
        self.send(
            worker,
            "ObjectInstruction",
            bytes(kept.content) if kept.is_complete else b"",
            action="create",
            ids=[object_id],
            sizes=[kept.size],
            storages=[INLINE if kept.is_complete else HELD if self.is_held_for(worker, kept) else REMOTE],
            kinds=[kept.kind],
            names=[kept.name],
            codec=kept.codec,
        )

    # Transfers between workers --------------------------------------------------------------------------------------

    def fetches_from_workers(self, peer: Peer) -> bool:
        return isinstance(peer, Worker) and PEER_FETCH in peer.hello.features

    def is_held_for(self, worker: Worker, kept: Object) -> bool:
        """Whether a worker can fetch an object from another one."""
        return kept.is_kept and self.fetches_from_workers(worker)

    def on_ticket_request(self, peer: Peer, message: Message) -> None:
        if not self.fetches_from_workers(peer):
            raise Refused("protocolViolation", "a TicketRequest without the feature")
        kept = self.objects.get(message.id)
        holder = kept.source if kept is not None and kept.is_kept else None
        if isinstance(holder, Client) and message.failedHolder == holder.number:
            self.unreached.add(holder.number)
        if holder is not None and self.is_unreached(holder):
            holder = None
        if holder is None or holder is peer or message.failedHolder or not holder.hello.dataAddress:
            self.answer_without_holder(peer, message.id)
        else:
            self.issue_ticket(peer, holder, message.id, os.urandom(32))

    def is_unreached(self, holder: Peer) -> bool:
        return holder.number in self.unreached

    def answer_without_holder(self, peer: Peer, object_id: int) -> None:
        self.send(peer, "Ticket", id=object_id)

    def issue_ticket(self, fetcher: Peer, holder: Peer, object_id: int, secret: bytes) -> None:
        self.tell_holder(holder, object_id, secret, fetcher.hello.dataKey)
        self.issued_tickets.setdefault(fetcher.number, []).append((holder, object_id, secret))
        self.send(
            fetcher,
            "Ticket",
            id=object_id,
            holder=holder.number,
            secret=secret,
            lifetimeMilliseconds=TICKET_MILLISECONDS,
            address=holder.hello.dataAddress,
            key=holder.hello.dataKey,
        )

    def take_back_tickets(self, fetcher: Peer) -> None:
        """A worker is gone: what it was told is valid no longer."""
        for holder, object_id, secret in self.issued_tickets.pop(fetcher.number, []):
            if not holder.is_gone:
                fields = {"holder": holder.number, "secret": secret, "lifetimeMilliseconds": 0}
                self.send(holder, "Ticket", id=object_id, **fields)

    def tell_holder(self, holder: Peer, object_id: int, secret: bytes, key: bytes) -> None:
        self.send(
            holder,
            "Ticket",
            id=object_id,
            holder=holder.number,
            secret=secret,
            lifetimeMilliseconds=TICKET_MILLISECONDS,
            key=key,
        )

    # Bytes ----------------------------------------------------------------------------------------------------------

    def on_object_request(self, peer: Peer, message: Message) -> None:
        kept = self.objects.get(message.id)
        if kept is None or message.offset > kept.size:
            self.answer_missing(peer, message)
        elif kept.lacks_room:
            self.answer_no_room(peer, kept.id, message.offset)
        elif message.offset < len(kept.content) or kept.is_complete:
            self.answer_with(peer, kept, message.offset, message.length)
        else:
            kept.readers.append((peer, message.offset, message.length))
            if kept.is_kept and not kept.asked:
                self.fetch(kept)

    def answer_missing(self, peer: Peer, message: Message) -> None:
        self.answer(peer, message.id, message.offset, MISSING)

    def answer_no_room(self, peer: Peer, id_: int, offset: int) -> None:
        self.send(peer, "ObjectResponse", b"", id=id_, offset=offset, status=MISSING, missingReason="noRoom")

    def answer_with(self, peer: Peer, kept: Object, offset: int, length: int) -> None:
        part = bytes(kept.content[offset : offset + self.most_bytes(length)])
        self.answer(peer, kept.id, offset, OK, kept.size, part)

    def most_bytes(self, length: int) -> int:
        return min(length, self.chunk_bytes)

    def answer(self, peer: Peer, id_: int, offset: int, status: str, size: int = 0, part: bytes = b"") -> None:
        self.send(peer, "ObjectResponse", part, id=id_, offset=offset, status=status, size=size)

    def fetch(self, kept: Object) -> None:
        """Ask the maker of a remote object for its bytes, a few requests at a time."""
        while kept.asked < kept.size and kept.open_requests < self.most_requests():
            length = min(self.chunk_bytes, kept.size - kept.asked)
            self.send(kept.source, "ObjectRequest", id=kept.id, offset=kept.asked, length=length)
            kept.asked += length
            kept.open_requests += 1

    def most_requests(self) -> int:
        return MOST_REQUESTS

    def on_object_response(self, peer: Peer, message: Message) -> None:
        kept = self.objects.get(message.id)
        if kept is None or kept.source is not peer or kept.is_complete or kept.lacks_room:
            return
        if message.status != OK or message.offset != len(kept.content):
            self.on_content_missing(kept)
            return
        if kept.size > ROOM_BYTES:
            kept.lacks_room = True
            for reader, offset, _ in kept.readers:
                self.answer_no_room(reader, kept.id, offset)
            kept.readers.clear()
            return
        kept.open_requests -= 1
        kept.content += message.payload
        self.fetch(kept)
        readers, kept.readers = kept.readers, []
        for reader, offset, length in readers:
            if offset < len(kept.content) or kept.is_complete:
                self.answer_with(reader, kept, offset, length)
            else:
                kept.readers.append((reader, offset, length))
        self.report_if_complete(kept)

    def on_content_missing(self, kept: Object) -> None:
        """Its bytes will never be here."""
        self.held.pop(kept.id, None)
        kept.owner = None
        self.end_object(kept)
        for task in [task for task in self.queue if kept.id in task.needs]:
            self.on_object_missing(task)
