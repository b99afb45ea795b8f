"""Tasks that wait in the client for other tasks, because the scheduler cannot hold them back.

    submit(g, f) ──▶ DeferredTask ──f has ended──▶ the shell puts its result in front of the payload ──▶ a new task
                         ▲
                         └── the scheduler gave g back: it had already reported f's outcome

Normally the scheduler holds a task back until its predecessors have ended (`TaskRun.predecessors`), and this module is
not used. It is used when the scheduler is too old for that; when the outcome of a predecessor and the task cross on the
wire; and after a session ends, because the next scheduler does not know earlier results.

Rules:
- A deferred task is among the client's unfinished futures, under a number that is never sent; it is sent under another
  one. So everything that ends futures also ends it.
- Its arguments are those that it was submitted with; results are prepended as received, without loading them.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, Mapping, Optional, Sequence

from scaler.client.core.handles import Buffer, TaskHandle
from scaler.client.core.kept_objects import KeptObject
from scaler.client.core.outbox import FunctionKey, TaskRun
from scaler_protocol.wire import messages as m

ACTORS = "actors"
"""The feature of schedulers that know actors."""

PREDECESSORS = "predecessors"
"""The feature of schedulers that let tasks wait for others."""


class DeferredTask:
    """What is needed to send a task later.

    Parameters:
        dependencies: the objects that it needs.
        predecessors: the futures whose results it needs, in the order of their places in its arguments.
        arguments_bytes: the size of the first dependency, if that holds the task's arguments.
    """

    was_sent = False

    def __init__(
        self,
        future: TaskHandle,
        function: FunctionKey,
        function_object: Optional[KeptObject],
        options: Optional[m.TaskOptions],
        payload: Buffer,
        dependencies: Sequence[int],
        predecessors: Sequence[TaskHandle],
        arguments_bytes: int = 0,
    ) -> None:
        self.future = future
        self.function = function
        self.function_object = function_object
        self.options = options
        self.payload = payload
        self.dependencies = list(dependencies)
        self.predecessors = tuple(predecessors)
        self.arguments_bytes = arguments_bytes
        self.missing = 0

    @staticmethod
    def taken_from(run: TaskRun, future: TaskHandle) -> DeferredTask:
        """A task that was sent to wait at the scheduler, and has to wait here instead."""
        task_id = future._task_id
        task, payload = run.part([task_id], lambda object_id: object_id)
        return DeferredTask(
            future,
            run.function,
            run.function_object,
            run.options,
            b"".join(payload),
            task.dependencies,
            run.futures_needed[task_id],
        )


class Deferring:
    """The deferred tasks of one client.

    Parameters:
        unfinished: the client's futures without an outcome, by task id.
    """

    def __init__(self, unfinished: Mapping[int, TaskHandle]) -> None:
        self._unfinished = unfinished
        self.waiting: Dict[int, List[DeferredTask]] = {}  # by a task that they need, and that has not ended

    def defer(self, task: DeferredTask) -> bool:
        """Let a task with an unfinished future wait; returns True when there is nothing to wait for."""
        task.future._source = task
        task.missing = 0
        for each in task.predecessors:
            if self._unfinished.get(each._task_id) is each:
                task.missing += 1
                self.waiting.setdefault(each._task_id, []).append(task)
        return not task.missing

    def renumber(self, before: int, now: int) -> None:
        """A task has a new number."""
        if before in self.waiting:
            self.waiting[now] = self.waiting.pop(before)

    def on_ended(self, task_ids: Iterable[int]) -> List[DeferredTask]:
        """Tasks have ended, if they are not among the unfinished ones; returns those that waited for nothing else."""
        ready: List[DeferredTask] = []
        for task_id in task_ids:
            if task_id in self.waiting and task_id not in self._unfinished:
                for task in self.waiting.pop(task_id):
                    task.missing -= 1
                    if not task.missing and self._unfinished.get(task.future._task_id) is task.future:
                        ready.append(task)
        return ready
