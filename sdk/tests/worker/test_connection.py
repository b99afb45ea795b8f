"""The DEALER on an event loop, against a real ROUTER."""

from __future__ import annotations

import asyncio
from typing import Any, List, Tuple

import pytest
import zmq

from scaler.worker.connection import CONGESTED_MESSAGES, Connection
from scaler_protocol import decode, encode
from scaler_protocol import messages as m


class Bench:
    """A connection and the ROUTER at its other end."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.context = zmq.Context()
        self.router = self.context.socket(zmq.ROUTER)
        self.router.setsockopt(zmq.RCVHWM, 1)
        self.router.setsockopt(zmq.RCVBUF, 4096)
        self.router.setsockopt(zmq.LINGER, 0)
        address = f"tcp://127.0.0.1:{self.router.bind_to_random_port('tcp://127.0.0.1')}"
        self.received: List[Tuple[Any, bytes]] = []
        self.bursts: List[int] = []  # messages received until then
        self.congestion: List[bool] = []
        self.connection = Connection(self.loop, address, 1, self.on_message, self.on_burst, self.congestion.append)
        self.connection.open()

    def on_message(self, message: m.Message, payload: bytes) -> None:
        self.received.append((message, payload))

    def on_burst(self) -> None:
        self.bursts.append(len(self.received))

    def run_until(self, condition: Any) -> None:
        """Let the loop turn until the condition holds."""

        async def wait() -> None:
            while not condition():
                await asyncio.sleep(0.001)

        self.loop.run_until_complete(asyncio.wait_for(wait(), 20))

    def close(self) -> None:
        self.connection.close(0)
        self.router.close()
        self.context.term()
        self.loop.close()


@pytest.fixture
def bench():
    made = Bench()
    yield made
    made.close()


def read(bench: Bench) -> Tuple[bytes, Any, bytes]:
    assert bench.router.poll(20_000)
    peer, header, *payload = bench.router.recv_multipart()
    return peer, decode(header), payload[0] if payload else b""


def test_messages_go_both_ways(bench):
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
    assert bench.bursts[-1] == 3


def test_bytes_that_are_no_message_are_ignored(bench):
    bench.connection.send(m.Heartbeat())
    peer, _, _ = read(bench)
    bench.router.send_multipart([peer, b"garbage"])
    bench.router.send_multipart([peer, encode(m.HeartbeatEcho(sequence=9))])

    bench.run_until(lambda: bench.received)
    assert bench.received == [(m.HeartbeatEcho(sequence=9), b"")]


def test_a_peer_that_does_not_read_causes_congestion_and_no_loss(bench):
    payload = bytes(20_000)
    count = 0
    while not bench.congestion:
        bench.connection.send(m.Heartbeat(sequence=count), payload)
        count += 1
    assert bench.connection.congested
    assert count > CONGESTED_MESSAGES

    async def read_all() -> List[int]:
        sequences = []
        while len(sequences) < count:
            while bench.router.poll(0):
                sequences.append(read(bench)[1].sequence)
            await asyncio.sleep(0)
        return sequences

    sequences = bench.loop.run_until_complete(asyncio.wait_for(read_all(), 60))
    assert sequences == list(range(count))
    assert bench.congestion == [True, False]
    assert not bench.connection.congested


def test_a_new_connection_forgets_what_the_old_one_had_not_sent(bench):
    payload = bytes(20_000)
    sent = 0
    while not bench.congestion:
        bench.connection.send(m.Heartbeat(sequence=7), payload)
        sent += 1
    bench.connection.open()
    bench.connection.send(m.Heartbeat(sequence=8))

    assert bench.congestion == [True, False]
    arrived = []
    while 8 not in arrived or bench.router.poll(100):
        arrived.append(read(bench)[1].sequence)
    assert arrived.count(7) < sent - CONGESTED_MESSAGES
