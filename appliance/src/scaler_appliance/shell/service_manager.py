"""Notifies a service manager such as systemd that the scheduler is ready, works, or stops.

    NOTIFY_SOCKET, WATCHDOG_USEC ──▶ READY=1 … WATCHDOG=1 … STOPPING=1

Rules:
- Without NOTIFY_SOCKET it does nothing.
- It never waits: a notification that cannot be sent now is sent at a later turn. Failures never stop the scheduler.
- WATCHDOG=1 is sent right after the scheduler has done its work, not by a separate thread or timer. If the scheduler's
  loop hangs, or fails at each turn, it is not sent, so that the service manager replaces the scheduler.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import List, Mapping

MICROSECONDS = 1e-6

logger = logging.getLogger("scaler")


class ServiceManager:
    """The service manager that started this process, if any.

    Parameters:
        environment: the variables that say how to notify it.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._unsaid: List[str] = []
        self._watchdog_interval_seconds = 0.0  # none
        self._last_sign_of_life = 0.0
        self._is_stopping = False
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        elif self._address and not self._address.startswith("/"):
            logger.warning("Scheduler: NOTIFY_SOCKET is neither a path nor an abstract address: %s", self._address)
            self._address = ""
        if environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid()):
            limit = environment.get("WATCHDOG_USEC", "0")
            # Three times within the limit, so that one notification may be late.
            self._watchdog_interval_seconds = int(limit) * MICROSECONDS / 3 if limit.isdigit() else 0.0

    def ready(self, status: str) -> None:
        """The scheduler is ready."""
        self._say("READY=1", f"STATUS={status}")

    def working(self, now: float) -> None:
        """The scheduler has just done a turn of its work; cheap enough to call at each one."""
        if self._watchdog_interval_seconds and now >= self._last_sign_of_life + self._watchdog_interval_seconds:
            self._last_sign_of_life = now
            self._say("WATCHDOG=1")
        elif self._unsaid:
            self._say()

    def stopping(self, why: str) -> None:
        """The scheduler is about to end."""
        if not self._is_stopping:
            self._is_stopping = True
            self._say("STOPPING=1", f"STATUS=stopping: {why}")

    def _say(self, *lines: str) -> None:
        if not self._address:
            return
        self._unsaid = [line for line in self._unsaid if line not in lines] + [*lines]
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as telling:
                telling.sendto("\n".join(self._unsaid).encode(), self._address)
            self._unsaid = []
        except BlockingIOError:
            pass
        except OSError as error:
            logger.warning("Scheduler: the service manager at NOTIFY_SOCKET cannot be notified: %s", error)
            self._address = ""
