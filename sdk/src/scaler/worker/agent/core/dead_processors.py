"""What happens to the tasks of a processor that has ended.

Rules:
- The running task is the most likely cause: it is cancelled, lost, or run again as often as it allows. The other tasks
  of its chunk run elsewhere.
- A task that had run, and whose outcome was lost with the processor, is run again; that counts as an attempt.
- If the processor was an actor's, all its calls are lost: no other processor has the actor's state.
- A task that must not run twice is never run again once it may have begun.
"""

from __future__ import annotations

from typing import Callable, List, NamedTuple, Optional, Protocol, Set

from scaler.worker.agent.core.cancellations import Cancellations
from scaler.worker.agent.core.effects import WARNING, Effect, Log, Send
from scaler.worker.agent.core.finished_tasks import NOT_RUN, Ran
from scaler.worker.agent.core.processor_pool import KillReason, ProcessorChunk, ProcessorPool, ProcessorState
from scaler.worker.agent.core.task_queue import HeldTasks, TaskQueue
from scaler_protocol import messages as m

MAXIMUM_LOST_OUTCOMES = 3
"""A task that ran this often, and whose outcome was lost with its processor each time, gets one more attempt."""

FOR_LACK_OF_MEMORY = "for lack of memory"
"""So ends the description of a processor's end if the system has killed it because no memory was left."""
RECOVERY_SECONDS = 60.0
STACK_STREAM = 3
"""The stream of a TaskLog with the stack of a cancelled task."""

NO_STACK = "Its Python stack is not known: the function blocks signals, or was not running Python code.\n"


class Death(NamedTuple):
    """How a processor ended, and for how long at most its last task had been running."""

    description: str
    stack: str
    busy_microseconds: int

    @property
    def is_for_lack_of_memory(self) -> bool:
        return self.description.endswith(FOR_LACK_OF_MEMORY)


def why_lost(state: ProcessorState, death: Death) -> str:
    """Why the actor of a processor that has ended is lost, for all its calls."""
    reason = state.kill_reason
    if reason is None:
        return f"the actor was lost with its processor: process {state.process_id} {death.description}"
    if reason.kind is None:
        return "the actor was lost because a call was cancelled by force while it ran"
    return f"the actor was lost because its processor was stopped: {reason.message}"


class Lose(Protocol):
    """Ends tasks that have not finished."""

    def __call__(
        self, tasks: HeldTasks, kind: m.FailureKind, text: str, stack: str = "", ran: Ran = NOT_RUN
    ) -> None: ...


class MemoryShortage:
    """Tasks of functions whose processors the system has killed for lack of memory do not end one another.

    Rules:
    - As many of them as were left fit: no more run at once, until one more may after each RECOVERY_SECONDS without
      another such death, and all when there is nothing to run. One runs in any case.
    - Others do not wait for that: what has to wait is set aside in the queue.
    """

    def __init__(self, pool: ProcessorPool, queue: TaskQueue, effects: List[Effect]) -> None:
        self._pool = pool
        self._queue = queue
        self._effects = effects
        self._functions: Set[int] = set()
        self._most = pool.slots
        self._more_at = 0.0  # seconds

    def reset(self, queue: TaskQueue) -> None:
        """A new session begins, with a new queue."""
        self._queue = queue
        self._functions.clear()
        self._most = self._pool.slots

    @property
    def is_active(self) -> bool:
        return bool(self._functions)

    def on_killed(self, state: ProcessorState, now: float) -> None:
        """A processor was killed, and is removed."""
        if not state.chunks:
            return
        self._functions.add(state.chunks[0].batch.traits.function)
        self._more_at = now + RECOVERY_SECONDS
        fewer = max(1, min(self._running(), self._most))
        if fewer < self._most:
            self._most = fewer
            text = f"Worker: memory is short, at most {fewer} of the tasks that were killed for it run at once"
            self._effects.append(Log(WARNING, text))

    def _running(self) -> int:
        """How many of these tasks run, and do not wait for others."""
        busy = (state for state in self._pool.states() if state.chunks and not state.suspended)
        return sum(state.chunks[0].batch.traits.function in self._functions for state in busy)

    def may_run(self, function: int) -> bool:
        """Whether another task of a function may run now."""
        return function not in self._functions or self._running() < self._most

    def begin_turn(self, now: float) -> None:
        """Let in what may run by now."""
        has_tasks = self._pool.busy or self._pool.suspended or self._queue.count or self._queue.set_aside_count
        if now >= self._more_at:
            self._most += 1
            self._more_at = now + RECOVERY_SECONDS
        if not has_tasks or self._most >= self._pool.slots:
            self._functions.clear()
            self._most = self._pool.slots
        if not self._functions or self._running() < self._most:
            self._queue.restore()


class DeadProcessors:
    """Settles the tasks of dead processors.

    Parameters:
        effects: shared with the rest of the core.
        requeue: puts tasks back to the front of the queue.
    """

    def __init__(
        self,
        cancellations: Cancellations,
        effects: List[Effect],
        requeue: Callable[[HeldTasks], None],
        lose: Lose,
    ) -> None:
        self._cancellations = cancellations
        self._effects = effects
        self._requeue = requeue
        self._lose = lose

    def settle(self, state: ProcessorState, death: Death) -> None:
        """Settle all tasks that a processor had."""
        for chunk in reversed(state.chunks):
            if chunk.reported < chunk.count:
                self._settle_chunk(state, chunk, death)

    def settle_running_call(self, state: ProcessorState, death: Death, why: str) -> List[HeldTasks]:
        """The processor of an actor has ended: settle the call that it ran; returns the others, all of them lost."""
        others: List[HeldTasks] = []
        for chunk in state.chunks:
            index = state.started - chunk.first_position
            if not (chunk.reported <= index < chunk.count and state.occupied):
                if chunk.reported < chunk.count:
                    others.append(chunk.part(chunk.reported, chunk.count))
                continue
            if chunk.reported < index:
                others.append(chunk.part(chunk.reported, index))
            if index + 1 < chunk.count:
                others.append(chunk.part(index + 1, chunk.count))
            self._settle_call(state, chunk.part(index, index + 1), death, why)
        return others

    def _settle_call(self, state: ProcessorState, call: HeldTasks, death: Death, why: str) -> None:
        reason = state.kill_reason
        if reason is not None and reason.position != state.started:
            reason = None
        ran = Ran(state.process_id, death.busy_microseconds)
        if self._is_cancelled(reason, call):
            self._confirm_cancelled(call, death.stack)
        elif reason is not None and reason.kind in (m.FailureKind.TIME_LIMIT, m.FailureKind.MEMORY_LIMIT):
            self._lose(call, reason.kind, reason.message, death.stack or NO_STACK, ran)
        else:
            self._lose(call, m.FailureKind.ACTOR_LOST, why, death.stack, ran)

    def _is_cancelled(self, reason: Optional[KillReason], task: HeldTasks) -> bool:
        return (reason is not None and reason.kind is None) or self._cancellations.by_force(task.ids[0])

    def _confirm_cancelled(self, task: HeldTasks, stack: str) -> None:
        if stack:
            self._effects.append(Send(m.TaskLog(id=task.ids[task.start], stream=STACK_STREAM, text=stack)))
        self._cancellations.confirm(task.ids[task.start :], m.CancelOutcome.CANCELLED)

    def _settle_chunk(self, state: ProcessorState, chunk: ProcessorChunk, death: Death) -> None:
        index = state.started - chunk.first_position  # of the task that started last, counted in this chunk
        if not chunk.reported <= index < chunk.count:
            rest = chunk.part(chunk.reported, chunk.count)
            if index >= chunk.count:
                self._run_again(rest)  # all were finished, and their outcomes lost
            else:
                self._requeue(rest)
            return
        self._requeue(chunk.part(index + 1, chunk.count))
        culprit = chunk.part(index, index + 1)
        if state.occupied:
            self._settle_culprit(state, culprit, death)
        else:
            self._run_again(culprit)
        self._run_again(chunk.part(chunk.reported, index))

    def _settle_culprit(self, state: ProcessorState, task: HeldTasks, death: Death) -> None:
        """The task during which its processor died: cancelled, lost, or run again."""
        traits, stack, reason = task.traits, death.stack, state.kill_reason
        ran = Ran(state.process_id, death.busy_microseconds)
        if reason is not None and reason.position != state.started:
            reason = None  # another task was the reason
        if self._is_cancelled(reason, task):
            self._confirm_cancelled(task, stack)
        elif reason is not None and reason.kind is not None:
            self._lose(task, reason.kind, reason.message, stack or NO_STACK, ran)
        elif state.killed:
            self._run_again(task)  # killed because of another task, which ended in the meantime
        # SCL-WRK-012, SCL-WRK-013
        elif traits.attempt <= traits.retries and not traits.at_most_once:
            self._requeue(task.with_attempt(traits.attempt + 1))
        else:
            doing = "ran the task" if state.running else "loaded the function of the task"
            text = f"processor {state.process_id} {death.description} while it {doing} (attempt {traits.attempt})"
            self._lose(task, m.FailureKind.PROCESSOR_DIED, text, ran=ran)

    def _run_again(self, batch: HeldTasks) -> None:
        """Run tasks again whose outcomes were lost with the processor, as far as known through no fault of theirs.

        That counts as an attempt: a task that loses its processor each time, even if it runs alone, must not go on for
        ever.
        """
        if not len(batch):
            return
        traits = batch.traits
        # SCL-WRK-012
        if traits.at_most_once:
            text = "the task ran, its outcome was lost with its processor, and it must not be run again"
            self._lose(batch, m.FailureKind.PROCESSOR_DIED, text)
        elif traits.attempt > max(traits.retries, MAXIMUM_LOST_OUTCOMES):
            text = (
                f"the task ran, and its processor ended before it could send the outcome, in each of {traits.attempt}"
                " attempts: check whether the task closes files that it did not open"
            )
            self._lose(batch, m.FailureKind.PROCESSOR_DIED, text)
        else:
            self._requeue(batch.with_attempt(traits.attempt + 1))
