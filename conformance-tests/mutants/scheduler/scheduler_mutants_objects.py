"""Schedulers that each break one requirement: flow, graphs, objects."""

from __future__ import annotations

from typing import Any, List, Optional

from mutants import mutant
from mutants.scheduler.reference_scheduler import ReferenceScheduler
from mutants.scheduler.scheduler_state import Client, Object, Peer, Refused, Task, Worker
from scaler_conformance.codec.schema_codec import Message


@mutant(breaks="SCL-SCH-026", caught_by="scheduler/flow/releases-are-reported-to-a-client-at-its-limit")
class EchoesNothing(ReferenceScheduler):
    def renew(self, client: Client) -> None:
        pass


@mutant(breaks="SCL-SCH-026", caught_by="scheduler/flow/released-bytes-are-reported")
class EchoesTasksAlone(ReferenceScheduler):
    def renew(self, client: Client) -> None:
        client.bytes_told = client.bytes_released
        super().renew(client)


@mutant(breaks="SCL-SCH-033", caught_by="scheduler/flow/unread-large-results-hold-back-new-work")
class MakesWorkForWhoTakesNothing(ReferenceScheduler):
    def may_make_work(self, client: Client) -> bool:
        return True


# Graphs -------------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-SCH-028", caught_by="scheduler/graphs/nodes-wait-for-all-their-predecessors")
class WaitsForOnePredecessor(ReferenceScheduler):
    def is_done(self, node: Task) -> bool:
        node.result = node.result if node.result is not None else b""
        return True


@mutant(breaks="SCL-SCH-029", caught_by="scheduler/graphs/payload-begins-with-results")
class SortsResults(ReferenceScheduler):
    def front(self, results: List[Any]) -> bytes:
        return super().front(sorted(results, key=lambda each: b"" if isinstance(each, int) else each))


@mutant(breaks="SCL-SCH-029", caught_by="scheduler/graphs/large-results-of-predecessors-are-dependencies")
class ForgetsObjectsOfPredecessors(ReferenceScheduler):
    def front(self, results: List[Any]) -> bytes:
        return super().front([each for each in results if isinstance(each, bytes)])


@mutant(breaks="SCL-SCH-030", caught_by="scheduler/graphs/only-targets-are-reported")
class TellsAllNodes(ReferenceScheduler):
    def finish(self, task: Task, *arguments: Any, **more: Any) -> None:
        if task.is_node and not task.is_target:
            self.tell_outcome(task, *arguments[:3])
        super().finish(task, *arguments, **more)


@mutant(breaks="SCL-SCH-030", caught_by="scheduler/graphs/cancelled-node-is-answered")
class AnswersNoCancelsOfNodes(ReferenceScheduler):
    def cancel_here(self, task: Task) -> None:
        if not task.is_node or task.is_target:
            super().cancel_here(task)


@mutant(breaks="SCL-SCH-031", caught_by="scheduler/graphs/failures-propagate-to-targets")
class NamesNoCauses(ReferenceScheduler):
    def causes(self, cause: Task) -> List[int]:
        return []


@mutant(breaks="SCL-SCH-031", caught_by="scheduler/graphs/cancels-propagate-to-targets")
class LeavesTargetsUntold(ReferenceScheduler):
    def tell_cancelled(self, node: Task) -> None:
        pass


@mutant(breaks="SCL-SCH-031", caught_by="scheduler/graphs/failure-of-a-target-is-its-own")
class BlamesTheTargetItself(ReferenceScheduler):
    def tell_outcome(self, task: Task, *arguments: Any, **more: Any) -> None:
        if task.is_node:
            more.setdefault("causes", [task.id + 1])
        super().tell_outcome(task, *arguments, **more)


@mutant(breaks="SCL-SCH-032", caught_by="scheduler/graphs/unneeded-nodes-are-not-run")
class RunsUnneededNodes(ReferenceScheduler):
    def drop_unneeded(self, node: Task) -> None:
        pass


# Objects ------------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-OBJ-002", caught_by="scheduler/objects/taken-ids-are-refused")
class MakesObjectsAgain(ReferenceScheduler):
    def check_is_free(self, object_id: int) -> None:
        pass


@mutant(breaks="SCL-OBJ-002", caught_by="scheduler/objects/ids-of-other-sessions-are-refused")
class TakesIdsOfAnySession(ReferenceScheduler):
    def check_is_of_session(self, peer: Peer, object_id: int) -> None:
        pass


@mutant(breaks="SCL-OBJ-003", caught_by="scheduler/objects/objects-above-the-limit-are-refused")
class TakesAnySize(ReferenceScheduler):
    def check_object_size(self, size: int) -> None:
        pass


@mutant(breaks="SCL-OBJ-004", caught_by="scheduler/objects/needed-object-outlives-its-deletion")
class DropsWhatTasksNeed(ReferenceScheduler):
    def is_needed(self, kept: Object) -> bool:
        return False

    def place(self, task: Task, worker: Worker) -> None:
        if all(each in self.objects for each in task.needs):
            super().place(task, worker)
        else:
            self.on_object_missing(task)


@mutant(breaks="SCL-OBJ-004", caught_by="scheduler/objects/object-lives-until-it-is-deleted")
class DropsWhatNoTaskNeeds(ReferenceScheduler):
    def end_need(self, kept: Object) -> None:
        super().end_need(kept)
        if kept.needs <= 0 and kept.id in self.objects and not kept.kind and kept.content == b"value":
            self.let_go(kept)


@mutant(breaks="SCL-OBJ-005", caught_by="scheduler/objects/deletions-reach-the-workers")
class KeepsDeletionsToItself(ReferenceScheduler):
    def tell_deletion(self, worker: Worker, object_id: int) -> None:
        pass


@mutant(breaks="SCL-OBJ-006", caught_by="scheduler/objects/deletions-by-others-are-ignored")
class LetsAllPeersDelete(ReferenceScheduler):
    def delete(self, peer: Peer, object_id: int) -> None:
        if object_id in self.objects:
            self.let_go(self.objects[object_id])


@mutant(breaks="SCL-OBJ-006", caught_by="scheduler/objects/deletions-by-others-are-ignored")
class RefusesForeignDeletions(ReferenceScheduler):
    def delete(self, peer: Peer, object_id: int) -> None:
        found = self.objects.get(object_id)
        if found is not None and found.owner not in (peer, None):
            raise Refused("protocolViolation", "it is another's")
        super().delete(peer, object_id)


@mutant(breaks="SCL-OBJ-010", caught_by="scheduler/objects/requests-are-answered")
class SaysNothingOfMissingObjects(ReferenceScheduler):
    def answer_missing(self, peer: Peer, message: Message) -> None:
        if message.id in self.objects or not message.id:
            return
        super().answer_missing(peer, message)


@mutant(breaks="SCL-OBJ-010", caught_by="scheduler/objects/requests-are-answered")
class SendsAllThatIsAsked(ReferenceScheduler):
    def most_bytes(self, length: int) -> int:
        return length


@mutant(breaks="SCL-OBJ-010", caught_by="scheduler/objects/requests-wait-for-bytes-in-transit")
class AnswersBeforeTheBytesCome(ReferenceScheduler):
    def on_object_request(self, peer: Peer, message: Message) -> None:
        kept: Optional[Object] = self.objects.get(message.id)
        if kept is not None and not kept.is_complete and not kept.lacks_room:
            self.answer_missing(peer, message)
        else:
            super().on_object_request(peer, message)


@mutant(breaks="SCL-OBJ-019", caught_by="scheduler/objects/objects-without-room-are-called-so")
class SaysMissingWithoutRoom(ReferenceScheduler):
    def answer_no_room(self, peer: Peer, id_: int, offset: int) -> None:
        self.answer(peer, id_, offset, "missing")


@mutant(breaks="SCL-OBJ-011", caught_by="scheduler/objects/at-most-four-requests-are-unanswered")
class AsksForEverythingAtOnce(ReferenceScheduler):
    def most_requests(self) -> int:
        return 1000


@mutant(breaks="SCL-OBJ-014", caught_by="scheduler/objects/large-result-belongs-to-the-client")
class LeavesResultsToWorkers(ReferenceScheduler):
    def give_to_client(self, kept: Object, client: Client) -> None:
        client.large_results[kept.id] = kept.size


@mutant(breaks="SCL-OBJ-022", caught_by="scheduler/objects/kept-result-is-reported-when-it-is-here")
class ReportsWhatItDoesNotHave(ReferenceScheduler):
    def is_fetched_first(self, task: Task, object_id: int) -> bool:
        return False


@mutant(breaks="SCL-OBJ-024", caught_by="scheduler/objects/kept-result-stays-where-it-is-used")
class FetchesWhatNoPeerNeeds(ReferenceScheduler):
    def on_kept(self, kept: Object) -> None:
        self.fetch(kept)


@mutant(breaks="SCL-OBJ-015", caught_by="scheduler/objects/results-with-foreign-objects-are-refused")
class TakesObjectsNamedTwice(ReferenceScheduler):
    def check_named_once(self, named: List[int]) -> None:
        pass


@mutant(breaks="SCL-OBJ-015", caught_by="scheduler/objects/results-with-foreign-objects-are-refused")
class TakesForeignObjects(ReferenceScheduler):
    def check_own(self, worker: Worker, object_id: int) -> None:
        if object_id not in self.objects:
            raise Refused("protocolViolation", "it does not exist")
