"""The worker's session with the scheduler: Hello and Welcome, heartbeats, silence, and starting anew.

Rules:
- A session begins with a new connection and a Hello, and is there when the Welcome is. Nothing else is sent
  before: what a worker has to say about the tasks of an old session is of no interest in a new one.
- Whoever is silent for longer than agreed is greeted again, on a new connection. Only when nobody has
  answered for the death timeout does the worker give up.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import socket
import time
from typing import Callable, List, Optional

from scaler.values.codecs import CODECS
from scaler.version import __version__
from scaler.worker.agent.shell.scheduler_connection import SchedulerConnection
from scaler.worker.worker_settings import WorkerSettings
from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX, PROTOCOL_MINOR_MIN
from scaler_protocol import messages as m

logger = logging.getLogger("scaler")

WELCOME_TIMEOUT_SECONDS = 10.0
"""A Hello without an answer for so long is said again."""

DEFAULT_TIMEOUT_SECONDS = 60.0

MINIMUM_INTERVAL_SECONDS = 0.005
"""Heartbeats do not follow each other more closely, however often there is news."""


class Session:
    """Keeps one session alive.

    Parameters:
        functions: names of functions that the worker serves.
        make_heartbeat: what to say about this worker; the session fills in the sequence and the latency.
        on_ended: called when a session is over.
        on_given_up: called when the death timeout is over.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: WorkerSettings,
        connection: SchedulerConnection,
        name: str,
        functions: List[str],
        make_heartbeat: Callable[[float], m.Heartbeat],
        on_ended: Callable[[], None],
        on_given_up: Callable[[], None],
    ) -> None:
        self.number = 0  # 0: not welcomed (yet)
        self._loop = loop
        self._settings = settings
        self._connection = connection
        self._name = name
        self._functions = functions
        self._make_heartbeat = make_heartbeat
        self._on_ended = on_ended
        self._on_given_up = on_given_up
        self._previous_number = 0
        self._timeout_seconds = DEFAULT_TIMEOUT_SECONDS
        self._heartbeat_seconds = settings.heartbeat_interval_seconds
        self._timer: Optional[asyncio.TimerHandle] = None
        self._beat_soon: Optional[asyncio.TimerHandle] = None
        self._sequence = 0
        self._sent_at = 0.0
        self._latency_microseconds = 0
        self._last_heard = self._hello_sent_at = time.monotonic()

    def send(self, message: m.Member, payload: bytes = b"") -> bool:
        """Send a message of this session; returns whether there is one: else there is nobody to send it to."""
        if self.number:
            self._connection.send(message, payload)
        return bool(self.number)

    # SCL-SES-001, SCL-SES-021
    def greet(self) -> None:
        """Start a new session."""
        self._end()
        self._connection.open()
        self._hello_sent_at = time.monotonic()
        language = f"Python {platform.python_version()} ({platform.python_implementation()})"
        self._connection.send(
            m.Hello(
                major=PROTOCOL_MAJOR,
                minor_min=PROTOCOL_MINOR_MIN,
                minor_max=PROTOCOL_MINOR_MAX,
                role=m.Role.WORKER,
                implementation=m.Implementation(name="scaler", version=__version__, language=language),
                # SCL-COD-002
                codecs=list(CODECS),
                functions=self._functions,
                host=socket.gethostname(),
                process_id=os.getpid(),
                name=self._name,
                slots=self._settings.slots,
                queue_size=self._settings.per_worker_queue_size,
                capabilities=[m.Capability(name=name, amount=amount) for name, amount in self._settings.capabilities],
                previous_session=self._previous_number,
                heartbeat_interval_milliseconds=int(self._settings.heartbeat_interval_seconds * 1000),
            )
        )
        self._start_timer()

    def welcomed(self, welcome: m.Welcome) -> None:
        """The scheduler accepted us."""
        self.number = welcome.session
        if welcome.timeout_milliseconds:
            self._timeout_seconds = welcome.timeout_milliseconds / 1000
        if welcome.heartbeat_interval_milliseconds:
            self._heartbeat_seconds = welcome.heartbeat_interval_milliseconds / 1000
        self._start_timer()

    def ended(self) -> None:
        """The scheduler will not answer any more; another one may come to its address."""
        self._end()

    def _end(self) -> None:
        if self.number:
            self._previous_number, self.number = self.number, 0
            self._on_ended()

    def heard(self) -> None:
        """Any message came."""
        self._last_heard = time.monotonic()

    def say_goodbye(self, reason: str) -> None:
        """Tell the scheduler, which may know us even if its Welcome has not come yet."""
        for timer in (self._timer, self._beat_soon):
            if timer is not None:
                timer.cancel()
        # SCL-SES-019
        self._connection.send(m.DisconnectRequest(reason=m.DisconnectReason.LEAVING, message=reason))

    def on_echo(self, message: m.HeartbeatEcho) -> None:
        if message.sequence == self._sequence:
            self._latency_microseconds = int((time.monotonic() - self._sent_at) * 500_000)

    def beat(self) -> None:
        """Send a heartbeat now."""
        now = time.monotonic()
        self._sequence += 1
        self._sent_at = now
        heartbeat = self._make_heartbeat(now)
        heartbeat.sequence = self._sequence
        heartbeat.latency_microseconds = self._latency_microseconds
        self.send(heartbeat)

    def beat_soon(self) -> None:
        """Send a heartbeat now, or a moment after the last one."""
        if self._beat_soon is None:
            wait = max(0.0, self._sent_at + MINIMUM_INTERVAL_SECONDS - time.monotonic())
            self._beat_soon = self._loop.call_later(wait, self._on_beat_soon)

    def _on_beat_soon(self) -> None:
        self._beat_soon = None
        self.beat()

    def _start_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._heartbeat_seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._start_timer()
        now = time.monotonic()
        silence = now - self._last_heard
        if silence > self._settings.death_timeout_seconds:
            logger.error(
                "Worker: no scheduler answered at %s for %d seconds (death_timeout_seconds), giving up",
                self._settings.address,
                silence,
            )
            self._on_given_up()
        # SCL-SES-016
        elif self.number and silence > self._timeout_seconds:
            logger.warning("Worker: the scheduler has been silent for %d seconds, reconnecting", silence)
            self.greet()
        elif self.number:
            # SCL-SES-013
            self.beat()
        elif now - self._hello_sent_at > WELCOME_TIMEOUT_SECONDS:
            logger.warning("Worker: no scheduler answers at %s yet, trying again", self._settings.address)
            self.greet()
