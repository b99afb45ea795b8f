"""The agent's connection on an event loop, against libzmq's ROUTER."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import ExitStack
from typing import Any, Iterator, List, Tuple

import pytest
import zmq
from played_names import play_names, silent_name_server

from scaler.data_serving.rounds import Rounds
from scaler.worker.agent.shell.scheduler_connection import CONGESTED_BYTES, SchedulerConnection
from scaler_protocol import decode, encode
from scaler_protocol import messages as m
from scaler_protocol.keys.credentials import Credentials


class Bench:
    """A connection and the ROUTER at its other end."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.context = zmq.Context()
        self.router = self.context.socket(zmq.ROUTER)
        self.router.setsockopt(zmq.RCVHWM, 1)
        self.router.setsockopt(zmq.RCVBUF, 4096)
        self.router.setsockopt(zmq.LINGER, 0)
        self.address = f"tcp://127.0.0.1:{self.router.bind_to_random_port('tcp://127.0.0.1')}"
        self.received: List[Tuple[Any, bytes]] = []
        self.ends: List[int] = []  # of rounds: messages received until then
        self.congestion: List[bool] = []
        self.losses: List[str] = []
        self.failures: List[str] = []
        self.connected = self.ups = self.heard = 0
        self.rounds = Rounds(self.loop, self.on_end_of_round)
        self.connection = SchedulerConnection(self.rounds, Credentials(self.address), self)
        self.open()

    def open(self) -> None:
        """Connect, and wait until that is done."""
        before = self.connected
        self.connection.open()
        self.run_until(lambda: self.connected > before)

    def on_connected(self) -> None:
        self.connected += 1

    def on_up(self) -> None:
        self.ups += 1

    def on_heard(self) -> None:
        self.heard += 1

    def on_connect_failed(self, reason: str) -> None:
        self.failures.append(reason)

    def on_disconnected(self, reason: str) -> None:
        self.losses.append(reason)

    def on_congestion(self, is_congested: bool) -> None:
        self.congestion.append(is_congested)

    def on_message(self, message: m.Message, payload: bytes) -> None:
        self.received.append((message, payload))

    def on_end_of_round(self) -> None:
        self.ends.append(len(self.received))

    def run_until(self, condition: Any) -> None:
        """Let the loop turn until the condition holds."""

        async def wait() -> None:
            while not condition():
                await asyncio.sleep(0.001)

        self.loop.run_until_complete(asyncio.wait_for(wait(), 20))

    def close(self) -> None:
        self.connection.close(0)
        self.rounds.close()
        self.router.close()
        self.context.term()
        self.loop.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def read(bench: Bench) -> Tuple[bytes, Any, bytes]:
    bench.run_until(lambda: bench.router.poll(0))
    peer, header, *payload = bench.router.recv_multipart()
    return peer, decode(header), payload[0] if payload else b""


def test_messages_go_both_ways(bench: Bench) -> None:
    bench.connection.send(m.Heartbeat(sequence=1))
    bench.connection.send(m.ObjectResponse(id=2), b"payload")

    peer, first, nothing = read(bench)
    _, second, payload = read(bench)
    assert (first, nothing) == (m.Heartbeat(sequence=1), b"")
    assert (second, payload) == (m.ObjectResponse(id=2), b"payload")
    for sequence in range(3):
        bench.router.send_multipart([peer, encode(m.HeartbeatEcho(sequence=sequence)), b"x" * sequence])
    bench.run_until(lambda: len(bench.received) == 3)
    assert bench.received == [(m.HeartbeatEcho(sequence=i), b"x" * i) for i in range(3)]
    assert bench.ends[-1] == 3


def test_bytes_that_are_no_message_are_ignored(bench: Bench) -> None:
    bench.connection.send(m.Heartbeat())
    peer, _, _ = read(bench)
    bench.router.send_multipart([peer, b"garbage"])
    bench.router.send_multipart([peer, encode(m.HeartbeatEcho(sequence=9))])

    bench.run_until(lambda: bench.received)
    assert bench.received == [(m.HeartbeatEcho(sequence=9), b"")]


def test_a_peer_that_does_not_read_causes_congestion_and_no_loss(bench: Bench) -> None:
    bench.connection.send(m.Heartbeat(sequence=0))
    read(bench)
    payload = bytes(20_000)
    count = 1
    while not bench.congestion:
        bench.connection.send(m.Heartbeat(sequence=count), payload)
        count += 1
    assert bench.connection.congested
    assert count > CONGESTED_BYTES // len(payload)

    async def read_all() -> List[int]:
        sequences: List[int] = []
        while len(sequences) < count - 1:
            while bench.router.poll(0):
                message = decode(bench.router.recv_multipart()[1])
                assert isinstance(message, m.Heartbeat)
                sequences.append(message.sequence)
            await asyncio.sleep(0)
        return sequences

    sequences = bench.loop.run_until_complete(asyncio.wait_for(read_all(), 60))
    assert sequences == list(range(1, count))
    assert bench.congestion == [True, False]
    assert not bench.connection.congested


def test_a_new_connection_forgets_what_the_old_one_had_not_sent(bench: Bench) -> None:
    bench.connection.send(m.Heartbeat(sequence=0))
    first_peer = read(bench)[0]
    payload = bytes(20_000)
    sent = 0
    while not bench.congestion:
        bench.connection.send(m.Heartbeat(sequence=7), payload)
        sent += 1
    bench.open()
    bench.connection.send(m.Heartbeat(sequence=8))

    assert bench.congestion == [True, False]
    arrived = []
    while (8 not in arrived) or bench.router.poll(100):
        peer, message, _ = read(bench)
        assert (peer == first_peer) == (message.sequence == 7)
        arrived.append(message.sequence)
    assert arrived.count(7) < sent / 2


def test_the_end_of_the_connection_is_told_at_once(bench: Bench) -> None:
    bench.connection.send(m.Heartbeat(sequence=1))
    read(bench)
    bench.router.close()

    bench.run_until(lambda: bench.losses)
    assert bench.losses == ["the peer closed the connection"]


def test_a_connection_that_is_dropped_is_not_missed(bench: Bench) -> None:
    bench.connection.send(m.Heartbeat(sequence=1))
    peer, _, _ = read(bench)
    bench.connection.drop()
    bench.connection.send(m.Heartbeat(sequence=2))
    bench.open()
    bench.connection.send(m.Heartbeat(sequence=3))

    other, message, _ = read(bench)
    assert (other != peer, message.sequence) == (True, 3)
    assert bench.losses == bench.failures == []


def test_an_address_where_nothing_listens_is_told_with_the_reason() -> None:
    bench = Bench()
    try:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))  # and does not listen
            address = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
            connection = SchedulerConnection(bench.rounds, Credentials(address), bench)
            for count in (1, 2):
                connection.open()
                bench.run_until(lambda count=count: len(bench.failures) == count)
            connection.close(0)
        assert bench.failures == [f"nothing listens at {address} (Connection refused)"] * 2
    finally:
        bench.close()


def test_the_loop_goes_on_while_a_name_is_resolved(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    names, is_known = play_names(monkeypatch), threading.Event()
    port = bench.address.rpartition(":")[2]

    def slow_name_server() -> List[str]:
        is_known.wait()
        return ["127.0.0.1"]

    names["scheduler.example"] = slow_name_server
    connection = SchedulerConnection(bench.rounds, Credentials(f"tcp://scheduler.example:{port}"), bench)
    connection.open()
    bench.connection.send(m.Heartbeat(sequence=1))  # of the other connection
    peer, _, _ = read(bench)
    bench.router.send_multipart([peer, encode(m.HeartbeatEcho(sequence=1))])
    bench.run_until(lambda: bench.received)
    assert bench.connected == 1
    is_known.set()
    bench.run_until(lambda: bench.connected == 2)
    connection.send(m.Heartbeat(sequence=2))
    assert read(bench)[1] == m.Heartbeat(sequence=2)
    connection.close(0)


def test_an_attempt_that_takes_too_long_says_what_was_silent(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    names = play_names(monkeypatch)
    with ExitStack() as stack:
        names["lost.example"] = silent_name_server(stack)
        connection = SchedulerConnection(bench.rounds, Credentials("tcp://lost.example:1"), bench)
        connection.open()
        connection.stop_connecting()
        connection.close(0)
    (said,) = bench.failures
    assert said.startswith("the host name in tcp://lost.example:1 cannot be resolved for now")


def test_after_a_connection_was_of_no_use_the_next_address_is_preferred(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # it accepts, and never answers
        first = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        connection = SchedulerConnection(bench.rounds, Credentials(f"{first},{bench.address}"), bench)
        connection.open()
        bench.run_until(lambda: bench.connected == 2)
        listener.accept()[0].close()
        bench.run_until(lambda: bench.losses)
        connection.open()
        bench.run_until(lambda: bench.connected == 3)
        connection.send(m.Heartbeat(sequence=3))
        assert read(bench)[1] == m.Heartbeat(sequence=3)
        connection.close(0)
