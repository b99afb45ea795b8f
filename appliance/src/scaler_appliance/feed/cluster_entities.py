"""The entities of a cluster in monitors. Plain figures; names come from peers and are untrusted.

Rules: times in microseconds, sizes in bytes, processor time in thousandths of a core, unless a name says otherwise.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional

from scaler_appliance.feed.durations import quantile_microseconds
from scaler_protocol import messages as m

_ACTOR_STATES = {int(state): state.name.lower() for state in m.ActorState}


class SchedulerFigures:
    """The scheduler's own figures.

    Attributes:
        status_share: the recent share of one core for publishing them, 0 to 1.
    """

    def __init__(self, status: m.SchedulerStatus, before: Optional[SchedulerFigures], elapsed_seconds: float) -> None:
        self.scheduler_id = status.scheduler_id
        self.implementation = status.implementation
        self.address = status.address
        self.host = status.host
        self.process_id = status.process_id
        self.is_protected = status.is_protected
        self.is_insecure = status.is_insecure
        self.unix_microseconds = status.unix_microseconds
        self.started_unix_microseconds = status.started_unix_microseconds
        self.cpu_permille = status.cpu_permille
        self.resident_bytes = status.resident_bytes
        self.status_microseconds = status.status_microseconds
        self.objects = status.objects
        self.object_bytes = status.object_bytes
        self.object_bytes_on_disk = status.object_bytes_on_disk
        self.slots = status.slots
        self.status_share = 0.0
        if before is not None and elapsed_seconds > 0:
            self.status_share = (status.status_microseconds - before.status_microseconds) / 1e6 / elapsed_seconds

    @property
    def uptime_seconds(self) -> float:
        return (self.unix_microseconds - self.started_unix_microseconds) / 1e6


class DemandFigures(NamedTuple):
    """What the tasks with the same needs could use now.

    Attributes:
        capabilities: amounts that each needs, by name.
        time_request_seconds: for which a worker must stay; 0: any.
        tasks: that could run now, and those that run; of `tasks_unmeasured` it is not known how long they take.
        work_seconds: of the others together.
        slots_wanted: for all, those that there are included.
        slots_missing: so many more than there are.
    """

    capabilities: Dict[str, float]
    time_request_seconds: float
    tasks: int
    tasks_unmeasured: int
    work_seconds: float
    slots_wanted: int
    slots_missing: int

    @classmethod
    def of(cls, demand: m.SlotDemand) -> DemandFigures:
        """As published."""
        return cls(
            {each.name: each.amount for each in demand.capabilities},
            demand.time_request_milliseconds / 1000,
            demand.tasks,
            demand.tasks_unmeasured,
            demand.work_microseconds / 1e6,
            demand.slots_wanted,
            demand.slots_missing,
        )


class PoolFigures(NamedTuple):
    """What tasks could use of a pool of a provisioner.

    Attributes:
        slots_wanted: by tasks, those that there are included; at most what its maximum of units has.
        units_wanted: that have so many slots for these tasks.
        units: that there are, or that are to come.
    """

    slots_wanted: int
    units_wanted: int
    units: int


class ProcessorRecord(NamedTuple):
    """One processor of a worker. The task is one that it has been running for a while; `task_client` 0: none or
    unknown.

    `task_began` is in microseconds of the scheduler's clock, and an upper bound; 0 without a task.
    """

    process_id: int
    state_bits: int
    cpu_permille: int
    resident_bytes: int
    queued: int
    task_client: int
    task_id: int
    task_function: int
    task_began: int

    def task_microseconds(self, now: int) -> int:
        """For how long it has been running its task; 0 without one, or if only its name is known yet.

        Parameters:
            now: in microseconds of the scheduler's clock, as of its last publication.
        """
        return max(0, now - self.task_began) if self.task_client else 0

    @property
    def is_initialized(self) -> bool:
        return bool(self.state_bits & 1)

    @property
    def has_task(self) -> bool:
        return bool(self.state_bits & 2)

    @property
    def is_suspended(self) -> bool:
        return bool(self.state_bits & 4)


class WorkerRecord:
    """A worker's session; `cpu_permille` and `resident_bytes` are those of its agent.

    `tasks`, and `busy` and `waiting`, which follow from it, are of the moment of the publication. `queued` is the
    worker's own count in its last heartbeat.
    """

    def __init__(self, identity: m.WorkerIdentity) -> None:
        self.session = identity.session
        self.name = identity.name
        self.host = identity.host
        self.process_id = identity.process_id
        self.slots = identity.slots
        self.implementation = identity.implementation
        self.capabilities = {each.name: each.amount for each in identity.capabilities}
        self.tasks = self.queued = self.sent = self.finished = self.failed = 0
        self.cpu_permille = self.resident_bytes = self.free_bytes = self.latency_microseconds = 0
        self.is_congested = self.is_leaving = False
        self.drain_cause = ""  # why it drains: signal, operator, idle, lifetime or notice
        self.finished_per_second = 0.0
        self.processors: List[ProcessorRecord] = []

    @property
    def suspended(self) -> int:
        """How many of its tasks wait for nested tasks, and have given up their slot."""
        return min(self.tasks, sum([each.is_suspended for each in self.processors]))

    @property
    def busy(self) -> int:
        """How many of its slots have a task."""
        return min(self.slots, self.tasks - self.suspended)

    @property
    def waiting(self) -> int:
        """How many of its tasks have no slot yet."""
        return self.tasks - self.suspended - self.busy


class ClientRecord:
    """A client's session; `tasks` have no outcome yet."""

    def __init__(self, identity: m.ClientIdentity) -> None:
        self.session = identity.session
        self.name = identity.name
        self.host = identity.host
        self.process_id = identity.process_id
        self.implementation = identity.implementation
        self.take(0, 0, 0, 0, 0, 0, 0)

    def take(
        self,
        tasks: int,
        finished: int,
        failed: int,
        canceled: int,
        bytes_in_flight: int,
        objects: int,
        object_bytes: int,
    ) -> None:
        self.tasks, self.finished, self.failed, self.canceled = tasks, finished, failed, canceled
        self.bytes_in_flight, self.objects, self.object_bytes = bytes_in_flight, objects, object_bytes


class FunctionFigures:
    """A function, of one client (0: addressed by name); `durations` is a histogram, see the module of that name."""

    def __init__(self, identity: m.FunctionIdentity) -> None:
        self.number = identity.number
        self.name = identity.name
        self.client = identity.client
        self.finished = self.failed = self.busy_microseconds = self.running = self.waiting = 0
        self.finished_per_second = 0.0
        self.durations: Dict[int, int] = {}
        self.has_gone = False

    def quantile_microseconds(self, share: float) -> float:
        """The duration that `share` of its tasks did not exceed; 0 when none has ended."""
        return quantile_microseconds(self.durations, share)


class GraphRecord:
    """A graph of tasks: how many of its nodes are in which state."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.has_gone = False
        self.take(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)

    def take(
        self,
        client: int,
        first_task: int,
        nodes: int,
        waiting: int,
        queued: int,
        running: int,
        succeeded: int,
        failed: int,
        canceled: int,
        started_unix_microseconds: int,
    ) -> None:
        self.client, self.first_task, self.nodes = client, first_task, nodes
        self.waiting, self.queued, self.running = waiting, queued, running
        self.succeeded, self.failed, self.canceled = succeeded, failed, canceled
        self.started_unix_microseconds = started_unix_microseconds


class ActorFigures:
    """An actor and its calls. `worker` is 0 until it has one, and when it has lost it; `why_lost` is empty if it lives.

    `running` are the calls at its worker, with those that wait there.
    """

    def __init__(self, identity: m.ActorIdentity) -> None:
        self.actor_id = identity.id
        self.name = identity.name
        self.client = identity.client
        self.why_lost = ""
        self.take(0, 0, 0, 0, 0, 0)

    @property
    def label(self) -> str:
        return self.name or f"actor {self.actor_id:x}"

    def take(self, worker: int, waiting: int, running: int, finished: int, failed: int, state: int) -> None:
        self.worker, self.waiting, self.running = worker, waiting, running
        self.finished, self.failed = finished, failed
        self.state = _ACTOR_STATES.get(state, f"state {state}")


class SharedObjectRecord:
    """A large object. `kind` is an ObjectKind, or a newer number."""

    def __init__(self, identity: m.ObjectIdentity) -> None:
        self.object_id = identity.id
        self.name = identity.name
        self.kind = identity.kind
        self.take(0, 0, 0)

    def take(self, owner: int, size: int, state_bits: int) -> None:
        self.owner, self.size = owner, size
        self.is_on_disk, self.is_arriving = bool(state_bits & 1), bool(state_bits & 2)
        self.is_let_go = bool(state_bits & 4)
