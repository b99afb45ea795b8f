"""A program that takes the port of a scheduler gets neither its clients nor its workers."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from quiet_addresses import quiet_address
from sdk_tasks import wait_for
from security.attackers.lying_scheduler import LIARS, MAXIMUM_HANDSHAKE_BYTES, LyingScheduler
from security.keyed_scheduler import TIMEOUT_SECONDS, KeyedScheduler, as_another_user

from scaler import Client
from scaler.exceptions import AuthenticationError, SchedulerUnreachableError
from scaler_protocol.host.addresses import local_socket_name, parse_address

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
def test_a_client_tells_a_liar_nothing(scheduler: KeyedScheduler, kind: str) -> None:
    liar = LyingScheduler(kind)
    try:
        key_file = scheduler.new_key("client", f"trusting-{kind.replace(' ', '-')}")
        with pytest.raises((AuthenticationError, SchedulerUnreachableError), match=SAYS.get(kind, "in time")):
            Client(address=liar.address, key_file=key_file, connect_timeout_seconds=2)
        check_nothing_was_told(liar)
    finally:
        liar.close()


@pytest.mark.parametrize("kind", LIARS)
def test_a_worker_tells_a_liar_nothing(scheduler: KeyedScheduler, kind: str, tmp_path: Path) -> None:
    liar = LyingScheduler(kind)
    try:
        key_file = scheduler.new_key("worker", f"trusting-worker-{kind.replace(' ', '-')}")
        log = tmp_path / "worker.log"
        worker = scheduler.worker("-lp", str(log), "-ds", "1", key_file=key_file, address=liar.address)
        assert worker.wait(TIMEOUT_SECONDS) != 0
        check_nothing_was_told(liar)
    finally:
        liar.close()


def test_a_client_without_a_key_tells_another_program_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("SCALER_KEY_DIRECTORY", "SCALER_RUN_DIRECTORY"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    liar = LyingScheduler("without keys")
    try:
        with pytest.raises(AuthenticationError, match="scaler keys new --role client"):
            Client(address=liar.address, connect_timeout_seconds=2)
        assert not any(liar.received)
    finally:
        liar.close()


@pytest.mark.parametrize("kind", ["without keys", "with another key"])
def test_who_takes_the_port_of_a_dead_scheduler_gets_no_task(tmp_path: Path, kind: str) -> None:
    scheduler = KeyedScheduler(tmp_path)
    parsed = parse_address(scheduler.address)
    client_key, worker_key = scheduler.admitted_key("client"), scheduler.admitted_key("worker")
    worker = scheduler.worker(key_file=worker_key)
    try:
        with scheduler.client(client_key) as client:
            assert client.submit(len, SECRET).result(TIMEOUT_SECONDS) == len(SECRET)
            scheduler.kill()
            liar = LyingScheduler(kind, (parsed.host, parsed.port))
            future = client.submit(len, SECRET)
            wait_for(lambda: len(liar.received) >= 3, "client and worker to try")
            liar.close()
            check_nothing_was_told(liar)
            scheduler.start()
            assert future.result(TIMEOUT_SECONDS) == len(SECRET)
    finally:
        worker.terminate()
        worker.wait(TIMEOUT_SECONDS)
        scheduler.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_local_socket_that_another_user_took_before_the_scheduler_gets_nothing(tmp_path: Path) -> None:
    address = quiet_address()
    name = local_socket_name(parse_address(address))
    assert name is not None
    told, tell = socket.socketpair()
    squatter = os.fork()
    if not squatter:
        try:
            as_another_user(lambda: take_and_record(name, tell))
        finally:
            os._exit(0)
    scheduler = None
    try:
        assert told.recv(100) == b"taken"
        scheduler = KeyedScheduler(tmp_path, address=address)
        key_file = scheduler.admitted_key("client")
        with scheduler.client(key_file) as client:
            client.info()
        told.send(b"stop")
        assert told.recv(100) == b"heard 0 bytes"
    finally:
        told.close()
        os.waitpid(squatter, 0)
        if scheduler is not None:
            scheduler.stop()


def take_and_record(name: str, tell: socket.socket) -> str:
    """Listens at an abstract name until it is told to stop, and says how much callers have sent."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(name)
    listener.listen()
    listener.settimeout(0.1)
    tell.setblocking(False)
    tell.send(b"taken")
    heard = 0
    streams = []
    while True:
        try:
            if tell.recv(100) in (b"stop", b""):
                break
        except BlockingIOError:
            pass
        try:
            streams.append(listener.accept()[0])
            streams[-1].setblocking(False)
        except socket.timeout:
            pass
        for stream in streams:
            try:
                heard += len(stream.recv(65536))
            except (BlockingIOError, ConnectionError):
                pass
    tell.send(b"heard %d bytes" % heard)
    return ""
