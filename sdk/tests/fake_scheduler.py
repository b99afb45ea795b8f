"""A worker program, and a scheduler that does what a test tells it."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import zmq
from forked_processor import TIMEOUT_SECONDS, Outcome

from scaler.values import payload as payloads
from scaler_protocol import decode, encode
from scaler_protocol import messages as m


class Received(NamedTuple):
    message: Any
    payload: bytes


class FakeScheduler:
    """A ROUTER that a test plays the scheduler with. One worker at a time."""

    def __init__(self) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.LINGER, 0)
        self.address = f"tcp://127.0.0.1:{self._socket.bind_to_random_port('tcp://127.0.0.1')}"
        self.peer = b""
        self.session = 0
        self.kept: List[Received] = []
        self.heartbeats: List[m.Heartbeat] = []
        self.is_watched = False  # by monitors, as it tells its worker
        self.next_object = 1

    def close(self) -> None:
        self._socket.close()
        self._context.term()

    def send(self, message: Any, payload: bytes = b"") -> None:
        self._socket.send_multipart([self.peer, encode(message), *([payload] if payload else [])])

    def receive(self, *classes: type) -> Received:
        """The next message of one of these classes; heartbeats are answered and kept, everything else is kept too."""
        for index, received in enumerate(self.kept):
            if isinstance(received.message, classes):
                return self.kept.pop(index)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            remaining = deadline - time.monotonic()
            assert remaining > 0 and self._socket.poll(int(remaining * 1000) + 1), (
                f"no {classes} came; kept: {self.kept}"
            )
            received = self.read()
            if isinstance(received.message, classes):
                return received
            if not isinstance(received.message, m.Heartbeat):
                self.kept.append(received)

    def receive_raw(self) -> List[bytes]:
        """The next message as it came; nothing is answered."""
        assert self._socket.poll(int(TIMEOUT_SECONDS * 1000)), "nothing came"
        return list(self._socket.recv_multipart())

    def drop_waiting(self) -> None:
        """Answer nothing of what has come so far."""
        while self._socket.poll(0):
            self._socket.recv_multipart()

    def read(self) -> Received:
        peer, header, *rest = self.receive_raw()
        message = decode(header)
        if isinstance(message, m.Hello):
            self.peer = peer
        if isinstance(message, m.Heartbeat):
            self.heartbeats.append(message)
            echo = m.HeartbeatEcho(sequence=message.sequence, is_watched=self.is_watched)
            try:
                self._socket.send_multipart([peer, encode(echo)])
            except zmq.ZMQError as error:
                if error.errno != zmq.EHOSTUNREACH:  # the peer has left since, or connected again
                    raise
        return Received(message, rest[0] if rest else b"")

    def wait_until_read(self) -> None:
        """Until the worker has read all that was sent: it answers a question that came last."""
        self.send(m.BalanceRequest(request_id=4711, count=0))
        assert self.receive(m.BalanceResponse).message == m.BalanceResponse(request_id=4711)

    def assert_nothing_more(self) -> None:
        """The worker has said all it had to say: the answer to a question is all that comes."""
        self.wait_until_read()
        assert self.kept == []

    def welcome(self, **fields: Any) -> m.Hello:
        """Take the worker's Hello and welcome it."""
        hello: m.Hello = self.receive(m.Hello).message
        self.send(self.welcome_message(**fields))
        self.receive(m.Heartbeat)  # the answer to a Welcome
        return hello

    def welcome_message(self, **fields: Any) -> m.Welcome:
        """Of a new session."""
        self.session += 1
        settings: Dict[str, Any] = {
            "major": 1,
            "session": self.session,
            "scheduler_id": bytes(16),
            "limits": m.Limits(chunk_bytes=1 << 20, inline_bytes=1 << 16),
            "heartbeat_interval_milliseconds": 200,
            "timeout_milliseconds": 60_000,
        }
        settings.update(fields)
        return m.Welcome(**settings)

    def create_inline(self, content: bytes, kind: int = m.ObjectKind.VALUE) -> int:
        object_id = self.new_object_id()
        instruction = m.ObjectInstruction(
            action=m.ObjectAction.CREATE,
            ids=[object_id],
            sizes=[len(content)],
            storages=bytes([m.ObjectStorage.INLINE]),
            kinds=bytes([kind]),
        )
        self.send(instruction, content)
        return object_id

    def announce(self, object_id: int, size: int, storage: int, kind: int = m.ObjectKind.VALUE) -> None:
        self.send(
            m.ObjectInstruction(
                action=m.ObjectAction.CREATE,
                ids=[object_id],
                sizes=[size],
                storages=bytes([storage]),
                kinds=bytes([kind]),
            )
        )

    def new_object_id(self) -> int:
        self.next_object += 1
        return 77 << 40 | self.next_object

    def create_function(self, function: Callable[..., Any]) -> int:
        content = payloads.join(payloads.dump_function(function, None))
        return self.create_inline(content, m.ObjectKind.FUNCTION)

    def send_calls(
        self, function: int, calls: Dict[int, Tuple[Any, ...]], options: Optional[m.TaskOptions] = None, **fields: Any
    ) -> None:
        """Send tasks by instance id."""
        contents = [pickle.dumps(args, 5) if args else b"" for args in calls.values()]
        message = m.Task(
            ids=list(calls), payload_sizes=list(map(len, contents)), function=function, codec="cloudpickle", **fields
        )
        if options is not None:
            message.options = options
        self.send(message, b"".join(contents))

    def results(self, count: int) -> Dict[int, Outcome]:
        """The outcomes of the next `count` tasks, by instance id."""
        outcomes: Dict[int, Outcome] = {}
        while len(outcomes) < count:
            message, payload = self.receive(m.TaskResult)
            start = 0
            for index, instance in enumerate(message.ids):
                stop = start + message.payload_sizes[index]
                status = message.statuses[index] if message.statuses else m.TaskStatus.SUCCESS
                object_id = message.objects[index] if message.objects else 0
                assert instance not in outcomes, f"two outcomes for {instance}"
                outcomes[instance] = Outcome(object_id, status, payload[start:stop], bool(object_id))
                start = stop
            assert start == len(payload)
        assert len(outcomes) == count
        return outcomes

    def result(self, instance: int) -> Outcome:
        return self.results(1)[instance]

    def confirmations(self, count: int) -> Dict[int, int]:
        """The answers to the next `count` cancelled ids."""
        answers: Dict[int, int] = {}
        while len(answers) < count:
            message = self.receive(m.TaskCancelConfirm).message
            answers.update(zip(message.ids, message.outcomes))
        return answers


class WorkerProgram:
    """scaler_cluster as a process."""

    def __init__(self, address: str, *options: str) -> None:
        arguments = [sys.executable, "-m", "scaler.worker", "-n", "1", *options, address]
        self.process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # so that whatever it starts can be found by its session
        )
        self.output = ""

    def processes(self) -> List[int]:
        """Ids of all live processes of the worker."""
        return processes_of_session(self.process.pid)

    def wait(self) -> int:
        """The exit code, with all output read."""
        self.output = self.process.communicate(timeout=TIMEOUT_SECONDS)[0]
        return self.process.returncode

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait_until_nothing_is_left(self) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while self.processes():
            assert time.monotonic() < deadline, f"still there: {self.processes()}"
            time.sleep(0.005)

    def close(self) -> None:
        for process_id in self.processes():
            try:
                os.kill(process_id, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.kill()
        self.close_stdin()
        self.process.communicate()

    def close_stdin(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
            self.process.stdin = None  # so that it is not flushed again


def processes_of_session(session: int) -> List[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != b"Z":
                found.append(int(name))
    return found


StartWorker = Callable[..., WorkerProgram]
"""Starts a worker with options, and with the address of the test's scheduler if no other is given."""
