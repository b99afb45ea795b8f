"""A peer of the scheduler without an SDK, for measuring the scheduler alone: handshake, heartbeats, leaving.

Peers speak the real protocol through real sockets and do as little as it allows; no user function is ever run.
What clients and workers do is in zero_worker_client.py and zero_worker_workers.py, each a process of its own that
takes its orders from a pipe:

    orders ──pipe──▶ client process ──DEALER──▶ scheduler ◀──DEALER × N── worker process ◀──pipe── orders
"""

from __future__ import annotations

import time
from typing import Any

import zmq

from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX, PROTOCOL_MINOR_MIN, encode
from scaler_protocol import messages as m

CODEC = "cloudpickle"
POLL_MILLISECONDS = 500
_WORKER_QUEUE_SIZE = 1000


class PeerRefusedError(Exception):
    """The scheduler refused a peer of the benchmark."""


def hello(role: m.Role, name: str) -> m.Hello:
    """What a peer of the benchmark says first; a worker has one slot."""
    is_worker = role == m.Role.WORKER
    return m.Hello(
        major=PROTOCOL_MAJOR,
        minor_min=PROTOCOL_MINOR_MIN,
        minor_max=PROTOCOL_MINOR_MAX,
        role=role,
        implementation=m.Implementation(name="scaler benchmark", version="0", language="Python"),
        codecs=[CODEC],
        host="benchmark",
        process_id=1,
        name=name,
        slots=1 if is_worker else 0,
        queue_size=_WORKER_QUEUE_SIZE if is_worker else 0,
    )


class Peer:
    """One connection to the scheduler: handshake, heartbeats, leaving."""

    def __init__(self, context: zmq.Context[Any], address: str, role: m.Role, name: str) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.connect(address)
        self.session = 0
        self.heartbeat_seconds = 2.0
        self.next_heartbeat = 0.0
        self.sequence = 0
        self.tasks_in_flight_limit = 0
        self.left = False
        self.socket.send(encode(hello(role, name)))

    def handle(self, message: Any) -> bool:
        """Take what belongs to any session; False for everything else."""
        if isinstance(message, m.Welcome):
            self.session = message.session
            self.heartbeat_seconds = (message.heartbeat_interval_milliseconds or 2000) / 1000
            self.tasks_in_flight_limit = message.limits.tasks_in_flight
            self.next_heartbeat = time.monotonic() + self.heartbeat_seconds
        elif isinstance(message, m.Refusal):
            raise PeerRefusedError(f"{message.reason}: {message.message}")
        elif isinstance(message, m.Heartbeat):
            self.socket.send(encode(m.HeartbeatEcho(sequence=message.sequence)))
        elif isinstance(message, m.DisconnectResponse):
            self.left = True
        else:
            return isinstance(message, m.HeartbeatEcho)
        return True

    def beat(self, now: float) -> None:
        """Send a heartbeat if one is due."""
        if self.session and now >= self.next_heartbeat:
            self.sequence += 1
            self.socket.send(encode(m.Heartbeat(sequence=self.sequence)))
            self.next_heartbeat = now + self.heartbeat_seconds

    def leave(self) -> None:
        """Say good-bye; `left` turns true with the answer."""
        self.session = 0  # no more heartbeats
        self.socket.send(encode(m.DisconnectRequest(reason=m.DisconnectReason.LEAVING)))
