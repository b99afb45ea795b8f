"""Peers for measuring what monitors cost: workers that tell what they would tell, and a client that submits steadily.

Rules:
- A worker reports one processor in each heartbeat, and its runs while there are monitors, as a real
  one does.
- Tasks are said to take BUSY_MICROSECONDS_PER_TASK, so that the scheduler sends some ten of them in a message.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from multiprocessing.connection import Connection
from typing import Any

import zmq
from zero_worker_client import BATCH_TASKS, ClientPeer
from zero_worker_peers import CODEC
from zero_worker_workers import ResultTemplates, WorkerPeer, WorkerProcess, _raise_descriptor_limit

from scaler_protocol import decode, encode
from scaler_protocol import messages as m

BUSY_MICROSECONDS_PER_TASK = 100
_POLL_SECONDS = 0.005
_MOST_UNFINISHED_SECONDS = 1.0  # of tasks; the client offers no more then


def busy_heartbeat(process_id: int, sequence: int) -> m.Heartbeat:
    """What a worker with one busy processor tells; its figures change each time."""
    processor = m.ProcessorStatus(
        process_id=process_id,
        initialized=True,
        has_task=True,
        cpu_permille=500 + sequence % 100,
        resident_bytes=50_000_000 + 4096 * sequence,
    )
    return m.Heartbeat(
        sequence=sequence,
        cpu_permille=30 + sequence % 10,
        resident_bytes=40_000_000,
        free_bytes=8_000_000_000 + 4096 * sequence,
        latency_microseconds=300 + sequence % 50,
        processors=[processor],
    )


class WatchedWorkerPeer(WorkerPeer):
    """Answers each batch at once, and tells what a worker of ours tells."""

    def __init__(self, context: zmq.Context[Any], address: str, number: int) -> None:
        super().__init__(context, address, number)
        self.number = number
        self.is_watched = False

    def receive_all(self, results: ResultTemplates) -> None:
        """Handle all that has arrived."""
        while True:
            try:
                header = self.socket.recv_multipart(zmq.DONTWAIT)[0]
            except zmq.Again:
                return
            message = decode(header)
            if isinstance(message, m.Task):
                self.task_batches += 1
                self.tasks += len(message.ids)
                self._answer(message)
            elif isinstance(message, m.BalanceRequest):
                self.socket.send(encode(m.BalanceResponse(request_id=message.request_id)))
            elif isinstance(message, m.HeartbeatEcho):
                self.is_watched = message.is_watched
            else:
                self.handle(message)

    def _answer(self, task: m.Task) -> None:
        count = len(task.ids)
        busy = count * BUSY_MICROSECONDS_PER_TASK
        result = m.TaskResult(ids=task.ids, payload_sizes=array("I", [4]) * count, codec=CODEC, busy_microseconds=busy)
        if self.is_watched:
            result.runs = array("Q", [count, self.number + 1, busy])
        self.socket.send_multipart([encode(result), b"done" * count])

    def beat(self, now: float) -> None:
        """Send a heartbeat."""
        self.sequence += 1
        self.socket.send(encode(busy_heartbeat(self.number + 1, self.sequence)))


class WatchedWorkerProcess(WorkerProcess):
    """Serves the sockets of all workers; heartbeats are spread evenly over their interval."""

    def __init__(self, address: str, orders: Connection[Any, Any]) -> None:
        super().__init__(address, orders)
        self._turns: deque[WatchedWorkerPeer] = deque()
        self._next_turn = 0.0

    def _connect(self, count: int) -> None:
        self.context = zmq.Context()
        self.context.set(zmq.MAX_SOCKETS, count + 16)
        for number in range(count):
            worker = WatchedWorkerPeer(self.context, self.address, number)
            descriptor = int(worker.socket.getsockopt(zmq.FD))
            self.epoll.register(descriptor, 1)
            self.workers[descriptor] = worker
            self._turns.append(worker)
            worker.receive_all(self.results)
        self._next_turn = time.monotonic()

    def serve(self) -> None:
        """Until the process is killed."""
        while True:
            for descriptor, _ in self.epoll.poll(_POLL_SECONDS, 1024):
                worker = self.workers.get(descriptor)
                if worker is not None:
                    worker.receive_all(self.results)
            self._beat(time.monotonic())
            if self.untold:
                self._tell()
            if self.orders.poll():
                self._obey(*self.orders.recv())

    def _beat(self, now: float) -> None:
        while self._turns and now >= self._next_turn:
            worker = self._turns[0]
            self._turns.rotate(-1)
            self._next_turn += worker.heartbeat_seconds / len(self._turns)
            if worker.session:
                worker.beat(now)
            worker.receive_all(self.results)  # an edge-triggered socket may have been given something by sending


class SteadyClient:
    """Offers so many tasks a second, and counts results."""

    def __init__(self, address: str, orders: Connection[Any, Any]) -> None:
        self._context: zmq.Context[Any] = zmq.Context()
        self._client = ClientPeer(self._context, address)
        self._orders = orders
        self._rate = 0
        self._done = 0
        self._next_batch = 0.0

    def serve(self) -> None:
        """Until the process is killed."""
        client = self._client
        while True:
            client.socket.poll(int(_POLL_SECONDS * 1000))
            self._receive()
            now = time.monotonic()
            if self._rate and client.session:
                self._submit(now)
            client.beat(now)
            if self._orders.poll():
                self._obey(*self._orders.recv())

    def _receive(self) -> None:
        while True:
            try:
                header = self._client.socket.recv_multipart(zmq.DONTWAIT)[0]
            except zmq.Again:
                return
            message = decode(header)
            if isinstance(message, m.TaskResult):
                self._done += len(message.ids)
            else:
                self._client.handle(message)
                if isinstance(message, m.Welcome):
                    self._client.define_function()
                    self._orders.send(("started", message.monitor_address))

    def _submit(self, now: float) -> None:
        """What is due; what is not taken in time is offered later, not all at once."""
        client = self._client
        self._next_batch = max(self._next_batch, now - 1.0)
        while now >= self._next_batch and client.last_id - self._done < _MOST_UNFINISHED_SECONDS * self._rate:
            client.prepare(BATCH_TASKS)
            header, payload, _ = client.pending.popleft()
            client.socket.send_multipart([header, payload])
            self._next_batch += BATCH_TASKS / self._rate

    def _obey(self, order: str, rate: int = 0) -> None:
        if order == "start":
            self._rate = rate
        else:
            self._orders.send(("counted", time.monotonic(), self._done))


def run_watched_workers(address: str, orders: Connection[Any, Any]) -> None:
    """A process of workers. Orders: ("connect", count). Answers: ("connected",)."""
    _raise_descriptor_limit()
    WatchedWorkerProcess(address, orders).serve()


def run_steady_client(address: str, orders: Connection[Any, Any]) -> None:
    """A process of a client.

    Orders: ("start", rate), ("count",).
    Answers: ("started", monitor address), ("counted", at, done).
    """
    SteadyClient(address, orders).serve()
