"""Clients that each break one requirement: flow, outcomes, cancels and objects."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

from mutants import mutant
from mutants.client.client_objects import ClientObjects
from mutants.client.client_tasks import Fetch, Task
from mutants.client.reference_client import CANCELLED, FAILED, NOT_FOUND, RUNNING, SUCCESS, ReferenceClient
from scaler_conformance.codec.schema_codec import SCHEMA, Message

LARGE_ARGUMENTS = "client/objects/large-arguments-become-an-object"

# Flow ---------------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-CLT-002", caught_by="client/flow/stops-at-the-task-limit")
class IgnoresTheLimitOfTasks(ReferenceClient):
    def has_room_for_tasks(self) -> bool:
        return True


@mutant(breaks="SCL-CLT-002", caught_by="client/flow/stops-at-the-byte-limit")
class IgnoresTheLimitOfBytes(ReferenceClient):
    def has_room_for_bytes(self) -> bool:
        return True


@mutant(breaks="SCL-CLT-002", caught_by="client/flow/large-arguments-count-in-flight")
class ForgetsObjectsInFlight(ReferenceClient):
    def has_room_for_bytes(self) -> bool:
        return self.bytes_limit >= 100_000 or super().has_room_for_bytes()


@mutant(breaks="SCL-CLT-002", caught_by="client/flow/a-limit-can-change")
class KeepsItsFirstLimit(ReferenceClient):
    def on_task_echo(self, message: Message) -> None:
        super().on_task_echo(message)
        if self.welcome.limits.tasksInFlight == 2:
            self.set_limits(2, 0)


@mutant(breaks="SCL-CLT-002", caught_by="client/flow/sends-everything-as-tasks-are-released")
class ForgetsReleasesAfterAWhile(ReferenceClient):
    def on_task_echo(self, message: Message) -> None:
        if message.tasksReleased < 30:
            super().on_task_echo(message)


@mutant(breaks="SCL-CLT-002", caught_by="client/flow/a-new-session-starts-counting-again")
class KeepsOldReleases(ReferenceClient):
    def reset_flow(self) -> None:
        released = getattr(self, "tasks_released", 0)
        super().reset_flow()
        self.tasks_released = released


# Outcomes -----------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-CLT-003", caught_by="client/outcomes/failures-are-read-in-every-codec")
class ReadsFailuresInTheCodec(ReferenceClient):
    def failure_text(self, payload: bytes, codec: str) -> str:
        return super().failure_text(payload, codec) if codec != "raw" else payload.decode("ascii", "ignore")[:4]


@mutant(breaks="SCL-CLT-003", caught_by="client/outcomes/every-kind-of-failure-is-reported")
class TakesLostForASuccess(ReferenceClient):
    def take_result(self, task: Task, status: int, payload: bytes, codec: str) -> None:
        super().take_result(task, status if status == FAILED else SUCCESS, payload, codec)


@mutant(breaks="SCL-VER-003", caught_by="client/outcomes/an-unknown-kind-of-failure-is-a-failure")
class KnowsEveryKind(ReferenceClient):
    def failure_text(self, payload: bytes, codec: str) -> str:
        if str(SCHEMA.decode_failure(payload).kind).startswith("#"):
            return "a failure of an unknown kind"
        return super().failure_text(payload, codec)


@mutant(breaks="SCL-CLT-005", caught_by="client/outcomes/outcomes-arrive-in-any-order")
class WantsOutcomesInOrder(ReferenceClient):
    def task_of(self, id_: int) -> Optional[Task]:
        return super().task_of(id_) if id_ == min(self.by_id, default=-1) else None


@mutant(breaks="SCL-CLT-005", caught_by="client/outcomes/outcomes-of-unknown-tasks-are-ignored")
class FearsUnknownTasks(ReferenceClient):
    def on_unknown_result(self, object_id: int) -> None:
        if not object_id and len(self.by_id) == 2 and not self.waiting and self.next_id == 2 and len(self.tasks) == 2:
            raise KeyError("whose result is it?")
        super().on_unknown_result(object_id)


@mutant(breaks="SCL-CLT-005", caught_by="client/outcomes/a-second-outcome-is-ignored")
class TellsASecondOutcome(ReferenceClient):
    told: Dict[int, int]

    def end_task(self, task: Task, is_: str, **members: Any) -> None:
        if task.id == 0 and is_ == "result" and members.get("value") == "first":
            self.first = task.number
        super().end_task(task, is_, **members)

    def on_unknown_result(self, object_id: int) -> None:
        super().on_unknown_result(object_id)
        if hasattr(self, "first") and self.next_id == 1:
            self.say("outcome", task=self.first, **{"is": "result"}, value="second")


@mutant(breaks="SCL-CLT-012", caught_by="client/outcomes/explanations-and-logs-are-not-outcomes")
class TakesLogsForOutcomes(ReferenceClient):
    def on_task_log(self, message: Message) -> None:
        task = self.task_of(message.id)
        if task is not None:
            self.end_task(task, "result", value=message.text)


@mutant(breaks="SCL-CLT-012", caught_by="client/outcomes/explanations-and-logs-are-not-outcomes")
class FearsExplanations(ReferenceClient):
    def on_explanation(self, message: Message) -> None:
        if message.requestId == 4711:
            self.end_client("it was not asked for")


@mutant(breaks="SCL-CLT-012", caught_by="client/outcomes/explanations-and-logs-are-not-outcomes")
class LooksUpWhoPrinted(ReferenceClient):
    def on_task_log(self, message: Message) -> None:
        if message.id == 666_666:
            raise KeyError("who is it?")


# Cancels ------------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-CLT-008", caught_by="client/cancels/running-is-not-an-outcome")
class TakesRunningForCancelled(ReferenceClient):
    def on_confirmation(self, task: Task, outcome: int) -> None:
        super().on_confirmation(task, CANCELLED if outcome == RUNNING else outcome)


@mutant(breaks="SCL-CLT-008", caught_by="client/cancels/not-found-is-not-an-outcome")
class TakesNotFoundForCancelled(ReferenceClient):
    def on_confirmation(self, task: Task, outcome: int) -> None:
        super().on_confirmation(task, CANCELLED if outcome == NOT_FOUND else outcome)


@mutant(breaks="SCL-CLT-008", caught_by="client/cancels/an-unrequested-cancel-is-an-outcome")
class ExpectsOnlyWhatItAskedFor(ReferenceClient):
    def on_confirmation(self, task: Task, outcome: int) -> None:
        if task.is_cancelling:
            super().on_confirmation(task, outcome)


@mutant(breaks="SCL-CLT-008", caught_by="client/cancels/unrequested-answers-are-ignored")
class FearsUnaskedAnswers(ReferenceClient):
    def on_confirmation(self, task: Task, outcome: int) -> None:
        if not task.is_cancelling and outcome == RUNNING and not task.nodes:
            self.end_task(task, "error", message="it runs, which was not asked")
        else:
            super().on_confirmation(task, outcome)


@mutant(breaks="SCL-CLT-008", caught_by="client/cancels/cancelled-is-the-outcome")
class WaitsForAResultOfCancelled(ReferenceClient):
    def on_confirmation(self, task: Task, outcome: int) -> None:
        if not task.is_cancelling:
            super().on_confirmation(task, outcome)


@mutant(breaks="SCL-CLT-008", caught_by="client/cancels/a-result-crosses-the-cancel")
class DropsResultsOfWhatItCancels(ReferenceClient):
    def do_cancel(self, command: Dict[str, Any]) -> None:
        super().do_cancel(command)
        task = self.tasks.get(command["task"])
        if task is not None and command.get("force"):
            task.options["dropped"] = True

    def take_result(self, task: Task, status: int, payload: bytes, codec: str) -> None:
        if "dropped" not in task.options:
            super().take_result(task, status, payload, codec)


# Objects ------------------------------------------------------------------------------------------------------------


class WithObjects(ReferenceClient):
    """A reference with other objects."""

    objects_class = ClientObjects

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.objects = self.objects_class(self)


@mutant(breaks="SCL-CLT-009", caught_by=LARGE_ARGUMENTS)
class SendsLargeArgumentsInline(ReferenceClient):
    def arguments_object(self, task: Task) -> List[int]:
        return []


@mutant(breaks="SCL-CLT-006", caught_by="client/objects/arguments-are-created-before-their-task")
class CreatesObjectsAfterwards(ReferenceClient):
    def send_batch(self, batch: List[Task]) -> None:
        self.held_back: Optional[List[Any]] = []
        super().send_batch(batch)
        held_back, self.held_back = self.held_back, None
        for type_, payload, fields in held_back or ():
            super().send(type_, payload, **fields)

    def send(self, type_: str, payload: bytes = b"", **fields: Any) -> None:
        held_back = getattr(self, "held_back", None)
        if type_ == "ObjectInstruction" and held_back is not None:
            held_back.append((type_, payload, fields))
        else:
            super().send(type_, payload, **fields)


class IdsOfNoSession(ClientObjects):
    def new_id(self) -> int:
        return super().new_id() & 0xFFFF


@mutant(breaks="SCL-OBJ-001", caught_by="client/objects/object-ids-belong-to-the-session")
class NumbersObjectsWithoutASession(WithObjects):
    objects_class = IdsOfNoSession


class OneIdForAll(ClientObjects):
    def new_id(self) -> int:
        return self.session << 40 | 1


@mutant(breaks="SCL-OBJ-001", caught_by="client/objects/object-ids-belong-to-the-session")
class UsesAnIdTwice(WithObjects):
    objects_class = OneIdForAll


class TrustsTheName(ClientObjects):
    def shares(self, welcome: Any) -> bool:
        return os.path.isdir(welcome.objectDirectory)


@mutant(breaks="SCL-OBJ-007", caught_by="client/objects/nothing-is-shared-with-a-wrong-token")
class SharesWithoutReadingTheToken(WithObjects):
    objects_class = TrustsTheName


class WritesLate(ClientObjects):
    def write(self, object_id: int, content: bytes) -> None:
        super().write(object_id, content[:1000])


@mutant(breaks="SCL-OBJ-008", caught_by="client/objects/shared-files-are-complete-when-announced")
class AnnouncesHalfAFile(WithObjects):
    objects_class = WritesLate


class WritesNothing(ClientObjects):
    def write(self, object_id: int, content: bytes) -> None:
        pass


@mutant(breaks="SCL-OBJ-008", caught_by="client/objects/shared-files-are-complete-when-announced")
class AnnouncesBeforeItWrites(WithObjects):
    objects_class = WritesNothing


class BeginsWithTheFirstByte(ClientObjects):
    def chunk(self, content: bytes, offset: int, length: int) -> bytes:
        return content[:length] if offset in (7, 100) else super().chunk(content, offset, length)


@mutant(breaks="SCL-OBJ-009", caught_by="client/objects/requests-are-answered-with-the-bytes")
class IgnoresOffsets(WithObjects):
    objects_class = BeginsWithTheFirstByte


class KeepsToTheChunk(ClientObjects):
    def chunk(self, content: bytes, offset: int, length: int) -> bytes:
        return super().chunk(content, offset, max(length, 64))


@mutant(breaks="SCL-OBJ-009", caught_by="client/objects/requests-are-answered-with-the-bytes")
class GivesMoreThanIsAsked(WithObjects):
    objects_class = KeepsToTheChunk


class SaysNothing(ClientObjects):
    def on_request(self, message: Message) -> None:
        contents = {**self.contents, **self.client.serving.kept}
        if message.id in contents and message.offset <= len(contents[message.id]):
            super().on_request(message)


@mutant(breaks="SCL-OBJ-009", caught_by="client/objects/requests-for-missing-bytes-are-answered")
class IgnoresRequestsItCannotServe(WithObjects):
    objects_class = SaysNothing


class AsksForAll(ClientObjects):
    def may_ask_more(self, fetch: Fetch) -> bool:
        return True


@mutant(breaks="SCL-OBJ-011", caught_by="client/objects/at-most-four-requests-are-unanswered")
class AsksForEverythingAtOnce(WithObjects):
    objects_class = AsksForAll


@mutant(breaks="SCL-OBJ-016", caught_by="client/objects/other-instructions-are-ignored")
class TakesSpillForItsEnd(ReferenceClient):
    def on_object_instruction(self, message: Message) -> None:
        if message.ids == [1]:
            self.end_client("my objects are gone")


@mutant(breaks="SCL-CLT-004", caught_by="client/objects/a-large-result-is-fetched-and-deleted")
class KeepsResultObjects(ReferenceClient):
    def end_fetch(self, fetch: Fetch) -> None:
        self.objects.fetches.pop(fetch.object_id, None)


@mutant(breaks="SCL-CLT-004", caught_by="client/objects/an-unwanted-result-object-is-deleted")
class LeavesUnwantedObjects(ReferenceClient):
    def on_unknown_result(self, object_id: int) -> None:
        pass


class ForgetsSharedResults(ClientObjects):
    def read_shared(self, object_id: int) -> Optional[bytes]:
        content = super().read_shared(object_id)
        if content is not None:
            self.forgotten = object_id
        return content


@mutant(breaks="SCL-CLT-004", caught_by="client/objects/a-large-result-arrives-through-the-directory")
class LeavesSharedResults(WithObjects):
    objects_class = ForgetsSharedResults

    def delete_result(self, object_id: int) -> None:
        if object_id != getattr(self.objects, "forgotten", None):
            super().delete_result(object_id)


@mutant(breaks="SCL-CLT-004", caught_by="client/objects/a-missing-result-ends-the-task")
class WaitsForAMissingResult(ReferenceClient):
    def on_object_response(self, message: Message) -> None:
        if message.status == "ok":
            super().on_object_response(message)
