"""Heartbeats of a worker, from the state of its processors and from figures that the shell has read.

Rule: the figures are 0 for a process that is gone or about which the system reports nothing.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, Mapping, NamedTuple, Tuple

from scaler.worker.agent.core.processor_pool import ProcessorState
from scaler.worker.agent.core.task_flow import TaskFlow
from scaler_protocol import messages as m


class ProcessUsage(NamedTuple):
    """Figures of one process."""

    cpu_permille: int
    resident_bytes: int


LARGE_BYTES = 256 * 1024 * 1024
"""Of a process whose task is named in any case, so that the scheduler learns what tasks of its function may need."""
_UNKNOWN = ProcessUsage(0, 0)


class _Running(NamedTuple):
    """A task that a processor runs, and since when at the latest, in seconds of a monotonic clock."""

    instance: int
    since: float


_NOTHING = _Running(0, 0.0)


class HeartbeatFigures:
    """Builds heartbeats.

    Parameters:
        process_id: of the agent.
    """

    def __init__(self, process_id: int, tasks: TaskFlow) -> None:
        self._process_id = process_id
        self._tasks = tasks
        self._running: Dict[int, _Running] = {}  # by process id

    def process_ids(self) -> Tuple[int, ...]:
        """The processes to measure: the agent, and its processors by number."""
        return (self._process_id, *(state.process_id for state in self._states() if state.process_id))

    def _states(self) -> List[ProcessorState]:
        return sorted(self._tasks.pool.states(), key=lambda state: state.number)

    def heartbeat(
        self, now: float, usages: Mapping[int, ProcessUsage], free_bytes: int, is_shared: bool
    ) -> m.Heartbeat:
        """A heartbeat without sequence and latency.

        Parameters:
            now: seconds of a monotonic clock.
            usages: figures by process id.
            free_bytes: memory of the host that could be used.
            is_shared: whether the worker sees the scheduler's object directory.
        """
        states = self._states()
        self._note_running(states, now)
        own = usages.get(self._process_id, _UNKNOWN)
        is_watched = self._tasks.is_watched
        processors = []
        for state in states:
            usage = usages.get(state.process_id, _UNKNOWN)
            is_told = is_watched or usage.resident_bytes >= LARGE_BYTES
            running = self._running.get(state.process_id, _NOTHING) if is_told else _NOTHING
            processors.append(
                m.ProcessorStatus(
                    process_id=state.process_id,
                    initialized=state.process_id > 0,
                    has_task=bool(state.chunks),
                    suspended=state.suspended,
                    cpu_permille=usage.cpu_permille,
                    resident_bytes=usage.resident_bytes,
                    queued=max(0, state.outstanding - 1),
                    # SCL-WRK-033
                    instance=running.instance,
                    task_microseconds=int((now - running.since) * 1e6) if running.instance else 0,
                )
            )
        return m.Heartbeat(
            shares_object_directory=is_shared,
            cpu_permille=own.cpu_permille,
            resident_bytes=own.resident_bytes,
            free_bytes=free_bytes,
            queued=self._tasks.queued + self._tasks.waiting.count + self._tasks.calls.actors.count,
            processors=processors,
        )

    def _note_running(self, states: Iterable[ProcessorState], now: float) -> None:
        """Record which processors still run the same task as at the last heartbeat."""
        before, self._running = self._running, {}
        for state in states:
            last = before.get(state.process_id)
            instance = state.running_instance
            if last is None or last.instance != instance:
                last = _Running(instance, now)
            if instance:
                self._running[state.process_id] = last
