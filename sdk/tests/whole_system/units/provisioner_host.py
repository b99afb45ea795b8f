"""The program of a provisioner around the real core of its policy: its session, its calls, its death and its return.

Rules:
- Another run of the program knows nothing of the machines that the one before has started: it finds them.
- A unit is started only for slots that a Demand misses which counts all units that were started, and once for each.
- A Demand that counts the last Units misses no more than what is wanted less what is on its way. A unit whose worker
  runs is not counted: it may have joined as the scheduler began to count, and be gone when it was done.
- Once all is calm and no client has tasks, all machines are given back.
"""

from __future__ import annotations

from math import ceil
from random import Random
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Set

from whole_system.network import Peer
from whole_system.units.machines import MACHINE_SLOTS, Machine, Machines

from scaler.provision.core.pool import PoolSettings
from scaler.provision.core.provision_core import ListedUnit, ProvisionCore, SendMessage, StartUnits, StopUnit
from scaler_protocol.session.features import PROVISIONING
from scaler_protocol.session.session_table import SessionState
from scaler_protocol.versions import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX, PROTOCOL_MINOR_MIN
from scaler_protocol.wire import messages as m

if TYPE_CHECKING:
    from whole_system.system import System

TICK_SECONDS = 0.25
BEAT_SECONDS = 2.0
LISTING_SECONDS = (0.5, 2.0)
AWAY_SECONDS = (0.5, 4.0)  # beyond the longest call
RECONNECT_SECONDS = 0.5
SILENCE_SECONDS = 12.0
DEATHS = (0.0, 0.1, 0.4)  # of the program, as it starts a unit, and a tenth of that with each tick
BREAKS = (0.0, 0.1, 0.4)  # of its connection, as it asks which units may go, likewise
END_SECONDS = 120.0
LEAVING = (SessionState.ASKING, SessionState.DRAINING)
TO_COME = (m.UnitState.PENDING, m.UnitState.STARTING)


class ProvisionerHost(Peer):
    """One program after the other, of one pool."""

    def __init__(self, system: System) -> None:
        super().__init__(system.world)
        self.name = "provisioner"
        self._system, self._chance = system, Random(f"provisioner: {system.world.plan.seed}")
        chance = self._chance
        most = chance.choice((1, 1, 2, 3))
        self.pool = PoolSettings(
            "pool",
            slots=chance.choice(MACHINE_SLOTS),
            minimum=chance.choice((0, 0, 1)),
            maximum=most,
            idle_seconds=chance.choice((0.5, 2.0)),
            sustain_seconds=0.0,
            start_timeout_seconds=chance.choice((4.0, 600.0)),
        )
        self.machines = Machines(system, chance, most)
        self._listing_seconds = chance.choice(LISTING_SECONDS)
        self._death_rate, self._break_rate = chance.choice(DEATHS), chance.choice(BREAKS)
        self._runs = 0
        self._core: Optional[ProvisionCore] = None
        self._is_open = self.has_ended = False
        self._heard_at = 0.0
        self._next_beat = self._next_listing = 0.0
        self._told = m.Units()  # the last ones of the session
        self._may_start = 0  # units, by the last Demand
        self._uncounted: Set[str] = set()  # units that were started, and that no Demand counts yet
        self._first_told: Dict[str, int] = {}  # by unit: the sequence of the first Units of the session that has it
        self._begin()
        self.world.every(TICK_SECONDS, self._tick, lambda: not self.has_ended)
        self.world.every(1.0, self.machines.step, lambda: not self.has_ended)

    def _begin(self) -> None:
        self._runs += 1
        self._uncounted.clear()  # another program finds them, or not: it has started none
        self._core = ProvisionCore([self.pool], f"run{self._runs}", {self.pool.name: "here"})
        self._next_listing = self.world.now
        self._connect()

    def _connect(self) -> None:
        if self._core is not None and self.connection is None and not self.has_ended:
            self._heard_at = self.now
            self.connect(self._system.network)

    # Its session ----------------------------------------------------------------------------------------------------

    def on_connected(self) -> None:
        self._heard_at = self.now
        hello = m.Hello(role=m.Role.CLIENT, name=self.name, host="provisioners", process_id=self._runs)
        hello.features = [PROVISIONING]
        hello.major, hello.minor_min, hello.minor_max = PROTOCOL_MAJOR, PROTOCOL_MINOR_MIN, PROTOCOL_MINOR_MAX
        self.send(hello)

    def on_connect_failed(self, reason: str) -> None:
        self._lose(reason)

    def on_disconnected(self, reason: str) -> None:
        self._lose(reason)

    def _lose(self, reason: str) -> None:
        self._is_open = False
        if self._core is not None:
            self._core.on_lost()
        self.world.after(RECONNECT_SECONDS, self._connect)

    def on_message(self, message: Any, payload: bytes) -> None:
        self._heard_at = self.now
        if self._core is None:
            return
        if isinstance(message, m.Welcome):
            self._is_open, self._told, self._may_start = True, m.Units(), 0
            self._first_told.clear()
            self._core.on_opened(self.now)
        elif isinstance(message, (m.Refusal, m.DisconnectRequest, m.DisconnectResponse)):
            if not self.has_ended:
                self.drop()
                self._lose("refused")
        elif isinstance(message, m.Heartbeat):
            self.send(m.HeartbeatEcho(sequence=message.sequence))
        elif isinstance(message, m.Demand):
            self._note_demand(message)
            self._core.on_demand(self.now, message)
        elif isinstance(message, m.Release):
            self._core.on_release(self.now, message)
        self._perform()

    # Its life -------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self._core is None:
            return
        if self._happens(self._death_rate / 10):
            self._die()
            return
        if self.connection is not None and self.now > self._heard_at + SILENCE_SECONDS:
            self.drop()
            self._lose("silence")
        elif self._is_open and self._happens(self._break_rate / 10):
            self._break()
        if self._is_open and self.now >= self._next_beat:
            self._next_beat = self.now + BEAT_SECONDS
            self.send(m.Heartbeat())
        if self.now >= self._next_listing:
            self._next_listing = float("inf")  # until it has ended
            self._list(self._core, self.now)
        self._core.on_time(self.now)
        self._perform()

    def _happens(self, rate: float) -> bool:
        return not self.world.is_calm and self._chance.random() < rate

    def _break(self) -> None:
        self.drop()
        self._lose("it broke")

    def _die(self) -> None:
        self.world.say(self.name, "is killed")
        self._core = None
        self._is_open = False
        self.drop()
        self.world.after(2.0 * max(self.machines.call_seconds) + self._chance.choice(AWAY_SECONDS), self._begin)

    def _list(self, core: ProvisionCore, asked: float) -> None:
        def report(found: Optional[Dict[str, ListedUnit]]) -> None:
            if core is not self._core:
                return
            self._next_listing = self.now + self._listing_seconds
            if found is None:
                core.on_listing_failed(self.now, self.pool.name, "no luck")
            else:
                core.on_listing(self.now, self.pool.name, asked, found)
            self._perform()

        self.machines.list(report)

    def _perform(self) -> None:
        core = self._core
        for effect in () if core is None else core.take_effects():
            if isinstance(effect, SendMessage):
                self._send(effect.message)
            elif isinstance(effect, StartUnits):
                for unit in effect.units:
                    self._check_need(unit)
                    self.world.say(self.name, "starts", unit)
                    self.machines.start(unit, self._reporter(core, unit))
                    if self._happens(self._death_rate):
                        self._die()
                        return
            elif isinstance(effect, StopUnit):
                self.machines.stop(effect.unit)

    def _send(self, message: Any) -> None:
        if self._is_open:
            self.send(message)
            if isinstance(message, m.Units):
                self._told = message
                for each in message.units:
                    self._first_told.setdefault(each.unit, message.sequence)
            elif self._happens(self._break_rate):
                self._break()

    def _reporter(self, core: Optional[ProvisionCore], unit: str) -> Callable[[str], None]:
        def report(fault: str) -> None:
            if core is self._core and core is not None:
                if fault:
                    core.on_start_failed(self.now, [unit], fault)
                else:
                    core.on_started(self.now, [unit])
                self._perform()

        return report

    # What it may do ---------------------------------------------------------------------------------------------------

    def _note_demand(self, demand: m.Demand) -> None:
        missing = sum(each.slots_missing for each in demand.demands)
        counted = {each for each, first in self._first_told.items() if first <= demand.units_sequence}
        self._uncounted -= counted
        is_counted = demand.units_sequence and not self._uncounted
        self._may_start = ceil(missing / self.pool.slots) if is_counted else 0
        if demand.units_sequence == self._told.sequence:
            joined = {each.unit for each in demand.units}
            coming = [
                each
                for each in self._told.units
                if each.state in TO_COME and each.unit not in joined and not self.machines.has_worker(each.unit)
            ]
            wanted = sum(each.slots_wanted for each in demand.demands)
            most = max(0, wanted - self.pool.slots * len(coming))
            assert missing <= most, f"{missing} slots are missing, of {wanted}, and {len(coming)} units are to come"

    def _check_need(self, unit: str) -> None:
        self._may_start -= 1
        self._uncounted.add(unit)
        is_lacking = len([each for each in self.machines.there if self._counts_for_minimum(each)]) < self.pool.minimum
        assert self._may_start >= 0 or is_lacking, f"unit {unit} is started, for which no Demand asks"

    def _counts_for_minimum(self, machine: Machine) -> bool:
        """Whether a machine is one that its program can count on: its start has not failed, and its worker stays."""
        known = () if self._core is None else self._core.units
        failed = {each.unit for each in self._told.units}.difference(known)
        worker = machine.worker
        is_leaving = worker is not None and (not worker.is_alive or worker.core.session.state in LEAVING)
        return machine.unit not in failed and not is_leaving

    def end(self) -> None:
        """Without tasks, all machines are given back; then the program ends."""
        most = self.pool.minimum
        self.world.run(self.world.now + END_SECONDS, lambda: self._is_open and len(self._left()) <= most)
        left = [each.unit for each in self._left()]
        assert len(left) <= most, f"units {left} are left without tasks, and {most} should be"
        self.has_ended = True
        self.send(m.DisconnectRequest())

    def _left(self) -> List[Machine]:
        """Machines that there are, but for those that their pool gives up only after its own time."""
        return [each for each in self.machines.there if not each.never_comes]
