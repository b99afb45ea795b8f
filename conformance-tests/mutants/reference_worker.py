"""A worker that does all that the specification asks of workers, on threads of one process.

    scheduler ◀─DEALER─▶ loop ──thread a task──▶ conformance_functions
                          ▲───── events, and a byte to wake it ────┘

Rules:
- All state belongs to the loop's thread. A task's thread only puts an event into the queue.
- One method, one duty: so that a mutant can break just that.
- `python -m mutants.reference_worker ADDRESS` runs it as a process; the suite's own tests run it on a thread.
"""

from __future__ import annotations

import os
import queue
import re
import signal
import socket
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Type

import zmq

from mutants import conformance_functions
from mutants.conformance_functions import CODECS, FUNCTIONS, PREFIX, Execution, ProcessDied, TaskFailed
from mutants.worker_objects import WorkerObjects
from mutants.worker_tasks import Outcome, Task
from scaler_conformance.codec import SCHEMA, Message, UnreadableMessageError

UNGREETED = ("Welcome", "Refusal", "DisconnectRequest", "DisconnectResponse")
"""What means something to a worker without a session."""

SUCCESS, FAILED, LOST = 0, 1, 3
CANCELLED, RUNNING, NOT_FOUND = 0, 1, 2


class ReferenceWorker:
    """One worker.

    Parameters:
        address: of the scheduler.
    """

    slots = 2
    queue_size = 200
    name = "reference"

    def __init__(self, address: str) -> None:
        self.address = address
        self.exit_code: Optional[int] = None
        self.session = 0
        self.welcome: Any = None
        self.held: List[Task] = []  # not started, in the order in which they came
        self.running: Dict[int, Task] = {}
        self.kept: Dict[int, Outcome] = {}  # by object id: sent when the scheduler has fetched it
        self.objects = WorkerObjects(self)
        self.is_draining = False
        self.is_leaving = False
        self.last_heard = self.last_beat = time.monotonic()
        self.sequence = 0
        self.events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.wake_reader, self.wake_writer = socket.socketpair()
        self.wake_reader.setblocking(False)
        self.socket: Any = None
        self.monitor: Any = None

    # The loop -------------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Serve until told to stop; the exit code."""
        try:
            self.connect()
            while self.exit_code is None:
                self.turn()
        finally:
            self.close()
        return self.exit_code

    def turn(self) -> None:
        """Wait for something to happen, and do what follows."""
        poller = zmq.Poller()
        for each in (self.socket, self.monitor, self.wake_reader):
            poller.register(each, zmq.POLLIN)
        ready = dict(poller.poll(self.milliseconds_to_wait()))
        if self.wake_reader.fileno() in ready:
            self.wake_reader.recv(4096)
        while not self.events.empty():
            self.events.get()()
        if self.monitor in ready:
            self.monitor.recv_multipart()
            self.on_connection_lost()
        elif self.socket in ready:
            self.read()
        if self.exit_code is None:
            self.on_time(time.monotonic())
            self.start_ready()
            self.objects.flush()

    def milliseconds_to_wait(self) -> int:
        ends = [task.began + task.options.timeLimitMilliseconds / 1000 for task in self.timed_tasks()]
        nearest = min([*ends, self.last_beat + self.interval_seconds()], default=0.0)
        return max(0, min(1000, int((nearest - time.monotonic()) * 1000) + 1))

    def read(self) -> None:
        while self.exit_code is None and self.socket.poll(0):
            self.on_frames(self.socket.recv_multipart())

    def do_soon(self, action: Callable[[], None]) -> None:
        """Have the loop's thread call `action`; for other threads."""
        self.events.put(action)
        try:
            self.wake_writer.send(b".")
        except OSError:
            pass  # it has ended

    def terminate(self) -> None:
        """Ask it to end, from another thread or a signal handler."""
        self.do_soon(self.leave)

    def close(self) -> None:
        for task in self.running.values():
            self.stop(task)
        self.close_connection(self.exit_code == 0)
        self.objects.close()
        self.wake_reader.close()
        self.wake_writer.close()

    # The session ----------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Begin anew: a new connection, and a Hello."""
        self.close_connection(False)
        self.socket = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.set_hwm(0)
        self.monitor = self.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self.socket.connect(self.address)
        self.last_heard = self.last_beat = time.monotonic()
        self.say_hello()

    def close_connection(self, lingers: bool) -> None:
        if self.socket is not None:
            self.socket.disable_monitor()
            self.monitor.close(0)
            self.socket.close(1000 if lingers else 0)

    def say_hello(self) -> None:
        self.send("Hello", **self.hello())

    def hello(self) -> Dict[str, Any]:
        return {
            "major": 1,
            "minorMin": 0,
            "minorMax": 0,
            "role": "worker",
            "implementation": {"name": "reference worker", "version": "1", "language": "Python"},
            "codecs": ["json", "raw"],
            "functions": [PREFIX + each for each in FUNCTIONS],
            "host": socket.gethostname(),
            "processId": os.getpid(),
            "name": self.name,
            "slots": self.slots,
            "queueSize": self.queue_size,
        }

    def send(self, type_: str, payload: bytes = b"", **fields: Any) -> None:
        self.send_frames([SCHEMA.encode(type_, fields), *([payload] if payload else [])])

    def send_frames(self, frames: Sequence[bytes]) -> None:
        self.socket.send_multipart(frames)

    def on_frames(self, frames: List[bytes]) -> None:
        try:
            type_, fields = SCHEMA.decode(frames)
        except UnreadableMessageError:
            self.on_unreadable()
            return
        message = Message(type_, fields, b"".join(frames[1:2]))
        self.last_heard = time.monotonic()
        handler = getattr(self, handler_name(type_), None)
        if handler is not None and (self.session or type_ in UNGREETED):
            handler(message)

    def on_unreadable(self) -> None:
        """Bytes that are no message are ignored."""

    def on_welcome(self, message: Message) -> None:
        if not self.session:
            self.session = message.session
            self.welcome = message
            self.objects.begin(message)
            self.beat()

    def on_refusal(self, message: Message) -> None:
        if message.reason == "notGreeted":
            self.on_not_greeted()
        elif message.reason == "shuttingDown":
            self.end_session()
            self.come_back_later()
        else:
            print(f"refused ({message.reason}): {message.message}", file=sys.stderr)
            self.end_session()
            self.exit_code = 4

    def on_not_greeted(self) -> None:
        if self.session:
            self.end_session()
            self.say_hello()

    def come_back_later(self) -> None:
        """Say Hello again with the next heartbeat's time."""

    def on_connection_lost(self) -> None:
        self.end_session()
        if self.is_leaving or self.is_draining:
            self.exit_code = 0
        else:
            self.connect()

    def end_session(self) -> None:
        """Nothing of the session is of interest any more."""
        self.session = 0
        self.held.clear()
        for task in self.running.values():
            self.stop(task)
        self.running.clear()
        self.kept.clear()
        self.objects.clear()

    def interval_seconds(self) -> float:
        return (self.welcome.heartbeatIntervalMilliseconds if self.welcome else 0) / 1000 or 1.0

    def on_time(self, now: float) -> None:
        for task in self.timed_tasks():
            if now >= task.began + task.options.timeLimitMilliseconds / 1000:
                self.on_time_limit(task)
        if now < self.last_beat + self.interval_seconds():
            return
        self.last_beat = now
        if self.welcome and now - self.last_heard > self.welcome.timeoutMilliseconds / 1000:
            self.on_silence()
        elif self.session:
            self.beat()
        else:
            self.say_hello()

    def on_silence(self) -> None:
        self.end_session()
        self.connect()

    def beat(self) -> None:
        self.sequence += 1
        self.send("Heartbeat", sequence=self.sequence, sharesObjectDirectory=bool(self.objects.directory))

    def on_heartbeat(self, message: Message) -> None:
        self.send("HeartbeatEcho", sequence=message.sequence)

    def on_disconnect_request(self, message: Message) -> None:
        if message.reason == "draining":
            self.is_draining = True
            self.see_whether_drained()
        else:
            self.on_shutdown()

    def on_shutdown(self) -> None:
        self.send("DisconnectResponse")
        self.exit_code = 0

    def see_whether_drained(self) -> None:
        if self.is_draining and not self.held and not self.running and not self.kept:
            self.send("DisconnectResponse")
            self.exit_code = 0

    def leave(self) -> None:
        self.is_leaving = True
        self.send("DisconnectRequest", reason="leaving")

    def on_disconnect_response(self, message: Message) -> None:
        self.exit_code = 0

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
        """The scheduler is not to be understood: begin anew."""
        self.end_session()
        self.connect()

    def take(self, task: Task) -> None:
        """A task came: it is refused, or waits for its turn."""
        name = task.name[len(PREFIX) :] if task.name.startswith(PREFIX) else ""
        if task.codec not in ("json", "raw"):
            self.finish(task, *self.refusal_of_codec(task))
        elif task.function == 0 and name not in FUNCTIONS:
            self.finish(task, *self.refusal_of_name(task))
        elif task.function == 0 and task.codec not in CODECS[name]:
            self.finish(task, *self.refusal_of_codec(task))
        else:
            self.held.append(task)
            self.objects.fetch_missing(task.needs)

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
        for task in self.in_order():
            missing = [each for each in task.needs if self.objects.is_missing(each)]
            if missing:
                self.held.remove(task)
                self.finish(task, *self.object_missing(task, missing[0]))
            elif len(self.running) < self.slots and all(map(self.objects.is_there, task.needs)):
                self.held.remove(task)
                self.start(task)

    def in_order(self) -> List[Task]:
        return sorted(self.held, key=lambda task: -task.options.priority)

    def object_missing(self, task: Task, object_id: int) -> Tuple[int, bytes]:
        return LOST, self.failure(task, "objectMissing", f"there is no object {object_id:x}")

    def start(self, task: Task) -> None:
        execution = task.execution = Execution(lambda stream, text: self.on_output(task, execution, stream, text))
        task.began = time.monotonic()
        self.running[task.id] = task
        if task.function:
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
        limit = task.options.memoryLimitBytes
        if name == "size" and limit and int(arguments.strip(b"[] ")) > limit:
            raise ProcessDied("memory")
        return conformance_functions.run(name, task.codec, arguments, execution)

    def on_output(self, task: Task, execution: Execution, stream: int, text: str) -> None:
        if task.options.streamOutput:
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
        if how == "memory":
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
        fields, payload = self.result_message(outcomes)
        self.send("TaskResult", payload, **fields)
        self.see_whether_drained()

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
        return fields, b"".join(each.payload for each in outcomes)

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
        else:
            self.confirm(task.id, RUNNING)

    def confirm(self, instance: int, outcome: int) -> None:
        self.send("TaskCancelConfirm", ids=[instance], outcomes=[outcome])
        self.see_whether_drained()

    def on_balance_request(self, message: Message) -> None:
        given = self.choose_to_give_back(message.count)
        for task in given:
            self.held.remove(task)
        self.send("BalanceResponse", requestId=message.requestId, ids=[task.id for task in given])
        self.see_whether_drained()

    def choose_to_give_back(self, count: int) -> List[Task]:
        return self.in_order()[-count:] if count else []

    # Objects --------------------------------------------------------------------------------------------------------

    def on_object_instruction(self, message: Message) -> None:
        self.objects.on_instruction(message)

    def on_object_request(self, message: Message) -> None:
        self.objects.on_request(message)

    def on_object_response(self, message: Message) -> None:
        self.objects.on_response(message)


def handler_name(type_: str) -> str:
    """`TaskCancel` is handled by `on_task_cancel`."""
    return "on" + re.sub("(?=[A-Z])", "_", type_).lower()


def main(peer: Type[ReferenceWorker] = ReferenceWorker) -> int:
    worker = peer(sys.argv[1])
    signal.signal(signal.SIGTERM, lambda *_: worker.terminate())
    return worker.run()


if __name__ == "__main__":
    sys.exit(main())
