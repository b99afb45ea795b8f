"""The monitors' socket, with real sockets at its other ends, and what killed schedulers leave of it."""

from __future__ import annotations

import logging
import os
import socket
import stat
import time
from collections import Counter
from pathlib import Path
from typing import Any, Iterator, List

import pytest
import zmq
from shell.publishing.publisher_bench import DEADLINE_SECONDS, PublisherBench

from scaler_appliance.shell import listening
from scaler_appliance.shell.acceptor import SPARE_DESCRIPTORS, Acceptor
from scaler_appliance.shell.publishing import status_publisher
from scaler_appliance.shell.publishing.status_publisher import (
    HANDSHAKE_SECONDS,
    MAXIMUM_MESSAGE_BYTES,
    SERVING_SECONDS,
    STOOD_STILL_SECONDS,
    StatusPublisher,
)
from scaler_appliance.shell.publishing.subscriptions import RUNS, STATUS, WAITING_MESSAGES, Interest
from scaler_protocol.wire.zmtp import Zmtp, as_command

LARGE_BYTES = 4 << 20  # more than sockets and libzmq hold
MANY_CALLERS = 100_000


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[PublisherBench]:
    made = PublisherBench(f"ipc://{tmp_path}/127.0.0.1_80_monitor")
    yield made
    made.close()
    assert list(tmp_path.iterdir()) == []


def addresses(folder: Path) -> Iterator[str]:
    yield "tcp://127.0.0.1:0"
    yield "tcp://[::1]:0"
    yield f"ipc://{folder}/monitor"
    yield f"ipc://@scaler-test-{os.getpid()}"


@pytest.mark.parametrize("number", range(4), ids=["tcp", "tcp6", "file", "abstract"])
def test_who_subscribes_gets_what_is_published(tmp_path: Path, number: int) -> None:
    bench = PublisherBench(list(addresses(tmp_path))[number])
    try:
        assert bench.publisher.interest() == Interest(False, False, False)
        with bench.socket(IPV6=1) as subscriber:
            subscriber.subscribe(STATUS)
            assert bench.interest_of(lambda interest: interest.has_status) == Interest(True, False, True)
            assert bench.publisher.interest() == Interest(True, False, False)
            bench.publisher.publish(RUNS, b"not for it")
            bench.publisher.publish(STATUS, b"for it")
            assert bench.receive(subscriber) == [STATUS, b"for it"]
            large = os.urandom(LARGE_BYTES)
            bench.publisher.publish(STATUS, large)
            assert bench.receive(subscriber) == [STATUS, large]
            subscriber.subscribe(RUNS)
            bench.interest_of(lambda interest: interest == Interest(True, True, False))
            subscriber.unsubscribe(STATUS)
            bench.interest_of(lambda interest: interest == Interest(False, True, False))
        bench.interest_of(lambda interest: interest == Interest(False, False, False))
    finally:
        bench.close()


@pytest.mark.parametrize("minor_version", [0, 1], ids=["ZMTP 3.0", "ZMTP 3.1"])
def test_subscriptions_may_be_messages_or_commands(bench: PublisherBench, minor_version: int) -> None:
    monitor = bench.by_hand(minor_version)
    monitor.protocol.subscribe(b"stat")
    assert bench.interest_of(lambda interest: interest.has_status) == Interest(True, False, True)
    assert monitor.protocol.properties == {b"Socket-Type": b"XPUB"}
    bench.publisher.publish(STATUS, b"for it")
    bench.serve_until(lambda: monitor.protocol.messages, "a publication")
    assert monitor.protocol.messages == [[STATUS, b"for it"]]
    monitor.protocol.ping(b"context")
    bench.serve_until(lambda: (b"PONG", b"context") in monitor.protocol.commands, "the answer to a PING")
    monitor.protocol.cancel(b"stat")
    bench.interest_of(lambda interest: not interest.has_status)


def test_each_who_comes_is_noticed(bench: PublisherBench) -> None:
    with bench.socket() as first:
        first.subscribe(b"")
        assert bench.interest_of(lambda interest: interest.is_new) == Interest(True, True, True)
        with bench.socket() as second:
            second.subscribe(b"")
            assert bench.interest_of(lambda interest: interest.is_new) == Interest(True, True, True)
        with bench.socket() as third:
            third.subscribe(STATUS)
            bench.interest_of(lambda interest: interest.is_new)
        assert bench.publisher.interest().has_status, "the first is there still"


def test_a_subscriber_with_heartbeats_stays(bench: PublisherBench, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: List[bytes] = []
    send_command = Zmtp._send_command

    def count(protocol: Zmtp, command: bytes) -> None:
        answers.append(command)
        send_command(protocol, command)

    monkeypatch.setattr(Zmtp, "_send_command", count)
    with bench.socket(HEARTBEAT_IVL=20, HEARTBEAT_TIMEOUT=int(DEADLINE_SECONDS * 1000)) as subscriber:
        subscriber.subscribe(STATUS)
        bench.interest_of(lambda interest: interest.has_status)
        bench.serve_until(lambda: answers.count(b"\4PONG") > 20, "answers to some heartbeats")
        assert bench.publisher.interest() == Interest(True, False, False), "it has not connected again"


def test_what_else_a_monitor_sends_is_ignored(bench: PublisherBench) -> None:
    with bench.socket(zmq.XSUB) as rude, bench.socket() as subscriber:
        for message in (b"\2status", b"", b"\1other", b"status", b"\0status", bytes(1_000_000), b"\1" + bytes(2000)):
            rude.send(message)
        rude.send_multipart([b"\1status"] * 3)
        subscriber.subscribe(STATUS)
        bench.interest_of(lambda interest: interest.has_status)
        bench.publisher.publish(STATUS, b"to whom it concerns")
        assert bench.receive(subscriber) == [STATUS, b"to whom it concerns"]


@pytest.mark.parametrize("minor_version", [0, 1], ids=["message", "command"])
def test_a_monitor_that_sends_a_long_message_is_disconnected(bench: PublisherBench, minor_version: int) -> None:
    others, monitor = bench.by_hand(), bench.by_hand(minor_version)
    others.protocol.subscribe(STATUS)
    monitor.protocol.subscribe(bytes(MAXIMUM_MESSAGE_BYTES - 1))
    monitor.protocol.subscribe(RUNS)
    bench.interest_of(lambda interest: interest == Interest(True, True, False) or interest.has_runs)
    monitor.protocol.subscribe(bytes(MAXIMUM_MESSAGE_BYTES))
    bench.serve_until(lambda: monitor.has_ended, "the end of its connection")
    bench.interest_of(lambda interest: interest.has_status and not interest.has_runs)
    assert bench.publisher.newcomer_seconds > 0.005, "a fault is charged"


def test_a_socket_of_another_type_is_not_served(bench: PublisherBench, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "scaler"):
        monitor = bench.by_hand(socket_type=b"DEALER")
        bench.serve_until(lambda: monitor.has_ended, "the end of its connection")
    assert "cannot speak with one of type b'DEALER'" in caplog.text


def test_subscribing_again_and_again_costs_a_monitor_its_turns(bench: PublisherBench) -> None:
    restless, other = bench.by_hand(0), bench.by_hand()
    other.protocol.subscribe(RUNS)
    assert not bench.interest_of(lambda interest: interest.has_runs).has_status
    paused = bench.publisher._paused
    while not paused:
        for _ in range(100):
            restless.protocol.subscribe(STATUS)
            restless.protocol.cancel(STATUS)
        bench.serve()
    [monitor] = paused.values()
    assert monitor.resumes_at is not None and not monitor.events
    bench.publisher.sweep(monitor.resumes_at - 0.01)
    assert paused
    other.protocol.cancel(RUNS)
    bench.interest_of(lambda interest: not interest.has_runs)  # who is not restless is served
    bench.publisher.sweep(time.monotonic() + 3600.0)
    assert not paused and monitor.events


class SlowClock:
    """In place of the module `time`: whatever is done takes long."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._now = 0.0

    def perf_counter(self) -> float:
        self._now += self._seconds
        return self._now


def test_a_round_is_short_and_monitors_and_callers_take_turns(
    bench: PublisherBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitors = [bench.by_hand() for _ in range(6)]
    for monitor in monitors:
        monitor.protocol.subscribe(STATUS)
    bench.serve_until(lambda: len(subscribers(bench)) == 6, "the subscriptions")
    turns: List[str] = []
    serve, accept = StatusPublisher._serve_monitor, Acceptor.accept

    def count_monitor(publisher: StatusPublisher, monitor: Any, events: int) -> None:
        turns.append(monitor.label + str(monitor.name))
        serve(publisher, monitor, events)

    def count_callers(acceptor: Acceptor, descriptor: int, now: float) -> None:
        turns.append("callers")
        accept(acceptor, descriptor, now)

    monkeypatch.setattr(StatusPublisher, "_serve_monitor", count_monitor)
    monkeypatch.setattr(Acceptor, "accept", count_callers)
    monkeypatch.setattr(status_publisher, "time", SlowClock(0.7 * SERVING_SECONDS))
    monkeypatch.setattr(bench.allowances, "charge", lambda *_: 0.0)
    callers = []
    before = 0
    for _ in range(35):
        for monitor in monitors:
            monitor.stream.send(as_command(b"\4PING\0\1"))
        callers.append(bench.by_hand())
        bench._by_hand.clear()  # callers say nothing, so that only their connections are something to do
        bench.serve()
        assert 1 <= len(turns) - before <= 2
        before = len(turns)
    counts = Counter(turns)
    assert len(counts) == 7 and max(counts.values()) - min(counts.values()) <= 1
    for caller in callers:
        caller.stream.close()


def test_what_has_failed_for_lack_of_descriptors_is_tried_again(bench: PublisherBench) -> None:
    spares = bench.publisher.acceptor._spares
    os.close(spares.pop())
    bench.publisher.sweep(time.monotonic())
    assert len(spares) == SPARE_DESCRIPTORS


# Who does not read ---------------------------------------------------------------------------------------------------


def test_a_monitor_that_does_not_read_gets_whole_messages_and_delays_no_other(bench: PublisherBench) -> None:
    slow, quick = bench.by_hand(), bench.by_hand()
    for monitor in (slow, quick):
        monitor.protocol.subscribe(STATUS)
    bench.serve_until(lambda: len(subscribers(bench)) == 2, "the subscriptions")
    bench._by_hand.remove(slow)
    headers = [os.urandom(LARGE_BYTES) for _ in range(3)] + [b"%d" % number * 1000 for number in range(40)]
    for header in headers:
        bench.publisher.publish(STATUS, header)
        bench.serve_until(lambda: quick.protocol.messages, "a publication")
        assert quick.protocol.messages.pop() == [STATUS, header]
    bench._by_hand.append(slow)
    bench.serve_until(lambda: slow.protocol.messages[-1:] == [[STATUS, headers[-1]]], "the last publication")
    read = [header for _, header in slow.protocol.messages]
    assert read == [headers[0], *headers[-WAITING_MESSAGES:]]
    assert bench.publisher._subscriptions.held_bytes == 0


def test_messages_for_many_who_do_not_read_are_bounded_in_sum(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    limit_bytes = 3 * LARGE_BYTES
    bench = PublisherBench(f"ipc://{tmp_path}/monitor", maximum_waiting_bytes=limit_bytes)
    try:
        monitors = [bench.by_hand() for _ in range(6)]
        for monitor in monitors:
            monitor.protocol.subscribe(STATUS)
            bench.interest_of(lambda interest: interest.is_new)
            bench._by_hand.remove(monitor)  # it reads no more, while each of them has another message on its way
            bench.publisher.publish(STATUS, os.urandom(LARGE_BYTES))
            for _ in range(3):
                bench.serve()
            assert bench.publisher._subscriptions.held_bytes <= limit_bytes
        assert 0 < len(bench.publisher._monitors) < 6
        assert "no room is left for others" in caplog.text
    finally:
        bench.close()


def subscribers(bench: PublisherBench) -> list[object]:
    return [each for each in bench.publisher._subscriptions._subscribers.values() if each.topics]


def test_a_monitor_that_does_not_read_answers_is_not_read(
    bench: PublisherBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.allowances, "charge", lambda *_: 0.0)  # for which it would not be read, either
    monitor = bench.by_hand()
    monitor.protocol.subscribe(STATUS)
    bench.interest_of(lambda interest: interest.has_status)
    bench._by_hand.remove(monitor)
    [served] = bench.publisher._monitors.values()
    for _ in range(100):
        monitor.protocol.ping(b"x" * 16)
    pings = monitor.protocol.take_output()
    blocked = 0
    while blocked < 100:
        try:
            monitor.stream.send(pings)
        except BlockingIOError:
            blocked += 1
        bench.serve()
        assert served.connection.unsent_bytes < 2 * status_publisher.UNREAD_ANSWER_BYTES + len(pings)


# Callers -------------------------------------------------------------------------------------------------------------


def test_a_handshake_that_takes_too_long_ends(bench: PublisherBench) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.connect(bench.publisher.address[len("ipc://") :])
        bench.serve_until(lambda: bench.publisher._monitors, "the caller")
        now = time.monotonic()
        bench.publisher.sweep(now + HANDSHAKE_SECONDS - 1)
        assert bench.publisher._monitors
        bench.publisher.sweep(now + HANDSHAKE_SECONDS + STOOD_STILL_SECONDS)  # after a stop of ours there is more time
        assert bench.publisher._monitors
        bench.publisher.sweep(now + 2 * HANDSHAKE_SECONDS + STOOD_STILL_SECONDS - 2)
        bench.publisher.sweep(now + 2 * HANDSHAKE_SECONDS + STOOD_STILL_SECONDS + 1)
        assert not bench.publisher._monitors
        while silent.recv(1000):
            pass


def test_callers_without_a_handshake_do_not_keep_monitors_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = PublisherBench(f"ipc://{tmp_path}/monitor", maximum_monitors=3)
    try:
        idle = [bench.by_hand() for _ in range(5)]
        bench._by_hand.clear()
        bench.serve_until(lambda: len(bench.publisher._monitors) == 3, "the callers")
        monitors = [bench.by_hand() for _ in range(3)]
        for monitor in monitors:
            monitor.protocol.subscribe(STATUS)
            bench.interest_of(lambda interest: interest.is_new)
        assert len(bench.publisher._monitors) == 3 and not bench.publisher._connecting
        with caplog.at_level(logging.INFO, "scaler"):
            late = bench.by_hand()
            bench.serve_until(lambda: late.has_ended, "the end of a connection beyond the maximum")
        assert "a connection was rejected" in caplog.text and "there are 3 monitors" in caplog.text
        assert not any(monitor.has_ended for monitor in monitors)
        for each in idle:
            each.stream.close()
    finally:
        bench.close()


def test_a_flood_of_callers_is_charged_and_a_monitor_among_them_is_served(bench: PublisherBench) -> None:
    callers = 0
    monitor = bench.by_hand()
    monitor.protocol.subscribe(STATUS)
    pause_seconds = 0.0
    while not pause_seconds:
        for _ in range(10):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
                caller.connect(bench.publisher.address[len("ipc://") :])
                callers += 1
        bench.serve()
        assert len(bench.publisher._monitors) <= status_publisher.MAXIMUM_MONITORS
        # A round may be over before their turn, if this process had to wait meanwhile.
        seconds, bench.publisher.newcomer_seconds = bench.publisher.newcomer_seconds, 0.0
        pause_seconds = bench.allowances.charge_monitor_callers(0.0, seconds)
        assert callers < MANY_CALLERS, "they are not charged"
    assert callers > 100
    bench.publisher.acceptor.set_accepting(False)
    bench.interest_of(lambda interest: interest.has_status)
    late = bench.by_hand()
    late.protocol.subscribe(RUNS)
    for _ in range(10):
        bench.serve()
    assert not late.protocol.commands, "it waits"
    bench.publisher.acceptor.set_accepting(True)
    bench.interest_of(lambda interest: interest.has_runs)


# The address ---------------------------------------------------------------------------------------------------------


def test_the_socket_is_its_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0)
    path = tmp_path / "127.0.0.1_80_monitor"
    try:
        monkeypatch.setattr(os, "chmod", None)  # which would be too late
        publisher = StatusPublisher(f"ipc://{path}")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert os.umask(0) == 0, "other files are made as before"
        publisher.close()
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

    publisher = StatusPublisher(f"ipc://{tmp_path}/127.0.0.1_4_monitor")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "127.0.0.1_2_monitor",
        "127.0.0.1_3_monitor",
        "another-user's",
        "127.0.0.1_4_monitor",
        "127.0.0.1_5_monitor",
    }
    publisher.close()
    used.close()


def test_an_address_that_is_taken_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"cannot listen at ipc.*No such file.*choose another --monitor-address"):
        StatusPublisher(f"ipc://{tmp_path}/missing/monitor")
    first = StatusPublisher(f"ipc://{tmp_path}/monitor")
    with pytest.raises(OSError, match=r"cannot listen at ipc.*in use; choose another --monitor-address"):
        StatusPublisher(first.address)
    first.close()


def test_the_address_of_a_killed_scheduler_can_be_used_again(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(str(tmp_path / "monitor"))
    left.close()
    StatusPublisher(f"ipc://{tmp_path}/monitor").close()
    assert listening.ABANDONED_AFTER_SECONDS > 0 and not list(tmp_path.iterdir())
