"""How many tasks a worker is to have ahead of time.

Rules:
- How much to prefetch follows the measured duration of the function: about `prefetch_seconds` of work for each slot, at
  most the worker's queue. A function that has not been measured gets two tasks per slot, or fewer if the worker has
  other work. So long tasks are distributed one by one, and short ones by the thousand.
- A distant worker gets more, so that it works while its results and its next tasks are under way: see `distance`.
- A task that waits at its worker for bytes from others leaves its slot to another one, if no slot is free elsewhere. So
  workers compute while bytes come, and the next bytes come while they compute.
- A task that was lost with several workers is sent only to a free slot: if it is the cause, few others are lost with
  it. So is a task that says how long it may run, if the worker has an end of life: it has to begin now to end in time.
"""

from __future__ import annotations

from math import inf
from typing import Callable, Optional

from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.placement.distance import Distance
from scaler_appliance.core.placement.tenant_shares import would_pass
from scaler_appliance.core.tasks.batches import (
    LOSSES_OF_A_SUSPECT,
    MAXIMUM_TASKS_PER_DISPATCH,
    Needs,
    Requirement,
    TaskSpan,
)

TASKS_AHEAD_OF_UNMEASURED = 2  # for each slot


class PrefetchCredit:
    """
    Parameters:
        prefetch_seconds: of work, for each slot.
        suit_everyone: whether every connected worker can run tasks with some needs.

    Attributes:
        target_microseconds: the same.
        unmeasured_microseconds: what is taken for each task of a function that has not been measured.
    """

    def __init__(self, prefetch_seconds: float, distance: Distance, suit_everyone: Callable[[Needs], bool]) -> None:
        self.target_microseconds = prefetch_seconds * 1e6
        self.unmeasured_microseconds = self.target_microseconds / TASKS_AHEAD_OF_UNMEASURED
        self._distance = distance
        self._suit_everyone = suit_everyone

    def would_pass(self, worker: WorkerSession, requirement: Requirement) -> bool:
        """Whether a task that waits in line would take more of a worker than is its tenant's share."""
        return worker.is_shared and would_pass(worker, requirement, self.target_microseconds)

    def of(
        self, worker: WorkerSession, span: TaskSpan, duration_microseconds: Optional[float], urgent: int, others: int
    ) -> int:
        """How many more tasks like those of the span the worker should have, by their estimated duration.

        Parameters:
            others: tasks of the same class that wait as well.
        """
        free_slots = worker.slots - worker.assigned
        is_timed = worker.stays_until < inf and span.batch.requirement.needs.time_request_seconds > 0.0
        if is_timed or span.batch.losses_of(span.start) >= LOSSES_OF_A_SUSPECT:
            ahead, urgent = free_slots, 0
        elif urgent <= 0 and self.would_pass(worker, span.batch.requirement):
            return 0
        else:
            estimate = self.unmeasured_microseconds if duration_microseconds is None else duration_microseconds
            estimate *= worker.pace.of(span.batch.function_key)
            target_microseconds = self.target_microseconds
            if worker.distance_microseconds:
                needs = span.batch.requirement.needs
                rest_microseconds = (others + span.stop - span.start) * estimate
                target_microseconds = self._distance.target_microseconds(
                    worker, target_microseconds, rest_microseconds, estimate, self._suit_everyone(needs)
                )
                if target_microseconds < estimate < worker.distance_microseconds:
                    return 0
            free_microseconds = target_microseconds * worker.slots - worker.load_microseconds
            ahead = int(free_microseconds / estimate)
            free_slots += worker.slots_given_up
        # Comparing costs an eighth of `max` and `min`: several of them are 1 % of a round trip.
        wanted = free_slots if free_slots > ahead else ahead
        wanted = urgent if urgent > wanted else wanted
        return 0 if wanted < 0 else wanted if wanted < MAXIMUM_TASKS_PER_DISPATCH else MAXIMUM_TASKS_PER_DISPATCH
