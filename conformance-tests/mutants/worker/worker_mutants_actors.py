"""Workers that each break one requirement: actors and their calls."""

from __future__ import annotations

from functools import partial
from typing import List, Sequence

from mutants import mutant, part_mutant
from mutants.worker.reference_worker import CANCELLED, LOST, ReferenceWorker
from mutants.worker.worker_actors import WorkerActors
from mutants.worker.worker_tasks import Task

actor_mutant = partial(part_mutant, ReferenceWorker, "make_actors")
"""Makes a mutant whose actors are of this class."""


# Running calls ------------------------------------------------------------------------------------------------------


@actor_mutant(breaks="SCL-WRK-034", caught_by="worker/actors/calls-run-one-at-a-time-in-one-process")
class RunsUrgentCallsFirst(WorkerActors):
    def waiting(self, function: int) -> List[Task]:
        return sorted(super().waiting(function), key=lambda call: -call.options.priority)


@actor_mutant(breaks="SCL-WRK-034", caught_by="worker/actors/calls-run-one-at-a-time-in-one-process")
class RunsCallsBesideOneAnother(WorkerActors):
    def is_running(self, function: int) -> bool:
        return False


@actor_mutant(breaks="SCL-WRK-034", caught_by="worker/actors/calls-run-one-at-a-time-in-one-process")
class HasAnInstanceForEachCall(WorkerActors):
    def begin(self, call: Task) -> None:
        self.begun[call.function] = 0
        super().begin(call)


@mutant(breaks="SCL-WRK-034", caught_by="worker/actors/calls-are-not-given-back")
class GivesCallsBack(ReferenceWorker):
    def may_be_given_back(self, task: Task) -> bool:
        return task.began == 0


# Losing an actor ----------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-WRK-035", caught_by="worker/actors/calls-are-lost-with-the-process")
class BlamesTheProcess(ReferenceWorker):
    def on_process_died(self, task: Task, how: str) -> None:
        if task.options.actor:
            self.actors.lose(task.function, how)
            self.finish(task, LOST, self.failure(task, "processorDied", f"its process {how}"))
        else:
            super().on_process_died(task, how)


@actor_mutant(breaks="SCL-WRK-035", caught_by="worker/actors/calls-are-lost-with-the-process")
class MakesALostActorAgain(WorkerActors):
    def take(self, call: Task) -> bool:
        self.lost.pop(call.function, None)
        return super().take(call)


@mutant(breaks="SCL-WRK-035", caught_by="worker/actors/stopped-call-ends-its-actor")
class KeepsAnActorWhoseCallWasStopped(ReferenceWorker):
    def cancel_running(self, task: Task, force: bool) -> None:
        if force and task.options.actor:
            self.stop(task)
            del self.running[task.id]
            self.confirm(task.id, CANCELLED)
        else:
            super().cancel_running(task, force)


@mutant(breaks="SCL-WRK-035", caught_by="worker/actors/stopped-call-ends-its-actor")
class EndsAnActorWithACallThatWaits(ReferenceWorker):
    def cancel_held(self, task: Task) -> None:
        super().cancel_held(task)
        if task.options.actor:
            self.actors.lose(task.function, "a call was cancelled")


@mutant(breaks="SCL-WRK-035", caught_by="worker/actors/call-that-takes-too-long-ends-its-actor")
class KeepsAnActorWhoseCallTookTooLong(ReferenceWorker):
    def on_time_limit(self, task: Task) -> None:
        self.stop(task)
        del self.running[task.id]
        self.finish(task, LOST, self.failure(task, "timeLimit", "it ran for too long"))


# Ending an actor ----------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-WRK-036", caught_by="worker/actors/draining-worker-stays-for-its-actors")
class LeavesItsActors(ReferenceWorker):
    def has_actors(self) -> bool:
        return False


@actor_mutant(breaks="SCL-WRK-036", caught_by="worker/actors/draining-worker-stays-for-its-actors")
class EndsAllActorsWithOne(WorkerActors):
    def end(self, functions: Sequence[int]) -> None:
        self.clear()


@actor_mutant(breaks="SCL-WRK-036", caught_by="worker/actors/draining-worker-stays-for-its-actors")
class KeepsActorsForEver(WorkerActors):
    def end(self, functions: Sequence[int]) -> None:
        pass
