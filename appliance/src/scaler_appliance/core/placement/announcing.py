"""Objects are announced to a worker before the first task that needs them.

Source: SCL-SCH-011.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, NamedTuple

from scaler_appliance.core.objects.object_records import ObjectRecord
from scaler_appliance.core.objects.object_table import announcement
from scaler_appliance.core.objects.object_transfers import fetches_from_workers
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.state import SchedulerState


class Announced(NamedTuple):
    """How much was sent."""

    objects: int
    payload_bytes: int


def announce(state: SchedulerState, worker: WorkerSession, object_ids: Iterable[int]) -> Announced:
    """Announce to the worker those of the objects that it does not know."""
    unknown: Dict[str, List[ObjectRecord]] = {}  # by codec
    count = payload_bytes = 0
    for object_id in object_ids:
        if object_id not in worker.known_objects:
            record = state.objects.find(object_id)
            assert record is not None, f"a waiting task needs object {object_id:x}, which is gone"
            worker.know_object(object_id)
            record.announced_to.add(worker.number)
            unknown.setdefault(record.codec, []).append(record)
            count += 1
    for records in unknown.values():
        instruction, payload = announcement(records, fetches_from_workers(worker))
        payload_bytes += sum(map(len, payload))
        state.send(worker.peer, instruction, payload)
    return Announced(count, payload_bytes)
