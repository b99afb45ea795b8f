"""The reference worker's loop and its session: joining, staying, leaving. What it does with tasks is in its child.

Rules:
- All state belongs to the loop's thread. A task's thread only puts an event into the queue.
- One method, one duty: so that a mutant can break just that.
"""

from __future__ import annotations

import os
import queue
import socket
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

import zmq

from mutants.handlers import handler_name
from mutants.peer_keys import secure
from mutants.resuming import RESUME, Resuming
from mutants.worker.conformance_functions import FUNCTIONS, PREFIX
from mutants.worker.worker_actors import ACTORS, WorkerActors
from mutants.worker.worker_objects import KEPT_RESULTS, WorkerObjects
from mutants.worker.worker_tasks import Outcome, Task
from mutants.worker.worker_transfers import PEER_FETCH, WorkerTransfers
from scaler_conformance.codec.schema_codec import SCHEMA, Message, UnreadableMessageError
from scaler_conformance.playing.curve_keys import PEER_KEY

DRAIN_REQUESTS = "drainRequests"
UNGREETED = ("Welcome", "Refusal", "DisconnectRequest", "DisconnectResponse")
"""What means something to a worker without a session."""


ENDS_OF_CONNECTIONS = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_CONNECT_RETRIED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
)


class WorkerLoop(Resuming):
    """One worker.

    Parameters:
        address: of the scheduler.
        variant: unused; there is one with keys.
        keys: the folder with its key file.
    """

    slots = 2
    queue_size = 70
    name = "reference"
    first_pause_seconds, longest_pause_seconds = 0.02, 1.0

    def __init__(self, address: str, variant: str = "", keys: str = "") -> None:
        super().__init__()
        self.address = address
        self.key_file = os.path.join(keys, PEER_KEY) if keys else ""
        self.exit_code: Optional[int] = None
        self.session = 0
        self.welcome: Any = None
        self.held: List[Task] = []  # not started, in the order in which they came
        self.running: Dict[int, Task] = {}
        self.outbox: List[Outcome] = []
        self.kept: Dict[int, Outcome] = {}  # by object id: sent when the scheduler has fetched it
        self.objects = self.make_objects()
        self.transfers = self.make_transfers()
        self.actors = self.make_actors()
        self.is_asking = self.is_draining = False
        self.is_watched = False
        self.is_leaving = False
        self.last_heard = self.last_beat = time.monotonic()
        self.sequence = 0
        self.events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.wake_reader, self.wake_writer = socket.socketpair()
        self.wake_reader.setblocking(False)
        self.socket: Any = None
        self.monitor: Any = None
        self.connect_at: Optional[float] = None
        self.pause_seconds = self.first_pause_seconds

    def make_objects(self) -> WorkerObjects:
        return WorkerObjects(self)

    def make_transfers(self) -> WorkerTransfers:
        return WorkerTransfers(self)

    def make_actors(self) -> WorkerActors:
        return WorkerActors(self)

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
        for each in (self.socket, self.monitor, self.wake_reader, *self.transfers.sockets()):
            if each is not None:
                poller.register(each, zmq.POLLIN)
        ready = dict(poller.poll(self.milliseconds_to_wait()))
        if self.wake_reader.fileno() in ready:
            self.wake_reader.recv(4096)
        while not self.events.empty():
            self.events.get()()
        self.read()
        self.transfers.read()
        if self.monitor is not None and self.monitor in ready and self.monitor.poll(0) and self.exit_code is None:
            self.monitor.recv_multipart()
            self.on_connection_lost()
        if self.exit_code is None:
            self.on_time(time.monotonic())
            self.start_ready()
            self.flush()

    def milliseconds_to_wait(self) -> int:
        ends = [task.began + task.options.timeLimitMilliseconds / 1000 for task in self.timed_tasks()]
        if self.connect_at is not None:
            ends.append(self.connect_at)
        if self.transfers.fetches:
            ends.append(time.monotonic() + 0.1)
        nearest = min([*ends, self.last_beat + self.interval_seconds()])
        return max(0, min(1000, int((nearest - time.monotonic()) * 1000) + 1))

    def read(self) -> None:
        while self.exit_code is None and self.socket is not None and self.socket.poll(0):
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
        self.do_soon(self.ask_to_drain)

    def close(self) -> None:
        for task in self.running.values():
            self.stop(task)
        self.close_connection(self.exit_code == 0)
        self.objects.close()
        self.transfers.close()
        self.wake_reader.close()
        self.wake_writer.close()

    # The session ----------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Open a new connection and say Hello."""
        self.close_connection(False)
        self.connect_at = None
        self.open_connection()
        self.last_heard = self.last_beat = time.monotonic()
        self.say_hello()

    def open_connection(self) -> None:
        self.socket = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.set_hwm(0)
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

    def say_hello(self) -> None:
        self.send("Hello", **self.hello())

    def hello(self) -> Dict[str, Any]:
        return {
            "major": 1,
            "minorMin": 0,
            "minorMax": 0,
            "role": "worker",
            "implementation": {"name": "reference worker", "version": "1", "language": "Python"},
            "features": [KEPT_RESULTS, PEER_FETCH, DRAIN_REQUESTS, ACTORS, RESUME],
            "dataAddress": self.transfers.listen(),
            "codecs": ["json", "raw"],
            "functions": [PREFIX + each for each in FUNCTIONS],
            "host": socket.gethostname(),
            "processId": os.getpid(),
            "name": self.name,
            "slots": self.slots,
            "queueSize": self.queue_size,
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
        if self.on_received(message):
            return
        handler = getattr(self, handler_name(type_), None)
        if handler is not None and (self.session or type_ in UNGREETED):
            handler(message)

    def on_unreadable(self) -> None:
        """Bytes that are no message are ignored."""

    def on_welcome(self, message: Message) -> None:
        if not self.session:
            self.session = message.session
            self.welcome = message
            self.begin_counting(message)
            self.pause_seconds = self.first_pause_seconds
            self.objects.begin(message)
            self.transfers.begin(message)
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
        if self.is_leaving or self.is_asking or self.is_draining:
            self.exit_code = 0
        else:
            self.come_back()

    def come_back(self) -> None:
        """Connect again, after a pause that grows with each attempt."""
        self.close_connection(False)
        self.connect_at = time.monotonic() + self.pause_seconds
        self.pause_seconds = min(self.longest_pause_seconds, 2 * self.pause_seconds)

    def end_session(self) -> None:
        """Nothing of the session is of interest any more."""
        self.session = 0
        self.stop_resuming()
        self.is_watched = False
        self.held.clear()
        for task in self.running.values():
            self.stop(task)
        self.running.clear()
        self.kept.clear()
        self.outbox.clear()
        self.objects.clear()
        self.transfers.clear()
        self.actors.clear()

    def interval_seconds(self) -> float:
        return (self.welcome.heartbeatIntervalMilliseconds if self.welcome else 0) / 1000 or 1.0

    def on_ticket(self, message: Message) -> None:
        self.transfers.on_ticket(message)

    def on_time(self, now: float) -> None:
        self.transfers.on_time(now)
        self.listen_for_silence(now, self.interval_seconds())
        for task in self.timed_tasks():
            if now >= task.began + task.options.timeLimitMilliseconds / 1000:
                self.on_time_limit(task)
        if self.connect_at is not None:
            if now >= self.connect_at:
                self.connect()
            return
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
        fields: Dict[str, Any] = {"processors": self.processors(time.monotonic())} if self.is_watched else {}
        self.send("Heartbeat", sequence=self.sequence, sharesObjectDirectory=bool(self.objects.directory), **fields)

    def processors(self, now: float) -> List[Dict[str, int]]:
        """The running tasks, as a heartbeat reports them while a monitor is subscribed."""
        return [
            {"processId": os.getpid(), "instance": task.id, "taskMicroseconds": int((now - task.began) * 1_000_000)}
            for task in self.running.values()
        ]

    def on_heartbeat(self, message: Message) -> None:
        """The echo follows all that was done before it: a case that waits for it has what was reported too early."""
        self.send_outcomes()
        self.send("HeartbeatEcho", sequence=message.sequence)

    def on_heartbeat_echo(self, message: Message) -> None:
        self.is_watched = message.isWatched

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
        is_busy = self.held or self.running or self.kept or self.outbox or self.objects.owes_any
        if self.is_draining and not (is_busy or self.has_actors()):
            self.send("DisconnectResponse")
            self.exit_code = 0

    def has_actors(self) -> bool:
        return bool(self.actors.begun)

    def ask_to_drain(self) -> None:
        """It is to end: it begins nothing more, and leaves when what runs has ended and the scheduler has answered."""
        if not (self.session and self.drains_by_itself()):
            self.leave()
        elif not self.is_asking:
            self.is_asking = True
            self.send("DisconnectRequest", reason="draining", drainCause="signal")

    def drains_by_itself(self) -> bool:
        return DRAIN_REQUESTS in self.welcome.features

    def leave(self) -> None:
        self.is_leaving = True
        self.send("DisconnectRequest", reason="leaving")

    def on_disconnect_response(self, message: Message) -> None:
        if self.is_leaving or self.is_asking:
            self.exit_code = 0

    # What follows is the child's -----------------------------------------------------------------------------------

    def timed_tasks(self) -> List[Task]:
        raise NotImplementedError

    def on_time_limit(self, task: Task) -> None:
        raise NotImplementedError

    def stop(self, task: Task) -> None:
        raise NotImplementedError

    def start_ready(self) -> None:
        raise NotImplementedError

    def flush(self) -> None:
        raise NotImplementedError

    def send_outcomes(self) -> None:
        raise NotImplementedError
