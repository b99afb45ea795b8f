"""Tasks that the agent holds, in batches: columns that are cut and joined by slices, never one object per task.

Rules:
- A batch has one function and one set of options, as received. Its columns are cut from the front; `start` says how
  far.
- The queue runs higher priorities first. Within one priority clients take turns, a chunk each: so the few tasks of one
  do not wait for what was sent ahead of another. A client's tasks run first come, first served. Tasks that come back
  from a processor go to the front.
- A task is found by looking through the columns (a set operation on each). Only the rare events need this: cancelling
  and giving back.
"""

from __future__ import annotations

from array import array
from bisect import insort
from collections import deque
from typing import Deque, Dict, Iterator, List, NamedTuple, Optional, Set

from scaler.worker.frames import Buffer, TasksFlag
from scaler_protocol import messages as m

ABSORB_TASKS = 1000
ABSORB_BYTES = 64 * 1024
"""Small batches that are alike are joined in the queue up to this size: a processor then gets one chunk, not many."""


class TaskTraits(NamedTuple):
    """The properties that all tasks of a batch share."""

    function: int
    codec: str
    client: int = 0
    attempt: int = 1
    priority: int = 0
    retries: int = 0
    time_limit_seconds: float = 0.0  # 0: none
    memory_limit_bytes: int = 0  # 0: none
    at_most_once: bool = False
    flags: int = 0  # TasksFlag
    has_started: bool = False  # it has already started once, in a process that died
    is_call: bool = False  # of the actor that the function's object holds


class HeldTasks:
    """Columns of tasks, of which those before `start` are gone."""

    __slots__ = ("traits", "ids", "sizes", "payload", "dependency_counts", "dependencies", "start")

    def __init__(
        self,
        traits: TaskTraits,
        ids: array[int],
        sizes: array[int],
        payload: Buffer,
        dependency_counts: Optional[array[int]] = None,
        dependencies: Optional[array[int]] = None,
    ) -> None:
        self.traits = traits
        self.ids = ids
        self.sizes = sizes
        self.payload = memoryview(payload)  # of the tasks from `start` on
        self.dependency_counts = dependency_counts  # None: no task of the batch has any
        self.dependencies = dependencies  # of the tasks from `start` on
        self.start = 0

    def __len__(self) -> int:
        return len(self.ids) - self.start

    def copy(self) -> HeldTasks:
        """A copy; the columns are shared, because they are never changed in place."""
        other = HeldTasks(self.traits, self.ids, self.sizes, self.payload, self.dependency_counts, self.dependencies)
        other.start = self.start
        return other

    def take(self, count: int) -> HeldTasks:
        """Cut the first `count` tasks off into a batch of their own."""
        start, stop = self.start, self.start + count
        sizes = self.sizes[start:stop]
        payload_bytes = sum(sizes)
        front = HeldTasks(self.traits, self.ids[start:stop], sizes, self.payload[:payload_bytes])
        self.payload = self.payload[payload_bytes:]
        if self.dependency_counts is not None and self.dependencies is not None:
            front.dependency_counts = self.dependency_counts[start:stop]
            number = sum(front.dependency_counts)
            front.dependencies = self.dependencies[:number]
            self.dependencies = self.dependencies[number:]
        self.start = stop
        return front

    def take_newest(self, count: int) -> array[int]:
        """Cut the last `count` tasks off and return their ids."""
        keep = len(self) - count
        newest = self.ids[self.start + keep :]
        kept = self.take(keep)
        self._become(kept)
        return newest

    def absorb(self, other: HeldTasks) -> bool:
        """Append another batch's tasks if they are of the same kind and the result is small; returns whether it did."""
        if (
            self.traits != other.traits
            or len(self) + len(other) > ABSORB_TASKS
            or len(self.payload) + len(other.payload) > ABSORB_BYTES
            or self.dependencies
            or other.dependencies
        ):
            return False
        self.ids = self.ids[self.start :] + other.ids[other.start :]
        self.sizes = self.sizes[self.start :] + other.sizes[other.start :]
        self.payload = memoryview(b"".join((self.payload, other.payload)))
        self.dependency_counts = self.dependencies = None
        self.start = 0
        return True

    def needed_objects(self) -> Set[int]:
        """The ids of all objects that any of the tasks needs, including the function, without 0."""
        needed = set(self.dependencies or ())
        needed.add(self.traits.function)
        return needed

    def singles(self) -> Iterator[HeldTasks]:
        """The batch cut into batches of one task."""
        while len(self):
            yield self.take(1)

    def with_attempt(self, attempt: int) -> HeldTasks:
        self.traits = self.traits._replace(attempt=attempt, has_started=True)
        return self

    def remove(self, wanted: Set[int]) -> List[int]:
        """Take tasks out of the batch, wherever they stand; returns the ids found, one for each task."""
        ids = self.ids[self.start :]
        if wanted.isdisjoint(ids):
            return []
        # Searched by position, not by id: a faulty scheduler may have sent an id twice.
        places = [place for place, instance in enumerate(ids) if instance in wanted]
        kept, done = [], 0
        for place in places:
            kept.append(self.take(place - done))
            self.take(1)
            done = place + 1
        kept.append(self.take(len(self)))
        self._become(_joined(self.traits, kept))
        return [ids[place] for place in places]

    def _become(self, other: HeldTasks) -> None:
        for name in ("ids", "sizes", "payload", "dependency_counts", "dependencies", "start"):
            setattr(self, name, getattr(other, name))


def _joined(traits: TaskTraits, batches: List[HeldTasks]) -> HeldTasks:
    ids, sizes = array("Q"), array("I")
    counts, dependencies = array("H"), array("Q")
    for batch in batches:
        ids += batch.ids
        sizes += batch.sizes
        counts += batch.dependency_counts or array("H", bytes(2 * len(batch)))
        dependencies += batch.dependencies or array("Q")
    payload = b"".join(batch.payload for batch in batches)
    if not dependencies:
        return HeldTasks(traits, ids, sizes, payload)
    return HeldTasks(traits, ids, sizes, payload, counts, dependencies)


def batch_from_message(message: m.Task, payload: Buffer, default_time_limit_seconds: float) -> HeldTasks:
    """The batch of a Task message.

    Parameters:
        default_time_limit_seconds: for tasks that have none of their own; 0: none.

    Raises MalformedMessageError if the columns and the payload disagree.
    """
    # SCL-WRK-015
    message.check_columns(len(payload))
    counts = message.dependency_counts
    options = message.options
    flags = 0
    if options.profiling:
        flags |= TasksFlag.PROFILING
    # SCL-WRK-016, SCL-WRK-018
    if options.stream_output:
        flags |= TasksFlag.STREAM_OUTPUT
    limit = options.time_limit_milliseconds / 1000
    if default_time_limit_seconds:
        limit = min(limit, default_time_limit_seconds) if limit else default_time_limit_seconds
    traits = TaskTraits(
        function=message.function,
        codec=message.codec,
        client=message.client,
        attempt=message.attempt or 1,
        priority=options.priority,
        retries=options.retries,
        time_limit_seconds=limit,
        memory_limit_bytes=options.memory_limit_bytes,
        at_most_once=options.at_most_once,
        flags=flags,
        is_call=options.actor,
    )
    if not message.dependencies:
        return HeldTasks(traits, message.ids, message.payload_sizes, payload)
    return HeldTasks(traits, message.ids, message.payload_sizes, payload, counts, message.dependencies)


class TaskQueue:
    """Batches in the order in which they are to run."""

    def __init__(self) -> None:
        self.count = 0  # tasks that may run
        self._aside: Deque[HeldTasks] = deque()  # those that may not now
        # By priority, and then by client, the one whose turn it is first; none is empty.
        self._queues: Dict[int, Dict[int, Deque[HeldTasks]]] = {}
        self._order: List[int] = []  # negated priorities, ascending

    def append(self, batch: HeldTasks) -> None:
        """Queue a batch behind those of its priority and client."""
        count = len(batch)
        if count:
            queue = self._queue(batch.traits)
            if not (queue and queue[-1].absorb(batch)):
                queue.append(batch)
            self.count += count

    def put_back(self, batch: HeldTasks) -> None:
        """Queue a batch before all those of its priority."""
        if len(batch):
            self._queue(batch.traits).appendleft(batch)
            clients = self._queues[batch.traits.priority]
            if len(clients) > 1:
                first = batch.traits.client
                self._queues[batch.traits.priority] = {first: clients.pop(first), **clients}
            self.count += len(batch)

    def _queue(self, traits: TaskTraits) -> Deque[HeldTasks]:
        clients = self._queues.get(traits.priority)
        if clients is None:
            clients = self._queues[traits.priority] = {}
            insort(self._order, -traits.priority)
        queue = clients.get(traits.client)
        if queue is None:
            queue = clients[traits.client] = deque()
        return queue

    def head(self) -> HeldTasks:
        """The batch whose tasks come next; the queue must not be empty."""
        # SCL-WRK-004
        for queue in self._queues[-self._order[0]].values():
            return queue[0]
        raise AssertionError("a priority without tasks")

    def take(self, count: int) -> HeldTasks:
        """Take the first `count` tasks of the head batch. Then it is the turn of the next client."""
        batch = self.head()
        order, client = self._order[0], batch.traits.client
        self.count -= count
        is_whole = batch.start == 0 and count == len(batch.ids)
        front = batch if is_whole else batch.take(count)
        if is_whole or not len(batch):
            self._drop_from(order, client, 0)
        clients = self._queues.get(-order)
        if clients is not None and len(clients) > 1 and client in clients:
            clients[client] = clients.pop(client)
        return front

    def _drop_from(self, order: int, client: int, index: int) -> None:
        clients = self._queues[-order]
        queue = clients[client]
        del queue[index]
        if not queue:
            del clients[client]
            if not clients:
                del self._queues[-order]
                self._order.remove(order)

    def set_aside(self) -> None:
        """The batch whose tasks come next waits until `restore`."""
        self._aside.append(self.take(len(self.head())))

    def restore(self) -> None:
        """What was set aside comes next, in its order."""
        while self._aside:
            self.put_back(self._aside.pop())

    @property
    def set_aside_count(self) -> int:
        """How many tasks were."""
        return sum(map(len, self._aside))

    def needed_objects(self) -> Set[int]:
        """The objects that tasks in the queue need."""
        queues = [queue for clients in self._queues.values() for queue in clients.values()] + [self._aside]
        return {i for queue in queues for batch in queue for i in batch.needed_objects()}

    def take_newest(self, count: int) -> array[int]:
        """Take up to `count` tasks that have never started, each client's from the end, and return their ids."""
        self.restore()
        ids: array[int] = array("Q")
        for order in reversed(self._order[:]):
            for client, queue in reversed(list(self._queues[-order].items())):
                for index in range(len(queue) - 1, -1, -1):
                    batch = queue[index]
                    if batch.traits.has_started:  # SCL-WRK-026
                        continue
                    number = min(count - len(ids), len(batch))
                    if not number:
                        return ids
                    ids += batch.take_newest(number)
                    self.count -= number
                    if not len(batch):
                        self._drop_from(order, client, index)
        return ids

    def remove(self, wanted: Set[int]) -> List[int]:
        """Take tasks out by id; returns those found."""
        self.restore()
        found: List[int] = []
        for order in list(self._order):
            for client, queue in list(self._queues[-order].items()):
                for index in range(len(queue) - 1, -1, -1):
                    found += queue[index].remove(wanted)
                    if not len(queue[index]):
                        self._drop_from(order, client, index)
        self.count -= len(found)
        return found
