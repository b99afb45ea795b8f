"""What callers cost that make faults: where they come from, and no one else; and how many lines of the log."""

from __future__ import annotations

import logging
import socket
import time
from typing import Iterator

import pytest
from connections_bench import Bench
from shell.test_fair_turns import Clock

from scaler_appliance.shell import caller_origins
from scaler_appliance.shell.connection_ends import (
    CALLER_TEXTS,
    EQUAL_LINES,
    FAULT_SECONDS,
    PERIOD_SECONDS,
    ConnectionEnds,
)
from scaler_protocol.host.addresses import parse_address, resolve
from scaler_protocol.host.connection import connect_to_local_socket
from scaler_protocol.session.ids import MAXIMUM_HELLO_BYTES
from scaler_protocol.wire.zmtp import ForeignPeerError, as_command, greeting


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench("tcp://127.0.0.1:0")
    yield made
    made.close()


def make_fault(bench: Bench) -> None:
    caller = bench.caller()
    caller.send_encoded(b"\2" + (MAXIMUM_HELLO_BYTES + 1).to_bytes(8, "big"))
    bench.wait_for_loss()


def test_a_connection_that_ends_by_its_peers_fault_costs_where_it_came_from_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(monkeypatch, 1e-6)
    bench.peers.newcomer_seconds = 0.0
    make_fault(bench)
    assert bench.peers.newcomer_seconds < FAULT_SECONDS, "callers from elsewhere do not pay for it"
    [(seconds, _)] = bench.peers._origins._used.values()
    assert seconds == FAULT_SECONDS
    caller = bench.caller()
    caller.close()
    bench.wait_for_loss()
    [(seconds, _)] = bench.peers._origins._used.values()
    assert seconds == FAULT_SECONDS


def test_faults_from_more_origins_than_are_remembered_cost_all_callers(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caller_origins, "MAXIMUM_ORIGINS", 0)
    bench.peers.newcomer_seconds = 0.0
    make_fault(bench)
    assert bench.peers.newcomer_seconds >= FAULT_SECONDS


def test_who_makes_many_faults_is_turned_away_and_others_are_accepted(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caller_origins, "ORIGIN_SHARE", 0.0)
    while not bench.peers._origins.is_blocked("127.0.0.1", 0.0):
        make_fault(bench)
    with bench.stream() as stream:
        stream.settimeout(30.0)
        while "callers from 127.0.0.1 have made too many faults" not in caplog.text:
            bench.receive(0.01)
        assert stream.recv(1) == b"", "it is closed before anything is said"
    with socket.socket() as other:
        other.bind(("127.0.0.2", 0))
        assert speaks(bench, other)
    local = connect_to_local_socket(parse_address(bench.peers.address))
    assert local is not None
    while not bench.peers.local_newcomer_seconds:
        bench.receive(0.01)
    assert local.recv(1) == b"\xff"
    local.close()


def speaks(bench: Bench, stream: socket.socket) -> bool:
    """Whether the scheduler greets a caller."""
    stream.connect(resolve(parse_address(bench.peers.address))[1])
    before = bench.peers._last_number
    while bench.peers._last_number == before:
        bench.receive(0.01)
    stream.settimeout(30.0)
    return stream.recv(1) == b"\xff"


def test_callers_at_the_local_socket_are_accepted_while_those_on_the_network_wait(bench: Bench) -> None:
    bench.peers.acceptor.set_accepting(False)
    with bench.stream():
        local = connect_to_local_socket(parse_address(bench.peers.address))
        assert local is not None
        while not bench.peers._peers:
            bench.receive(0.01)
        local.close()
        bench.wait_for_loss()
        assert bench.peers.newcomer_seconds == 0.0 < bench.peers.local_newcomer_seconds


def test_equal_lines_about_callers_leave_room_for_others(caplog: pytest.LogCaptureFixture) -> None:
    ends = ConnectionEnds(lambda: 100.0)
    with caplog.at_level(logging.INFO, "scaler"):
        for _ in range(10 * CALLER_TEXTS):
            ends.log("10.0.0.1:80", ForeignPeerError("the same"), True, is_registered=False)
        ends.log("10.0.0.1:80", ForeignPeerError("another"), True, is_registered=False)
    texts = [message.rpartition(": ")[2] for message in caplog.messages]
    assert texts == ["the same"] * EQUAL_LINES + ["another"]


def test_an_error_command_is_a_fault_and_the_log_has_few_lines_about_callers(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caller_origins, "ORIGIN_BURST_SECONDS", 1000.0)
    monkeypatch.setattr(caller_origins, "ORIGIN_SHARE", 0.0)
    clock = [100.0]
    bench.peers._ends = ConnectionEnds(lambda: clock[0])
    count = CALLER_TEXTS + 10
    with caplog.at_level(logging.INFO, "scaler"):
        for number in range(count):
            with bench.stream() as stream:
                text = b"unlike the others: " + bytes((65 + number,)) * 200
                stream.sendall(greeting(b"NULL") + as_command(b"\5ERROR" + bytes((len(text),)) + text))
                bench.wait_for_loss()
        assert len(caplog.records) == CALLER_TEXTS
        clock[0] += PERIOD_SECONDS
        bench.peers.sweep(time.monotonic())
    assert caplog.messages[CALLER_TEXTS:] == ["Scheduler: 10 more connections without a session were closed in 60 s"]
    [(seconds, _)] = bench.peers._origins._used.values()
    assert seconds == pytest.approx(FAULT_SECONDS * count)
