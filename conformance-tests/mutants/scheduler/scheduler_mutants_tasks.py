"""Schedulers that each break one requirement: tasks, placement, reports, cancels, and shutdown."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

from mutants import mutant
from mutants.scheduler.reference_scheduler import ReferenceScheduler
from mutants.scheduler.scheduler_state import Client, Peer, Refused, Task, Worker
from mutants.scheduler.scheduler_tasks import NOT_FOUND, RUNNING
from scaler_conformance.codec.schema_codec import Message


@mutant(breaks="SCL-SCH-001", caught_by="scheduler/tasks/one-task-is-run")
class TellsOutcomesTwice(ReferenceScheduler):
    def tell_outcome(self, *arguments: Any, **more: Any) -> None:
        super().tell_outcome(*arguments, **more)
        super().tell_outcome(*arguments, **more)


@mutant(breaks="SCL-SCH-001", caught_by="scheduler/tasks/each-task-has-one-outcome")
class LosesOutcomesNowAndThen(ReferenceScheduler):
    outcomes = 0

    def tell_outcome(self, *arguments: Any, **more: Any) -> None:
        self.outcomes += 1
        if self.outcomes != 50:
            super().tell_outcome(*arguments, **more)


@mutant(breaks="SCL-SCH-001", caught_by="scheduler/reports/tasks-given-back-run-elsewhere")
class LosesWhatIsGivenBack(ReferenceScheduler):
    def return_task(self, task: Task) -> None:
        self.leave_worker(task)
        self.end_task(task)


@mutant(breaks="SCL-SCH-002", caught_by="scheduler/tasks/inconsistent-columns-are-malformed")
class BelievesDependencyCounts(ReferenceScheduler):
    def check_dependencies(self, message: Message, count: int) -> None:
        pass


@mutant(breaks="SCL-SCH-002", caught_by="scheduler/tasks/inconsistent-columns-are-malformed")
class BelievesResultColumns(ReferenceScheduler):
    def check_result_columns(self, message: Message) -> None:
        message.body.__dict__["statuses"] = []


@mutant(breaks="SCL-SCH-002", caught_by="scheduler/tasks/nothing-of-a-malformed-batch-is-kept")
class BelievesPayloadSizes(ReferenceScheduler):
    def check_payload(self, message: Message, size: int) -> None:
        pass


@mutant(breaks="SCL-SCH-002", caught_by="scheduler/graphs/nothing-of-a-malformed-graph-is-kept")
class BelievesGraphs(ReferenceScheduler):
    def check_graph_columns(self, message: Message) -> None:
        self.check_task_columns(message)
        if any(each >= len(message.ids) for each in (*message.predecessors, *message.targets)):
            raise Refused("malformed", "a position")


@mutant(breaks="SCL-SCH-003", caught_by="scheduler/tasks/ids-must-ascend")
class TakesAnyOrder(ReferenceScheduler):
    def check_order(self, client: Client, ids: Sequence[int]) -> None:
        pass


@mutant(breaks="SCL-SCH-003", caught_by="scheduler/tasks/ids-may-have-gaps-and-begin-anywhere")
class WantsIdsWithoutGaps(ReferenceScheduler):
    def check_order(self, client: Client, ids: Sequence[int]) -> None:
        super().check_order(client, ids)
        if ids and ids[-1] - ids[0] > 1 << 32:
            raise Refused("protocolViolation", "gaps")


@mutant(breaks="SCL-SCH-004", caught_by="scheduler/tasks/tasks-are-passed-on-unchanged")
class ForgetsOptions(ReferenceScheduler):
    def task_fields(self, task: Task, payload: bytes, dependencies: List[int]) -> Dict[str, Any]:
        fields = super().task_fields(task, payload, dependencies)
        return {**fields, "options": {**fields["options"], "retries": 0}}


@mutant(breaks="SCL-SCH-004", caught_by="scheduler/tasks/results-are-passed-on-unchanged")
class ForgetsTheResultsCodec(ReferenceScheduler):
    def finish(self, task: Task, status: int, payload: bytes, codec: str, object_id: int = 0, **more: Any) -> None:
        super().finish(task, status, payload, task.codec, object_id, **more)


@mutant(breaks="SCL-SCH-005", caught_by="scheduler/placing/instances-are-never-used-twice")
class NumbersInstancesByTask(ReferenceScheduler):
    def new_instance(self, task: Task) -> int:
        return task.id + task.lost_workers * 1000


@mutant(breaks="SCL-SCH-006", caught_by="scheduler/reports/attempts-count-lost-workers")
class SaysAlwaysTheFirstAttempt(ReferenceScheduler):
    def attempt(self, task: Task) -> int:
        return 1


@mutant(breaks="SCL-SCH-007", caught_by="scheduler/tasks/only-tasks-with-missing-objects-are-lost")
class LosesTheWholeBatch(ReferenceScheduler):
    def on_object_missing(self, task: Task) -> None:
        for each in list(self.queue):
            if each.client is task.client:
                self.lose(each, "objectMissing", "another of its batch")
        super().on_object_missing(task)


@mutant(breaks="SCL-SCH-007", caught_by="scheduler/graphs/node-with-a-missing-object-is-lost")
class SaysRejectedForMissingObjects(ReferenceScheduler):
    def on_object_missing(self, task: Task) -> None:
        self.lose(task, "rejected" if task.is_node else "objectMissing", "something is missing")


@mutant(breaks="SCL-SCH-008", caught_by="scheduler/tasks/tasks-beyond-the-limit-are-rejected")
class CountsBytesAlone(ReferenceScheduler):
    def goes_beyond(self, client: Client) -> bool:
        return 0 < self.bytes_limit <= client.bytes_sent - client.bytes_released


@mutant(breaks="SCL-SCH-008", caught_by="scheduler/tasks/bytes-beyond-the-limit-are-rejected")
class CountsTasksAlone(ReferenceScheduler):
    def goes_beyond(self, client: Client) -> bool:
        return 0 < self.tasks_limit <= client.tasks_sent - client.tasks_released


@mutant(breaks="SCL-SCH-009", caught_by="scheduler/placing/capabilities-decide-placement")
class OverlooksMissingCapabilities(ReferenceScheduler):
    def has_capabilities(self, worker: Worker, task: Task) -> bool:
        return not worker.hello.capabilities or super().has_capabilities(worker, task)


@mutant(breaks="SCL-SCH-048", caught_by="scheduler/placing/tasks-go-where-they-can-end")
class IgnoresTheEndsOfWorkers(ReferenceScheduler):
    def stays_long_enough(self, worker: Worker, task: Task) -> bool:
        return True


@mutant(breaks="SCL-SCH-048", caught_by="scheduler/placing/tasks-go-where-they-can-end")
class IgnoresTimeThatHasPassed(ReferenceScheduler):
    def stays_long_enough(self, worker: Worker, task: Task) -> bool:
        needed = task.options.timeRequestMilliseconds
        return bool(task.options.actor or needed <= (worker.hello.remainingMilliseconds or needed))


@mutant(breaks="SCL-SCH-009", caught_by="scheduler/placing/capabilities-are-counted")
class CountsNoCapabilities(ReferenceScheduler):
    def in_use(self, used: List[Dict[str, float]], name: str) -> float:
        return 0.0


@mutant(breaks="SCL-SCH-010", caught_by="scheduler/placing/workers-are-not-sent-more-than-they-take")
class SendsEverything(ReferenceScheduler):
    def has_room(self, worker: Worker) -> bool:
        return True


@mutant(breaks="SCL-SCH-010", caught_by="scheduler/placing/suspended-processors-allow-more-tasks")
class CountsEveryProcessor(ReferenceScheduler):
    def on_heartbeat(self, peer: Peer, message: Message) -> None:
        for each in message.processors:
            each.suspended = True
        super().on_heartbeat(peer, message)


@mutant(breaks="SCL-SCH-011", caught_by="scheduler/placing/objects-are-announced-before-their-tasks")
class AnnouncesEachTime(ReferenceScheduler):
    def announce(self, worker: Worker, object_id: int) -> None:
        worker.announced.discard(object_id)
        super().announce(worker, object_id)


@mutant(breaks="SCL-SCH-011", caught_by="scheduler/placing/objects-have-their-kind-and-codec-at-the-worker")
class AnnouncesWithoutCodec(ReferenceScheduler):
    def announce(self, worker: Worker, object_id: int) -> None:
        self.objects[object_id].codec = ""
        super().announce(worker, object_id)


@mutant(breaks="SCL-SCH-012", caught_by="scheduler/placing/higher-priority-goes-first")
class PlacesInTurn(ReferenceScheduler):
    def in_order(self) -> List[Task]:
        return list(self.queue)


@mutant(breaks="SCL-COD-003", caught_by="scheduler/placing/codecs-decide-placement")
class OverlooksCodecs(ReferenceScheduler):
    def reads(self, worker: Worker, codec: str) -> bool:
        return True


@mutant(breaks="SCL-COD-003", caught_by="scheduler/placing/function-names-decide-placement")
class OverlooksNames(ReferenceScheduler):
    def serves(self, worker: Worker, name: str) -> bool:
        return True


# Reports ------------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-SCH-013", caught_by="scheduler/reports/late-reports-are-ignored")
class RefusesLateReports(ReferenceScheduler):
    def current(self, worker: Worker, instance: int) -> Optional[Task]:
        found = super().current(worker, instance)
        if found is None and self.given[instance] is worker:
            raise Refused("protocolViolation", "it has ended")
        return found


@mutant(breaks="SCL-SCH-013", caught_by="scheduler/reports/reports-of-an-earlier-session-are-ignored")
class RefusesReportsOfEarlierSessions(ReferenceScheduler):
    def current(self, worker: Worker, instance: int) -> Optional[Task]:
        owner = self.given.get(instance)
        if owner is not None and owner is not worker:
            raise Refused("protocolViolation", "another's")
        return super().current(worker, instance)


@mutant(breaks="SCL-SCH-014", caught_by="scheduler/reports/reports-of-unknown-instances-are-refused")
class IgnoresUnknownInstances(ReferenceScheduler):
    def on_unknown_instance(self, instance: int) -> Optional[Task]:
        return None


@mutant(breaks="SCL-SCH-014", caught_by="scheduler/reports/reports-of-other-workers-instances-are-refused")
class BelievesThieves(ReferenceScheduler):
    def on_foreign_instance(self, instance: int) -> Optional[Task]:
        return self.instances[instance]


@mutant(breaks="SCL-SCH-015", caught_by="scheduler/reports/reports-reach-the-right-client")
class KeepsLogs(ReferenceScheduler):
    def on_task_log(self, worker: Worker, message: Message) -> None:
        pass


@mutant(breaks="SCL-SCH-016", caught_by="scheduler/reports/tasks-of-lost-workers-run-elsewhere")
class GivesTasksOfTheRefusedUp(ReferenceScheduler):
    def end_refused(self, connection: Any) -> None:
        peer = self.sessions.get(connection)
        if isinstance(peer, Worker):
            for task in peer.held.values():
                task.lost_workers += 100
        super().end_refused(connection)


@mutant(breaks="SCL-SCH-016", caught_by="scheduler/reports/task-that-keeps-losing-its-workers-is-lost")
class NeverGivesUp(ReferenceScheduler):
    def has_no_attempt(self, task: Task) -> bool:
        return self.runs_once(task)


@mutant(breaks="SCL-SCH-017", caught_by="scheduler/reports/task-at-most-once-is-not-run-again")
class RunsAtMostOnceAgain(ReferenceScheduler):
    def runs_once(self, task: Task) -> bool:
        return False


@mutant(breaks="SCL-SCH-018", caught_by="scheduler/reports/leaving-does-not-use-up-attempts")
class CountsLeavingAsLoss(ReferenceScheduler):
    def losses(self, left: bool) -> int:
        return 1


# Cancels ------------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-SCH-019", caught_by="scheduler/cancels/each-cancel-is-answered-once")
class AnswersTheSecondCancelAsWell(ReferenceScheduler):
    def on_task_cancel(self, client: Client, message: Message) -> None:
        for each in message.ids:
            task = client.tasks.get(each)
            if task is not None and task.answer_is_owed and not message.force:
                self.send(client, "TaskCancelConfirm", ids=[each], outcomes=[RUNNING])
        super().on_task_cancel(client, message)


@mutant(breaks="SCL-SCH-020", caught_by="scheduler/cancels/not-found-is-answered-for-ended-and-unknown-tasks")
class IgnoresCancelsOfTheUnknown(ReferenceScheduler):
    def cancel_unknown(self, client: Client, id_: int) -> None:
        pass


@mutant(breaks="SCL-SCH-020", caught_by="scheduler/cancels/outcome-that-crosses-a-cancel-comes-first")
class ForgetsCancelsThatCross(ReferenceScheduler):
    def confirm(self, task: Task, outcome: int) -> None:
        if outcome != NOT_FOUND:
            super().confirm(task, outcome)


@mutant(breaks="SCL-SCH-020", caught_by="scheduler/cancels/running-is-answered-before-the-outcome")
class SaysRunningAfterwards(ReferenceScheduler):
    def confirm(self, task: Task, outcome: int) -> None:
        if outcome == RUNNING:
            task.answer_is_owed = True
        else:
            super().confirm(task, RUNNING if outcome == NOT_FOUND and task.state == "assigned" else outcome)


@mutant(breaks="SCL-SCH-021", caught_by="scheduler/cancels/waiting-task-is-cancelled-at-once")
class LetsWaitingTasksBe(ReferenceScheduler):
    def cancel_here(self, task: Task) -> None:
        task.answer_is_owed = True


@mutant(breaks="SCL-SCH-021", caught_by="scheduler/cancels/cancel-is-passed-on-with-its-force")
class ForgetsForce(ReferenceScheduler):
    def cancel_at_worker(self, task: Task, force: bool) -> None:
        super().cancel_at_worker(task, force and (task.owes_another or task.client.is_gone))


@mutant(breaks="SCL-SCH-021", caught_by="scheduler/cancels/cancelled-task-of-a-lost-worker-is-cancelled")
class RunsTheCancelledAgain(ReferenceScheduler):
    def on_worker_gone(self, worker: Worker, left: bool) -> None:
        for task in worker.held.values():
            task.answer_is_owed &= task.is_forced
        super().on_worker_gone(worker, left)


@mutant(breaks="SCL-SCH-054", caught_by="scheduler/cancels/force-outlives-the-answer-to-an-earlier-cancel")
class KeepsLaterForceBack(ReferenceScheduler):
    def cancel_again(self, task: Task) -> None:
        pass


@mutant(breaks="SCL-SCH-054", caught_by="scheduler/cancels/force-outlives-the-answer-to-an-earlier-cancel")
class TakesOneAnswerForTwo(ReferenceScheduler):
    def on_first_answer(self, task: Task) -> None:
        super().on_first_answer(task)
        task.answer_is_owed = False


@mutant(breaks="SCL-SCH-022", caught_by="scheduler/cancels/tasks-end-with-their-client")
class CancelsOrphansGently(ReferenceScheduler):
    def cancel_orphan(self, task: Task) -> None:
        self.cancel_at_worker(task, False)


@mutant(breaks="SCL-SCH-027", caught_by="scheduler/cancels/not-found-for-a-held-instance-is-a-violation")
class BelievesNotFound(ReferenceScheduler):
    def on_not_found(self, task: Task) -> None:
        self.leave_worker(task)
        self.end_cancelled(task)


# Questions and the end ----------------------------------------------------------------------------------------------


@mutant(breaks="SCL-SCH-023", caught_by="scheduler/questions/explanations-are-answered")
class AnswersNoQuestions(ReferenceScheduler):
    def on_explanation_request(self, peer: Peer, message: Message) -> None:
        self.send(peer, "Explanation", requestId=1, text="It waits.")


@mutant(breaks="SCL-SCH-034", caught_by="scheduler/questions/info-describes-the-cluster")
class TellsOfTheClusterUnderTheSameNumber(ReferenceScheduler):
    number = 0

    def info(self, request: Message) -> Dict[str, Any]:
        self.number = self.number or request.requestId
        return {**super().info(request), "requestId": self.number}


@mutant(breaks="SCL-SCH-034", caught_by="scheduler/questions/info-describes-the-cluster")
class CountsOnlyIdleWorkers(ReferenceScheduler):
    def info(self, request: Message) -> Dict[str, Any]:
        told = super().info(request)
        return {**told, "tasksRunning": 0, "slotsFree": told["slots"]}


@mutant(breaks="SCL-SCH-035", caught_by="scheduler/questions/at-most-the-requested-workers-are-listed")
class ListsAllWorkers(ReferenceScheduler):
    def info(self, request: Message) -> Dict[str, Any]:
        limits = {"maximumWorkers": 1000, "maximumActors": request.maximumActors}
        return super().info(Message("InfoRequest", {"requestId": request.requestId, **limits}, b"", 0))


@mutant(breaks="SCL-SCH-024", caught_by="scheduler/questions/protected-scheduler-continues")
class ObeysAlthoughProtected(ReferenceScheduler):
    def on_client_shutdown(self, peer: Peer, message: Message) -> None:
        accepted = self.may_stop(peer.connection)
        self.send(peer, "ClientShutdownResponse", accepted=accepted)
        if accepted:
            self.begin_shutdown()


@mutant(breaks="SCL-SCH-025", caught_by="scheduler/questions/shutdown-is-obeyed")
class NeverObeys(ReferenceScheduler):
    def on_client_shutdown(self, peer: Peer, message: Message) -> None:
        accepted = not self.is_protected and self.may_stop(peer.connection)
        self.send(peer, "ClientShutdownResponse", accepted=accepted)
