"""Why and when a worker leaves by itself, and how much time its tasks have until then.

    signals, notices, idle time, end of life ──▶ Departure ──▶ AgentCore: asks to be drained, or leaves

Rules:
- Nothing is sent from here: the core asks what is due.
- A worker that drains can get another reason to; this can only shorten its time. The first reason is the one it tells.
- Supervisors forward signals, and some systems send them to all processes of a program: Slurm, and systemd by
  `KillMode=control-group`. So signals are counted by the way they came, and one that came both ways counts once.
- SIGHUP never counts as a second signal: systemd sends it together with SIGTERM if told so (`SendSIGHUP=`).
- Of a life that is shorter than twice the time to drain, half is left for tasks to begin in.
"""

from __future__ import annotations

from typing import List, NamedTuple, Optional

from scaler.worker.worker_settings import WorkerSettings
from scaler_protocol import messages as m
from scaler_protocol.session.peer_session import NEVER

HAND_OVER_SECONDS = 3.0
"""How much longer than its time to drain a worker stays if it has results that only it has."""

FAREWELL_SECONDS = 2.0
"""For the goodbye, and for the end of its processes."""

_LONGEST_MILLISECONDS = (1 << 64) - 1  # the limit of its field in Hello

_INSISTING = ("SIGTERM", "SIGINT")


class Reason(NamedTuple):
    """Why a worker drains: in a word, and in words."""

    cause: m.DrainCause
    text: str


class Departure:
    """The reasons and times of one worker. Times are those of the core's clock."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self.tasks_end_at = NEVER
        """When a worker that drains stops what still runs."""
        self._text = ""
        self._began_at = 0.0
        self._over_at = NEVER  # when it leaves, whatever it has
        self._is_prolonged = False
        self._drains_at = NEVER  # because of its end of life
        self._last_tasks_end_at = NEVER  # because of its end of life
        self._was_noticed = False
        self._idle_since: Optional[float] = None
        self._signals: List[int] = [0, 0]  # how many came directly, and from the supervisor
        self._requests = 0

    def start(self, now: float) -> None:
        """The worker starts, perhaps in the place of one that was killed."""
        end = self._settings.end_of_life
        if end is None:
            return
        timeout_seconds = self._settings.drain_timeout_seconds
        whole_seconds = timeout_seconds + HAND_OVER_SECONDS + FAREWELL_SECONDS
        kept_seconds = max(0.0, min(whole_seconds, (end - now) / 2))
        self._drains_at = end - kept_seconds
        self._last_tasks_end_at = self._drains_at + kept_seconds * timeout_seconds / whole_seconds

    @property
    def next_time(self) -> float:
        """When `due` has to be asked, or what still runs is stopped."""
        return min(self._drains_at, self._over_at, self._idle_at)

    def remaining_milliseconds(self, now: float) -> int:
        """For how long tasks may run here, at least 1; 0: no end is known."""
        if self._last_tasks_end_at == NEVER:
            return 0
        return min(max(1, int((self._last_tasks_end_at - now) * 1000)), _LONGEST_MILLISECONDS)

    # Reasons --------------------------------------------------------------------------------------------------------

    def count_signal(self, name: str, is_forwarded: bool) -> int:
        """How often the worker was asked to stop, this signal included; 0: it is not the first, and does not count.

        Parameters:
            is_forwarded: it came from the supervisor.
        """
        if name not in _INSISTING:
            return 0 if self._requests else 1
        self._signals[is_forwarded] += 1
        before, self._requests = self._requests, max(self._signals)
        return self._requests if self._requests > before else 0

    @property
    def watches_idleness(self) -> bool:
        return self._settings.idle_timeout_seconds > 0.0

    @property
    def _idle_at(self) -> float:
        return NEVER if self._idle_since is None else self._idle_since + self._settings.idle_timeout_seconds

    def note_idleness(self, is_idle: bool, now: float) -> bool:
        """Whether the worker has a session and no tasks; returns whether that has changed."""
        if is_idle is (self._idle_since is not None):
            return False
        self._idle_since = now if is_idle else None
        return True

    def due(self, now: float, is_idle: bool) -> Optional[Reason]:
        """Why the worker should drain from now on, if it should."""
        if now >= self._drains_at:
            self._drains_at = NEVER
            self._limit(self._last_tasks_end_at)
            return Reason(m.DrainCause.LIFETIME, "its end of life is near (lifetime_seconds)")
        if now >= self._idle_at:
            self._idle_since = None
            if is_idle:
                seconds = self._settings.idle_timeout_seconds
                return Reason(m.DrainCause.IDLE, f"no tasks for {seconds:g} s (idle_timeout_seconds)")
        return None

    # Draining -------------------------------------------------------------------------------------------------------

    def is_first_notice(self) -> bool:
        """Whether there was none before: Slurm may repeat a signal for a minute."""
        was_given, self._was_noticed = self._was_noticed, True
        return not was_given

    def begin(self, text: str, now: float) -> None:
        """The worker drains from now on, for as long as it takes, or until its end of life."""
        if not self._text:
            self._text, self._began_at = text, now
        self._idle_since = None
        self._limit(self._last_tasks_end_at)

    def limit(self, now: float) -> None:
        """What runs may take no longer than the time to drain."""
        self._limit(now + self._settings.drain_timeout_seconds)

    def _limit(self, end: float) -> None:
        if end < self.tasks_end_at:
            self.tasks_end_at = self._over_at = end

    def is_over(self, now: float, owes_results: bool) -> bool:
        """Whether a worker whose tasks should have ended leaves now.

        Parameters:
            owes_results: it has results that only it has, and that the scheduler has not fetched yet.
        """
        if owes_results and not self._is_prolonged:
            self._is_prolonged = True
            self._over_at = self.tasks_end_at + HAND_OVER_SECONDS
        return not owes_results or now >= self._over_at

    def text_of_end(self, now: float) -> str:
        """Why tasks were stopped, for the errors of those that do not run again."""
        return f"{self._text}, and what it ran had not ended {now - self._began_at:.0f} s later (drain_timeout_seconds)"
