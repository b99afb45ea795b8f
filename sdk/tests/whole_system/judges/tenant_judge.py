"""Whether tenants are kept apart, judged from what the scheduler is told and sends.

Rules:
- Nothing of the core is read. An object belongs to the tenant of the client that made it, or of the client of the task
  whose result it is.
- A worker gets tasks of its tenant only, and hears of no others' objects. A client gets its own outcomes, no other's
  objects, figures of what is its own, and in no text the name of a peer of another tenant.
- Owners, and workers with the tenant ANY_TENANT, see all: what they are told is judged for objects of clients alone.
- No more tasks of a tenant are at workers than its quota says, besides those that wait for nested ones, and calls that
  may wait behind such a call of their actor. A task of which an object is deleted there has been taken back.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from whole_system.tenants import Key, Limits, sees_all, serves

from scaler_protocol import messages as m
from scaler_protocol.keys.allow_list import ANY_TENANT
from scaler_protocol.session.ids import SESSION_SHIFT

_LABEL = re.compile(rb"\b(?:client|worker|nested|plain)-[0-9]+\b")


class _Party:
    """A connection."""

    def __init__(self, key: Key, label: bytes) -> None:
        self.key = key
        self.label = label
        self.role: Optional[m.Role] = None  # none before its Welcome
        self.session = 0
        self.slots = self.suspended = 0
        self.most_suspended = 0  # in this round
        self.tasks: Dict[int, int] = {}  # a worker's: sessions of their clients, by instance
        self.actors: Dict[int, int] = {}  # of those of these tasks that are calls, and of some that have ended
        self.needs: Dict[int, Sequence[int]] = {}  # objects of these tasks, and of some that have ended
        self.submitted = 0  # by a client, in all

    def take_back(self, object_ids: Sequence[int]) -> None:
        """Objects are deleted at a worker: no task that counts needs them any more."""
        gone = set(object_ids)
        for instance in [each for each in self.tasks if not gone.isdisjoint(self.needs.get(each, ()))]:
            del self.tasks[instance]

    @property
    def sees_all(self) -> bool:
        return sees_all(self.key)


class TenantJudge:
    """Judges one scheduler."""

    def __init__(self, limits: Sequence[Limits]) -> None:
        self._most_running = {each.name: each.maximum_running for each in limits if each.maximum_running >= 0}
        self._parties: Dict[bytes, _Party] = {}
        self._gone: List[_Party] = []  # in this round
        self._keys: Dict[bytes, Key] = {}  # by label, of all that ever came
        self._tenants: Dict[int, str] = {}  # of sessions
        self._clients: Set[int] = set()  # sessions that have not ended
        self._object_tenants: Dict[int, str] = {}  # also of those that are gone
        self._shutdowns: Dict[Tuple[bytes, int], str] = {}  # names of workers that clients want to leave, by request
        self._workers: Dict[str, _Party] = {}  # by name, with sessions
        self._placed: Set[str] = set()  # tenants with quotas that got tasks at workers in this call of the scheduler

    def on_authenticated(self, name: bytes, key: Key, label: str) -> None:
        self._parties[name] = _Party(key, label.encode())
        self._keys[label.encode()] = key

    # What the scheduler receives ------------------------------------------------------------------------------------

    def on_received(self, name: bytes, message: Any) -> None:
        party = self._parties[name]
        if isinstance(message, m.Hello):
            party.role, party.slots = m.Role(message.role), message.slots
        elif isinstance(message, m.ObjectInstruction):
            if message.action == m.ObjectAction.CREATE and party.key.tenant != ANY_TENANT:
                for object_id in message.ids:
                    if object_id >> SESSION_SHIFT == party.session:
                        self._object_tenants[object_id] = party.key.tenant
        elif party.role == m.Role.CLIENT:
            self._on_client(name, party, message)
        else:
            self._on_worker(party, message)

    def _on_client(self, name: bytes, party: _Party, message: Any) -> None:
        if isinstance(message, (m.Task, m.GraphTask)):
            party.submitted += len(message.payload_sizes)
        elif isinstance(message, m.WorkerShutdown):
            self._shutdowns[name, message.request_id] = message.name

    def _on_worker(self, party: _Party, message: Any) -> None:
        if isinstance(message, m.TaskResult):
            objects = message.objects or [0] * len(message.ids)
            for instance, object_id in zip(message.ids, objects):
                client = party.tasks.pop(instance, None)
                if object_id and client is not None:
                    self._object_tenants[object_id] = self._tenants[client]
        elif isinstance(message, m.BalanceResponse):
            for instance in message.ids:
                party.tasks.pop(instance, None)
        elif isinstance(message, m.TaskCancelConfirm):
            for instance, outcome in zip(message.ids, message.outcomes):
                if outcome == m.CancelOutcome.CANCELLED:
                    party.tasks.pop(instance, None)
        elif isinstance(message, m.Heartbeat):
            party.suspended = sum(each.suspended for each in message.processors)
            party.most_suspended = max(party.most_suspended, party.suspended)

    # What it sends --------------------------------------------------------------------------------------------------

    def on_sent(self, name: bytes, message: Any, header: bytes, payload: bytes) -> None:
        party = self._parties.get(name)
        if party is None:
            return
        if isinstance(message, m.Welcome):
            self._on_welcome(party, message)
        elif isinstance(message, m.ObjectInstruction):
            self._check_objects(party, message.ids, "hears of")
            if message.action == m.ObjectAction.DELETE:
                party.take_back(message.ids)
        elif isinstance(message, m.ObjectResponse):
            if message.status == m.ObjectResponseStatus.OK:
                self._check_objects(party, [message.id], "reads")
        elif isinstance(message, m.HeartbeatEcho) and not party.sees_all:
            self._check_figures(party, message.slots, message.tasks_waiting)
        elif party.role == m.Role.CLIENT:
            self._on_sent_to_client(name, party, message)
        elif isinstance(message, m.Task):
            self._on_placed(party, message)
        if not party.sees_all:
            self._check_names(party, header + payload)

    def _on_welcome(self, party: _Party, message: m.Welcome) -> None:
        party.session = message.session
        self._tenants[message.session] = party.key.tenant
        if party.role == m.Role.CLIENT:
            self._clients.add(message.session)
        else:
            self._workers[party.label.decode()] = party

    def _check_objects(self, party: _Party, object_ids: Sequence[int], verb: str) -> None:
        for object_id in object_ids:
            tenant = self._object_tenants.get(object_id)
            if tenant is not None:
                whose = f"an object of {tenant!r}"
                assert serves(party.key, tenant), f"{party.label.decode()} of {party.key.tenant!r} {verb} {whose}"

    def _on_placed(self, party: _Party, message: m.Task) -> None:
        tenant = self._tenants[message.client]
        label = party.label.decode()
        assert serves(party.key, tenant), f"{label} of {party.key.tenant!r} gets a task of {tenant!r}"
        for object_id in (*message.dependencies, message.function):
            foreign = self._object_tenants.get(object_id, tenant)
            assert foreign == tenant, f"a task of {tenant!r} gets an object of {foreign!r}"
        party.tasks.update(dict.fromkeys(message.ids, message.client))
        if message.options.actor:
            party.actors.update(dict.fromkeys(message.ids, message.function))
        if message.dependencies:
            party.needs.update(dict.fromkeys(message.ids, message.dependencies))
        if tenant in self._most_running:
            self._placed.add(tenant)

    def on_effects(self) -> None:
        """All messages of a call of the scheduler are sent."""
        for tenant in self._placed:
            running = sum(self._running_of(tenant, each) for each in self._parties.values())
            blocked = sum(self._blocked_of(tenant, each) for each in self._parties.values() if each.suspended)
            most = self._most_running[tenant] + blocked
            assert running <= most, f"{running} tasks of {tenant!r} are at workers, and at most {most} may be"
        self._placed.clear()

    def _running_of(self, tenant: str, worker: _Party) -> int:
        """How many tasks of a tenant are at a worker. Those of clients that are gone are being ended."""
        return len(self._instances_of(tenant, worker))

    def _blocked_of(self, tenant: str, worker: _Party) -> int:
        """How many of them wait for nested ones, or for a call that may."""
        instances = self._instances_of(tenant, worker)
        calls = [worker.actors[each] for each in instances if each in worker.actors]
        return min(worker.suspended + len(calls) - len(set(calls)), len(instances))

    def _instances_of(self, tenant: str, worker: _Party) -> List[int]:
        tasks = worker.tasks.items()
        return [each for each, client in tasks if client in self._clients and self._tenants[client] == tenant]

    def _on_sent_to_client(self, name: bytes, party: _Party, message: Any) -> None:
        if isinstance(message, m.TaskResult):
            self._check_objects(party, [each for each in message.objects if each], "gets a result that is")
        elif isinstance(message, m.WorkerShutdownResponse):
            worker = self._workers.get(self._shutdowns.pop((name, message.request_id)))
            is_own = worker is None or party.sees_all or worker.key.tenant == party.key.tenant
            assert is_own or not message.accepted, f"{party.label.decode()} stops a worker of another tenant"
        elif isinstance(message, m.Info) and not party.sees_all:
            self._check_figures(party, message.slots, message.tasks_waiting + message.tasks_running)
            own = sum(each.key.tenant == party.key.tenant for each in self._with_role(m.Role.CLIENT))
            assert message.clients <= own, f"{message.clients} clients, and the tenant has {own}"

    def _check_figures(self, party: _Party, slots: int, tasks: int) -> None:
        """They are not more than what the tenant, or what serves it, has at most.

        What they were counted from may have changed since, in the same round.
        """
        tenant = party.key.tenant
        serving = [each for each in self._with_role(m.Role.WORKER) if serves(each.key, tenant)]
        most_slots = sum(each.slots + each.most_suspended for each in serving)
        most_tasks = sum(each.submitted for each in self._with_role(m.Role.CLIENT) if each.key.tenant == tenant)
        label = party.label.decode()
        assert slots <= most_slots, f"{label} gets the figure of {slots} slots, and {most_slots} serve its tenant"
        assert tasks <= most_tasks, f"{label} gets the figure of {tasks} tasks, and its tenant submitted {most_tasks}"

    def _with_role(self, role: m.Role) -> List[_Party]:
        return [each for each in (*self._parties.values(), *self._gone) if each.role == role]

    def _check_names(self, party: _Party, content: bytes) -> None:
        named: Set[bytes] = set(_LABEL.findall(content))
        for label in named:
            key = self._keys.get(label)
            is_known = key is None or sees_all(key) or key.tenant == party.key.tenant
            assert is_known, f"{party.label.decode()} of {party.key.tenant!r} gets a text about {label.decode()}"

    def on_forgotten(self, name: bytes) -> None:
        """A session has ended."""
        party = self._parties.get(name)
        if party is not None:
            self._clients.discard(party.session)
            party.tasks.clear()
            if self._workers.get(party.label.decode()) is party:
                del self._workers[party.label.decode()]

    def on_gone(self, name: bytes) -> None:
        """A connection has ended."""
        self.on_forgotten(name)
        party = self._parties.pop(name, None)
        if party is not None:
            self._gone.append(party)

    def on_tick(self) -> None:
        """All that follows from what was received is sent."""
        self._gone.clear()
        for party in self._parties.values():
            party.most_suspended = party.suspended
