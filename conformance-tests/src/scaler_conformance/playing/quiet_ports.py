"""Ports at which a scheduler listens, stops, and listens again.

Rule: none of those that the system gives to outgoing connections. One of those may be taken while nothing listens
there: by any program on this machine, even by the connection that tries to reach the scheduler, which then is connected
to itself.
"""

from __future__ import annotations

import secrets
import socket

_FIRST, _COUNT = 10_000, 20_000


def quiet_port() -> int:
    """An unused TCP port of this host."""
    for _ in range(_COUNT):
        port = _FIRST + secrets.randbelow(_COUNT)  # counters of two processes would meet
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no port from {_FIRST} to {_FIRST + _COUNT - 1} was free")
