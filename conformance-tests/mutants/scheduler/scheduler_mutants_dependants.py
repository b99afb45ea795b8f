"""Schedulers that each break one requirement: tasks that need others."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

from mutants import mutant
from mutants.scheduler.reference_scheduler import ReferenceScheduler
from mutants.scheduler.scheduler_state import Task
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
