"""Which workers have large objects that tasks need, and whether a task waits for one of them.

Rules:
- What counts are objects that others have to fetch: those that only workers and clients have; and, for workers that do
  not see the scheduler's files, large ones that it has.
- Among workers with a free slot, a task goes to the one where it would end first, as most of its bytes are there and it
  is quick. If all have as many of them, others choose. If none has any, and it waits for none, it goes to one on the
  host where most of them are: they need not leave that host then.
- It goes behind the tasks of a busy worker if that one is free again before the bytes that it keeps beyond those could
  be moved. When it is free, is known if the function has been measured; and not of a worker that was asked to give
  tasks back and has finished none since.
- Bytes move at the rate that others got from that worker, if it keeps nearly all that the task needs. Else the assumed
  rate counts, which is rather high: how long the other bytes take to get there, for this task and for those before it,
  is in no estimate.
- A task that waits at a worker for bytes from others takes no slot of it meanwhile: see `AwaitedBytes`. And while one
  runs for which bytes had to come, those of the next one come: a worker may have so many more as it has slots.
- Of an object that very many workers have, some are looked at: a task costs the same, however many there are.
- If slots are free elsewhere, it waits there no longer than twice as long as was estimated, nor than moving its bytes
  would take: so a wrong estimate costs it no more than it would have cost not to wait.
"""

from __future__ import annotations

from itertools import islice
from typing import Collection, Dict, Iterator, Optional, Tuple

from scaler_appliance.core.objects.object_records import HERE, ObjectRecord
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.tasks.batches import LOSSES_OF_A_SUSPECT, Dispatch, TaskBatch, TaskSpan

NEARLY_ALL = 0.9
"""Of the bytes that a task needs."""
FEW_HOLDERS = 8
"""So many holders of an object are looked at for a task: if there are more, one with a free slot is likely there."""
MOST_LOOKED_AT = 256
"""Workers that may be among them."""
PATIENCE = 2.0
"""How many times longer than was estimated a task waits for a worker that keeps its bytes."""


def _moved(state: SchedulerState, batch: TaskBatch, index: int) -> Iterator[Tuple[ObjectRecord, Collection[int]]]:
    """Each object that a task needs, and that some workers have to fetch, with the sessions of its holders."""
    spread_bytes = state.settings.spread_bytes
    for object_id in batch.dependencies_of(index, index + 1):
        record = state.objects.find(object_id)
        if record is None or record.content is not None:
            continue
        if record.is_elsewhere or (state.apart and record.size >= spread_bytes):
            yield record, (() if record.copies is None else record.copies.holders.keys())


def await_bytes(worker: WorkerSession, dispatch: Dispatch) -> None:
    """A worker was sent a task alone: if it has to fetch what that needs, its slot is free meanwhile."""
    missing = worker.to_fetch.intersection(dispatch.batch.dependencies_of(dispatch.start, dispatch.start + 1))
    if missing:
        worker.await_bytes(dispatch, missing)


def keeper_of_most(
    state: SchedulerState, idle: Dict[int, WorkerSession], span: TaskSpan
) -> Tuple[Optional[WorkerSession], float]:
    """The worker that a task goes to because of the bytes that it needs, and that others have to fetch; and until when
    it waits there, which is 0.0 at a worker with a free slot.

    Parameters:
        idle: workers with a free slot.
        span: the task alone.
    """
    kept_bytes: Dict[int, int] = {}
    needed_bytes = here_bytes = 0
    for record, holders in _moved(state, span.batch, span.start):
        needed_bytes += record.size
        here_bytes += 0 if record.is_elsewhere else record.size
        for number in _looked_at(holders, idle):
            if number in state.workers:
                kept_bytes[number] = kept_bytes.get(number, 0) + record.size
    if not (idle or here_bytes < needed_bytes):
        return None, 0.0  # it can wait until a slot is free: what the scheduler has is as near then
    order = sorted(kept_bytes, key=lambda each: -kept_bytes[each])
    source = HERE if here_bytes else order[0] if order else 0
    found, found_bytes = _best_of_idle(state, idle, span, kept_bytes, here_bytes, state.transfers.rates.of(source))
    batch, needs = span.batch, span.batch.requirement.needs
    is_measured = state.durations.get(batch.function_key) is not None
    is_urgent = needs.time_request_seconds > 0.0 or batch.losses_of(span.start) >= LOSSES_OF_A_SUSPECT
    assumed_bytes_per_second = state.settings.transfer_bytes_per_second
    most_bytes = float(found_bytes)  # of a busy worker: beyond those that could be moved before it is free
    waits_until = 0.0
    for number in order if is_measured and not is_urgent else ():
        if kept_bytes[number] <= most_bytes:
            break
        worker = state.workers[number]
        if number in idle or not worker.offers(needs, state.now) or not worker.room_for(needs.capabilities):
            continue
        is_late = worker.finished == worker.finished_when_asked
        if not (is_late or worker.leaving or worker.is_congested):
            has_nearly_all = kept_bytes[number] >= NEARLY_ALL * needed_bytes
            measured = state.transfers.rates.of(HERE if here_bytes else number)
            bytes_per_second = measured if has_nearly_all else assumed_bytes_per_second
            wait_seconds = worker.load_microseconds / worker.slots / 1e6
            left = kept_bytes[number] - wait_seconds * bytes_per_second
            if left > most_bytes:
                found, most_bytes = worker, left
                move_seconds = kept_bytes[number] / bytes_per_second
                waits_until = state.now + min(move_seconds, PATIENCE * wait_seconds)
    if found is None and idle and not found_bytes:
        return _neighbour_of_most(state, idle, span), 0.0
    return found, waits_until


def _best_of_idle(
    state: SchedulerState,
    idle: Dict[int, WorkerSession],
    span: TaskSpan,
    kept_bytes: Dict[int, int],
    here_bytes: int,
    bytes_per_second: float,
) -> Tuple[Optional[WorkerSession], int]:
    """The worker with a free slot where a task would end first, and how many of its bytes need not come there. None if
    it has as many at each, or is better off where it has none: then others choose.

    Parameters:
        here_bytes: those that workers have which see the scheduler's files.
    """
    sharing = state.sharing if here_bytes else ()
    numbers = {each for each in kept_bytes if each in idle}
    numbers.update(islice(idle, FEW_HOLDERS))
    numbers.update(each for each in islice(sharing, FEW_HOLDERS) if each in idle)
    needs, key = span.batch.requirement.needs, span.batch.function_key
    able = [idle[each] for each in sorted(numbers) if idle[each].offers(needs, state.now)]
    able = [worker for worker in able if worker.room_for(needs.capabilities)]
    there = {worker: kept_bytes.get(worker.number, 0) for worker in able}
    for worker in able if here_bytes else ():
        if worker.number in sharing:
            there[worker] = max(there[worker], here_bytes)
    if len(set(there.values())) < 2 and not (len(able) == 1 and len(idle) == 1):
        return None, min(there.values(), default=0)
    seconds = (state.durations.get(key) or 0.0) / 1e6

    def cost_seconds(worker: WorkerSession) -> float:
        is_scarce = len(worker.capabilities) > len(needs.capabilities)  # for others, as long as this one runs there
        return seconds * (worker.pace.of(key) + is_scarce) - there[worker] / bytes_per_second

    best = min(able, key=lambda worker: (cost_seconds(worker), len(worker.capabilities)))
    return (best, there[best]) if there[best] else (None, 0)


def who_fetches(state: SchedulerState, ahead: Dict[int, WorkerSession], span: TaskSpan) -> Optional[WorkerSession]:
    """A worker that fetches what a task needs while its slots are busy with others.

    Parameters:
        ahead: workers that may have such a task.
        span: the task alone.
    """
    batch, needs = span.batch, span.batch.requirement.needs
    if needs.time_request_seconds > 0.0 or batch.losses_of(span.start) >= LOSSES_OF_A_SUSPECT:
        return None
    records = [record for record, _ in _moved(state, batch, span.start)]
    for worker in islice(ahead.values(), MOST_LOOKED_AT):
        if (
            any(_is_missing(each, worker) for each in records)
            and worker.offers(needs, state.now)
            and worker.room_for(needs.capabilities)
        ):
            return worker
    return None


def _looked_at(holders: Collection[int], idle: Collection[int]) -> Iterator[int]:
    """Holders of an object among which a task's worker is chosen: of many, those with a free slot, and not all."""
    if len(holders) <= FEW_HOLDERS:
        return iter(holders)
    few, many = (idle, holders) if len(idle) < len(holders) else (holders, idle)
    return islice((each for each in islice(few, MOST_LOOKED_AT) if each in many), FEW_HOLDERS)


def _is_missing(record: ObjectRecord, worker: WorkerSession) -> bool:
    """Whether a worker has to fetch an object first."""
    if record.object_id in worker.known_objects:
        return record.object_id in worker.to_fetch
    return record.is_elsewhere or worker.is_apart


def _neighbour_of_most(
    state: SchedulerState, idle: Dict[int, WorkerSession], span: TaskSpan
) -> Optional[WorkerSession]:
    """A worker with a free slot on the host that has most of the bytes that a task needs, at workers or a client."""
    bytes_by_place: Dict[str, int] = {}
    for record, holders in _moved(state, span.batch, span.start):
        some = islice(holders, FEW_HOLDERS)
        sessions = [state.workers.get(each) or state.clients.get(each) for each in some]
        for place in {session.place for session in sessions if session is not None}:
            bytes_by_place[place] = bytes_by_place.get(place, 0) + record.size
    needs = span.batch.requirement.needs
    for place in sorted(bytes_by_place, key=lambda each: -bytes_by_place[each]):
        near = [worker for number, worker in state.workers_by_place.get(place, {}).items() if number in idle]
        able = [each for each in near if each.offers(needs, state.now) and each.room_for(needs.capabilities)]
        if able:
            return min(able, key=lambda worker: len(worker.capabilities))
    return None
