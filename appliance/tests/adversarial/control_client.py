"""A client among adversarial peers that does everything right, and the worker that serves it in the end.

Rules: it judges from outside. Each of its tasks, and each target of its graphs, has one outcome, whichever; it is never
refused, and never told to leave while the scheduler stays.
"""

from __future__ import annotations

from array import array
from typing import Iterable, List, Set

from adversarial.values import Values
from scheduler_harness import Harness, task

from scaler_protocol import messages as m

MOST_TASKS = 60
MOST_ROUNDS = 200
FUNCTION = 1  # its only object


class ControlClient:
    def __init__(self, harness: Harness, values: Values) -> None:
        self._harness = harness
        self._values = values
        self.client = harness.client()
        self._function = self.client.create(FUNCTION, b"f")
        self._last_task_id = 0
        self._open: Set[int] = set()  # without outcome
        self._unwanted: Set[int] = set()  # nodes that are no targets

    @property
    def is_served(self) -> bool:
        return self.client.name in self._harness.state.sessions

    def act(self) -> None:
        """Submit a few tasks of any worker's; they go where the contradictory ones go."""
        if not self.is_served or self._last_task_id >= MOST_TASKS:
            return
        first = self._last_task_id + 1
        self._last_task_id += 3
        ids = range(first, self._last_task_id + 1)
        if self._values.chance(0.6):
            self.client.post(*task(ids))
            self._open.update(ids)
        else:
            self.client.post(self._chain(ids), b"123")
            self._unwanted.update(ids[:-1])
            self._open.add(ids[-1])

    def _chain(self, ids: range) -> m.GraphTask:
        """Each node needs the one before it; the last is wanted."""
        return m.GraphTask(
            ids=array("Q", ids),
            payload_sizes=array("I", [1] * len(ids)),
            functions=array("Q", [self._function] * len(ids)),
            predecessor_offsets=array("I", [0, *range(len(ids))]),
            predecessors=array("I", range(len(ids) - 1)),
            targets=array("I", [len(ids) - 1]),
        )

    def say_that_it_is_there(self) -> None:
        if self.is_served:
            self.client.post(m.Heartbeat())

    def read(self) -> None:
        """Take note of all outcomes, and let go of what came with them."""
        while self.client.inbox:
            message, _ = self.client.inbox.popleft()
            assert not isinstance(message, m.Refusal), f"the control client was refused: {message}"
            if isinstance(message, m.TaskResult):
                self._note_ends(message.ids)
                if any(message.objects):
                    deletion = array("Q", filter(None, message.objects))
                    self.client.post(m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=deletion))
            elif isinstance(message, m.TaskCancelConfirm):  # a worker may confirm a cancel that was not requested
                assert not any(message.outcomes), f"the control client asked for no cancel: {message}"
                self._note_ends(task_id for task_id in message.ids if task_id not in self._unwanted)

    def _note_ends(self, task_ids: Iterable[int]) -> None:
        for task_id in task_ids:
            assert task_id in self._open, f"task {task_id} of the control client has a second outcome"
            self._open.remove(task_id)

    def finish(self) -> None:
        """A good worker joins, after which everything must end; then both leave."""
        worker = self._harness.worker(slots=2)
        for _ in range(MOST_ROUNDS):
            self.read()
            if not self._open:
                break
            instances: List[int] = []
            while worker.inbox:
                message, _ = worker.inbox.popleft()
                if isinstance(message, m.Task):
                    instances += message.ids
            self.say_that_it_is_there()
            self._harness.now += 0.02
            worker.finish(instances)
        assert not self._open, f"tasks {sorted(self._open)} of the control client never end"
        worker.vanish()
        self.client.vanish()
