"""What lets a client's session go on over a second connection, while the first is silent.

    ClientDriver ──▶ ResumingLink ──▶ its transport, the first
                       │    ▲    └──▶ another transport, the second: only while the first is suspect
                       ▼    │
                     Resumption

Rules:
- To the driver there is one transport, which is replaced; its session learns nothing of that.
- It waits for nothing: the first transport says when something has happened at the second, and `turn` looks after it.
- A session that was granted on the second connection, because the one before is over, waits there until the driver's
  session wants to connect.
"""

from __future__ import annotations

import logging
import random
import time
from typing import Any, Callable, List, Optional, Protocol

from scaler.client.shell.transport import Transport
from scaler.exceptions import DisconnectedError
from scaler_protocol.session.peer_session import PeerSession
from scaler_protocol.session.resumption import (
    BeginAnother,
    CloseSecond,
    EndSession,
    GreetOnSecond,
    LeaveSecond,
    LinkState,
    OpenSecond,
    Resumption,
    ResumptionEffect,
    UseSecond,
)
from scaler_protocol.wire import messages as m
from scaler_protocol.wire.codec import decode, encode
from scaler_protocol.wire.errors import MalformedMessageError

logger = logging.getLogger("scaler")


class TransportUser(Protocol):
    """Whose transport it is."""

    transport: Any


class ResumingLink:
    """Parameters:
    user: its `transport` is replaced when a session goes on over another one.
    session: of the user.
    on_frames: called with the time, header and payload of a message of the session.
    """

    def __init__(
        self, user: TransportUser, session: PeerSession, on_frames: Callable[[float, bytes, bytes], None]
    ) -> None:
        self._user, self._session, self._on_frames = user, session, on_frames
        self._effects: List[ResumptionEffect] = []
        self._resumption = Resumption(self._effects, random.random)
        self._second: Optional[Transport] = None
        self._is_up = False  # the second
        self._is_reported = False  # the user, of a silence that lasts
        self._left: List[Transport] = []  # that stay open until the session goes on, or ends
        self._granted: Optional[Transport] = None  # with a session that the driver does not know yet
        self._welcome: Optional[m.Welcome] = None  # of that
        self._unread: List[List[bytes]] = []  # what has come behind it

    @property
    def next_time(self) -> float:
        """When `turn` is to be called at the latest."""
        return self._resumption.next_time

    # The first connection -------------------------------------------------------------------------------------------

    def transmit(self, message: m.Member) -> None:
        """Send a message of the session itself."""
        resumption, transport = self._resumption, self._user.transport
        if isinstance(message, m.Hello):
            message = resumption.introduce(message, not transport.is_local)
            self._perform()
            welcome, self._welcome = self._welcome, None
            if welcome is not None:  # it was greeted
                now = time.monotonic()
                self.on_message(now, welcome)
                self._session.on_message(now, welcome)
                return
        resumption.before_sending(message)
        transport.send(message)

    def on_message(self, now: float, message: m.Message) -> None:
        """A message has come on the first connection; to be passed on afterwards."""
        self._resumption.on_message(now, message)
        if self._effects:
            self._perform()
        if self._is_reported and self._resumption.state is LinkState.OPEN:
            self._report_end("on the same connection")
        if isinstance(message, m.Welcome):
            self._user.transport.log = self._resumption.log

    def on_heard(self, now: float) -> None:
        """Something has come on the first connection, be it a part of a message."""
        self._resumption.on_heard(now)

    def connect(self) -> bool:
        """Whether there is a connection already, on which a session was granted: the transport is replaced by it."""
        granted, self._granted = self._granted, None
        if granted is None:
            self._welcome, self._unread = None, []
            return False
        self._user.transport.drop()
        granted.unmute()
        self._user.transport = granted
        return True

    def end(self) -> None:
        """The session is over, with its connections."""
        self._is_reported = False
        self._resumption.end()
        self._perform()
        self._close_left()
        self._user.transport.log = None

    def close(self) -> None:
        """Everything is over."""
        self._resumption.end()
        self._perform()
        self._close_left()
        if self._granted is not None:
            self._granted.drop()

    def _close_left(self) -> None:
        left, self._left = self._left, []
        for each in left:
            each.drop()

    def after_fork_in_child(self) -> None:
        """In a fork of the client's process: leave all connections to the parent."""
        for each in (self._second, self._granted, *self._left):
            if each is not None:
                each.after_fork_in_child()
        self._second = self._granted = None
        self._left = []

    # The second one -------------------------------------------------------------------------------------------------

    def turn(self, now: float) -> None:
        """Do what is due, and hear what has come on the second connection."""
        second = self._second
        if second is not None and second.has_news:
            second.has_news = False
            self._hear(second)
        if now >= self._resumption.next_time:
            self._resumption.on_time(now)
        if self._effects:
            self._perform()

    def read_on(self) -> None:
        """Pass on what has come behind the Welcome of a second connection, which is the first one now."""
        if self._unread and self._granted is None and self._session.is_open:
            unread, self._unread = self._unread, []
            for header, *payload in unread:
                self._on_frames(time.monotonic(), header, payload[0] if payload else b"")

    def _hear(self, second: Transport) -> None:
        now = time.monotonic()
        try:
            if second.is_connecting:
                if second.finish_connecting():
                    self._resumption.on_second_connected(now)
                return
            received = second.receive()
            if second.is_up and not self._is_up:
                self._is_up = True
                self._resumption.on_second_up(now)
                self._perform()
            for position, (header, *_) in enumerate(received, start=1):
                self._resumption.on_second_message(now, decode(header))
                self._perform()
                if self._second is not second:
                    self._unread = received[position:]
                    return
        except (OSError, MemoryError, DisconnectedError, MalformedMessageError) as error:
            self._fail(second, error)

    def _fail(self, second: Transport, error: Exception) -> None:
        logger.debug("Client: the session cannot be resumed yet: %s", error)
        if self._second is second:
            self._second = None
            second.drop()
            self._resumption.on_second_failed(time.monotonic())
            self._perform()

    # Resuming -------------------------------------------------------------------------------------------------------

    def _perform(self) -> None:
        while self._effects:
            self._perform_one(self._effects.pop(0))

    def _perform_one(self, effect: ResumptionEffect) -> None:
        second = self._second
        if isinstance(effect, OpenSecond):
            if effect.is_repeated and not self._is_reported:
                self._report_silence()
            self._open()
        elif isinstance(effect, EndSession):
            self._session.on_disconnected(time.monotonic(), effect.reason)
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
            self._user.transport.mute()
            second.send_frames([encode(effect.hello)])
        elif isinstance(effect, UseSecond):
            self._use(second, effect)
        else:
            assert isinstance(effect, BeginAnother)
            second.mute()
            self._second, self._granted, self._welcome = None, second, effect.welcome
            self._session.on_disconnected(time.monotonic(), "the scheduler has ended the session meanwhile")

    def _open(self) -> None:
        self._is_up = False
        second = self._second = self._user.transport.another()
        try:
            if second.connect():
                self._resumption.on_second_connected(time.monotonic())
        except (OSError, MemoryError) as error:
            self._fail(second, error)

    def _use(self, second: Transport, effect: UseSecond) -> None:
        self._report_end(f"over another connection, {len(effect.rest)} messages are sent again")
        self._second = None
        self._user.transport.drop()
        self._close_left()
        self._user.transport = second
        for frames in effect.rest:
            second.send_frames(frames)
        second.log = self._resumption.log

    # Reports to the user ---------------------------------------------------------------------------------------------

    def _report_silence(self) -> None:
        self._is_reported = True
        logger.warning(
            "Client: the scheduler at %s has not been heard for %.0f seconds, nor does it answer on another connection;"
            " trying again until it has been silent for %.0f seconds; the tasks of this client go on meanwhile",
            self._user.transport.address,
            time.monotonic() - self._session.heard_at,
            self._session.silence_timeout_seconds,
        )

    def _report_end(self, where: str) -> None:
        level = logging.WARNING if self._is_reported else logging.INFO
        self._is_reported = False
        logger.log(level, "Client: the session goes on %s", where)
