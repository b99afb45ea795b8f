"""Who is watched when no address is given, and how this program is found in turn.

Rule: everything that concerns other programs of this user on this host is here.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Iterator

from scaler_protocol.discovery import USER_INTERFACE, Announcement, DiscoveryError, find_scheduler

logger = logging.getLogger("scaler")


class NotFoundError(Exception):
    """There is nothing to watch; the message says what to do."""


def find_monitor_address() -> str:
    """The monitor address of the scheduler that was started last, by this user on this host.

    Raises NotFoundError.
    """
    try:
        return find_scheduler().details["monitor_address"]
    except (DiscoveryError, KeyError):
        raise NotFoundError(
            "no scheduler of this user runs on this host: start one, or give the monitor address that a scheduler logs"
            " when it starts, such as ipc:///tmp/127.0.0.1_2345_monitor"
        ) from None


@contextlib.contextmanager
def announced(monitor_address: str, link: str) -> Iterator[None]:
    """While this lasts, programs of this user on this host find the link."""
    with contextlib.ExitStack() as closing:
        try:
            closing.enter_context(Announcement(USER_INTERFACE, monitor_address, url=link))
        except (DiscoveryError, OSError) as error:
            logger.warning("scaler_ui: clients do not show a link to it: %s", error)
        yield
