"""Why nothing is heard at an address: each way not to be answered has words of its own."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Iterator

import pytest
import zmq
from quiet_addresses import quiet_address

from scaler_appliance.feed.silence import PROBE_INTERVAL_SECONDS, SilenceProbe, why_silent

TIMEOUT_SECONDS = 0.3
NOBODY = 65534


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def address_of(listening: socket.socket) -> str:
    return f"tcp://127.0.0.1:{listening.getsockname()[1]}"


def test_nothing_listens_at_a_refused_port_and_at_a_missing_file(
    tmp_path: Path,
) -> None:
    address = quiet_address()
    assert why_silent(address) == f"nothing listens at {address} (Connection refused)"
    address = f"ipc://{tmp_path}/none"
    assert why_silent(address) == f"nothing listens at {address} (No such file or directory)"


def test_a_firewall_gives_no_answer() -> None:
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(4):  # Linux drops further attempts like a firewall, once the queue of one or two is full
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        assert why_silent(address_of(listening), TIMEOUT_SECONDS).startswith(f"no answer from {address_of(listening)}")


def test_who_takes_a_connection_and_says_nothing_may_be_busy(listener: socket.socket) -> None:
    said = why_silent(address_of(listener), TIMEOUT_SECONDS)
    assert said.endswith("sent nothing in time: a scheduler that is busy or hung, or another program")


def test_a_server_that_says_something_else_is_another_one(listener: socket.socket) -> None:
    def serve() -> None:
        stream, _ = listener.accept()
        with stream:
            stream.sendall(b"SSH-2.0-OpenSSH_9.2")
            stream.recv(100)

    threading.Thread(target=serve, daemon=True).start()
    said = why_silent(address_of(listener), 10.0)
    assert (
        said == f"the program at {address_of(listener)} is not a Scaler scheduler:"
        " its first bytes are b'SSH-2.0-OpenSSH_9.2'"
    )


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (zmq.XPUB, "accepts monitors but publishes nothing: it is busy or hung"),
        (zmq.ROUTER, "is the scheduler's address for clients and workers; use its monitor address"),
        (zmq.PULL, "is not a Scaler scheduler: it is a ZeroMQ socket of type PULL"),
    ],
)
def test_a_zeromq_socket_is_known_by_its_type(kind: int, words: str) -> None:
    with zmq.Context() as context, context.socket(kind) as zeromq:
        port = zeromq.bind_to_random_port("tcp://127.0.0.1")
        assert words in why_silent(f"tcp://127.0.0.1:{port}", 10.0)


def test_another_users_socket_is_not_permitted(tmp_path: Path) -> None:
    path = tmp_path / "monitor"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen()
        path.chmod(0)
        # Root may do anything: then another user asks.
        as_other_user = "" if os.getuid() else f"import os; os.setuid({NOBODY}); "
        ask = f"from scaler_appliance.feed.silence import why_silent; {as_other_user}print(why_silent('ipc://{path}'))"
        done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith(f"no permission to connect to ipc://{path} (Permission denied)"), done


def test_probes_leave_no_descriptor_open(listener: socket.socket, tmp_path: Path) -> None:
    addresses = [quiet_address(), f"ipc://{tmp_path}/none", address_of(listener)]

    def opened_after_probes() -> int:
        for address in addresses:
            why_silent(address, timeout_seconds=0.01)
        return len(os.listdir("/proc/self/fd"))

    first = opened_after_probes()
    last = [opened_after_probes() for _ in range(5)][-1]
    assert last < first + 5, "one for each of fifteen probes"


def test_without_room_for_a_thread_a_probe_asks_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def has_no_room(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    now, answered = [100.0], threading.Event()

    def ask(address: str) -> str:
        answered.set()
        return "nothing listens"

    probe = SilenceProbe("tcp://somewhere:1", ask, lambda: now[0])
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(threading.Thread, "start", has_no_room)
        assert probe.reason() == ""
    now[0] += PROBE_INTERVAL_SECONDS
    probe.reason()
    assert answered.wait(30)


def test_a_probe_asks_in_the_background_and_not_all_the_time() -> None:
    now, asked, answered = [100.0], [], threading.Semaphore(0)

    def ask(address: str) -> str:
        asked.append(address)
        answered.release()
        return "nothing listens"

    probe = SilenceProbe("tcp://somewhere:1", ask, lambda: now[0])
    probe.reason()
    assert answered.acquire(timeout=30)
    probe._asking.join(30)  # type: ignore[union-attr]  # it has begun to ask
    assert [probe.reason(), probe.reason()] == ["nothing listens"] * 2
    now[0] += PROBE_INTERVAL_SECONDS
    probe.reason()
    assert answered.acquire(timeout=30)
    assert asked == ["tcp://somewhere:1"] * 2
    probe.forget()
