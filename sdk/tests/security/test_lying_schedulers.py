"""A program that takes the port of a scheduler gets neither its clients nor its workers."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from quiet_addresses import quiet_address
from sdk_tasks import wait_for
from security.attackers.another_user import AnotherUser
from security.attackers.lying_scheduler import LIARS, MAXIMUM_HANDSHAKE_BYTES, LyingScheduler
from security.keyed_scheduler import TIMEOUT_SECONDS, KeyedScheduler

from scaler import Client
from scaler.exceptions import AuthenticationError, SchedulerUnreachableError
from scaler_protocol.host.addresses import local_socket_name, parse_address
from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.keys.key_file import read_key_file

SAYS = {
    "without keys": "has none",
    "with another key": "expects another key|does not own the key",
    "PLAIN": "PLAIN",
    "an ERROR": r"no\?\?\[CRITICAL\].*fire\?\[2J",
    "a WELCOME without a key": "does not own the key",
}
SECRET = b"a secret argument"


def check_nothing_was_told(liar: LyingScheduler) -> None:
    assert liar.received and not liar.messages
    for data in liar.received:
        assert len(data) <= MAXIMUM_HANDSHAKE_BYTES
        assert b"scaler" not in data and b"READY" not in data and b"INITIATE" not in data


@pytest.mark.parametrize("kind", LIARS)
def test_a_client_tells_a_liar_nothing(scheduler: KeyedScheduler, another_user: AnotherUser, kind: str) -> None:
    with another_user.starts(LyingScheduler, kind) as liar:
        key_file = scheduler.new_key("client", f"trusting-{kind.replace(' ', '-')}")
        seconds = TIMEOUT_SECONDS if kind in SAYS else 2  # for a liar that says no more than its greeting
        with pytest.raises((AuthenticationError, SchedulerUnreachableError), match=SAYS.get(kind, "in time")):
            Client(address=liar.address, key_file=key_file, connect_timeout_seconds=seconds)
        check_nothing_was_told(liar)


@pytest.mark.parametrize("kind", LIARS)
def test_a_worker_tells_a_liar_nothing(
    scheduler: KeyedScheduler, another_user: AnotherUser, kind: str, tmp_path: Path
) -> None:
    with another_user.starts(LyingScheduler, kind) as liar:
        key_file = scheduler.new_key("worker", f"trusting-worker-{kind.replace(' ', '-')}")
        log = tmp_path / "worker.log"
        worker = scheduler.worker("-lp", str(log), "-ds", "1", key_file=key_file, address=liar.address)
        assert worker.wait(TIMEOUT_SECONDS) != 0
        check_nothing_was_told(liar)


@pytest.mark.parametrize("whose", ["a worker's", "a forgotten one of the scheduler"])
def test_a_key_that_was_stolen_elsewhere_makes_no_scheduler(
    tmp_path: Path, another_user: AnotherUser, whose: str
) -> None:
    scheduler = KeyedScheduler(tmp_path)
    try:
        if whose == "a worker's":
            stolen = read_key_file(str(scheduler.admitted_key("worker"))).keys
        else:
            (stolen,) = scheduler.keys.server_key_pairs()
            scheduler.keys.rotate(load_sodium())
            scheduler.keys.forget_old()
        key_file = scheduler.admitted_key("client")
        with another_user.starts(LyingScheduler, "with another key", keys=stolen) as liar:
            with pytest.raises(AuthenticationError, match=SAYS["with another key"]):
                Client(address=liar.address, key_file=key_file, connect_timeout_seconds=TIMEOUT_SECONDS)
            check_nothing_was_told(liar)
        with scheduler.client(key_file) as client:
            client.info()
    finally:
        scheduler.stop()


def test_a_client_without_a_key_tells_another_program_nothing(
    tmp_path: Path, another_user: AnotherUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("SCALER_KEY_DIRECTORY", "SCALER_RUN_DIRECTORY"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    with another_user.starts(LyingScheduler, "without keys") as liar:
        with pytest.raises(AuthenticationError, match="scaler keys new --role client"):
            Client(address=liar.address, connect_timeout_seconds=2)
        assert not any(liar.received)


@pytest.mark.parametrize("kind", ["without keys", "with another key"])
def test_who_takes_the_port_of_a_dead_scheduler_gets_no_task(
    tmp_path: Path, another_user: AnotherUser, kind: str
) -> None:
    scheduler = KeyedScheduler(tmp_path)
    parsed = parse_address(scheduler.address)
    client_key, worker_key = scheduler.admitted_key("client"), scheduler.admitted_key("worker")
    worker = scheduler.worker(key_file=worker_key)
    try:
        with scheduler.client(client_key) as client:
            assert client.submit(len, SECRET).result(TIMEOUT_SECONDS) == len(SECRET)
            scheduler.kill()
            with another_user.starts(LyingScheduler, kind, (parsed.host, parsed.port)) as liar:
                future = client.submit(len, SECRET)
                wait_for(lambda: len(liar.received) >= 3, "client and worker to try")
                liar.stop_listening()
                check_nothing_was_told(liar)
            scheduler.start()
            assert future.result(TIMEOUT_SECONDS) == len(SECRET)
    finally:
        worker.terminate()
        worker.wait(TIMEOUT_SECONDS)
        scheduler.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_local_socket_that_another_user_took_before_the_scheduler_gets_nothing(
    tmp_path: Path, another_user: AnotherUser
) -> None:
    address = quiet_address()
    with another_user.starts(Squatter, local_socket_name(parse_address(address))) as squatter:
        scheduler = KeyedScheduler(tmp_path, address=address)
        try:
            with scheduler.client(Path(scheduler.keys.path, "owner.key")) as client:  # the owner's uses local sockets
                client.info()
            assert squatter.heard() == b""
        finally:
            scheduler.stop()


class Squatter:
    """Listens at an abstract name."""

    def __init__(self, name: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(name)
        self._listener.listen()
        self._listener.setblocking(False)

    def heard(self) -> bytes:
        """What the callers up to now have sent."""
        found = b""
        with suppress(BlockingIOError):
            while True:
                stream, _ = self._listener.accept()
                stream.settimeout(1)
                with stream, suppress(ConnectionError, socket.timeout):
                    while data := stream.recv(65536):
                        found += data
        return found
