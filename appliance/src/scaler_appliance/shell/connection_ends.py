"""Why connections have ended: what the log says about it, and what it costs.

Rules:
- A peer that leaves, or that only asks whether it is there, is worth no line. A fault of a peer is worth one, and an
  error that neither the peer nor the operating system explains is a bug of the scheduler.
- What callers without a session send gets into the log, and differs each time: so the log has CALLER_LINES about them
  in PERIOD_SECONDS, and then their number.
- A fault costs FAULT_SECONDS of what callers may take: such a peer connects again, and sends as much again.
"""

from __future__ import annotations

import logging
import time
from typing import Callable

from scaler_protocol.wire.zmtp import PeerGoneError, RefusedError, UnfinishedHandshakeError, ZmtpError

FAULT_SECONDS = 0.005  # three to five times what is measured here of a connection that is refused
CALLER_LINES, PERIOD_SECONDS = 20, 60.0

logger = logging.getLogger("scaler")


def is_fault(error: Exception) -> bool:
    """Whether a connection has ended because its peer broke the rules of ZMTP, or refused ours with an ERROR."""
    return isinstance(error, ZmtpError) and not isinstance(error, (PeerGoneError, UnfinishedHandshakeError))


class ConnectionEnds:
    """Writes about the ends of connections.

    Parameters:
        clock: seconds of a monotonic clock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._period_end = 0.0
        self._lines = self._unwritten = 0  # about callers, in this period

    def log(self, label: str, error: Exception, peer_has_spoken: bool, is_registered: bool) -> None:
        """Log the end of a connection, if it is worth that.

        Parameters:
            label: of the peer.
            error: what ended the connection.
            peer_has_spoken: whether the peer had sent anything.
            is_registered: whether it had been served: its end is a warning.
        """
        # A caller that closes without sending anything is probably a health check, which is not worth a warning.
        is_question = isinstance(error, RefusedError) and not peer_has_spoken
        is_usual = isinstance(error, (OSError, PeerGoneError)) and not isinstance(error, TimeoutError)
        if is_usual or is_question:
            return
        if is_registered or self._has_room():
            level = logging.WARNING if is_registered else logging.INFO
            text = str(error) or type(error).__name__
            logger.log(level, "Scheduler: the connection from %s is closed: %s", label, text)
        if not isinstance(error, (ZmtpError, TimeoutError, MemoryError)):
            logger.error("Scheduler: what ended it is a bug of the scheduler", exc_info=error)

    def _has_room(self) -> bool:
        """Whether another line about a caller may be written in this period."""
        self.report()
        if not self._lines:
            self._period_end = self._clock() + PERIOD_SECONDS
        self._lines += 1
        if self._lines > CALLER_LINES:
            self._unwritten += 1
        return self._lines <= CALLER_LINES

    def report(self) -> None:
        """Write how many lines were left out, if the period is over; to be called about once a second."""
        if self._lines and self._clock() >= self._period_end:
            if self._unwritten:
                text = "Scheduler: %d more connections without a session were closed in %.0f s"
                logger.info(text, self._unwritten, PERIOD_SECONDS)
            self._lines = self._unwritten = 0
