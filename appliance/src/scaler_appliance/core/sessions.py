"""Peers that have said Hello.

Rules:
- A session number is granted once and never again while the scheduler lives; a peer that comes back is a new peer.
- A session holds what must end with it: a worker's dispatches, a client's batches and objects.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Dict, Iterable, Iterator, List, Optional, Set, Tuple

from scaler_appliance.core.batches import Dispatch, TaskBatch
from scaler_appliance.core.results import ResultOutbox, ResultSpan
from scaler_protocol import messages as m


class Session:
    """What clients and workers have in common."""

    def __init__(self, number: int, peer: bytes, hello: m.Hello, now: float, touched: Dict[int, Session]) -> None:
        self._touched = touched  # sessions that have something to be sent at the end of this burst
        self.number = number
        self.peer = peer
        self.hello = hello
        self.last_heard = now
        self.leaving = False
        self.objects: Set[int] = set()  # ids of objects it owns

    @property
    def title(self) -> str:
        """How log lines and errors call this peer."""
        hello = self.hello
        kind = "worker" if hello.role == m.Role.WORKER else "client"
        return f"{kind} {hello.name or self.number} ({hello.host}, process {hello.process_id})"


class ClientSession(Session):
    def __init__(self, number: int, peer: bytes, hello: m.Hello, now: float, touched: Dict[int, Session]) -> None:
        super().__init__(number, peer, hello, now, touched)
        self.last_task_id = -1
        self.outbox = ResultOutbox()
        self.confirmed_ids: array[int] = array("Q")
        self.confirmed_outcomes = bytearray()
        self._batches: Dict[int, TaskBatch] = {}  # by first task id
        self._starts: List[int] = []  # first task ids, ascending; finished batches are dropped now and then

    def add_batch(self, batch: TaskBatch) -> None:
        first = batch.ids[0]
        self._batches[first] = batch
        self._starts.append(first)

    def remove_batch(self, batch: TaskBatch) -> None:
        del self._batches[batch.ids[0]]
        if len(self._starts) > 2 * len(self._batches) + 64:
            self._starts = [start for start in self._starts if start in self._batches]

    def find_task(self, task_id: int) -> Optional[Tuple[TaskBatch, int]]:
        """The batch and position of an unfinished batch's task."""
        place = bisect_right(self._starts, task_id) - 1
        batch = self._batches.get(self._starts[place]) if place >= 0 else None
        if batch is None:
            return None
        index = bisect_right(batch.ids, task_id) - 1
        return (batch, index) if batch.ids[index] == task_id else None

    def batches(self) -> Iterator[TaskBatch]:
        return iter(self._batches.values())

    def report(self, ids: "array[int]", span: ResultSpan) -> None:
        """Send outcomes at the end of this burst."""
        self.outbox.add(ids, span)
        self._touched[self.number] = self

    def confirm_cancel(self, task_id: int, outcome: m.CancelOutcome) -> None:
        """Answer a cancel at the end of this burst."""
        self._touched[self.number] = self
        self.confirmed_ids.append(task_id)
        self.confirmed_outcomes.append(outcome)


class WorkerSession(Session):
    def __init__(self, number: int, peer: bytes, hello: m.Hello, now: float, touched: Dict[int, Session]) -> None:
        super().__init__(number, peer, hello, now, touched)
        self.slots = hello.slots
        self.capacity = hello.slots * max(1, hello.queue_size)  # tasks it may hold
        self.capabilities = {capability.name: capability.amount for capability in hello.capabilities}
        self.dispatches: Dict[int, Dispatch] = {}
        self.assigned = 0
        self.load_microseconds = 0.0
        self.known_objects: Set[int] = set()
        self.forgotten_objects: array[int] = array("Q")
        self.cancelled_instances: array[int] = array("Q")
        self.forced_instances: array[int] = array("Q")
        self.heartbeat: Optional[m.Heartbeat] = None

    def offers(self, capabilities: Tuple[Tuple[str, float], ...]) -> bool:
        return all(self.capabilities.get(name, 0.0) >= amount for name, amount in capabilities)

    def cancel(self, instances: Iterable[int], force: bool) -> None:
        """Ask the worker to drop instances, at the end of this burst."""
        (self.forced_instances if force else self.cancelled_instances).extend(instances)
        self._touched[self.number] = self

    def forget_object(self, object_id: int) -> None:
        """Tell the worker that an object is gone, at the end of this burst."""
        self.known_objects.discard(object_id)
        self.forgotten_objects.append(object_id)
        self._touched[self.number] = self
