"""A pool: units that are alike, how many there may be, and what is known from earlier ones.

Rules:
- A start that fails delays the next one, each time for twice as long, and then only one unit is tried. After
  FAILURES_OF_A_PAUSE in a row the pool is paused, with the reason, until the delay is over. A unit whose worker
  connects ends that. Units that were begun before the last failure count with it: twenty that an API server refuses at
  once are one failure.
- None is started before its units were listed, and after a start that failed, before they were listed again: there may
  be units of an earlier run, and a command that took too long may have started one.
- The time from start to connection is learned: work that ends sooner is not worth a unit. How long it takes once a unit
  runs is learned apart from that: for how long units stay idle has nothing to do with the queue of a batch system.
"""

from __future__ import annotations

from math import ceil, inf
from typing import Mapping, NamedTuple

FAILURES_OF_A_PAUSE = 3
FIRST_DELAY_SECONDS = 2.0
LONGEST_DELAY_SECONDS = 3600.0
START_AND_END_SECONDS = 30.0
"""Of a lifetime, at most a quarter: a worker connects after its start, and leaves before its end."""
_BOOT_WEIGHT = 0.3  # of the newest measurement


class PoolSettings(NamedTuple):
    """What a user says of a pool.

    Attributes:
        name: for people, and a part of the ids of its units.
        slots: of each unit.
        capabilities: of each unit.
        minimum: units that there are in any case.
        maximum: units that there are at most.
        priority: pools with a higher one are used first.
        cost: of equal priority, the cheaper pool is used first; any unit of money or effort.
        backlog: units that may wait to be connected at a time.
        idle_seconds: after which a unit that has no tasks goes.
        sustain_seconds: for which slots must be missing before a unit is started.
        start_timeout_seconds: after which a unit that has not connected has failed.
        lifetime_seconds: of a unit; 0: no end is known.
    """

    name: str
    slots: int = 1
    capabilities: Mapping[str, float] = {}
    minimum: int = 0
    maximum: int = 1
    priority: int = 0
    cost: float = 1.0
    backlog: int = 100
    idle_seconds: float = 60.0
    sustain_seconds: float = 0.5
    start_timeout_seconds: float = 600.0
    lifetime_seconds: float = 0.0

    @property
    def longest_task_seconds(self) -> float:
        """The longest time for which a task may ask that a new unit is to run; 0: any."""
        return max(0.75 * self.lifetime_seconds, self.lifetime_seconds - START_AND_END_SECONDS)

    def slots_for(self, needs: Mapping[str, float], time_request_seconds: float) -> int:
        """How many tasks with these needs a unit runs at once; 0: none."""
        if self.lifetime_seconds and time_request_seconds > self.longest_task_seconds:
            return 0
        slots = self.slots
        for name, amount in needs.items():
            offered = self.capabilities.get(name, -1.0)
            if offered < amount:
                return 0
            if amount:
                slots = min(slots, int(offered / amount + 1e-9))
        return slots


class Pool:
    """What is learned of a pool while the program runs.

    Attributes:
        boot_seconds: from start to connection; 0: not known yet.
        run_up_seconds: of these, from when a unit was seen to wait no longer.
        failures: starts in a row that failed.
        reason: of the last failure.
        wanted_since: when slots for it began to be missing; `inf`: they are not.
        is_listed: the last listing has all units that there are.
        listing_fault: why they cannot be listed; empty if they can, or if nothing is known yet.
    """

    def __init__(self, settings: PoolSettings) -> None:
        self.settings = settings
        self.boot_seconds = self.run_up_seconds = 0.0
        self.failures = 0
        self.reason = ""
        self.wanted_since = inf
        self.next_start = -inf
        self.is_asking = False  # which units can go
        self.is_listed = False
        self.listing_fault = ""
        self._failed_at = -inf
        self._counted_at = -inf  # when the last failure was

    def on_connected(self, seconds: float, run_up_seconds: float) -> None:
        """A unit took so long from start to connection, and so long since it was seen to wait no longer."""
        self.failures, self.reason, self.next_start = 0, "", -inf
        weight = _BOOT_WEIGHT if self.boot_seconds else 1.0
        self.boot_seconds += weight * (max(0.0, seconds) - self.boot_seconds)
        self.run_up_seconds += weight * (max(0.0, run_up_seconds) - self.run_up_seconds)

    def on_failed(self, now: float, begun: float, reason: str) -> None:
        """A unit, begun at this time, did not come, or ended before it connected."""
        self.reason = reason
        if begun <= self._counted_at:
            return
        self.failures += 1
        self._counted_at = now
        delay_seconds = min(FIRST_DELAY_SECONDS * 2.0 ** min(self.failures - 1, 20), LONGEST_DELAY_SECONDS)
        self.next_start = now + delay_seconds

    def on_start_failed(self, now: float) -> None:
        """A unit could not be started; perhaps it was, and nothing said so."""
        self.is_listed, self._failed_at = False, now

    def on_listing(self, asked: float) -> None:
        """Its units were listed, from this time on."""
        self.listing_fault = ""
        self.is_listed |= asked >= self._failed_at

    def on_listing_failed(self, reason: str) -> None:
        """Its units could not be listed."""
        self.is_listed, self.listing_fault = False, reason

    def may_start(self, now: float, present: int, to_come: int) -> int:
        """How many units may be started now.

        Parameters:
            present: units that there are, those that start or stop included.
            to_come: of these, the ones that have not connected yet.
        """
        if now < self.next_start or not self.is_listed:
            return 0
        most_to_come = 1 if self.failures else self.settings.backlog
        return max(0, min(self.settings.maximum - present, most_to_come - to_come))

    def worth_starting(self, missing: int, there: int, work_seconds: float, unmeasured: int) -> int:
        """How many of the missing slots have enough work that it is not done before they are there."""
        if unmeasured or not self.boot_seconds:
            return missing
        return max(0, min(missing, ceil(work_seconds / self.boot_seconds) - there))

    @property
    def idle_seconds(self) -> float:
        """After which a unit goes: never sooner than it takes to get another one, if no queue is in between."""
        return max(self.settings.idle_seconds, self.run_up_seconds)

    def note(self, now: float) -> str:
        """Why it starts no units, for people; empty if it does."""
        if self.listing_fault:
            return f"the pool {self.settings.name} starts none while its units cannot be listed: {self.listing_fault}"
        if self.failures < FAILURES_OF_A_PAUSE or now >= self.next_start:
            return ""
        name, count = self.settings.name, self.failures
        return f"the pool {name} is paused after {count} failed starts, and tries again later: {self.reason}"
