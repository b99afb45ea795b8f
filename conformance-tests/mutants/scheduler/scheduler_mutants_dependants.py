"""Schedulers that each break one requirement: tasks that need others, and calls of actors."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from mutants import mutant
from mutants.scheduler.reference_scheduler import ReferenceScheduler
from mutants.scheduler.scheduler_actors import KnownActor
from mutants.scheduler.scheduler_state import Client, Object, Task, Worker
from scaler_conformance.codec.schema_codec import Message


@mutant(breaks="SCL-SCH-039", caught_by="scheduler/predecessors/tasks-wait-for-all-predecessors")
class WaitsForOneOfThem(ReferenceScheduler):
    def has_all(self, task: Task) -> bool:
        for each in task.needed:
            each.result = each.result if each.result is not None else b""
        return True


@mutant(breaks="SCL-SCH-039", caught_by="scheduler/predecessors/tasks-wait-for-all-predecessors")
class GivesResultsByAge(ReferenceScheduler):
    def dependant_payload(self, task: Task) -> Tuple[bytes, List[int]]:
        task.needed.sort(key=lambda each: each.id)
        return super().dependant_payload(task)


@mutant(breaks="SCL-SCH-039", caught_by="scheduler/predecessors/large-results-of-predecessors-are-dependencies")
class ForgetsLargeResults(ReferenceScheduler):
    def results_in_order(self, results: List[Any]) -> List[Any]:
        return [each if isinstance(each, bytes) else b"" for each in results]


@mutant(breaks="SCL-SCH-040", caught_by="scheduler/predecessors/failures-propagate-to-dependent-tasks")
class BlamesTheNearestTask(ReferenceScheduler):
    def on_predecessor_ended(self, task: Task, status: Optional[int], payload: bytes, codec: str, origin: int) -> None:
        super().on_predecessor_ended(task, status, payload, codec, task.id)


@mutant(breaks="SCL-SCH-040", caught_by="scheduler/predecessors/cancels-propagate-to-dependent-tasks")
class SaysNothingOfCancels(ReferenceScheduler):
    def report_failed_predecessor(
        self, task: Task, status: Optional[int], payload: bytes, codec: str, origin: int
    ) -> None:
        if status is not None:
            super().report_failed_predecessor(task, status, payload, codec, origin)


@mutant(breaks="SCL-SCH-041", caught_by="scheduler/predecessors/tasks-with-unknown-predecessors-are-lost")
class RejectsWhatComesLate(ReferenceScheduler):
    def on_predecessor_gone(self, task: Task) -> None:
        self.lose(task, "rejected", "it needs a task that does not exist")


@mutant(breaks="SCL-SCH-041", caught_by="scheduler/predecessors/tasks-with-unknown-predecessors-are-lost")
class RunsWhatComesLate(ReferenceScheduler):
    def must_wait_for(self, known: List[Optional[Task]]) -> bool:
        return any(each is not None for each in known)


@mutant(breaks="SCL-SCH-002", caught_by="scheduler/predecessors/inconsistent-predecessors-are-malformed")
class TakesPredecessorsTwice(ReferenceScheduler):
    def check_predecessors(self, message: Message) -> None:
        if not any(len(set(needed)) < len(needed) for needed in self.predecessors_of(message)):
            super().check_predecessors(message)


@mutant(breaks="SCL-SCH-042", caught_by="scheduler/actors/all-calls-go-to-one-worker-in-order")
class SpreadsCalls(ReferenceScheduler):
    def is_home(self, actor: KnownActor, worker: Worker) -> bool:
        return True


@mutant(breaks="SCL-SCH-042", caught_by="scheduler/actors/all-calls-go-to-one-worker-in-order")
class SendsTheNewestOfManyCallsFirst(ReferenceScheduler):
    def in_order(self) -> List[Task]:
        tasks = super().in_order()
        if len([each for each in tasks if each.options.actor]) > 5:
            tasks.reverse()
        return tasks


@mutant(breaks="SCL-SCH-043", caught_by="scheduler/actors/actors-begin-at-workers-with-the-feature")
class AsksNoWorkerForTheFeature(ReferenceScheduler):
    def runs_actors(self, worker: Worker) -> bool:
        return True


@mutant(breaks="SCL-SCH-044", caught_by="scheduler/actors/calls-are-lost-with-the-worker")
class RunsLostCallsElsewhere(ReferenceScheduler):
    def on_call_lost(self, call: Task) -> None:
        self.actors[call.function].is_lost = False
        self.actors[call.function].worker = None


@mutant(breaks="SCL-SCH-044", caught_by="scheduler/actors/calls-are-lost-with-the-worker")
class BeginsAgain(ReferenceScheduler):
    def lose_actor(self, actor: KnownActor) -> None:
        actor.worker = None


@mutant(breaks="SCL-SCH-044", caught_by="scheduler/actors/calls-are-lost-with-the-worker")
class LetsLaterCallsWait(ReferenceScheduler):
    def admits(self, call: Task) -> bool:
        return super().admits(call) or (call.function in self.actors and self.is_named(call.function))


@mutant(breaks="SCL-SCH-045", caught_by="scheduler/actors/calls-without-an-actor-are-lost")
class LetsAnyClientBegin(ReferenceScheduler):
    def may_begin(self, client: Client, function: Object) -> bool:
        return True


@mutant(breaks="SCL-SCH-046", caught_by="scheduler/actors/actors-use-capabilities-while-they-exist")
class LetsActorsUseNothing(ReferenceScheduler):
    def users_at(self, worker: Worker) -> List[Any]:
        return []


@mutant(breaks="SCL-SCH-046", caught_by="scheduler/actors/actors-use-capabilities-while-they-exist")
class NeverFreesWhatActorsUse(ReferenceScheduler):
    def users_at(self, worker: Worker) -> List[Any]:
        return [each for each in self.actors.values() if each.worker is worker]


# What is seen of actors ----------------------------------------------------------------------------------------------

SEEN_BY_CLIENTS = "scheduler/actors/info-lists-actors"
SEEN_BY_MONITORS = "scheduler/monitors/actors-are-described-until-they-end"


@mutant(breaks="SCL-SCH-056", caught_by=SEEN_BY_CLIENTS)
class ListsAllActors(ReferenceScheduler):
    def info(self, request: Message) -> Dict[str, Any]:
        return {**super().info(request), "actors": [self.describe_actor(each) for each in self.living()]}


@mutant(breaks="SCL-SCH-056", caught_by=SEEN_BY_CLIENTS)
class CountsTheActorsThatItLists(ReferenceScheduler):
    def info(self, request: Message) -> Dict[str, Any]:
        told = super().info(request)
        return {**told, "actorCount": len(told["actors"])}


@mutant(breaks="SCL-SCH-056", caught_by=SEEN_BY_CLIENTS)
class ListsActorsAsTheyBegan(ReferenceScheduler):
    def info(self, request: Message) -> Dict[str, Any]:
        told = super().info(request)
        for each in told["actors"]:
            each.update({"callsRunning": 0, "callsFinished": 0})
        return told


@mutant(breaks="SCL-MON-012", caught_by=SEEN_BY_MONITORS)
class NamesNoActorThatEnds(ReferenceScheduler):
    def actor_fields(self, is_snapshot: bool) -> Dict[str, Any]:
        return {**super().actor_fields(is_snapshot), "actorsGone": []}


@mutant(breaks="SCL-MON-012", caught_by=SEEN_BY_MONITORS)
class HidesWhoIsLost(ReferenceScheduler):
    def actor_fields(self, is_snapshot: bool) -> Dict[str, Any]:
        told = super().actor_fields(is_snapshot)
        told["actors"]["states"] = [min(each, 1) for each in told["actors"]["states"]]
        return told


@mutant(breaks="SCL-MON-012", caught_by=SEEN_BY_MONITORS)
class ForgetsCallsThatWait(ReferenceScheduler):
    def actor_fields(self, is_snapshot: bool) -> Dict[str, Any]:
        told = super().actor_fields(is_snapshot)
        told["actors"]["waiting"] = [0 for _ in told["actors"]["waiting"]]
        return told
