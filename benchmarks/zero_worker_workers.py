"""The worker process: up to a thousand workers, each answering a batch of tasks at once with its results."""

from __future__ import annotations

import resource
import select
import time
from array import array
from multiprocessing.connection import Connection
from typing import Any, Optional

import zmq
from zero_worker_peers import CODEC, POLL_MILLISECONDS, Peer

from scaler_protocol import decode, encode
from scaler_protocol import messages as m

_RESULT = b"done"
_BUSY_MICROSECONDS_PER_TASK = 1
_EVENTS_AT_ONCE = 256


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
            encode(m.TaskResult(ids=task.ids, payload_sizes=sizes, codec=CODEC, busy_microseconds=busy)),
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
            for descriptor, _ in self.epoll.poll(POLL_MILLISECONDS / 1000, _EVENTS_AT_ONCE):
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
