"""Which workers keep results that tasks need."""

from __future__ import annotations

from typing import Dict, Optional

from scaler_appliance.core.peers.sessions import WorkerSession
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.tasks.batches import TaskSpan


def keeper_of_most(
    state: SchedulerState, candidates: Dict[int, WorkerSession], span: TaskSpan
) -> Optional[WorkerSession]:
    """The candidate that can run a task, and has most of the bytes that it needs and that only workers have."""
    kept_bytes: Dict[int, int] = {}
    for object_id in span.batch.dependencies_of(span.start, span.stop):
        record = state.objects.find(object_id)
        if record is None or record.copies is None or not record.is_elsewhere:
            continue
        for number in record.copies.holders:
            if number in candidates:
                kept_bytes[number] = kept_bytes.get(number, 0) + record.size
    needs = span.batch.requirement.needs
    for number in sorted(kept_bytes, key=lambda each: -kept_bytes[each]):
        worker = candidates[number]
        if worker.offers(needs, state.now) and worker.room_for(needs.capabilities):
            return worker
    return None
