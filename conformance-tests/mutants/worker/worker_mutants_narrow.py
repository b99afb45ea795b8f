"""Workers that break a requirement in one situation, so that one case alone sees it.

Rule: each is here because a mutant that breaks the same requirement everywhere is caught by several cases.
"""

from __future__ import annotations

from typing import Any, Dict, List

from mutants import mutant
from mutants.worker.conformance_functions import Execution
from mutants.worker.reference_worker import CANCELLED, FAILED, NOT_FOUND, RUNNING, ReferenceWorker
from mutants.worker.worker_mutants import ReportsOldTasks
from mutants.worker.worker_mutants_objects import object_mutant
from mutants.worker.worker_objects import WorkerObjects
from mutants.worker.worker_tasks import Task
from scaler_conformance.codec.schema_codec import Message

GOODBYE = "the case is over"
"""The message with which the suite stops a worker at the end of a case."""

# Joining, staying, leaving ------------------------------------------------------------------------------------------


@mutant(breaks="SCL-SES-001", caught_by="worker/session/says-hello-first")
class SaysItsVersionsBackwards(ReferenceWorker):
    def hello(self) -> Dict[str, Any]:
        return {**super().hello(), "minorMin": 1}


@mutant(breaks="SCL-SEC-013", caught_by="worker/session/hello-has-at-most-64-kib")
class SaysALongHello(ReferenceWorker):
    def hello(self) -> Dict[str, Any]:
        usual = super().hello()
        return {**usual, "features": [*usual["features"], "x" * (64 << 10)]}


@mutant(breaks="SCL-SES-013", caught_by="worker/session/sends-heartbeats")
class BeatsForItsTasksAlone(ReferenceWorker):
    def beat(self) -> None:
        if self.running or not self.sequence:
            super().beat()


@mutant(breaks="SCL-SES-018", caught_by="worker/session/leaves-when-asked-to")
class StaysWhenItHasNothingToDo(ReferenceWorker):
    def on_shutdown(self) -> None:
        super().on_shutdown()
        if not (self.is_asked_for_good or self.is_leaving or self.running) and self.session:
            self.exit_code = None

    is_asked_for_good = False

    def on_disconnect_request(self, message: Message) -> None:
        self.is_asked_for_good = message.message == GOODBYE or message.reason != "shutdown"
        super().on_disconnect_request(message)


@mutant(breaks="SCL-SES-023", caught_by="worker/session/reconnects-to-a-new-scheduler")
class ServesAgainWhenItHasServed(ReferenceWorker):
    """If its connection ends before its first task, it accepts none from the next scheduler."""

    has_served = False
    is_sulking = False

    def on_connection_lost(self) -> None:
        self.is_sulking = not self.has_served
        super().on_connection_lost()

    def take(self, task: Task) -> None:
        self.has_served = True
        if not self.is_sulking:
            super().take(task)


@mutant(breaks="SCL-SES-021", caught_by="worker/session/new-session-reports-nothing-old")
class ReportsTheOldTaskOfOneSlot(ReportsOldTasks):
    def keeps(self, running: Dict[int, Task]) -> bool:
        return len(running) == 1


# Frames -------------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-TRN-005", caught_by="worker/transport/segmented-headers-are-read")
class ReadsTasksOfOneSegment(ReferenceWorker):
    def on_frames(self, frames: List[bytes]) -> None:
        if not self.session or frames[0][:4] in (b"", bytes(4)):
            super().on_frames(frames)


@mutant(breaks="SCL-SEC-010", caught_by="worker/robustness/survives-faulty-headers")
class EndsForText(ReferenceWorker):
    def on_frames(self, frames: List[bytes]) -> None:
        if frames[0].isascii() and frames[0].decode().isprintable() and frames[0]:
            self.exit_code = 1
        super().on_frames(frames)


@mutant(breaks="SCL-SEC-010", caught_by="worker/robustness/survives-too-many-frames")
class EndsForVeryManyFrames(ReferenceWorker):
    def on_frames(self, frames: List[bytes]) -> None:
        super().on_frames(frames)
        if len(frames) > 6:
            self.exit_code = 1


@mutant(breaks="SCL-SEC-010", caught_by="worker/robustness/survives-corrupted-frames")
class EndsForFaultsOfTwoKinds(ReferenceWorker):
    """Invalid headers and inconsistent columns."""

    had_no_message = had_disagreement = False

    def on_unreadable(self) -> None:
        self.had_no_message = True
        self.see_whether_it_was_too_much()

    def on_contradiction(self) -> None:
        super().on_contradiction()
        self.had_disagreement = True
        self.see_whether_it_was_too_much()

    def see_whether_it_was_too_much(self) -> None:
        if self.had_no_message and self.had_disagreement:
            self.exit_code = 1


@mutant(breaks="SCL-SEC-010", caught_by="worker/robustness/survives-empty-messages")
class EndsForATaskMessageWithoutTasks(ReferenceWorker):
    def on_task(self, message: Message) -> None:
        super().on_task(message)
        if not message.ids:
            self.exit_code = 1


# Tasks --------------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-WRK-002", caught_by="worker/tasks/payloads-are-split-by-their-sizes")
class SkipsEmptyPayloads(ReferenceWorker):
    def take(self, task: Task) -> None:
        others = [each for each in task.batch.payloadSizes if each]
        if not task.payload and others and task.codec == "json" and not task.needs:
            task.payload = task.batch.payload[: others[0]]
        super().take(task)


@mutant(breaks="SCL-WRK-002", caught_by="worker/tasks/many-batches-of-several-functions")
class MixesUpFunctions(ReferenceWorker):
    """It runs `size` as `echo` while `echo` is queued."""

    def call(self, name: str, task: Task, arguments: bytes, execution: Execution) -> bytes:
        echo_waits = any(each.name.endswith("/echo") for each in list(self.held))
        return super().call("echo" if name == "size" and echo_waits else name, task, arguments, execution)


@mutant(breaks="SCL-WRK-003", caught_by="worker/tasks/next-task-starts-when-one-has-ended")
class StartsQuickTasksWhenAllHaveEnded(ReferenceWorker):
    one_has_ended = False

    def on_ended(self, task: Task, execution: Execution, result: Any) -> None:
        super().on_ended(task, execution, result)
        self.one_has_ended = bool(self.running)

    def may_start(self, task: Task) -> bool:
        must_wait = self.one_has_ended and self.running and task.name.endswith("/echo")
        return super().may_start(task) and not must_wait


@mutant(breaks="SCL-WRK-004", caught_by="worker/tasks/first-come-first-served")
class StartsTheNewestFirst(ReferenceWorker):
    """But it gives tasks back in the right order."""

    is_starting = False

    def start_ready(self) -> None:
        self.is_starting = True
        super().start_ready()
        self.is_starting = False

    def in_order(self) -> List[Task]:
        held = self.held[::-1] if self.is_starting else self.held
        return sorted(held, key=lambda task: -task.options.priority)


@mutant(breaks="SCL-WRK-013", caught_by="worker/failures/task-that-kills-its-process-is-lost")
class CallsAnExitAFailure(ReferenceWorker):
    def on_process_died(self, task: Task, how: str) -> None:
        if "exited" in how:
            self.finish(task, FAILED, self.failure(task, "taskRaised", how))
        else:
            super().on_process_died(task, how)


@object_mutant(breaks="SCL-OBJ-017", caught_by="worker/objects/remote-object-is-fetched")
class ForgetsTheLastChunk(WorkerObjects):
    def on_response(self, message: Message) -> None:
        super().on_response(message)
        content = self.contents.get(message.id, b"")
        if len(content) > 5 * self.chunk_bytes:
            self.contents[message.id] = content[: len(content) - len(content) % self.chunk_bytes]


# Cancels ------------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-WRK-020", caught_by="worker/cancel/held-task-is-cancelled")
class CallsQuickTasksRunning(ReferenceWorker):
    def cancel(self, instance: int, force: bool) -> None:
        held = next((task for task in self.held if task.id == instance), None)
        if held is not None and not force and held.name.endswith("/echo") and held.payload and len(held.batch.ids) == 1:
            self.confirm(instance, RUNNING)
        else:
            super().cancel(instance, force)


@mutant(breaks="SCL-WRK-021", caught_by="worker/cancel/cancelled-task-does-not-start")
class StartsCancelledTasksOfABatch(ReferenceWorker):
    def cancel_held(self, task: Task) -> None:
        if task.name.endswith("/wait") and len(task.batch.ids) > 1:
            self.confirm(task.id, CANCELLED)
        else:
            super().cancel_held(task)


@mutant(breaks="SCL-WRK-022", caught_by="worker/cancel/running-task-continues")
class StopsASingleTaskUnforced(ReferenceWorker):
    def on_task_cancel(self, message: Message) -> None:
        for each in message.ids:
            self.cancel(each, message.force or (len(message.ids) == 1 and each in self.running))


@mutant(breaks="SCL-WRK-024", caught_by="worker/cancel/result-crosses-cancel")
class LosesItsWayAfterSomeCancels(ReferenceWorker):
    cancels = 0

    def on_task_cancel(self, message: Message) -> None:
        self.cancels += 1
        super().on_task_cancel(message)

    def cancel(self, instance: int, force: bool) -> None:
        if self.cancels > 2 and not force and all(task.id != instance for task in self.held):
            self.confirm(instance, NOT_FOUND if instance in self.running else RUNNING)
        else:
            super().cancel(instance, force)


@mutant(breaks="SCL-WRK-023", caught_by="worker/cancel/force-stops-a-running-task")
class SaysCancelledAndLetsItRun(ReferenceWorker):
    is_confirming = False

    def cancel_running(self, task: Task, force: bool) -> None:
        self.is_confirming = force and not task.options.actor
        super().cancel_running(task, force)
        self.is_confirming = False

    def stop(self, task: Task) -> None:
        if not self.is_confirming:
            super().stop(task)


# Ends of sessions, and numbers --------------------------------------------------------------------------------------


@mutant(breaks="SCL-SES-018", caught_by="worker/session-end/answers-while-it-leaves")
class LeavesInSilence(ReferenceWorker):
    def on_shutdown(self) -> None:
        if self.is_leaving:
            self.exit_code = 0
        else:
            super().on_shutdown()


@mutant(breaks="SCL-SES-018", caught_by="worker/session-end/leaving-means-shutdown")
class StaysUnlessItIsShutDown(ReferenceWorker):
    def on_disconnect_request(self, message: Message) -> None:
        if message.reason != "leaving":
            super().on_disconnect_request(message)


@mutant(breaks="SCL-TRN-011", caught_by="worker/transport/all-bits-of-ids-are-kept")
class RoundsIds(ReferenceWorker):
    """As in a language whose numbers are doubles."""

    def take(self, task: Task) -> None:
        task.id = int(float(task.id))
        super().take(task)


@mutant(breaks="SCL-SES-014", caught_by="worker/session/answers-heartbeats")
class RoundsSequences(ReferenceWorker):
    def on_heartbeat(self, message: Message) -> None:
        self.send("HeartbeatEcho", sequence=int(float(message.sequence)))


@mutant(breaks="SCL-SES-019", caught_by="worker/session/announces-that-it-leaves")
class StaysWhenItMayLeave(ReferenceWorker):
    def on_disconnect_response(self, message: Message) -> None:
        pass


@mutant(breaks="SCL-OBJ-013", caught_by="worker/large-results/outcome-follows-the-last-byte")
class ReportsWhenItHearsAHeartbeat(ReferenceWorker):
    def on_heartbeat(self, message: Message) -> None:
        for object_id in list(self.kept):
            self.on_served(object_id)
        super().on_heartbeat(message)


@mutant(breaks="SCL-SES-018", caught_by="worker/session-end/shutdown-ends-draining")
class DrainsToTheEnd(ReferenceWorker):
    def on_shutdown(self) -> None:
        if not (self.is_draining and self.running) or self.is_over:
            super().on_shutdown()

    is_over = False

    def on_disconnect_request(self, message: Message) -> None:
        self.is_over = message.message == GOODBYE
        super().on_disconnect_request(message)
