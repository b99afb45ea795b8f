"""Clients and workers as `placement_judge` knows them: from what they say, and what they are told.

Rule: data and small accessors only.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from whole_system.judges.turns import Claim
from whole_system.tenants import Key, serves

from scaler_protocol import messages as m

DISTANT_SECONDS = 0.02  # there and back
HEARTBEATS_OF_A_DISTANCE = 4


class TaskClass(NamedTuple):
    """What a task needs, and how urgent it is."""

    priority: int
    needs: Tuple[Tuple[str, float], ...]
    codec: str
    function_name: str
    tenant: str
    request_seconds: float = 0.0  # for which a worker must stay

    @staticmethod
    def of(message: Any, tenant: str) -> TaskClass:
        needs = tuple((each.name, each.amount) for each in message.options.capabilities)
        function_name = "" if message.function else message.function_name
        seconds = 0.0 if message.options.actor else message.options.time_request_milliseconds / 1000
        return TaskClass(message.options.priority, needs, message.codec, function_name, tenant, seconds)


class JudgedClient:
    def __init__(self, session: int, tenant: str) -> None:
        self.session = session
        self.tenant = tenant
        self.is_congested = False
        self.claims: Dict[TaskClass, Claim] = {}
        self.keys: Dict[int, int] = {}  # of tasks without outcome, by id
        self.classes: Dict[int, TaskClass] = {}  # by key of a task that has waited
        self.functions: Dict[int, object] = {}  # likewise
        self.large_bytes: Dict[int, int] = {}  # of results that it has not let go of, by object

    def waits_for(self, task_class: TaskClass) -> bool:
        """Whether it is known to have waiting tasks of a class."""
        claim = self.claims.get(task_class)
        return claim is not None and bool(claim.keys or claim.fresh_keys)

    def lose_turns(self) -> None:
        """It may have been held, and is the last one then."""
        for claim in self.claims.values():
            claim.passings.clear()

    def drop(self, key: int) -> None:
        """The task does not wait any more."""
        claim = self.claims.get(self.classes[key]) if key in self.classes else None
        if claim is not None:
            claim.keys.discard(key)
            claim.fresh_keys.discard(key)


class AtWorker(NamedTuple):
    """A task at a worker."""

    client: int
    key: int
    function: object
    task_class: TaskClass
    is_call: bool = False  # of an actor: of all calls of one, one needs a slot


class JudgedWorker:
    """
    Parameters:
        most_queued: tasks for each slot that the scheduler sends it at most, whatever it takes.
        paces: how many times as long tasks take there as at others, by function; None: of all others.
    """

    def __init__(
        self, hello: m.Hello, key: Key, now: float, most_queued: int, paces: Callable[[], Dict[object, float]]
    ) -> None:
        self._paces = paces
        self.key = key
        self.now = now
        self.host = hello.host
        self.has_end = bool(hello.remaining_milliseconds)  # it has said when it leaves
        self._ends_at = now + (hello.remaining_milliseconds / 1000 or float("inf"))
        self.own_slots = self.slots = hello.slots
        self._queue_size = min(max(1, hello.queue_size), most_queued)
        self.capabilities = {each.name: each.amount for each in hello.capabilities}
        self.tasks: Dict[int, AtWorker] = {}  # by instance
        self.has_calls = False  # or had some
        self.ending: Set[int] = set()  # instances that it was told to end
        self.to_fetch: Set[int] = set()  # objects that it has to fetch, and may not have
        self.awaited: Dict[int, Set[int]] = {}  # those of them for which a task waits, by its instance
        self._is_apart = False  # it does not see the scheduler's files
        self.is_congested = False
        self.is_leaving = False
        self.request: Optional[int] = None
        self._round_trips: Deque[float] = deque(maxlen=HEARTBEATS_OF_A_DISTANCE)

    def on_heartbeat(self, message: m.Heartbeat) -> None:
        self._is_apart = not message.shares_object_directory
        self.slots = self.own_slots + sum(each.suspended for each in message.processors)
        if message.latency_microseconds:
            self._round_trips.append(2 * message.latency_microseconds / 1e6)

    def on_sent(self, message: Any, payload_bytes: int, spread_bytes: int) -> None:
        """Objects are announced to it, or a part of one is sent: is it the last one?"""
        if isinstance(message, m.ObjectInstruction) and message.action == m.ObjectAction.CREATE:
            for object_id, size, storage in zip(message.ids, message.sizes, message.storages):
                is_spread = self._is_apart and storage != m.ObjectStorage.INLINE and size >= spread_bytes
                if is_spread or storage == m.ObjectStorage.HELD:
                    self.to_fetch.add(object_id)
        elif isinstance(message, m.ObjectResponse) and message.offset + payload_bytes >= message.size:
            self.on_fetched([message.id], are_there=message.status == m.ObjectResponseStatus.OK)

    def on_fetched(self, object_ids: Sequence[int], are_there: bool) -> None:
        """It has the bytes of some objects, or does not go on to fetch them."""
        for awaited in self.awaited.values():
            awaited.difference_update(object_ids)
        if are_there:
            self.to_fetch.difference_update(object_ids)

    @property
    def paces(self) -> Dict[object, float]:
        return self._paces()

    def pace_of(self, function: object) -> float:
        """How many times as long as elsewhere tasks of a function take there."""
        paces = self._paces()
        return paces.get(function, paces[None])

    @property
    def slots_given_up(self) -> int:
        """How many of its slots are free while bytes come for their tasks, at most."""
        return min(self.own_slots, sum(bool(self.awaited.get(each)) for each in self.tasks))

    @property
    def distance_seconds(self) -> float:
        """There and back; 0: it is near."""
        least = min(self._round_trips, default=0.0)
        return least if least >= DISTANT_SECONDS else 0.0

    @property
    def is_near(self) -> bool:
        """Whether it takes tasks, and none has to go far."""
        return not (self.is_leaving or self.is_congested or self.distance_seconds)

    @property
    def has_free_slot(self) -> bool:
        return self.slots_taken < self.slots and not (self.is_leaving or self.is_congested)

    @property
    def has_room(self) -> bool:
        """Whether it can be sent another task, to run or to wait."""
        is_full = len(self.tasks) >= self.slots * self._queue_size
        return not (is_full or self.is_leaving or self.is_congested or self.distance_seconds)

    @property
    def plain_tasks(self) -> List[AtWorker]:
        return [task for task in self.tasks.values() if not task.is_call]

    @property
    def movable_tasks(self) -> List[AtWorker]:
        """Tasks that could run elsewhere, unless they have begun."""
        return [task for key, task in self.tasks.items() if not (key in self.ending or task.is_call)]

    @property
    def slots_taken(self) -> int:
        if not self.has_calls:
            return len(self.tasks)
        return len(self.plain_tasks) + len({task.function for task in self.tasks.values() if task.is_call})

    def fits(self, task_class: TaskClass) -> bool:
        if not serves(self.key, task_class.tenant):
            return False
        if task_class.request_seconds and self.now + task_class.request_seconds > self._ends_at:
            return False
        for name, amount in task_class.needs:
            used = sum(each for task in self.tasks.values() for other, each in task.task_class.needs if other == name)
            if name not in self.capabilities or used + amount > self.capabilities[name]:
                return False
        return True
