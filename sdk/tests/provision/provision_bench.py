"""A provisioner's core without I/O, for tests of what it starts, lets go and tells."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from scaler.provision.core.pool import PoolSettings
from scaler.provision.core.provision_core import Effect, ListedUnit, Log, ProvisionCore, SendMessage, StartUnits
from scaler_protocol import messages as m

State = m.UnitState


class Bench:
    """A core, its clock, and what it asked for.

    Parameters:
        is_listed: all pools were listed, and there were no units.
    """

    def __init__(self, *pools: PoolSettings, is_open: bool = True, is_listed: bool = True) -> None:
        self.core = ProvisionCore(pools, "run")
        self.now = 0.0
        self.units: List[m.Units] = []
        self.requests: List[m.ReleaseRequest] = []
        self.logs: List[str] = []
        for each in pools if is_listed else ():
            self.core.on_listing(self.now, each.name, self.now, {})
        if is_open:
            self.core.on_opened(self.now)

    def tick(self, seconds: float = 1.0) -> List[Effect]:
        """Time passes; returns what is to be started and stopped."""
        self.now += seconds
        self.core.on_time(self.now)
        return self.effects()

    def effects(self) -> List[Effect]:
        found: List[Effect] = []
        for effect in self.core.take_effects():
            if isinstance(effect, Log):
                self.logs.append(effect.text)
            elif isinstance(effect, SendMessage) and isinstance(effect.message, m.Units):
                self.units.append(effect.message)
            elif isinstance(effect, SendMessage):
                assert isinstance(effect.message, m.ReleaseRequest)
                self.requests.append(effect.message)
            else:
                found.append(effect)
        return found

    def demand(self, missing: int = 0, *connected: str, wanted: Optional[int] = None, **fields: Any) -> List[Effect]:
        """A Demand that counts the last Units; returns what is to be started and stopped."""
        if not self.units:
            self.tick(0.0)
        needs = [m.Capability(name=name, amount=amount) for name, amount in fields.pop("needs", {}).items()]
        slots = m.SlotDemand(
            capabilities=needs, slots_missing=missing, slots_wanted=missing if wanted is None else wanted, **fields
        )
        slots.tasks_unmeasured = fields.get("tasks_unmeasured", 1)
        uses = [m.UnitUse(unit=name, slots=1) for name in connected]
        sequence = self.units[-1].sequence
        self.core.on_demand(self.now, m.Demand(demands=[slots], units=uses, units_sequence=sequence))
        return self.effects()

    def started(self, missing: int, **fields: Any) -> List[str]:
        """The units that a Demand leads to, which their adapter starts."""
        effects = self.demand(missing, **fields)
        starts = [each for each in effects if isinstance(each, StartUnits)]
        assert starts == effects
        names = [name for each in starts for name in each.units]
        self.core.on_started(self.now, names)
        return names

    def fail(self, names: List[str], reason: str) -> None:
        """All units that there are cannot be started, as a listing then shows."""
        self.core.on_start_failed(self.now, names, reason)
        self.core.on_listing(self.now, "p", self.now, {})
        self.effects()

    def listing(self, pool: str = "p", **found: ListedUnit) -> List[Effect]:
        self.now += 1.0
        self.core.on_listing(self.now, pool, self.now, {name.replace("_", "-"): each for name, each in found.items()})
        return self.effects()

    def states(self) -> Dict[str, State]:
        return {each.unit: State(each.state) for each in self.units[-1].units}


def pool(name: str = "p", **fields: Any) -> PoolSettings:
    fields.setdefault("sustain_seconds", 0.0)
    fields.setdefault("maximum", 10)
    return PoolSettings(name, **fields)
