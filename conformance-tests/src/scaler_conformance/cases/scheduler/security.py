"""Peers that are malicious, faulty or slow must not harm the scheduler or other peers."""

from __future__ import annotations

import json
import struct
import threading
from typing import Callable

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.codec.mutated_messages import mutated, samples
from scaler_conformance.codec.schema_codec import SCHEMA
from scaler_conformance.judging.register import SPECIFICATION
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.scheduler_peers import ECHO

READ_BY_SOME = {"column-of-structs"}
"""Cap'n Proto allows a reader to treat a list of structs as a list of their first fields."""
HEADER_LIMIT = 64 << 20


def refuse_vectors(bench: RoleBench, requirement: str) -> None:
    """Send each invalid header of a requirement in a session: each must be refused as malformed."""
    worker = bench.worker()
    for path in sorted((SPECIFICATION / "invalid").glob("*.json")):
        vector = json.loads(path.read_text(encoding="utf-8"))
        if vector["level"] == "header" and vector["requirement"] == requirement and path.stem not in READ_BY_SOME:
            client = bench.client()
            client.send_frames(path.with_suffix(".bin").read_bytes())
            client.expect_refusal("malformed", f"{path.stem}: {vector['fault']}")
            client.expect_no_session()
            client.cut()
    worker.fence("SCL-SEC-001")


@case(covers=["SCL-SEC-002"])
def invalid_messages_are_malformed(bench: RoleBench) -> None:
    """An empty header, noise, text, and a message of more than two frames are malformed and end the session."""
    worker = bench.worker()
    heartbeat = SCHEMA.encode("Heartbeat", {"sequence": 1})
    noise = bench.random.getrandbits(8 * 999).to_bytes(999, "little")
    for frames in ([b""], [b"", heartbeat], [noise], [b"GET / HTTP/1.1\r\n\r\n"], [heartbeat, b"", b""], [b"\0"] * 40):
        for peer in (bench.client(), bench.worker()):
            peer.send_frames(*frames)
            peer.expect_refusal("malformed", f"{len(frames)} frames that begin with {frames[0][:16]!r}")
            peer.expect_no_session()
            peer.cut()
    worker.fence("SCL-SEC-001")


@case(covers=["SCL-SEC-003"])
def invalid_pointers_are_malformed(bench: RoleBench) -> None:
    """Pointers out of their segment, of the wrong kind or size, or to invalid texts make a header malformed."""
    refuse_vectors(bench, "SCL-SEC-003")


@case(covers=["SCL-SEC-004"])
def invalid_segment_tables_are_malformed(bench: RoleBench) -> None:
    """A segment table that does not match the frame's size, or has more than 512 segments, makes a header malformed."""
    refuse_vectors(bench, "SCL-SEC-004")


@case(covers=["SCL-SEC-005"])
def amplified_and_deep_headers_are_malformed(bench: RoleBench) -> None:
    """A small header whose pointers lead to large amounts of data, or nest very deeply, is malformed."""
    refuse_vectors(bench, "SCL-SEC-005")


@case(covers=["SCL-SEC-001"])
def mutated_frames_do_no_harm(bench: RoleBench) -> None:
    """Other peers are served while the scheduler gets 10 000 mutated and truncated messages."""
    client, worker = bench.client(), bench.worker()
    messages = samples()
    count = bench.times(10_000)
    for number in range(count):
        if number % 50 == 0:
            attackers = [bench.unregistered(), bench.unregistered()]
            for index, each in enumerate(attackers):
                each.hello(role=("client", "worker")[index], slots=1, capabilities=[{"name": "none", "amount": 0.0}])
                each.expect("Welcome", "Refusal", requirement="SCL-SES-002")
        attacker = attackers[number % 2]
        attacker.send_frames(*mutated(bench.random, bench.random.choice(messages)))
        if number % 50 == 49 or number == count - 1:
            client.submit(payload=b"honest %d" % number)
            task = worker.expect_task(b"honest %d" % number)
            worker.succeed(task, payload=b"%d" % number)
            outcome = client.expect_any_outcome("the honest task's outcome")
            check(outcome.payload == b"%d" % number, "the honest task's result", outcome)
            for each in attackers:
                each.cut()


@case(covers=["SCL-SEC-006"])
def oversized_headers_close_the_connection(bench: RoleBench) -> None:
    """A connection that announces a header of more than 64 MiB is closed before the header's bytes arrive."""
    for size in (HEADER_LIMIT + 1, (1 << 63) - 1, (1 << 64) - 1):
        client = bench.raw_client()
        client.greet()
        connection = client.raw
        connection.announce(size, more=False)
        connection.expect_closed(f"the connection that announces a header of {size} bytes to be closed")


@case(covers=["SCL-SEC-006"])
def oversized_messages_close_the_connection(bench: RoleBench) -> None:
    """A connection is closed when header and announced payload together exceed Limits.maximumMessageBytes."""
    client = bench.raw_client()
    limit = client.greet().limits.maximumMessageBytes
    fields = {"ids": [1], "payloadSizes": [0], "functionName": ECHO}
    header = SCHEMA.encode("Task", fields)
    raw = client.raw
    raw.announce(len(header), more=True)
    raw.write(header)
    raw.announce(limit - len(header) + 1, more=False)
    raw.expect_closed(f"the connection that announces a message of {limit + 1} bytes to be closed")


def flood(bench: RoleBench, write: Callable[[bytes], None], frame: bytes, while_: Callable[[], None]) -> None:
    """Send a frame over and over on a thread while something else is done."""
    is_over = threading.Event()
    framed = b"\x02" + struct.pack(">Q", len(frame)) + frame

    def send() -> None:
        try:
            while not is_over.is_set():
                write(framed * 200)
        except OSError:
            pass  # the connection was closed, or accepts no more

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        while_()
    finally:
        is_over.set()
        for each in bench.raw_connections:
            each.shut()
        thread.join()


@case(covers=["SCL-SEC-008"])
def flooding_peer_does_not_block_others(bench: RoleBench) -> None:
    """While one peer floods the scheduler with Heartbeats and reads none of the echoes, other peers are served."""
    client, worker = bench.client(), bench.worker()
    attacker = bench.raw_client()
    attacker.greet()
    attacker.beats = False
    attacker.raw.is_reading = False

    def work() -> None:
        for number in range(5):
            client.submit(payload=b"%d" % number)
            worker.succeed(worker.expect_task(b"%d" % number))
            client.expect_any_outcome("an outcome while another peer floods the scheduler")

    flood(bench, attacker.raw.write, SCHEMA.encode("Heartbeat", {"sequence": 9}), work)


@case(covers=["SCL-SEC-008"])
def peer_that_does_not_read_does_not_block_others(bench: RoleBench) -> None:
    """While a client reads none of the bytes that it requests, other peers are served."""
    client, worker = bench.client(), bench.worker()
    deaf = bench.raw_client()
    chunk = deaf.greet().limits.chunkBytes
    deaf.raw.is_reading = False
    deaf.beats = False
    value = deaf.create(bytes(chunk))
    for _ in range(max(4, (32 << 20) // chunk)):
        deaf.send("ObjectRequest", id=value, offset=0, length=chunk)
    for number in range(5):
        client.submit(payload=b"%d" % number)
        worker.succeed(worker.expect_task(b"%d" % number))
        client.expect_any_outcome("an outcome while another peer does not read")
