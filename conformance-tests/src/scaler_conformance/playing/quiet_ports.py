"""Ports at which a scheduler listens, stops, and listens again.

Rule: none of those that the system gives to outgoing connections. One of those may be taken while nothing listens
there: by any program on this machine, even by the connection that tries to reach the scheduler, which then is connected
to itself.
"""

from __future__ import annotations

import itertools
import os
import socket

_FIRST, _COUNT = 10_000, 20_000
_PORTS = itertools.count(os.getpid() * 37 % _COUNT)  # processes that run side by side begin at different ports


def quiet_port() -> int:
    """An unused TCP port of this host."""
    for count in itertools.islice(_PORTS, _COUNT):
        port = _FIRST + count % _COUNT
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no port from {_FIRST} to {_FIRST + _COUNT - 1} is free")
