"""The client process: sends batches that were encoded before the clock started, counts and checks results."""

from __future__ import annotations

import time
from array import array
from collections import deque
from multiprocessing.connection import Connection
from typing import Any

import zmq
from zero_worker_peers import CODEC, POLL_MILLISECONDS, Peer, PeerRefusedError

from scaler_protocol import decode, encode
from scaler_protocol import messages as m

BATCH_TASKS = 1000
_ARGUMENT = b"argument"  # eight bytes
_FUNCTION = b"not a real function: no worker of this benchmark ever loads it"


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
            codec=CODEC,
        )
        self.socket.send_multipart([encode(instruction), _FUNCTION])

    def prepare(self, tasks: int) -> None:
        """Encode the batches of the next round, before its clock starts."""
        for start in range(0, tasks, BATCH_TASKS):
            count = min(BATCH_TASKS, tasks - start)
            ids = array("Q", range(self.last_id + 1, self.last_id + 1 + count))
            sizes = array("I", [len(_ARGUMENT)]) * count
            header = encode(m.Task(ids=ids, payload_sizes=sizes, function=self._function_id, codec=CODEC))
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
                    raise PeerRefusedError(f"a task ended with another status than success: {message.statuses[:8]!r}")
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
            poller.poll(POLL_MILLISECONDS)
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
