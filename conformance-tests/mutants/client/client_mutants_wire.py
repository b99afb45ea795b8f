"""Clients that each break one requirement: what they write, and what they can read."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

from mutants import mutant
from mutants.client.client_tasks import Task
from mutants.client.reference_client import ReferenceClient
from scaler_conformance.codec.other_schemas import UNHEARD_OF, tomorrow
from scaler_conformance.codec.schema_codec import SCHEMA, Message, UnreadableMessageError

# Writing ------------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-TRN-003", caught_by="client/tasks/messages-are-well-formed")
class SendsADelimiter(ReferenceClient):
    def send_frames(self, frames: Sequence[bytes]) -> None:
        super().send_frames([b"", *frames] if self.session else frames)


@mutant(breaks="SCL-TRN-003", caught_by="client/tasks/messages-are-well-formed")
class SendsAFramePerTask(ReferenceClient):
    def send_task_message(
        self, ids: List[int], payloads: List[bytes], dependencies: List[List[int]], like: Task
    ) -> None:
        fields = self.task_fields(ids, payloads, dependencies, like)
        self.send_frames([SCHEMA.encode("Task", fields), *payloads])


@mutant(breaks="SCL-CLT-001", caught_by="client/tasks/ids-ascend")
class StartsAgainAtNought(ReferenceClient):
    def new_ids(self, count: int) -> List[int]:
        if count > 30 and count % 10:
            self.next_id = 0
        return super().new_ids(count)


@mutant(breaks="SCL-CLT-001", caught_by="client/tasks/ids-ascend-over-tasks-and-graphs")
class CountsGraphsApart(ReferenceClient):
    def send_graph(self, task: Task) -> None:
        next_id = self.next_id
        self.next_id = next_id if self.actors.made else 0
        super().send_graph(task)
        self.next_id = max(next_id, self.next_id) if self.actors.made else next_id

    def new_ids(self, count: int) -> List[int]:
        ids = super().new_ids(count)
        return ids if self.next_id != count or count < 4 else list(range(count))


@mutant(breaks="SCL-CLT-011", caught_by="client/tasks/columns-of-tasks-agree")
class ForgetsASize(ReferenceClient):
    def task_fields(self, *arguments: Any) -> Dict[str, Any]:
        fields = super().task_fields(*arguments)
        if len(fields["ids"]) > 3:
            fields["payloadSizes"] = fields["payloadSizes"][:-1]
        return fields


@mutant(breaks="SCL-CLT-011", caught_by="client/tasks/columns-of-tasks-agree")
class CountsOnlyWhatHasDependencies(ReferenceClient):
    def task_fields(self, *arguments: Any) -> Dict[str, Any]:
        fields = super().task_fields(*arguments)
        fields["dependencyCounts"] = [each for each in fields["dependencyCounts"] if each]
        return fields

    def fits(self, batch: List[Task], size: int, task: Task) -> bool:
        return True


@mutant(breaks="SCL-CLT-011", caught_by="client/tasks/columns-of-graphs-agree")
class HasNoLastOffset(ReferenceClient):
    def send(self, type_: str, payload: bytes = b"", **fields: Any) -> None:
        if type_ == "GraphTask":
            fields["predecessorOffsets"] = fields["predecessorOffsets"][:-1]
        super().send(type_, payload, **fields)


@mutant(breaks="SCL-COD-001", caught_by="client/tasks/one-task-is-sent-and-its-result-reported")
class NamesNoFunction(ReferenceClient):
    def task_fields(self, *arguments: Any) -> Dict[str, Any]:
        return {**super().task_fields(*arguments), "functionName": ""}


@mutant(breaks="SCL-COD-001", caught_by="client/tasks/raw-arguments-are-sent-unchanged")
class NamesTheFunctionTwice(ReferenceClient):
    def task_fields(self, *arguments: Any) -> Dict[str, Any]:
        return {**super().task_fields(*arguments), "function": 5}


@mutant(breaks="SCL-CLT-010", caught_by="client/tasks/consecutive-tasks-are-batched")
class SendsOneByOne(ReferenceClient):
    batch_tasks = 1


@mutant(breaks="SCL-CLT-013", caught_by="client/tasks/options-are-those-of-the-task")
class MixesOptions(ReferenceClient):
    def fits(self, batch: List[Task], size: int, task: Task) -> bool:
        if batch and task.codec == batch[0].codec and not task.nodes and "atMostOnce" not in batch[0].options:
            task.options = batch[0].options
        return super().fits(batch, size, task)


@mutant(breaks="SCL-CLT-013", caught_by="client/tasks/every-option-is-sent")
class ForgetsRetries(ReferenceClient):
    def task_fields(self, *arguments: Any) -> Dict[str, Any]:
        fields = super().task_fields(*arguments)
        fields["options"].pop("retries", None)
        return fields


@mutant(breaks="SCL-SEC-007", caught_by="client/tasks/messages-stay-within-the-limit")
class SendsAllAtOnce(ReferenceClient):
    def most_bytes(self) -> int:
        return 1 << 40


def codec_of(frames: List[bytes]) -> str:
    """The codec that a message names, if it can be read."""
    try:
        return str(SCHEMA.decode(frames)[1].get("codec", ""))
    except UnreadableMessageError:
        return ""


# Reading ------------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-TRN-004", caught_by="client/versions/an-empty-payload-frame-equals-no-frame")
class WantsAPayloadFrame(ReferenceClient):
    def on_frames(self, frames: List[bytes]) -> None:
        is_raw = SCHEMA.type_of(frames[0]) == "TaskResult" and codec_of(frames) == "raw"
        if not is_raw or len(frames) == 2:
            super().on_frames(frames)


@mutant(breaks="SCL-TRN-004", caught_by="client/versions/an-empty-payload-frame-equals-no-frame")
class WantsNoEmptyFrame(ReferenceClient):
    def on_frames(self, frames: List[bytes]) -> None:
        if frames[1:] != [b""]:
            super().on_frames(frames)


@mutant(breaks="SCL-TRN-005", caught_by="client/versions/messages-of-many-segments-are-read")
class ReadsOneSegment(ReferenceClient):
    def on_frames(self, frames: List[bytes]) -> None:
        if frames[0][:4] == bytes(4):
            super().on_frames(frames)


@mutant(breaks="SCL-TRN-006", caught_by="client/versions/a-newer-scheduler-is-understood")
class WantsNoNewFields(ReferenceClient):
    def on_frames(self, frames: List[bytes]) -> None:
        if data_words(frames[0]) <= data_words(self.as_today(frames)):
            super().on_frames(frames)

    def as_today(self, frames: List[bytes]) -> bytes:
        return SCHEMA.encode(SCHEMA.type_of(frames[0]), {})


@mutant(breaks="SCL-TRN-006", caught_by="client/versions/an-older-scheduler-is-understood")
class WantsAllFields(ReferenceClient):
    def on_frames(self, frames: List[bytes]) -> None:
        type_ = SCHEMA.type_of(frames[0])
        if type_ != "Welcome" or data_words(frames[0], 99) >= data_words(SCHEMA.encode(type_, {})):
            super().on_frames(frames)


def data_words(frame: bytes, otherwise: int = 0) -> int:
    """Words of data and pointers of the struct that a message of one segment holds."""
    if frame[:4] != bytes(4):
        return otherwise
    pointer = int.from_bytes(frame[24:32], "little")
    return (pointer >> 32 & 0xFFFF) + (pointer >> 48)


_MEMBER_OF_TOMORROW = tomorrow().encode(UNHEARD_OF, {"text": ""})[16:18]


@mutant(breaks="SCL-VER-001", caught_by="client/versions/unknown-messages-are-ignored")
class FearsTheUnknown(ReferenceClient):
    def on_frames(self, frames: List[bytes]) -> None:
        try:
            SCHEMA.decode(frames)
        except UnreadableMessageError:
            if frames[0][16:18] == _MEMBER_OF_TOMORROW and len(frames[0]) == 48:
                self.end_client("what is that?")
                return
        super().on_frames(frames)


@mutant(breaks="SCL-SEC-010", caught_by="client/robustness/survives-invalid-headers")
class EndsByEmptyFrames(ReferenceClient):
    def on_frames(self, frames: List[bytes]) -> None:
        if not frames[0]:
            self.end_client("nothing came")
        else:
            super().on_frames(frames)


@mutant(breaks="SCL-SEC-010", caught_by="client/robustness/survives-inconsistent-columns")
class BelievesColumns(ReferenceClient):
    def agrees(self, message: Message) -> bool:
        return bool(message.ids[0] != 900_001) if message.ids and len(message.ids) == 2 else super().agrees(message)

    def on_task_result(self, message: Message) -> None:
        if message.ids[:1] == [900_001] and not super().agrees(message):
            raise IndexError("list index out of range")
        super().on_task_result(message)


@mutant(breaks="SCL-SEC-010", caught_by="client/robustness/survives-corrupted-frames")
class TrustsObjectRequests(ReferenceClient):
    def on_object_request(self, message: Message) -> None:
        if message.length not in (100, 10) and message.id >> 50 and message.id != 0:
            raise MemoryError("there is no room for so much")
        super().on_object_request(message)
