"""The way of an actor's calls through a worker: to its processor, and how they end.

Rules:
- `task_flow` gives calls here when they arrive, and asks for chunks of them when slots are free.
- A processor has one chunk of calls at a time: those behind a long call come back and go on later, and a second chunk
  that was sent behind them would overtake them.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Protocol, Set

from scaler.worker.agent.core.actor_flow.worker_actors import CLOSED, WorkerActor, WorkerActors
from scaler.worker.agent.core.cancellations import Cancellations
from scaler.worker.agent.core.chunk_sizes import CALLS_SECONDS, chunk_size
from scaler.worker.agent.core.dead_processors import DeadProcessors, Death, Lose, why_lost
from scaler.worker.agent.core.effects import FunctionCode, ObjectSource
from scaler.worker.agent.core.processor_pool import ProcessorChunk, ProcessorPool, ProcessorState
from scaler.worker.agent.core.task_durations import TaskDurations
from scaler.worker.agent.core.task_queue import HeldTasks
from scaler_protocol import messages as m


class Give(Protocol):
    """Gives a chunk to a processor, with what it needs."""

    def __call__(self, state: ProcessorState, chunk: ProcessorChunk, code_key: str, now: float) -> None: ...


class _Place(NamedTuple):
    """Where the next calls of an actor can run now."""

    actor: WorkerActor
    batch: HeldTasks
    state: ProcessorState
    code_key: str


class CallFlow:
    """Parameters:
    code: provides code of clients; None: not supported.
    lose: ends calls that have not finished.
    """

    def __init__(
        self,
        pool: ProcessorPool,
        objects: ObjectSource,
        code: Optional[FunctionCode],
        durations: TaskDurations,
        cancellations: Cancellations,
        dead: DeadProcessors,
        lose: Lose,
        give: Give,
    ) -> None:
        self.actors = WorkerActors()
        self._pool = pool
        self._objects = objects
        self._code = code
        self._durations = durations
        self._cancellations = cancellations
        self._dead = dead
        self._lose = lose
        self._give = give

    # SCL-WRK-034
    def on_calls(self, batch: HeldTasks, missing: Set[int]) -> None:
        """Calls arrive, of which some objects may be missing: they wait for them in their place."""
        actor = self.actors.begin(batch.traits.function)
        if actor.why_lost:
            self._lose(batch, m.FailureKind.ACTOR_LOST, actor.why_lost)
            return
        if missing - {actor.function}:
            for call in batch.singles():
                actor.append(call, missing & call.needed_objects())
        else:
            actor.append(batch, missing)
        for object_id in missing:
            self._objects.fetch(object_id)
        self.actors.wake(actor)

    def put_back(self, batch: HeldTasks) -> None:
        """Calls that a processor had have not started. Their actor may have ended meanwhile."""
        actor = self.actors.find(batch.traits.function)
        if actor is not None:
            actor.put_back(batch)
            self.actors.wake(actor)
        elif len(batch):
            self._lose(batch, m.FailureKind.ACTOR_LOST, CLOSED)

    def on_chunk_ended(self, state: ProcessorState) -> None:
        """The processor of an actor may take its next calls."""
        actor = self.actors.find(state.actor)
        if actor is not None:
            self.actors.wake(actor)

    # SCL-WRK-036
    def on_objects_deleted(self, object_ids: Set[int]) -> None:
        """The actors whose objects these are end."""
        for actor, calls in self.actors.forget(object_ids):
            if actor.processor is not None:
                self._pool.end_bound(actor.processor)
            for batch in calls:
                self._lose(batch, m.FailureKind.ACTOR_LOST, CLOSED)

    # SCL-WRK-035
    def on_processor_died(self, state: ProcessorState, death: Death) -> None:
        """The processor of an actor has ended: all its calls here are lost, and so is each that follows."""
        why = why_lost(state, death)
        actor = self.actors.find(state.actor)
        held = self._dead.settle_running_call(state, death, why)
        if actor is not None and actor.processor is state:
            held += self.actors.lose(actor, why)
        for batch in held:
            self._cancellations.take_out(batch)
            if len(batch):
                self._lose(batch, m.FailureKind.ACTOR_LOST, why)

    def next_priority(self) -> Optional[int]:
        """The priority of the calls that are next; None if no calls can run."""
        return next((each.priority for each in self.actors.ready() if each.head() is not None), None)

    def deal(self, now: float) -> bool:
        """Give the processor of one actor its next chunk; False when none can take one."""
        found = self._next_place()
        if found is None:
            return False
        actor, batch, state, code_key = found
        mean = self._durations.mean_seconds(actor.function)
        calls = actor.take(chunk_size(batch, mean, actor.count, 1, CALLS_SECONDS))
        self._give(state, ProcessorChunk(calls, state.next_position), code_key, now)
        self.actors.end_turn(actor)
        return True

    def _next_place(self) -> Optional[_Place]:
        for actor in self.actors.ready():
            batch = actor.head()
            if batch is None or not self._has_code(actor):
                self.actors.rest(actor)  # until its objects are here
                continue
            code_key = self._code.key(actor.function) if self._code is not None else ""
            state = actor.processor
            if state is None:
                state = actor.processor = self._pool.bind(actor.function, code_key)
            elif state.chunks:
                self.actors.rest(actor)  # until the chunk has ended
                continue
            elif state.killed or not self._pool.take_bound():
                continue
            if state is not None:
                return _Place(actor, batch, state, code_key)
        return None

    def _has_code(self, actor: WorkerActor) -> bool:
        """Whether the code is here that an actor's function needs."""
        missing = self._code.missing(actor.function) if self._code is not None else set()
        if missing:
            actor.wait_for(missing)
            for object_id in missing:
                if not self._objects.is_available(object_id):
                    self._objects.fetch(object_id)
        return not missing

    def clear(self) -> None:
        """A new session begins: the actors of the old one have ended."""
        self.actors.clear()
