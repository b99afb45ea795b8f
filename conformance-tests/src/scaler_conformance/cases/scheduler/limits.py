"""Connections that a scheduler need not keep: of who does not finish its handshake, and of who reads nothing."""

from __future__ import annotations

import contextlib
import socket

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.codec.schema_codec import SCHEMA

HANDSHAKE_SECONDS = 30.0
UNREAD_BYTES, FEW_UNREAD_BYTES = 1 << 30, 16 << 20
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)


@case(covers=["SCL-SEC-009"])
def unfinished_handshakes_are_cut(bench: RoleBench) -> None:
    """Connections are closed within 30 seconds that say nothing, half a greeting, or a greeting and no READY.

    This is the one case that waits for a time that the specification gives, if the scheduler has no variant for it.
    """
    is_short = bench.variant("short-handshake")
    connections = [bench.connection() for _ in range(3)]
    for connection, said in zip(connections, (b"", GREETING[:20], GREETING)):
        connection.write(said)
    seconds = bench.settings.deadline_seconds + (0 if is_short else HANDSHAKE_SECONDS)
    for connection in connections:
        connection.expect_closed("a connection that does not finish its handshake to be closed", seconds=seconds)
    bench.client().fence()


@case(covers=["SCL-SEC-011"])
def who_leaves_too_much_unread_is_cut(bench: RoleBench) -> None:
    """The connection of a client is closed that asks for 1 GiB and more, and reads nothing of it; others are served."""
    most = FEW_UNREAD_BYTES if bench.variant("little-unread") else UNREAD_BYTES
    other, deaf = bench.client(), bench.raw_client()
    chunk = deaf.greet().limits.chunkBytes
    deaf.raw.is_reading = deaf.beats = False
    value = deaf.create(bytes(chunk))
    request = SCHEMA.encode("ObjectRequest", {"id": value, "offset": 0, "length": chunk})
    heartbeat = SCHEMA.encode("Heartbeat", {"sequence": 1})
    with contextlib.suppress(socket.timeout):  # it reads no more of who reads nothing: so nothing more waits
        for number in range(most // chunk * 5 // 4):
            if number % 100 == 0:
                other.fence()
            if not deaf.raw.is_closed:
                deaf.send_frames(request)
        deaf.raw.expect_cut(heartbeat, f"a client that leaves {most} bytes unread to be cut")
    other.fence()
