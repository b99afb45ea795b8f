"""How much of the scheduler's time peers may take with what is no work: heartbeats, questions, malformed messages.

Rules:
- Work (tasks, results, objects) is bounded by credit; whatever else a peer sends is bounded here. A peer gets SHARE of
  the time, all peers together get TOTAL_SHARE, and each may use BURST_SECONDS and TOTAL_BURST_SECONDS at once. So a
  flood leaves most of the time, and of a processor that others use too, to those who work.
- A peer whose message was refused may use nothing at once: it is not served until its share has made up for that
  message. So it waits, instead of being disconnected by its next messages and coming again.
- No pause is so long that the peer's session would time out.
- A peer that has used little is never delayed because of others: LITTLE_SHARE, some forty times what heartbeats take.
- Time is that of a clock, not of the processor: on a busy machine, these are shares of what the scheduler gets of it.
- Callers until they have a session, and the ends of connections, share one allowance, NEWCOMERS_SHARE: a connection
  that has ended cannot be charged any more, so what its peer had used is charged here. Beyond it, no caller is
  accepted for a moment. Callers on the network and those at the local socket do not delay each other.
- What faults of callers cost is charged to where they come from: see `caller_origins`.
- Monitors until they are connected, and the ends of their connections, share another one, MONITOR_CALLERS_SHARE: there
  are few of them, and none of them is in a hurry.
- What clients submit of which many tasks wait already is in no hurry, and cancels are not. They get BACKLOG_SHARE, so
  that those go first whose tasks could run.
- No clock: times are arguments.
"""

from __future__ import annotations

from math import inf
from typing import Dict, Tuple

SHARE, BURST_SECONDS = 0.02, 0.1
TOTAL_SHARE, TOTAL_BURST_SECONDS = 0.1, 0.3
LITTLE_SHARE, LITTLE_SECONDS = 0.002, 0.005
NEWCOMERS_SHARE, NEWCOMERS_BURST_SECONDS = 0.2, 1.0
MONITOR_CALLERS_SHARE, MONITOR_CALLERS_BURST_SECONDS = 0.1, 0.2
BACKLOG_SHARE, BACKLOG_BURST_SECONDS = 0.2, 0.1
AT_ONCE_SECONDS = 0.01  # after a pause of several peers


class Allowance:
    """What several peers may take together, as a leaky bucket.

    Parameters:
        share: of the time.
        burst_seconds: that they may use at once.
    """

    def __init__(self, share: float, burst_seconds: float) -> None:
        self.share = share
        self.burst_seconds = burst_seconds
        self._used = 0.0, 0.0

    def charge(self, now: float, seconds: float) -> float:
        """They have taken time; returns for how many seconds none of them should be served."""
        used = _leaked(self._used, now, self.share) + seconds
        self._used = used, now
        return 0.0 if used <= self.burst_seconds else (used - self.burst_seconds + AT_ONCE_SECONDS) / self.share


class Allowances:
    """What peers have used, as leaky buckets.

    Parameters:
        maximum_pause_seconds: after so long, a peer is served again in any case.
    """

    def __init__(self, maximum_pause_seconds: float = inf) -> None:
        self._maximum_pause_seconds = maximum_pause_seconds
        # By peer: seconds used, of which some are forgotten in the course of time; more of them; and when that was so.
        self._used: Dict[bytes, Tuple[float, float, float]] = {}
        self._total = 0.0, 0.0
        self._newcomers = Allowance(NEWCOMERS_SHARE, NEWCOMERS_BURST_SECONDS)
        self._local_newcomers = Allowance(NEWCOMERS_SHARE, NEWCOMERS_BURST_SECONDS)
        self._monitor_callers = Allowance(MONITOR_CALLERS_SHARE, MONITOR_CALLERS_BURST_SECONDS)
        self._backlog = Allowance(BACKLOG_SHARE, BACKLOG_BURST_SECONDS)

    def shorten_pauses(self, maximum_pause_seconds: float) -> None:
        """From now on no pause is longer than this, or than it was allowed to be before."""
        self._maximum_pause_seconds = min(self._maximum_pause_seconds, maximum_pause_seconds)

    def charge(self, peer: bytes, now: float, seconds: float, is_refused: bool = False) -> float:
        """A peer has taken time; returns for how many seconds it should not be served.

        Parameters:
            now: the time, by any clock.
            seconds: what its messages took.
            is_refused: whether one of them was refused.
        """
        before, before_slowly, when = self._used.get(peer, (0.0, 0.0, now))
        used = _leaked((before, when), now, SHARE) + seconds
        used_slowly = _leaked((before_slowly, when), now, LITTLE_SHARE) + seconds
        total = _leaked(self._total, now, TOTAL_SHARE) + seconds
        self._used[peer] = used, used_slowly, now
        self._total = total, now
        pause_seconds = (used - BURST_SECONDS / 2) / SHARE if used > BURST_SECONDS else 0.0
        if is_refused:
            pause_seconds = used / SHARE
        if total > TOTAL_BURST_SECONDS and used_slowly > LITTLE_SECONDS:
            pause_seconds = max(pause_seconds, (total - TOTAL_BURST_SECONDS / 2) / TOTAL_SHARE)
        return min(pause_seconds, self._maximum_pause_seconds)

    def charge_newcomers(self, now: float, seconds: float) -> float:
        """Callers have taken time; returns for how many seconds no others should be accepted."""
        return self._newcomers.charge(now, seconds)

    def charge_local_newcomers(self, now: float, seconds: float) -> float:
        """The same, for callers at the local socket."""
        return self._local_newcomers.charge(now, seconds)

    def charge_monitor_callers(self, now: float, seconds: float) -> float:
        """Monitors that connect have taken time; returns for how many seconds no others should be accepted."""
        return self._monitor_callers.charge(now, seconds)

    def charge_backlog(self, now: float, seconds: float) -> float:
        """A client that can wait has taken time; returns for how many seconds it should not be served."""
        return min(self._maximum_pause_seconds, self._backlog.charge(now, seconds))

    def forget(self, peer: bytes, now: float) -> float:
        """A peer is gone; returns the seconds that it has used and that are not forgotten yet."""
        used, _, when = self._used.pop(peer, (0.0, 0.0, now))
        return _leaked((used, when), now, SHARE)


def _leaked(before: Tuple[float, float], now: float, share: float) -> float:
    used, when = before
    return max(0.0, used - share * (now - when))
