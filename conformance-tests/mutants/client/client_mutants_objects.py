"""Clients that each break one requirement: objects that the user creates, calls for many tasks, and shutdown."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Set

from mutants import mutant
from mutants.client.client_mutants_work import WithObjects
from mutants.client.client_objects import ClientObjects
from mutants.client.client_tasks import Task
from mutants.client.reference_client import ReferenceClient
from scaler_conformance.codec.schema_codec import Message


@mutant(breaks="SCL-CLT-006", caught_by="client/user-objects/objects-are-created-before-their-tasks")
class CreatesTheSecondObjectLate(ReferenceClient):
    """If there are two, the second is created only after the task that needs it."""

    late: Sequence[Any] = ()

    def send(self, type_: str, payload: bytes = b"", **fields: Any) -> None:
        is_second = fields.get("kinds") == [0] and len(self.objects.user_objects) == 1
        if type_ == "ObjectInstruction" and is_second:
            self.late = [(payload, fields)]
            return
        super().send(type_, payload, **fields)
        if type_ == "Task" and self.late:
            ((payload, fields),), self.late = self.late, ()
            super().send("ObjectInstruction", payload, **fields)


@mutant(breaks="SCL-CLT-006", caught_by="client/user-objects/objects-serve-many-tasks")
class DeletesObjectsAfterTheirTask(ReferenceClient):
    tasks_with_objects = 0

    def end_session(self) -> None:
        super().end_session()
        self.tasks_with_objects = 0  # what is sent again is no second task

    def send_batch(self, batch: List[Task]) -> None:
        super().send_batch(batch)
        self.tasks_with_objects += any(each.needs for each in batch)
        if self.tasks_with_objects == 2 and self.objects.next_number == 2:
            self.send("ObjectInstruction", action="delete", ids=list(self.objects.user_objects.values()))


class CutsAtChunks(ClientObjects):
    def chunk(self, content: bytes, offset: int, length: int) -> bytes:
        within = self.chunk_bytes - offset % self.chunk_bytes if self.user_objects else length
        return super().chunk(content, offset, min(length, within))


@mutant(breaks="SCL-OBJ-009", caught_by="client/user-objects/large-objects-are-served-in-chunks")
class CutsPiecesAtChunks(WithObjects):
    objects_class = CutsAtChunks


class RestartsNumbersWhenCleared(ClientObjects):
    def delete_user_objects(self) -> None:
        super().delete_user_objects()
        self.next_number = 1


@mutant(breaks="SCL-OBJ-001", caught_by="client/user-objects/cleared-objects-are-not-used-again")
class UsesIdsAgainAfterClear(WithObjects):
    objects_class = RestartsNumbersWhenCleared


class KeepsUserObjects(ClientObjects):
    def clear(self) -> None:
        kept = dict(self.user_objects)
        super().clear()
        self.user_objects = kept


@mutant(breaks="SCL-SES-021", caught_by="client/user-objects/objects-are-created-again-in-a-new-session")
class NamesObjectsOfTheOldSession(WithObjects):
    objects_class = KeepsUserObjects


@mutant(breaks="SCL-CLT-010", caught_by="client/user-objects/map-is-batched")
class MapsOneByOne(ReferenceClient):
    def do_map(self, command: Dict[str, Any]) -> None:
        for task, arguments in zip(command["tasks"], command["arguments"]):
            self.do_submit({**command, "tasks": [task], "arguments": [arguments]})
            self.send_waiting()


@mutant(breaks="SCL-CLT-005", caught_by="client/user-objects/wait-ends-with-the-last-outcome")
class WaitsForTheNewestAlone(ReferenceClient):
    def must_wait(self, tasks: Set[int]) -> bool:
        return max(tasks) in self.tasks


@mutant(breaks="SCL-CLT-014", caught_by="client/session/a-refused-shutdown-does-not-end-the-session")
class EndsAlthoughItsShutdownIsRefused(ReferenceClient):
    def on_client_shutdown_response(self, message: Message) -> None:
        super().on_client_shutdown_response(message)
        if not message.accepted:
            self.end_client("it asked for the end")
