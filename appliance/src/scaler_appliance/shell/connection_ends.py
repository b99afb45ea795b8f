"""Why a connection has ended: what the log says about it, and what it costs.

Rules:
- A peer that leaves, or that only asks whether it is there, is worth no line. A fault of a peer is worth one, and an
  error that neither the peer nor the operating system explains is a bug of the scheduler.
- A fault costs FAULT_SECONDS of what all callers may take: such a peer connects again, and sends as much again.
"""

from __future__ import annotations

import logging

from scaler_protocol.wire.zmtp import PeerGoneError, RefusedError, ZmtpError

FAULT_SECONDS = 0.005  # three to five times what is measured here of a connection that is refused

logger = logging.getLogger("scaler")


def is_fault(error: Exception) -> bool:
    """Whether a connection has ended because its peer broke the rules of ZMTP."""
    return isinstance(error, ZmtpError) and not isinstance(error, (PeerGoneError, RefusedError))


def log_end(label: str, error: Exception, peer_has_spoken: bool, is_registered: bool) -> None:
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
    level = logging.WARNING if is_registered else logging.INFO
    text = str(error) or type(error).__name__
    logger.log(level, "Scheduler: the connection from %s is closed: %s", label, text)
    if not isinstance(error, (ZmtpError, TimeoutError, MemoryError)):
        logger.error("Scheduler: what ended it is a bug of the scheduler", exc_info=error)
