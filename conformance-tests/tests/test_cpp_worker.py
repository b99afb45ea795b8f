"""The worker in C++ runs functions that a Python client calls by name: results, failures, cancels, restarts.

Rules: a real scheduler, our client, and the program that `make cpp-worker` builds. A task that a test controls is
`scaler.conformance/wait`: it connects to the test, sends its tag, and returns the line that it receives.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Callable, Iterator, List

import pytest
from quiet_addresses import quiet_address

from scaler import Client, NamedFunction, ScalerFuture
from scaler.cluster.scheduler import Scheduler
from scaler.exceptions import (
    DeserializeObjectError,
    NamedFunctionError,
    ResultNotSerializableError,
    ScalerError,
    TaskTimeoutError,
)
from scaler_protocol.keys.key_directory import OWNER_KEY, default_key_directory

PROGRAM = Path(__file__).resolve().parents[2] / "build/cpp-worker/cpp_worker"
TIMEOUT_SECONDS = 60.0

SHA256 = NamedFunction("example.org/sha256", codec="raw")

pytestmark = pytest.mark.skipif(
    not PROGRAM.exists(), reason="there is no worker in C++ here (make cpp-worker says why)"
)

StartWorker = Callable[..., "subprocess.Popen[str]"]


def conformance(name: str, codec: str = "json") -> NamedFunction:
    return NamedFunction(f"scaler.conformance/{name}", codec=codec)


def key() -> List[str]:
    """The options for the owner's key, if a scheduler has made it."""
    key_file = os.path.join(default_key_directory(), OWNER_KEY)
    return ["--key-file", key_file] if os.path.exists(key_file) else []


def stop(worker: subprocess.Popen[str]) -> None:
    worker.kill()
    worker.communicate(timeout=TIMEOUT_SECONDS)


@pytest.fixture
def start_worker() -> Iterator[StartWorker]:
    with contextlib.ExitStack() as stack:

        def start(*words: str) -> subprocess.Popen[str]:
            worker = subprocess.Popen([str(PROGRAM), *words, *key()], stderr=subprocess.PIPE, text=True)
            stack.callback(stop, worker)
            return worker

        yield start


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    scheduler = Scheduler(address=quiet_address(), logging_level="WARNING")
    scheduler.start()
    yield scheduler
    scheduler.shutdown()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a cluster of one worker with two slots, for all tests that leave it as it was."""
    scheduler = Scheduler(logging_level="WARNING")
    scheduler.start()
    command = [str(PROGRAM), scheduler.get_address(), "--slots", "2", *key()]
    worker = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    yield scheduler.get_address()
    scheduler.shutdown()
    assert worker.wait(TIMEOUT_SECONDS) == 0, "it leaves with its scheduler"


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address=address) as client:
        yield client


class Hold:
    """Where tasks that wait report, and are told to end."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(TIMEOUT_SECONDS)
        self.port: int = self._listener.getsockname()[1]

    def started(self) -> socket.socket:
        """The connection of the next task that starts, after its tag has come."""
        connection, _ = self._listener.accept()
        connection.settimeout(TIMEOUT_SECONDS)
        assert connection.recv(100) == b"tag\n"
        return connection

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def hold() -> Iterator[Hold]:
    hold = Hold()
    yield hold
    hold.close()


def submit_wait(client: Client, hold: Hold) -> ScalerFuture[object]:
    return client.submit(conformance("wait"), "127.0.0.1", hold.port, "tag")


def test_results_in_json_and_raw(client: Client) -> None:
    value = {"a": [1, None, True, 2.5, -7], "ä": "ö\x00"}
    assert client.submit(conformance("echo"), value).result() == value
    assert client.submit(conformance("sum"), 1, 2, 39).result() == 42
    assert client.submit(conformance("sum"), 2**63, -1, 0.5).result() == 2.0**63
    assert client.submit(conformance("sum")).result() == 0
    assert client.submit(conformance("size", "raw"), b"3").result() == b"xxx"
    row = client.submit(NamedFunction("example.org/mandelbrot-row"), 0, -3, 0, 3, 100).result()
    assert row == [1, 100, 100]


@pytest.mark.parametrize("length", [0, 3, 55, 56, 63, 64, 65, 1000, 3_000_001])
def test_sha256(client: Client, length: int) -> None:
    data = bytes(range(251)) * (length // 251 + 1)
    assert client.submit(SHA256, data[:length]).result() == hashlib.sha256(data[:length]).digest()


@pytest.mark.parametrize(
    ("function", "arguments", "error", "text"),
    [
        (conformance("fail"), ["o weh"], NamedFunctionError, "scaler.conformance.Failure: o weh"),
        (conformance("sum"), [1, True], DeserializeObjectError, "argument 2 is to be a number"),
        (conformance("echo"), [], DeserializeObjectError, "index 0 is out of range"),
        (conformance("sum"), [1e308, 1e308], ResultNotSerializableError, "not finite"),
        (conformance("sum", "raw"), [b"1"], ScalerError, "does not take the codec 'raw'"),
    ],
)
def test_failures_say_why(
    client: Client, function: NamedFunction, arguments: List[object], error: type, text: str
) -> None:
    with pytest.raises(error, match=text):
        client.submit(function, *arguments).result()


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def test_json_that_is_nested_too_deep_for_a_stack(client: Client) -> None:
    assert client.submit(conformance("echo"), nested(500)).result() == nested(500)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    try:
        future = client.submit(conformance("echo"), nested(2000))
    finally:
        sys.setrecursionlimit(before)
    with pytest.raises(DeserializeObjectError, match="nested deeper than 1000"):
        future.result()


def test_large_arguments_and_results(scheduler: Scheduler, start_worker: StartWorker) -> None:
    start_worker(scheduler.get_address())
    large = os.urandom(10_000_001)
    with Client(address=scheduler.get_address()) as client:
        assert client.submit(conformance("echo", "raw"), large).result() == large
        assert client.submit(conformance("size"), 5_000_000).result() == "x" * 5_000_000
        digests = [client.submit(SHA256, large[part:]) for part in range(20)]
        assert [digest.result() for digest in digests] == [hashlib.sha256(large[part:]).digest() for part in range(20)]


def test_many_small_tasks(client: Client) -> None:
    assert client.map(conformance("echo"), range(100_000)) == list(range(100_000))


def test_slots_run_at_the_same_time(client: Client, hold: Hold) -> None:
    futures = [submit_wait(client, hold) for _ in range(2)]
    tasks = [hold.started(), hold.started()]
    for task in tasks:
        task.sendall(b"go\n")
    assert [future.result() for future in futures] == ["go", "go"]


def test_cancels_of_waiting_and_of_running_tasks(client: Client, hold: Hold) -> None:
    pairs = [(submit_wait(client, hold), hold.started()) for _ in range(2)]
    running, tasks = zip(*pairs)
    waiting = [client.submit(conformance("echo"), number) for number in range(3)]

    assert waiting[1].cancel(TIMEOUT_SECONDS)
    assert not running[0].cancel(TIMEOUT_SECONDS, force=False), "it runs, and may"
    assert running[1].cancel(TIMEOUT_SECONDS), "it is stopped"
    assert tasks[1].recv(1) == b"", "it has let its connection go"
    assert [waiting[0].result(), waiting[2].result()] == [0, 2], "on the slot that is free again"

    tasks[0].sendall(b"go\n")
    assert running[0].result() == "go"
    with pytest.raises(concurrent.futures.CancelledError):
        waiting[1].result()


@pytest.mark.parametrize("name", ["sleep", "busy", "hang"])
def test_time_limits(client: Client, name: str) -> None:
    with pytest.raises(TaskTimeoutError):
        client.options(timeout=0.05).submit(conformance(name), *([] if name == "hang" else [60_000])).result()


def test_profiles(client: Client) -> None:
    future = client.options(profiling=True).submit(conformance("busy"), 20)
    assert future.result() is None
    assert future.profiling_info().duration_s >= 0.02


def test_it_comes_back_when_the_scheduler_is_killed(
    scheduler: Scheduler, start_worker: StartWorker, hold: Hold
) -> None:
    address = scheduler.get_address()
    start_worker(address)
    with Client(address=address) as client:
        running = submit_wait(client, hold)
        first = hold.started()
        assert scheduler.pid is not None
        os.kill(scheduler.pid, signal.SIGKILL)
        scheduler.join(TIMEOUT_SECONDS)
        assert first.recv(1) == b"", "the session has ended, and what ran in it is stopped"

        again = Scheduler(address=address, logging_level="WARNING")
        again.start()
        try:
            second = hold.started()
            second.sendall(b"go\n")
            assert running.result(TIMEOUT_SECONDS) == "go"
        finally:
            again.shutdown()


def test_it_leaves_at_sigterm_and_others_go_on(scheduler: Scheduler, start_worker: StartWorker, hold: Hold) -> None:
    address = scheduler.get_address()
    leaving = start_worker(address)
    with Client(address=address) as client:
        future = submit_wait(client, hold)
        first = hold.started()
        leaving.terminate()
        assert leaving.wait(TIMEOUT_SECONDS) == 0
        assert first.recv(1) == b""

        start_worker(address)
        second = hold.started()
        second.sendall(b"go\n")
        assert future.result(TIMEOUT_SECONDS) == "go"


def test_without_a_scheduler_it_gives_up(start_worker: StartWorker) -> None:
    address = quiet_address()
    worker = start_worker(address, "--patience", "0.2")
    _, errors = worker.communicate(timeout=TIMEOUT_SECONDS)
    assert worker.returncode == 1
    assert f"no scheduler at {address}" in errors


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "address is required"),
        (["tcp://127.0.0.1:1", "--slots", "0"], "--slots: Value 0 not in range"),
        (["tcp://127.0.0.1:1", "--colour"], "following argument was not expected: --colour"),
        (["nowhere"], "nowhere: Invalid argument"),
    ],
)
def test_wrong_options_are_explained(start_worker: StartWorker, words: List[str], text: str) -> None:
    worker = start_worker(*words)
    _, errors = worker.communicate(timeout=TIMEOUT_SECONDS)
    assert worker.returncode not in (0, 1, 3), "those say other things"
    assert text in errors
