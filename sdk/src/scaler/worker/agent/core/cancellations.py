"""Cancelling tasks that processors already have, and confirming it to the scheduler.

Rules:
- Every id of a TaskCancel is confirmed exactly once. An outcome that arrives first wins: then the answer is
  "running", which goes out before the outcome, or "not found", which follows it.
- A task that has not started is not pursued: within a few checks of the processor's watchdog it is given back, started
  or finished, and that decides.
- Force kills the processor and the task that it runs; the other tasks of the chunk run elsewhere.
"""

from __future__ import annotations

from array import array
from typing import Dict, Iterable, Optional, Tuple

from scaler.worker.agent.core.processor_pool import KillReason, ProcessorPool, ProcessorState
from scaler.worker.agent.core.task_queue import HeldTasks
from scaler_protocol import messages as m


class Cancellations:
    """Open requests to cancel, and answers not sent yet."""

    def __init__(self, pool: ProcessorPool) -> None:
        self._pool = pool
        self._pending: Dict[int, bool] = {}  # instance -> by force
        self._confirmed_ids: array[int] = array("Q")
        self._confirmed_outcomes = bytearray()
        self._unknown_ids: array[int] = array("Q")

    def __bool__(self) -> bool:
        """Whether there is something to `review`."""
        return bool(self._pending)

    def confirm(self, instances: Iterable[int], outcome: m.CancelOutcome) -> None:
        for instance in instances:
            self._pending.pop(instance, None)
            self._confirmed_ids.append(instance)
            self._confirmed_outcomes.append(outcome)

    def request(self, instances: Iterable[int], force: bool) -> None:
        """Cancel tasks that are neither queued nor waiting."""
        for instance in instances:
            self._pending[instance] = force or self._pending.get(instance, False)
        self.review()

    def review(self) -> None:
        """Check the state of the tasks that are to be cancelled."""
        places = self._places()
        for instance, force in list(self._pending.items()):
            place = places.get(instance)
            if place is None:
                del self._pending[instance]
                self._unknown_ids.append(instance)
                continue
            state, position = place
            if position > state.started:
                continue
            if position < state.started or not state.occupied or not force:
                # SCL-WRK-022
                self.confirm([instance], m.CancelOutcome.RUNNING)
            else:
                # SCL-WRK-023
                self._pool.kill(state, KillReason(position, None, "its task was cancelled"))

    def _places(self) -> Dict[int, Tuple[ProcessorState, int]]:
        """Processor and position of each task that is to be cancelled."""
        places = {}
        for state in self._pool.states():
            for chunk in state.chunks:
                open_ids = chunk.batch.ids[chunk.reported : chunk.count]
                for instance in self._pending.keys() & open_ids:
                    index = chunk.reported + open_ids.index(instance)
                    places[instance] = (state, chunk.first_position + index)
        return places

    def finished(self, instances: array[int]) -> None:
        """Outcomes arrived: they are sent after the answer."""
        if self._pending:
            self.confirm(self._pending.keys() & set(instances), m.CancelOutcome.RUNNING)

    def take_out(self, batch: HeldTasks) -> None:
        """Tasks came back unstarted: cancel those that are to be cancelled."""
        if self._pending:
            self.confirm(batch.remove(set(self._pending)), m.CancelOutcome.CANCELLED)

    def by_force(self, instance: int) -> bool:
        return self._pending.get(instance, False)

    def drain(self) -> Optional[m.TaskCancelConfirm]:
        """The answers that are sent before outcomes."""
        if not self._confirmed_ids:
            return None
        message = m.TaskCancelConfirm(ids=self._confirmed_ids, outcomes=bytes(self._confirmed_outcomes))
        self._confirmed_ids, self._confirmed_outcomes = array("Q"), bytearray()
        return message

    def drain_unknown(self) -> Optional[m.TaskCancelConfirm]:
        """The answers that are sent after outcomes: about tasks that are no longer here, or never were."""
        if not self._unknown_ids:
            return None
        outcomes = bytes([m.CancelOutcome.NOT_FOUND]) * len(self._unknown_ids)
        message = m.TaskCancelConfirm(ids=self._unknown_ids, outcomes=outcomes)
        self._unknown_ids = array("Q")
        return message

    def clear(self) -> None:
        self._pending.clear()
        self._confirmed_ids, self._confirmed_outcomes = array("Q"), bytearray()
        self._unknown_ids = array("Q")
