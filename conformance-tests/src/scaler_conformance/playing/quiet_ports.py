"""Ports at which a scheduler listens, stops, and listens again.

Rule: none of those that the system gives to outgoing connections. One of those may be taken while nothing listens
there: by any program on this machine, even by the connection that tries to reach the scheduler, which then is connected
to itself.

A scheduler takes a while until it listens, and other runs choose ports meanwhile. So a port is reserved by a UDP socket
with the same number. No other program needs that one, and the system frees it if this process is killed.
"""

from __future__ import annotations

import secrets
import socket
from collections import deque
from typing import Deque

_FIRST, _COUNT = 10_000, 20_000
_MOST_RESERVED = 64

_reserved: Deque[socket.socket] = deque()


def quiet_port() -> int:
    """An unused TCP port of this host, reserved until this process has asked for many others."""
    for _ in range(_COUNT):
        port = _FIRST + secrets.randbelow(_COUNT)  # counters of two processes would meet
        reservation = socket.socket(type=socket.SOCK_DGRAM)
        try:
            reservation.bind(("127.0.0.1", port))
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            reservation.close()
            continue
        _reserved.append(reservation)
        if len(_reserved) > _MOST_RESERVED:
            _reserved.popleft().close()
        return port
    raise OSError(f"no port from {_FIRST} to {_FIRST + _COUNT - 1} was free")
