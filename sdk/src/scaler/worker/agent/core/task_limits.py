"""Time and memory limits of running tasks, watched from outside: no task can prevent that it is stopped.

Rules:
- Whoever oversteps loses its processor; the task is lost with a named reason, and not run again.
- A task's time counts from when it was first seen to run, which is at most one tick late.
- Nothing is watched while no processor has a task with a limit.
"""

from __future__ import annotations

from typing import Callable, List, Optional

from scaler.worker.agent.core.processor_pool import KillReason, ProcessorChunk, ProcessorPool, ProcessorState
from scaler_protocol import messages as m


class TaskLimits:
    """Watches the tasks of a pool.

    Parameters:
        resident_bytes: resident memory of a process by id, 0 when unknown.
    """

    def __init__(self, pool: ProcessorPool, resident_bytes: Callable[[int], int]) -> None:
        self._pool = pool
        self._resident_bytes = resident_bytes
        self.active = False  # whether some processor may have a task with a limit

    def dealt(self, chunk: ProcessorChunk) -> None:
        """A processor was given a chunk. It may have to be forked, or to load much, before it begins."""
        traits = chunk.batch.traits
        if traits.time_limit_seconds or traits.memory_limit_bytes:
            self.active = True

    def tick(self, now: float) -> None:
        """Stop what has overstepped its limit."""
        self.active = False
        for state in self._pool.states():
            chunk = self._running_chunk(state)
            if chunk is None or state.killed:
                continue
            traits = chunk.batch.traits
            if not (traits.time_limit_seconds or traits.memory_limit_bytes):
                continue
            self.active = True
            if state.started != state.limit_position:
                state.limit_position, state.limit_since = state.started, now
            # SCL-WRK-010
            elif traits.time_limit_seconds and now - state.limit_since > traits.time_limit_seconds:
                limit = f"{traits.time_limit_seconds:g} seconds"
                text = f"the task ran longer than its limit of {limit}, and was stopped"
                self._pool.kill(state, KillReason(state.started, m.FailureKind.TIME_LIMIT, text))
            elif traits.memory_limit_bytes:
                self._check_memory(state, traits.memory_limit_bytes)

    def _check_memory(self, state: ProcessorState, limit: int) -> None:
        resident = self._resident_bytes(state.process_id) if state.process_id else 0
        # SCL-WRK-011
        if resident > limit:
            text = f"the task's processor used {resident} bytes, above the limit of {limit}, and was stopped"
            self._pool.kill(state, KillReason(state.started, m.FailureKind.MEMORY_LIMIT, text))

    def _running_chunk(self, state: ProcessorState) -> Optional[ProcessorChunk]:
        """The chunk whose task runs; before the first one has started, the chunk that was dealt."""
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
