"""The session of a client or worker with its scheduler: handshake, heartbeats, time-outs, reconnecting, leaving.

    start ─▶ Connect ─▶ on_connected ─▶ Hello ─▶ on_message(Welcome) ─▶ Opened ─▶ heartbeats ...
               ▲                                                           │
               └──────────── pause with back-off ◀── Interrupted ◀─────────┘ lost, silent, refused for now
                                                    Ended ◀── left, shut down, refused, gave up

Rules:
- Sans-IO. Times are arguments, in seconds of any monotonic clock; effects are appended to a list that the owner
  performs. `next_time` says when `on_time` has to be called at the latest.
- `table` says what each event does in each state; only `_apply` changes the state.
- Silence and patience are measured while this process runs. The owner judges by a time from before it has read what
  has arrived. If the process was stopped (SIGSTOP, suspend, migration of its machine), the scheduler gets a new term:
  it has not answered heartbeats that were not sent.
- One session, one connection: unsent messages of an old connection must not reach the scheduler in a new session.
- Only a session that lasted, or made progress, resets the time after which the peer gives up: otherwise a scheduler
  that drops its peers again and again would keep them waiting for ever.

Source: session.md of the specification, SCL-SES-001 to SCL-SES-024, SCL-TRN-009.
"""

from __future__ import annotations

from typing import Callable, FrozenSet, List, NamedTuple, Optional, Sequence

from scaler_protocol.session.effects import (
    Connect,
    Disconnect,
    EndCause,
    Ended,
    Interrupted,
    Opened,
    SessionEffect,
    StopConnecting,
    Transmit,
)
from scaler_protocol.session.ids import MAXIMUM_HELLO_BYTES, MAXIMUM_SESSION
from scaler_protocol.session.session_table import TRANSITIONS, Fault, SessionEvent, SessionState
from scaler_protocol.versions import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX, PROTOCOL_MINOR_MIN
from scaler_protocol.wire import messages as m
from scaler_protocol.wire.codec import encode

DEFAULT_SILENCE_TIMEOUT_SECONDS = 60.0
NEVER = float("inf")

_SUSPENDED_SECONDS = 1.0
"""A call of `on_time` that comes later than this means that the process did not run."""

_EXCUSED_PART = 0.25
"""The same in a session, as a part of the silence time-out: a shorter pause does not exhaust it. A process that is
always a little late must still notice that its scheduler is gone."""

_FAR_MICROSECONDS = 5_000
"""A scheduler further away learns that at once, so that it does not keep this peer waiting."""

_LARGEST_LATENCY_MICROSECONDS = (1 << 32) - 1  # the limit of its field in Heartbeat

_IN_SESSION = (SessionState.OPEN, SessionState.ASKING, SessionState.DRAINING)

_OWN: FrozenSet[type] = frozenset(
    {m.Welcome, m.Refusal, m.Heartbeat, m.HeartbeatEcho, m.DisconnectRequest, m.DisconnectResponse}
)
"""The messages that sessions handle."""


class SessionSettings(NamedTuple):
    """
    Parameters:
        heartbeat_interval_seconds: between heartbeats, unless the scheduler's Welcome says otherwise.
        silence_timeout_seconds: a scheduler that is silent for so long is lost, or sooner if its Welcome says so; None:
        as its Welcome says.
        give_up_seconds: how long to look for a scheduler; NEVER: without limit.
        first_timeout_seconds: the same for the first session, for which attempts follow each other closely, because a
        user waits for it. None: as for later sessions.
        connect_timeout_seconds: an attempt to connect that takes longer is given up, because the scheduler may be
        elsewhere by now.
        welcome_timeout_seconds: a Hello without an answer for this long is sent again, on another connection.
        leave_timeout_seconds: how long to wait for the answer to a farewell.
        minimum_heartbeat_interval_seconds: the minimum time between extra heartbeats.
        first_pause_seconds: before the first attempt to reconnect; each further pause is twice as long.
        maximum_pause_seconds: the longest pause.
        lasting_seconds: a session that lasts at least this long does not count as a failed attempt.
    """

    heartbeat_interval_seconds: float
    silence_timeout_seconds: Optional[float] = None
    give_up_seconds: float = NEVER
    first_timeout_seconds: Optional[float] = None
    connect_timeout_seconds: float = 10.0
    welcome_timeout_seconds: float = 10.0
    leave_timeout_seconds: float = 2.0
    minimum_heartbeat_interval_seconds: float = 0.005
    first_pause_seconds: float = 0.05
    maximum_pause_seconds: float = 1.0
    lasting_seconds: float = 5.0


class PeerSession:
    """
    Parameters:
        hello: introduces this peer; versions, intervals and the previous session are filled in here.
        effects: where effects are appended; the owner may append its own to the same list.
        make_heartbeat: returns a Heartbeat with the peer's figures at a time; sequence and latency are filled in here.
        random: returns random numbers from 0 to 1, for jitter in pauses, so that peers do not reconnect all at once.

    Raises ValueError if the Hello is larger than a scheduler reads.
    """

    def __init__(
        self,
        hello: m.Hello,
        settings: SessionSettings,
        effects: List[SessionEffect],
        make_heartbeat: Callable[[float], m.Heartbeat],
        random: Callable[[], float],
    ) -> None:
        # SCL-SEC-013
        hello_bytes = len(encode(hello))
        if hello_bytes > MAXIMUM_HELLO_BYTES:
            text = f"it has {hello_bytes} bytes, and a scheduler reads {MAXIMUM_HELLO_BYTES}"
            raise ValueError(
                f"what this peer tells the scheduler about itself is too long: {text}: name fewer functions"
            )
        self.state = SessionState.APART
        self.number = 0
        """The number of the current session; 0: there is none."""
        self.next_time = NEVER
        self._hello = hello
        self._settings = settings
        self._effects = effects
        self._make_heartbeat = make_heartbeat
        self._random = random
        self._previous_number = 0
        self._is_connecting = False
        self._connect_ends_at = NEVER  # when an attempt to connect is given up
        self._has_been_open = False
        self._excuses_attempt = True  # if this process stops during an attempt to connect
        self._attempt_at = NEVER
        self._pause_seconds = settings.first_pause_seconds
        self._last_failure = "there was no time for an attempt"
        self._started_at = 0.0
        self._heard_at = 0.0
        self._silent_since = 0.0  # when the last message arrived, or when this process went on after a stop
        self._present_at = 0.0  # when a scheduler was last available, not counting failed attempts
        self._greeted_at = 0.0
        self._opened_at = 0.0
        self._left_at = 0.0
        self._is_lasting = False
        self._heartbeat_interval_seconds = settings.heartbeat_interval_seconds
        self._silence_timeout_seconds = DEFAULT_SILENCE_TIMEOUT_SECONDS
        self._sequence = 0
        self._beat_at = NEVER
        self._sent_at = 0.0
        self._latency_microseconds = 0

    @property
    def is_open(self) -> bool:
        """Whether there is a session in which messages may be sent."""
        return self.state in _IN_SESSION

    @property
    def heard_at(self) -> float:
        """When the last message arrived."""
        return self._heard_at

    @property
    def silence_timeout_seconds(self) -> float:
        """After how long a silence this session is over."""
        return self._silence_timeout_seconds

    # Calls of the owner --------------------------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """Begin to connect for the first session."""
        self._started_at = self._heard_at = self._present_at = now
        self._connect(now)

    def leave(self, now: float, message: str = "") -> None:
        """End the session, or the attempts to get one; `Ended` follows, at the latest after the time-out for
        leaving."""
        before = self.state
        if not self._apply(SessionEvent.LEAVE):
            return
        if self.state is SessionState.ENDED:
            self._end(before, EndCause.LEFT, message)
            return
        self._left_at = now
        # SCL-SES-019
        self._send(m.DisconnectRequest(reason=m.DisconnectReason.LEAVING, message=message))
        self._plan()

    def ask_to_drain(self, cause: m.DrainCause, message: str) -> None:
        """A worker in a session wants to finish its running tasks and leave. The owner gets the scheduler's
        DisconnectRequest, behind which no more tasks come; only then may it call `drained`."""
        if self._apply(SessionEvent.ASK):
            # SCL-SES-025
            reason = m.DisconnectReason.DRAINING
            self._send(m.DisconnectRequest(reason=reason, message=message, drain_cause=cause))

    def drained(self, now: float) -> None:
        """A worker that was asked to drain has finished its running tasks."""
        before = self.state
        if self._apply(SessionEvent.DRAINED):
            # SCL-SES-020
            self._send(m.DisconnectResponse())
            self._end(before, EndCause.LEFT, "drained")

    def interrupt(self, now: float, reason: str) -> None:
        """Give up the session and start another one, because its messages cannot be relied on."""
        self._lose(now, reason)

    def beat_soon(self, now: float) -> None:
        """Send a heartbeat at once, or shortly after the last one, because figures have changed."""
        if self.state in _IN_SESSION:
            soon = max(now, self._sent_at + self._settings.minimum_heartbeat_interval_seconds)
            self._beat_at = min(self._beat_at, soon)
            self._plan()

    def made_progress(self, now: float) -> None:
        """The session has made progress, however short it is."""
        if not self._is_lasting and self.state in _IN_SESSION:
            self._is_lasting = True
            self._present_at = now
            self._pause_seconds = self._settings.first_pause_seconds

    # Events ---------------------------------------------------------------------------------------------------

    def on_connected(self, now: float) -> None:
        """The requested connection is established."""
        self._is_connecting = False
        self._connect_ends_at = NEVER
        if self.state is SessionState.APART and self._apply(SessionEvent.CONNECT):
            self._greeted_at = now
            hello = self._hello
            hello.major, hello.minor_min, hello.minor_max = PROTOCOL_MAJOR, PROTOCOL_MINOR_MIN, PROTOCOL_MINOR_MAX
            hello.previous_session = self._previous_number
            hello.heartbeat_interval_milliseconds = int(self._settings.heartbeat_interval_seconds * 1000)
            # SCL-SES-001
            self._send(hello)
        self._plan()

    def on_connect_failed(self, now: float, reason: str) -> None:
        """The requested connection failed."""
        self._is_connecting = False
        self._connect_ends_at = NEVER
        self._last_failure = reason
        if self.state is SessionState.APART:
            self._pause(now)
            self._check_patience(now)
        self._plan()

    def on_disconnected(self, now: float, reason: str) -> None:
        """The connection has ended without having been closed here."""
        # SCL-SES-017, SCL-SES-023
        self._lose(now, reason)

    def on_message(self, now: float, message: m.Message) -> bool:
        """A message has arrived; returns whether it is for the owner, within a session."""
        self._heard_at = self._silent_since = now
        state = self.state
        kind = type(message)
        if state in _IN_SESSION:
            if kind not in _OWN:
                return True
        elif kind not in _OWN or state in (SessionState.APART, SessionState.ENDED):
            return False
        if isinstance(message, m.HeartbeatEcho):
            self._on_echo(now, message)
            return state in _IN_SESSION
        if isinstance(message, m.Heartbeat):
            # SCL-SES-014
            if state is not SessionState.GREETING:
                self._send(m.HeartbeatEcho(sequence=message.sequence))
        elif isinstance(message, m.Welcome):
            self._on_welcome(now, message)
        elif isinstance(message, m.Refusal):
            self._on_refusal(now, message)
        elif isinstance(message, m.DisconnectRequest):
            return self._on_disconnect_request(message)
        elif self._apply(SessionEvent.RESPONSE):
            self._end(state, EndCause.LEFT, "")
        return False

    def on_time(self, now: float) -> None:
        """Do what is due at this time. To be called at `next_time`; calls at other times do no harm.

        Parameters:
            now: pass in the messages that had arrived by then first. They may have waited while this process stopped.
        """
        if self.state is SessionState.APART:
            if self._excuse_suspension(now) and self._is_connecting:
                self._connect_ends_at = now + self._settings.connect_timeout_seconds
            if not self._check_patience(now):
                pass
            elif not self._is_connecting and now >= self._attempt_at:
                self._connect(now)
            elif now >= self._connect_ends_at:
                self._connect_ends_at = NEVER
                self._effects.append(StopConnecting())
        elif self.state is SessionState.GREETING:
            if self._excuse_suspension(now):
                self._greeted_at = now
            elif now >= min(self._greeted_at + self._settings.welcome_timeout_seconds, self._patience_ends_at):
                self._lose(now, f"no answer to Hello for {now - self._greeted_at:.0f} s")
        elif self.state in _IN_SESSION:
            self._on_time_in_session(now)
        elif self.state is SessionState.LEAVING:
            if now >= self._left_at + self._settings.leave_timeout_seconds:
                self._lose(now, "no answer to the goodbye")
        self._plan()

    # ----------------------------------------------------------------------------------------------------------------

    def _on_time_in_session(self, now: float) -> None:
        if now >= self._opened_at + min(self._settings.lasting_seconds, self._settings.give_up_seconds / 2):
            self.made_progress(now)
        if self._is_lasting:
            self._present_at = max(self._present_at, self._heard_at)
        if now > self.next_time + self._silence_timeout_seconds * _EXCUSED_PART:
            self._silent_since = now
        # SCL-SES-016
        if now >= self._silent_since + self._silence_timeout_seconds:  # the same sum as in `_plan`
            silence_seconds = now - self._heard_at
            self._lose(now, f"no message from the scheduler for {silence_seconds:.0f} s: it is down, or the network is")
        # SCL-SES-013
        elif now >= self._beat_at:
            self._beat(now)

    def _beat(self, now: float) -> None:
        self._sequence += 1
        self._sent_at = now
        self._beat_at = now + self._heartbeat_interval_seconds
        heartbeat = self._make_heartbeat(now)
        heartbeat.sequence = self._sequence
        heartbeat.latency_microseconds = self._latency_microseconds
        self._send(heartbeat)

    def _on_echo(self, now: float, echo: m.HeartbeatEcho) -> None:
        # An unexpected echo measures nothing; before the first heartbeat the sequence is 0.
        if 0 < self._sequence == echo.sequence:
            is_first = self._latency_microseconds == 0
            self._latency_microseconds = min(int((now - self._sent_at) * 500_000), _LARGEST_LATENCY_MICROSECONDS)
            if is_first and self._latency_microseconds > _FAR_MICROSECONDS and self._hello.role == m.Role.WORKER:
                self.beat_soon(now)

    def _on_welcome(self, now: float, welcome: m.Welcome) -> None:
        # SCL-SES-007
        if self.state is SessionState.GREETING and not 0 < welcome.session <= MAXIMUM_SESSION:
            why = f"it grants session {welcome.session}, but sessions must be from 1 to {MAXIMUM_SESSION}"
            self._on_foreign(now, why)
            return
        if not self._apply(SessionEvent.WELCOME):
            return
        self.number = welcome.session
        self._has_been_open = self._excuses_attempt = True
        self._is_lasting = False
        self._opened_at = now
        self._beat_at = now  # the first heartbeat follows at once
        own = self._settings
        interval_seconds = welcome.heartbeat_interval_milliseconds / 1000
        self._heartbeat_interval_seconds = interval_seconds or own.heartbeat_interval_seconds
        timeouts = (own.silence_timeout_seconds, welcome.timeout_milliseconds / 1000)
        self._silence_timeout_seconds = min(filter(None, timeouts), default=DEFAULT_SILENCE_TIMEOUT_SECONDS)
        self._effects.append(Opened(welcome))
        self._plan()

    def _on_foreign(self, now: float, why: str) -> None:
        """The program that answers is not a scheduler. If there was a scheduler before, it may come back."""
        if self._has_been_open:
            self._lose(now, f"the program that answers is not a Scaler scheduler: {why}")
            return
        self._apply(SessionEvent.LOST)
        self._apply(SessionEvent.LEAVE)
        self._effects.append(Disconnect())
        self._end(SessionState.GREETING, EndCause.NOT_A_SCHEDULER, why)

    def _on_refusal(self, now: float, refusal: m.Refusal) -> None:
        before = self.state
        # SCL-SES-008, SCL-SES-009, SCL-VER-004
        if refusal.reason == m.RefusalReason.NOT_GREETED:
            event = SessionEvent.NOT_GREETED
        elif refusal.reason == m.RefusalReason.SHUTTING_DOWN:
            event = SessionEvent.SHUTTING_DOWN
        else:
            event = SessionEvent.REFUSED
        if not self._apply(event):
            return
        if self.state is SessionState.APART:
            self._interrupt(now, before, refusal.message, refusal)
        elif event is SessionEvent.REFUSED:
            self._end(before, EndCause.REFUSED, refusal.message, refusal)
        else:
            self._end(before, EndCause.LEFT, refusal.message, refusal)

    def _on_disconnect_request(self, request: m.DisconnectRequest) -> bool:
        before = self.state
        if request.reason == m.DisconnectReason.DRAINING and self._hello.role == m.Role.WORKER:
            is_new = self._apply(SessionEvent.TOLD_TO_DRAIN)
            if self.state is SessionState.DRAINING:
                return is_new
        # SCL-SES-018, SCL-VER-004
        elif not self._apply(SessionEvent.TOLD_TO_LEAVE):
            return False
        if self.state is SessionState.ENDED and before is not SessionState.ENDED:
            self._send(m.DisconnectResponse())
            self._end(before, EndCause.SHUT_DOWN, request.message)
        return False

    def _lose(self, now: float, reason: str) -> None:
        before = self.state
        self._last_failure = reason
        if not self._apply(SessionEvent.LOST):
            return
        if self.state is SessionState.ENDED:
            self._end(before, EndCause.LEFT, reason)
        else:
            self._interrupt(now, before, reason)

    def _interrupt(self, now: float, before: SessionState, reason: str, refusal: Optional[m.Refusal] = None) -> None:
        """Entering state APART: close the connection, and plan the next attempt."""
        was_open = before in _IN_SESSION
        if was_open and self._is_lasting:
            self._present_at = max(self._present_at, self._heard_at)
        self._last_failure = reason
        self._leave_session()
        self._effects += (Disconnect(), Interrupted(reason, was_open, refusal))
        self._pause(now)
        self._excuse_suspension(now)
        self._check_patience(now)
        self._plan()

    def _end(self, before: SessionState, cause: EndCause, reason: str, refusal: Optional[m.Refusal] = None) -> None:
        """Entering state ENDED. The owner closes the connection after sending the waiting messages."""
        self._leave_session()
        self._effects.append(Ended(cause, reason, before in _IN_SESSION, refusal))
        self._plan()

    def _leave_session(self) -> None:
        if self.number:
            self._previous_number, self.number = self.number, 0
        self._is_connecting = False
        self._connect_ends_at = NEVER
        self._beat_at = NEVER

    # Connecting -----------------------------------------------------------------------------------------------------

    def _connect(self, now: float) -> None:
        self._is_connecting = True
        self._connect_ends_at = now + self._settings.connect_timeout_seconds
        self._attempt_at = NEVER
        self._effects.append(Connect())
        self._plan()

    def _pause(self, now: float) -> None:
        # SCL-TRN-009
        self._attempt_at = now + self._pause_seconds * (0.75 + 0.5 * self._random())
        if self._has_been_open or self._settings.first_timeout_seconds is None:
            self._pause_seconds = min(2 * self._pause_seconds, self._settings.maximum_pause_seconds)

    @property
    def _patience_ends_at(self) -> float:
        if not self._has_been_open and self._settings.first_timeout_seconds is not None:
            return self._started_at + self._settings.first_timeout_seconds
        return self._present_at + self._settings.give_up_seconds

    def _excuse_suspension(self, now: float) -> bool:
        """Start the time to give up again if this process was suspended, because it could not look for a scheduler;
        returns whether it was.

        To be called before `_plan`. An attempt itself may block the process, such as to resolve a name: it excuses only
        once.
        """
        if now <= self.next_time + _SUSPENDED_SECONDS or (self._is_connecting and not self._excuses_attempt):
            return False
        if self._is_connecting:
            self._excuses_attempt = False
        self._started_at = self._present_at = now
        return True

    def _check_patience(self, now: float) -> bool:
        """Give up if no scheduler was available for too long; returns whether attempts continue."""
        if now < self._patience_ends_at:
            return True
        if self._is_connecting:
            self._effects.append(Disconnect())
        self._apply(SessionEvent.LEAVE)
        self._end(SessionState.APART, EndCause.GAVE_UP, self._last_failure)
        return False

    # ----------------------------------------------------------------------------------------------------------------

    def _apply(self, event: SessionEvent) -> bool:
        """Change the state as the table says; returns whether the event is not ignored."""
        decision = TRANSITIONS[self.state][event]
        assert not isinstance(decision, Fault), f"{event.value} while {self.state.value}: {decision.why}"
        if not isinstance(decision, SessionState):
            return False
        self.state = decision
        return True

    def _send(self, message: m.Member) -> None:
        self._effects.append(Transmit(message))

    def _plan(self) -> None:
        """Update when something is due next."""
        settings = self._settings
        times: Sequence[float]
        if self.state is SessionState.APART:
            times = (self._attempt_at, self._connect_ends_at, self._patience_ends_at)
        elif self.state is SessionState.GREETING:
            times = (self._greeted_at + settings.welcome_timeout_seconds, self._patience_ends_at)
        elif self.state in _IN_SESSION:
            times = (self._beat_at, self._silent_since + self._silence_timeout_seconds)
        elif self.state is SessionState.LEAVING:
            times = (self._left_at + settings.leave_timeout_seconds,)
        else:
            times = (NEVER,)
        self.next_time = min(times)
