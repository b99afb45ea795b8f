"""Schedulers that each break one requirement: tasks that need others."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

from mutants import mutant
from mutants.scheduler.reference_scheduler import ReferenceScheduler
from mutants.scheduler.scheduler_state import Task
from scaler_conformance.codec.schema_codec import Message


@mutant(breaks="SCL-SCH-039", caught_by="scheduler/predecessors/tasks-wait-for-all-that-they-need")
class WaitsForOneOfThem(ReferenceScheduler):
    def has_all(self, task: Task) -> bool:
        for each in task.needed:
            each.result = each.result if each.result is not None else b""
        return True


@mutant(breaks="SCL-SCH-039", caught_by="scheduler/predecessors/tasks-wait-for-all-that-they-need")
class GivesResultsByAge(ReferenceScheduler):
    def dependant_payload(self, task: Task) -> Tuple[bytes, List[int]]:
        task.needed.sort(key=lambda each: each.id)
        return super().dependant_payload(task)


@mutant(breaks="SCL-SCH-039", caught_by="scheduler/predecessors/large-results-that-tasks-need-are-dependencies")
class ForgetsLargeResults(ReferenceScheduler):
    def results_in_order(self, results: List[Any]) -> List[Any]:
        return [each if isinstance(each, bytes) else b"" for each in results]


@mutant(breaks="SCL-SCH-040", caught_by="scheduler/predecessors/failures-spread-to-what-needs-them")
class BlamesTheNearestTask(ReferenceScheduler):
    def on_predecessor_ended(self, task: Task, status: Optional[int], payload: bytes, codec: str, origin: int) -> None:
        super().on_predecessor_ended(task, status, payload, codec, task.id)


@mutant(breaks="SCL-SCH-040", caught_by="scheduler/predecessors/cancels-spread-to-what-needs-them")
class SaysNothingOfCancels(ReferenceScheduler):
    def tell_of_predecessor(self, task: Task, status: Optional[int], payload: bytes, codec: str, origin: int) -> None:
        if status is not None:
            super().tell_of_predecessor(task, status, payload, codec, origin)


@mutant(breaks="SCL-SCH-041", caught_by="scheduler/predecessors/tasks-that-need-what-was-told-are-given-back")
class RejectsWhatComesLate(ReferenceScheduler):
    def on_predecessor_gone(self, task: Task) -> None:
        self.lose(task, "rejected", "it needs a task that does not exist")


@mutant(breaks="SCL-SCH-041", caught_by="scheduler/predecessors/tasks-that-need-what-was-told-are-given-back")
class RunsWhatComesLate(ReferenceScheduler):
    def must_wait_for(self, known: List[Optional[Task]]) -> bool:
        return any(each is not None for each in known)


@mutant(breaks="SCL-SCH-002", caught_by="scheduler/predecessors/predecessors-that-disagree-are-malformed")
class TakesPredecessorsTwice(ReferenceScheduler):
    def check_predecessors(self, message: Message) -> None:
        if not any(len(set(needed)) < len(needed) for needed in self.predecessors_of(message)):
            super().check_predecessors(message)
