"""Strikes with the faults of a plan, undoes them in time, and remembers them: only a fault explains an error."""

from __future__ import annotations

import heapq
import itertools
import signal
import time
from functools import partial
from typing import Callable, Dict, List, NamedTuple, Tuple

from soak.fault_plan import Fault
from soak.machine_means import feed, starve
from soak.soaked_cluster import SoakedCluster

AFTERMATH_SECONDS = 12.0
"""How long after its end a fault may show: the time-outs of both sides, reconnecting, and the start of a processor."""

STOP = "pause machine"


class Struck(NamedTuple):
    """A fault that happened, at times of the monotonic clock."""

    name: str
    victim: str
    began: float
    ended: float  # planned; a kill ends when it begins

    def __str__(self) -> str:
        return f"{self.name}: {self.victim}, {self.ended - self.began:.2f} s"


class FaultInjector:
    def __init__(self, cluster: SoakedCluster) -> None:
        self._cluster = cluster
        self._due: List[Tuple[float, int, Callable[[], None]]] = []  # what undoes faults, by when: a heap
        self._numbers = itertools.count()
        self._counts_of_state: Dict[str, int] = {}  # overlapping faults of one state: the last one's end undoes it
        self._stops: List[Tuple[float, float]] = []  # of the whole machine: began, ended
        self.struck: List[Struck] = []
        self.counts: Dict[str, int] = {}

    def strike(self, fault: Fault, now: float) -> None:
        action, _, _ = fault.name.partition(" ")
        perform = {"kill": self._kill, "pause": self._pause, "unplug": self._unplug, "squeeze": self._squeeze}
        perform["starve"] = self._starve
        if "link" in fault.name:
            victim = self._disturb_link(fault, now)
        elif action == "fill":
            victim = self._fill(fault, now)
        else:
            victim = perform[action](fault, now)
        if victim:
            self.struck.append(Struck(fault.name, victim, now, now + fault.seconds))
            self.counts[fault.name] = self.counts.get(fault.name, 0) + 1

    def undo(self, until: float) -> None:
        """End the faults whose time is over by then."""
        while self._due and self._due[0][0] <= until:
            heapq.heappop(self._due)[2]()

    def undo_all(self) -> None:
        self.undo(float("inf"))

    def explains(self, began: float, ended: float, words: Tuple[str, ...]) -> bool:
        """Whether a fault with one of these words in its name may have had an effect between these times."""
        for struck in reversed(self.struck):
            if struck.began <= ended and began <= self._shows_until(struck):
                if any(word in struck.name for word in words):
                    return True
        return False

    def _shows_until(self, struck: Struck) -> float:
        until = struck.ended + AFTERMATH_SECONDS
        for began, ended in self._stops:
            if struck.began < ended and began < until:
                until += ended - began
        return until

    def note_stop(self, began: float, ended: float) -> None:
        """The soak itself was stopped, as is all that runs on a machine that stops: what faults cause comes later."""
        self._stops.append((began, ended))
        self.struck.append(Struck(STOP, "all processes", began, ended))
        self.counts[STOP] = self.counts.get(STOP, 0) + 1

    def last(self, count: int) -> List[str]:
        now = time.monotonic()
        return [f"{now - each.began:.1f} s ago: {each}" for each in self.struck[-count:]]

    # Faults: each returns whom it hit, empty if there is no such victim now ------------------------------------------

    def _kill(self, fault: Fault, now: float) -> str:
        what = fault.name.partition(" ")[2]
        steady = self._cluster.steady_pids()
        victims = [each for each in self._cluster.processes()[what] if what == "processor" or each.pid not in steady]
        if not victims:
            return ""
        victim = victims[int(fault.choice * len(victims))]
        victim.signal(signal.SIGKILL)
        return f"process {victim.pid}"

    def _pause(self, fault: Fault, now: float) -> str:
        victims = self._cluster.processes()[fault.name.partition(" ")[2]]
        if not victims:
            return ""
        victim = victims[int(fault.choice * len(victims))]
        victim.signal(signal.SIGSTOP)
        self._later(now + fault.seconds, lambda: victim.signal(signal.SIGCONT))
        return f"process {victim.pid}"

    def _disturb_link(self, fault: Fault, now: float) -> str:
        names = sorted(self._cluster.forwarders)
        name = names[int(fault.choice * len(names))]
        forwarder = self._cluster.forwarders[name]
        word = fault.name.rpartition(" ")[0]
        if word == "break":
            forwarder.send(word)
        else:
            self._set(f"link {name}", now + fault.seconds, lambda: forwarder.send(word), lambda: forwarder.send("pass"))
        return name

    def _unplug(self, fault: Fault, now: float) -> str:
        machine = self._cluster.machine
        self._set("plug", now + fault.seconds, lambda: machine.plug(False), lambda: machine.plug(True))
        return "the cable of the other host"

    def _fill(self, fault: Fault, now: float) -> str:
        machine = self._cluster.machine
        for word, directory in (("memory", machine.memory), ("disk", machine.disk)):
            if word in fault.name:
                fill, free = partial(machine.fill, directory), partial(machine.free, directory)
                self._set(f"room in {word}", now + fault.seconds, fill, free)
        return "the objects' file systems"

    def _squeeze(self, fault: Fault, now: float) -> str:
        machine, worker = self._cluster.machine, self._cluster.workers["tight"]
        pids = [worker.process.pid, *self._cluster.descendants(worker)]
        until = now + fault.seconds
        self._set("tight", until, lambda: machine.squeeze(True, pids), lambda: machine.squeeze(False, pids))
        return f"{len(pids)} processes"

    def _starve(self, fault: Fault, now: float) -> str:
        pid = self._cluster.scheduler.process.pid
        self._set("starved", now + fault.seconds, lambda: starve(pid), lambda: feed(pid))
        return f"process {pid}"

    def _set(self, state: str, until: float, begin: Callable[[], None], end: Callable[[], None]) -> None:
        """Begin a state of which there is only one, and end it when its last fault ends."""
        self._counts_of_state[state] = self._counts_of_state.get(state, 0) + 1
        begin()

        def end_one() -> None:
            self._counts_of_state[state] -= 1
            if not self._counts_of_state[state]:
                end()

        self._later(until, end_one)

    def _later(self, at: float, undo: Callable[[], None]) -> None:
        heapq.heappush(self._due, (at, next(self._numbers), undo))
