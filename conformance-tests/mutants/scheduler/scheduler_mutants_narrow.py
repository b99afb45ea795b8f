"""Schedulers that break a requirement in one situation, so that one case alone sees it.

Rule: each is here because a mutant that breaks the same requirement everywhere is caught by several cases.
"""

from __future__ import annotations

import math
import time
from typing import Any, Dict, List, Set, Tuple

from mutants import mutant
from mutants.scheduler.reference_scheduler import MAJOR, ReferenceScheduler
from mutants.scheduler.scheduler_mutants_objects import DropsWhatTasksNeed
from mutants.scheduler.scheduler_objects import SHARED
from mutants.scheduler.scheduler_state import Client, Object, Peer, Refused, Task, Worker
from mutants.scheduler.scheduler_tasks import CANCELLED, RUNNING, SUCCESS
from mutants.servers.zmtp_server import Connection, ZmtpServer
from scaler_conformance.codec.schema_codec import SCHEMA, Message

# Connections --------------------------------------------------------------------------------------------------------


class _LargeHeaderServer(ZmtpServer):
    def check_header_size(self, size: int) -> None:
        pass


@mutant(breaks="SCL-SEC-006", caught_by="scheduler/security/oversized-headers-close-the-connection")
class TakesHeadersAsLargeAsMessages(ReferenceScheduler):
    server_class = _LargeHeaderServer


class _FrameByFrameServer(ZmtpServer):
    def check_size(self, connection: Connection, size: int) -> None:
        if not connection.frames:
            self.check_header_size(size)
        self.check_message_size(size)


@mutant(breaks="SCL-SEC-006", caught_by="scheduler/security/oversized-messages-close-the-connection")
class ForgetsTheHeadersBytes(ReferenceScheduler):
    server_class = _FrameByFrameServer


@mutant(breaks="SCL-SEC-003", caught_by="scheduler/security/invalid-pointers-are-malformed")
class IgnoresTextsThatAreNone(ReferenceScheduler):
    def on_unreadable(self, reason: str) -> None:
        if "utf-8" not in reason:
            super().on_unreadable(reason)


@mutant(breaks="SCL-TRN-003", caught_by="scheduler/transport/messages-have-one-or-two-frames")
class AppendsAFrameToLogs(ReferenceScheduler):
    def frames_of(self, type_: str, payload: bytes, fields: Dict[str, Any]) -> List[bytes]:
        frames = super().frames_of(type_, payload, fields)
        return [*frames, b"", b""] if type_ == "TaskLog" and fields["stream"] == 1 else frames


@mutant(breaks="SCL-TRN-004", caught_by="scheduler/transport/empty-payload-frame-equals-no-frame")
class RefusesTasksWithEmptyFrames(ReferenceScheduler):
    def check_frames(self, frames: List[bytes]) -> None:
        super().check_frames(frames)
        if frames[1:] == [b""] and SCHEMA.type_of(frames[0]) == "Task":
            raise Refused("malformed", "an empty frame")


# Sessions -----------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-SES-002", caught_by="scheduler/session/hello-is-welcomed")
class WelcomesTheIdleAgain(ReferenceScheduler):
    """A client that sends only a Heartbeat after its Hello, before there is any task."""

    def on_frames(self, connection: Connection, frames: List[bytes]) -> None:
        super().on_frames(connection, frames)
        self.said = getattr(self, "said", {})
        self.said[connection] = self.said.get(connection, 0) + 1

    def on_heartbeat(self, peer: Peer, message: Message) -> None:
        if isinstance(peer, Client) and self.said[peer.connection] == 1 and not (self.given or self.queue):
            self.welcome(peer)
        super().on_heartbeat(peer, message)


@mutant(breaks="SCL-SES-003", caught_by="scheduler/session/other-major-is-refused")
class TakesOlderMajors(ReferenceScheduler):
    def check_major(self, hello: Message) -> None:
        if hello.major > MAJOR:
            super().check_major(hello)


@mutant(breaks="SCL-SES-005", caught_by="scheduler/session/other-roles-are-refused")
class TakesSchedulersForClients(ReferenceScheduler):
    def check_hello_role(self, hello: Message) -> None:
        if hello.role != "scheduler":
            super().check_hello_role(hello)


@mutant(breaks="SCL-SES-006", caught_by="scheduler/session/invalid-amounts-are-refused")
class TakesInfiniteAmounts(ReferenceScheduler):
    def check_amounts(self, said: Any) -> None:
        if not any(math.isinf(each.amount) for each in said.capabilities):
            super().check_amounts(said)


@mutant(breaks="SCL-SES-010", caught_by="scheduler/session/hello-begins-a-new-session")
class KeepsTasksOfClientsThatGreetAgain(ReferenceScheduler):
    def end_before_hello(self, connection: Connection) -> None:
        if not isinstance(self.sessions.get(connection), Client):
            super().end_before_hello(connection)


@mutant(breaks="SCL-SES-012", caught_by="scheduler/session/disconnect-request-is-answered")
class KeepsIdleWorkersThatLeft(ReferenceScheduler):
    def on_disconnect_request(self, connection: Connection, message: Message) -> None:
        peer = self.sessions.get(connection)
        if isinstance(peer, Worker) and peer not in self.given.values() and self.shutdown_ends is None:
            self.send_to(connection, "DisconnectResponse")
        else:
            super().on_disconnect_request(connection, message)


@mutant(breaks="SCL-SES-017", caught_by="scheduler/session/end-of-a-connection-ends-the-session")
class ForgetsWhoseTaskRunsAgain(ReferenceScheduler):
    """Only if it was the only task of a worker whose connection ended."""

    def on_worker_gone(self, worker: Worker, left: bool) -> None:
        is_only_one = not left and len(worker.held) == 1
        self.forgotten = [*getattr(self, "forgotten", ()), *(worker.held.values() if is_only_one else ())]
        super().on_worker_gone(worker, left)

    def tell_outcome(self, task: Task, status: int, *arguments: Any, **more: Any) -> None:
        if status != SUCCESS or task not in getattr(self, "forgotten", ()):
            super().tell_outcome(task, status, *arguments, **more)


@mutant(breaks="SCL-SES-007", caught_by="scheduler/session/session-numbers-are-unique")
class GrantsNumbersOfThoseWhoLeft(ReferenceScheduler):
    left: List[int]

    def on_disconnect_request(self, connection: Connection, message: Message) -> None:
        peer = self.sessions.get(connection)
        self.left = [peer.number] if peer is not None else []
        super().on_disconnect_request(connection, message)

    def new_number(self) -> int:
        left = getattr(self, "left", [])
        return left.pop() if left else super().new_number()


@mutant(breaks="SCL-SES-011", caught_by="scheduler/session/requests-without-a-session-are-refused")
class IgnoresAllWithoutSessionButHeartbeats(ReferenceScheduler):
    def on_message_without_session(self, connection: Connection, message: Message) -> None:
        if message.type == "Heartbeat":
            super().on_message_without_session(connection, message)


@mutant(breaks="SCL-SES-014", caught_by="scheduler/session/heartbeat-is-echoed")
class EchoesSignedNumbers(ReferenceScheduler):
    def on_heartbeat(self, peer: Peer, message: Message) -> None:
        message.sequence &= (1 << 63) - 1
        super().on_heartbeat(peer, message)


@mutant(breaks="SCL-SES-015", caught_by="scheduler/session/silent-peer-is-refused")
class RefusesTheSilentAndKeepsTheirTasks(ReferenceScheduler):
    def on_silence(self, peer: Peer) -> None:
        peer.last_heard = time.monotonic() + 3600
        self.send(peer, "Refusal", reason="notGreeted", message="nothing was heard for too long", **self.versions())


# Tasks and cancels --------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-SCH-001", caught_by="scheduler/tasks/one-task-is-run")
class TellsSevensTwice(ReferenceScheduler):
    def tell_outcome(self, task: Task, status: int, payload: bytes, codec: str, **more: Any) -> None:
        super().tell_outcome(task, status, payload, codec, **more)
        if payload == b"7":
            super().tell_outcome(task, status, payload, codec, **more)


@mutant(breaks="SCL-SCH-001", caught_by="scheduler/tasks/each-task-has-one-outcome")
class LosesFailuresNowAndThen(ReferenceScheduler):
    failures = 0

    def tell_outcome(self, task: Task, status: int, *arguments: Any, **more: Any) -> None:
        self.failures += status != SUCCESS
        if status == SUCCESS or self.failures != 10:
            super().tell_outcome(task, status, *arguments, **more)


@mutant(breaks="SCL-SCH-007", caught_by="scheduler/tasks/only-tasks-with-missing-objects-are-lost")
class LosesTheRestOfTheBatch(ReferenceScheduler):
    def on_object_missing(self, task: Task) -> None:
        for each in [each for each in self.queue if each.options is task.options and not each.is_node]:
            self.lose(each, "objectMissing", "another of its batch")
        super().on_object_missing(task)


@mutant(breaks="SCL-SCH-005", caught_by="scheduler/placing/instances-are-never-used-twice")
class GivesNumbersOfGoneClientsAgain(ReferenceScheduler):
    def new_instance(self, task: Task) -> int:
        clients = self.clients = getattr(self, "clients", {})
        free = (each for each, client in clients.items() if client.is_gone and each not in self.instances)
        instance = next(free, None) or super().new_instance(task)
        clients[instance] = task.client
        return int(instance)


@mutant(breaks="SCL-SCH-010", caught_by="scheduler/placing/workers-are-not-sent-more-than-they-take")
class SendsOneMoreToLongQueues(ReferenceScheduler):
    def has_room(self, worker: Worker) -> bool:
        return len(worker.held) < (worker.slots + worker.suspended) * worker.queue_size + (worker.queue_size == 3)


@mutant(breaks="SCL-SCH-013", caught_by="scheduler/reports/late-reports-are-ignored")
class RefusesLateLogs(ReferenceScheduler):
    def on_task_log(self, worker: Worker, message: Message) -> None:
        if message.id not in self.instances:
            raise Refused("protocolViolation", "it has ended")
        super().on_task_log(worker, message)


@mutant(breaks="SCL-SCH-013", caught_by="scheduler/reports/outcome-of-a-cancelled-task-is-ignored")
class RefusesOutcomesOfTheCancelled(ReferenceScheduler):
    cancelled: Set[int]

    def end_cancelled(self, task: Task) -> None:
        self.cancelled = {*getattr(self, "cancelled", ()), task.instance}
        super().end_cancelled(task)

    def on_task_result(self, worker: Worker, message: Message) -> None:
        if getattr(self, "cancelled", set()) & set(message.ids):
            raise Refused("protocolViolation", "it was cancelled")
        super().on_task_result(worker, message)


@mutant(breaks="SCL-SCH-015", caught_by="scheduler/reports/reports-reach-the-right-client")
class KeepsTheErrorStream(ReferenceScheduler):
    def on_task_log(self, worker: Worker, message: Message) -> None:
        if message.stream != 2:
            super().on_task_log(worker, message)


@mutant(breaks="SCL-SCH-016", caught_by="scheduler/reports/tasks-of-lost-workers-run-elsewhere")
class ForgetsSomeOfManyTasks(ReferenceScheduler):
    def on_worker_gone(self, worker: Worker, left: bool) -> None:
        for task in list(worker.held.values())[4:]:
            self.leave_worker(task)
            self.end_task(task)
        super().on_worker_gone(worker, left)


@mutant(breaks="SCL-SCH-023", caught_by="scheduler/questions/explanations-are-answered")
class ExplainsWhatItKnows(ReferenceScheduler):
    def on_explanation_request(self, peer: Peer, message: Message) -> None:
        if isinstance(peer, Client) and message.taskId in peer.tasks:
            super().on_explanation_request(peer, message)


@mutant(breaks="SCL-SCH-021", caught_by="scheduler/cancels/waiting-task-is-cancelled-at-once")
class SendsWhatWasCancelled(ReferenceScheduler):
    def cancel_here(self, task: Task) -> None:
        if task.is_node or self.workers:
            super().cancel_here(task)
        else:
            self.confirm(task, CANCELLED)


@mutant(breaks="SCL-SCH-020", caught_by="scheduler/cancels/running-is-answered-before-the-outcome")
class SaysRunningALittleLater(ReferenceScheduler):
    late: List[Tuple[float, Task]]

    def confirm(self, task: Task, outcome: int) -> None:
        if outcome == RUNNING and not task.is_forced:
            task.answer_is_owed = False
            self.late = [*getattr(self, "late", ()), (time.monotonic() + 0.1, task)]
        else:
            super().confirm(task, outcome)

    def look_for_silence(self, now: float) -> None:
        super().look_for_silence(now)
        for due, task in list(getattr(self, "late", ())):
            if now > due:
                self.late.remove((due, task))
                super().confirm(task, RUNNING)


@mutant(breaks="SCL-SCH-020", caught_by="scheduler/cancels/not-found-is-answered-for-ended-and-unknown-tasks")
class IgnoresCancelsOfWhatHasEnded(ReferenceScheduler):
    def cancel_unknown(self, client: Client, id_: int) -> None:
        if id_ > client.last_id:
            super().cancel_unknown(client, id_)


@mutant(breaks="SCL-SCH-021", caught_by="scheduler/cancels/cancelled-task-of-a-lost-worker-is-cancelled")
class ForgetsCancelsAtCutWorkers(ReferenceScheduler):
    def on_connection_end(self, connection: Connection) -> None:
        peer = self.sessions.get(connection)
        if isinstance(peer, Worker):
            for task in peer.held.values():
                task.answer_is_owed &= task.is_forced
        super().on_connection_end(connection)


@mutant(breaks="SCL-SCH-026", caught_by="scheduler/flow/releases-are-reported-to-a-client-at-its-limit")
class EchoesBytesAlone(ReferenceScheduler):
    def renew(self, client: Client) -> None:
        client.tasks_told = client.tasks_released
        super().renew(client)


# Graphs -------------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-SCH-028", caught_by="scheduler/graphs/nodes-wait-for-all-their-predecessors")
class WaitsForRootsAlone(ReferenceScheduler):
    def is_done(self, node: Task) -> bool:
        if node.predecessors and node.result is None:
            node.result = b""
        return super().is_done(node)


@mutant(breaks="SCL-SCH-029", caught_by="scheduler/graphs/payload-begins-with-results")
class GivesRepeatedResultsOnce(ReferenceScheduler):
    def front(self, results: List[Any]) -> bytes:
        return super().front(list(dict.fromkeys(results)))


@mutant(breaks="SCL-SCH-030", caught_by="scheduler/graphs/only-targets-are-reported")
class TellsSuccessesOfAllNodes(ReferenceScheduler):
    def finish(self, task: Task, status: int, payload: bytes, codec: str, *arguments: Any, **more: Any) -> None:
        if status == SUCCESS and not task.is_target:
            self.tell_outcome(task, status, payload, codec)
        super().finish(task, status, payload, codec, *arguments, **more)


@mutant(breaks="SCL-SCH-031", caught_by="scheduler/graphs/failures-propagate-to-targets")
class NamesNoCausesThatRan(ReferenceScheduler):
    def causes(self, cause: Task) -> List[int]:
        return [] if cause.instance else super().causes(cause)


@mutant(breaks="SCL-SCH-031", caught_by="scheduler/graphs/cancels-propagate-to-targets")
class TellsTheNextTargetsAlone(ReferenceScheduler):
    def tell_cancelled(self, node: Task) -> None:
        if not any(each.predecessors for each in node.predecessors):
            super().tell_cancelled(node)


@mutant(breaks="SCL-SCH-002", caught_by="scheduler/graphs/nothing-of-a-malformed-graph-is-kept")
class TakesTargetsTwice(ReferenceScheduler):
    def check_graph_columns(self, message: Message) -> None:
        message.targets = sorted(set(message.targets))
        super().check_graph_columns(message)


# Objects ------------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-OBJ-004", caught_by="scheduler/objects/needed-object-outlives-its-deletion")
class DropsWhatNoWorkerKnows(DropsWhatTasksNeed):
    def is_needed(self, kept: Object) -> bool:
        is_known = isinstance(kept.source, Worker) or any(kept.id in each.announced for each in self.workers)
        return kept.needs > 0 and is_known


@mutant(breaks="SCL-OBJ-010", caught_by="scheduler/objects/large-remote-objects-are-fetched-and-served")
class LosesTheEndOfManyChunks(ReferenceScheduler):
    def on_object_response(self, peer: Peer, message: Message) -> None:
        super().on_object_response(peer, message)
        kept = self.objects.get(message.id)
        if kept is not None and kept.is_complete and message.offset:
            kept.content[message.offset :] = bytes(kept.size - message.offset)


@mutant(breaks="SCL-OBJ-010", caught_by="scheduler/objects/shared-objects-are-served")
class ServesNothingOfFiles(ReferenceScheduler):
    def create(self, peer: Peer, message: Message) -> None:
        super().create(peer, message)
        for id_, size, storage in zip(message.ids, message.sizes, message.storages):
            if storage == SHARED:
                self.objects[id_].content = bytearray(size)


@mutant(breaks="SCL-OBJ-014", caught_by="scheduler/objects/large-result-belongs-to-the-client")
class EndsResultsWithTheirWorkers(ReferenceScheduler):
    def let_go_all(self, peer: Peer) -> None:
        super().let_go_all(peer)
        for each in [each for each in self.objects.values() if each.source is peer and peer.is_gone]:
            self.let_go(each)


# Batches ------------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-SCH-002", caught_by="scheduler/tasks/nothing-of-a-malformed-batch-is-kept")
class RunsTheFirstOfALongBatch(ReferenceScheduler):
    """It detects an inconsistent end of the batch too late."""

    def on_task(self, client: Client, message: Message) -> None:
        try:
            super().on_task(client, message)
        except Refused:
            if len(message.ids) > 4:
                self.accept_task(self.tasks_of(client, message, [0] * len(message.ids))[0])
                self.settle()
            raise


# Workers that go ----------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-SCH-018", caught_by="scheduler/reports/leaving-does-not-use-up-attempts")
class CountsTheSecondLeavingAsLoss(ReferenceScheduler):
    leavings = 0

    def losses(self, left: bool) -> int:
        self.leavings += left
        return super().losses(left) if self.leavings < 2 else 1


@mutant(breaks="SCL-SCH-001", caught_by="scheduler/reports/tasks-given-back-run-elsewhere")
class LosesTheSecondThatIsGivenBack(ReferenceScheduler):
    given_back = 0

    def return_task(self, task: Task) -> None:
        self.given_back += 1
        if self.given_back == 2:
            self.leave_worker(task)
            self.end_task(task)
        else:
            super().return_task(task)


# Numbers ------------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-TRN-011", caught_by="scheduler/tasks/all-bits-of-ids-are-kept")
class RoundsTaskIds(ReferenceScheduler):
    """As in a language whose numbers are doubles."""

    def tell_outcome(self, task: Task, status: int, payload: bytes, codec: str, **more: Any) -> None:
        exact, task.id = task.id, min(int(float(task.id)), 2**64 - 1)
        super().tell_outcome(task, status, payload, codec, **more)
        task.id = exact
