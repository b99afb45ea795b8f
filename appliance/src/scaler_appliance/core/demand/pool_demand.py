"""What tasks could use of each pool that provisioners have named: arithmetic on figures, without the state.

    PoolNeed of each set of needs ──▶ shared_among(…, pools) ──▶ PoolDemand of each pool

Rules:
- Pools are used as their provisioner would: in its order, each up to its maximum. It may start fewer, for example
  because the work is done before a unit is there, or because a pool is paused.
- Slots of workers that belong to no unit come first: they are there, and no pool has to provide them.
- Tasks with the most needs are served first. Slots that a unit has beyond these are for tasks that need nothing.
- Provisioners share the tasks: what one can start, no other one has to.
"""

from __future__ import annotations

from math import ceil
from typing import Dict, Iterable, List, NamedTuple, Sequence, Tuple

from scaler_appliance.core.demand.slots_wanted import LARGEST_SLOTS
from scaler_protocol import messages as m

MAXIMUM_POOLS = 256  # that are published
_ROUNDING = 1e-9  # of quotients of amounts


class PoolNeed(NamedTuple):
    """What the tasks with the same needs want of units.

    Attributes:
        capabilities: of each task.
        request_seconds: for which a worker must stay; 0: any.
        slots: that workers which belong to no unit do not have.
    """

    capabilities: Tuple[Tuple[str, float], ...]
    request_seconds: float
    slots: int


class _Share:
    """What a pool gets."""

    def __init__(self, pool: m.UnitPool) -> None:
        self._pool = pool
        self._amounts = {each.name: each.amount for each in pool.capabilities}
        self._spare = 0  # slots of its units that no task with needs uses
        self.slots = self.units = 0

    def take(self, need: PoolNeed, slots: int) -> int:
        """Use up to so many of its slots; returns how many."""
        of_a_unit = self._slots_for(need)
        if of_a_unit <= 0:
            return 0
        spare = 0 if need.capabilities else min(slots, self._spare)
        units = min(ceil((slots - spare) / of_a_unit), self._pool.maximum_units - self.units)
        new = min(slots - spare, units * of_a_unit)
        self._spare += units * self._pool.slots - new - spare
        self.units += units
        self.slots += spare + new
        return spare + new

    def _slots_for(self, need: PoolNeed) -> int:
        """How many of these tasks a unit runs at once."""
        if self._pool.lifetime_milliseconds and need.request_seconds * 1000 > self._pool.lifetime_milliseconds:
            return 0
        slots = self._pool.slots
        for name, amount in need.capabilities:
            offered = self._amounts.get(name, -1.0)
            if offered < amount:
                return 0
            if amount:
                slots = min(slots, int(offered / amount + _ROUNDING))
        return slots


def shared_among(needs: Iterable[PoolNeed], pools: Sequence[m.UnitPool], units: Iterable[m.Unit]) -> List[m.PoolDemand]:
    """What is wanted of each pool; pools of one name count together.

    Parameters:
        units: of all provisioners.
    """
    shares = [(pool.pool, _Share(pool)) for pool in pools[:MAXIMUM_POOLS]]
    for need in sorted(needs, key=lambda each: (-len(each.capabilities), -each.request_seconds, each.capabilities)):
        left = need.slots
        for _, share in shares:
            if not left:
                break
            left -= share.take(need, left)
    found: Dict[str, m.PoolDemand] = {}
    for name, share in shares:
        told = found.setdefault(name, m.PoolDemand(pool=name))
        told.slots_wanted = min(told.slots_wanted + share.slots, LARGEST_SLOTS)
        told.units_wanted = min(told.units_wanted + share.units, LARGEST_SLOTS)
    for unit in units:
        if unit.pool in found and unit.state in (m.UnitState.PENDING, m.UnitState.STARTING, m.UnitState.RUNNING):
            found[unit.pool].units += 1
    return list(found.values())
