"""Workers that each break one requirement: joining, heartbeats, leaving, and the frames they read and write."""

from __future__ import annotations

import struct
from typing import Any, Dict, List

import zmq

from mutants import mutant
from mutants.worker.reference_worker import ReferenceWorker
from mutants.worker.worker_tasks import Task
from scaler_conformance.codec.schema_codec import Message

# Joining ------------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-SES-001", caught_by="worker/session/says-hello-first")
class SpeaksBeforeHello(ReferenceWorker):
    def say_hello(self) -> None:
        self.send("Heartbeat", sequence=1)
        super().say_hello()


@mutant(breaks="SCL-SES-001", caught_by="worker/session/sends-nothing-before-the-welcome")
class BeatsBeforeItsWelcome(ReferenceWorker):
    def say_hello(self) -> None:
        super().say_hello()
        self.send("Heartbeat", sequence=1)


@mutant(breaks="SCL-SES-001", caught_by="worker/transport/says-hello-again-to-each-scheduler")
class SaysLessTheSecondTime(ReferenceWorker):
    def hello(self) -> Dict[str, Any]:
        return {**super().hello(), **({"functions": []} if self.welcome else {})}


@mutant(breaks="SCL-COD-002", caught_by="worker/codec/lists-what-it-serves")
class ListsNoFunctions(ReferenceWorker):
    def hello(self) -> Dict[str, Any]:
        return {**super().hello(), "functions": []}


@mutant(breaks="SCL-SES-008", caught_by="worker/session/ends-when-its-version-is-refused")
class GreetsAgainInAnotherVersion(ReferenceWorker):
    def on_refusal(self, message: Message) -> None:
        if message.reason == "versionMismatch":
            self.say_hello()
        else:
            super().on_refusal(message)


@mutant(breaks="SCL-SES-008", caught_by="worker/session/ends-when-refused-in-a-session")
class GreetsAgainAfterItsFault(ReferenceWorker):
    def on_refusal(self, message: Message) -> None:
        if message.reason == "protocolViolation":
            self.end_session()
            self.say_hello()
        else:
            super().on_refusal(message)


@mutant(breaks="SCL-VER-004", caught_by="worker/session/ends-after-an-unknown-refusal")
class IgnoresRefusalsUnheardOf(ReferenceWorker):
    def on_refusal(self, message: Message) -> None:
        if not message.reason.startswith("#"):
            super().on_refusal(message)


@mutant(breaks="SCL-SES-009", caught_by="worker/session/says-hello-again-when-not-greeted")
class ShrugsWhenUnknown(ReferenceWorker):
    def on_not_greeted(self) -> None:
        pass


# Staying ------------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-SES-014", caught_by="worker/session/answers-heartbeats")
class EchoesSmallSequencesOnly(ReferenceWorker):
    def on_heartbeat(self, message: Message) -> None:
        self.send("HeartbeatEcho", sequence=message.sequence & 0xFFFFFFFF)


@mutant(breaks="SCL-SES-013", caught_by="worker/session/sends-heartbeats")
class BeatsOnce(ReferenceWorker):
    def beat(self) -> None:
        if not self.sequence:
            super().beat()


@mutant(breaks="SCL-SES-016", caught_by="worker/session/ends-the-session-of-a-silent-scheduler")
class WaitsForEver(ReferenceWorker):
    def on_silence(self) -> None:
        pass


@mutant(breaks="SCL-SES-023", caught_by="worker/session/reconnects-to-a-new-scheduler")
class EndsWithItsConnection(ReferenceWorker):
    def on_connection_lost(self) -> None:
        self.exit_code = 0


@mutant(breaks="SCL-SES-023", caught_by="worker/session/reconnects-after-a-shutdown")
class EndsWithItsScheduler(ReferenceWorker):
    def on_refusal(self, message: Message) -> None:
        if message.reason == "shuttingDown":
            self.exit_code = 0
        else:
            super().on_refusal(message)


@mutant(breaks="SCL-SES-021", caught_by="worker/session/new-session-reports-nothing-old")
class ReportsOldTasks(ReferenceWorker):
    def end_session(self) -> None:
        running = dict(self.running)
        super().end_session()
        if self.keeps(running):
            self.running = running

    def keeps(self, running: Dict[int, Task]) -> bool:
        return True

    def flush(self) -> None:
        if self.session:
            super().flush()


@mutant(breaks="SCL-WRK-028", caught_by="worker/session-end/drops-what-has-not-started")
class KeepsItsQueue(ReferenceWorker):
    def end_session(self) -> None:
        held = list(self.held)
        super().end_session()
        self.held = held


@mutant(breaks="SCL-WRK-029", caught_by="worker/session-end/stops-what-runs")
class LetsOldTasksRun(ReferenceWorker):
    def end_session(self) -> None:
        self.running.clear()
        super().end_session()


@mutant(breaks="SCL-TRN-009", caught_by="worker/transport/waits-longer-between-attempts")
class KnocksAllTheTime(ReferenceWorker):
    first_pause_seconds = longest_pause_seconds = 0.1  # what a busy machine adds is no growth


# Leaving ------------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-SES-018", caught_by="worker/session/leaves-when-asked-to")
class LeavesWithoutAWord(ReferenceWorker):
    def on_disconnect_request(self, message: Message) -> None:
        if message.reason == "shutdown":
            self.exit_code = 0
        else:
            super().on_disconnect_request(message)


@mutant(breaks="SCL-SES-018", caught_by="worker/session/leaves-while-tasks-run")
class WaitsForItsTasks(ReferenceWorker):
    def on_disconnect_request(self, message: Message) -> None:
        own_goodbye = message.message  # of the suite, when a case is over
        if own_goodbye or message.reason != "shutdown" or not self.running:
            super().on_disconnect_request(message)


@mutant(breaks="SCL-VER-004", caught_by="worker/session/leaves-for-unknown-reasons")
class StaysForReasonsUnheardOf(ReferenceWorker):
    def on_disconnect_request(self, message: Message) -> None:
        if not message.reason.startswith("#"):
            super().on_disconnect_request(message)


@mutant(breaks="SCL-SES-019", caught_by="worker/session/announces-that-it-leaves")
class LeavesSilently(ReferenceWorker):
    def leave(self) -> None:
        self.exit_code = 0


@mutant(breaks="SCL-SES-020", caught_by="worker/session/drains")
class DrainsAtOnce(ReferenceWorker):
    def see_whether_drained(self) -> None:
        if self.is_draining and not (self.objects.owes_any or self.has_actors()):
            self.send("DisconnectResponse")
            self.exit_code = 0


@mutant(breaks="SCL-SES-025", caught_by="worker/session/asks-to-be-drained")
class DoesNotWaitForTheAnswer(ReferenceWorker):
    def see_whether_drained(self) -> None:
        self.is_draining |= self.is_asking
        super().see_whether_drained()


@mutant(breaks="SCL-SES-026", caught_by="worker/session/does-not-ask-a-scheduler-without-the-feature")
class AsksAnyScheduler(ReferenceWorker):
    def drains_by_itself(self) -> bool:
        return True


# Frames -------------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-TRN-003", caught_by="worker/transport/messages-are-well-formed")
class SendsThreeFrames(ReferenceWorker):
    def send(self, type_: str, payload: bytes = b"", **fields: Any) -> None:
        if b'"tour"' in payload:
            self.socket.send(b"", zmq.SNDMORE)
        super().send(type_, payload, **fields)


@mutant(breaks="SCL-TRN-004", caught_by="worker/transport/empty-payload-frame-equals-no-frame")
class NeedsAPayloadFrame(ReferenceWorker):
    def on_frames(self, frames: List[bytes]) -> None:
        if len(frames) == 2 or b"scaler.conformance/sum" not in frames[0]:
            super().on_frames(frames)


@mutant(breaks="SCL-TRN-005", caught_by="worker/transport/segmented-headers-are-read")
class ReadsOneSegment(ReferenceWorker):
    def on_frames(self, frames: List[bytes]) -> None:
        if frames[0][:4] in (b"", struct.pack("<I", 0)):
            super().on_frames(frames)


@mutant(breaks="SCL-TRN-005", caught_by="worker/transport/segmented-welcome-is-read")
class ReadsAWelcomeOfOneSegment(ReferenceWorker):
    def on_frames(self, frames: List[bytes]) -> None:
        if self.session or frames[0][:4] == struct.pack("<I", 0):
            super().on_frames(frames)


@mutant(breaks="SCL-TRN-006", caught_by="worker/transport/newer-fields-are-ignored")
class DislikesNews(ReferenceWorker):
    def on_frames(self, frames: List[bytes]) -> None:
        if b"news" not in frames[0]:
            super().on_frames(frames)


@mutant(breaks="SCL-TRN-006", caught_by="worker/transport/missing-fields-have-their-defaults")
class NeedsEveryField(ReferenceWorker):
    def take(self, task: Task) -> None:
        if task.batch.attempt:
            super().take(task)


@mutant(breaks="SCL-VER-001", caught_by="worker/transport/unknown-messages-are-ignored")
class LeavesForMessagesUnheardOf(ReferenceWorker):
    def on_unreadable(self) -> None:
        self.on_contradiction()


@mutant(breaks="SCL-SEC-010", caught_by="worker/robustness/survives-faulty-headers")
class EndsForGarbage(ReferenceWorker):
    def on_unreadable(self) -> None:
        self.exit_code = 1


@mutant(breaks="SCL-SEC-010", caught_by="worker/robustness/survives-too-many-frames")
class EndsForTooManyFrames(ReferenceWorker):
    def on_frames(self, frames: List[bytes]) -> None:
        super().on_frames(frames)
        if len(frames) > 2:
            self.exit_code = 1


@mutant(breaks="SCL-SEC-010", caught_by="worker/robustness/survives-messages-of-other-roles")
class EndsForMessagesOfOthers(ReferenceWorker):
    def on_task_echo(self, message: Message) -> None:
        self.exit_code = 1
