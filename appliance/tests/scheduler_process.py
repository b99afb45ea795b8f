"""A scheduler as a real process, and raw sockets that speak to it.

Rules: every wait is for an event (a message, the end of a process, a line of a log), with a deadline that fails the
test.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from array import array
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple, Type, TypeVar

import zmq
from scheduler_harness import hello, task

from scaler_protocol import decode, encode
from scaler_protocol import messages as m
from scaler_protocol.host.addresses import local_socket_name, parse_address

DEADLINE_SECONDS = 30.0
REPOSITORY = Path(__file__).parents[2]
PYPY = os.environ.get("PYPY") or str(REPOSITORY / ".venv-pypy" / "bin" / "python")
INTERPRETERS: Dict[str, str] = {"cpython": sys.executable, "pypy": PYPY}

MessageType = TypeVar("MessageType")
_usable: Dict[str, str] = {}


def unavailable(interpreter: str) -> str:
    """Why schedulers cannot be run on it; empty when they can."""
    if interpreter not in _usable:
        program = INTERPRETERS[interpreter]
        try:
            trial = subprocess.run([program, "-c", "import scaler_appliance, zmq"], capture_output=True, text=True)
            reason = trial.stderr.strip().splitlines()[-1] if trial.returncode else ""
        except OSError as error:
            reason = str(error)
        _usable[interpreter] = reason and f"{interpreter}: {reason}"
    return _usable[interpreter]


class SchedulerProcess:
    """`python -m scaler_appliance ADDRESS OPTIONS`; its output goes to a file that tests can read.

    Parameters:
        script: a file with its first arguments that is run instead.
    """

    def __init__(
        self, program: str, address_file: Path, address: str, *options: str, script: Sequence[str] = ()
    ) -> None:
        self._address_file = address_file
        self._output = address_file.with_suffix(".output")
        self.address = self.monitor_address = ""
        self.context = zmq.Context()
        self._sockets: List[RawPeer] = []
        module = script or ("-m", "scaler_appliance")
        command = [program, *module, address, "--address-file", str(address_file), *options]
        with open(self._output, "wb") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output)

    def wait_until_ready(self) -> None:
        def is_ready() -> bool:
            assert self.process.poll() is None, self.output()
            return self._address_file.exists() and self._address_file.read_text().count("\n") == 2

        wait_for(is_ready, "the scheduler to listen")
        self.address, self.monitor_address = self._address_file.read_text().splitlines()

    def output(self) -> str:
        return self._output.read_text()

    def wait_for_output(self, text: str) -> None:
        wait_for(lambda: text in self.output(), f"{text!r} in the log")

    def wait_for_end(self) -> int:
        return self.process.wait(DEADLINE_SECONDS)

    def peer(self, **options: int) -> RawPeer:
        """A new connection; nothing is said on it yet."""
        peer = RawPeer(self.context.socket(zmq.DEALER), self.address, options)
        self._sockets.append(peer)
        return peer

    def client(self) -> RawPeer:
        peer = self.peer()
        peer.greet(hello(m.Role.CLIENT))
        return peer

    def worker(self, slots: int = 1) -> RawPeer:
        peer = self.peer()
        peer.greet(hello(m.Role.WORKER, slots=slots, queue_size=1000))
        return peer

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(DEADLINE_SECONDS)
        assert self.process.stdin is not None
        self.process.stdin.close()
        for peer in self._sockets:
            peer.socket.close(0)
        self.context.term()


class RawPeer:
    """A DEALER that sends what it is told to, and skips what comes by itself when it receives."""

    def __init__(self, socket: zmq.Socket[bytes], address: str, options: Dict[str, int]) -> None:
        self.socket = socket
        for name, value in options.items():
            socket.setsockopt(getattr(zmq, name), value)
        socket.connect(plain_address(address))
        self.welcome = m.Welcome()

    def greet(self, message: m.Hello) -> None:
        self.send(message)
        self.welcome = self.take(m.Welcome)[0]

    def send(self, message: m.Member, payload: Optional[bytes] = None) -> None:
        self.send_frames(encode(message), *([] if payload is None else [payload]))

    def send_frames(self, *frames: bytes) -> None:
        self.socket.send_multipart(frames)

    def submit(self, *ids: int, **fields: Any) -> None:
        self.send(*task(ids, **fields))

    def receive(self) -> Tuple[object, bytes]:
        """The next message that is neither a heartbeat nor an explanation that was not asked for."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            remaining = max(0.0, deadline - time.monotonic())
            assert self.socket.poll(int(remaining * 1000)), "no message came"
            frames = self.socket.recv_multipart()
            message = decode(frames[0])
            is_unasked = isinstance(message, m.Explanation) and not message.request_id  # after some seconds of waiting
            if isinstance(message, m.Heartbeat):
                self.send(m.HeartbeatEcho())
            elif not (is_unasked or isinstance(message, m.HeartbeatEcho)):
                return message, frames[1] if len(frames) > 1 else b""

    def take(self, kind: Type[MessageType]) -> Tuple[MessageType, bytes]:
        message, payload = self.receive()
        assert isinstance(message, kind), f"{message} instead of {kind.__name__}"
        return message, payload

    def take_refusal(self, reason: m.RefusalReason) -> str:
        refusal, _ = self.take(m.Refusal)
        assert refusal.reason == reason, refusal
        return refusal.message

    def take_task_ids(self) -> array[int]:
        return self.take(m.Task)[0].ids

    def finish(self, ids: array[int], payload: bytes = b"") -> None:
        """Report success of instances, the payload being each one's."""
        self.send(m.TaskResult(ids=ids, payload_sizes=array("I", [len(payload)] * len(ids))), payload * len(ids))

    def take_result_ids(self) -> List[int]:
        return list(self.take(m.TaskResult)[0].ids)


def plain_address(address: str) -> str:
    """Where libzmq connects without a key: the local socket beside a loopback address."""
    name = local_socket_name(parse_address(address))
    return address if name is None else f"ipc://@{name[1:]}"


def check_others_work(scheduler: SchedulerProcess) -> None:
    """A client and a worker that come now are served as ever."""
    worker, client = scheduler.worker(), scheduler.client()
    client.submit(1)
    worker.finish(worker.take_task_ids())
    assert client.take_result_ids() == [1]
    for peer in (worker, client):
        peer.send(m.DisconnectRequest())
        peer.take(m.DisconnectResponse)


def wait_for(is_true: Any, what: str) -> None:
    """Wait for what has no event that could be waited on: a file, a line of a log."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_true():
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        time.sleep(0.01)
