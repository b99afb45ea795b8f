"""Workers that each break one requirement: running tasks, reporting them, cancelling them, giving them back."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from mutants import mutant
from mutants.worker.conformance_functions import Execution, TaskFailed
from mutants.worker.reference_worker import CANCELLED, FAILED, LOST, NOT_FOUND, RUNNING, ReferenceWorker
from mutants.worker.worker_tasks import Outcome, Task
from scaler_conformance.codec.schema_codec import Message

# Running ------------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-WRK-002", caught_by="worker/tasks/each-of-a-batch-has-one-outcome")
class LosesATask(ReferenceWorker):
    def take(self, task: Task) -> None:
        if task.payload != b"[50, 1]":
            super().take(task)


@mutant(breaks="SCL-WRK-002", caught_by="worker/tasks/one-task-is-run")
class ReportsTwice(ReferenceWorker):
    def report(self, outcomes: List[Outcome]) -> None:
        super().report(outcomes * 2 if outcomes[0].task.payload == b'[{"a": [1, null]}]' else outcomes)


@mutant(breaks="SCL-WRK-001", caught_by="worker/tasks/takes-as-many-as-it-offers")
class DropsWhatIsTooMuch(ReferenceWorker):
    def take(self, task: Task) -> None:
        if len(self.held) < 110:
            super().take(task)


@mutant(breaks="SCL-WRK-003", caught_by="worker/tasks/runs-as-many-at-once-as-it-has-slots")
class RunsOneTooMany(ReferenceWorker):
    def take(self, task: Task) -> None:
        super().take(task)
        self.start_ready()

    def may_start(self, task: Task) -> bool:
        is_alone = len(self.held) == 1 and len(task.batch.ids) == 1 and task.name.endswith("/wait")
        one_more = is_alone and task.options.priority == 0 and len(self.running) == self.slots
        return super().may_start(task) or one_more


@mutant(breaks="SCL-WRK-003", caught_by="worker/tasks/batch-fills-all-slots")
class RunsABatchInOneSlot(ReferenceWorker):
    def may_start(self, task: Task) -> bool:
        return super().may_start(task) and all(each.batch is not task.batch for each in self.running.values())


@mutant(breaks="SCL-WRK-004", caught_by="worker/tasks/higher-priority-starts-first")
class IgnoresPriority(ReferenceWorker):
    def in_order(self) -> List[Task]:
        return list(self.held)


@mutant(breaks="SCL-WRK-004", caught_by="worker/tasks/first-come-first-served")
class RunsTheNewestFirst(ReferenceWorker):
    def in_order(self) -> List[Task]:
        newest_first = self.held[::-1]
        return sorted(newest_first, key=lambda task: -task.options.priority)


@mutant(breaks="SCL-WRK-030", caught_by="worker/tasks/answers-while-tasks-run")
class BeatsWhenItHasTime(ReferenceWorker):
    def beat(self) -> None:
        if len(self.running) < self.slots:
            super().beat()


@mutant(breaks="SCL-WRK-030", caught_by="worker/tasks/answers-while-tasks-compute")
class HearsNothingWhileComputing(ReferenceWorker):
    def read(self) -> None:
        while not self.is_computing() and self.socket is not None and self.socket.poll(0) and self.exit_code is None:
            self.on_frames(self.socket.recv_multipart())

    def is_computing(self) -> bool:
        return any(task.name.endswith("/busy") for task in (*self.running.values(), *self.held))


@mutant(breaks="SCL-WRK-015", caught_by="worker/tasks/inconsistent-batch-is-not-run")
class RunsWhatItCan(ReferenceWorker):
    def agrees(self, message: Message, count: int, counts: List[int]) -> bool:
        return len(message.payloadSizes) == count and len(counts) == count


# Failing ------------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-WRK-006", caught_by="worker/failures/failed-task-has-a-failure")
class FailsInPlainText(ReferenceWorker):
    def failure(self, task: Task, kind: str, message: str, type_name: str = "") -> bytes:
        return message.encode() if message == "it is broken" else super().failure(task, kind, message, type_name)


@mutant(breaks="SCL-WRK-005", caught_by="worker/failures/failures-and-results-side-by-side")
class ColumnsOfUnequalLength(ReferenceWorker):
    def result_message(self, outcomes: List[Outcome]) -> Tuple[Dict[str, Any], bytes]:
        fields, payload = super().result_message(outcomes)
        if any(each.task.payload == b"no JSON" for each in outcomes):
            fields["statuses"] = [*fields["statuses"], 0]
        return fields, payload


@mutant(breaks="SCL-WRK-031", caught_by="worker/failures/failure-names-worker-and-attempt")
class FailsWithoutItsName(ReferenceWorker):
    name = ""


@mutant(breaks="SCL-WRK-013", caught_by="worker/failures/task-that-kills-its-process-is-lost")
class CallsDeathAFailure(ReferenceWorker):
    def on_process_died(self, task: Task, how: str) -> None:
        self.finish(task, FAILED, self.failure(task, "taskRaised", how))


@mutant(breaks="SCL-WRK-013", caught_by="worker/failures/task-that-kills-its-process-is-tried-again")
class NeverTriesAgain(ReferenceWorker):
    def may_run_again(self, task: Task) -> bool:
        return False


@mutant(breaks="SCL-WRK-012", caught_by="worker/failures/at-most-once-is-not-tried-again")
class TriesAgainWhatItMustNot(ReferenceWorker):
    def may_run_again(self, task: Task) -> bool:
        return bool(task.attempt <= task.options.retries)


@mutant(breaks="SCL-WRK-007", caught_by="worker/failures/outcomes-are-batched")
class ReportsOneByOne(ReferenceWorker):
    def what_goes_together(self, outcomes: List[Outcome]) -> List[Outcome]:
        return outcomes[:1]


@mutant(breaks="SCL-WRK-008", caught_by="worker/failures/busy-time-is-reported")
class HidesItsTime(ReferenceWorker):
    def result_message(self, outcomes: List[Outcome]) -> Tuple[Dict[str, Any], bytes]:
        fields, payload = super().result_message(outcomes)
        return {**fields, "busyMicroseconds": 0}, payload


@mutant(breaks="SCL-WRK-009", caught_by="worker/failures/profile-is-filled")
class HasNoProfile(ReferenceWorker):
    def profile(self, microseconds: List[int]) -> Dict[str, Any]:
        return {}


@mutant(breaks="SCL-WRK-010", caught_by="worker/failures/time-limit-stops-a-task")
class HasNoTimeLimit(ReferenceWorker):
    def timed_tasks(self) -> List[Task]:
        return [task for task in super().timed_tasks() if task.options.actor]


@mutant(breaks="SCL-WRK-011", caught_by="worker/failures/memory-limit-stops-a-task")
class HasNoMemoryLimit(ReferenceWorker):
    def check_memory(self, task: Task, count: Any) -> None:
        pass


# Output -------------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-WRK-016", caught_by="worker/output/output-is-streamed")
class LosesTheErrorStream(ReferenceWorker):
    def on_output(self, task: Task, execution: Execution, stream: int, text: str) -> None:
        if stream == 1:
            super().on_output(task, execution, stream, text)


@mutant(breaks="SCL-WRK-017", caught_by="worker/output/output-comes-before-the-outcome")
class LogsLate(ReferenceWorker):
    def send_log(self, task: Task, stream: int, text: str) -> None:
        self.events.put(lambda: self.events.put(lambda: self.log_after_flush(task, stream, text)))

    def log_after_flush(self, task: Task, stream: int, text: str) -> None:
        self.flush()
        self.send("TaskLog", id=task.id, stream=stream, text=text)


@mutant(breaks="SCL-WRK-018", caught_by="worker/output/output-is-not-streamed-by-default")
class LogsUnasked(ReferenceWorker):
    def on_output(self, task: Task, execution: Execution, stream: int, text: str) -> None:
        if text:
            self.do_soon(lambda: self.send_log(task, stream, text))


# Cancelling ---------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-WRK-020", caught_by="worker/cancel/held-task-is-cancelled")
class CallsHeldTasksRunning(ReferenceWorker):
    def cancel_held(self, task: Task) -> None:
        self.confirm(task.id, RUNNING)


@mutant(breaks="SCL-WRK-020", caught_by="worker/cancel/held-task-is-cancelled-by-force")
class ForceHitsTheWrongTask(ReferenceWorker):
    def cancel(self, instance: int, force: bool) -> None:
        if force and any(task.id == instance for task in self.held):
            for task in self.running.values():
                self.stop(task)
        super().cancel(instance, force)


@mutant(breaks="SCL-WRK-020", caught_by="worker/cancel/task-that-waits-for-an-object-is-cancelled")
class CannotCancelWhileItFetches(ReferenceWorker):
    def cancel_held(self, task: Task) -> None:
        fetches = [self.objects.fetches[each] for each in task.needs if each in self.objects.fetches]
        if not task.needs or task.options.actor or any(fetch.content for fetch in fetches):
            super().cancel_held(task)


@mutant(breaks="SCL-WRK-021", caught_by="worker/cancel/cancelled-task-does-not-start")
class StartsCancelledTasks(ReferenceWorker):
    def cancel_held(self, task: Task) -> None:
        self.confirm(task.id, CANCELLED)


@mutant(breaks="SCL-WRK-022", caught_by="worker/cancel/running-task-continues")
class StopsUnforced(ReferenceWorker):
    def cancel_running(self, task: Task, force: bool) -> None:
        super().cancel_running(task, True)


@mutant(breaks="SCL-WRK-024", caught_by="worker/cancel/finished-task-is-not-found")
class CallsFinishedTasksRunning(ReferenceWorker):
    def cancel(self, instance: int, force: bool) -> None:
        if force and instance not in self.running and all(task.id != instance for task in self.held):
            self.confirm(instance, RUNNING)
        else:
            super().cancel(instance, force)


@mutant(breaks="SCL-WRK-024", caught_by="worker/cancel/result-crosses-cancel")
class DoesNotFindWhatRuns(ReferenceWorker):
    def cancel_running(self, task: Task, force: bool) -> None:
        if force:
            super().cancel_running(task, force)
        else:
            self.confirm(task.id, NOT_FOUND)


@mutant(breaks="SCL-WRK-019", caught_by="worker/cancel/each-id-is-answered")
class IgnoresUnknownIds(ReferenceWorker):
    newest = 0

    def take(self, task: Task) -> None:
        self.newest = task.id
        super().take(task)

    def cancel(self, instance: int, force: bool) -> None:
        if instance <= self.newest:
            super().cancel(instance, force)


@mutant(breaks="SCL-WRK-019", caught_by="worker/cancel/forced-cancel-of-a-hung-task-is-answered")
class WaitsForTheDeaf(ReferenceWorker):
    def cancel_running(self, task: Task, force: bool) -> None:
        if not (force and task.name.endswith("/hang")):
            super().cancel_running(task, force)


@mutant(breaks="SCL-WRK-023", caught_by="worker/cancel/force-stops-a-running-task")
class HasNoForce(ReferenceWorker):
    def cancel_running(self, task: Task, force: bool) -> None:
        super().cancel_running(task, force and task.options.actor)


@mutant(breaks="SCL-WRK-021", caught_by="worker/cancel/force-stops-a-running-task")
class ReportsWhatItStopped(ReferenceWorker):
    def cancel_running(self, task: Task, force: bool) -> None:
        super().cancel_running(task, force)
        if force and not task.options.actor:
            self.finish(task, LOST, self.failure(task, "processorDied", "it was stopped"))


@mutant(breaks="SCL-WRK-002", caught_by="worker/cancel/force-stops-only-the-cancelled-task")
class ForceStopsAll(ReferenceWorker):
    def cancel_running(self, task: Task, force: bool) -> None:
        super().cancel_running(task, force)
        if force:
            self.running.clear()


# Giving back --------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-WRK-025", caught_by="worker/balance/each-request-is-answered")
class AnswersSmallRequestsOnly(ReferenceWorker):
    def on_balance_request(self, message: Message) -> None:
        if message.requestId < 1 << 32:
            super().on_balance_request(message)


@mutant(breaks="SCL-WRK-026", caught_by="worker/balance/given-back-tasks-are-not-started")
class GivesAllBack(ReferenceWorker):
    def choose_to_give_back(self, count: int) -> List[Task]:
        return self.in_order()


@mutant(breaks="SCL-WRK-026", caught_by="worker/balance/given-back-tasks-are-not-started")
class RunsWhatItGaveBack(ReferenceWorker):
    def choose_to_give_back(self, count: int) -> List[Task]:
        given = super().choose_to_give_back(count)
        self.held += [task for task in given if task.name.endswith("/wait")]
        return given


@mutant(breaks="SCL-WRK-026", caught_by="worker/balance/task-whose-process-died-is-not-given-back")
class GivesBackWhatDied(ReferenceWorker):
    def may_be_given_back(self, task: Task) -> bool:
        return not task.options.actor


@mutant(breaks="SCL-WRK-002", caught_by="worker/balance/given-back-tasks-have-no-outcome")
class ReportsWhatItGaveBack(ReferenceWorker):
    def choose_to_give_back(self, count: int) -> List[Task]:
        given = super().choose_to_give_back(count)
        for task in given:
            if task.name.endswith("/echo"):
                self.finish(task, LOST, self.failure(task, "rejected", "given back"))
        return given


@mutant(breaks="SCL-WRK-027", caught_by="worker/balance/newest-is-given-back-first")
class GivesTheOldestBack(ReferenceWorker):
    def choose_to_give_back(self, count: int) -> List[Task]:
        return self.in_order()[:count]


# Codecs and functions -----------------------------------------------------------------------------------------------


@mutant(breaks="SCL-COD-004", caught_by="worker/codec/unknown-function-fails")
class LosesUnknownNames(ReferenceWorker):
    def refusal_of_name(self, task: Task) -> Tuple[int, bytes]:
        return LOST, super().refusal_of_name(task)[1]


@mutant(breaks="SCL-COD-004", caught_by="worker/codec/unknown-codec-is-not-run")
class FailsUnknownCodecs(ReferenceWorker):
    def refusal_of_codec(self, task: Task) -> Tuple[int, bytes]:
        return FAILED, self.failure(task, "argumentNotLoaded", "what is this?")


@mutant(breaks="SCL-COD-005", caught_by="worker/codec/result-is-in-the-codec-of-the-task")
class SaysJson(ReferenceWorker):
    def result_message(self, outcomes: List[Outcome]) -> Tuple[Dict[str, Any], bytes]:
        fields, payload = super().result_message(outcomes)
        return {**fields, "codec": "json"}, payload


@mutant(breaks="SCL-COD-005", caught_by="worker/codec/raw-is-bytes-to-bytes")
class CutsAtNul(ReferenceWorker):
    def call(self, name: str, task: Task, arguments: bytes, execution: Execution) -> bytes:
        result = super().call(name, task, arguments, execution)
        return result.partition(b"\0")[0] if task.codec == "raw" and len(result) > 3 else result


@mutant(breaks="SCL-COD-006", caught_by="worker/codec/arguments-are-the-first-dependency")
class TakesTheLastDependency(ReferenceWorker):
    def arguments_of(self, task: Task) -> bytes:
        return task.payload or (self.objects.content(task.dependencies[-1]) if task.dependencies else b"")


@mutant(breaks="SCL-COD-006", caught_by="worker/codec/empty-object-means-no-arguments")
class ReadsEmptyObjects(ReferenceWorker):
    def call(self, name: str, task: Task, arguments: bytes, execution: Execution) -> bytes:
        if task.codec == "json" and task.dependencies and not arguments:
            raise TaskFailed("argumentNotLoaded", "no JSON")
        return super().call(name, task, arguments, execution)


@mutant(breaks="SCL-WRK-014", caught_by="worker/codec/missing-second-dependency-has-an-outcome")
class BlamesTheTaskForItsSecondObject(ReferenceWorker):
    def object_missing(self, task: Task, object_id: int) -> Tuple[int, bytes]:
        status, failure = super().object_missing(task, object_id)
        return FAILED if len(task.dependencies) > 1 else status, failure


@mutant(breaks="SCL-COD-006", caught_by="worker/codec/payload-takes-precedence-over-dependencies")
class PrefersDependencies(ReferenceWorker):
    def arguments_of(self, task: Task) -> bytes:
        return self.objects.content(task.dependencies[0]) if task.dependencies else task.payload


@mutant(breaks="SCL-COD-007", caught_by="worker/codec/results-are-json")
class WritesNothingForNothing(ReferenceWorker):
    def call(self, name: str, task: Task, arguments: bytes, execution: Execution) -> bytes:
        return b"" if arguments == b'[""]' else super().call(name, task, arguments, execution)


@mutant(breaks="SCL-COD-008", caught_by="worker/codec/unreadable-arguments-fail-the-task")
class BlamesTheFunction(ReferenceWorker):
    def call(self, name: str, task: Task, arguments: bytes, execution: Execution) -> bytes:
        if name == "echo" and arguments == b"[]":
            raise TaskFailed("taskRaised", "too few arguments", "TypeError")
        return super().call(name, task, arguments, execution)


@mutant(breaks="SCL-COD-009", caught_by="worker/codec/functions-that-compute")
class SumsIntegersOnly(ReferenceWorker):
    def call(self, name: str, task: Task, arguments: bytes, execution: Execution) -> bytes:
        return b"1" if arguments == b"[0.5, 1]" else super().call(name, task, arguments, execution)


@mutant(breaks="SCL-COD-009", caught_by="worker/codec/sum-of-integers-is-an-integer")
class SumsInFloats(ReferenceWorker):
    def call(self, name: str, task: Task, arguments: bytes, execution: Execution) -> bytes:
        result = super().call(name, task, arguments, execution)
        return result + b".0" if name == "sum" and result.isdigit() else result


@mutant(breaks="SCL-COD-009", caught_by="worker/codec/fail-reports-its-message")
class FailsWithoutAType(ReferenceWorker):
    def failure(self, task: Task, kind: str, message: str, type_name: str = "") -> bytes:
        return super().failure(task, kind, message)


@mutant(breaks="SCL-COD-009", caught_by="worker/codec/wait-returns-the-line-it-receives")
class StripsWhatItHears(ReferenceWorker):
    def call(self, name: str, task: Task, arguments: bytes, execution: Execution) -> bytes:
        return super().call(name, task, arguments, execution).replace(b' "', b'"')


@mutant(breaks="SCL-WRK-032", caught_by="worker/watched/runs-are-reported-while-watched")
class TellsOfItsLastRunOnly(ReferenceWorker):
    def runs(self, microseconds: List[int]) -> List[int]:
        return super().runs([0, *microseconds])[3:6] if len(microseconds) > 1 else [2, *super().runs(microseconds)[1:]]


@mutant(breaks="SCL-WRK-033", caught_by="worker/watched/heartbeats-name-running-tasks")
class NamesNothingThatRuns(ReferenceWorker):
    def processors(self, now: float) -> List[Dict[str, int]]:
        return [{**each, "instance": 0} for each in super().processors(now)]
