"""Whether workers with blocked tasks get nested ones, judged from the messages alone.

    what is at a worker, what waits ──▶ at the end of each tick: whether a nested task should be there

Rules:
- A worker has blocked tasks if it says that more processors are suspended than it has slots to spare. It is to have as
  many tasks as it has slots that are no less urgent than a task that waits, if a task that may wait for this one is
  there: a less urgent one of the same tenant. What other tenants have there does not matter, nor how urgent that is.
- Not judged: tasks that were lost with a worker before, which may be sent to free slots only; tasks that have to end
  before their worker does; distant workers; and those that are full, or leave, or do not read.
"""

from __future__ import annotations

from typing import Iterable, Mapping, Optional

from whole_system.judges.judged_peers import JudgedWorker, TaskClass


def nested_task_passed_over(workers: Iterable[JudgedWorker], waiting: Mapping[TaskClass, bool]) -> Optional[str]:
    """What is wrong, if something is.

    Parameters:
        workers: those with blocked tasks and room for others.
        waiting: the classes that have waited since before this tick, and whether any of their tasks was lost before.
    """
    for worker in workers:
        for task_class, was_lost in waiting.items():
            if not (was_lost or task_class.request_seconds) and _has_a_place_for(worker, task_class):
                return f"{task_class} waits, and may be what a blocked task at a worker with a place for it waits for"
    return None


def _has_a_place_for(worker: JudgedWorker, task_class: TaskClass) -> bool:
    of_tenant = [
        each.task_class.priority for each in worker.tasks.values() if each.task_class.tenant == task_class.tenant
    ]
    urgent = sum(priority >= task_class.priority for priority in of_tenant)
    return urgent < len(of_tenant) and urgent < worker.own_slots and worker.fits(task_class)
