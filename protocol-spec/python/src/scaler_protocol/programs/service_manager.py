"""Notifies a service manager such as systemd that a program is ready, works, reloads its options, or stops.

    NOTIFY_SOCKET, WATCHDOG_USEC ──▶ READY=1 … WATCHDOG=1 … RELOADING=1 … READY=1 … STOPPING=1

Rules:
- Without NOTIFY_SOCKET it does nothing.
- It never waits: a notification that cannot be sent now is sent later, in order. Failures never stop the program.
- WATCHDOG=1 is sent by the program's event loop, not by a separate thread. If the loop hangs, or fails at each turn, it
  is not sent, so that the service manager replaces the program.
- The variables are meant for one process: what it starts does not inherit them.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections import deque
from typing import TYPE_CHECKING, Deque, Dict, Mapping

if TYPE_CHECKING:
    from scaler_protocol.programs.event_loop import EventLoop  # which processors are not to be forked with

MICROSECONDS = 1e-6
MAXIMUM_UNSENT = 16  # notifications: a service manager that reads none of them misses some
SIGNS_PER_LIMIT = 3  # so that one may be late
WATCHDOG = "WATCHDOG=1"

VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""Variables of the environment that are meant for the process that the service manager has started."""

logger = logging.getLogger("scaler")


def without_service_manager(environment: Mapping[str, str]) -> Dict[str, str]:
    """An environment for another process."""
    return {name: value for name, value in environment.items() if name not in VARIABLES}


class ServiceManager:
    """The service manager that started this process, if any.

    Parameters:
        program: its name in the log.
        environment: the variables that say how to notify it.
    """

    def __init__(self, program: str, environment: Mapping[str, str]) -> None:
        self._program = program
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._unsent: Deque[str] = deque(maxlen=MAXIMUM_UNSENT)
        self._watchdog_interval_seconds = 0.0  # none
        self._last_sign_of_life = 0.0
        self._is_stopping = False
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        elif self._address and not self._address.startswith("/"):
            text = "%s: NOTIFY_SOCKET is neither a path nor an abstract address: %s"
            logger.warning(text, self._program, self._address)
            self._address = ""
        if environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid()):
            limit = environment.get("WATCHDOG_USEC", "0")
            self._watchdog_interval_seconds = int(limit) * MICROSECONDS / SIGNS_PER_LIMIT if limit.isdigit() else 0.0

    @classmethod
    def of_this_process(cls, program: str) -> ServiceManager:
        """The one that the environment names; takes its variables out of the environment, which others inherit."""
        manager = cls(program, os.environ)
        for name in VARIABLES:
            os.environ.pop(name, None)
        return manager

    def ready(self, status: str) -> None:
        """The program is ready, for the first time or after it has reloaded its options."""
        if not self._is_stopping:
            self._notify("READY=1", f"STATUS={status}")

    def status(self, text: str) -> None:
        """What the program is doing, for people."""
        if not self._is_stopping:
            self._notify(f"STATUS={text}")

    def reloading(self) -> None:
        """The program reloads its options; `ready` is to follow."""
        if not self._is_stopping:
            self._notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def working(self, now: float) -> None:
        """The program has just done a turn of its work; cheap enough to call at each one."""
        if self._watchdog_interval_seconds and now >= self._last_sign_of_life + self._watchdog_interval_seconds:
            self._last_sign_of_life = now
            self._notify(WATCHDOG)
        elif self._unsent:
            self._send()

    def watch(self, loop: EventLoop) -> None:
        """Give signs of life from now on, for as long as the event loop calls its callbacks in time."""
        if self._watchdog_interval_seconds:
            self._notify(WATCHDOG)
            loop.call_later(self._watchdog_interval_seconds, self.watch, loop)

    def stopping(self, why: str) -> None:
        """The program is about to end."""
        if not self._is_stopping:
            self._is_stopping = True
            self._notify("STOPPING=1", f"STATUS=stopping: {why}")

    def _notify(self, *lines: str) -> None:
        if not self._address:
            return
        message = "\n".join(lines)
        if message not in self._unsent:
            self._unsent.append(message)
        self._send()

    def _send(self) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
                while self._unsent:
                    sender.sendto(self._unsent[0].encode(), self._address)
                    self._unsent.popleft()
        except BlockingIOError:
            pass
        except OSError as error:
            text = "%s: the service manager at NOTIFY_SOCKET cannot be notified: %s"
            logger.warning(text, self._program, error)
            self._address = ""
            self._unsent.clear()
