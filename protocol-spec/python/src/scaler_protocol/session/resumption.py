"""How a peer's session outlives its connection: a silent one is suspect, and another is tried at once.

    OPEN ── nothing heard for 3 heartbeats ──▶ SUSPECT ── second connection up ──▶ RESUMING ── Welcome ──▶ OPEN
      ▲                                          │ ▲                                 │ ▲
      └──── the first one passes in both ways ───┘ └─ tried again ─┘                 └─┘ it failed: tried again

Rules:
- Sans-IO, beside `PeerSession`, which sees one connection and is told nothing while a session is resumed: silence ends
  it as before, and all of this with it. Effects are appended to a list that the owner performs.
- The first connection is kept until the second is up, because it may only be slow. To hear it again is not enough: when
  a link is healed, one end's system may send what waits there long before the other end's does. It has to bring a
  count of all that was sent before. From the Hello on the second one,
  only that counts: the first is neither read nor written, and it is closed when the Welcome has come.
- A connection on which Hello was sent stays open until the Welcome has come, on this or on a later one: its end would
  say that this peer has gone. What it delivers late is recognized by the number of the attempt.
- A connection that has ended ends its session, as before: only silence is bridged.
- A session also ends with its first connection if this peer wanted to leave before the Welcome had come: one end
  counts that message, and the other does not.
- The token is told to no one but the scheduler: it is taken out of Welcome before that is passed on.

Source: session.md of the specification, SCL-SES-027 to SCL-SES-036.
"""

from __future__ import annotations

from copy import copy
from enum import Enum
from typing import Callable, List, NamedTuple, Optional, Union

from scaler_protocol.session.features import RESUME
from scaler_protocol.session.session_log import MAXIMUM_KEPT_BYTES, Frames, SessionLog
from scaler_protocol.wire import messages as m

NEVER = float("inf")
MISSED_HEARTBEATS = 3
CONNECT_SECONDS = 2.0
"""For an attempt to connect: TCP doubles the pauses between its own attempts, and would notice too late."""

HANDSHAKE_SECONDS = 5.0
"""From then until the connection is up: a scheduler that was stopped answers late."""

WELCOME_SECONDS = 5.0
FIRST_PAUSE_SECONDS, MAXIMUM_PAUSE_SECONDS = 0.1, 1.0


class LinkState(Enum):
    NONE = "none"
    """There is no session that can be resumed."""
    OPEN = "open"
    SUSPECT = "suspect"
    """Nothing was heard for long; the second connection is not up."""
    RESUMING = "resuming"
    """Hello was sent on a second connection."""


class OpenSecond(NamedTuple):
    """Open a second connection: `on_second_connected` and `on_second_up`, or `on_second_failed`."""

    is_repeated: bool = False
    """This is not the first one since the session has become suspect."""


class CloseSecond(NamedTuple):
    """Close the second connection, or stop opening it."""


class LeaveSecond(NamedTuple):
    """Use the second connection no more, but keep it open until a session goes on, or ends."""


class GreetOnSecond(NamedTuple):
    """Send this on the second connection, and read the first one no more."""

    hello: m.Hello


class UseSecond(NamedTuple):
    """The second connection takes the place of the first, which is closed; these messages are sent on it, in order."""

    rest: List[Frames]


class BeginAnother(NamedTuple):
    """The session has ended, as if the first connection had; the next one has been granted on the second connection.

    The owner keeps that connection, and what comes on it, for the next time that `PeerSession` wants one: it is
    connected at once, its Hello is not sent again, and this is the answer.
    """

    welcome: m.Welcome


class EndSession(NamedTuple):
    """The session has ended: both connections are closed, as if the first one had ended."""

    reason: str


ResumptionEffect = Union[OpenSecond, CloseSecond, LeaveSecond, GreetOnSecond, UseSecond, BeginAnother, EndSession]


class Resumption:
    """Parameters:
        effects: where effects are appended.
        random: returns random numbers from 0 to 1, for jitter in pauses.
        most_bytes: of messages that are not acknowledged.

    Attributes:
        log: of the session, if it could be resumed when it began.
        number: of the session.
        next_time: when `on_time` has to be called at the latest.
    """

    def __init__(
        self,
        effects: List[ResumptionEffect],
        random: Callable[[], float],
        most_bytes: int = MAXIMUM_KEPT_BYTES,
    ) -> None:
        self.state = LinkState.NONE
        self.log: Optional[SessionLog] = None
        self.next_time = NEVER
        self._effects = effects
        self._random = random
        self._most_bytes = most_bytes
        self._hello: Optional[m.Hello] = None  # of this session, if it can be resumed
        self.number = 0
        self._token = b""
        self._patience_seconds = 0.0
        self._heard_at = 0.0
        self._has_second = self._is_greeted = False
        self._awaited = 0  # messages that were sent when the silence was noticed
        self._attempts = 0  # to resume this session
        self._pause_seconds = FIRST_PAUSE_SECONDS

    @property
    def is_cut_off(self) -> bool:
        """Whether nothing is read from the first connection any more, and nothing sent."""
        return self.state is LinkState.RESUMING

    # Messages on the first connection -------------------------------------------------------------------------------

    def introduce(self, hello: m.Hello, is_remote: bool) -> m.Hello:
        """A Hello for a new session, as it is to be sent.

        Parameters:
            is_remote: the connection may be cut: it is not one within this host.
        """
        self.end()
        if not is_remote:
            return hello
        offer = copy(hello)
        offer.features = [*hello.features, RESUME]
        self._hello = offer
        return offer

    def before_sending(self, message: m.Member) -> None:
        """Complete a message that is about to be sent, in the session or before its Welcome."""
        if self.log is None:
            # SCL-SES-036
            if not isinstance(message, m.Hello):
                self._hello = None
        # SCL-SES-029
        elif isinstance(message, (m.Heartbeat, m.HeartbeatEcho)):
            message.received = self.log.received

    def on_message(self, now: float, message: m.Message) -> None:
        """A message of the session has come, on the connection that it uses; to be passed on afterwards."""
        if self.log is not None:
            self._heard_at = now
            self.log.received += 1
            if isinstance(message, (m.Heartbeat, m.HeartbeatEcho)):
                self._acknowledge(now, self.log, message.received)
        elif isinstance(message, m.Welcome):
            self._on_welcome(now, message)

    def _on_welcome(self, now: float, welcome: m.Welcome) -> None:
        token, welcome.resume_token = bytes(welcome.resume_token), b""
        hello = self._hello
        if hello is None or not token or RESUME not in welcome.features:
            return
        self._token, self.number, self._attempts = token, welcome.session, 0
        self.log = SessionLog(self._most_bytes)
        interval = welcome.heartbeat_interval_milliseconds or hello.heartbeat_interval_milliseconds
        self._patience_seconds = MISSED_HEARTBEATS * interval / 1000
        self._open(now)

    def on_heard(self, now: float) -> None:
        """Something has come on the first connection, be it a part of a message."""
        self._heard_at = now

    def _acknowledge(self, now: float, log: SessionLog, count: int) -> None:
        log.acknowledge(count)
        # SCL-SES-035
        if self.state is LinkState.SUSPECT and log.acknowledged >= self._awaited:
            self._stay(now)

    def _stay(self, now: float) -> None:
        """The session stays on the first connection."""
        if self._has_second:
            self._effects.append(CloseSecond())
        self._open(now)

    def end(self) -> None:
        """The session is over, with its connections."""
        if self._has_second:
            self._effects.append(CloseSecond())
        self.state, self.log, self._hello, self._token = LinkState.NONE, None, None, b""
        self._has_second = False
        self.next_time = NEVER

    def _open(self, now: float) -> None:
        self.state = LinkState.OPEN
        self._heard_at = now
        self._has_second = False
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self.next_time = now + self._patience_seconds if self._patience_seconds else NEVER

    # Time -----------------------------------------------------------------------------------------------------------

    def on_time(self, now: float) -> None:
        """Do what is due at this time. To be called at `next_time`; calls at other times do no harm.

        Parameters:
            now: pass in what had arrived by then first.
        """
        log = self.log
        if now < self.next_time or log is None:
            return
        if self.state is LinkState.OPEN:
            # A process that was stopped has not listened: it listens for as long again.
            if now > self.next_time + self._patience_seconds / MISSED_HEARTBEATS:
                self._heard_at = now
            suspect_at = self._heard_at + self._patience_seconds
            if now < suspect_at:
                self.next_time = suspect_at
            elif not log.is_whole:
                self.next_time = now + self._patience_seconds
            else:
                # SCL-SES-028
                self.state, self._awaited = LinkState.SUSPECT, log.sent
                self._try(now)
        elif self._has_second:
            self._effects.append(LeaveSecond() if self._is_greeted else CloseSecond())
            self.on_second_failed(now)
        else:
            self._try(now, is_repeated=True)

    def _try(self, now: float, is_repeated: bool = False) -> None:
        self._has_second, self._is_greeted = True, False
        self._effects.append(OpenSecond(is_repeated))
        self.next_time = now + CONNECT_SECONDS

    def _give_up(self, reason: str) -> None:
        self.end()
        self._effects.append(EndSession(reason))

    # The second connection ------------------------------------------------------------------------------------------

    def on_second_connected(self, now: float) -> None:
        """There is a second connection, whose handshake begins."""
        if self._has_second and self.state is not LinkState.OPEN:
            self.next_time = now + HANDSHAKE_SECONDS

    def on_second_failed(self, now: float) -> None:
        """The second connection could not be opened, or has ended."""
        if self._has_second:
            self._has_second = False
            self.next_time = now + self._pause_seconds * (0.75 + 0.5 * self._random())
            self._pause_seconds = min(2 * self._pause_seconds, MAXIMUM_PAUSE_SECONDS)

    def on_second_up(self, now: float) -> None:
        """The second connection's handshake is complete: what is sent on it is read."""
        hello, log = self._hello, self.log
        if not self._has_second or hello is None or log is None:
            return
        if not log.is_whole and not self.is_cut_off:  # so much was sent meanwhile: the first one may bring counts again
            self._stay(now)
            return
        # SCL-SES-030
        greeting = copy(hello)
        greeting.previous_session, greeting.resume_token, greeting.received = self.number, self._token, log.received
        self._attempts += 1
        greeting.resume_attempt = self._attempts
        self._is_greeted = True
        self.state = LinkState.RESUMING
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self.next_time = now + WELCOME_SECONDS
        self._effects.append(GreetOnSecond(greeting))

    def on_second_message(self, now: float, message: m.Message) -> None:
        """The scheduler has answered on the second connection."""
        log = self.log
        if self.state is not LinkState.RESUMING or not self._has_second or log is None:
            return
        if isinstance(message, m.Refusal):
            self._give_up(message.message)
        elif not isinstance(message, m.Welcome):
            return
        elif not message.is_resumed:
            self._has_second = False
            self.end()
            self._effects.append(BeginAnother(message))
        elif message.session == self.number and log.can_resume(message.received):
            # SCL-SES-032
            log.acknowledge(message.received)
            self._open(now)
            self._effects.append(UseSecond(log.rest()))
        elif message.received > log.sent or message.session != self.number:
            self._give_up("the scheduler says that it has received what was not sent")
        else:
            self._give_up("so much was to be sent meanwhile that it could not be kept")
