"""What provisioners have started, by their own account: units, each with workers to come or connected.

Rules:
- Data only. What a provisioner says replaces what it said before, and ends with its session.
- A worker of another tenant is of no unit, whatever its Hello says: it would keep others from being started, or stand
  for one that is idle.
- A provisioner for all tenants does not know whose tasks a Demand is about, and may note what these need. So if it got
  the demand of several tenants, its notes are for those who see all.
"""

from __future__ import annotations

from collections import Counter
from typing import Counter as Counts
from typing import Dict, FrozenSet, Iterator, List, NamedTuple, Sequence, Set, Tuple

from scaler_protocol import messages as m
from scaler_protocol.keys.allow_list import ANY_TENANT

MAXIMUM_TEXTS = 4  # of units and pools, in an explanation
MAXIMUM_TEXT = 200  # characters of each
FOR_OTHERS = "why units are missing is noted for those who see all tenants"
_TO_COME = (m.UnitState.PENDING, m.UnitState.STARTING)


class UnitReport(NamedTuple):
    """The last one of a provisioner.

    Attributes:
        tenant: whose tasks its workers run, as far as it may know; ANY_TENANT: all.
        workers: the tenants of the keys that workers of its units may have.
        told: the tenants whose demand it had received before.
        pools: of which it may start units, those first that it uses first.
        names: the ids of its units.
    """

    tenant: str
    workers: FrozenSet[str]
    units: List[m.Unit]
    notes: List[str]
    sequence: int
    told: FrozenSet[str]
    pools: Sequence[m.UnitPool]
    names: FrozenSet[str]

    # SCL-SEC-030
    def notes_for(self, tenant: str) -> List[str]:
        """Those that are for a tenant; ANY_TENANT: all."""
        if not self.notes or self.tenant == tenant or tenant == ANY_TENANT or self.told <= {tenant}:
            return self.notes
        return [FOR_OTHERS]


class UnitTable:
    """All reports, by session."""

    def __init__(self) -> None:
        self._reports: Dict[int, UnitReport] = {}

    def replace(self, session: int, report: UnitReport) -> None:
        """A provisioner has said what it has."""
        self._reports[session] = report

    def sequences(self) -> Dict[int, int]:
        """Of the last report of each provisioner, by session."""
        return {session: report.sequence for session, report in self._reports.items()}

    def others(self, session: int, tenant: str) -> List[Tuple[int, UnitReport]]:
        """The reports of other provisioners about the same tenant, by session."""
        return [(each, report) for each, report in self._reports.items() if each != session and report.tenant == tenant]

    def forget(self, session: int) -> None:
        """A provisioner is gone."""
        self._reports.pop(session, None)

    def to_come(self, joined: Set[Tuple[str, str]]) -> Iterator[Tuple[str, m.Unit]]:
        """Units that will have workers, each with the tenant that its report is about.

        Parameters:
            joined: what workers say, each with its tenant and the id of its unit.
        """
        for report in self._reports.values():
            for unit in report.units:
                if unit.state in _TO_COME and not any((each, unit.unit) in joined for each in report.workers):
                    yield report.tenant, unit

    def has(self, unit: str, tenant: str) -> bool:
        """Whether a worker with a key of this tenant is of a unit of a provisioner."""
        return any(unit in each.names and tenant in each.workers for each in self._reports.values())

    def is_for_others(self, unit: str, tenant: str) -> bool:
        """Whether a unit is of a provisioner for all tenants, and workers with a key of this tenant are not."""
        named = [each for each in self._reports.values() if unit in each.names]
        return any(each.tenant == ANY_TENANT for each in named) and not any(tenant in each.workers for each in named)

    def of(self, tenant: str) -> List[UnitReport]:
        """The reports for those who see a tenant; ANY_TENANT: all."""
        return [each for each in self._reports.values() if tenant in (ANY_TENANT, each.tenant)]

    def text_for(self, tenant: str) -> str:
        """What clients of a tenant should know who wait for a worker; empty if there is nothing."""
        return "; ".join(self.notes_for(tenant))

    def notes_for(self, tenant: str) -> List[str]:
        """The same, one by one.

        Parameters:
            tenant: ANY_TENANT: all that there is.
        """
        counts: Counts[Tuple[str, str, str]] = Counter()
        notes: List[str] = []
        for report in self._reports.values():
            if tenant != ANY_TENANT and report.tenant not in (tenant, ANY_TENANT):
                continue
            notes += report.notes_for(tenant)
            for unit in report.units:
                if unit.state in _TO_COME:
                    counts[unit.pool, m.UnitState(unit.state).name.lower(), unit.reason] += 1
        texts = [
            f"{count} {'unit' if count == 1 else 'units'} of the pool {pool[:MAXIMUM_TEXT]}"
            f" {'is' if count == 1 else 'are'} {state}{f' ({reason[:MAXIMUM_TEXT]})' if reason else ''}"
            for (pool, state, reason), count in counts.most_common(MAXIMUM_TEXTS)
        ]
        return [*texts, *[note[:MAXIMUM_TEXT] for note in list(dict.fromkeys(notes))[:MAXIMUM_TEXTS]]]
