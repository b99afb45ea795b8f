"""Record traces/: conversations of this project's client, worker and scheduler, taken from the wire.

    python tools/record_traces.py [NAME ...]

Real programs speak without keys through a relay, which writes down what passes. For developers, on Linux; what is in
the files: traces/README.md.

Rules:
- A scenario waits for what it has caused, so that each line follows from the lines before it.
- Names of the host and of directories are replaced, in tracebacks too: they say nothing about the protocol.
"""

from __future__ import annotations

import json
import re
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import scaler.client.shell.client_object_files as client_objects
from scaler import Client, NamedFunction
from scaler_protocol import MalformedMessageError, decode, encode
from scaler_protocol import messages as m
from scaler_protocol.host.addresses import parse_address
from scaler_protocol.wire.zmtp import Zmtp, ZmtpError
from scaler_protocol.wire.zmtp import encode as lay_out

TRACES = Path(__file__).resolve().parents[1] / "traces"
TREE = str(TRACES.parents[1]).encode()
TREE_SHOWN = b"/home/scaler".ljust(len(TREE), b"_")[: len(TREE)]  # as long: texts say how long they are
MAXIMUM_MESSAGE_BYTES = 1 << 30
DEADLINE_SECONDS = 20.0
LONG_RUN = re.compile(rb"(.)\1{63,}", re.DOTALL)
QUIET = [
    "--insecure",
    "--heartbeat-interval-seconds",
    "300",
    "--worker-timeout-seconds",
    "600",
    "--client-timeout-seconds",
    "600",
]


class Relay:
    """Passes on the bytes between peers and a scheduler, and keeps the messages.

    Parameters:
        target: the scheduler's address.
    """

    def __init__(self, target: str) -> None:
        parsed = parse_address(target)
        self._target = (parsed.host, parsed.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.lines: List[Dict[str, Any]] = []
        self._streams: Dict[socket.socket, Tuple[socket.socket, Zmtp, str, bool]] = {}
        self._next_name = ""
        self._changed = threading.Condition()
        threading.Thread(target=self._run, daemon=True).start()

    def expect(self, name: str) -> None:
        """The next peer to connect is called so."""
        self._next_name = name

    def wait_for(self, what: str, count: int = 1) -> None:
        """Wait until so many messages of a kind have passed ("closed": connections have ended)."""
        deadline = time.monotonic() + DEADLINE_SECONDS

        def is_there() -> bool:
            return sum(what in (line.get("message"), line.get("event")) for line in self.lines) >= count

        with self._changed:
            if not self._changed.wait_for(is_there, deadline - time.monotonic()):
                raise TimeoutError(f"no {what} came: {[line.get('message') for line in self.lines]}")

    def count(self, what: str, peer: str) -> int:
        """How many messages of a kind went to a peer."""
        return sum(line.get("message") == what and line.get("to") == peer for line in self.lines)

    def _run(self) -> None:
        while True:
            readable, _, _ = select.select([self._listener, *self._streams], [], [])
            for stream in readable:
                if stream is self._listener:
                    self._accept()
                elif stream in self._streams:
                    self._pass_on(stream)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        far = socket.create_connection(self._target)
        name = self._next_name
        self._streams[near] = (far, Zmtp("ROUTER", MAXIMUM_MESSAGE_BYTES), name, True)
        self._streams[far] = (near, Zmtp("DEALER", MAXIMUM_MESSAGE_BYTES), name, False)

    def _pass_on(self, stream: socket.socket) -> None:
        other, protocol, name, is_peer = self._streams[stream]
        try:
            data = stream.recv(1 << 20)
            messages = protocol.feed(data)
        except (OSError, ZmtpError):
            data, messages = b"", []
        with self._changed:
            for frames in messages:
                self.lines.append(_line(name, is_peer, frames))
            if not data and name and is_peer:
                self.lines.append({"peer": name, "event": "closed"})
            self._changed.notify_all()
        if data:
            other.sendall(data)
            return
        # The other end may have more to say, and its end is an event as well, whichever end was first.
        del self._streams[stream]
        with suppress(OSError):
            other.shutdown(socket.SHUT_WR)
        if other not in self._streams:
            stream.close()
            other.close()


def _line(name: str, is_peer: bool, frames: List[bytes]) -> Dict[str, Any]:
    direction = {"from": name, "to": "scheduler"} if is_peer else {"from": "scheduler", "to": name}
    try:
        message = decode(frames[0])
    except MalformedMessageError:
        return {**direction, "message": "", "frames": [shown(frame) for frame in frames]}
    if isinstance(message, m.Hello):
        message.host, message.process_id = "host", 1
        message.name = message.name and name
        message.data_address = message.data_address and "tcp://127.0.0.1:2346"
    if isinstance(message, m.Welcome):
        message.object_directory = message.object_directory and "/dev/shm/scaler-objects"
        message.monitor_address = "ipc:///tmp/monitor"
    if isinstance(message, m.DisconnectRequest):
        message.message = ""  # for people; it names processes
    if isinstance(message, m.Heartbeat):
        for processor in message.processors:
            processor.process_id = 2
    all_frames = [encode(message), *(frame.replace(TREE, TREE_SHOWN) for frame in frames[1:])]
    return {**direction, "message": type(message).__name__, "frames": [shown(frame) for frame in all_frames]}


def shown(frame: bytes) -> str:
    """A frame in hexadecimal; 64 and more equal bytes in a row as `[78*70000]`."""
    parts = []
    start = 0
    for run in LONG_RUN.finditer(frame):
        parts += [frame[start : run.start()].hex(), f"[{run[0][:1].hex()}*{len(run[0])}]"]
        start = run.end()
    return "".join([*parts, frame[start:].hex()])


class Cluster:
    """A scheduler behind a relay, and programs that connect to it."""

    def __init__(self, *options: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        address_file = Path(self._folder.name) / "address"
        self._programs: List[subprocess.Popen[bytes]] = []
        monitor = f"ipc://{self._folder.name}/monitor"
        self._start("scaler_appliance", "tcp://127.0.0.1:0", "--address-file", str(address_file),
                    "--monitor-address", monitor, *QUIET, *options)  # fmt: skip
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (address_file.exists() and len(address_file.read_text().splitlines()) == 2):
            if time.monotonic() > deadline:
                raise TimeoutError("the scheduler does not start")
            time.sleep(0.01)
        self.relay = Relay(address_file.read_text().splitlines()[0])

    def _start(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", module, *arguments]
        program = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self._programs.append(program)
        return program

    def worker(self, *options: str) -> subprocess.Popen[bytes]:
        self.relay.expect("worker")
        worker = self._start("scaler.worker", self.relay.address, "--insecure", "-n", "1", *options)
        self.relay.wait_for("HeartbeatEcho")
        return worker

    @contextmanager
    def client(self, **options: Any) -> Iterator[Client]:
        self.relay.expect("client")
        with Client(address=self.relay.address, heartbeat_interval_seconds=300, insecure=True, **options) as client:
            self.relay.wait_for("HeartbeatEcho", 1 + self.relay.count("Welcome", "worker"))
            yield client

    def raw(self, frames: List[bytes]) -> None:
        """Send one message on a connection of its own, and wait for the answer."""
        self.relay.expect("unregistered")
        parsed = parse_address(self.relay.address)
        with socket.create_connection((parsed.host, parsed.port)) as stream:
            protocol = Zmtp("DEALER", MAXIMUM_MESSAGE_BYTES)
            stream.sendall(protocol.take_output())
            messages: List[List[bytes]] = []
            is_sent = False
            while not messages:
                messages = protocol.feed(stream.recv(65536))
                stream.sendall(protocol.take_output())
                if protocol.is_ready and not is_sent:
                    stream.sendall(b"".join(lay_out(frames)))
                    is_sent = True
        self.relay.wait_for("closed")

    def end(self) -> None:
        """When the client has left, the worker leaves, too: what it was still sent comes before the end."""
        self.relay.wait_for("closed")
        self._programs[-1].terminate()
        self.relay.wait_for("closed", 2)

    def close(self) -> None:
        for program in reversed(self._programs):
            program.terminate()
            program.wait(DEADLINE_SECONDS)
        self._folder.cleanup()


# Scenarios -----------------------------------------------------------------------------------------------------------


def greeting(cluster: Cluster) -> None:
    """A worker joins, says how it is, and leaves when its system tells it to."""
    cluster.worker().terminate()
    cluster.relay.wait_for("closed")


def refused_version(cluster: Cluster) -> None:
    """A peer of another major version is refused."""
    cluster.raw([encode(m.Hello(major=2, minor_max=3, role=m.Role.WORKER, slots=1))])


def not_greeted(cluster: Cluster) -> None:
    """A peer that does not say Hello first is told to."""
    cluster.raw([encode(m.Heartbeat(sequence=1))])


def malformed(cluster: Cluster) -> None:
    """Bytes that are no message are refused."""
    cluster.raw([b"not a header at all"])


def one_task(cluster: Cluster) -> None:
    """A client places a function, submits one task of it, gets the result, and leaves."""
    cluster.worker()
    with cluster.client() as client:
        assert client.submit(abs, -7).result() == 7
    cluster.end()


def one_batch(cluster: Cluster) -> None:
    """Twenty tasks in few messages."""
    cluster.worker()
    with cluster.client() as client:
        assert client.map(abs, [(-number,) for number in range(20)]) == list(range(20))
    cluster.end()


def failure(cluster: Cluster) -> None:
    """A task that raises."""
    cluster.worker()
    with cluster.client() as client:
        assert isinstance(client.submit(int, "seven").exception(), ValueError)
    cluster.end()


def named_function(cluster: Cluster) -> None:
    """A function is called by its name, in JSON: no object is placed."""
    cluster.worker("--functions", "scaler.conformance/*=scaler.conformance")
    with cluster.client() as client:
        assert client.submit(NamedFunction("scaler.conformance/sum"), 1, 2, 39).result() == 42
    cluster.end()


def output(cluster: Cluster) -> None:
    """What a task prints comes to its client before the result."""
    cluster.worker("--functions", "scaler.conformance/*=scaler.conformance")
    with cluster.client(stream_output=lambda output: None) as client:
        client.submit(NamedFunction("scaler.conformance/log"), 1, "a line\n").result()
    cluster.end()


def draining(cluster: Cluster) -> None:
    """A client asks that a worker leave, which it does when its task has ended."""
    cluster.worker("--functions", "scaler.conformance/*=scaler.conformance")
    with cluster.client() as client:
        future = client.submit(NamedFunction("scaler.conformance/sleep"), 500)
        cluster.relay.wait_for("Task", 2)
        welcome = next(line for line in cluster.relay.lines if line.get("message") == "Welcome")
        message = decode(bytes.fromhex(welcome["frames"][0]))
        assert isinstance(message, m.Welcome)
        client.shutdown_worker(message.session)
        future.result()
        cluster.relay.wait_for("closed")
    cluster.relay.wait_for("closed", 2)


def leaving(cluster: Cluster) -> None:
    """A worker whose program gets SIGTERM asks to be drained, and leaves when its task has ended."""
    worker = cluster.worker("--functions", "scaler.conformance/*=scaler.conformance")
    with cluster.client() as client:
        future = client.submit(NamedFunction("scaler.conformance/sleep"), 500)
        cluster.relay.wait_for("Task", 2)
        time.sleep(0.25)  # until it has begun: else it is given back
        worker.terminate()
        future.result()
        cluster.relay.wait_for("closed")
    cluster.relay.wait_for("closed", 2)


def cancel_waiting(cluster: Cluster) -> None:
    """A task is cancelled that no worker has, for there is none."""
    with cluster.client() as client:
        assert client.submit(abs, -7).cancel()
    cluster.relay.wait_for("closed")


def cancel_running(cluster: Cluster) -> None:
    """A running task is stopped."""
    cluster.worker()
    with cluster.client() as client:
        future = client.submit(time.sleep, 600)
        cluster.relay.wait_for("Task", 2)
        assert future.cancel()
    cluster.end()


def objects_by_request(cluster: Cluster) -> None:
    """A client that shares no directory: large arguments are fetched from it, and it fetches a large result."""
    client_objects.shares_directory = lambda path, token: False
    cluster.worker()
    with cluster.client() as client:
        assert client.submit(bytes.upper, b"x" * 70_000).result() == b"X" * 70_000
    cluster.end()


def objects_shared(cluster: Cluster) -> None:
    """All see one directory: an object that two tasks need is a file, and so is a large result."""
    cluster.worker()
    with cluster.client() as client:
        text = client.send_object(b"x" * 70_000, name="text")
        assert client.submit(len, text).result() == 70_000
        assert client.submit(bytes.upper, text).result() == b"X" * 70_000
        client.clear()
    cluster.end()


def graph(cluster: Cluster) -> None:
    """Three nodes, the last of which needs the results of the others; only its outcome is wanted."""
    cluster.worker()
    with cluster.client() as client:
        assert client.get({"a": (abs, -3), "b": (abs, -4), "sum": (max, "a", "b")}, ["sum"]) == {"sum": 4}
    cluster.end()


def shutdown_refused(cluster: Cluster) -> None:
    """A protected scheduler does not let a client stop it."""
    with cluster.client() as client:
        try:
            client.shutdown()
        except Exception as error:
            assert "protected" in str(error)
    cluster.relay.wait_for("closed")


def shutdown(cluster: Cluster) -> None:
    """A client stops the cluster."""
    cluster.worker()
    with cluster.client() as client:
        client.shutdown()
    cluster.relay.wait_for("closed", 2)


SCENARIOS: List[Callable[[Cluster], None]] = [
    greeting,
    refused_version,
    not_greeted,
    malformed,
    one_task,
    one_batch,
    failure,
    named_function,
    output,
    draining,
    leaving,
    cancel_waiting,
    cancel_running,
    objects_by_request,
    objects_shared,
    graph,
    shutdown_refused,
    shutdown,
]
OPTIONS: Dict[str, List[str]] = {"shutdown": ["--no-protected"], "draining": ["--no-protected"]}


def record(scenario: Callable[[Cluster], None]) -> None:
    name = scenario.__name__
    keeps, client_objects.shares_directory = client_objects.shares_directory, client_objects.shares_directory
    cluster = Cluster(*OPTIONS.get(name, []))
    try:
        scenario(cluster)
        lines: List[Optional[Dict[str, Any]]] = list(cluster.relay.lines)
    finally:
        client_objects.shares_directory = keeps
        cluster.close()
    about = {"trace": name, "about": (scenario.__doc__ or "").strip(), "version": "1.0"}
    content = "".join(json.dumps(line) + "\n" for line in [about, *lines])
    (TRACES / f"{name.replace('_', '-')}.jsonl").write_text(content, encoding="utf-8")
    print(name, len(lines))


if __name__ == "__main__":
    for each in SCENARIOS:
        if each.__name__ in sys.argv[1:] or len(sys.argv) == 1:
            record(each)
