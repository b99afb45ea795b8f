"""How many slots tasks could use, and how many of these there are: arithmetic on counts, without the state.

    TaskLoad of each NeedsKey ──▶ wanted() ──▶ slots ──missing(…, offers)──▶ of them, those that neither workers nor
                                                                             units that start have

Rules:
- Work that is measured wants as many slots as do it in the target time, and never more slots than there are tasks.
- Tasks without a measurement want what they run in, and one slot if they run nowhere: a probe. If none of them runs at
  the next look, workers take long to come, and a second probe would take as long again: then up to LARGEST_PROBE are
  wanted. A pool of that size is full within two looks, however long the tasks take; and a million tasks of a
  microsecond never start more than these.
- Free slots without the memory that tasks need are as good as busy: these tasks want as many slots besides.
- Tasks with the most needs are served first: a slot with a GPU is for tasks that need one, and the others get the rest.
"""

from __future__ import annotations

from math import ceil, inf, log2
from typing import Dict, List, Mapping, NamedTuple, Sequence, Tuple

from scaler_protocol.keys.allow_list import ANY_TENANT

LARGEST_SLOTS = (1 << 32) - 1  # that fits in a message
LARGEST_PROBE = 16  # slots for tasks with the same needs of which nothing is known
PROBE_SECONDS = 0.9  # for a worker to come that tells; two looks are a second apart
_ROUNDING = 1e-9  # of quotients of amounts
_IDLE_SHARE = 0.25  # of a slot, which its mean may be above a whole number


class NeedsKey(NamedTuple):
    """What tasks need of a worker, as far as it depends on what is started.

    Attributes:
        tenant: who owns the tasks.
        capabilities: sorted by name.
        time_request_seconds: for which a worker must stay, rounded up by at most a factor of 1.42; 0: any. It groups
            tasks; `TaskLoad.longest_request_seconds` is what they need.
    """

    tenant: str
    capabilities: Tuple[Tuple[str, float], ...]
    time_request_seconds: float = 0.0


def rounded_time_request(seconds: float) -> float:
    """The next power of the square root of two, so that tasks that differ little count together."""
    return 2.0 ** (ceil(2.0 * log2(seconds)) / 2.0) if seconds > 0 else 0.0


class TaskLoad:
    """The tasks with the same needs that could run now, and those that run.

    Attributes:
        tasks: all of them.
        unmeasured: of them, those of which it is not known how long they take.
        work_microseconds: of the others together.
        occupied: slots that they are in.
        unmeasured_occupied: of these, the slots of unmeasured ones.
        unserved: of the unmeasured ones, those of which it is not known whether a new worker would run them.
        longest_request_seconds: for which a worker must stay that could run any of them; 0: any.
        without_memory: free slots that some of them cannot use, as they wait for memory.
    """

    __slots__ = (
        *("tasks", "unmeasured", "work_microseconds", "occupied", "unmeasured_occupied", "unserved"),
        *("longest_request_seconds", "without_memory"),
    )

    def __init__(self) -> None:
        self.tasks = self.unmeasured = self.occupied = self.unmeasured_occupied = self.unserved = 0
        self.work_microseconds = self.longest_request_seconds = 0.0
        self.without_memory = 0

    def add(self, tasks: int, microseconds: float, occupied: int = 0, is_served: bool = True) -> None:
        """Add tasks of a function.

        Parameters:
            microseconds: how long each takes; 0: not known.
            occupied: how many of them are in a slot.
            is_served: new workers would run them, as far as is known.
        """
        self.tasks += tasks
        self.occupied += occupied
        if microseconds:
            self.work_microseconds += tasks * microseconds
        else:
            self.unmeasured += tasks
            self.unmeasured_occupied += occupied
            self.unserved += 0 if is_served else tasks


class Probes:
    """How many slots are wanted for tasks of which nothing is known, as one looks again and again."""

    def __init__(self) -> None:
        self._seen: Dict[NeedsKey, Tuple[float, int]] = {}  # since when none of them runs, and slots

    def look(self, now: float, loads: Mapping[NeedsKey, TaskLoad], target_seconds: float) -> Dict[NeedsKey, int]:
        """The slots of each. Tasks that say that they may take long need not be waited for."""
        before, self._seen = self._seen, {}
        for key, load in loads.items():
            if load.unmeasured:
                first = LARGEST_PROBE if key.time_request_seconds >= target_seconds else 1
                since, slots = before.get(key, (now, first))
                if load.unmeasured_occupied:
                    since = now  # these will tell
                elif now - since >= PROBE_SECONDS:
                    slots = LARGEST_PROBE
                self._seen[key] = since, slots
        return {key: slots for key, (_, slots) in self._seen.items()}

    def clear(self) -> None:
        """One does not look any more."""
        self._seen.clear()


def wanted(load: TaskLoad, target_seconds: float, probe: int = 1) -> int:
    """How many slots the tasks could use now.

    Parameters:
        target_seconds: in which the work should be done.
        probe: slots for tasks that are not measured; those that are not known to be served have one at most.
    """
    measured = load.tasks - load.unmeasured
    slots = min(measured, ceil(load.work_microseconds / (target_seconds * 1e6))) if measured else 0
    if load.unmeasured:
        slots += max(1, load.unmeasured_occupied, min(probe, load.unmeasured - load.unserved))
    return min(slots + load.without_memory, LARGEST_SLOTS)


def lasting(mean_occupied: float) -> int:
    """How many slots are in use by a mean: work that is done as fast as it comes leaves no other trace."""
    return max(0, ceil(mean_occupied - _IDLE_SHARE))


class Offer:
    """Slots of workers or units that are alike.

    Parameters:
        tenant: whose tasks they run.
        capabilities: of one worker.
        stays_seconds: how long all of them are there, as far as is known now; `inf`: no end is known.
    """

    __slots__ = ("tenant", "stays_seconds", "_slots", "_amounts")

    def __init__(self, tenant: str, capabilities: Mapping[str, float], stays_seconds: float = inf) -> None:
        self.tenant = tenant
        self.stays_seconds = stays_seconds
        self._slots = 0
        self._amounts: Dict[str, float] = dict.fromkeys(capabilities, 0.0)

    def add(self, slots: int, capabilities: Mapping[str, float], stays_seconds: float = inf) -> None:
        """One more worker."""
        self._slots += slots
        self.stays_seconds = min(self.stays_seconds, stays_seconds)
        for name, amount in capabilities.items():
            self._amounts[name] += amount

    def take(self, key: NeedsKey, slots: int, request_seconds: float) -> int:
        """Use up to so many of its slots for tasks that need a worker for so long; returns how many."""
        if not self._slots or not (self.tenant == key.tenant or self.tenant == ANY_TENANT):
            return 0
        if request_seconds > self.stays_seconds:
            return 0
        count = min(slots, self._slots)
        for name, amount in key.capabilities:
            free = self._amounts.get(name, -1.0)
            if free < 0:
                return 0
            if amount and free < amount * count:
                count = min(count, int(free / amount + _ROUNDING))
        self._slots -= count
        for name, amount in key.capabilities:
            self._amounts[name] = max(0.0, self._amounts[name] - amount * count)
        return count


def missing(
    wants: Mapping[NeedsKey, int], offers: Sequence[Offer], loads: Mapping[NeedsKey, TaskLoad] = {}
) -> Dict[NeedsKey, int]:
    """How many slots of each there are not; the offers are used up by it."""
    found: Dict[NeedsKey, int] = {}
    for key in _most_needs_first(wants):
        left = wants[key]
        request_seconds = loads[key].longest_request_seconds if key in loads else key.time_request_seconds
        for offer in offers:
            if not left:
                break
            left -= offer.take(key, left, request_seconds)
        found[key] = left
    return found


def _most_needs_first(keys: Mapping[NeedsKey, int]) -> List[NeedsKey]:
    return sorted(keys, key=lambda key: (-len(key.capabilities), -key.time_request_seconds, key))
