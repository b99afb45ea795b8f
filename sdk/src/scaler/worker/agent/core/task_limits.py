"""Time and memory limits of running tasks, enforced from outside, so that no task can prevent being stopped.

Rules:
- The processor of a task that exceeds a limit is killed; the task is lost with a named reason, and not run again.
- A task's time counts from when it was first seen to run, which is at most one tick late.
- Time in which the agent was stopped does not count, because usually its processors were stopped as well: the machine
  was suspended or migrated, or its container frozen.
- Nothing is watched while no processor has a task with a limit.
"""

from __future__ import annotations

from typing import List, Mapping, Optional

from scaler.worker.agent.core.effects import Effect, MeasureMemory
from scaler.worker.agent.core.processor_pool import KillReason, ProcessorChunk, ProcessorPool, ProcessorState
from scaler_protocol import messages as m

_STOPPED_SECONDS = 1.0
"""A tick that comes later than this means that the agent did not run."""


class TaskLimits:
    """Watches the tasks of a pool.

    Parameters:
        effects: shared with the rest of the core.
    """

    def __init__(self, pool: ProcessorPool, effects: List[Effect]) -> None:
        self._pool = pool
        self._effects = effects
        self.active = False  # whether some processor may have a task with a limit
        self._ticked_at: Optional[float] = None  # while limits are watched

    def dealt(self, chunk: ProcessorChunk) -> None:
        """A processor got a chunk. It may have to be forked, or to load data, before the first task begins."""
        traits = chunk.batch.traits
        if traits.time_limit_seconds or traits.memory_limit_bytes:
            self.active = True

    def tick(self, now: float) -> None:
        """Stop tasks that have exceeded their time limit."""
        ticked_at = now if self._ticked_at is None else self._ticked_at
        stopped_seconds = now - ticked_at if now - ticked_at > _STOPPED_SECONDS else 0.0
        self.active = False
        to_measure: List[int] = []
        for state in self._pool.states():
            chunk = self._running_chunk(state)
            if chunk is None or state.killed:
                continue
            traits = chunk.batch.traits
            if not (traits.time_limit_seconds or traits.memory_limit_bytes):
                continue
            self.active = True
            state.limit_since += stopped_seconds
            if state.started != state.limit_position:
                state.limit_position, state.limit_since = state.started, now
            # SCL-WRK-010
            elif traits.time_limit_seconds and now - state.limit_since > traits.time_limit_seconds:
                limit = f"{traits.time_limit_seconds:g} seconds"
                text = f"the task ran longer than its limit of {limit}, and was stopped"
                self._pool.kill(state, KillReason(state.started, m.FailureKind.TIME_LIMIT, text))
            elif traits.memory_limit_bytes and state.process_id:
                to_measure.append(state.process_id)
        self._ticked_at = now if self.active else None
        if to_measure:
            self._effects.append(MeasureMemory(tuple(to_measure)))

    def on_memory_measured(self, resident_bytes: Mapping[int, int]) -> None:
        """Stop tasks that use more memory than their limit.

        Parameters:
            resident_bytes: by process id; 0 when unknown.
        """
        for state in self._pool.states():
            resident = resident_bytes.get(state.process_id, 0)
            chunk = self._running_chunk(state) if resident else None
            # A measurement from before the task started does not count.
            if chunk is None or state.killed or state.started != state.limit_position:
                continue
            limit = chunk.batch.traits.memory_limit_bytes
            # SCL-WRK-011
            if 0 < limit < resident:
                text = f"the task's processor used {resident} bytes, above the limit of {limit}, and was stopped"
                self._pool.kill(state, KillReason(state.started, m.FailureKind.MEMORY_LIMIT, text))

    def _running_chunk(self, state: ProcessorState) -> Optional[ProcessorChunk]:
        """The chunk whose task runs; before the first task has started, the first chunk."""
        chunks: List[ProcessorChunk] = list(state.chunks)
        if chunks and any(
            chunk.batch.traits.time_limit_seconds or chunk.batch.traits.memory_limit_bytes for chunk in chunks
        ):
            self.active = True
        if not state.running:
            return None
        for chunk in chunks:
            if chunk.first_position <= state.started < chunk.first_position + chunk.count:
                return chunk
        return None
