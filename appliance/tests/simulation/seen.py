"""Sessions and tasks as the wire shows them: what the Checker remembers, and nothing that it decides."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Container, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from scaler_protocol import decode_struct
from scaler_protocol import messages as m
from scaler_protocol.session.features import DRAIN_REQUESTS

SUCCESS = int(m.TaskStatus.SUCCESS)
CANCELLED = -1
NAME_ONLY, ROUNDING = 0.0, 1e-6
_OF_UNITS = (m.DrainCause.IDLE, m.DrainCause.OPERATOR)


class Due(NamedTuple):
    """The outcome that a task must get now."""

    status: int
    data: bytes = b""  # as the worker reported it
    object_id: int = 0
    kind: Optional[int] = None  # of a failure that the scheduler itself reports
    attempts: int = 1


class Task:
    __slots__ = ("client", "id", "payload", "once", "need", "codec", "name", "needed", "outcome", "worker", "instance",
                 "losses", "is_new", "is_asked", "is_cancelling", "due", "call_of")  # fmt: skip

    def __init__(self, client: Party, task_id: int, payload: bytes, options: m.TaskOptions, needed: Set[int]) -> None:
        self.client = client
        self.id = task_id
        self.payload = payload
        self.once = options.at_most_once
        self.need = options.capabilities[0].amount if options.capabilities else None
        self.codec = self.name = ""
        self.needed = needed
        self.outcome: Optional[int] = None
        self.worker: Optional[Party] = None  # that holds it, by `instance`
        self.instance = 0
        self.losses = 0
        self.is_new = True  # came in this round
        self.is_asked = False  # to be cancelled, ever
        self.is_cancelling = False  # a cancel waits for its worker's answer
        self.due: Optional[Due] = None
        self.call_of = 0  # the actor, by its function

    @property
    def is_wanted(self) -> bool:
        """Whether the client is to get its outcome."""
        return True

    def __repr__(self) -> str:
        return f"task {self.id} of session {self.client.session} ({self.payload.decode()})"


class Node(Task):
    """A task of a graph, or one that needs tasks submitted before it."""

    __slots__ = ("predecessors", "is_target", "is_dropped")

    def __init__(
        self,
        client: Party,
        task_id: int,
        payload: bytes,
        options: m.TaskOptions,
        needed: Set[int],
        predecessors: Sequence[Task],
        is_target: bool,
    ) -> None:
        super().__init__(client, task_id, payload, options, needed)
        self.predecessors = predecessors
        self.is_target = is_target
        self.is_dropped = False  # its worker was asked to drop it, though no client asked for that

    @property
    def is_wanted(self) -> bool:
        return self.is_target

    def may_run(self) -> bool:
        """Whether it has all it waits for, is at no worker, and has no outcome."""
        is_free = self.worker is None and self.due is None and self.outcome is None
        return is_free and all(each.due is not None and each.due.status == SUCCESS for each in self.predecessors)

    def ancestors(self) -> Set[Task]:
        found: Set[Task] = set()
        left = list(self.predecessors)
        while left:
            each = left.pop()
            if each not in found:
                found.add(each)
                left += each.predecessors if isinstance(each, Node) else ()
        return found


class Party:
    """A session, as the wire shows it.

    Parameters:
        tenant: of the key of its connection.
    """

    def __init__(self, link: bytes, session: int, hello: m.Hello, now: float, tenant: str) -> None:
        self.link = link
        self.session = session
        self.tenant = tenant
        self.is_worker = hello.role == m.Role.WORKER
        self.last_heard = now
        self.is_congested = False  # the scheduler was told that it leaves much unread
        self.is_asking = self.is_draining = False  # a worker: it wants to drain, and was told to
        self.hello_slots = self.slots = hello.slots
        self.queue_size = hello.queue_size
        self.gpu = hello.capabilities[0].amount if hello.capabilities else None
        self.codecs, self.functions = hello.codecs, hello.functions
        self.tasks: Dict[int, Task] = {}  # a client's by id, a worker's by instance
        self.known: Set[int] = set()  # objects that were announced to a worker
        self.owned: Set[int] = set()
        self.kept: Dict[int, int] = {}  # sizes of objects that a worker keeps
        self.handed_over: Set[int] = set()  # of these
        self.fetched_first: Dict[int, Tuple[Task, Due]] = {}  # outcomes, by the object that is fetched before
        self.features = hello.features
        self.unit = hello.unit
        self.actor_needs: Dict[int, float] = {}  # what the actors of a worker use, by function

    def asks_to_drain(self, message: object) -> bool:
        """It wants to leave: whether it is to finish its tasks before. One that has finished has none that would run
        again."""
        if isinstance(message, m.DisconnectRequest):
            is_to_drain = message.reason == m.DisconnectReason.DRAINING and DRAIN_REQUESTS in self.features
            self.is_asking |= is_to_drain
            return is_to_drain
        assert not (self.is_draining and self.tasks), f"{self.link!r} has drained, and {list(self.tasks)} run again"
        return False

    def serves(self, tenant: str) -> bool:
        """Whether what belongs to a tenant may get to the worker."""
        return self.tenant in (tenant, "*")

    def understands(self, codec: str, name: str) -> bool:
        """Whether the worker takes tasks in this codec, of this function."""
        if codec and self.codecs and codec not in self.codecs:
            return False
        names = self.functions
        return not name or not names or any(name == each or fnmatchcase(name, each) for each in names)

    def fits(self, need: Optional[float]) -> bool:
        """Whether the worker has room for a task with this need."""
        if need is None:
            return True
        if self.gpu is None or self.gpu < need:
            return False
        return need == NAME_ONLY or self.gpu_in_use() + need <= self.gpu + ROUNDING

    def gpu_in_use(self) -> float:
        return sum(task.need or 0.0 for task in self.tasks.values()) + sum(self.actor_needs.values())

    @property
    def slots_taken(self) -> int:
        """How many slots its tasks need: the calls of an actor need one."""
        actors = {task.call_of for task in self.tasks.values() if task.call_of}
        return sum(not task.call_of for task in self.tasks.values()) + len(actors)

    def learn(self, object_ids: Set[int]) -> None:
        """Objects are announced to a worker."""
        assert object_ids.isdisjoint(self.known), "a worker is told twice of an object"
        self.known |= object_ids

    # Results that a worker keeps ------------------------------------------------------------------------------------

    def keep(self, message: m.ObjectInstruction) -> None:
        """A worker makes objects, and keeps some of them, which it knows from then on."""
        columns = zip(message.ids, message.sizes, message.storages)
        kept = {object_id: size for object_id, size, storage in columns if storage == m.ObjectStorage.KEPT}
        self.kept.update(kept)
        self.known.update(kept)

    def has_still(self, object_id: int) -> bool:
        """Whether a worker keeps a result that the scheduler has not fetched: one that is told to drain hands over all
        that it keeps, before it reports some of it."""
        return object_id in self.kept and object_id not in self.handed_over

    def take_fetched(self, message: m.ObjectResponse, length: int) -> Tuple[Optional[Task], Optional[Due]]:
        """A worker sends a part of a result: with the last one, the outcome that may be reported, and its task if the
        worker still has it."""
        is_whole = message.offset + length >= self.kept.get(message.id, 0)
        if is_whole and message.id in self.kept:
            self.handed_over.add(message.id)
        if not is_whole or message.id not in self.fetched_first:
            return None, None
        task, due = self.fetched_first.pop(message.id)
        return task if self.tasks.get(task.instance) is task else None, due

    def has_wanted(self, instance: int) -> bool:
        """Whether a client waits for the outcome of an instance of a worker."""
        return instance in self.tasks and self.tasks[instance].is_wanted


def is_told_to_drain(party: Optional[Party], message: m.DisconnectRequest) -> bool:
    """Whether the scheduler answers a worker that asked to be drained, and may have left since, or lets a unit go."""
    if party is not None:
        is_drain = message.reason == m.DisconnectReason.DRAINING
        party.is_asking |= is_drain and bool(party.unit) and message.drain_cause in _OF_UNITS
        party.is_draining = party.is_asking
    return message.reason == m.DisconnectReason.DRAINING and (party is None or party.is_draining)


def crosses_an_end(message: object) -> bool:
    """Whether the scheduler decides on this message when another one arrives: its peer may leave in the same round."""
    return isinstance(message, m.Ticket) or (
        isinstance(message, m.ObjectInstruction) and message.action == m.ObjectAction.DROP
    )


def is_told(task: Task) -> bool:
    """Whether no further outcome of a task may follow."""
    return not task.is_wanted or task.outcome is not None or task.due is not None


def running_of(workers: Iterable[Party], tenant: str) -> int:
    """How many tasks of a tenant are at workers, also of clients that are gone."""
    tasks = [task for worker in workers for task in worker.tasks.values()]
    return sum(task.client.tenant == tenant for task in tasks)


def blocked_beside(workers: Iterable[Party], tenant: str) -> int:
    """How many tasks of workers that have some of a tenant wait for nested ones, which may be the tenant's, or behind.

    A call may wait for another one of its actor that waits for nested tasks.
    """
    blocked = 0
    for worker in workers:
        tasks = [task for task in worker.tasks.values() if task.client.tenant == tenant]
        suspended = worker.slots - worker.hello_slots
        if tasks and suspended:
            calls = [task.call_of for task in tasks if task.call_of]
            blocked += suspended + len(calls) - len(set(calls))
    return blocked


def check_no_slot_idles(waiting: Iterable[Task], workers: Iterable[Party], second_choices: Container[int]) -> None:
    """Check that no free slot could run one of these tasks, but those of workers to which others are preferred."""
    needs = {(task.client.tenant, task.need, task.codec, task.name) for task in waiting if not task.call_of}
    for worker in workers:
        is_second = worker.session in second_choices
        if worker.slots_taken < worker.slots and not (worker.is_congested or worker.is_draining or is_second):
            suited = [each for each in needs if worker.serves(each[0])]
            could_run = [need for _, need, *call in suited if worker.fits(need) and worker.understands(*call)]
            assert not could_run, "a task waits that a free slot could run"


def check_queue(worker: Party, message: m.Task, queue_size: int) -> None:
    """Check that a worker that was given these tasks can hold all that it has."""
    if message.options.actor:
        calls = [task for task in worker.tasks.values() if task.call_of == message.function]
        assert len(calls) <= queue_size, "a worker is given more calls of an actor than it can hold"
    else:
        plain = [task for task in worker.tasks.values() if not task.call_of]
        assert len(plain) <= worker.slots * queue_size, "a worker is given more than it can hold"


def could_wait_less(waiting: Iterable[Task], workers: Iterable[Party], most_running: Dict[str, int]) -> List[Task]:
    """The waiting tasks that neither their client nor a quota holds up."""
    full = [each for each, most in most_running.items() if running_of(workers, each) >= most]
    return [task for task in waiting if not task.client.is_congested and task.client.tenant not in full]


def why_lost(node: Node, data: bytes, held: Set[int]) -> int:
    """The outcome of a task that needs others and is never sent to a worker.

    Parameters:
        held: the objects that exist.
    """
    kind = decode_struct(m.Failure, data).kind
    if kind == m.FailureKind.PREDECESSOR_GONE:  # consequences may have been drawn already when it came
        assert node.is_new and any(each.is_asked or each.due for each in node.ancestors()), f"{node} is given back"
    else:
        results = {each.due.object_id for each in node.predecessors if each.due is not None}
        is_missing = kind == m.FailureKind.OBJECT_MISSING
        assert is_missing and not results - {0} <= held, f"{node} is lost: {kind}"
    return kind


def check_own(worker: Party, ids: Set[int], tenants: Mapping[int, str]) -> None:
    """No object of another tenant is announced to a worker, or may be fetched by it.

    Parameters:
        tenants: of objects, by id.
    """
    foreign = [each for each in ids if each in tenants and not worker.serves(tenants[each])]
    assert not foreign, "a foreign object is announced to a worker, or may be fetched by it"


def check_ticket(worker: Party, ticket: m.Ticket, tenants: Mapping[int, str]) -> None:
    """A ticket that names a holder is about an object that the worker may have."""
    check_own(worker, {ticket.id} if ticket.holder else set(), tenants)
