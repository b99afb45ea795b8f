"""A worker that does all that the specification asks of workers, on threads of one process.

    scheduler ◀─DEALER─▶ loop ──thread a task──▶ conformance_functions
                          ▲───── events, and a byte to wake it ────┘

Rules:
- Here is what it does with tasks; see `worker_loop` for its session, `worker_objects` for its objects.
- One method, one duty: so that a mutant can break just that.
- `python -m mutants.worker.reference_worker ADDRESS` runs it as a process; the suite's own tests run it on a thread.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any, Dict, List, Tuple, Type

from mutants.worker import conformance_functions
from mutants.worker.conformance_functions import CODECS, FUNCTIONS, PREFIX, Execution, ProcessDied, TaskFailed
from mutants.worker.worker_loop import WorkerLoop
from mutants.worker.worker_tasks import Outcome, Task
from scaler_conformance.codec.schema_codec import SCHEMA, Message

SUCCESS, FAILED, LOST = 0, 1, 3
CANCELLED, RUNNING, NOT_FOUND = 0, 1, 2


class ReferenceWorker(WorkerLoop):
    """One worker, correct."""

    # Tasks ----------------------------------------------------------------------------------------------------------

    def on_task(self, message: Message) -> None:
        count = len(message.ids)
        counts = message.dependencyCounts or [0] * count
        if not self.agrees(message, count, counts):
            self.on_contradiction()
            return
        start = first = 0
        for index in range(count):
            size, number = message.payloadSizes[index], counts[index]
            dependencies = message.dependencies[first : first + number]
            self.take(Task(message, index, message.payload[start : start + size], dependencies))
            start, first = start + size, first + number

    def agrees(self, message: Message, count: int, counts: List[int]) -> bool:
        return (
            len(message.payloadSizes) == count
            and sum(message.payloadSizes) == len(message.payload)
            and len(counts) == count
            and sum(counts) == len(message.dependencies)
        )

    def on_contradiction(self) -> None:
        """The scheduler sent something inconsistent: begin a new session."""
        self.end_session()
        self.connect()

    def take(self, task: Task) -> None:
        """A task arrived: refuse it or queue it."""
        name = task.name[len(PREFIX) :] if task.name.startswith(PREFIX) else ""
        if task.codec not in ("json", "raw"):
            self.finish(task, *self.refusal_of_codec(task))
        elif task.function == 0 and name not in FUNCTIONS:
            self.finish(task, *self.refusal_of_name(task))
        elif task.function == 0 and task.codec not in CODECS[name]:
            self.finish(task, *self.refusal_of_codec(task))
        elif task.options.actor and not self.actors.take(task):
            self.lose_call(task)
        else:
            self.held.append(task)
            self.objects.fetch_missing(task.needs)

    def lose_call(self, call: Task) -> None:
        self.finish(call, LOST, self.failure(call, "actorLost", self.actors.lost[call.function]))

    def refusal_of_codec(self, task: Task) -> Tuple[int, bytes]:
        return LOST, self.failure(task, "codecUnknown", f"no codec {task.codec} here")

    def refusal_of_name(self, task: Task) -> Tuple[int, bytes]:
        return FAILED, self.failure(task, "functionNotLoaded", f"no function {task.name} here")

    def failure(self, task: Task, kind: str, message: str, type_name: str = "") -> bytes:
        return SCHEMA.encode_failure(
            kind=kind, message=message, typeName=type_name, worker=self.name, attempts=task.attempt
        )

    def start_ready(self) -> None:
        """Start what has a slot and its objects."""
        given = [task for task in self.held if self.may_be_given_back(task)] if self.is_asking else []
        if given:
            self.send("BalanceResponse", ids=[task.id for task in given])
            self.held = [task for task in self.held if task not in given]
        for task in self.in_order():
            missing = [each for each in task.needs if self.objects.is_missing(each)]
            if missing:
                self.held.remove(task)
                self.finish(task, *self.object_missing(task, missing[0]))
            elif all(map(self.objects.is_there, task.needs)) and self.may_start(task):
                self.held.remove(task)
                self.start(task)

    def may_start(self, task: Task) -> bool:
        return len(self.running) < self.slots and (not task.options.actor or self.actors.may_start(task))

    def in_order(self) -> List[Task]:
        return sorted(self.held, key=lambda task: -task.options.priority)

    def object_missing(self, task: Task, object_id: int) -> Tuple[int, bytes]:
        text, reason = f"there is no object {object_id:x}", self.objects.reasons.get(object_id, "unknown")
        if reason == "unknown":
            return LOST, self.failure(task, "objectMissing", text)
        fields = {"worker": self.name, "attempts": task.attempt, "missingReason": reason}
        return LOST, SCHEMA.encode_failure(kind="objectMissing", message=text, **fields)

    def start(self, task: Task) -> None:
        execution = task.execution = Execution(lambda stream, text: self.on_output(task, execution, stream, text))
        task.began = time.monotonic()
        self.running[task.id] = task
        if task.options.actor:
            self.actors.begin(task)
        elif task.function:
            self.on_ended(task, execution, TaskFailed("functionNotLoaded", "functions are served by name here"))
            return
        arguments = self.arguments_of(task)
        threading.Thread(target=self.execute, args=(task, execution, arguments), daemon=True).start()

    def arguments_of(self, task: Task) -> bytes:
        return task.payload or (self.objects.content(task.dependencies[0]) if task.dependencies else b"")

    def execute(self, task: Task, execution: Execution, arguments: bytes) -> None:
        """On a thread of the task's own."""
        result: Any
        try:
            result = self.call(task.name[len(PREFIX) :], task, arguments, execution)
        except (TaskFailed, ProcessDied) as error:
            result = error
        except Exception as error:
            result = TaskFailed("taskRaised", repr(error))
        self.do_soon(lambda: self.on_ended(task, execution, result))

    def call(self, name: str, task: Task, arguments: bytes, execution: Execution) -> bytes:
        if name == "fill":
            self.check_memory(task, json.loads(arguments)[0])
        return conformance_functions.run(name, task.codec, arguments, execution)

    def check_memory(self, task: Task, count: Any) -> None:
        """The memory that is filled is only played."""
        if isinstance(count, int) and 0 < task.options.memoryLimitBytes < count:
            raise ProcessDied("memory")

    def on_output(self, task: Task, execution: Execution, stream: int, text: str) -> None:
        if task.options.streamOutput and text:
            self.do_soon(lambda: self.send_log(task, stream, text))

    def send_log(self, task: Task, stream: int, text: str) -> None:
        if task.id in self.running:
            self.send("TaskLog", id=task.id, stream=stream, text=text)

    def on_ended(self, task: Task, execution: Execution, result: Any) -> None:
        """A task's thread is over; what was stopped is not there any more."""
        if self.running.get(task.id) is not task or task.execution is not execution:
            return
        del self.running[task.id]
        if isinstance(result, ProcessDied):
            self.on_process_died(task, str(result))
        elif isinstance(result, TaskFailed):
            self.finish(task, FAILED, self.failure(task, result.kind, str(result), result.type_name))
        else:
            self.finish(task, SUCCESS, result)

    def on_process_died(self, task: Task, how: str) -> None:
        if task.options.actor:
            self.actors.lose(task.function, f"its process {how}")
            self.lose_call(task)
        elif how == "memory":
            self.finish(task, LOST, self.failure(task, "memoryLimit", "it used too much memory"))
        elif self.may_run_again(task):
            task.attempt += 1
            self.held.insert(0, task)
        else:
            self.finish(task, LOST, self.failure(task, "processorDied", f"its process {how}"))

    def may_run_again(self, task: Task) -> bool:
        return task.attempt <= task.options.retries and not task.options.atMostOnce

    def timed_tasks(self) -> List[Task]:
        return [task for task in self.running.values() if task.options.timeLimitMilliseconds]

    def on_time_limit(self, task: Task) -> None:
        self.stop(task)
        del self.running[task.id]
        self.finish(task, LOST, self.failure(task, "timeLimit", "it ran for too long"))
        self.on_stopped(task)

    def on_stopped(self, task: Task) -> None:
        """A running task was stopped, and with it its process."""
        if task.options.actor:
            self.actors.lose(task.function, "its process was stopped")

    def stop(self, task: Task) -> None:
        assert task.execution is not None
        task.execution.stop()

    # Outcomes -------------------------------------------------------------------------------------------------------

    def finish(self, task: Task, status: int, payload: bytes) -> None:
        """A task has ended: its outcome goes out, or is kept until its object was fetched."""
        outcome = Outcome(task, status, payload)
        outcome.seconds = time.monotonic() - task.began if task.began else 0.0
        limit = self.welcome.limits.inlineBytes
        if status == SUCCESS and limit and len(payload) >= limit:
            outcome.object, is_there = self.objects.create(payload)
            outcome.payload = b""
            if not is_there:
                self.keep(outcome)
                return
        self.report([outcome])

    def keep(self, outcome: Outcome) -> None:
        self.kept[outcome.object] = outcome

    def on_served(self, object_id: int) -> None:
        """The scheduler has fetched a large result to its end."""
        outcome = self.kept.pop(object_id, None)
        if outcome is not None:
            self.report([outcome])

    def report(self, outcomes: List[Outcome]) -> None:
        """Outcomes go out together at the end of the loop's turn, or before what must come after them."""
        self.outbox += outcomes

    def flush(self) -> None:
        self.send_outcomes()
        self.see_whether_drained()

    def send_outcomes(self) -> None:
        outcomes, self.outbox = self.outbox, []
        while outcomes:
            together = self.what_goes_together(outcomes)
            outcomes = outcomes[len(together) :]
            fields, payload = self.result_message(together)
            self.send("TaskResult", payload, **fields)

    def what_goes_together(self, outcomes: List[Outcome]) -> List[Outcome]:
        """The first outcomes, as many as are alike and keep to the limit of a message."""
        first, room = outcomes[0].task, (self.welcome.limits.maximumMessageBytes or 1 << 30) // 2
        together: List[Outcome] = []
        for each in outcomes:
            room -= len(each.payload) + 100
            alike = (each.task.codec, each.task.options.profiling) == (first.codec, first.options.profiling)
            if together and (room < 0 or not alike):
                break
            together.append(each)
        return together

    def result_message(self, outcomes: List[Outcome]) -> Tuple[Dict[str, Any], bytes]:
        first = outcomes[0].task
        microseconds = [int(each.seconds * 1_000_000) + 1 for each in outcomes]
        fields: Dict[str, Any] = {
            "ids": [each.task.id for each in outcomes],
            "statuses": [each.status for each in outcomes],
            "payloadSizes": [len(each.payload) for each in outcomes],
            "codec": first.codec,
            "objects": [each.object for each in outcomes] if any(each.object for each in outcomes) else [],
            "busyMicroseconds": sum(microseconds),
        }
        if first.options.profiling:
            fields.update(self.profile(microseconds))
        if self.is_watched:
            fields["runs"] = self.runs(microseconds)
        return fields, b"".join(each.payload for each in outcomes)

    def runs(self, microseconds: List[int]) -> List[int]:
        """One run for each outcome."""
        return [number for each in microseconds for number in (1, os.getpid(), each)]

    def profile(self, microseconds: List[int]) -> Dict[str, Any]:
        return {
            "durationsMicroseconds": microseconds,
            "cpuMicroseconds": microseconds,
            "peakMemoryBytes": [1 << 20] * len(microseconds),
        }

    # Cancels and balance --------------------------------------------------------------------------------------------

    def on_task_cancel(self, message: Message) -> None:
        for instance in message.ids:
            self.cancel(instance, message.force)

    def cancel(self, instance: int, force: bool) -> None:
        held = next((task for task in self.held if task.id == instance), None)
        if held is not None:
            self.cancel_held(held)
        elif instance in self.running:
            self.cancel_running(self.running[instance], force)
        elif any(outcome.task.id == instance for outcome in self.kept.values()):
            self.confirm(instance, RUNNING)
        else:
            self.confirm(instance, NOT_FOUND)

    def cancel_held(self, task: Task) -> None:
        self.held.remove(task)
        self.confirm(task.id, CANCELLED)

    def cancel_running(self, task: Task, force: bool) -> None:
        if force:
            self.stop(task)
            del self.running[task.id]
            self.confirm(task.id, CANCELLED)
            self.on_stopped(task)
        else:
            self.confirm(task.id, RUNNING)

    def confirm(self, instance: int, outcome: int) -> None:
        self.flush()
        self.send("TaskCancelConfirm", ids=[instance], outcomes=[outcome])
        self.see_whether_drained()

    def on_balance_request(self, message: Message) -> None:
        given = [task for task in self.choose_to_give_back(message.count) if self.may_be_given_back(task)]
        for task in given:
            self.held.remove(task)
        self.send("BalanceResponse", requestId=message.requestId, ids=[task.id for task in given])
        self.see_whether_drained()

    def may_be_given_back(self, task: Task) -> bool:
        return task.began == 0 and not task.options.actor

    def choose_to_give_back(self, count: int) -> List[Task]:
        return self.in_order()[-count:] if count else []

    # Objects --------------------------------------------------------------------------------------------------------

    def on_object_instruction(self, message: Message) -> None:
        self.objects.on_instruction(message)
        if message.action == "delete":
            self.actors.end(message.ids)

    def on_object_request(self, message: Message) -> None:
        self.objects.on_request(message)

    def on_object_response(self, message: Message) -> None:
        self.objects.on_response(message)


def main(peer: Type[ReferenceWorker] = ReferenceWorker) -> int:
    worker = peer(sys.argv[1])
    signal.signal(signal.SIGTERM, lambda *_: worker.terminate())
    return worker.run()


if __name__ == "__main__":
    sys.exit(main())
