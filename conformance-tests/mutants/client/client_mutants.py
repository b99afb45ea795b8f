"""Clients that each break one requirement: joining, heartbeats, leaving and reconnecting."""

from __future__ import annotations

import time
from typing import Any, Dict, Sequence

from mutants import mutant
from mutants.client.client_tasks import Task
from mutants.client.reference_client import ReferenceClient
from scaler_conformance.codec.schema_codec import Message

# Greeting -----------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-SES-001", caught_by="client/session/says-hello-first")
class SpeaksBeforeHello(ReferenceClient):
    def say_hello(self) -> None:
        self.send("Heartbeat", sequence=1)
        super().say_hello()


@mutant(breaks="SCL-SES-001", caught_by="client/session/nothing-is-sent-before-the-welcome")
class SubmitsBeforeTheWelcome(ReferenceClient):
    def submit(self, task: Task) -> None:
        super().submit(task)
        if self.welcome is None and self.is_started:
            self.send("Task", task.payload, **self.task_fields(self.new_ids(1), [task.payload], [[]], task))


@mutant(breaks="SCL-SES-008", caught_by="client/session/another-major-fails-with-the-message")
class InsistsOnItsMajor(ReferenceClient):
    def on_refused(self, message: Message) -> None:
        if message.reason == "versionMismatch":
            self.say_hello()
        else:
            super().on_refused(message)


@mutant(breaks="SCL-SES-008", caught_by="client/session/another-major-fails-with-the-message")
class HidesTheRefusal(ReferenceClient):
    def end_client(self, reason: str) -> None:
        super().end_client(reason if self.welcome is not None else "it did not work")


@mutant(breaks="SCL-SES-008", caught_by="client/session/a-refusal-within-the-session-is-final")
class ComesBackAfterARefusal(ReferenceClient):
    def on_refused(self, message: Message) -> None:
        if self.session and not message.reason.startswith("#"):
            self.on_connection_lost()
        else:
            super().on_refused(message)


@mutant(breaks="SCL-SES-009", caught_by="client/recovery/not-greeted-ends-the-session")
class IgnoresNotGreeted(ReferenceClient):
    def on_not_greeted(self) -> None:
        pass


@mutant(breaks="SCL-VER-004", caught_by="client/versions/an-unknown-refusal-ends-the-session")
class ComesBackAfterAnUnknownRefusal(ReferenceClient):
    def on_refused(self, message: Message) -> None:
        if message.reason.startswith("#"):
            self.on_connection_lost()
        else:
            super().on_refused(message)


# Staying ------------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-SES-014", caught_by="client/session/heartbeats-are-echoed")
class EchoesItsOwnNumber(ReferenceClient):
    def on_heartbeat(self, message: Message) -> None:
        self.send("HeartbeatEcho", sequence=self.sequence)


@mutant(breaks="SCL-SES-014", caught_by="client/session/heartbeats-are-echoed")
class EchoesARepeatedNumberOnce(ReferenceClient):
    last_echo = -1

    def on_heartbeat(self, message: Message) -> None:
        if message.sequence != self.last_echo:
            super().on_heartbeat(message)
        self.last_echo = message.sequence


@mutant(breaks="SCL-SES-014", caught_by="client/session/a-heartbeat-with-the-welcome-is-echoed")
class IsDeafAfterTheWelcome(ReferenceClient):
    """It ignores heartbeats until its user does something."""

    is_awake = False

    def read_commands(self) -> None:
        self.is_awake = self.is_started
        super().read_commands()

    def on_heartbeat(self, message: Message) -> None:
        if self.is_awake:
            super().on_heartbeat(message)


@mutant(breaks="SCL-SES-013", caught_by="client/session/heartbeats-are-sent")
class BeatsOnce(ReferenceClient):
    def beat(self) -> None:
        self.last_beat = time.monotonic()
        if self.sequence == 0:
            super().beat()


@mutant(breaks="SCL-SES-016", caught_by="client/session/ends-the-session-of-a-silent-scheduler")
class WaitsForASilentScheduler(ReferenceClient):
    def on_silence(self) -> None:
        self.last_heard = time.monotonic()


# Leaving ------------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-SES-018", caught_by="client/session/leaves-when-the-scheduler-shuts-down")
class LeavesWithoutAWord(ReferenceClient):
    def on_shutdown(self, message: Message) -> None:
        self.end_client("the scheduler shuts down")


@mutant(breaks="SCL-SES-018", caught_by="client/session/leaves-when-the-scheduler-shuts-down")
class ComesBackAfterAShutdown(ReferenceClient):
    def on_shutdown(self, message: Message) -> None:
        if message.reason == "shutdown" and self.tasks:
            self.send("DisconnectResponse")
            self.end_session()
            self.say_hello()
        else:
            super().on_shutdown(message)


@mutant(breaks="SCL-SES-018", caught_by="client/session/an-accepted-shutdown-ends-the-session")
class StaysWhenItAskedForTheEnd(ReferenceClient):
    has_asked = False

    def do_shutdown(self, command: Dict[str, Any]) -> None:
        self.has_asked = True
        super().do_shutdown(command)

    def on_shutdown(self, message: Message) -> None:
        if not self.has_asked:
            super().on_shutdown(message)


@mutant(breaks="SCL-VER-004", caught_by="client/versions/an-unknown-request-to-leave-is-a-shutdown")
class StaysForAnUnknownReason(ReferenceClient):
    def on_disconnect_request(self, message: Message) -> None:
        if not message.reason.startswith("#"):
            super().on_disconnect_request(message)


@mutant(breaks="SCL-SES-019", caught_by="client/session/announces-that-it-leaves")
class SlipsAway(ReferenceClient):
    def leave(self) -> None:
        self.is_leaving = True
        self.end_client("it has left")


@mutant(breaks="SCL-SES-019", caught_by="client/session/leaves-without-an-answer")
class WaitsForItsDismissal(ReferenceClient):
    leaving_seconds = 3600.0


# Coming back --------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-SES-023", caught_by="client/recovery/reconnects-to-a-restarted-scheduler")
class GivesUpAtOnce(ReferenceClient):
    def come_back(self) -> None:
        self.end_client("the connection ended")


@mutant(breaks="SCL-SES-023", caught_by="client/recovery/retries-after-shutting-down")
class GivesUpWhenItShutsDown(ReferenceClient):
    def on_shutting_down(self) -> None:
        self.end_client("the scheduler shuts down")


@mutant(breaks="SCL-TRN-009", caught_by="client/recovery/waits-longer-between-attempts")
class KnocksAllTheTime(ReferenceClient):
    first_pause_seconds = longest_pause_seconds = 0.1  # what a busy machine adds is no growth


@mutant(breaks="SCL-CLT-007", caught_by="client/recovery/at-most-once-is-not-sent-twice")
class SendsEverythingAgain(ReferenceClient):
    def may_be_sent_again(self, task: Task) -> bool:
        return not (task.is_cancelling or task.actor)


@mutant(breaks="SCL-SES-021", caught_by="client/recovery/nothing-of-an-old-session-is-sent")
class DeletesOldResults(ReferenceClient):
    old_results: Sequence[int] = ()

    def end_session(self) -> None:
        self.old_results = list(self.objects.fetches)
        super().end_session()

    def on_welcome(self, message: Message) -> None:
        super().on_welcome(message)
        for object_id in self.old_results:
            self.delete_result(object_id)


@mutant(breaks="SCL-SES-021", caught_by="client/recovery/nothing-of-an-old-session-is-sent")
class CancelsOnceMore(ReferenceClient):
    cancelled: Sequence[int] = ()

    def end_session(self) -> None:
        self.cancelled = [task.id for task in self.tasks.values() if task.is_cancelling and task.id is not None]
        super().end_session()

    def on_welcome(self, message: Message) -> None:
        super().on_welcome(message)
        if self.cancelled:
            self.send("TaskCancel", ids=list(self.cancelled))


@mutant(breaks="SCL-CLT-005", caught_by="client/recovery/a-late-outcome-of-the-old-session-is-ignored")
class TellsTwiceWhatItSentAgain(ReferenceClient):
    again: Sequence[Task] = ()

    def end_session(self) -> None:
        self.again = list(self.tasks.values())
        super().end_session()

    def on_unknown_result(self, object_id: int) -> None:
        super().on_unknown_result(object_id)
        for task in self.again:
            self.say("outcome", task=task.number, **{"is": "error"}, message="it was unfinished")
