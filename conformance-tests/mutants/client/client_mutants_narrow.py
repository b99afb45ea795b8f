"""Clients that break a requirement in one situation, so that one case alone sees it.

Rule: each is here because a mutant that breaks the same requirement everywhere is caught by several cases.
"""

from __future__ import annotations

import json
import time
from typing import Any, Dict, List, Sequence

from mutants import mutant
from mutants.client.client_mutants_work import WithObjects
from mutants.client.client_objects import ClientObjects
from mutants.client.client_tasks import Fetch, Task
from mutants.client.reference_client import CANCELLED, LOST, NOT_FOUND, RUNNING, ReferenceClient
from scaler_conformance.codec.schema_codec import SCHEMA, Message

GRAPH_OF_FIVE = 5

# Sessions -----------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-SES-001", caught_by="client/session/says-hello-first")
class SaysItsVersionsBackwards(ReferenceClient):
    def hello(self) -> Dict[str, Any]:
        return {**super().hello(), "minorMin": 1}


@mutant(breaks="SCL-SEC-013", caught_by="client/session/hello-has-at-most-64-kib")
class SaysALongHello(ReferenceClient):
    def hello(self) -> Dict[str, Any]:
        hello = super().hello()
        return {**hello, "features": [*hello["features"], "x" * (64 << 10)]}


@mutant(breaks="SCL-SES-014", caught_by="client/session/a-heartbeat-with-the-welcome-is-echoed")
class IsDeafWhileItBegins(ReferenceClient):
    """It drops what arrives together with the Welcome."""

    turns = 0
    deaf_turn = -1

    def turn(self) -> None:
        self.turns += 1
        super().turn()

    def react(self, message: Message) -> None:
        if self.turns == self.deaf_turn:
            return
        if message.type == "Welcome" and self.welcome is None:
            self.deaf_turn = self.turns
            time.sleep(0.05)
        super().react(message)


@mutant(breaks="SCL-SES-019", caught_by="client/session/announces-that-it-leaves")
class StaysWhenItMayLeave(ReferenceClient):
    leaving_seconds = 0.5

    def on_disconnect_response(self, message: Message) -> None:
        if self.has_input:
            self.leave_at = None
        else:
            super().on_disconnect_response(message)


@mutant(breaks="SCL-SES-023", caught_by="client/recovery/reconnects-to-a-restarted-scheduler")
class SendsAgainWhatHasItsResult(ReferenceClient):
    """Only if that is a single task."""

    done: Sequence[Task] = ()

    def end_task(self, task: Task, is_: str, **members: Any) -> None:
        super().end_task(task, is_, **members)
        self.done = [*self.done, *([task] if is_ == "result" else [])]

    def end_session(self) -> None:
        super().end_session()
        if len(self.done) == 1:
            self.waiting += self.done


# What is sent -------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-COD-001", caught_by="client/tasks/one-task-is-sent-and-its-result-reported")
class ReadsLettersOfEnglishAlone(ReferenceClient):
    def value_of(self, payload: bytes, task: Task) -> Any:
        return super().value_of(payload.replace(b"\\u", b"\\\\u"), task)


@mutant(breaks="SCL-COD-001", caught_by="client/tasks/raw-arguments-are-sent-unchanged")
class ReadsRawResultsAsJson(ReferenceClient):
    def value_of(self, payload: bytes, task: Task) -> Any:
        if task.codec == "raw" and payload:
            return "result", {"value": json.dumps(payload.decode())}
        return super().value_of(payload, task)


@mutant(breaks="SCL-CLT-011", caught_by="client/tasks/columns-of-tasks-agree")
class ForgetsACountOfObjects(ReferenceClient):
    """Only if a message has two of them, both arguments."""

    def task_fields(self, ids: List[int], payloads: List[bytes], dependencies: List[List[int]], like: Task) -> Any:
        fields = super().task_fields(ids, payloads, dependencies, like)
        if len(fields["dependencies"]) == 2 and not (self.bytes_limit or like.needs):
            fields["dependencyCounts"] = fields["dependencyCounts"][:-1]
        return fields


@mutant(breaks="SCL-CLT-010", caught_by="client/tasks/consecutive-tasks-are-batched")
class SendsVeryManyOneByOne(ReferenceClient):
    def fits(self, batch: List[Task], size: int, task: Task) -> bool:
        return super().fits(batch, size, task) and not (batch and len(self.tasks) > 300)


@mutant(breaks="SCL-CLT-011", caught_by="client/tasks/columns-of-graphs-agree")
class LosesAnEdgeOfALongGraph(ReferenceClient):
    def send(self, type_: str, payload: bytes = b"", **fields: Any) -> None:
        if type_ == "GraphTask" and len(fields["ids"]) == GRAPH_OF_FIVE:
            fields["predecessors"] = fields["predecessors"][:-1]
        super().send(type_, payload, **fields)


@mutant(breaks="SCL-TRN-003", caught_by="client/tasks/messages-are-well-formed")
class AppendsFramesToItsFarewell(ReferenceClient):
    """Only if it had objects."""

    def leave(self) -> None:
        if self.objects.next_number > 1 and self.has_input:
            self.send_frames([SCHEMA.encode("DisconnectRequest", {"reason": "leaving"}), b"", b""])
        super().leave()


# Flow ---------------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-CLT-002", caught_by="client/flow/stops-at-the-task-limit")
class IgnoresALimitOfThree(ReferenceClient):
    def has_room_for_tasks(self) -> bool:
        return self.tasks_limit == 3 or super().has_room_for_tasks()


@mutant(breaks="SCL-CLT-002", caught_by="client/flow/stops-at-the-byte-limit")
class CountsLargeArgumentsAlone(ReferenceClient):
    def has_room_for_bytes(self) -> bool:
        return super().has_room_for_bytes() or all(
            len(each.payload) < self.welcome.limits.inlineBytes for each in self.tasks.values()
        )


# Outcomes -----------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-CLT-005", caught_by="client/outcomes/outcomes-arrive-in-any-order")
class WantsTheOutcomesOfAMessageInOrder(ReferenceClient):
    def on_task_result(self, message: Message) -> None:
        known = [each for each in message.ids if each in self.by_id]
        if known == sorted(known):
            super().on_task_result(message)


@mutant(breaks="SCL-CLT-003", caught_by="client/outcomes/every-kind-of-failure-is-reported")
class HidesWhyATaskWasLost(ReferenceClient):
    def take_result(self, task: Task, status: int, payload: bytes, codec: str) -> None:
        if status == LOST and str(SCHEMA.decode_failure(payload).kind) == "workerLost":
            self.end_task(task, "error", message="it was lost")
        else:
            super().take_result(task, status, payload, codec)


@mutant(breaks="SCL-CLT-008", caught_by="client/cancels/running-is-not-an-outcome")
class TakesTheRunningItAskedForForCancelled(ReferenceClient):
    def on_confirmation(self, task: Task, outcome: int) -> None:
        super().on_confirmation(task, CANCELLED if outcome == RUNNING and task.is_cancelling else outcome)


@mutant(breaks="SCL-CLT-008", caught_by="client/cancels/not-found-is-not-an-outcome")
class TakesTheNotFoundItAskedForForCancelled(ReferenceClient):
    def on_confirmation(self, task: Task, outcome: int) -> None:
        super().on_confirmation(task, CANCELLED if outcome == NOT_FOUND and task.is_cancelling else outcome)


# Objects ------------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-CLT-006", caught_by="client/objects/arguments-are-created-before-their-task")
class CreatesTheThirdObjectLate(ReferenceClient):
    """Only of messages with three."""

    created = 0
    late: Sequence[Any] = ()

    def send_batch(self, batch: List[Task]) -> None:
        self.created = 0
        super().send_batch(batch)

    def send(self, type_: str, payload: bytes = b"", **fields: Any) -> None:
        if type_ == "ObjectInstruction" and fields["action"] == "create" and not self.objects.directory:
            self.created += 1
            if self.created == 3 and len(self.tasks) == 3:
                self.late = [fields]
                return
        super().send(type_, payload, **fields)
        if type_ == "Task" and self.late:
            (fields,), self.late = self.late, ()
            super().send("ObjectInstruction", **fields)


class CountsSessionsBySixteenBits(ClientObjects):
    def new_id(self) -> int:
        return super().new_id() & ((1 << 56) - 1)


@mutant(breaks="SCL-OBJ-001", caught_by="client/objects/object-ids-belong-to-the-session")
class NumbersSessionsBySixteenBits(WithObjects):
    objects_class = CountsSessionsBySixteenBits


@mutant(breaks="SCL-CLT-004", caught_by="client/objects/a-large-result-is-fetched-and-deleted")
class KeepsResultsOfAFewChunks(ReferenceClient):
    def end_fetch(self, fetch: Fetch) -> None:
        chunks = len(fetch.content) // self.objects.chunk_bytes
        if 1 < chunks < 8 and not self.objects.directory:
            self.objects.fetches.pop(fetch.object_id, None)
        else:
            super().end_fetch(fetch)


# Versions and faults ------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-TRN-006", caught_by="client/versions/a-newer-scheduler-is-understood")
class WantsNoNewFieldsInResults(ReferenceClient):
    def on_frames(self, frames: List[bytes]) -> None:
        if SCHEMA.type_of(frames[0]) != "TaskResult" or not self.is_longer(frames[0]):
            super().on_frames(frames)

    def is_longer(self, frame: bytes) -> bool:
        return frame[:4] == bytes(4) and words_of(frame) > words_of(SCHEMA.encode("TaskResult", {}))


def words_of(frame: bytes) -> int:
    """Words of data and pointers of the struct that a message of one segment holds."""
    pointer = int.from_bytes(frame[24:32], "little")
    return (pointer >> 32 & 0xFFFF) + (pointer >> 48)


@mutant(breaks="SCL-SEC-010", caught_by="client/robustness/survives-invalid-headers")
class EndsByText(ReferenceClient):
    def on_frames(self, frames: List[bytes]) -> None:
        if frames[0] and frames[0].isascii() and frames[0].decode().isprintable():
            self.end_client("what is that?")
        else:
            super().on_frames(frames)


@mutant(breaks="SCL-SES-018", caught_by="client/session/answers-while-it-leaves")
class LeavesInSilence(ReferenceClient):
    def on_disconnect_request(self, message: Message) -> None:
        if self.is_leaving:
            self.end_client("it has left")
        else:
            super().on_disconnect_request(message)


@mutant(breaks="SCL-TRN-011", caught_by="client/session/all-bits-of-sequences-are-kept")
class RoundsSequences(ReferenceClient):
    def on_heartbeat(self, message: Message) -> None:
        self.send("HeartbeatEcho", sequence=min(int(float(message.sequence)), 2**64 - 1))


@mutant(breaks="SCL-SES-018", caught_by="client/session/a-request-to-drain-is-a-shutdown")
class StaysToDrain(ReferenceClient):
    def on_disconnect_request(self, message: Message) -> None:
        if message.reason != "draining":
            super().on_disconnect_request(message)
