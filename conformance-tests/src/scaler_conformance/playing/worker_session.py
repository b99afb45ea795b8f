"""A worker's session, as its scheduler sees it: sending it tasks and objects, and reading their outcomes.

Rules:
- The worker is free to batch results and confirmations as it likes. They are taken apart here, an Outcome or a
  Confirmation for each task, and a case asks for those of the tasks it wants.
- Results that stay with the worker as objects (storage `remote`) are fetched automatically, chunk by chunk, as a
  scheduler does.
- Requirements on columns are checked for every message that arrives.
"""

from __future__ import annotations

import itertools
import json
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence

from scaler_conformance.codec.schema_codec import SCHEMA, Message, Struct, UnreadableMessageError
from scaler_conformance.judging.verdicts import NotApplicable, Violation
from scaler_conformance.playing.conversation import Conversation, check
from scaler_conformance.playing.hold import Hold

PREFIX = "scaler.conformance/"
CHUNK_BYTES = 64 * 1024
STATUSES = SCHEMA.enum("TaskStatus")
OUTCOMES = SCHEMA.enum("CancelOutcome")
STORAGES = SCHEMA.enum("ObjectStorage")
FIRST_INSTANCE = 1_000
CLIENT_SESSION = 77
COLUMNS_AGREE, STATUS_AND_FAILURE, OBJECT_FIRST = "SCL-WRK-005", "SCL-WRK-006", "SCL-OBJ-012"


class Outcome(NamedTuple):
    """The outcome of one task."""

    id: int
    status: str  # of TaskStatus
    payload: bytes  # the content of the object if the result is one
    object: int  # its id, or 0
    message: Message  # the TaskResult that brought it
    entry: int  # its index in the columns
    position: int  # the order of outcomes and confirmations in a session

    @property
    def value(self) -> Any:
        """The result, decoded from JSON.

        Raises Violation if it is not JSON.
        """
        try:
            return json.loads(self.payload)
        except ValueError:
            raise Violation("a result in JSON", f"got {self!r}", "SCL-COD-007") from None

    @property
    def failure(self) -> Struct:
        """The Failure in the payload. Raises Violation if there is none."""
        try:
            return SCHEMA.decode_failure(self.payload)
        except UnreadableMessageError as error:
            came = f"got one that cannot be read: {error}"
            raise Violation("a Failure as the payload", came, STATUS_AND_FAILURE) from None

    def __repr__(self) -> str:
        return f"outcome {self.status} of instance {self.id} with the payload {self.payload[:80]!r}"


class Confirmation(NamedTuple):
    """The answer to the cancel of one task."""

    id: int
    outcome: str  # of CancelOutcome
    position: int

    def __repr__(self) -> str:
        return f"TaskCancelConfirm for instance {self.id} with {self.outcome}"


class WorkerSession(Conversation):
    """Created by the bench of workers."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.hello: Message = Message("Hello", {})
        self.number = 0
        self.is_open = False
        self.was_refused = False
        self.fetches_objects = True
        self.outcomes: List[Outcome] = []  # not yet taken by the case
        self.confirmations: List[Confirmation] = []
        self.objects: Dict[int, bytes] = {}  # contents of the worker's objects, as far as they have been fetched
        self.object_sizes: Dict[int, int] = {}
        self.storages: Dict[int, str] = {}
        self.object_directory = ""
        self.served: Dict[int, bytes] = {}  # objects of the client that are served automatically
        self.requests = 0  # for objects that are served automatically
        self.announcements: List[Message] = []  # ObjectInstructions with which the worker created objects
        self._objects_made = 0
        self.instances: Iterator[int] = itertools.count(FIRST_INSTANCE)
        self._count = 0

    def take_over(self, old: WorkerSession) -> None:
        """Continue with the new Hello on the connection of an old session."""
        self._queue = old.waiting("Hello")

    def unclaimed(self) -> List[object]:
        return [*super().unclaimed(), *self.outcomes, *self.confirmations]

    # Tasks ----------------------------------------------------------------------------------------------------------

    def need_function(self, name: str) -> None:
        """Raises NotApplicable if the worker does not list this conformance function."""
        served = self.hello.functions
        if served and not any(
            PREFIX + name == each or (each[-1:] == "*" and (PREFIX + name).startswith(each[:-1])) for each in served
        ):
            raise NotApplicable(f"the worker does not list {PREFIX}{name} in Hello.functions")

    @property
    def capacity(self) -> int:
        """The number of tasks that the worker takes at a time."""
        return int(self.hello.slots * max(1, self.hello.queueSize))

    @staticmethod
    def json(arguments: Sequence[Any]) -> bytes:
        """Arguments as a payload."""
        return json.dumps(arguments).encode()

    def submit(self, function: str, /, *arguments: Any, **fields: Any) -> int:
        """Send the worker a task of a conformance function in JSON, and return its instance id."""
        return self.submit_many(function, [list(arguments)], **fields)[0]

    def submit_many(self, function: str, arguments: Sequence[Sequence[Any]], /, **fields: Any) -> List[int]:
        """Send it a batch, and return the instance ids, which ascend. `fields` are those of the Task message."""
        return self.submit_payloads(function, [self.json(each) for each in arguments], **fields)

    def submit_payloads(self, function: str, payloads: Sequence[bytes], /, **fields: Any) -> List[int]:
        """Send it a batch with these payloads."""
        self.need_function(function)
        ids = self.new_instances(len(payloads))
        usual: Dict[str, Any] = {
            "ids": ids,
            "payloadSizes": [len(each) for each in payloads],
            "functionName": PREFIX + function,
            "codec": "json",
            "attempt": 1,
            "client": CLIENT_SESSION,
        }
        self.send("Task", b"".join(payloads), **{**usual, **fields})
        return ids

    def new_instances(self, count: int = 1) -> List[int]:
        """Instance ids that have not been used."""
        return [next(self.instances) for _ in range(count)]

    def occupy(self, holds: Sequence[Hold], **fields: Any) -> List[int]:
        """Run one `wait` task for each hold, and wait until all of them have started."""
        ids = [self.submit("wait", *hold.arguments, **fields) for hold in holds]
        for hold in holds:
            hold.expect_started()
        return ids

    # Outcomes -------------------------------------------------------------------------------------------------------

    def expect_outcome(self, instance: int, requirement: Optional[str] = None) -> Outcome:
        """Wait for the outcome of a task, and take it. Raises Violation if it does not arrive."""
        outcome: Outcome = self.wait_until(
            lambda: self._take_outcome(instance), f"TaskResult for instance {instance}", requirement
        )
        return outcome

    def _take_outcome(self, instance: int) -> Optional[Outcome]:
        found = next((each for each in self.outcomes if each.id == instance), None)
        if found is None or (found.object and not self._is_complete(found.object)):
            return None
        self.outcomes.remove(found)
        return found._replace(payload=self.objects[found.object]) if found.object else found

    def expect_value(self, instance: int, value: Any, requirement: Optional[str] = None) -> Outcome:
        """Wait for the outcome of a task that must succeed with this JSON value."""
        outcome = self.expect_outcome(instance, requirement)
        check(
            outcome.status == "success",
            f"instance {instance} to have the outcome success",
            _explained(outcome),
            requirement,
        )
        check(outcome.value == value, f"the result {value!r}", outcome.value, requirement)
        return outcome

    def expect_failure(
        self, instance: int, kind: str, status: str = "failed", requirement: Optional[str] = None
    ) -> Struct:
        """The Failure of a task that must end with this kind and status; several are given as "failed or lost"."""
        outcome = self.expect_outcome(instance, requirement)
        expected = f"instance {instance} to have the outcome {status}"
        check(outcome.status in status.split(" or "), expected, _explained(outcome), requirement)
        failure = outcome.failure
        check(failure.kind == kind, f"a Failure of kind {kind}", failure, requirement)
        return failure

    def expect_confirmation(self, instance: int, outcome: str = "", requirement: Optional[str] = None) -> Confirmation:
        """Wait for the answer to a cancel, and take it; it must be this CancelOutcome unless that is empty."""
        expected = f"TaskCancelConfirm for instance {instance}"
        confirmation: Confirmation = self.wait_until(lambda: self._take_confirmation(instance), expected, requirement)
        check(outcome in ("", confirmation.outcome), f"{expected} with {outcome}", confirmation.outcome, requirement)
        return confirmation

    def _take_confirmation(self, instance: int) -> Optional[Confirmation]:
        found = next((each for each in self.confirmations if each.id == instance), None)
        if found is not None:
            self.confirmations.remove(found)
        return found

    def expect_nothing_more(
        self, but: Sequence[str] = (), expected: str = "", requirement: Optional[str] = None
    ) -> None:
        super().expect_nothing_more(but, expected, requirement)
        for left in ("outcomes", "confirmations"):
            came = getattr(self, left)
            check(not came, expected or f"no further {left}", f"{came[:1]!r}", requirement)

    # Objects --------------------------------------------------------------------------------------------------------

    def create_object(self, content: bytes, kind: int = 0, codec: str = "json") -> int:
        """Send the worker an object of the client inline, and return its id."""
        object_id = self.new_object()
        self.send(
            "ObjectInstruction",
            content,
            action="create",
            ids=[object_id],
            sizes=[len(content)],
            storages=[0],
            kinds=[kind],
            names=[""],
            codec=codec,
        )
        return object_id

    def new_object(self) -> int:
        """The id of a new object of the client."""
        self._objects_made += 1
        return CLIENT_SESSION << 40 | self._objects_made

    def announce(self, content: bytes, storage: str = "remote", is_served: bool = True) -> int:
        """Announce an object that the worker must fetch, and return its id.

        Parameters:
            is_served: whether requests for it are answered automatically.
        """
        object_id = self.new_object()
        if is_served:
            self.served[object_id] = content
        self.send(
            "ObjectInstruction",
            action="create",
            ids=[object_id],
            sizes=[len(content)],
            storages=[STORAGES.index(storage)],
            codec="json",
        )
        return object_id

    def answer(self, request: Message, content: bytes) -> None:
        """Answer an ObjectRequest as a scheduler that has the whole object."""
        chunk = content[request.offset : request.offset + min(request.length, CHUNK_BYTES)]
        self.send("ObjectResponse", chunk, id=request.id, offset=request.offset, status="ok", size=len(content))

    def _is_complete(self, object_id: int) -> bool:
        return len(self.objects.get(object_id, b"")) == self.object_sizes.get(object_id)

    def fetch(self, object_id: int) -> None:
        """Fetch an object of the worker, which happens automatically unless `fetches_objects` is off."""
        self.fetches_objects = True
        self._request_chunk(object_id)

    def _request_chunk(self, object_id: int) -> None:
        offset, size = len(self.objects[object_id]), self.object_sizes[object_id]
        if offset < size:
            self.send("ObjectRequest", id=object_id, offset=offset, length=min(CHUNK_BYTES, size - offset))

    # Taking messages apart ------------------------------------------------------------------------------------------

    def _take_in(self, message: Message) -> None:
        if message.type == "TaskResult":
            self._take_in_results(message)
        elif message.type == "TaskCancelConfirm":
            self._take_in_confirmations(message)
        elif message.type == "ObjectInstruction" and message.action == "create":
            self._take_in_objects(message)
        elif message.type == "ObjectResponse" and self.fetches_objects and message.id in self.objects:
            self.objects[message.id] += message.payload
            self._request_chunk(message.id)
        elif message.type == "ObjectRequest" and message.id in self.served:
            self.requests += 1
            self.answer(message, self.served[message.id])
        else:
            super()._take_in(message)

    def _take_in_results(self, message: Message) -> None:
        count = len(message.ids)
        _check_length(message, "payloadSizes", count)
        for column in ("statuses", "objects", "durationsMicroseconds", "cpuMicroseconds", "peakMemoryBytes"):
            if getattr(message, column):
                _check_length(message, column, count)
        _check_payload(message, sum(message.payloadSizes))
        start = 0
        for index, id_ in enumerate(message.ids):
            size = message.payloadSizes[index]
            status = message.statuses[index] if message.statuses else 0
            known = status < len(STATUSES) and STATUSES[status] != "cancelled"
            check(known, "status success, failed or lost", status, STATUS_AND_FAILURE)
            object_id = message.objects[index] if message.objects else 0
            announced = object_id == 0 or object_id in self.objects
            check(announced, "an object to be created before the TaskResult that names it", message, OBJECT_FIRST)
            check(not (object_id and size), "no payload for a result that is an object", message, OBJECT_FIRST)
            payload = message.payload[start : start + size]
            start += size
            self._count += 1
            self.outcomes.append(Outcome(id_, STATUSES[status], payload, object_id, message, index, self._count))

    def _take_in_confirmations(self, message: Message) -> None:
        _check_length(message, "outcomes", len(message.ids))
        for id_, outcome in zip(message.ids, message.outcomes):
            check(outcome < len(OUTCOMES), "an outcome of the schema", outcome)
            self._count += 1
            self.confirmations.append(Confirmation(id_, OUTCOMES[outcome], self._count))

    def _take_in_objects(self, message: Message) -> None:
        for column in ("sizes", "storages"):
            _check_length(message, column, len(message.ids))
        for column in ("kinds", "names"):
            if getattr(message, column):
                _check_length(message, column, len(message.ids))
        inline = sum(size for size, storage in zip(message.sizes, message.storages) if storage == 0)
        _check_payload(message, inline)
        self.announcements.append(message)
        start = 0
        for object_id, size, storage in zip(message.ids, message.sizes, message.storages):
            self.object_sizes[object_id] = size
            self.storages[object_id] = STORAGES[storage]
            self.objects[object_id] = b""
            if STORAGES[storage] == "inline":
                self.objects[object_id] = message.payload[start : start + size]
                start += size
            elif STORAGES[storage] == "shared":
                self.objects[object_id] = self._read_shared(object_id)
            elif self.fetches_objects:
                self._request_chunk(object_id)

    def _read_shared(self, object_id: int) -> bytes:
        came = f"object {object_id:x} with storage shared"
        check(self.object_directory, "no storage shared without an object directory", came, "SCL-OBJ-007")
        try:
            with open(f"{self.object_directory}/{object_id:016x}", "rb") as file:
                return file.read()
        except OSError as error:
            expected = f"a file {object_id:016x} in the object directory"
            raise Violation(expected, str(error), "SCL-OBJ-008") from None


def _check_length(message: Message, column: str, count: int) -> None:
    length = len(getattr(message, column))
    expected = f"{count} entries in {message.type}.{column}"
    check(length == count, expected, f"{length} entries in {message!r}", COLUMNS_AGREE)


def _check_payload(message: Message, size: int) -> None:
    came = f"{len(message.payload)} bytes in {message!r}"
    check(len(message.payload) == size, f"a payload of {size} bytes", came, COLUMNS_AGREE)


def _explained(outcome: Outcome) -> str:
    if outcome.status in ("failed", "lost"):
        try:
            return f"{outcome.status}: {outcome.failure!r}"
        except Violation:
            pass
    return repr(outcome)
