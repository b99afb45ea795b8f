"""The plan of a soak: which faults happen when. A seed determines it, but not what they cause: timing is the system's.

    window 1 ── faults, overlapping ── │ rest: nothing fails, all work ends │ window 2 ── ...

Rules:
- A fault names a kind of victim and a number between 0 and 1 that selects one of those that are there at its time.
- The scheduler and the steady worker and client live longer than a window: otherwise nothing could be said about their
  memory. Killing schedulers has an interval of its own.
"""

from __future__ import annotations

import random
from typing import Dict, FrozenSet, Iterator, List, NamedTuple, Sequence, Tuple

LEAST_WINDOW_SECONDS, MOST_WINDOW_SECONDS = 18.0, 40.0
CALM_PART = 0.1  # of the windows: only load
WORKER_TIMEOUT_SECONDS = 3
PAUSES_SECONDS = (0.02, 0.3, 1.0, 2.0 * WORKER_TIMEOUT_SECONDS)  # the last makes a worker lost, and come back
CUTS_SECONDS = (0.1, 1.0, 2.0, 2.5 * WORKER_TIMEOUT_SECONDS)


class FaultKind(NamedTuple):
    action: str
    victim: str
    weight: float
    seconds: Tuple[float, ...] = (0.0,)  # how long, one of these
    needs: str = ""  # what this machine must offer: see `Means`

    @property
    def name(self) -> str:
        return f"{self.action} {self.victim}"


KINDS = (
    FaultKind("kill", "processor", 10),
    FaultKind("pause", "processor", 5, PAUSES_SECONDS),
    FaultKind("kill", "agent", 1),
    FaultKind("pause", "agent", 2, PAUSES_SECONDS),
    FaultKind("kill", "fork server", 1),
    FaultKind("pause", "fork server", 1, PAUSES_SECONDS),
    FaultKind("pause", "scheduler", 0.7, PAUSES_SECONDS[:3]),
    FaultKind("kill", "client", 1),
    FaultKind("pause", "client", 2, PAUSES_SECONDS),
    FaultKind("pause", "monitor", 0.5, PAUSES_SECONDS),
    FaultKind("break", "link", 1),
    FaultKind("stall up", "link", 0.7, CUTS_SECONDS),
    FaultKind("stall down", "link", 0.7, CUTS_SECONDS),
    FaultKind("stall both ways", "link", 0.7, CUTS_SECONDS),
    FaultKind("unplug", "network", 1, CUTS_SECONDS, "namespaces"),
    FaultKind("fill", "memory", 0.5, (1.0, 4.0), "file systems"),
    FaultKind("fill", "disk", 0.7, (1.0, 4.0), "file systems"),
    FaultKind("fill", "memory and disk", 0.5, (0.5, 2.0), "file systems"),
    FaultKind("squeeze", "tight worker", 0.7, (0.5, 2.0)),
    FaultKind("starve", "scheduler", 0.7, (0.5, 2.0)),
)
SCHEDULER_KILL = FaultKind("kill", "scheduler", 0)
ALL = frozenset(kind.name for kind in (*KINDS, SCHEDULER_KILL))
ON_DEMAND = frozenset({"starve scheduler"})
"""Faults that a run has only if it is told to: schedulers do not survive them yet."""


class Fault(NamedTuple):
    at_seconds: float  # since its window began
    name: str
    choice: float
    seconds: float

    def __str__(self) -> str:
        duration = f" for {self.seconds:g} s" if self.seconds else ""
        return f"{self.at_seconds:6.2f} s: {self.name}{duration} ({self.choice:.2f})"


class Window(NamedTuple):
    number: int
    seconds: float
    faults: List[Fault]

    def __str__(self) -> str:
        counts: Dict[str, int] = {}
        for fault in self.faults:
            counts[fault.name] = counts.get(fault.name, 0) + 1
        what = ", ".join(f"{count} x {name}" for name, count in sorted(counts.items())) or "no faults"
        return f"window {self.number}: {self.seconds:.0f} s, {what}"


def scheduler_kill_interval_seconds(minutes: float) -> float:
    """How long a scheduler lives: a sixth of the run, in which its memory is watched, and at most 20 minutes."""
    return min(max(10.0 * minutes, 20.0), 1200.0)


def names_without(words: Sequence[str]) -> FrozenSet[str]:
    """The names of the faults that contain none of these words."""
    return frozenset(name for name in ALL if not any(word in name for word in words))


def windows(seed: int, minutes: float, means: FrozenSet[str], names: FrozenSet[str] = ALL) -> Iterator[Window]:
    """One window after the other, without end.

    Parameters:
        minutes: how long the run lasts.
        means: what this machine offers, for faults that need it.
        names: of the faults that may happen.
    """
    source = random.Random(seed)
    kinds = [kind for kind in KINDS if kind.name in names and (not kind.needs or kind.needs in means)]
    interval_seconds = scheduler_kill_interval_seconds(minutes)
    life_seconds = 0.0  # of the scheduler
    number = 0
    while True:
        number += 1
        seconds = source.uniform(LEAST_WINDOW_SECONDS, MOST_WINDOW_SECONDS)
        pace_seconds = source.choice((0.2, 0.4, 0.8, 1.6))
        faults: List[Fault] = []
        at_seconds = source.expovariate(1 / pace_seconds)
        is_calm = (number > 1 and source.random() < CALM_PART) or not kinds
        while at_seconds < seconds and not is_calm:
            kind = source.choices(kinds, [kind.weight for kind in kinds])[0]
            if SCHEDULER_KILL.name in names and life_seconds + at_seconds >= interval_seconds:
                kind, life_seconds = SCHEDULER_KILL, -at_seconds
            faults.append(Fault(at_seconds, kind.name, source.random(), source.choice(kind.seconds)))
            at_seconds += source.expovariate(1 / pace_seconds)
        life_seconds += seconds
        yield Window(number, seconds, faults)
