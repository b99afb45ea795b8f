"""Provisioners: clients that start and stop workers.

    each round of TaskDemand ──▶ tell ──▶ Demand         Units ──▶ on_units ──▶ UnitTable ──▶ the next round
    ReleaseRequest ──▶ on_release_request ──▶ Release, and a DisconnectRequest to each worker of the chosen units

Rules:
- A provisioner has the policy: which pools there are, how many units of each, when to try again. The scheduler has the
  knowledge: what tasks could use, and whose leaving costs least.
- A unit is known by the name that its workers say in their Hello. Workers whose tenant is not that of the provisioner
  belong to no unit of it; if it is for all tenants, they are refused, so that their user is told.
- A unit is one provisioner's. Two that list the same units, because their pools have one name, would stop each other's:
  the second one to name a unit is refused, and told which other one has it.
- Of two units, the one goes first that has no tasks; then the one with less work, with fewer bytes of its own, that has
  been idle longer.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Optional, Tuple

from scaler_appliance.core.demand.task_demand import TaskDemand
from scaler_appliance.core.demand.unit_table import MAXIMUM_TEXT, UnitReport
from scaler_appliance.core.effects import PeerError
from scaler_appliance.core.peers.authority import unit_tenants, view_of
from scaler_appliance.core.peers.sessions import ClientSession
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.peers.worker_shutdown_reactions import WorkerShutdownReactions
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.tasks.capabilities import check_capabilities
from scaler_protocol import messages as m
from scaler_protocol.keys.allow_list import ANY_TENANT, DRAIN, Grant
from scaler_protocol.session.features import PROVISIONING

MAXIMUM_UNIT = 256  # characters of an id: many long ones would not fit in a Demand
LARGEST_COUNT = (1 << 32) - 1  # that fits in a message
_Cost = Tuple[bool, float, int, float, int]


class _Provisioner:
    """A client that is told the demand, what it was told last, and whose demand that has ever been."""

    def __init__(self, client: ClientSession) -> None:
        self.client = client
        self.told: Optional[m.Demand] = None
        self.tenants: FrozenSet[str] = frozenset()


class Provisioning:
    """What the scheduler does for provisioners.

    Parameters:
        demand: of all tasks.
        shutdowns: lets workers leave.
    """

    def __init__(self, state: SchedulerState, demand: TaskDemand, shutdowns: WorkerShutdownReactions) -> None:
        self._state = state
        self._demand = demand
        self._shutdowns = shutdowns
        self._provisioners: Dict[int, _Provisioner] = {}  # by session

    @property
    def is_asked(self) -> bool:
        """Whether one wants to know the demand."""
        return bool(self._provisioners)

    def on_hello(self, client: ClientSession) -> None:
        """A client has joined."""
        if PROVISIONING in client.hello.features and client.grant.may(DRAIN):
            self._provisioners[client.number] = _Provisioner(client)

    def on_client_gone(self, client: ClientSession) -> None:
        """A client is gone, and its units are unknown: their workers stay."""
        self._provisioners.pop(client.number, None)
        self._state.units.forget(client.number)

    # SCL-SCH-049, SCL-SCH-053
    def tell(self) -> None:
        """A round of the demand has ended: provisioners get what has changed for them."""
        for provisioner in self._provisioners.values():
            client = provisioner.client
            demand = m.Demand(
                demands=self._demand.demands(view_of(client.grant)),
                units=self._uses(client),
                units_sequence=self._demand.sequences.get(client.number, 0),
            )
            if demand != provisioner.told:
                provisioner.told = demand
                provisioner.tenants |= self._demand.tenants(view_of(client.grant))
                self._state.send(client.peer, demand)

    def _uses(self, client: ClientSession) -> List[m.UnitUse]:
        return [
            m.UnitUse(
                unit=unit,
                slots=min(sum([worker.hello.slots for worker in workers]), LARGEST_COUNT),
                is_leaving=all(worker.leaving for worker in workers),
            )
            for unit, workers in self._units_of(client).items()
        ]

    def _units_of(self, client: ClientSession) -> Dict[str, List[WorkerSession]]:
        """The workers of each unit, as far as the client may know."""
        found: Dict[str, List[WorkerSession]] = {}
        tenants = unit_tenants(client.grant)
        for worker in self._state.workers.values():
            # SCL-SEC-030
            unit = worker.hello.unit
            if 0 < len(unit) <= MAXIMUM_UNIT and not worker.is_gone and worker.tenant in tenants:
                found.setdefault(unit, []).append(worker)
        return found

    # SCL-SCH-050
    def on_units(self, client: ClientSession, message: m.Units) -> None:
        """A provisioner says which units it has.

        Raises PeerError if one of them is another provisioner's.
        """
        for unit in message.units:
            check_capabilities(unit.capabilities)
        for pool in message.pools:
            check_capabilities(pool.capabilities)
        names = frozenset(unit.unit for unit in message.units)
        self._check_owners(client, names)
        provisioner = self._provisioners.get(client.number)
        told = provisioner.tenants if provisioner is not None else frozenset()
        report = UnitReport(
            *(view_of(client.grant), unit_tenants(client.grant), message.units, message.notes, message.sequence),
            *(told, message.pools, names),
        )
        self._state.units.replace(client.number, report)

    def check_worker(self, hello: m.Hello, grant: Grant) -> None:
        """Raise PeerError if a worker names a unit that is not for workers with its key."""
        if hello.unit and self._state.units.is_for_others(hello.unit, grant.tenant):
            text = (
                f"the unit {hello.unit[:MAXIMUM_TEXT]!r} is of a provisioner for all tenants, and this key is of the"
                f" tenant {grant.tenant}: give its workers one for all, scaler keys new --role worker"
                f" --tenant '{ANY_TENANT}'; or give the provisioner one of this tenant, scaler keys new --role"
                f" provisioner --tenant {grant.tenant}"
            )
            raise PeerError(m.RefusalReason.NOT_ALLOWED, text)

    # SCL-SCH-055
    def _check_owners(self, client: ClientSession, names: FrozenSet[str]) -> None:
        tenant, hello = view_of(client.grant), client.hello
        for session, report in self._state.units.others(client.number, tenant):
            other = self._provisioners.get(session)
            if other is None or (hello.host, hello.process_id) == (
                other.client.hello.host,
                other.client.hello.process_id,
            ):
                continue  # an earlier session of the same program, whose end is not known yet
            shared = next((unit for unit in report.units if unit.unit in names), None)
            if shared is not None:
                text = (
                    f"unit {shared.unit[:MAXIMUM_TEXT]!r} of the pool {shared.pool[:MAXIMUM_TEXT]!r} belongs to"
                    f" {other.client.label}: two provisioners cannot have the same pool; stop one of them, or give its"
                    " pool another name"
                )
                raise PeerError(m.RefusalReason.PROTOCOL_VIOLATION, text)

    # SCL-SCH-051
    def on_release_request(self, client: ClientSession, message: m.ReleaseRequest) -> None:
        """A provisioner lets units go, and leaves the choice to the scheduler."""
        units = self._units_of(client)
        costs: Dict[str, _Cost] = {}
        for place, unit in enumerate(message.units):
            if unit in units and unit not in costs and not any(worker.leaving for worker in units[unit]):
                cost = self._cost(units[unit], place)
                # SCL-SCH-052
                is_idle = not cost[0] and -cost[3] * 1000 >= message.idle_milliseconds
                if is_idle or message.may_be_busy:
                    costs[unit] = (not is_idle, *cost[1:])
        chosen = sorted(costs, key=costs.__getitem__)[: message.count]
        for unit in chosen:
            cause = m.DrainCause.OPERATOR if costs[unit][0] else m.DrainCause.IDLE
            for worker in units[unit]:
                self._shutdowns.drain(worker, cause, f"{client.label} lets its unit {unit[:64]} go")
        self._state.send(client.peer, m.Release(request_id=message.request_id, units=chosen))

    def _cost(self, workers: List[WorkerSession], place: int) -> _Cost:
        """What it costs to let a unit go: whether it has tasks, work, bytes, and how long it was idle, negative."""
        is_busy = any(worker.tasks or worker.actors for worker in workers)
        idle_seconds = min([self._demand.idle_seconds(worker) for worker in workers])
        work = sum([worker.load_microseconds for worker in workers])
        return is_busy, work, sum([worker.object_bytes for worker in workers]), -idle_seconds, place
