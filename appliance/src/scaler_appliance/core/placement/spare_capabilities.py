"""Which free slots are for others: those of workers that offer what a task does not need.

    three tasks:    plain worker ■ ■    plain worker ■ □    worker with a GPU □ □
    six tasks:      plain worker ■ ■    plain worker ■ ■    worker with a GPU ■ ■

Rules:
- Only the choice among free slots changes: while others are free, these stay free. For what a task waits, say `speeds`.
- What counts is how many capabilities a worker offers, not which, nor how much: of workers that can run a task, all
  offer what it needs. What all workers offer, such as memory, makes no difference.
- Of workers that offer equally many, the quickest come first.
- The first of the quickest workers with the least that any offers are taken without a look at the others.
"""

from __future__ import annotations

from typing import Iterable, List, Tuple

from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.placement.speeds import Speeds


def least_to_spare(
    workers: Iterable[WorkerSession], task_count: int, fewest_capabilities: int, speeds: Speeds
) -> Tuple[List[WorkerSession], bool]:
    """Workers with free slots, those with least to spare first, of these the quickest, else in their order; and whether
    these slots suffice.

    Parameters:
        workers: that can run the tasks, and have a free slot.
        fewest_capabilities: that any worker offers.
        speeds: of all workers.
    """
    plain: List[WorkerSession] = []
    others: List[WorkerSession] = []
    free_slots = 0
    for worker in workers:
        if len(worker.capabilities) > fewest_capabilities or speeds.price_of(worker) > speeds.cheapest:
            others.append(worker)
            continue
        plain.append(worker)
        free_slots += worker.slots - worker.assigned
        if free_slots >= task_count:
            return plain, True
    others.sort(key=lambda worker: (len(worker.capabilities), speeds.price_of(worker)))
    return plain + others, free_slots + sum([each.slots - each.assigned for each in others]) >= task_count
