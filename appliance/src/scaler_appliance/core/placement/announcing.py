"""Objects are announced to a worker before the first task that needs them.

Rule: a task may need very many. They are announced in several calls, and then it is dispatched.

Source: SCL-SCH-011.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, NamedTuple, Tuple

from scaler_appliance.core.objects.object_records import ObjectRecord
from scaler_appliance.core.objects.object_table import announcement, has_to_fetch
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.steps import COLUMN_ENTRIES_PER_UNIT
from scaler_appliance.core.tasks.batches import TaskBatch

LEAST_ANNOUNCED = 1000  # objects of one task, in one call


class Announced(NamedTuple):
    """What was done in one call.

    Attributes:
        is_all: the tasks may be dispatched.
        units: of work.
        payload_bytes: that were sent.
    """

    is_all: bool
    units: int = 0
    payload_bytes: int = 0


class Announcing:
    """Announces what tasks need, in parts."""

    def __init__(self, state: SchedulerState) -> None:
        self._state = state
        # To which worker and for which task of which client objects are being announced; and how many there were.
        self._announced: Tuple[Tuple[int, int, int], int] = ((0, 0, 0), 0)

    def announce(self, worker: WorkerSession, batch: TaskBatch, start: int, stop: int) -> Announced:
        """Announce to the worker what tasks [start, stop) need and it does not know, or some of that. There is some."""
        if not batch.dependency_counts:
            self._state.objects.use((batch.function,))
            return Announced(True, *self._send(worker, (batch.function,)))
        needed = batch.dependencies_of(start, stop)
        key = worker.number, batch.client, batch.ids[start]
        begin = self._announced[1] if self._announced[0] == key else 0
        end = begin + max(self._state.part, LEAST_ANNOUNCED)
        function = [batch.function] if batch.function and not begin else []
        count, payload_bytes = self._send(worker, [*function, *needed[begin:end]])
        if end < len(needed):
            self._announced = key, end
            return Announced(False, count, payload_bytes)
        self._state.objects.use([*function, *needed])
        return Announced(True, count + len(needed) // COLUMN_ENTRIES_PER_UNIT, payload_bytes)

    def _send(self, worker: WorkerSession, object_ids: Iterable[int]) -> Tuple[int, int]:
        """Announce to the worker those of the objects that it does not know; returns how many, and bytes with them."""
        unknown: Dict[str, List[ObjectRecord]] = {}  # by codec
        count, payload_bytes, spread_bytes = 0, 0, self._state.settings.spread_bytes
        for object_id in object_ids:
            if object_id not in worker.known_objects:
                record = self._state.objects.find(object_id)
                assert record is not None, f"a waiting task needs object {object_id:x}, which is gone"
                worker.know_object(object_id)
                if has_to_fetch(record, worker, spread_bytes):
                    worker.to_fetch.add(object_id)
                record.announced_to.add(worker.number)
                unknown.setdefault(record.codec, []).append(record)
                count += 1
        for records in unknown.values():
            instruction, payload = announcement(records, worker, spread_bytes)
            payload_bytes += sum(map(len, payload))
            self._state.send(worker.peer, instruction, payload)
        return count, payload_bytes
