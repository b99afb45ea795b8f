"""When a peer tries to connect: a listener that closes whatever comes, at once."""

from __future__ import annotations

import socket
import time
from typing import List

from scaler_conformance.judging.verdicts import NotApplicable
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.transports import RouterTransport

ATTEMPTS = 6


def check_growing_pauses(router: RouterTransport, seconds: float) -> None:
    """Be away from a played scheduler's address for a while, and see that attempts to connect come ever more seldom.

    Parameters:
        seconds: how long to look.

    Raises Violation when they do not.
    """
    times = _times_of_attempts(router, seconds)
    if len(times) < ATTEMPTS:
        return  # so seldom that there is nothing to compare
    gaps = [later - earlier for earlier, later in zip(times, times[1:])]
    first, last = gaps[0] + gaps[1], gaps[-1] + gaps[-2]
    check(last > 1.5 * first, "the last pauses to be longer than the first", f"pauses of {gaps} seconds")


def _times_of_attempts(router: RouterTransport, seconds: float) -> List[float]:
    """When connections came that were closed at once."""
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
    """The socket that was just closed may hold the port a moment longer."""
    while True:
        try:
            return socket.create_server(("127.0.0.1", port), backlog=64)
        except OSError:
            if time.monotonic() > deadline:
                raise NotApplicable(f"port {port} is taken") from None
            time.sleep(0.01)
