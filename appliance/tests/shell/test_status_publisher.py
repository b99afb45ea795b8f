"""The monitors' socket, and what killed schedulers leave of it."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Callable, Iterator, List

import pytest
import zmq
from scheduler_process import wait_for

from scaler_appliance.shell.status_publisher import RUNS, STATUS, Interest, StatusPublisher


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[StatusPublisher]:
    monitor = StatusPublisher(f"ipc://{tmp_path}/127.0.0.1_80_monitor", io_threads=1)
    yield monitor
    monitor.close()
    assert list(tmp_path.iterdir()) == []


def interest_of(monitor: StatusPublisher, is_right: Callable[[Interest], object]) -> Interest:
    """What monitors want, as soon as it is what the test waits for."""
    interests: List[Interest] = []

    def is_there() -> bool:
        interests.append(monitor.interest())
        return bool(is_right(interests[-1]))

    wait_for(is_there, "monitors to be heard")
    return interests[-1]


def test_who_subscribes_gets_what_is_published(monitor: StatusPublisher) -> None:
    assert monitor.interest() == Interest(False, False, False)
    with zmq.Context() as context, context.socket(zmq.SUB) as subscriber:
        subscriber.subscribe(STATUS)
        subscriber.connect(monitor.address)
        assert interest_of(monitor, lambda interest: interest.has_status) == Interest(True, False, True)
        assert monitor.interest() == Interest(True, False, False)
        monitor.publish(RUNS, b"not for it")
        monitor.publish(STATUS, b"for it")
        assert subscriber.recv_multipart() == [STATUS, b"for it"]
        subscriber.subscribe(RUNS)
        interest_of(monitor, lambda interest: interest == Interest(True, True, False))
        subscriber.unsubscribe(STATUS)
        interest_of(monitor, lambda interest: interest == Interest(False, True, False))
    interest_of(monitor, lambda interest: interest == Interest(False, False, False))


def test_each_who_comes_is_noticed(monitor: StatusPublisher) -> None:
    with zmq.Context() as context, context.socket(zmq.SUB) as first, context.socket(zmq.SUB) as second:
        for subscriber in (first, second):
            subscriber.subscribe(b"")
            subscriber.connect(monitor.address)
            assert interest_of(monitor, lambda interest: interest.is_new) == Interest(True, True, True)
        second.close()
        with context.socket(zmq.SUB) as third:
            third.subscribe(STATUS)
            third.connect(monitor.address)
            interest_of(monitor, lambda interest: interest.is_new)
        assert monitor.interest().has_status, "the first is there still"


def test_what_else_a_monitor_sends_is_not_heeded(monitor: StatusPublisher) -> None:
    with zmq.Context() as context, context.socket(zmq.XSUB) as rude, context.socket(zmq.SUB) as subscriber:
        rude.connect(monitor.address)
        for message in (b"\2status", b"", b"\1other", b"status", b"\0status", bytes(1_000_000), b"\1" + bytes(2000)):
            rude.send(message)
        rude.send_multipart([b"\1status"] * 3)
        subscriber.subscribe(STATUS)
        subscriber.connect(monitor.address)
        interest_of(monitor, lambda interest: interest.has_status)
        monitor.publish(STATUS, b"to whom it concerns")
        assert subscriber.recv_multipart() == [STATUS, b"to whom it concerns"]


def test_subscribing_without_end_is_not_read_without_end(monitor: StatusPublisher) -> None:
    with zmq.Context() as context, context.socket(zmq.SUB) as restless:
        restless.connect(monitor.address)
        for _ in range(20):
            for _ in range(1000):
                restless.subscribe(STATUS)
                restless.unsubscribe(STATUS)
            monitor.interest()
        interest_of(monitor, lambda interest: not interest.has_status and not interest.is_new)


def test_the_socket_is_its_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0)
    path = tmp_path / "127.0.0.1_80_monitor"
    try:
        monkeypatch.setattr(os, "chmod", None)  # which would be too late
        monitor = StatusPublisher(f"ipc://{path}", io_threads=1)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert os.umask(0) == 0, "other files are made as before"
        monitor.close()
    finally:
        os.umask(before)


def test_what_killed_schedulers_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(str(tmp_path / "127.0.0.1_1_monitor"))
    left.close()
    used = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    used.bind(str(tmp_path / "127.0.0.1_2_monitor"))
    used.listen()
    (tmp_path / "127.0.0.1_3_monitor").write_text("no socket")
    other = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    other.bind(str(tmp_path / "another-user's"))
    other.close()
    new = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    new.bind(str(tmp_path / "127.0.0.1_5_monitor"))
    new.close()
    for path in tmp_path.iterdir():
        if path.name != "127.0.0.1_5_monitor":
            os.utime(path, (0, 0))

    monitor = StatusPublisher(f"ipc://{tmp_path}/127.0.0.1_4_monitor", io_threads=1)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "127.0.0.1_2_monitor",
        "127.0.0.1_3_monitor",
        "another-user's",
        "127.0.0.1_4_monitor",
        "127.0.0.1_5_monitor",
    }
    monitor.close()
    used.close()


def test_an_address_that_is_taken_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="cannot listen at ipc"):
        StatusPublisher(f"ipc://{tmp_path}/missing/monitor", io_threads=1)
