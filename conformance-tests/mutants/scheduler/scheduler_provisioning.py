"""What the reference scheduler does for provisioners."""

from __future__ import annotations

from typing import Any, Dict, List

from mutants.scheduler.scheduler_state import Client, Peer, Refused, Task, Worker
from mutants.scheduler.scheduler_tasks import amounts
from scaler_conformance.codec.schema_codec import Message

PROVISIONING = "provisioning"
_TO_COME = ("pending", "starting")


class ProvisionerKeeper:
    """Mixin of ReferenceScheduler."""

    workers: List[Worker]
    sessions: Dict[Any, Any]
    send: Any
    send_away: Any
    may_stop: Any
    runnable: Any
    queue: List[Task]

    def __init__(self) -> None:
        super().__init__()
        self.units: Dict[int, List[Any]] = {}  # by session of their provisioner
        self.unit_sequences: Dict[int, int] = {}  # of these, likewise
        self.notes: Dict[int, List[str]] = {}  # of these, likewise
        self.pools: Dict[int, List[Any]] = {}  # of these, likewise
        self.told_demands: Dict[int, Dict[str, Any]] = {}  # likewise

    def is_provisioner(self, client: Client) -> bool:
        return PROVISIONING in client.hello.features

    def look_after_provisioners(self) -> None:
        """Tell each what has changed."""
        for client in [each for each in self.sessions.values() if isinstance(each, Client)]:
            demand = {**self.demand(), "unitsSequence": self.sequence_of(client)}
            if self.is_provisioner(client) and demand != self.told_demands.get(client.number):
                self.told_demands[client.number] = demand
                self.send(client, "Demand", **demand)

    def sequence_of(self, client: Client) -> int:
        return self.unit_sequences.get(client.number, 0)

    def demand(self) -> Dict[str, Any]:
        tasks = self.runnable()
        missing = max(0, tasks - sum(each.slots for each in self.workers if not each.is_leaving) - self.slots_to_come())
        wanted = {"tasks": tasks, "tasksUnmeasured": tasks, "slotsWanted": tasks, "slotsMissing": missing}
        return {"demands": [wanted] if tasks else [], "units": self.unit_uses()}

    def slots_to_come(self) -> int:
        joined = {each.hello.unit for each in self.workers}
        connected = {each.number for each in self.sessions.values()}
        units = [unit for session, units in self.units.items() if session in connected for unit in units]
        return sum(each.slots for each in units if self.is_to_come(each) and each.unit not in joined)

    def is_to_come(self, unit: Any) -> bool:
        return unit.state in _TO_COME

    def unit_uses(self) -> List[Dict[str, Any]]:
        names = dict.fromkeys(each.hello.unit for each in self.workers if each.hello.unit)
        return [
            {
                "unit": name,
                "slots": sum(each.slots for each in self.workers_of(name)),
                "isLeaving": all(each.is_leaving for each in self.workers_of(name)),
            }
            for name in names
        ]

    def workers_of(self, unit: str) -> List[Worker]:
        return [each for each in self.workers if each.hello.unit == unit != ""]

    def on_units(self, peer: Peer, message: Message) -> None:
        if self.is_anothers(peer, [each.unit for each in message.units]):
            raise Refused("protocolViolation", "another provisioner has a unit of that name")
        self.units[peer.number] = list(message.units)
        self.unit_sequences[peer.number] = message.sequence
        self.notes[peer.number] = list(message.notes)
        self.pools[peer.number] = list(message.pools)

    def is_anothers(self, peer: Peer, names: List[str]) -> bool:
        others = [each for each in self.sessions.values() if each is not peer and not self.is_same_program(each, peer)]
        return any(unit.unit in names for each in others for unit in self.units.get(each.number, ()))

    def is_same_program(self, one: Peer, other: Peer) -> bool:
        return bool((one.hello.host, one.hello.processId) == (other.hello.host, other.hello.processId))

    def unit_notes(self) -> List[str]:
        """What all provisioners that are connected note."""
        connected = {each.number for each in self.sessions.values()}
        return [note for session, notes in self.notes.items() if session in connected for note in notes]

    def pool_demands(self) -> List[Dict[str, Any]]:
        """The tasks that wait, each for the first pool that could run it."""
        connected = {each.number for each in self.sessions.values()}
        pools = [pool for session, pools in self.pools.items() if session in connected for pool in pools]
        wanted = [
            next((place for place, pool in enumerate(pools) if self.suits(pool, task)), -1) for task in self.queue
        ]
        return [
            {"pool": pool.pool, "slotsWanted": wanted.count(place), "unitsWanted": wanted.count(place)}
            for place, pool in enumerate(pools)
        ]

    def suits(self, pool: Any, task: Task) -> bool:
        """Whether a unit of a pool has what a task needs."""
        offered = amounts(pool.capabilities)
        return all(offered.get(name, -1.0) >= amount for name, amount in amounts(task.options.capabilities).items())

    def on_release_request(self, peer: Peer, message: Message) -> None:
        chosen = self.chosen(message)
        for unit in chosen:
            for worker in self.workers_of(unit):
                self.send_away(worker, True)
        self.send(peer, "Release", requestId=message.requestId, units=chosen)

    def chosen(self, message: Message) -> List[str]:
        units = [each for each in dict.fromkeys(message.units) if self.can_go(each)]
        idle = [each for each in units if not self.is_busy(each) and not message.idleMilliseconds]
        others = [each for each in units if each not in idle] if message.mayBeBusy else []
        return [*idle, *others][: self.most_units(message)]

    def most_units(self, message: Message) -> int:
        return int(message.count)

    def can_go(self, unit: str) -> bool:
        workers = self.workers_of(unit)
        return bool(workers) and not any(each.is_leaving for each in workers)

    def is_busy(self, unit: str) -> bool:
        return any(each.held for each in self.workers_of(unit))
