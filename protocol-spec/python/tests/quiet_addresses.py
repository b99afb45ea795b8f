"""Addresses for schedulers that tests start, or restart, at an address known before.

Rule: the port is none of those that the system gives to outgoing connections. One of those may be taken before the
scheduler listens, or while it is restarted: by any program on this machine, even by the connection that tries to reach
the scheduler, which then is connected to itself.

A scheduler takes a while until it listens, and other tests choose addresses meanwhile. So a port is reserved by a UDP
socket with the same number, which no other program needs.
"""

from __future__ import annotations

import secrets
import socket
from typing import List

_reserved: List[socket.socket] = []


def quiet_address() -> str:
    """An unused TCP address of this host."""
    while True:
        port = 10_000 + secrets.randbelow(20_000)  # counters of two processes would meet
        reservation = socket.socket(type=socket.SOCK_DGRAM)
        try:
            reservation.bind(("127.0.0.1", port))
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            reservation.close()
        else:
            _reserved.append(reservation)
            return f"tcp://127.0.0.1:{port}"
