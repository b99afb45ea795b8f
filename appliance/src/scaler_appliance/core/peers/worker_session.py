"""Workers that have said Hello.

Rules:
- A worker holds its dispatches and its actors, and uses its capabilities for them; all of it ends with its session.
- A task that waits for nested ones, or for bytes, keeps no processor busy: so another one may run meanwhile.
"""

from __future__ import annotations

from array import array
from collections import deque
from math import inf
from typing import Deque, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from scaler_appliance.core.actor_calls.actor_table import ACTORS, MAXIMUM_ACTORS_OF_WORKER, ActorRecord
from scaler_appliance.core.large_tables import LARGE, Table, in_chunks
from scaler_appliance.core.objects.object_records import ObjectRecord
from scaler_appliance.core.peers.awaited_bytes import AwaitedBytes
from scaler_appliance.core.peers.sessions import Session
from scaler_appliance.core.tasks.batches import Dispatch, Needs
from scaler_appliance.core.tasks.pace import WorkerPace
from scaler_protocol import messages as m
from scaler_protocol.keys.allow_list import ANY_TENANT, Grant

_ROUNDING = 1e-9  # of sums and quotients of capability amounts
DISTANT_MICROSECONDS = 20_000.0  # for messages there and back: more than a busy worker in the same data centre takes
_LONGEST_ROUND_TRIP_MICROSECONDS = 2e6  # that is believed
_LATENCIES = 4  # the least of so many counts, since large messages in between delay a heartbeat

Capabilities = Tuple[Tuple[str, float], ...]


class RunningTask(NamedTuple):
    """What a processor runs, by its worker's last heartbeat."""

    client: int = 0  # session
    task_id: int = 0  # at the client
    function: int = 0  # number of its counters
    microseconds: int = 0  # how long it had been running by then
    instance: int = 0  # as its worker knows it; 0: none


class LargeProcess(NamedTuple):
    """A process that has much memory, by its worker's last heartbeat."""

    instance: int  # that it runs; 0: none
    had_bytes: int  # before it began to run that
    size: int  # bytes
    suspended: bool  # that waits for nested tasks


class WorkerSession(Session):
    """A worker.

    Parameters:
        queue_limit: the scheduler's limit of tasks per slot.
    """

    kind = "worker"

    def __init__(
        self, number: int, peer: bytes, hello: m.Hello, now: float, touched: Dict[int, Session], queue_limit: int
    ) -> None:
        super().__init__(number, peer, hello, now, touched)
        self._queue_size = min(max(1, hello.queue_size), queue_limit)
        self.is_shared = False  # it serves all tenants
        self.slots = hello.slots  # tasks that run at once
        self.slots_given_up = 0  # by tasks that wait for bytes: so many more may run until these are there
        self.slots_ahead = 0  # so many more tasks may come for which it has to fetch, while these run
        self.capacity = self.slots * self._queue_size  # tasks it may hold
        self.capabilities = {capability.name: capability.amount for capability in hello.capabilities}
        self._prefixes = tuple(name[:-1] for name in hello.functions if name.endswith("*"))  # of functions it serves
        self._free = dict(self.capabilities)  # the amounts that its tasks do not use
        self.has_freed = False  # some of these, since it was last known to have room
        self.dispatches: Table[Dispatch] = {}
        self._awaited = AwaitedBytes()
        self.assigned = 0  # tasks, of the calls of each actor one: so many slots are taken or spoken for
        self.calls_behind = 0  # the other calls: they wait for one of the same actor
        self.actors: Dict[int, Tuple[Tuple[str, float], ...]] = {}  # what each of its actors uses of capabilities
        self.sent = self.finished = self.failed = 0  # totals of tasks; failed and lost ones are also finished
        self.load_microseconds = 0.0
        self.given_microseconds = 0.0  # of work, in all
        self.pace = WorkerPace()
        self.is_apart = False  # it is known that it does not see the scheduler's files
        self.known_objects: Table[None] = {}
        self.to_fetch: Set[int] = set()  # those of them of which it may not have all bytes
        self.lost_results: Deque[ObjectRecord] = deque()  # that were lost with it, until it is settled what follows
        self.forgotten_objects: array[int] = array("Q")
        self.cancelled_instances: array[int] = array("Q")
        self.forced_instances: array[int] = array("Q")
        self.heartbeat: Optional[m.Heartbeat] = None
        self.heartbeat_at = 0.0  # by the scheduler's clock
        self.large_processes: Dict[int, LargeProcess] = {}  # by process id, by then
        self.large_dispatches: Dict[int, Dispatch] = {}  # those of large tasks
        self.distance_microseconds = 0.0  # for messages there and back; 0: it is near
        self._latencies: Deque[int] = deque(maxlen=_LATENCIES)
        self.processor_tasks: Sequence[RunningTask] = ()  # an entry for each processor of the heartbeat
        self.balance_request: Optional[int] = None  # id of the request it has not answered yet
        self.finished_when_asked = -1  # `finished` when it was last asked to give tasks back
        self.useless_answers = 0  # in a row: no free slot could take what it gave back
        self.not_asked_until = 0.0  # by the scheduler's clock
        self.drain_cause = m.DrainCause.UNKNOWN  # why it drains, if it does
        # How long tasks may run there, by the scheduler's clock.
        self.stays_until = now + hello.remaining_milliseconds / 1000 if hello.remaining_milliseconds else inf

    def on_heartbeat(self, now: float, heartbeat: m.Heartbeat, tasks: Sequence[RunningTask]) -> bool:
        """Store its figures, and what its processors run; returns whether it is nearer or farther than was known.

        A processor whose task waits for nested tasks is blocked, and a spare processor uses its slot.
        """
        self.heartbeat, self.heartbeat_at = heartbeat, now
        self.is_apart = not heartbeat.shares_object_directory
        self.processor_tasks = tasks
        distance_microseconds = self.distance_microseconds
        if heartbeat.latency_microseconds:
            self._latencies.append(heartbeat.latency_microseconds)
            round_trip_microseconds = 2.0 * min(self._latencies)
            is_distant = round_trip_microseconds >= DISTANT_MICROSECONDS
            self.distance_microseconds = (
                min(round_trip_microseconds, _LONGEST_ROUND_TRIP_MICROSECONDS) if is_distant else 0.0
            )
        suspended = sum(processor.suspended for processor in heartbeat.processors)
        self.slots = self.hello.slots + suspended
        self.capacity = self.slots * self._queue_size
        return self.distance_microseconds != distance_microseconds

    def await_bytes(self, dispatch: Dispatch, object_ids: Set[int]) -> None:
        """A task that it has needs objects that it has to fetch from others."""
        self._awaited.add(dispatch.number, object_ids)
        self._count_awaited()

    def await_no_more(self, object_id: int, is_there: bool) -> bool:
        """It has fetched an object, or does not go on; returns whether the slots that are given up have changed."""
        before = self.slots_given_up
        if is_there:
            self.to_fetch.discard(object_id)
        self._awaited.on_object(object_id)
        self._count_awaited()
        return self.slots_given_up != before

    def _count_awaited(self) -> None:
        self.slots_given_up = min(self._awaited.waiting, self.hello.slots)
        self.slots_ahead = min(len(self._awaited), self.hello.slots)

    def set_queue_limit(self, limit: int) -> None:
        """From now on it may hold so many tasks for each slot; those that it has beyond that stay."""
        self._queue_size = min(max(1, self.hello.queue_size), limit)
        self.capacity = self.slots * self._queue_size

    def admit(self, grant: Grant) -> None:
        """It is what its key says."""
        super().admit(grant)
        self.is_shared = self.tenant == ANY_TENANT

    def serves(self, tenant: str) -> bool:
        """Whether it runs the tasks of a tenant."""
        return self.tenant == tenant or self.tenant == ANY_TENANT

    def may_read_of(self, tenant: str) -> bool:
        """Whether it may read the objects of a tenant: those that its tasks need."""
        return self.serves(tenant)

    # SCL-SCH-009
    def offers(self, needs: Needs, now: float) -> bool:
        """Whether tasks with these needs can run here, if they begin now or later."""
        own, seconds = self.capabilities, needs.time_request_seconds
        # SCL-SCH-048
        if (seconds and now + seconds > self.stays_until) or not self.understands(needs):
            return False
        return all(name in own and own[name] >= amount for name, amount in needs.capabilities)

    def understands(self, needs: Needs) -> bool:
        """Whether it runs tasks of their tenant, understands the codec, and serves the named function."""
        # SCL-SEC-031
        if not self.serves(needs.tenant):
            return False
        codecs, functions = self.hello.codecs, self.hello.functions
        # SCL-COD-003: a worker that lists none is taken to understand, or to serve, any.
        if codecs and needs.codec and needs.codec not in codecs:
            return False
        name = needs.function_name
        return not name or not functions or any(map(name.startswith, self._prefixes)) or name in functions

    def room_for(self, capabilities: Capabilities) -> int:
        """How many more tasks with these needs it could hold; tasks that only need a name are not limited by it."""
        # SCL-SCH-009, SCL-SCH-010
        room = self.capacity - self.assigned
        for name, amount in capabilities:
            free = self._free.get(name, 0.0)
            # Otherwise the quotient is not needed, and may overflow.
            if amount and free < amount * room:
                room = min(room, int(free / amount + _ROUNDING))
        return room if room > 0 else 0

    def assign(self, dispatch: Dispatch) -> None:
        """Add the tasks of a dispatch."""
        count = dispatch.open_count
        self.dispatches[dispatch.number] = dispatch
        if len(self.dispatches) == LARGE:
            self.dispatches = in_chunks(self.dispatches)
        self.assigned += count
        assert self.assigned <= self.capacity, f"{self.label} was given more than it can hold"
        self.load_microseconds += dispatch.estimate_microseconds * count
        self.given_microseconds += dispatch.estimate_microseconds * count
        dispatch.given_before_microseconds = self.given_microseconds
        for name, amount in dispatch.batch.requirement.needs.capabilities:
            self._free[name] -= amount * count

    def unassign(self, dispatch: Dispatch, count: int) -> None:
        """`count` instances of a dispatch were closed."""
        self.assigned -= count
        self.load_microseconds -= dispatch.estimate_microseconds * count
        if self.load_microseconds < 0.0:
            self.load_microseconds = 0.0
        for name, amount in dispatch.batch.requirement.needs.capabilities:
            self._free[name] += amount * count
            self.has_freed = True
        if dispatch.open_count == 0:
            del self.dispatches[dispatch.number]
            if self.large_dispatches:
                self.large_dispatches.pop(dispatch.number, None)
            if self.slots_ahead:
                self._awaited.on_task(dispatch.number)
                self._count_awaited()
        if self.assigned == 0:
            if not self.actors:
                self._free.update(self.capabilities)  # so that rounding errors do not accumulate
            self.load_microseconds = 0.0

    def left_microseconds(self, now: float) -> float:
        """How much of its work is left. If none of its tasks waits in line, all have run since they were sent; one that
        is overdue is taken to need as much longer as it is late."""
        if self.assigned > self.slots:
            return self.load_microseconds
        return sum([each.open_count * abs(each.late_by_microseconds(now)) for each in self.dispatches.values()])

    # Actors -----------------------------------------------------------------------------------------------------------

    @property
    def queue_size(self) -> int:
        """How many calls of one actor it may hold."""
        return self._queue_size

    @property
    def tasks(self) -> int:
        """How many tasks it has."""
        return self.assigned + self.calls_behind

    @property
    def runs_actors(self) -> bool:
        """Whether its Hello says so."""
        return ACTORS in self.hello.features

    def has_room_for_actor(self, capabilities: Capabilities) -> bool:
        """Whether another actor with these needs fits."""
        if len(self.actors) >= MAXIMUM_ACTORS_OF_WORKER:
            return False
        return all(self._free.get(name, -1.0) + _ROUNDING >= amount for name, amount in capabilities)

    # SCL-SCH-046
    def add_actor(self, actor: ActorRecord) -> None:
        """An actor is here from now on, and uses what it needs."""
        actor.worker = self.number
        self.actors[actor.function] = actor.capabilities
        for name, amount in actor.capabilities:
            self._free[name] -= amount

    def remove_actor(self, actor: ActorRecord) -> None:
        """An actor has ended."""
        actor.worker = 0
        for name, amount in self.actors.pop(actor.function):
            self._free[name] += amount

    def assign_calls(self, dispatch: Dispatch, actor: ActorRecord) -> None:
        """Add calls of one of its actors."""
        count = dispatch.open_count
        self.dispatches[dispatch.number] = dispatch
        if len(self.dispatches) == LARGE:
            self.dispatches = in_chunks(self.dispatches)
        first = 0 if actor.open_calls else 1
        self.assigned += first
        self.calls_behind += count - first
        actor.open_calls += count
        actor.load_microseconds += dispatch.estimate_microseconds * count
        self.load_microseconds += dispatch.estimate_microseconds * count

    def unassign_calls(self, dispatch: Dispatch, actor: ActorRecord, count: int) -> None:
        """`count` instances of calls of an actor were closed."""
        actor.open_calls -= count
        last = 0 if actor.open_calls else 1
        self.assigned -= last
        self.calls_behind -= count - last
        spent = dispatch.estimate_microseconds * count
        actor.load_microseconds = max(0.0, actor.load_microseconds - spent) if actor.open_calls else 0.0
        self.load_microseconds = max(0.0, self.load_microseconds - spent) if self.assigned else 0.0
        if dispatch.open_count == 0:
            del self.dispatches[dispatch.number]

    def check_invariants(self) -> None:
        """Check that used and free capabilities add up to the offered ones, and what waits for bytes."""
        self._awaited.check_invariants(set(self.dispatches))
        assert all(number in self.dispatches for number in self.large_dispatches)
        assert self.slots_given_up == min(self._awaited.waiting, self.hello.slots) <= self.slots_ahead
        if not self.capabilities:
            return
        used = dict.fromkeys(self.capabilities, 0.0)
        for dispatch in self.dispatches.values():
            for name, amount in dispatch.batch.requirement.needs.capabilities:
                used[name] += amount * dispatch.open_count
        for capabilities in self.actors.values():
            for name, amount in capabilities:
                used[name] += amount
        for name, amount in self.capabilities.items():
            rounding = _ROUNDING * max(1.0, amount)
            assert -rounding <= used[name] <= amount + rounding, f"{self.label}: {used[name]} {name} in use"
            assert abs(self._free[name] + used[name] - amount) < 1000 * rounding

    def cancel(self, instances: Iterable[int], force: bool) -> None:
        """Ask the worker to drop instances, at the end of this burst."""
        (self.forced_instances if force else self.cancelled_instances).extend(instances)
        self._touched[self.number] = self

    def take_messages(self) -> List[m.Member]:
        """What was gathered for it in this burst."""
        messages: List[m.Member] = []
        if self.cancelled_instances:
            messages.append(m.TaskCancel(ids=self.cancelled_instances))
            self.cancelled_instances = array("Q")
        if self.forced_instances:
            messages.append(m.TaskCancel(ids=self.forced_instances, force=True))
            self.forced_instances = array("Q")
        if self.forgotten_objects:
            messages.append(m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=self.forgotten_objects))
            self.forgotten_objects = array("Q")
        return messages

    def know_object(self, object_id: int) -> None:
        """An object is announced to it."""
        self.known_objects[object_id] = None
        if len(self.known_objects) == LARGE:
            self.known_objects = in_chunks(self.known_objects)

    def forget_object(self, object_id: int) -> None:
        """Notify the worker that an object is gone, at the end of this burst."""
        self.known_objects.pop(object_id, None)
        self.to_fetch.discard(object_id)
        self.forgotten_objects.append(object_id)
        self._touched[self.number] = self
