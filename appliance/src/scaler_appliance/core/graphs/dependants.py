"""Tasks that need results of tasks submitted before them, as a client's session holds them.

    Task ──▶ Dependant ──last predecessor succeeded──▶ TaskBatch, its payload with the results in front ──▶ queue
                │
                └──a predecessor failed, was lost or cancelled──▶ its outcome

Rules:
- A dependant is an object of its own until it is released, because each waits separately; then it becomes a task of a
  batch like all others.
- Predecessors are identified by their clients' ids. Dependants need the outcome that the client gets: the session
  records outcomes when they are reported to the client, whatever caused them.
- Data and small accessors only: decisions are made in `dependant_reactions`.
"""

from __future__ import annotations

from array import array
from collections import deque
from itertools import islice
from typing import Deque, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from scaler_appliance.core.large_tables import LARGE, Table, in_chunks
from scaler_appliance.core.tasks.batches import TaskBatch
from scaler_appliance.core.tasks.client_results import ResultSpan
from scaler_protocol import messages as m


class Ending(NamedTuple):
    """How a predecessor ended."""

    task_id: int
    status: Optional[int]  # TaskStatus; None: cancelled
    content: bytes = b""  # of its result, or its Failure
    codec: str = ""
    object_id: int = 0  # that has its result
    origin: int = 0  # of its failure


class Dependant:
    """A task that waits for others.

    Parameters:
        message: the message it came in, which has the properties that it shares with other tasks.
        payload: its own.
    """

    __slots__ = ("task_id", "message", "payload", "dependencies", "predecessors", "results", "missing")

    def __init__(
        self,
        task_id: int,
        message: m.Task,
        payload: bytes,
        dependencies: array[int],
        predecessors: Sequence[int],
    ) -> None:
        self.task_id = task_id
        self.message = message
        self.payload = payload
        self.dependencies = dependencies  # objects
        self.predecessors = predecessors  # tasks, each once
        self.results: Dict[int, Union[bytes, int]] = {}  # by predecessor: content, or the id of the object that has it
        self.missing = len(predecessors)

    def results_in_order(self) -> List[Union[bytes, int]]:
        return [self.results[each] for each in self.predecessors]

    def references(self) -> Iterator[int]:
        """The objects that it keeps alive, each as often as it refers to it."""
        if self.message.function:
            yield self.message.function
        yield from self.dependencies
        yield from (result for result in self.results.values() if isinstance(result, int))


class Passing:
    """An outcome that is being passed on.

    Parameters:
        ending: of the predecessor.
        result: of it, in the form in which it is kept; None: it did not succeed.
        followers: that have not got it, the first one last.
    """

    __slots__ = ("ending", "result", "followers")

    def __init__(self, ending: Ending, result: Union[bytes, int, None], followers: List[Dependant]) -> None:
        self.ending = ending
        self.result = result
        self.followers = followers


class Dependants:
    """The dependants of one client."""

    def __init__(self) -> None:
        self.waiting: Table[Dependant] = {}  # by task id
        self.followers: Table[Table[Dependant]] = {}  # by id of a predecessor without outcome, then their own
        self.endings: Deque[Ending] = deque()  # of such predecessors, which have had no consequences yet
        self.held_endings = 0  # the first of them, whose objects have a reference for it
        self.current: Optional[Passing] = None  # the one whose consequences are being processed
        self.ready: Deque[Dependant] = deque()  # those whose last predecessor has succeeded, to be released
        self.released: Table[Tuple[TaskBatch, int]] = {}  # where those are now, by task id

    @property
    def has_consequences(self) -> bool:
        return bool(self.endings or self.current or self.ready)

    def references(self) -> Iterator[int]:
        """The objects that endings keep alive."""
        for ending in islice(self.endings, self.held_endings):
            if ending.object_id:
                yield ending.object_id
        if self.current is not None and isinstance(self.current.result, int):
            yield self.current.result

    def add(self, dependant: Dependant) -> None:
        self.waiting[dependant.task_id] = dependant
        if len(self.waiting) == LARGE:
            self.waiting = in_chunks(self.waiting)
        for predecessor in dependant.predecessors:
            followers = self.followers.setdefault(predecessor, {})
            followers[dependant.task_id] = dependant
            if len(followers) == LARGE:
                self.followers[predecessor] = in_chunks(followers)
            if len(self.followers) == LARGE:
                self.followers = in_chunks(self.followers)

    def add_released(self, task_id: int, batch: TaskBatch, index: int) -> None:
        """A task that waited is in a batch now."""
        self.released[task_id] = batch, index
        if len(self.released) == LARGE:
            self.released = in_chunks(self.released)

    def remove(self, dependant: Dependant) -> None:
        """Remove a task that no longer waits."""
        del self.waiting[dependant.task_id]
        for predecessor in dependant.predecessors:
            self.unfollow(predecessor, dependant)

    def unfollow(self, predecessor: int, dependant: Dependant) -> None:
        """A task knows the outcome of a predecessor, or does not wait for it any more."""
        followers = self.followers.get(predecessor)
        if followers is not None:
            followers.pop(dependant.task_id, None)
            if not followers:
                del self.followers[predecessor]

    def keep_results(self, ids: array[int], span: ResultSpan) -> None:
        """Outcomes leave for the client: keep those that a follower needs."""
        causes = span.optional.get("causes") if span.optional else None
        objects = span.optional.get("objects") if span.optional else None
        offset = 0
        for position, task_id in enumerate(ids):
            end = offset + span.sizes[position]
            if task_id in self.followers:
                status = span.statuses[position] if span.statuses else m.TaskStatus.SUCCESS
                origin = causes[position] - 1 if causes and causes[position] else task_id
                content = bytes(span.payload[offset:end])
                object_id = objects[position] if objects else 0
                self.endings.append(Ending(task_id, status, content, span.codec, object_id, origin))
            offset = end

    def keep_cancelled(self, task_id: int) -> None:
        """The client is notified that a task is cancelled."""
        if task_id in self.followers:
            self.endings.append(Ending(task_id, None))

    def check_invariants(self) -> None:
        """Check that each task that waits for another follows it; called by State.check_invariants."""
        for task_id, dependant in self.waiting.items():
            assert task_id == dependant.task_id
            missing = [each for each in dependant.predecessors if each not in dependant.results]
            assert dependant.missing == len(missing), f"task {task_id} is miscounted"
            assert missing or dependant in self.ready, f"task {task_id} waits for nothing"
            for each in missing:
                assert task_id in self.followers[each], f"task {task_id} does not follow {each}"
        for predecessor, followers in self.followers.items():
            assert followers, f"task {predecessor} has no followers"
            assert all(self.waiting[each] is follower for each, follower in followers.items())
        for task_id, (batch, index) in self.released.items():
            assert batch.ids[index] == task_id
