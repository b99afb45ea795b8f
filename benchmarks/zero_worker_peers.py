"""Peers without an SDK, for measuring the scheduler alone: one process of clients, one of workers.

They speak the real protocol through real sockets and do as little as the protocol allows: the client sends
batches encoded before the clock starts, a worker answers each batch of tasks at once with one batch of
results. No user function is ever run. Each process takes its orders from a pipe and keeps its heartbeats
going meanwhile.

    orders ──pipe──▶ client process ──DEALER──▶ scheduler ◀──DEALER × N── worker process ◀──pipe── orders
"""

from __future__ import annotations

import resource
import select
import time
from array import array
from collections import deque
from multiprocessing.connection import Connection
from typing import Any, Optional

import zmq

from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX, PROTOCOL_MINOR_MIN, decode, encode
from scaler_protocol import messages as m

BATCH_TASKS = 1000
_ARGUMENT = b"argument"  # eight bytes
_RESULT = b"done"
_FUNCTION = b"not a real function: no worker of this benchmark ever loads it"
_CODEC = "cloudpickle"
_WORKER_QUEUE_SIZE = 1000
_BUSY_MICROSECONDS_PER_TASK = 1
_POLL_MILLISECONDS = 500
_EVENTS_AT_ONCE = 256


class PeerRefusedError(Exception):
    """The scheduler refused a peer of the benchmark."""


class Peer:
    """One connection to the scheduler: handshake, heartbeats, leaving."""

    def __init__(self, context: zmq.Context[Any], address: str, role: m.Role, name: str) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.connect(address)
        self.session = 0
        self.heartbeat_seconds = 2.0
        self.next_heartbeat = 0.0
        self.sequence = 0
        self.tasks_in_flight_limit = 0
        self.left = False
        is_worker = role == m.Role.WORKER
        hello = m.Hello(
            major=PROTOCOL_MAJOR,
            minor_min=PROTOCOL_MINOR_MIN,
            minor_max=PROTOCOL_MINOR_MAX,
            role=role,
            implementation=m.Implementation(name="scaler benchmark", version="0", language="Python"),
            codecs=[_CODEC],
            host="benchmark",
            process_id=1,
            name=name,
            slots=1 if is_worker else 0,
            queue_size=_WORKER_QUEUE_SIZE if is_worker else 0,
        )
        self.socket.send(encode(hello))

    def handle(self, message: Any) -> bool:
        """Take what belongs to any session; False for everything else."""
        if isinstance(message, m.Welcome):
            self.session = message.session
            self.heartbeat_seconds = (message.heartbeat_interval_milliseconds or 2000) / 1000
            self.tasks_in_flight_limit = message.limits.tasks_in_flight
            self.next_heartbeat = time.monotonic() + self.heartbeat_seconds
        elif isinstance(message, m.Refusal):
            raise PeerRefusedError(f"{message.reason}: {message.message}")
        elif isinstance(message, m.Heartbeat):
            self.socket.send(encode(m.HeartbeatEcho(sequence=message.sequence)))
        elif isinstance(message, m.DisconnectResponse):
            self.left = True
        else:
            return isinstance(message, m.HeartbeatEcho)
        return True

    def beat(self, now: float) -> None:
        """Send a heartbeat if one is due."""
        if self.session and now >= self.next_heartbeat:
            self.sequence += 1
            self.socket.send(encode(m.Heartbeat(sequence=self.sequence)))
            self.next_heartbeat = now + self.heartbeat_seconds

    def leave(self) -> None:
        """Say good-bye; `left` turns true with the answer."""
        self.socket.send(encode(m.DisconnectRequest(reason=m.DisconnectReason.LEAVING)))


class ClientPeer(Peer):
    """Submits batches of tasks, within what the scheduler grants, and counts results."""

    def __init__(self, context: zmq.Context[Any], address: str) -> None:
        super().__init__(context, address, m.Role.CLIENT, "benchmark client")
        self.last_id = 0
        self.fence_sequence = 0
        """Of the heartbeat sent behind the last batch: when it comes back, every batch was taken."""
        self.echoed_sequence = 0
        self.pending: deque[tuple[bytes, bytes, int]] = deque()
        self.sent_tasks = 0
        self.result_ids = array("Q")
        self.result_batches = 0

    def define_function(self) -> None:
        """Create the one function object; needs the session."""
        instruction = m.ObjectInstruction(
            action=m.ObjectAction.CREATE,
            ids=array("Q", [self._function_id]),
            sizes=array("Q", [len(_FUNCTION)]),
            storages=bytes([m.ObjectStorage.INLINE]),
            kinds=bytes([m.ObjectKind.FUNCTION]),
            names=["no_op"],
            codec=_CODEC,
        )
        self.socket.send_multipart([encode(instruction), _FUNCTION])

    def prepare(self, tasks: int) -> None:
        """Encode the batches of the next round, before its clock starts."""
        for start in range(0, tasks, BATCH_TASKS):
            count = min(BATCH_TASKS, tasks - start)
            ids = array("Q", range(self.last_id + 1, self.last_id + 1 + count))
            sizes = array("I", [len(_ARGUMENT)]) * count
            header = encode(m.Task(ids=ids, payload_sizes=sizes, function=self._function_id, codec=_CODEC))
            self.pending.append((header, _ARGUMENT * count, count))
            self.last_id += count
        self.result_ids = array("Q")
        self.result_batches = 0
        self.sent_tasks = 0

    def has_what_may_go(self) -> bool:
        """Whether there is a batch that the scheduler's grant allows."""
        if not self.pending:
            return False
        in_flight = self.sent_tasks - len(self.result_ids) + self.pending[0][2]
        return not self.tasks_in_flight_limit or in_flight <= self.tasks_in_flight_limit

    def all_accepted(self) -> bool:
        """Whether the scheduler has taken every task of the round: it reads a connection in order."""
        return not self.pending and self.echoed_sequence >= self.fence_sequence

    def send_what_may_go(self) -> None:
        """Send batches until the socket is full or the grant is used up."""
        while self.has_what_may_go():
            header, payload, count = self.pending[0]
            try:
                self.socket.send_multipart([header, payload], zmq.DONTWAIT)
            except zmq.Again:
                return
            self.sent_tasks += count
            self.pending.popleft()
            if not self.pending:
                self.next_heartbeat = 0.0
                self.beat(time.monotonic())
                self.fence_sequence = self.sequence

    def receive_all(self) -> None:
        """Handle everything that has arrived."""
        while True:
            try:
                header = self.socket.recv_multipart(zmq.DONTWAIT)[0]
            except zmq.Again:
                return
            message = decode(header)
            if isinstance(message, m.TaskResult):
                if any(message.statuses):
                    raise PeerRefusedError(
                        f"a task ended with another status than success: {message.statuses[:8]!r}"
                    )
                self.result_ids.extend(message.ids)
                self.result_batches += 1
            elif isinstance(message, m.TaskEcho):
                self.tasks_in_flight_limit = message.tasks_in_flight
            elif isinstance(message, m.HeartbeatEcho):
                self.echoed_sequence = message.sequence
            else:
                self.handle(message)

    @property
    def _function_id(self) -> int:
        return self.session << 40 | 1


class ClientProcess:
    """Obeys orders from the pipe and serves the client's socket, in turn."""

    def __init__(self, address: str, orders: Connection[Any, Any]) -> None:
        self.context = zmq.Context()
        self.client = ClientPeer(self.context, address)
        self.orders = orders
        self.round_first = 1
        self.round_size = 0
        self.sending = False
        self.untold: set[str] = set()
        """Answers owed: "connected", "accepted", "done"."""

    def serve(self) -> None:
        """Until the order to leave was carried out."""
        poller = zmq.Poller()
        poller.register(self.orders.fileno(), zmq.POLLIN)
        client = self.client
        while not client.left:
            may_send = self.sending and client.has_what_may_go()
            poller.register(client.socket, zmq.POLLIN | zmq.POLLOUT if may_send else zmq.POLLIN)
            poller.poll(_POLL_MILLISECONDS)
            client.receive_all()
            if self.sending:
                client.send_what_may_go()
            client.beat(time.monotonic())
            self._tell()
            if self.orders.poll():
                self._obey(*self.orders.recv())
        self.orders.send(("left",))
        self.context.destroy(linger=0)

    def _obey(self, order: str, tasks: int = 0) -> None:
        client = self.client
        if order == "connect":
            self.untold.add("connected")
        elif order == "prepare":
            self.round_first, self.round_size = client.last_id + 1, tasks
            client.prepare(tasks)
            self.orders.send(("prepared",))
        elif order == "submit":
            self.untold |= {"accepted", "done"}
            self.sending = True
            client.send_what_may_go()
        else:
            client.leave()

    def _tell(self) -> None:
        client = self.client
        if "connected" in self.untold and client.session:
            client.define_function()
            self._answer("connected")
        if not self.sending:
            return
        now = time.monotonic()
        all_done = len(client.result_ids) >= self.round_size
        if "accepted" in self.untold and (all_done or client.all_accepted()):
            self._answer("accepted", now)
        if all_done:
            _check_ids(client.result_ids, self.round_first, self.round_size)
            self.sending = False
            self._answer("done", now, client.result_batches)

    def _answer(self, name: str, *facts: Any) -> None:
        self.orders.send((name, *facts))
        self.untold.discard(name)


def run_client(address: str, orders: Connection[Any, Any]) -> None:
    """The client process.

    Orders: ("connect",), ("prepare", tasks), ("submit",), ("leave",).
    Answers: ("connected",), ("prepared",), ("accepted", at), ("done", at, batches), ("left",).
    """
    ClientProcess(address, orders).serve()


def _check_ids(ids: array[int], first: int, count: int) -> None:
    if sorted(ids) != list(range(first, first + count)):
        raise PeerRefusedError("the results are not one for each task")


class WorkerPeer(Peer):
    """Answers each batch of tasks at once."""

    def __init__(self, context: zmq.Context[Any], address: str, number: int) -> None:
        super().__init__(context, address, m.Role.WORKER, f"benchmark worker {number}")
        self.task_batches = 0
        self.tasks = 0

    def receive_all(self, results: ResultTemplates) -> None:
        """Handle all that has arrived; ends with a failed receive, as an edge-triggered socket needs."""
        while True:
            try:
                header = self.socket.recv_multipart(zmq.DONTWAIT)[0]
            except zmq.Again:
                return
            message = decode(header)
            if isinstance(message, m.Task):
                self.task_batches += 1
                self.tasks += len(message.ids)
                self.socket.send_multipart(results.answer(message))
            elif isinstance(message, m.BalanceRequest):
                self.socket.send(encode(m.BalanceResponse(request_id=message.request_id)))
            else:
                self.handle(message)


class ResultTemplates:
    """The parts of a result batch that depend on nothing but its size."""

    def __init__(self) -> None:
        self._parts: dict[int, tuple[array[int], bytes]] = {}

    def answer(self, task: m.Task) -> list[bytes]:
        """The frames that answer a batch of tasks: all succeeded."""
        count = len(task.ids)
        if count not in self._parts:
            self._parts[count] = array("I", [len(_RESULT)]) * count, _RESULT * count
        sizes, payload = self._parts[count]
        busy = count * _BUSY_MICROSECONDS_PER_TASK
        return [
            encode(m.TaskResult(ids=task.ids, payload_sizes=sizes, codec=_CODEC, busy_microseconds=busy)),
            payload,
        ]


class WorkerProcess:
    """Obeys orders from the pipe and serves the sockets of all workers.

    Sockets are watched by epoll on their descriptors: zmq's own poll looks at each of a thousand sockets
    each time.
    """

    def __init__(self, address: str, orders: Connection[Any, Any]) -> None:
        self.address = address
        self.orders = orders
        self.results = ResultTemplates()
        self.context: Optional[zmq.Context[Any]] = None
        self.workers: dict[int, WorkerPeer] = {}
        self.epoll = select.epoll()
        self.epoll.register(orders.fileno(), select.EPOLLIN)
        self.untold = ""
        """The answer owed: "connected" or "left"."""

    def serve(self) -> None:
        """Until the process is killed."""
        while True:
            for descriptor, _ in self.epoll.poll(_POLL_MILLISECONDS / 1000, _EVENTS_AT_ONCE):
                worker = self.workers.get(descriptor)
                if worker is not None:
                    worker.receive_all(self.results)
            now = time.monotonic()
            for worker in self.workers.values():
                if now >= worker.next_heartbeat:
                    worker.beat(now)
                    worker.receive_all(self.results)
            self._tell()
            if self.orders.poll():
                self._obey(*self.orders.recv())

    def _obey(self, order: str, count: int = 0) -> None:
        if order == "connect":
            self._connect(count)
            self.untold = "connected"
        elif order == "count":
            counted = self.workers.values()
            tasks, batches = sum(one.tasks for one in counted), sum(one.task_batches for one in counted)
            self.orders.send(("counted", tasks, batches))
        else:
            for worker in self.workers.values():
                worker.leave()
                worker.receive_all(self.results)
            self.untold = "left"

    def _tell(self) -> None:
        workers = self.workers.values()
        if self.untold == "connected" and all(worker.session for worker in workers):
            self.orders.send(("connected",))
            self.untold = ""
        elif self.untold == "left" and all(worker.left for worker in workers):
            self._close()
            self.orders.send(("left",))
            self.untold = ""

    def _connect(self, count: int) -> None:
        self.context = zmq.Context()
        self.context.set(zmq.MAX_SOCKETS, count + 16)
        for number in range(count):
            worker = WorkerPeer(self.context, self.address, number)
            descriptor = int(worker.socket.getsockopt(zmq.FD))
            self.epoll.register(descriptor, select.EPOLLIN)
            self.workers[descriptor] = worker
            worker.receive_all(self.results)

    def _close(self) -> None:
        for descriptor in self.workers:
            self.epoll.unregister(descriptor)
        self.workers.clear()
        assert self.context is not None
        self.context.destroy(linger=0)


def run_workers(address: str, orders: Connection[Any, Any]) -> None:
    """The worker process.

    Orders: ("connect", count), ("count",), ("leave",).
    Answers: ("connected",), ("counted", tasks, batches), ("left",).
    """
    _raise_descriptor_limit()
    WorkerProcess(address, orders).serve()


def _raise_descriptor_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
