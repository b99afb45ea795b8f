"""The size and load of a cluster, as its scheduler reports them.

Rules: the scheduler counts, and an answer lists a bounded number of workers and actors; the client adds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Tuple

from scaler.notebook import Row, card
from scaler.values.texts import counted

SHOWN_WORKERS = SHOWN_ACTORS = 20  # in a notebook, and the latter also in text


@dataclass(frozen=True)
class WorkerInfo:
    """One worker, as the scheduler sees it.

    Attributes:
        session: its number at the scheduler, never used twice.
        name: given by the user, or chosen by the worker.
        host: where it runs.
        process_id: of its agent.
        slots: how many tasks it runs at once.
        tasks: how many it has, running and queued there.
    """

    session: int
    name: str
    host: str
    process_id: int
    slots: int
    tasks: int


@dataclass(frozen=True)
class ActorInfo:
    """One actor, as the scheduler sees it.

    Attributes:
        name: its class, and the name that was given to it, such as `Counter 'visits'`.
        client: session of the client that made it.
        worker: name of the worker that it is at; empty if it has none yet, or has lost it.
        worker_session: of that worker; 0 if there is none.
        state: "waiting" for a worker, "alive" or "lost"; the scheduler learns of an actor that has ended at its worker
            by the outcome of a call.
        why_lost: empty if it is not lost.
        calls_waiting: without an outcome, that are not at its worker.
        calls_running: at its worker: one runs, and the others wait there.
        calls_finished: with an outcome.
        calls_failed: of these, failed or lost.
    """

    name: str
    client: int
    worker: str
    worker_session: int
    state: str
    why_lost: str
    calls_waiting: int
    calls_running: int
    calls_finished: int
    calls_failed: int

    def __str__(self) -> str:
        where = f" on {self.worker or f'worker {self.worker_session}'}" if self.worker_session else ""
        calls = f"{self.calls_waiting} waiting, {self.calls_running} running, {self.calls_finished} finished"
        why = f": {self.why_lost}" if self.why_lost else ""
        return f"{self.state}{where}, calls: {calls}{why}"


@dataclass(frozen=True)
class ClusterInfo:
    """A cluster, as its scheduler sees it at one moment.

    Attributes:
        address: of the scheduler.
        scheduler: the name of its implementation.
        version: of the implementation.
        language: what it is written in and runs on, such as `Python 3.9.16 (PyPy)`.
        uptime_seconds: for how long it has been running.
        clients: how many are connected.
        worker_count: how many workers are connected.
        slots: how many tasks they run at once, all together.
        slots_free: how many of these have no task.
        tasks_waiting: tasks that are not at a worker yet.
        tasks_running: tasks that workers have, including those queued there.
        workers: the first ones, in the order in which they connected; see `workers_not_listed`.
        actor_count: how many actors there are; 0 if the scheduler is too old to say.
        actors: the first ones, client by client; see `actors_not_listed`.
    """

    address: str
    scheduler: str
    version: str
    language: str
    uptime_seconds: float
    clients: int
    worker_count: int
    slots: int
    slots_free: int
    tasks_waiting: int
    tasks_running: int
    workers: Tuple[WorkerInfo, ...]
    actor_count: int = 0
    actors: Tuple[ActorInfo, ...] = ()

    @property
    def workers_not_listed(self) -> int:
        """How many workers there are beyond those in `workers`."""
        return self.worker_count - len(self.workers)

    @property
    def actors_not_listed(self) -> int:
        """How many actors there are beyond those in `actors`."""
        return self.actor_count - len(self.actors)

    def _repr_html_(self) -> str:
        rows: List[Row] = [
            ("scheduler", f"{self.address}, {self.scheduler} {self.version}, up for {self.uptime_seconds:.0f} s"),
            ("slots", f"{self.slots} on {counted(self.worker_count, 'worker')}, {self.slots_free} free"),
            ("tasks", f"{self.tasks_waiting} waiting, {self.tasks_running} at workers"),
            ("clients", self.clients),
        ]
        for worker in self.workers[:SHOWN_WORKERS]:
            tasks = f"{counted(worker.slots, 'slot')}, {counted(worker.tasks, 'task')}"
            rows.append((worker.name, f"{worker.host}: {tasks}"))
        others = self.worker_count - min(len(self.workers), SHOWN_WORKERS)
        rows.append(("other workers", others or ""))
        rows += [(f"actor {actor.name}", str(actor)) for actor in self.actors[:SHOWN_ACTORS]]
        rows.append(("other actors", self.actor_count - min(len(self.actors), SHOWN_ACTORS) or ""))
        return card("Cluster", rows)

    def __str__(self) -> str:
        slots, workers = counted(self.slots, "slot"), counted(self.worker_count, "worker")
        lines = [
            f"{self.scheduler} {self.version} at {self.address}, up for {self.uptime_seconds:.0f} s",
            f"{slots} on {workers}, {self.slots_free} free, {counted(self.clients, 'client')}",
            f"{counted(self.tasks_waiting, 'task')} waiting, {self.tasks_running} at workers",
        ]
        for worker in self.workers:
            lines.append(
                f"  {worker.name} on {worker.host}: {counted(worker.slots, 'slot')}, {counted(worker.tasks, 'task')}"
            )
        if self.workers_not_listed:
            lines.append(f"  and {self.workers_not_listed} more")
        if self.actor_count:
            lines.append(counted(self.actor_count, "actor"))
        lines += [f"  {actor.name} {actor}" for actor in self.actors[:SHOWN_ACTORS]]
        if self.actor_count > len(self.actors[:SHOWN_ACTORS]):
            lines.append(f"  and {self.actor_count - len(self.actors[:SHOWN_ACTORS])} more")
        return "\n".join(lines)
