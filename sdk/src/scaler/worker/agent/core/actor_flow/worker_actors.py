"""The actors of a worker: each has a processor of its own, and its calls wait in a queue of its own.

    Task with the option actor ─▶ queue of the actor ─▶ chunk on its processor, while a slot is free
                                                            │
       its object is deleted: it ends          its processor ends: it is lost, and so are all its calls

Rules:
- An actor begins with its first call, and has one processor in its life. The processor runs nothing else, and has a
  slot only while calls run.
- Calls run one at a time, in the order in which they came. A call whose objects are not here yet lets the next ones
  wait.
- An actor that is lost is remembered until its object is deleted: later calls end with the same reason.
"""

from __future__ import annotations

from collections import deque
from typing import Deque, Dict, Iterable, List, Optional, Set, Tuple

from scaler.worker.agent.core.processor_pool import ProcessorState
from scaler.worker.agent.core.task_queue import HeldTasks

ACTORS = "actors"
"""The feature: this worker runs calls of actors."""

CLOSED = "the actor has been closed"


class _Waiting:
    __slots__ = ("batch", "missing")

    def __init__(self, batch: HeldTasks, missing: Set[int]) -> None:
        self.batch = batch
        self.missing = missing


class WorkerActor:
    """One actor: where it is, and the calls that no processor has."""

    __slots__ = ("function", "processor", "why_lost", "count", "_queue")

    def __init__(self, function: int) -> None:
        self.function = function
        self.processor: Optional[ProcessorState] = None
        self.why_lost = ""
        self.count = 0  # calls in the queue
        self._queue: Deque[_Waiting] = deque()

    @property
    def is_alive(self) -> bool:
        return not self.why_lost

    @property
    def priority(self) -> int:
        """Of its next call; it must have one."""
        return self._queue[0].batch.traits.priority

    def append(self, batch: HeldTasks, missing: Set[int]) -> None:
        """Queue calls, of which some objects may be missing."""
        self.count += len(batch)
        if not missing and self._queue and not self._queue[-1].missing and self._queue[-1].batch.absorb(batch):
            return
        self._queue.append(_Waiting(batch, missing))

    def put_back(self, batch: HeldTasks) -> None:
        """Queue calls before the others."""
        if len(batch):
            self.count += len(batch)
            self._queue.appendleft(_Waiting(batch, set()))

    def head(self) -> Optional[HeldTasks]:
        """The next calls, if their objects are here."""
        return self._queue[0].batch if self._queue and not self._queue[0].missing else None

    def wait_for(self, missing: Set[int]) -> None:
        """The next calls need these objects as well."""
        self._queue[0].missing = missing

    def take(self, count: int) -> HeldTasks:
        """Take the first `count` calls of the head."""
        batch = self._queue[0].batch
        self.count -= count
        if batch.start == 0 and count == len(batch.ids):
            self._queue.popleft()
            return batch
        front = batch.take(count)
        if not len(batch):
            self._queue.popleft()
        return front

    def take_all(self) -> List[HeldTasks]:
        """Take all calls."""
        batches = [each.batch for each in self._queue]
        self._queue.clear()
        self.count = 0
        return batches

    def arrived(self, object_id: int) -> bool:
        """An object is here; returns whether a call has waited for it."""
        has_waited = False
        for each in self._queue:
            if object_id in each.missing:
                each.missing.discard(object_id)
                has_waited = True
        return has_waited

    def lost(self, object_id: int) -> List[HeldTasks]:
        """An object cannot be fetched; takes the calls that need it."""
        failed = [each.batch for each in self._queue if object_id in each.missing]
        if failed:
            self._queue = deque(each for each in self._queue if object_id not in each.missing)
            self.count -= sum(map(len, failed))
        return failed

    def remove(self, wanted: Set[int]) -> List[int]:
        """Take calls out by id; returns those found."""
        found: List[int] = []
        for each in self._queue:
            found += each.batch.remove(wanted)
        self._queue = deque(each for each in self._queue if len(each.batch))
        self.count -= len(found)
        return found

    def needed_objects(self) -> Set[int]:
        return {self.function}.union(*(each.batch.needed_objects() for each in self._queue))


class WorkerActors:
    """All actors, by the object that holds their function."""

    def __init__(self) -> None:
        self._actors: Dict[int, WorkerActor] = {}
        self._ready: Dict[int, WorkerActor] = {}  # whose next call may have a processor; the one whose turn it is first

    def __len__(self) -> int:
        return len(self._actors)

    def find(self, function: int) -> Optional[WorkerActor]:
        return self._actors.get(function)

    def begin(self, function: int) -> WorkerActor:
        """The actor, which is new if it has no calls yet."""
        actor = self._actors.get(function)
        if actor is None:
            actor = self._actors[function] = WorkerActor(function)
        return actor

    @property
    def count(self) -> int:
        """Calls that no processor has."""
        return sum([actor.count for actor in self._actors.values()])

    @property
    def has_living(self) -> bool:
        """Whether there is an actor that is not lost."""
        return any(actor.is_alive for actor in self._actors.values())

    @property
    def has_ready(self) -> bool:
        """Whether calls may be given to processors."""
        return bool(self._ready)

    def wake(self, actor: WorkerActor) -> None:
        """Its next call may have a processor."""
        if actor.count:
            self._ready[actor.function] = actor

    def rest(self, actor: WorkerActor) -> None:
        """Its next call has to wait until something changes."""
        self._ready.pop(actor.function, None)

    def ready(self) -> List[WorkerActor]:
        """Those of which a call may have a processor, in the order of their turns."""
        return list(self._ready.values())

    def end_turn(self, actor: WorkerActor) -> None:
        """An actor got a processor for some calls."""
        del self._ready[actor.function]
        self.wake(actor)

    def lose(self, actor: WorkerActor, why: str) -> List[HeldTasks]:
        """An actor is lost; takes its calls."""
        actor.why_lost = actor.why_lost or why
        actor.processor = None
        self.rest(actor)
        return actor.take_all()

    def forget(self, functions: Iterable[int]) -> List[Tuple[WorkerActor, List[HeldTasks]]]:
        """These objects are deleted; returns the actors among them, with the calls that wait."""
        if not self._actors:
            return []
        gone = [self._actors.pop(each) for each in functions if each in self._actors]
        for actor in gone:
            self.rest(actor)
        return [(actor, actor.take_all()) for actor in gone]

    def arrived(self, object_id: int) -> None:
        """An object is here."""
        for actor in self._actors.values():
            if actor.arrived(object_id):
                self.wake(actor)

    def lost(self, object_id: int) -> List[HeldTasks]:
        """An object cannot be fetched; takes the calls that need it."""
        failed: List[HeldTasks] = []
        for actor in self._actors.values():
            found = actor.lost(object_id)
            if found:
                failed += found
                self.wake(actor)
        return failed

    def remove(self, wanted: Set[int]) -> List[int]:
        """Take calls out by id; returns those found."""
        found: List[int] = []
        for actor in self._actors.values():
            if actor.count:
                found += actor.remove(wanted)
                if not actor.count:
                    self.rest(actor)
        return found

    def needed_objects(self) -> Set[int]:
        """The objects that living actors and their calls need."""
        living = [actor for actor in self._actors.values() if actor.is_alive]
        return {i for actor in living for i in actor.needed_objects()}

    def clear(self) -> None:
        self._actors.clear()
        self._ready.clear()
