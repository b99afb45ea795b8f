"""Workers that each break one requirement: the objects that they need, and those that they make."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, List, Sequence, Tuple

from mutants import mutant, part_mutant
from mutants.worker.reference_worker import LOST, NOT_FOUND, SUCCESS, ReferenceWorker
from mutants.worker.worker_objects import SHARED, WorkerObjects
from mutants.worker.worker_tasks import Outcome, Task
from scaler_conformance.codec.schema_codec import Message

object_mutant = partial(part_mutant, ReferenceWorker, "make_objects")
"""Makes a mutant whose objects are of this class."""


# Needed objects -----------------------------------------------------------------------------------------------------


@object_mutant(breaks="SCL-OBJ-017", caught_by="worker/objects/remote-object-is-fetched")
class FetchesOneChunk(WorkerObjects):
    def on_response(self, message: Message) -> None:
        message.body.__dict__["size"] = min(message.size, len(message.payload))
        super().on_response(message)


@object_mutant(breaks="SCL-OBJ-017", caught_by="worker/objects/object-in-an-unshared-directory-is-fetched")
class BelievesInSharing(WorkerObjects):
    def create_announced(self, message: Message) -> None:
        super().create_announced(message)
        if SHARED in message.storages:
            self.contents.update(dict.fromkeys(message.ids, b"[0]"))


@mutant(breaks="SCL-OBJ-017", caught_by="worker/objects/object-is-used-by-many-tasks")
class FetchesForOneTask(ReferenceWorker):
    def take(self, task: Task) -> None:
        if len(task.batch.ids) < 10 or not task.needs or not self.held:
            super().take(task)


@object_mutant(breaks="SCL-OBJ-011", caught_by="worker/objects/at-most-four-requests-are-unanswered")
class AsksForAllAtOnce(WorkerObjects):
    def may_request(self, fetch: Any) -> bool:
        return bool(fetch.requested < fetch.size) if fetch.size is not None else super().may_request(fetch)


@object_mutant(
    breaks="SCL-OBJ-037", caught_by="worker/objects/answers-to-an-earlier-fetch-are-no-answers-to-a-later-one"
)
class TakesOldAnswers(WorkerObjects):
    def fetch_missing(self, object_ids: List[int]) -> None:
        for each in object_ids:
            if each in self.fetches and len(self.fetches[each].content) == self.chunk_bytes:
                del self.fetches[each]
        super().fetch_missing(object_ids)


@object_mutant(breaks="SCL-WRK-014", caught_by="worker/objects/task-with-a-missing-object-is-lost")
class WaitsForWhatIsMissing(WorkerObjects):
    def on_response(self, message: Message) -> None:
        if message.status == "ok" or b"[1]" not in self.contents.values():
            super().on_response(message)


@object_mutant(breaks="SCL-WRK-014", caught_by="worker/objects/task-with-a-deleted-object-is-lost")
class WaitsForWhatIsDeleted(WorkerObjects):
    def forget(self, object_ids: Sequence[int]) -> None:
        super().forget([each for each in object_ids if each not in self.fetches])


@mutant(breaks="SCL-WRK-002", caught_by="worker/objects/function-that-is-an-object-has-an-outcome")
class LosesObjectFunctions(ReferenceWorker):
    def take(self, task: Task) -> None:
        if not task.function or task.options.actor:
            super().take(task)


@mutant(breaks="SCL-OBJ-020", caught_by="worker/objects/failure-has-the-reason-of-the-answer")
class KeepsReasonsToItself(ReferenceWorker):
    def object_missing(self, task: Task, object_id: int) -> Tuple[int, bytes]:
        return LOST, self.failure(task, "objectMissing", "an object is missing")


@object_mutant(breaks="SCL-OBJ-018", caught_by="worker/objects/deleted-object-is-freed")
class ForgetsNothing(WorkerObjects):
    def forget(self, object_ids: Sequence[int]) -> None:
        super().forget([each for each in object_ids if each not in self.contents])


@object_mutant(breaks="SCL-OBJ-016", caught_by="worker/objects/spill-is-ignored")
class TakesSpillForDelete(WorkerObjects):
    def on_instruction(self, message: Message) -> None:
        super().on_instruction(message)
        if message.action == "spill":
            self.forget(message.ids)


@object_mutant(breaks="SCL-OBJ-016", caught_by="worker/transport/unknown-actions-are-ignored")
class TakesAnythingForDelete(WorkerObjects):
    def on_instruction(self, message: Message) -> None:
        super().on_instruction(message)
        if message.action.startswith("#"):
            self.forget(message.ids)


# Made objects -------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-OBJ-012", caught_by="worker/large-results/large-result-arrives")
class SendsPayloadBesideObject(ReferenceWorker):
    def report(self, outcomes: List[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.object and b"[3]" in outcome.task.batch.payload:
                outcome.payload = b'"x"'
        super().report(outcomes)


@mutant(breaks="SCL-OBJ-012", caught_by="worker/large-results/result-object-is-named-once-and-kept")
class DeletesWhatItMade(ReferenceWorker):
    def on_served(self, object_id: int) -> None:
        made = self.kept.get(object_id)
        super().on_served(object_id)
        if made is not None and made.task.batch.payload == b"[300000]" * 3:
            self.flush()
            self.send("ObjectInstruction", action="delete", ids=[object_id])


@object_mutant(breaks="SCL-OBJ-001", caught_by="worker/large-results/object-ids-belong-to-the-session")
class CountsFromOne(WorkerObjects):
    def new_id(self) -> int:
        self.number += 1
        return self.number


@object_mutant(breaks="SCL-OBJ-009", caught_by="worker/large-results/each-request-gets-its-bytes")
class RoundsItsOffsets(WorkerObjects):
    def chunk(self, content: bytes, offset: int, length: int) -> bytes:
        return super().chunk(content, offset & ~0xFF, length)


@mutant(breaks="SCL-OBJ-013", caught_by="worker/large-results/outcome-follows-the-last-byte")
class ReportsBeforeItWasFetched(ReferenceWorker):
    def keep(self, outcome: Outcome) -> None:
        self.report([outcome])


@object_mutant(breaks="SCL-OBJ-021", caught_by="worker/large-results/kept-result-is-there-after-it-was-fetched")
class DropsWhatWasFetched(WorkerObjects):
    def on_fetched(self, object_id: int) -> None:
        super().on_fetched(object_id)
        if self.keeps and self.mine[object_id].startswith(b'"'):
            del self.mine[object_id]


@object_mutant(breaks="SCL-OBJ-021", caught_by="worker/large-results/task-uses-what-its-worker-keeps")
class AsksForWhatItKeeps(WorkerObjects):
    def keep(self, object_id: int, content: bytes) -> None:
        self.owed.add(object_id)


@object_mutant(breaks="SCL-OBJ-023", caught_by="worker/large-results/draining-worker-hands-over-what-it-keeps")
class LeavesWithWhatItKeeps(WorkerObjects):
    @property
    def owes_any(self) -> bool:
        return False


@object_mutant(breaks="SCL-OBJ-008", caught_by="worker/large-results/shared-object-is-a-file")
class NamesFilesTooEarly(WorkerObjects):
    def write_shared(self, object_id: int, content: bytes) -> None:
        with open(os.path.join(self.directory, f"{object_id:016x}"), "wb") as file:
            file.write(content[: len(content) // 2])


@object_mutant(breaks="SCL-OBJ-007", caught_by="worker/large-results/wrong-token-is-not-trusted")
class TrustsAnyDirectory(WorkerObjects):
    def sees_token(self, welcome: Message) -> bool:
        return bool(welcome.objectDirectory)


@mutant(breaks="SCL-SEC-007", caught_by="worker/large-results/messages-stay-within-the-limit")
class SendsAllInline(ReferenceWorker):
    def finish(self, task: Task, status: int, payload: bytes) -> None:
        if status == SUCCESS and len(payload) > 1 << 20:
            self.report([Outcome(task, status, payload)])
        else:
            super().finish(task, status, payload)


@mutant(breaks="SCL-WRK-024", caught_by="worker/large-results/task-whose-result-is-fetched-is-running")
class ForgetsWhatIsFetched(ReferenceWorker):
    def cancel(self, instance: int, force: bool) -> None:
        if any(outcome.task.id == instance for outcome in self.kept.values()):
            self.confirm(instance, NOT_FOUND)
        else:
            super().cancel(instance, force)
