"""The fifteen bugs that a trial planted in the scheduler's core, where the code has what they change today."""

from __future__ import annotations

from typing import Dict

from whole_system.bugs.planting import SCHEDULER, PlantedBug

OF_THE_FIRST_LIST = (
    "a cancel in flight is forgotten with its worker",
    "tasks are queued twice after the loss of their worker",
    "a task that may run once runs again after a polite leave",
    "a waiting node that ends keeps its objects",
    "an answer without tasks leaves the request to rebalance open",
    "a worker that is suspected of a loss gets a task too many",
)
"""Those that were listed before."""

TRIAL_BUGS: Dict[str, PlantedBug] = {
    "a late result is accepted in a run of fenced and open instances": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.tasks.batches:Dispatch.alike",
        "end = self.open.find(1 - self.open[low], low, stop - self.start)",
        "end = -1",
    ),
    "a capability is returned only with the last task of a dispatch": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.peers.worker_session:WorkerSession.unassign",
        "self._free[name] += amount * count",
        "self._free[name] += 0 if dispatch.open_count else amount * len(dispatch.ids)",
    ),
    "a second Hello of the same process leaves the former session": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.scheduler_core:SchedulerCore._on_hello",
        "if before is not None:",
        "if before is not None and before.hello.process_id != hello.process_id:",
    ),
    "the requirement class served last comes first": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.ready_queues:ReadyQueues.waiting",
        "each.requirement.negative_priority, each.last_served",
        "each.requirement.negative_priority, -each.last_served",
    ),
    "the objects of all later tasks of a batch are released with a task": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.tasks.task_outcomes:TaskOutcomes.finish",
        "batch.dependencies_of(start, stop)",
        "batch.dependencies_of(start, len(batch))",
    ),
    "clients have the time-out of workers": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.peers.handshake:timeout_seconds",
        "return settings.client_timeout_seconds",
        "return settings.worker_timeout_seconds",
    ),
    "a client beside a worker outlives it": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.peers.handshake:timeout_seconds",
        "if hello.host in worker_hosts:",
        "if not hello.host:",
    ),
    "a host that has lost its worker is remembered": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.state:SchedulerState.add_slots",
        "if not self.worker_hosts[host]:",
        "if not host:",
    ),
    "the credit of a lost task is not given back": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.tasks.task_outcomes:TaskOutcomes.finish",
        "if batch.is_charged:",
        "if batch.is_charged and first_state != TaskState.LOST:",
    ),
    "a compacted batch keeps the places of its former payloads": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.tasks.batches:TaskBatch.compact",
        "self.sizes, self.kept, self._offsets = sizes, len(kept), None",
        "self.sizes, self.kept = sizes, len(kept)",
    ),
    "batches of graphs leave the index of tasks, too": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.peers.sessions:ClientSession.remove_batch",
        "elif not isinstance(batch, GraphBatch):",
        "else:",
    ),
}
