"""What tenants get at shared workers while others wait.

    waiting tenants, tasks placed ──▶ by how much each has been passed ──▶ an error if weights do not allow it

Rules:
- The scheduler gives the next turn to the tenant that has had least, divided by its weight. So a tenant that waits may
  be passed by what it was ahead, which is a turn of its own at most, and by one turn of the other.
- A turn is a fixed amount of work, or one task if that is longer.
- A worker with blocked tasks takes nested ones at once, whose turn it may be; these do not count.
- Of a tenant's tasks that all workers can run, a distant one gets no more than it will have done when the near ones are
  done. So what it gets of others does not count against a tenant with few tasks left.
"""

from __future__ import annotations

from typing import Container, Dict, Sequence, Set, Tuple

from whole_system.tenants import Limits


class Shares:
    """
    Parameters:
        turn_microseconds: of work; also what a task counts that was never measured.
    """

    def __init__(self, limits: Sequence[Limits], turn_microseconds: float) -> None:
        self._weights = {each.name: each.weight for each in limits}
        self._turn_microseconds = turn_microseconds
        self._longest = dict.fromkeys(self._weights, turn_microseconds)  # a task of each tenant
        self._waiting: Set[str] = set()
        self._passed: Dict[Tuple[str, str], float] = {}  # work of the second while the first waits
        self._overtaken: Dict[str, str] = {}  # tenants, unless the tick turns out to have ended their tasks

    def on_measured(self, tenant: str, mean_microseconds: float) -> None:
        """Some tasks of a tenant took so long on average."""
        self._longest[tenant] = max(self._longest.get(tenant, 0.0), mean_microseconds)

    def _turn_of(self, tenant: str) -> float:
        return self._longest[tenant] / self._weights[tenant]

    def on_placed(self, tenant: str, microseconds: float, has_blocked: bool, spared: Container[str]) -> None:
        """A shared worker gets tasks of a tenant, which is work of this length at least.

        Parameters:
            spared: tenants of whose tasks it may have had enough.
        """
        for waiting in self._waiting - {tenant}:
            key = waiting, tenant
            before = self._passed.get(key, 0.0)
            most = self._turn_of(waiting) + self._turn_of(tenant)
            if has_blocked or waiting in spared:
                continue
            if before > most:
                self._overtaken[waiting] = (
                    f"tenant {waiting} waits, and {tenant} got {before / most:.1f} times its turn"
                )
            self._passed[key] = before + microseconds / self._weights[tenant]
        for other in self._weights:
            self._passed.pop((tenant, other), None)
        self._overtaken.pop(tenant, None)

    def forget(self) -> None:
        """Some client may not have had its tasks placed for a while."""
        self._passed.clear()
        self._overtaken.clear()

    def on_tick(self, waiting: Set[str], is_of_parts: bool) -> None:
        """These tenants have waiting tasks now."""
        if is_of_parts:
            self.forget()
        for tenant, text in self._overtaken.items():
            assert tenant not in waiting, text
        self._overtaken.clear()
        self._waiting = waiting
        self._passed = {key: passed for key, passed in self._passed.items() if key[0] in waiting}
