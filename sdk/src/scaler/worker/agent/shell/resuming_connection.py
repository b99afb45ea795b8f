"""The agent's connection to the scheduler, and a second one while that is silent.

    Agent ──▶ ResumingConnection ──▶ SchedulerConnection, the first
                 │    ▲        └───▶ SchedulerConnection, the second: only while the first is suspect
                 ▼    │
               Resumption

Rules:
- To the agent and its core there is one connection, and nothing happens while a session is resumed.
- What is sent while the session is on neither connection is kept; processors are paused when that is much, as they are
  when it waits in a connection.
- A session that was granted on the second connection, because the one before is over, is kept with what has come there
  until the core asks for a connection.
"""

from __future__ import annotations

import logging
import random
import time
from typing import List, Optional, Tuple

from scaler.data_serving.rounds import Rounds
from scaler.worker.agent.shell.scheduler_connection import CONGESTED_BYTES, ConnectionOwner, SchedulerConnection
from scaler_protocol import encode
from scaler_protocol import messages as m
from scaler_protocol.keys.credentials import Credentials
from scaler_protocol.programs.event_loop import EventLoop, Timer
from scaler_protocol.session.resumption import (
    NEVER,
    BeginAnother,
    CloseSecond,
    EndSession,
    GreetOnSecond,
    LeaveSecond,
    OpenSecond,
    Resumption,
    ResumptionEffect,
    UseSecond,
)
from scaler_protocol.wire.zmtp import Buffer

logger = logging.getLogger("scaler")


class ResumingConnection:
    """Parameters:
        owner: of the connection.

    Raises AddressError when the address is malformed.
    """

    def __init__(self, rounds: Rounds, loop: EventLoop, credentials: Credentials, owner: ConnectionOwner) -> None:
        self._rounds, self._loop, self._credentials, self._owner = rounds, loop, credentials, owner
        self._effects: List[ResumptionEffect] = []
        self._resumption = Resumption(self._effects, random.random)
        self._first = SchedulerConnection(rounds, credentials, _First(self))
        self._second: Optional[SchedulerConnection] = None
        self._left: List[SchedulerConnection] = []  # that stay open until the session goes on, or ends
        self._granted: Optional[SchedulerConnection] = None  # with a session that the core does not know yet
        self._unread: List[Tuple[m.Message, bytes]] = []  # what has come there
        self._is_flooded = False  # much is kept while there is no connection to send it
        self._timer: Optional[Timer] = None
        self._timer_at = NEVER

    # What the agent does --------------------------------------------------------------------------------------------

    @property
    def congested(self) -> bool:
        """Whether too much waits to be sent: senders should pause."""
        return self._is_flooded or self._first.congested

    @property
    def local_host(self) -> str:
        """The host of our end; empty if there is none, or no connection."""
        return self._first.local_host

    def open(self) -> None:
        """Try to connect; the owner is notified of the result."""
        granted, self._granted = self._granted, None
        if granted is None:
            self._unread = []
            self._first.open()
            return
        self._first.drop()
        self._first = granted
        granted.owner = _First(self)
        self._owner.on_connected()

    def stop_connecting(self) -> None:
        """Give up an attempt that takes too long; the owner is notified."""
        self._first.stop_connecting()

    def send(self, message: m.Member, payload: Buffer = b"") -> None:
        """Send a message, now or as soon as there is room."""
        resumption = self._resumption
        if isinstance(message, m.Hello):
            message = resumption.introduce(message, not self._first.is_local)
            self._perform()
            if self._unread:
                self._rounds.call_soon(self._read_granted)  # it was greeted
                return
        resumption.before_sending(message)
        if resumption.is_cut_off:
            self._keep(message, payload)
        else:
            self._first.send(message, payload, resumption.log)

    def _keep(self, message: m.Member, payload: Buffer) -> None:
        """Neither connection can be used now."""
        log = self._resumption.log
        assert log is not None
        log.add([encode(message), payload] if len(payload) else [encode(message)])
        if log.kept_bytes > CONGESTED_BYTES:
            self._set_flooded(True)

    def _set_flooded(self, is_flooded: bool) -> None:
        if is_flooded != self._is_flooded:
            was_congested = self.congested
            self._is_flooded = is_flooded
            if self.congested is not was_congested:
                self._owner.on_congestion(self.congested)

    def _read_granted(self) -> None:
        while self._unread:
            self._hear(*self._unread.pop(0))

    def drop(self) -> None:
        """Close the connection, if there is one, and drop what it has not sent."""
        if self._granted is None:
            self._unread = []
        self._resumption.end()
        self._perform()
        self._close_left()
        self._first.drop()
        self._set_flooded(False)

    def close(self, linger_seconds: float) -> None:
        """Close for good, after at most `timeout_seconds` to send what is waiting."""
        self._resumption.end()
        self._perform()
        if self._granted is not None:
            self._granted.drop()
        self._close_left()
        self._first.close(linger_seconds)

    # The first connection -------------------------------------------------------------------------------------------

    def on_connected(self) -> None:
        self._owner.on_connected()

    def on_connect_failed(self, reason: str) -> None:
        self._owner.on_connect_failed(reason)

    def on_disconnected(self, reason: str) -> None:
        self._resumption.end()
        self._perform()
        self._owner.on_disconnected(reason)

    def on_message(self, message: m.Message, payload: bytes) -> None:
        if self._unread:
            self._unread.append((message, payload))  # behind the Welcome
        else:
            self._hear(message, payload)

    def _hear(self, message: m.Message, payload: bytes) -> None:
        self._resumption.on_message(time.monotonic(), message)
        if self._effects:
            self._perform()
        elif isinstance(message, m.Welcome):
            self._plan()
        self._owner.on_message(message, payload)

    def on_congestion(self, is_congested: bool) -> None:
        if not self._is_flooded:
            self._owner.on_congestion(is_congested)

    def on_heard(self) -> None:
        self._resumption.on_heard(time.monotonic())

    # The second one -------------------------------------------------------------------------------------------------

    def on_second_connected(self) -> None:
        self._resumption.on_second_connected(time.monotonic())
        self._plan()

    def on_second_up(self) -> None:
        self._resumption.on_second_up(time.monotonic())
        self._perform()

    def on_second_failed(self, connection: SchedulerConnection, reason: str) -> None:
        if connection is self._granted:
            self._granted, self._unread = None, []
        elif connection is self._second:
            logger.debug("Worker: the session cannot be resumed yet: %s", reason)
            self._second = None
            self._resumption.on_second_failed(time.monotonic())
            self._perform()

    def on_second_message(self, connection: SchedulerConnection, message: m.Message, payload: bytes) -> None:
        if connection is self._granted:
            self._unread.append((message, payload))
        else:
            self._resumption.on_second_message(time.monotonic(), message)
            self._perform()

    # Resuming -------------------------------------------------------------------------------------------------------

    def _perform(self) -> None:
        while self._effects:
            self._perform_one(self._effects.pop(0))
        self._plan()

    def _perform_one(self, effect: ResumptionEffect) -> None:
        second = self._second
        if isinstance(effect, OpenSecond):
            level = logging.DEBUG if effect.is_repeated else logging.WARNING
            logger.log(level, "Worker: the scheduler is silent: trying another connection, to go on with the session")
            second = self._second = SchedulerConnection(self._rounds, self._credentials, _First(self))
            second.owner = _Second(self, second)
            second.open()
        elif second is None:
            pass  # it has failed meanwhile
        elif isinstance(effect, CloseSecond):
            self._second = None
            second.drop()
        elif isinstance(effect, LeaveSecond):
            self._second = None
            second.mute()
            self._left.append(second)
        elif isinstance(effect, GreetOnSecond):
            self._first.mute()
            second.send(effect.hello)
        elif isinstance(effect, UseSecond):
            self._use_second(second, effect)
        elif isinstance(effect, BeginAnother):
            self._second, self._granted = None, second
            self._unread = [(effect.welcome, b"")]
            self._owner.on_disconnected("the scheduler has ended the session meanwhile")
        if isinstance(effect, EndSession):
            self._owner.on_disconnected(effect.reason)

    def _use_second(self, second: SchedulerConnection, effect: UseSecond) -> None:
        logger.warning(
            "Worker: the session goes on over another connection, %d messages are sent again", len(effect.rest)
        )
        self._second = None
        self._first.drop()
        self._first = second
        second.owner = _First(self)
        self._close_left()
        for frames in effect.rest:
            second.send_frames(frames)
        self._set_flooded(False)

    def _close_left(self) -> None:
        left, self._left = self._left, []
        for each in left:
            each.drop()

    def _plan(self) -> None:
        at = self._resumption.next_time
        if at == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, at
        if at != NEVER:
            self._timer = self._loop.call_later(max(0.0, at - time.monotonic()), self._on_time)

    def _on_time(self) -> None:
        self._timer, self._timer_at = None, NEVER
        now = time.monotonic()
        self._rounds.read()  # what has arrived is heard before
        self._resumption.on_time(now)
        self._rounds.call_soon(self._perform)


class _First:
    """Notified about the connection that the session uses."""

    def __init__(self, whole: ResumingConnection) -> None:
        self.on_connected = whole.on_connected
        self.on_connect_failed = whole.on_connect_failed
        self.on_disconnected = whole.on_disconnected
        self.on_message = whole.on_message
        self.on_congestion = whole.on_congestion
        self.on_heard = whole.on_heard

    def on_up(self) -> None:
        pass


class _Second:
    """Notified about the connection on which a session is to be resumed."""

    def __init__(self, whole: ResumingConnection, connection: SchedulerConnection) -> None:
        self._whole, self._connection = whole, connection
        self.on_connected = whole.on_second_connected
        self.on_up = whole.on_second_up

    def on_connect_failed(self, reason: str) -> None:
        self._whole.on_second_failed(self._connection, reason)

    def on_disconnected(self, reason: str) -> None:
        self._whole.on_second_failed(self._connection, reason)

    def on_message(self, message: m.Message, payload: bytes) -> None:
        self._whole.on_second_message(self._connection, message, payload)

    def on_congestion(self, is_congested: bool) -> None:
        pass

    def on_heard(self) -> None:
        pass
