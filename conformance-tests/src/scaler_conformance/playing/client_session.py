"""A client's session, as its scheduler sees it: the tasks and objects of the client, and their outcomes.

Rules:
- The client is free to batch tasks as it likes. Batches are taken apart here, one SentTask for each task. A case asks
  for a task by the number that the adapter was given, which the task's arguments contain.
- The requirements on every message of a client are checked for every message that arrives.
- Objects that stay with the client (storage `remote`) are fetched when a case asks for their content.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from scaler_conformance.codec.schema_codec import SCHEMA, Message, Schema
from scaler_conformance.judging.verdicts import Violation
from scaler_conformance.playing.conversation import Conversation, check

STATUSES = SCHEMA.enum("TaskStatus")
OUTCOMES = SCHEMA.enum("CancelOutcome")
STORAGES = SCHEMA.enum("ObjectStorage")
KINDS = SCHEMA.enum("ObjectKind")
SESSION_SHIFT = 40
MOST_NUMBER = (1 << 39) - 1
CHUNK_BYTES = 64 * 1024
RESULTS_SESSION = 0xABCDEF  # of a worker that does not exist
ASCENDING, COLUMNS_AGREE, OBJECT_FIRST = "SCL-CLT-001", "SCL-CLT-011", "SCL-CLT-006"
NAMED_ONCE, OBJECT_ID, EXACT_BYTES = "SCL-COD-001", "SCL-OBJ-001", "SCL-OBJ-009"
TOKEN_READ, FILE_FIRST = "SCL-OBJ-007", "SCL-OBJ-008"
NO_CALL = "SCL-CLT-015"


class SentTask(NamedTuple):
    """A task that the client has sent."""

    id: int
    payload: bytes
    dependencies: List[int]
    message: Message
    session: ClientSession

    @property
    def options(self) -> Any:
        return self.message.options

    def arguments(self) -> bytes:
        """The arguments, from the payload or from the object that contains them."""
        if self.payload or not self.dependencies:
            return self.payload
        return self.session.content(self.dependencies[0])


class ClientObject(NamedTuple):
    """An object that the client has created."""

    id: int
    size: int
    storage: str  # of ObjectStorage
    kind: str  # of ObjectKind
    content: bytes  # if the storage is inline or shared
    message: Message


class ClientSession(Conversation):
    """Created by the bench of clients."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.hello: Message = Message("Hello", {})
        self.number = 0
        self.is_open = False
        self.object_directory = ""
        self.maximum_message_bytes = 0
        self.tasks: List[SentTask] = []  # in the order of arrival
        self.graphs: List[Message] = []
        self.objects: Dict[int, ClientObject] = {}
        self.deleted: Dict[int, int] = {}  # the position of the message that deleted it, by object id
        self._last_id = -1
        self._tagged = 0  # the number of `tasks` that are in `_by_tag`
        self._by_tag: Dict[Optional[int], SentTask] = {}
        self._result_objects = 0

    # Tasks ----------------------------------------------------------------------------------------------------------

    def find_task(self, task: int) -> Optional[SentTask]:
        """The newest task that was sent for a task of the adapter."""
        while self._tagged < len(self.tasks):
            each = self.tasks[self._tagged]
            self._tagged += 1
            self._by_tag[tag_of(each)] = each
        return self._by_tag.get(task)

    def expect_task(self, task: int, requirement: Optional[str] = None) -> SentTask:
        """Wait for the task with this number of the adapter. Raises Violation if it does not arrive."""
        found: SentTask = self.wait_until(lambda: self.find_task(task), f"a Task message with task {task}", requirement)
        return found

    def expect_tasks(self, tasks: Sequence[int], requirement: Optional[str] = None) -> List[SentTask]:
        return [self.expect_task(task, requirement) for task in tasks]

    def expect_call(self, count: int, requirement: Optional[str] = None) -> SentTask:
        """The `count`-th task of this session."""
        self.wait_until(lambda: len(self.tasks) >= count, f"{count} tasks in Task messages", requirement)
        return self.tasks[count - 1]

    def calls(self) -> List[SentTask]:
        """The tasks of this session that are calls of actors, in the order of arrival."""
        return [each for each in self.tasks if each.options.actor]

    def values(self) -> List[ClientObject]:
        """The objects of kind value that have not been deleted, in the order of arrival."""
        return [each for each in self.objects.values() if each.kind == "value" and each.id not in self.deleted]

    # Outcomes -------------------------------------------------------------------------------------------------------

    def succeed(self, *tasks: SentTask, values: Optional[Sequence[Any]] = None, **fields: Any) -> None:
        """Report tasks as succeeded; each result is the task's number unless `values` says otherwise."""
        results = [tag_of(each) for each in tasks] if values is None else values
        self.tell([each.id for each in tasks], [json.dumps(each).encode() for each in results], **fields)

    def fail(
        self, task: SentTask, message: str, kind: str = "taskRaised", status: str = "failed", schema: Schema = SCHEMA
    ) -> None:
        """Report a task as failed or lost."""
        failure = schema.encode_failure(kind=kind, message=message, typeName="test.Error", worker="w", attempts=1)
        codec = task.message.codec
        self.tell([task.id], [failure], statuses=[STATUSES.index(status)], codec=codec)

    def tell(self, ids: Sequence[int], payloads: Sequence[bytes], **fields: Any) -> None:
        """Send a TaskResult."""
        usual: Dict[str, Any] = {"ids": list(ids), "payloadSizes": [len(each) for each in payloads], "codec": "json"}
        self.send("TaskResult", b"".join(payloads) or None, **{**usual, **fields})

    def confirm(self, task: SentTask, outcome: str) -> None:
        """Answer a cancel, even one that was not requested."""
        self.send("TaskCancelConfirm", ids=[task.id], outcomes=[OUTCOMES.index(outcome)])

    def expect_cancel(self, task: SentTask) -> Message:
        return self.expect(
            "TaskCancel", where=lambda message: task.id in message.ids, expected=f"TaskCancel for task id {task.id}"
        )

    # Objects --------------------------------------------------------------------------------------------------------

    def new_result_object(self) -> int:
        """The id of a new object with a worker's large result."""
        self._result_objects += 1
        return RESULTS_SESSION << SESSION_SHIFT | self._result_objects

    def succeed_by_object(self, task: SentTask, object_id: int) -> None:
        """Report a task as succeeded, with the result in an object."""
        self.tell([task.id], [b""], objects=[object_id])

    def answer(self, request: Message, content: bytes) -> None:
        """Answer an ObjectRequest as a scheduler that has the whole object."""
        chunk = content[request.offset : request.offset + min(request.length, CHUNK_BYTES)]
        self.send("ObjectResponse", chunk, id=request.id, offset=request.offset, status="ok", size=len(content))

    def serve(self, object_id: int, content: bytes, requirement: Optional[str] = None) -> None:
        """Answer the client's requests for a large result until it deletes the object."""
        while True:
            self.wait_until(
                lambda: object_id in self.deleted or self.waiting("ObjectRequest"),
                f"ObjectRequest for object {object_id:x}, or the deletion of the object",
                requirement,
            )
            if object_id in self.deleted and not self.waiting("ObjectRequest"):
                return
            self.answer(self.expect("ObjectRequest", id=object_id), content)

    def expect_deleted(self, object_id: int, requirement: Optional[str] = None) -> int:
        """Wait for the deletion of an object, and return the position of the message."""
        position: int = self.wait_until(
            lambda: self.deleted.get(object_id),
            f"ObjectInstruction with the deletion of object {object_id:x}",
            requirement,
        )
        return position

    def content(self, object_id: int) -> bytes:
        """The content of an object of the client, fetched if necessary."""
        known = object_id in self.objects
        came = f"a task that refers to object {object_id:x}"
        check(known, "an object to be created before the first task that refers to it", came, OBJECT_FIRST)
        found = self.objects[object_id]
        if found.storage not in ("remote", "kept"):
            return found.content
        content = b""
        while len(content) < found.size:
            content += self.fetch(object_id, len(content), CHUNK_BYTES).payload
        return content

    def fetch(self, object_id: int, offset: int, length: int) -> Message:
        """Request a part of a client's object; returns the answer, which must have exactly these bytes."""
        self.send("ObjectRequest", id=object_id, offset=offset, length=length)
        return self.expect_chunk(object_id, offset, length)

    def expect_chunk(self, object_id: int, offset: int, length: int) -> Message:
        """Wait for the next ObjectResponse, which must have exactly these bytes."""
        response = self.expect("ObjectResponse", requirement=EXACT_BYTES)
        size = self.objects[object_id].size
        about = (response.id, response.offset, response.status, response.size)
        check(
            about == (object_id, offset, "ok", size),
            f"ObjectResponse with status ok for object {object_id:x} at offset {offset}",
            response,
            EXACT_BYTES,
        )
        wanted = max(0, min(length, size - offset))
        came = f"{len(response.payload)} bytes"
        check(len(response.payload) == wanted, f"{wanted} bytes from offset {offset}", came, EXACT_BYTES)
        return response

    # Taking messages apart ------------------------------------------------------------------------------------------

    def _take_in(self, message: Message) -> None:
        if message.type == "Task" and self.is_open:
            self._take_in_tasks(message)
        elif message.type == "GraphTask" and self.is_open:
            self._take_in_graph(message)
        elif message.type == "ObjectInstruction" and self.is_open:
            self._take_in_objects(message)
        else:
            super()._take_in(message)

    def _take_in_tasks(self, message: Message) -> None:
        self._check_columns(message)
        named = bool(message.function) != bool(message.functionName)
        check(named, "either function or functionName", message, NAMED_ONCE)
        is_waiting_call = message.options.actor and message.predecessors
        check(not is_waiting_call, "no predecessors in a Task with the option actor", message, NO_CALL)
        counts = message.dependencyCounts or [0] * len(message.ids)
        start = first = 0
        for index, id_ in enumerate(message.ids):
            size, count = message.payloadSizes[index], counts[index]
            dependencies = message.dependencies[first : first + count]
            payload = message.payload[start : start + size]
            self.tasks.append(SentTask(id_, payload, dependencies, message, self))
            start, first = start + size, first + count

    def _take_in_graph(self, message: Message) -> None:
        self._check_columns(message)
        count = len(message.ids)
        offsets = message.predecessorOffsets
        check(len(message.functions) == count, f"functions with {count} entries", message, COLUMNS_AGREE)
        check(all(message.functions), "an object with the function of each node", message, NAMED_ONCE)
        self._check_known(message.functions)
        if offsets:
            right = len(offsets) == count + 1 and offsets[0] == 0 and offsets == sorted(offsets)
            right = right and offsets[-1] == len(message.predecessors)
            check(right, "predecessorOffsets that match predecessors", message, COLUMNS_AGREE)
            below = all(
                each < node for node in range(count) for each in message.predecessors[offsets[node] : offsets[node + 1]]
            )
            check(below, "predecessors that precede their nodes", message, COLUMNS_AGREE)
        targets = message.targets
        right = len(set(targets)) == len(targets) and all(each < count for each in targets)
        check(right, "targets that are positions of nodes, each once", message, COLUMNS_AGREE)
        self.graphs.append(message)

    def _check_columns(self, message: Message) -> None:
        count = len(message.ids)
        ascending = message.ids == sorted(set(message.ids)) and all(each > self._last_id for each in message.ids[:1])
        check(ascending, f"strictly ascending task ids above {self._last_id}", message, ASCENDING)
        self._last_id = message.ids[-1] if message.ids else self._last_id
        check(len(message.payloadSizes) == count, f"payloadSizes with {count} entries", message, COLUMNS_AGREE)
        total = sum(message.payloadSizes)
        came = f"{len(message.payload)} bytes in {message!r}"
        check(len(message.payload) == total, f"a payload of {total} bytes", came, COLUMNS_AGREE)
        right = len(message.dependencyCounts) in (0, count) and sum(message.dependencyCounts) == len(
            message.dependencies
        )
        check(right, "dependencyCounts that match ids and dependencies", message, COLUMNS_AGREE)
        self._check_known([each for each in message.dependencies if each >> SESSION_SHIFT == self.number])
        if message.type == "Task" and message.function >> SESSION_SHIFT == self.number:
            self._check_known([message.function])

    def _check_known(self, object_ids: Sequence[int]) -> None:
        for each in object_ids:
            expected = "an object to be created, and not deleted, before the first task that refers to it"
            known = each in self.objects and each not in self.deleted
            check(known, expected, f"a reference to object {each:x}", OBJECT_FIRST)

    def _take_in_objects(self, message: Message) -> None:
        if message.action == "delete":
            for object_id in message.ids:
                self.deleted[object_id] = message.position
        elif message.action == "clear":
            self.deleted.update(dict.fromkeys(self.objects, message.position))
        elif message.action == "create":
            self._take_in_creations(message)

    def _take_in_creations(self, message: Message) -> None:
        count = len(message.ids)
        right = len(message.sizes) == len(message.storages) == count and len(message.kinds) in (0, count)
        check(right, f"columns of {count} entries in ObjectInstruction", message, "SCL-TRN-003")
        start = 0
        for index, object_id in enumerate(message.ids):
            size, storage = message.sizes[index], STORAGES[message.storages[index]]
            is_new = object_id not in self.objects and object_id >> SESSION_SHIFT == self.number
            is_right = is_new and 0 < object_id & ((1 << SESSION_SHIFT) - 1) <= MOST_NUMBER
            expected = f"a new object id of session {self.number}"
            check(is_right, expected, f"{object_id:x}", OBJECT_ID)
            content = b""
            if storage == "inline":
                content = message.payload[start : start + size]
                start += size
            elif storage == "shared":
                content = self._read_shared(object_id, size)
            kind = KINDS[message.kinds[index]] if message.kinds else "value"
            self.objects[object_id] = ClientObject(object_id, size, storage, kind, content, message)
        came = f"{len(message.payload)} bytes"
        check(len(message.payload) == start, f"a payload of {start} bytes", came, "SCL-TRN-003")

    def _read_shared(self, object_id: int, size: int) -> bytes:
        came = f"object {object_id:x} with storage shared"
        check(self.object_directory, "no storage shared without having read the directory's token", came, TOKEN_READ)
        try:
            with open(os.path.join(self.object_directory, f"{object_id:016x}"), "rb") as file:
                content = file.read()
        except OSError as error:
            raise Violation(f"a file {object_id:016x} in the object directory", str(error), FILE_FIRST) from None
        check(len(content) == size, f"{size} bytes in the file {object_id:016x}", f"{len(content)} bytes", FILE_FIRST)
        return content


def tag_of(task: SentTask) -> Optional[int]:
    """The adapter's number of a task, with which its argument begins."""
    try:
        arguments = task.arguments()
        text = json.loads(arguments)[0] if task.message.codec == "json" else arguments.decode()
        return int(text.partition(" ")[0])
    except (ValueError, LookupError, AttributeError, TypeError):
        return None
