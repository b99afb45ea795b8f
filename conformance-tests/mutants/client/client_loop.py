"""The loop of a reference client: its adapter, its connection, and the sessions that it has one after the other.

    suite ◀─pipes─▶ loop ◀─DEALER─▶ scheduler

Rules:
- One method, one duty: so that a mutant can break just that.
- Commands are done in the order in which they come; what the limits do not let out waits in `waiting`.
- Here is nothing of batches, outcomes and objects: that is `reference_client`.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import time
from typing import Any, BinaryIO, Callable, Dict, List, Optional, Sequence, Set

import zmq

from mutants.client.client_actors import ClientActors
from mutants.client.client_objects import ClientObjects
from mutants.client.client_serving import KEPT_ARGUMENTS, ClientServing
from mutants.client.client_tasks import Task
from mutants.handlers import handler_name
from mutants.peer_keys import secure
from mutants.resuming import RESUME, Resuming
from scaler_conformance.codec.schema_codec import SCHEMA, Message, UnreadableMessageError

UNGREETED = ("Welcome", "Refusal", "DisconnectRequest", "DisconnectResponse")
"""What means something to a client without a session."""

ENDS_OF_CONNECTIONS = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_CONNECT_RETRIED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
)
ABILITIES = ["cancel", "graph", "shutdown", "object", "clear", "map", "await", "priority", "retries",
             "timeLimitMilliseconds", "memoryLimitBytes", "profiling", "atMostOnce", "streamOutput",
             "capabilities", "keys", "actors"]  # fmt: skip


CALLED = "scaler.conformance/echo"


class ClientLoop(Resuming):
    """One adapter and its client.

    Parameters:
        reader, writer: the pipes to the suite.
    """

    first_pause_seconds, longest_pause_seconds = 0.02, 1.0
    leaving_seconds = 0.15
    serving_class = ClientServing

    def __init__(self, reader: BinaryIO, writer: BinaryIO) -> None:
        super().__init__()
        self.reader, self.writer = reader, writer
        self.exit_code: Optional[int] = None
        self.incomplete = b""
        self.has_input = True
        self.address = self.key_file = ""
        self.interval_seconds = 1.0
        self.is_started = False  # and has not ended
        self.is_leaving = False
        self.session = self.previous_session = 0
        self.welcome: Any = None
        self.next_id = 0
        self.tasks: Dict[int, Task] = {}  # without an outcome, by the adapter's number
        self.waiting: List[Task] = []  # not sent in this session
        self.by_id: Dict[int, Task] = {}
        self.objects = ClientObjects(self)
        self.serving = self.serving_class(self)
        self.actors = self.make_actors()
        self.socket: Any = None
        self.monitor: Any = None
        self.connect_at: Optional[float] = None
        self.leave_at: Optional[float] = None
        self.pause_seconds = self.first_pause_seconds
        self.last_heard = self.last_beat = 0.0
        self.sequence = 0
        self.events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.wake_reader, self.wake_writer = socket.socketpair()
        self.sizes: Dict[int, int] = {}  # of objects that the user made, by the adapter's number
        self.awaited: List[Set[int]] = []
        self.reset_flow()

    def make_actors(self) -> ClientActors:
        return ClientActors(self)

    # The loop -------------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Do what is told until the input ends; the exit code."""
        try:
            while self.exit_code is None:
                self.turn()
        finally:
            self.close_connection(self.exit_code == 0)
            self.objects.close()
            self.serving.close()
            self.wake_reader.close()
            self.wake_writer.close()
        return self.exit_code

    def turn(self) -> None:
        """Wait for something to happen, and do what follows."""
        poller = zmq.Poller()
        poller.register(self.wake_reader, zmq.POLLIN)
        if self.has_input:
            poller.register(self.reader.fileno(), zmq.POLLIN)
        for each in (self.socket, self.monitor, self.serving.server):
            if each is not None:
                poller.register(each, zmq.POLLIN)
        ready = dict(poller.poll(self.milliseconds_to_wait()))
        if self.wake_reader.fileno() in ready:
            self.wake_reader.recv(4096)
        while not self.events.empty():
            self.events.get()()
        if self.monitor is not None and self.monitor in ready:
            self.on_monitor()
        elif self.socket is not None and self.socket in ready:
            while self.socket is not None and self.socket.poll(0):
                self.on_frames(self.socket.recv_multipart())
        self.serving.read()
        if self.has_input and self.reader.fileno() in ready:
            self.read_commands()
        if self.exit_code is None:
            self.on_time(time.monotonic())
            self.send_waiting()

    def milliseconds_to_wait(self) -> int:
        times = [each for each in (self.connect_at, self.leave_at) if each is not None]
        if self.session:
            times.append(self.last_beat + self.interval_seconds)
            times.append(self.last_heard + self.timeout_seconds())
        return max(0, min(1000, int((min(times, default=1e12) - time.monotonic()) * 1000) + 1))

    def do_soon(self, action: Callable[[], None]) -> None:
        """Have the loop's thread call `action`; for other threads."""
        self.events.put(action)
        try:
            self.wake_writer.send(b".")
        except OSError:
            pass  # it has ended

    def terminate(self) -> None:
        """Ask it to end, from another thread."""
        self.do_soon(self.on_input_end)

    # The adapter ----------------------------------------------------------------------------------------------------

    def read_commands(self) -> None:
        more = os.read(self.reader.fileno(), 1 << 16)
        if not more:
            self.on_input_end()
            return
        *lines, self.incomplete = (self.incomplete + more).split(b"\n")
        for line in lines:
            command = json.loads(line)
            getattr(self, f"do_{command['do']}")(command)

    def say(self, event: str, **members: Any) -> None:
        data = json.dumps({"event": event, **members}).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self.writer.fileno(), data) :]
        except (OSError, ValueError):
            pass  # the adapter's reader has gone

    def do_hello(self, command: Dict[str, Any]) -> None:
        self.say("hello", version=2, can=ABILITIES)

    def do_ping(self, command: Dict[str, Any]) -> None:
        self.say("pong")

    def do_start(self, command: Dict[str, Any]) -> None:
        self.address = command["address"]
        self.key_file = command.get("keyFile", "")
        self.interval_seconds = command.get("heartbeatIntervalMilliseconds", 1000) / 1000
        self.is_started = True
        self.connect()

    def do_submit(self, command: Dict[str, Any]) -> None:
        for number, arguments in zip(command["tasks"], command["arguments"]):
            is_raw = command.get("codec") == "raw"
            self.submit(Task(number, command, arguments[0].encode() if is_raw else json.dumps(arguments).encode()))

    def submit(self, task: Task) -> None:
        self.tasks[task.number] = task
        if not self.is_started:
            self.end_task(task, "error", message="the client has ended")
        elif task.actor:
            self.actors.submit(task)
        else:
            self.waiting.append(task)

    def do_graph(self, command: Dict[str, Any]) -> None:
        self.submit(Task(command["task"], command, b""))

    def do_map(self, command: Dict[str, Any]) -> None:
        self.do_submit(command)

    def do_object(self, command: Dict[str, Any]) -> None:
        self.sizes[command["object"]] = command["size"]
        if self.session:
            self.objects.user_object(command["object"], command["size"])

    def do_call(self, command: Dict[str, Any]) -> None:
        like = {**command, "function": CALLED}
        self.submit(Task(command["task"], like, json.dumps([str(command["task"])]).encode()))

    def do_actor(self, command: Dict[str, Any]) -> None:
        self.actors.make(command["actor"])

    def do_actorCall(self, command: Dict[str, Any]) -> None:  # noqa: N802 - the command's name
        self.submit(Task(command["task"], {**command, "function": CALLED}, b"[]"))

    def do_clear(self, command: Dict[str, Any]) -> None:
        self.sizes.clear()
        self.objects.delete_user_objects()

    def do_await(self, command: Dict[str, Any]) -> None:
        self.awaited.append({each for each in command["tasks"] if each in self.tasks})
        self.look_for_the_awaited()

    def look_for_the_awaited(self) -> None:
        """Tell the user of waits that are over."""
        for each in [each for each in self.awaited if not self.must_wait(each)]:
            self.awaited.remove(each)
            self.say("awaited")

    def must_wait(self, tasks: Set[int]) -> bool:
        return any(each in self.tasks for each in tasks)

    def do_cancel(self, command: Dict[str, Any]) -> None:
        task = self.tasks.get(command["task"])
        if task is not None and task in self.waiting:
            self.waiting.remove(task)
            self.end_task(task, "cancelled")
        elif task is not None:
            task.is_cancelling = True
            self.send("TaskCancel", ids=[task.id], force=command.get("force", False))

    def do_disconnect(self, command: Dict[str, Any]) -> None:
        self.leave()

    def do_shutdown(self, command: Dict[str, Any]) -> None:
        self.send("ClientShutdown")

    def on_client_shutdown_response(self, message: Message) -> None:
        self.say("shutdown", accepted=message.accepted)

    def on_input_end(self) -> None:
        self.has_input = False
        if self.is_started:
            self.leave()
        else:
            self.exit_code = 0

    def end_task(self, task: Task, is_: str, **members: Any) -> None:
        """A task has its outcome."""
        if self.tasks.pop(task.number, None) is None:
            return
        if task.id is not None:
            self.by_id.pop(task.id, None)
        self.say("outcome", task=task.number, **{"is": is_}, **members)
        self.look_for_the_awaited()

    def end_client(self, reason: str) -> None:
        """There is no session, and none will be."""
        was_welcome = self.welcome is not None
        self.end_session()
        self.close_connection(True)
        self.is_started = False
        self.connect_at = self.leave_at = None
        for task in list(self.tasks.values()):
            self.end_task(task, "error", message=reason)
        self.waiting.clear()
        if self.is_leaving:
            self.say("ended")
        elif not was_welcome:
            self.say("failed", message=reason)
        if not self.has_input:
            self.exit_code = 0

    # The session ----------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Open a new connection and say Hello."""
        self.close_connection(False)
        self.connect_at = None
        self.open_connection()
        self.last_heard = time.monotonic()
        self.say_hello()

    def open_connection(self) -> None:
        self.socket = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.set_hwm(0)
        self.socket.reconnect_ivl = -1
        self.monitor = self.socket.get_monitor_socket(ENDS_OF_CONNECTIONS)
        if self.key_file:
            self.secure()
        self.socket.connect(self.address)

    def secure(self) -> None:
        """Use the key for the connection that is being made."""
        secure(self.socket, self.key_file)

    def close_connection(self, lingers: bool) -> None:
        self.close_former()
        if self.socket is not None:
            self.socket.disable_monitor()
            self.monitor.close(0)
            self.socket.close(1000 if lingers else 0)
            self.socket = self.monitor = None

    def on_monitor(self) -> None:
        self.monitor.recv_multipart()
        self.on_connection_lost()

    def say_hello(self) -> None:
        self.send("Hello", **self.hello())

    def hello(self) -> Dict[str, Any]:
        return {
            "major": 1,
            "minorMin": 0,
            "minorMax": 0,
            "role": "client",
            "features": [RESUME, *([] if self.key_file else [KEPT_ARGUMENTS])],
            "dataAddress": "" if self.key_file else self.serving.listen(),
            "implementation": {"name": "reference client", "version": "1", "language": "Python"},
            "codecs": ["json", "raw"],
            "host": socket.gethostname(),
            "processId": os.getpid(),
            "name": "reference",
            "previousSession": self.previous_session,
            "heartbeatIntervalMilliseconds": int(self.interval_seconds * 1000),
        }

    def send(self, type_: str, payload: bytes = b"", **fields: Any) -> None:
        frames = [SCHEMA.encode(type_, self.with_count(type_, fields)), *([payload] if payload else [])]
        if not self.keep_sent(frames):
            self.send_frames(frames)

    def send_frames(self, frames: Sequence[bytes]) -> None:
        if self.socket is not None:
            try:
                self.socket.send_multipart(frames, zmq.NOBLOCK)
            except zmq.Again:
                pass  # the connection has failed already: the monitor says so

    def on_frames(self, frames: List[bytes]) -> None:
        try:
            type_, fields = SCHEMA.decode(frames)
        except UnreadableMessageError:
            self.on_unreadable()
            return
        message = Message(type_, fields, b"".join(frames[1:2]))
        self.last_heard = time.monotonic()
        if not self.on_received(message):
            self.react(message)

    def react(self, message: Message) -> None:
        handler = getattr(self, handler_name(message.type), None)
        if handler is not None and (self.session or message.type in UNGREETED):
            handler(message)

    def on_unreadable(self) -> None:
        """Bytes that are no message are ignored."""

    def on_welcome(self, message: Message) -> None:
        if self.session:
            return
        is_first = self.welcome is None
        self.session = self.previous_session = message.session
        self.welcome = message
        self.begin_counting(message)
        self.pause_seconds = self.first_pause_seconds
        self.objects.begin(message)
        self.serving.begin(message)
        self.reset_flow()
        self.set_limits(message.limits.tasksInFlight, message.limits.bytesInFlight)
        self.beat()
        if is_first:
            self.say("started")

    def on_refusal(self, message: Message) -> None:
        if message.reason == "notGreeted":
            self.on_not_greeted()
        elif message.reason == "shuttingDown":
            self.on_shutting_down()
        else:
            self.on_refused(message)

    def on_not_greeted(self) -> None:
        if self.session:
            self.end_session()
            self.say_hello()

    def on_shutting_down(self) -> None:
        self.on_connection_lost()

    def on_refused(self, message: Message) -> None:
        self.end_client(f"refused ({message.reason}): {message.message}")

    def on_connection_lost(self) -> None:
        self.end_session()
        self.close_connection(False)
        if self.is_leaving:
            self.end_client("it has left")
        else:
            self.come_back()

    def come_back(self) -> None:
        self.connect_at = time.monotonic() + self.pause_seconds
        self.pause_seconds = min(self.longest_pause_seconds, self.pause_seconds * 2)

    def end_session(self) -> None:
        """What is unfinished is to be sent in the next one."""
        if not self.session:
            return
        self.session = 0
        self.stop_resuming()
        unfinished = sorted(self.tasks.values(), key=lambda task: task.number)
        self.waiting = [task for task in unfinished if self.may_be_sent_again(task)]
        for task in unfinished:
            if task.is_cancelling:
                self.end_task(task, "cancelled")
            elif task not in self.waiting:
                self.end_task(task, "error", message="it may have run, and may run once at most")
            task.id = None
        self.by_id.clear()
        self.objects.clear()
        self.serving.clear()

    def on_ticket(self, message: Message) -> None:
        self.serving.on_ticket(message)

    def on_object_instruction(self, message: Message) -> None:
        for each in message.ids if message.action == "delete" else []:
            self.serving.on_ended(each)

    def may_be_sent_again(self, task: Task) -> bool:
        is_once = task.was_sent and task.options.get("atMostOnce")
        return not (task.is_cancelling or is_once) and self.actors.may_be_sent_again(task)

    def timeout_seconds(self) -> float:
        return float(self.welcome.timeoutMilliseconds / 1000) if self.welcome else 60.0

    def on_time(self, now: float) -> None:
        told_milliseconds = self.welcome.heartbeatIntervalMilliseconds if self.welcome else 0
        self.listen_for_silence(now, told_milliseconds / 1000 or self.interval_seconds)
        if self.leave_at is not None and now >= self.leave_at:
            self.end_client("it has left")
        elif self.connect_at is not None and now >= self.connect_at:
            self.connect()
        elif self.session and now - self.last_heard > self.timeout_seconds():
            self.on_silence()
        elif self.session and now >= self.last_beat + self.interval_seconds:
            self.beat()

    def on_silence(self) -> None:
        self.on_connection_lost()

    def beat(self) -> None:
        self.last_beat = time.monotonic()
        self.sequence += 1
        self.send("Heartbeat", sequence=self.sequence, sharesObjectDirectory=bool(self.objects.directory))

    def on_heartbeat(self, message: Message) -> None:
        self.send("HeartbeatEcho", sequence=message.sequence)

    def on_disconnect_request(self, message: Message) -> None:
        self.on_shutdown(message)

    def on_shutdown(self, message: Message) -> None:
        self.send("DisconnectResponse")
        self.end_client(f"the scheduler says: {message.reason}")

    def leave(self) -> None:
        self.is_leaving = True
        if self.is_started and self.socket is not None:
            self.send("DisconnectRequest", reason="leaving")
            self.leave_at = time.monotonic() + self.leaving_seconds
        else:
            self.end_client("it has left")

    def on_disconnect_response(self, message: Message) -> None:
        if self.is_leaving:
            self.end_client("it has left")

    # What the reference adds -----------------------------------------------------------------------------------------

    def send_waiting(self) -> None:
        """Send what the limits let out."""
        raise NotImplementedError

    def reset_flow(self) -> None:
        """Nothing is in flight: a session begins."""
        raise NotImplementedError

    def set_limits(self, tasks: int, size: int) -> None:
        """So much may be in flight."""
        raise NotImplementedError
