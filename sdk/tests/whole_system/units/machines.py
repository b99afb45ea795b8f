"""Machines that a provisioner starts and stops: each boots, and then runs one worker.

    start, stop, list ──▶ Machines ──▶ UnitWorker      calls take time, and some fail, or say that they have

Rules:
- What a list has is what there was at some moment between the question and the answer.
- A machine goes with its worker: one that has drained is not listed any more, and one that was killed is listed as
  failed for a while.
- Chance is drawn apart from all other, so that histories without machines stay what they are.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Set

from whole_system.worker_host import WorkerHost

from scaler.provision.core.provision_core import ListedUnit
from scaler_protocol import messages as m

if TYPE_CHECKING:
    from whole_system.system import System

CALL_SECONDS = ((0.0, 0.05, 0.4), (0.0, 0.4, 3.0), (0.4, 3.0))
BOOT_SECONDS = ((0.1,), (0.1, 1.0), (1.0, 4.0))
FAILED_SECONDS = 3.0  # that a machine which has failed is listed
START_FAILURES = (0.0, 0.3, 0.6)
LIST_FAILURES = (0.0, 0.2, 0.6)
SHUTDOWN_SECONDS = (0.0, 2.0, 5.0)  # of a machine, after the end of its worker
DEATHS = (0.0, 0.0, 0.02)  # of a machine, in each second
MACHINE_SLOTS = (1, 1, 2)


class UnitWorker(WorkerHost):
    """The worker of a machine."""

    def __init__(self, system: System, unit: str) -> None:
        self.unit = unit
        key = system.tenants.of_worker(True)
        super().__init__(
            system.world, system.scheduler, system.tasks, unit, key, system.new_nested_user, system.links, False, True
        )
        self.stays = False  # it may be released

    def ask_to_drain(self) -> None:
        """Its machine is stopped, which its worker learns as from a supervisor."""
        self._signals += 1
        self.is_stopping |= self._signals > 1
        is_at_once = self._signals > 1 or not self.has_session
        self._stops_tasks_at = min(self._stops_tasks_at, self.now + (0.0 if is_at_once else self._drain_seconds))
        self.core.on_signal("SIGTERM", True, self.now)
        self._turn()

    @property
    def running(self) -> List[int]:
        """The processors that have tasks."""
        return [each.number for each in self.processors.values() if each.held and not each.is_dismissed]


class Machine:
    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.worker: Optional[UnitWorker] = None  # once it has booted
        self.is_booted = False
        self.never_comes = False
        self.is_ending = False
        self.failed_at: Optional[float] = None
        self.ended_at: Optional[float] = None

    @property
    def is_there(self) -> bool:
        """Whether it costs its user something."""
        return self.failed_at is None and self.ended_at is None


class Machines:
    """All machines of one pool.

    Parameters:
        most: that there may be at a time.
    """

    def __init__(self, system: System, chance: Random, most: int) -> None:
        self._system, self._chance, self.most = system, chance, most
        self._world = system.world
        self.by_unit: Dict[str, Machine] = {}
        self._boot_seconds = chance.choice(BOOT_SECONDS)
        self._start_failures = chance.choice(START_FAILURES)
        self._list_failures = chance.choice(LIST_FAILURES)
        self._deaths = chance.choice(DEATHS)
        self.call_seconds = chance.choice(CALL_SECONDS)
        self._shutdown_seconds = chance.choice(SHUTDOWN_SECONDS)
        self._waiting: Set[str] = set()  # as it was listed last

    @property
    def there(self) -> List[Machine]:
        """Those that there are."""
        return [each for each in self.by_unit.values() if each.is_there]

    def has_worker(self, unit: str) -> bool:
        """Whether a machine has booted, and its worker has begun."""
        machine = self.by_unit.get(unit)
        return machine is not None and machine.worker is not None

    def _happens(self, rate: float) -> bool:
        return not self._world.is_calm and self._chance.random() < rate

    # Calls ----------------------------------------------------------------------------------------------------------

    def start(self, unit: str, report: Callable[[str], None]) -> None:
        """Start a machine; `report` gets why that failed, or nothing. It may fail, and there is a machine."""
        assert unit not in self.by_unit, f"unit {unit} is started twice"
        first, second = self._chance.choice(self.call_seconds), self._chance.choice(self.call_seconds)
        fails = self._happens(self._start_failures)
        comes = not fails or self._chance.random() < 0.5
        if comes:
            machine = self.by_unit[unit] = Machine(unit)
            machine.never_comes = self._happens(self._start_failures / 2)
            there = len(self.there)
            assert there <= self.most, f"{there} machines, and at most {self.most} may be"
            self._world.after(first + self._chance.choice(self._boot_seconds), lambda: self._boot(machine))
        self._world.after(first + second, lambda: report("no luck" if fails else ""))

    def stop(self, unit: str) -> None:
        """Stop a machine; it may be gone. One that waited when it was listed may have begun: then it drains."""
        machine = self.by_unit.get(unit)
        if machine is not None and machine.worker is not None and unit not in self._waiting:
            running = machine.worker.running
            assert not running, f"unit {unit} is stopped while its processors {running} have tasks"
        self._world.after(self._chance.choice(self.call_seconds), lambda: self._stop(unit))

    def list(self, report: Callable[[Optional[Dict[str, ListedUnit]]], None]) -> None:
        """List the machines; `report` gets None if that fails."""
        first, second = self._chance.choice(self.call_seconds), self._chance.choice(self.call_seconds)
        fails = self._happens(self._list_failures)

        def look() -> None:
            found = None if fails else self._listing()
            self._world.after(second, lambda: self._report(found, report))

        self._world.after(first, look)

    def _report(self, found: Optional[Dict[str, ListedUnit]], report: Callable[[Any], None]) -> None:
        if found is not None:
            self._waiting = {unit for unit, each in found.items() if each.state == m.UnitState.PENDING}
        report(found)

    # What happens -----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Some time is over: machines whose workers have ended go, and some machine is lost."""
        for machine in self.there:
            worker = machine.worker
            if worker is None:
                continue
            if worker.is_alive and self._happens(self._deaths):
                self._world.say("machine of", machine.unit, "is lost")
                worker.crash()
            if not worker.is_alive and not worker.has_finished:
                machine.failed_at = self._world.now
            elif not worker.is_alive and not machine.is_ending:
                machine.is_ending = True
                self._world.after(self._shutdown_seconds, partial(self._end, machine))

    def _end(self, machine: Machine) -> None:
        machine.ended_at = self._world.now

    def _boot(self, machine: Machine) -> None:
        machine.is_booted = True
        if machine.is_there and not machine.never_comes:
            self._world.say("machine of", machine.unit, "has booted")
            machine.worker = UnitWorker(self._system, machine.unit)
            self._system.take_in(machine.worker)

    def _stop(self, unit: str) -> None:
        machine = self.by_unit.get(unit)
        if machine is None or not machine.is_there:
            return
        self._world.say("machine of", unit, "is stopped")
        if machine.worker is None:
            machine.ended_at = self._world.now
        elif machine.worker.is_alive:
            machine.worker.ask_to_drain()

    def _listing(self) -> Dict[str, ListedUnit]:
        self.step()
        found: Dict[str, ListedUnit] = {}
        for unit, machine in self.by_unit.items():
            if machine.is_there:
                found[unit] = ListedUnit(m.UnitState.STARTING if machine.is_booted else m.UnitState.PENDING)
            elif machine.failed_at is not None and self._world.now < machine.failed_at + FAILED_SECONDS:
                found[unit] = ListedUnit(m.UnitState.FAILED, "its machine is lost")
        return found
