"""Connections that a scheduler closes: those with an unfinished handshake, with a large message before the Welcome, and
with too much unread."""

from __future__ import annotations

import contextlib
import socket

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.codec.schema_codec import SCHEMA

HANDSHAKE_SECONDS = 30.0
UNREAD_BYTES, FEW_UNREAD_BYTES = 1 << 30, 16 << 20
LARGEST_BEFORE_WELCOME_BYTES = 64 << 10
MAXIMUM_ELEMENTS = 16_384
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)


@case(covers=["SCL-SEC-009"])
def unfinished_handshakes_are_closed(bench: RoleBench) -> None:
    """Connections that send nothing, half a greeting, or a greeting without READY are closed within 30 seconds.

    This is the only case that waits for a time that the specification sets, unless the scheduler has a variant for it.
    """
    is_short = bench.variant("short-handshake")
    connections = [bench.connection() for _ in range(3)]
    for connection, said in zip(connections, (b"", GREETING[:20], GREETING)):
        connection.write(said)
    seconds = bench.settings.deadline_seconds + (0 if is_short else HANDSHAKE_SECONDS)
    for connection in connections:
        connection.expect_closed("the connection with an unfinished handshake to be closed", seconds=seconds)
    bench.client().fence()


@case(covers=["SCL-SEC-012"])
def large_messages_before_the_welcome_close_the_connection(bench: RoleBench) -> None:
    """A connection without a session is closed when more than 64 KiB are announced, by a header or with its payload."""
    connection = bench.raw()
    connection.announce(LARGEST_BEFORE_WELCOME_BYTES + 1, more=False)
    connection.expect_closed("the connection that announces 64 KiB and a byte to be closed")
    connection = bench.raw()
    header = SCHEMA.encode("Heartbeat", {"sequence": 1})
    connection.announce(len(header), more=True)
    connection.write(header)
    connection.announce(LARGEST_BEFORE_WELCOME_BYTES - len(header) + 1, more=False)
    connection.expect_closed("the connection that announces a payload beyond 64 KiB to be closed")
    bench.client().fence()


@case(covers=["SCL-SEC-014"])
def messages_with_too_many_elements_are_malformed(bench: RoleBench) -> None:
    """A Heartbeat with 16 384 processors is answered; one processor more is malformed, and so are as many names."""
    worker = bench.worker()
    worker.send("Heartbeat", sequence=1, processors=[{"processId": 1}] * MAXIMUM_ELEMENTS)
    worker.expect_echo(1)
    worker.send("Heartbeat", sequence=2, processors=[{"processId": 1}] * (MAXIMUM_ELEMENTS + 1))
    worker.expect_refusal("malformed", "a processor too many", requirement="SCL-SEC-014")
    client = bench.client()
    client.send("ObjectInstruction", action="delete", names=["x"] * (MAXIMUM_ELEMENTS + 1))
    client.expect_refusal("malformed", "a name too many", requirement="SCL-SEC-014")
    bench.client().fence()


@case(covers=["SCL-SEC-011"])
def connections_with_too_much_unread_are_closed(bench: RoleBench) -> None:
    """The connection of a client that requests more than 1 GiB and reads none of it is closed, or not read."""
    most = FEW_UNREAD_BYTES if bench.variant("little-unread") else UNREAD_BYTES
    other, deaf = bench.client(), bench.raw_client()
    chunk = deaf.greet().limits.chunkBytes
    deaf.raw.is_reading = deaf.beats = False
    value = deaf.create(bytes(chunk))
    request = SCHEMA.encode("ObjectRequest", {"id": value, "offset": 0, "length": chunk})
    heartbeat = SCHEMA.encode("Heartbeat", {"sequence": 1, "processors": [{"processId": 1}] * 2048})
    # A scheduler may stop reading from this client, so that no more replies queue up.
    with contextlib.suppress(socket.timeout):
        for number in range(most // chunk * 5 // 4):
            if number % 100 == 0:
                other.fence()
            if not deaf.raw.is_closed:
                deaf.send_frames(request)
        deaf.raw.expect_cut(heartbeat, f"the connection of a client with {most} unread bytes to be closed")
    other.fence()
