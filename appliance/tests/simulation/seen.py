"""Sessions and tasks as the wire shows them: what the Checker remembers, and nothing that it decides."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Dict, NamedTuple, Optional, Sequence, Set, Tuple

from scaler_protocol import messages as m

SUCCESS = int(m.TaskStatus.SUCCESS)
CANCELLED = -1
NAME_ONLY, ROUNDING = 0.0, 1e-6


class Due(NamedTuple):
    """The outcome that a task must get now."""

    status: int
    data: bytes = b""  # as the worker reported it
    object_id: int = 0
    kind: Optional[int] = None  # of a failure that the scheduler itself reports
    attempts: int = 1


class Task:
    __slots__ = ("client", "id", "payload", "once", "need", "codec", "name", "needed", "outcome", "worker", "instance",
                 "losses", "is_new", "is_asked", "is_cancelling", "due")  # fmt: skip

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
        self.hello_slots = self.slots = hello.slots
        self.queue_size = hello.queue_size
        self.gpu = hello.capabilities[0].amount if hello.capabilities else None
        self.codecs, self.functions = hello.codecs, hello.functions
        self.tasks: Dict[int, Task] = {}  # a client's by id, a worker's by instance
        self.known: Set[int] = set()  # objects that were announced to a worker
        self.owned: Set[int] = set()
        self.kept: Dict[int, int] = {}  # sizes of objects that a worker keeps
        self.fetched_first: Dict[
            int, Tuple[Task, Due]
        ] = {}  # outcomes, by the object that the scheduler fetches before

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

    @property
    def has_free_slot(self) -> bool:
        return len(self.tasks) < self.slots and not self.is_congested

    def could_run(self, tenant: str, need: Optional[float], codec: str, name: str) -> bool:
        """Whether a task may run here now, if there is a free slot."""
        return self.serves(tenant) and self.fits(need) and self.understands(codec, name)

    def gpu_in_use(self) -> float:
        return sum(task.need or 0.0 for task in self.tasks.values())

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

    def take_fetched(self, message: m.ObjectResponse, length: int) -> Tuple[Optional[Task], Optional[Due]]:
        """A worker sends a part of a result: with the last one, the outcome that may be reported, and its task if the
        worker still has it."""
        if message.offset + length < self.kept.get(message.id, 0) or message.id not in self.fetched_first:
            return None, None
        task, due = self.fetched_first.pop(message.id)
        return task if self.tasks.get(task.instance) is task else None, due

    def has_wanted(self, instance: int) -> bool:
        """Whether a client waits for the outcome of an instance of a worker."""
        return instance in self.tasks and self.tasks[instance].is_wanted


def is_told(task: Task) -> bool:
    """Whether no further outcome of a task may follow."""
    return not task.is_wanted or task.outcome is not None or task.due is not None
