"""The scheduler's connections, with real sockets at their other ends."""

from __future__ import annotations

import logging
import os
import resource
import socket
import time
from pathlib import Path
from typing import List, Tuple

import pytest
from connections_bench import MAXIMUM_MESSAGE_BYTES, Bench

from scaler_appliance.shell.connections import (
    CONGESTED_BYTES,
    HELLO_TIMEOUT_SECONDS,
    STOP_READING_BYTES,
    Connections,
)
from scaler_protocol import MAXIMUM_HEADER_BYTES
from scaler_protocol.host.addresses import parse_address
from scaler_protocol.host.connection import Connection, connect_to_local_socket
from scaler_protocol.session.ids import MAXIMUM_HELLO_BYTES
from scaler_protocol.wire.zmtp import Zmtp


def read(caller: Connection, bench: Bench) -> List[bytes]:
    messages: List[List[bytes]] = []
    while not messages:
        bench.receive(0.001)
        messages = caller.receive()
    assert len(messages) == 1
    return messages[0]


def test_each_connection_has_a_name_of_its_own(bench: Bench) -> None:
    first, second = bench.caller(), bench.caller()
    first.send([b"1"])
    [(first_name, frames)] = bench.wait_for(1)
    assert frames == [b"1"]
    second.send([b"2", b"payload"])
    [(second_name, frames)] = bench.wait_for(1)
    assert frames == [b"2", b"payload"]
    assert first_name != second_name

    bench.peers.send(second_name, [b"for the second"])
    bench.peers.send(first_name, [b"for the first"])
    assert read(first, bench) == [b"for the first"]
    assert read(second, bench) == [b"for the second"]


def test_a_connections_end_is_seen_at_once_after_its_last_words(bench: Bench) -> None:
    caller = bench.caller()
    caller.send([b"last words"])
    caller.finish()
    [(name, frames)] = bench.wait_for(1)
    assert frames == [b"last words"]
    assert bench.wait_for_loss() == name
    bench.peers.send(name, [b"too late"])
    assert bench.gone == [name]


@pytest.mark.parametrize("is_local", [False, True])
@pytest.mark.parametrize("waits", [False, True])
def test_last_words_count_also_if_the_end_is_noticed_in_sending(bench: Bench, is_local: bool, waits: bool) -> None:
    """As those of a worker that leaves while it is still told something."""
    local = connect_to_local_socket(parse_address(bench.peers.address)) if is_local else None
    caller = bench.caller(local)
    caller.send([b"hello"])
    [(name, _)] = bench.wait_for(1)
    bench.peers.greet(name)
    while waits and not bench.peers._peers[name].connection.unsent_bytes:
        bench.peers.send(name, [bytes(1 << 20)])  # which it does not read
    result = b"it is done" * (10_000 if is_local else 1)  # more than is read at once
    for words in (result, b"I leave"):
        caller.send([words])
    caller.close()
    for _ in range(3):
        bench.peers.send(name, [b"are you there?"])
    assert bench.gone == []
    arrived: List[Tuple[bytes, List[bytes]]] = []
    while not bench.gone:
        arrived += bench.receive(0.01)
    assert bench.gone == [name]
    assert arrived == [(name, [result]), (name, [b"I leave"])]


def test_a_peer_that_does_not_read_does_not_delay_others(bench: Bench) -> None:
    slow, quick = bench.caller(), bench.caller()
    slow.send([b"slow"])
    [(slow_name, _)] = bench.wait_for(1)
    quick.send([b"quick"])
    [(quick_name, _)] = bench.wait_for(1)
    large = os.urandom(1 << 20)
    for number in range(20):
        bench.peers.send(slow_name, [b"%d" % number, large])
    bench.peers.send(quick_name, [b"here you are"])

    assert read(quick, bench) == [b"here you are"]
    received: List[List[bytes]] = []
    while len(received) < 20:
        bench.receive(0)
        received += slow.receive()
    assert received == [[b"%d" % number, large] for number in range(20)]


def test_what_waits_for_a_peer_can_be_forgotten(bench: Bench) -> None:
    caller = bench.caller()
    caller.send([b"hello"])
    [(name, _)] = bench.wait_for(1)
    large = os.urandom(1 << 20)
    for number in range(20):
        bench.peers.send(name, [b"%d" % number, large])
    bench.peers.forget(name, time.monotonic())
    bench.peers.send(name, [b"goodbye"])

    received: List[List[bytes]] = []
    while not received or received[-1] != [b"goodbye"]:
        bench.receive(0)
        received += caller.receive()
    assert len(received) < 20


@pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100])
def test_a_peer_with_another_protocol_is_disconnected_and_logged(
    bench: Bench, junk: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    others = bench.caller()
    with bench.stream() as stream, caplog.at_level(logging.INFO, "scaler"):
        stream.sendall(junk)
        bench.wait_for_loss()
        assert f"the connection from 127.0.0.1:{stream.getsockname()[1]} is closed" in caplog.text
    others.send([b"still here"])
    assert [frames for _, frames in bench.wait_for(1)] == [[b"still here"]]


def test_who_only_asks_whether_it_is_there_leaves_no_line_in_the_log(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "scaler"):
        bench.stream().close()
        bench.wait_for_loss()
        assert caplog.text == ""
        with bench.stream() as stream:
            stream.sendall(b"\xff")
        bench.wait_for_loss()
        assert "the peer closed the connection in the handshake" in caplog.text


def test_an_unregistered_peer_sends_small_messages_only(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    greeted, unregistered = bench.caller(), bench.caller()
    greeted.send([b"hello"])
    [(name, _)] = bench.wait_for(1)
    bench.peers.greet(name)
    large = bytes(MAXIMUM_HELLO_BYTES)
    greeted.send([b"more", large])
    assert bench.wait_for(1) == [(name, [b"more", large])]

    with caplog.at_level(logging.INFO, "scaler"):
        unregistered.send([b"more", large])
        unregistered.flush()
        bench.wait_for_loss()
        assert f"a message of more than {MAXIMUM_HELLO_BYTES} bytes" in caplog.text
    greeted.send([b"I am still served"])
    assert bench.wait_for(1) == [(name, [b"I am still served"])]


def test_so_does_a_peer_that_has_lost_its_session(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caller = bench.caller()
    caller.send([b"hello"])
    [(name, _)] = bench.wait_for(1)
    bench.peers.greet(name)
    bench.peers.forget(name, time.monotonic())
    small = bytes(MAXIMUM_HELLO_BYTES - 1)
    caller.send([b"h", small])
    assert bench.wait_for(1) == [(name, [b"h", small])]
    with caplog.at_level(logging.INFO, "scaler"):
        caller.send([b"more", bytes(MAXIMUM_HELLO_BYTES)])
        caller.flush()
        assert bench.wait_for_loss() == name
    assert f"a message of more than {MAXIMUM_HELLO_BYTES} bytes" in caplog.text


@pytest.mark.parametrize("arrived_bytes", [1000, 2 * MAXIMUM_HELLO_BYTES])
def test_a_large_message_that_arrives_when_its_peer_loses_its_session_is_not_read_to_its_end(
    bench: Bench, arrived_bytes: int
) -> None:
    """And what has arrived of it is not kept."""
    caller = bench.caller()
    caller.send([b"hello"])
    [(name, _)] = bench.wait_for(1)
    bench.peers.greet(name)
    peer = bench.peers._peers[name]
    caller.send_encoded(b"\2" + (1 << 20).to_bytes(8, "big") + bytes(arrived_bytes))
    while peer.connection.protocol.held_bytes < arrived_bytes:
        caller.flush()
        assert bench.receive(0.01) == []
    bench.peers.forget(name, time.monotonic())
    assert bench.gone == ([name] if arrived_bytes > MAXIMUM_HELLO_BYTES else [])
    if not bench.gone:
        caller.send_encoded(b"more")
        assert bench.wait_for_loss() == name
    assert not bench.peers._waiting_bytes and not bench.peers._unregistered


def test_callers_are_not_accepted_after_the_end() -> None:
    bench = Bench("tcp://127.0.0.1:0")
    bench.peers.acceptor.set_accepting(False)
    bench.close()
    bench.peers.acceptor.set_accepting(True)  # the event loop may still call it


def test_callers_wait_while_none_is_accepted(bench: Bench) -> None:
    bench.peers.acceptor.set_accepting(False)
    with bench.stream() as stream:
        assert bench.receive(0.05) == [] and not bench.peers._peers
        bench.peers.sweep(0.0)
        assert bench.receive(0.05) == [] and not bench.peers._peers
        bench.peers.acceptor.set_accepting(True)
        while not bench.peers._peers:
            bench.receive(0.01)
        stream.settimeout(30.0)
        assert stream.recv(1) == b"\xff"


def test_a_header_beyond_the_limit_ends_the_connection(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caller = bench.caller()
    caller.send([b"hello"])
    [(name, _)] = bench.wait_for(1)
    bench.peers.greet(name)
    caller.send([b"h" * (MAXIMUM_HEADER_BYTES + 1), b""])
    caller.flush()
    bench.wait_for_loss()
    assert f"a first frame of more than {MAXIMUM_HEADER_BYTES} bytes" in caplog.text


def test_who_does_not_say_hello_is_disconnected(bench: Bench) -> None:
    with bench.stream() as silent:
        now = 100.0
        assert bench.peers.receive(now, 30.0)
        bench.peers.sweep(now + HELLO_TIMEOUT_SECONDS - 1)
        assert bench.gone == []
        bench.peers.sweep(now + HELLO_TIMEOUT_SECONDS + 1)
        assert len(bench.gone) == 1
        while silent.recv(1000):
            pass


def test_without_free_descriptors_callers_are_turned_away(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    stream = bench.stream()
    others = bench.caller()
    caller = bench.stream()
    try:
        used = max(int(name) for name in os.listdir("/proc/self/fd"))
        fillers = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, hard))
        try:
            while True:
                fillers.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        assert bench.receive(1.0) == []
        assert "a connection was rejected" in caplog.text
        assert caller.recv(100) == b""
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for filler in fillers:
            os.close(filler)
        caller.close()
        stream.close()
    others.send([b"still here"])
    assert [frames for _, frames in bench.wait_for(1)] == [[b"still here"]]


def test_a_caller_that_has_gone_already_is_no_news(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(self: Connection) -> None:
        raise BrokenPipeError("Broken pipe")

    stream = bench.stream()
    with monkeypatch.context() as patch:
        patch.setattr(Connection, "start", start)
        assert bench.receive(1.0) == []
    assert stream.recv(100) == b"" and not caplog.records
    stream.close()
    other = bench.caller()
    other.send([b"hello"])
    assert [frames for _, frames in bench.wait_for(1)] == [[b"hello"]]


def test_callers_on_this_host_may_use_the_local_socket(bench: Bench) -> None:
    stream = connect_to_local_socket(parse_address(bench.peers.address))
    if stream is None:
        pytest.skip("this system has no abstract namespace")
    caller = Connection(stream, Zmtp("DEALER", MAXIMUM_MESSAGE_BYTES))
    caller.start()
    caller.send([b"short"])
    arrived: List[Tuple[bytes, List[bytes]]] = []
    while not arrived:
        arrived += bench.receive(0.01)
        caller.receive()
    assert [frames for _, frames in arrived] == [[b"short"]]
    caller.close()


@pytest.mark.parametrize("wildcard", ["*", "[::]"])
def test_a_wildcard_listens_for_both_families(wildcard: str) -> None:
    bench = Bench(f"tcp://{wildcard}:0")
    try:
        port = parse_address(bench.peers.address).port
        for host in ("127.0.0.1", "::1") if has_ipv6() else ("127.0.0.1",):
            with socket.create_connection((host, port)):
                while not bench.peers._peers:
                    bench.receive(1.0)
                (peer,) = bench.peers._peers.values()
                assert peer.label.rpartition(":")[0] == ("[::1]" if ":" in host else host), "as people write it"
            while bench.peers._peers:
                bench.receive(1.0)
        with pytest.raises(OSError, match="Address already in use"):
            Bench(f"tcp://0.0.0.0:{port}")
    finally:
        bench.peers.close()


def test_the_wildcard_of_one_family_listens_for_that_one() -> None:
    bench = Bench("tcp://0.0.0.0:0")
    try:
        with pytest.raises(OSError):
            socket.create_connection(("::1", parse_address(bench.peers.address).port))
    finally:
        bench.peers.close()


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_a_socket_file_that_a_killed_scheduler_left_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "scheduler"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as killed:
        killed.bind(str(path))
    assert path.exists()
    made = Bench(f"ipc://{path}")
    made.caller()
    with pytest.raises(OSError, match="cannot listen at ipc://"):
        Connections(f"ipc://{path}", MAXIMUM_MESSAGE_BYTES, lambda name: None)
    made.close()
    assert not path.exists()


def test_last_words_arrive_although_the_scheduler_ends(bench: Bench) -> None:
    caller = bench.caller()
    caller.send([b"hello"])
    [(name, _)] = bench.wait_for(1)
    caller.send([b"something that is no longer read"])
    bench.peers.send(name, [b"last words"])
    bench.peers.close()
    assert caller.receive() == [[b"last words"]]
    bench.peers = Connections("tcp://127.0.0.1:0", MAXIMUM_MESSAGE_BYTES, bench.gone.append)


def test_a_peer_that_leaves_much_unread_is_reported_until_it_has_read_most_of_it(bench: Bench) -> None:
    caller = bench.caller()
    caller.send([b"hello"])
    [(name, _)] = bench.wait_for(1)
    large = os.urandom(1 << 20)
    sent = 0
    while not bench.congestion:
        bench.peers.send(name, [b"", large])
        sent += 1
    assert bench.congestion == [(name, True)]
    assert sent >= CONGESTED_BYTES >> 20
    while len(bench.congestion) == 1:
        caller.receive()
        bench.receive(0)
    assert bench.congestion == [(name, True), (name, False)]
    assert not bench.gone


def test_a_little_unread_is_much_when_much_of_others_waits(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.peers, "_maximum_waiting_bytes", CONGESTED_BYTES)
    callers = bench.caller(), bench.caller()
    for caller in callers:
        caller.send([b"hello"])
    (first, _), (second, _) = bench.wait_for(2)
    content = os.urandom(1 << 20)
    while not bench.congestion:
        bench.peers.send(first, [b"", content])
    assert bench.congestion == [(first, True)]
    while len(bench.congestion) == 1:
        bench.peers.send(second, [b"", content])
    assert bench.congestion == [(first, True), (second, True)] and not bench.gone
    while any(dict(bench.congestion).values()):  # the last that was said of each
        for caller in callers:
            caller.receive()
        bench.receive(0.0)


def test_a_peer_that_reads_again_is_read_again(bench: Bench) -> None:
    caller = bench.caller()
    caller.send([b"hello"])
    [(name, _)] = bench.wait_for(1)
    large = os.urandom(1 << 20)
    for _ in range((STOP_READING_BYTES >> 20) + 10):
        bench.peers.send(name, [b"", large])
    caller.send([b"one more question"])
    caller.flush()
    assert bench.peers.reads_too_little(name) and bench.receive(0.01) == []
    arrived: List[Tuple[bytes, List[bytes]]] = []
    while not arrived:
        caller.receive()
        arrived = bench.receive(0.0)
    assert arrived == [(name, [b"one more question"])] and not bench.peers.reads_too_little(name)


def test_a_peer_that_leaves_too_much_unread_is_lost(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.peers, "_maximum_waiting_bytes", 32 << 20)
    caller, other = bench.caller(), bench.caller()
    caller.send([b"hello"])
    [(name, _)] = bench.wait_for(1)
    large = os.urandom(1 << 20)
    while not bench.gone:
        bench.peers.send(name, [b"", large])
    assert bench.gone == [name]
    other.send([b"I am still served"])
    assert bench.wait_for(1)[0][1] == [b"I am still served"]
