"""Why connections have ended: what the log says about it, and what it costs.

Rules:
- A peer that leaves, or that only asks whether it is there, is worth no line. A fault of a peer is worth one, and an
  error that neither the peer nor the operating system explains is a bug of the scheduler.
- What callers without a session send gets into the log, and may differ each time: so in PERIOD_SECONDS, the log has
  CALLER_TEXTS different texts about them, each in EQUAL_LINES lines, and then the number of the others.
- A fault costs FAULT_SECONDS of what callers may take: such a peer connects again, and sends as much again.
"""

from __future__ import annotations

import logging
import time
from typing import Callable, Dict

from scaler_protocol.wire.zmtp import PeerGoneError, RefusedError, UnfinishedHandshakeError, ZmtpError

FAULT_SECONDS = 0.005  # three to five times what is measured here of a connection that is refused
CALLER_TEXTS, EQUAL_LINES, PERIOD_SECONDS = 20, 3, 60.0

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
        self._lines: Dict[str, int] = {}  # about callers in this period, by their texts
        self._unwritten = 0

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
        text = str(error) or type(error).__name__
        if is_registered or self._has_room(text):
            level = logging.WARNING if is_registered else logging.INFO
            logger.log(level, "Scheduler: the connection from %s is closed: %s", label, text)
        if not isinstance(error, (ZmtpError, TimeoutError, MemoryError)):
            logger.error("Scheduler: what ended it is a bug of the scheduler", exc_info=error)

    def _has_room(self, text: str) -> bool:
        """Whether another line with this text about a caller may be written in this period."""
        self.report()
        if not self._lines:
            self._period_end = self._clock() + PERIOD_SECONDS
        count = self._lines.get(text, 0)
        if count >= EQUAL_LINES or (not count and len(self._lines) >= CALLER_TEXTS):
            self._unwritten += 1
            return False
        self._lines[text] = count + 1
        return True

    def report(self) -> None:
        """Write how many lines were left out, if the period is over; to be called about once a second."""
        if self._lines and self._clock() >= self._period_end:
            if self._unwritten:
                text = "Scheduler: %d more connections without a session were closed in %.0f s"
                logger.info(text, self._unwritten, PERIOD_SECONDS)
            self._unwritten = 0
            self._lines.clear()
