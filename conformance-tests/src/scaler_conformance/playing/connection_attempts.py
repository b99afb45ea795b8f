"""When a peer tries to connect: a listener that closes every connection at once."""

from __future__ import annotations

import socket
import time
from typing import List

from scaler_conformance.judging.verdicts import NotApplicable
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.transports import RouterTransport

ATTEMPTS = 6


def check_growing_pauses(router: RouterTransport, seconds: float) -> None:
    """Close a played scheduler's address for a while, and check that the pauses between attempts to connect grow.

    Parameters:
        seconds: how long to watch.

    Raises Violation if they do not grow.
    """
    times = _times_of_attempts(router, seconds)
    if len(times) < ATTEMPTS:
        return  # the pauses are so long that there is nothing to compare
    gaps = [later - earlier for earlier, later in zip(times, times[1:])]
    first, last = min(gaps[:2]), min(gaps[-2:])  # a stop of either side makes one of them longer
    check(
        last > 1.5 * first,
        "longer pauses after the last attempts to connect than after the first ones",
        f"pauses of {gaps} seconds",
    )


def _times_of_attempts(router: RouterTransport, seconds: float) -> List[float]:
    """The times at which connections were accepted and closed."""
    port = int(router.address.rpartition(":")[2])
    router.stop_listening()
    times: List[float] = []
    deadline = time.monotonic() + seconds
    with _listen(port, deadline) as listener:
        while len(times) < ATTEMPTS and time.monotonic() < deadline:
            listener.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                connection, _ = listener.accept()
            except socket.timeout:
                break
            times.append(time.monotonic())
            connection.close()
    router.restart()
    return times


def _listen(port: int, deadline: float) -> socket.socket:
    """Listen again. The socket that was just closed may hold the port for a moment."""
    while True:
        try:
            return socket.create_server(("127.0.0.1", port), backlog=64)
        except OSError:
            if time.monotonic() > deadline:
                raise NotApplicable(f"another program has taken port {port}; run the case again") from None
            time.sleep(0.01)
