"""Letting programs of the same user on this host find the scheduler.

Rules: a scheduler that cannot be announced works as well as any other, for those who know its address.
"""

from __future__ import annotations

import contextlib
import logging
from typing import ContextManager

from scaler_protocol.discovery import SCHEDULER, Announcement, DiscoveryError

logger = logging.getLogger("scaler")


def announced(address: str, monitor_address: str) -> ContextManager[object]:
    """Within it, the scheduler can be found; where that cannot be, the log says why."""
    try:
        return Announcement(SCHEDULER, address, monitor_address=monitor_address)
    except (DiscoveryError, OSError) as error:
        logger.warning("Scheduler: clients and workers need its address, it is not announced: %s", error)
        return contextlib.nullcontext()
