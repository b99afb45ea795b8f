"""What a worker's processors are running now, from its last heartbeat and its later reports.

    heartbeat (some seconds old) ──┐
    results, cancels, new tasks ───┴─▶ running_now(worker) ─▶ figures that agree with how many tasks the worker has

Rules:
- A task that has ended no longer runs, whatever the last heartbeat said.
- The number of busy processors follows from the worker's current number of tasks; which ones they are follows from the
  heartbeat. So the figures of a publication never contradict each other.
"""

from __future__ import annotations

from typing import Iterator, List, Mapping, Optional, Tuple

from scaler_appliance.core.large_tables import Table
from scaler_appliance.core.peers.sessions import ClientSession
from scaler_appliance.core.peers.worker_session import RunningTask, WorkerSession
from scaler_appliance.core.tasks.batches import Dispatch, dispatch_number, position_in_dispatch
from scaler_protocol import messages as m

NO_TASK = RunningTask()


ProcessorNow = Tuple[bool, RunningTask]
"""The task of a processor in a heartbeat; NO_TASK if it has none or it is unknown."""

_IDLE: ProcessorNow = (False, NO_TASK)


def open_dispatch(dispatches: Table[Dispatch], worker: WorkerSession, instance: int) -> Optional[Dispatch]:
    """The dispatch of an instance that the worker may still report; else None."""
    dispatch = dispatches.get(dispatch_number(instance))
    place = position_in_dispatch(instance)
    if dispatch is None or dispatch.worker != worker.number or place >= len(dispatch.ids) or not dispatch.open[place]:
        return None
    return dispatch


def _is_open(dispatches: Table[Dispatch], instance: int) -> bool:
    """Whether an instance that was open once still is."""
    dispatch = dispatches.get(dispatch_number(instance))
    return dispatch is not None and dispatch.open[position_in_dispatch(instance)] == 1


def reported_tasks(worker: WorkerSession, heartbeat: m.Heartbeat, dispatches: Table[Dispatch]) -> List[RunningTask]:
    """What its processors run, as far as the worker reports it correctly."""
    tasks = []
    for processor in heartbeat.processors:
        task, instance = NO_TASK, processor.instance
        dispatch = open_dispatch(dispatches, worker, instance) if instance else None
        if dispatch is not None:
            batch = dispatch.batch
            task_id = batch.ids[dispatch.start + position_in_dispatch(instance)]
            task = RunningTask(batch.client, task_id, batch.counters.number, processor.task_microseconds, instance)
        tasks.append(task)
    return tasks


def running_now(worker: WorkerSession, dispatches: Table[Dispatch]) -> List[ProcessorNow]:
    """An entry for each processor of the worker's last heartbeat."""
    if worker.heartbeat is None:
        return []
    processors, assigned = worker.heartbeat.processors, worker.assigned
    if not assigned:
        return [_IDLE] * len(processors)
    tasks = [
        task if task.instance and _is_open(dispatches, task.instance) else NO_TASK for task in worker.processor_tasks
    ]
    if assigned >= len(processors) <= worker.hello.slots:
        return [(True, task) for task in tasks]
    # Suspended ones keep their task; the others have one each of the worker's remaining tasks.
    suspended = [place for place, each in enumerate(processors) if each.suspended][:assigned]
    others = [place for place, each in enumerate(processors) if not each.suspended]
    others.sort(key=lambda at: (tasks[at] is NO_TASK, not processors[at].has_task, not processors[at].initialized))
    busy = {*suspended, *others[: min(assigned - len(suspended), worker.hello.slots)]}
    return [(True, task) if place in busy else _IDLE for place, task in enumerate(tasks)]


def tenants_of_blocked(worker: WorkerSession, clients: Mapping[int, ClientSession]) -> Iterator[str]:
    """Whose tasks wait for nested ones at a worker; the worker's tenant, if it does not say which they are."""
    for processor, task in zip(worker.heartbeat.processors if worker.heartbeat else (), worker.processor_tasks):
        if processor.suspended:
            client = clients.get(task.client)
            yield worker.tenant if client is None else client.tenant


def where_it_ran(worker: WorkerSession, client: int, task_id: int, now: float) -> Tuple[int, float]:
    """Process id and microseconds of a task that its worker stopped, by its last heartbeat; zeros: it ran nowhere."""
    for place, task in enumerate(worker.processor_tasks):
        if task.instance and task.client == client and task.task_id == task_id and worker.heartbeat is not None:
            since = task.microseconds + (now - worker.heartbeat_at) * 1e6
            return worker.heartbeat.processors[place].process_id, since
    return 0, 0.0
