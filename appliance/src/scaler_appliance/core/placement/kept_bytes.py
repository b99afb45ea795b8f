"""Which workers keep results that tasks need, and whether a task waits for one of them.

Rule: among workers with a free slot, a task goes to the one that keeps most of its bytes. It goes behind the tasks of a
busy worker if that one is free again before the bytes that it keeps beyond those could be moved. When that is, is known
if the function has been measured; and not of a worker that was asked to give tasks back and has finished none since.
"""

from __future__ import annotations

from typing import Dict, Optional

from scaler_appliance.core.peers.sessions import WorkerSession
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.tasks.batches import LOSSES_OF_A_SUSPECT, TaskSpan


def keeper_of_most(state: SchedulerState, idle: Dict[int, WorkerSession], span: TaskSpan) -> Optional[WorkerSession]:
    """The worker that a task goes to because of the bytes that it needs, and that only workers have.

    Parameters:
        idle: workers with a free slot.
        span: the task alone.
    """
    kept_bytes: Dict[int, int] = {}
    for object_id in span.batch.dependencies_of(span.start, span.stop):
        record = state.objects.find(object_id)
        if record is None or record.copies is None or not record.is_elsewhere:
            continue
        for number in record.copies.holders:
            kept_bytes[number] = kept_bytes.get(number, 0) + record.size
    batch, needs = span.batch, span.batch.requirement.needs
    is_measured = state.durations.get(batch.function_key) is not None
    is_urgent = needs.time_request_seconds > 0.0 or batch.losses_of(span.start) >= LOSSES_OF_A_SUSPECT
    bytes_per_microsecond = state.settings.transfer_bytes_per_second / 1e6
    busy: Optional[WorkerSession] = None
    busy_bytes = 0.0  # beyond those that could be moved before it is free
    for number in sorted(kept_bytes, key=lambda each: -kept_bytes[each]):
        if kept_bytes[number] <= busy_bytes:
            break
        worker = state.workers[number]
        if not worker.offers(needs, state.now) or not worker.room_for(needs.capabilities):
            continue
        if number in idle:
            return worker
        is_late = worker.finished == worker.finished_when_asked
        if is_measured and not (is_urgent or is_late or worker.leaving or worker.is_congested):
            left = kept_bytes[number] - worker.load_microseconds / worker.slots * bytes_per_microsecond
            if left > busy_bytes:
                busy, busy_bytes = worker, left
    return busy
