"""How programs of this user on this host find the link to the page.

Rule: a page that cannot be announced works as well as any other, for those who know its address.
"""

from __future__ import annotations

import contextlib
import logging
from typing import ContextManager

from scaler_protocol.discovery import USER_INTERFACE, Announcement, DiscoveryError

logger = logging.getLogger("scaler")


def announced(monitor_address: str, link: str) -> ContextManager[object]:
    """Within it, the link can be found, with its token; where that cannot be, the log says why."""
    try:
        return Announcement(USER_INTERFACE, monitor_address, url=link)
    except (DiscoveryError, OSError) as error:
        logger.warning("scaler_ui: clients will not show a link to this page, it is not announced: %s", error)
        return contextlib.nullcontext()
