"""The state of a cluster as its scheduler publishes it: snapshots and increments in, tables out.

Rules:
- An entry replaces the one with the same number. Entities that the scheduler reports as gone are removed, except that
  the newest KEPT_WHEN_GONE functions and graphs stay listed, marked as gone.
- A new scheduler id means a new cluster: everything is forgotten, and `generation` increases.
- A publication that contradicts itself raises MalformedMessageError; the next snapshot repairs a partial update.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, MutableMapping, Optional, Sequence, Tuple, TypeVar, Union

from scaler_appliance.feed.cluster_entities import (
    ActorFigures,
    ClientRecord,
    DemandFigures,
    FunctionFigures,
    GraphRecord,
    PoolFigures,
    ProcessorRecord,
    SchedulerFigures,
    SharedObjectRecord,
    WorkerRecord,
)
from scaler_appliance.feed.slots import ProcessorSlots
from scaler_protocol import MalformedMessageError
from scaler_protocol import messages as m

KEPT_WHEN_GONE = 1000

Rates = Dict[str, float]
_Entity = TypeVar("_Entity")
_Ending = TypeVar("_Ending", FunctionFigures, GraphRecord)


_DRAIN_CAUSES = ["", *(cause.name.lower() for cause in m.DrainCause if cause), "", ""]
"""By the three bits that say it; those of a newer scheduler are not known."""


class ClusterModel:
    """The current state of a cluster.

    Attributes:
        generation: how many schedulers have been seen, this one included; 0: none yet.
        scheduler: the scheduler's own figures; None before the first snapshot.
        tasks, sent, received: totals by name; `unassigned` and `running` of the former are of now.
        rates: the recent increase of these per second: "task.success", "sent.Task", "received.TaskResult", ...
        workers, clients: by session.
        functions, graphs: by the scheduler's numbers, those that are gone included.
        objects: large ones, by id.
        actors: by the id of their function's object.
        slots: which slot of its worker a processor runs in.
        waiting_reasons: why tasks cannot run, in words.
        unit_notes: which units are to come, and what provisioners note of pools.
        demands: how many slots tasks could use, by what they need.
        pools: what they could use of each pool of provisioners, by name.
    """

    def __init__(self) -> None:
        self.generation = 0
        self._clear()

    def _clear(self) -> None:
        self.scheduler: Optional[SchedulerFigures] = None
        self.tasks: Dict[str, int] = {}
        self.sent: Dict[str, int] = {}
        self.received: Dict[str, int] = {}
        self.rates: Rates = {}
        self.workers: Dict[int, WorkerRecord] = {}
        self.clients: Dict[int, ClientRecord] = {}
        self.functions: Dict[int, FunctionFigures] = {}
        self.graphs: Dict[int, GraphRecord] = {}
        self.objects: Dict[int, SharedObjectRecord] = {}
        self.actors: Dict[int, ActorFigures] = {}
        self.slots = ProcessorSlots()
        self.waiting_reasons: List[str] = []
        self.unit_notes: List[str] = []
        self.demands: List[DemandFigures] = []
        self.pools: Dict[str, PoolFigures] = {}
        self._busy_workers: Dict[int, WorkerRecord] = {}  # whose rate is not 0
        self._busy_functions: Dict[int, FunctionFigures] = {}

    def apply(self, status: m.SchedulerStatus) -> None:
        """Process one publication; increments must come in order, after a snapshot.

        Raises MalformedMessageError when columns are inconsistent, or refer to something that was never named.
        """
        for batch in (
            status.workers, status.processors, status.clients, status.functions, status.graphs, status.large_objects,
            status.actors,
        ):  # fmt: skip
            batch.check_columns()
        if self.scheduler is None or self.scheduler.scheduler_id != status.scheduler_id:
            self._clear()
            self.generation += 1
            elapsed_seconds = 0.0
        else:
            elapsed_seconds = (status.unix_microseconds - self.scheduler.unix_microseconds) / 1e6
        if status.is_snapshot:
            self._keep_only(status)
        self.scheduler = SchedulerFigures(status, self.scheduler, elapsed_seconds)
        self._count(status, elapsed_seconds)
        self.waiting_reasons = list(status.waiting_reasons)
        self.unit_notes = list(status.unit_notes)
        self.demands = list(map(DemandFigures.of, status.demands))
        self.pools = {each.pool: PoolFigures(each.slots_wanted, each.units_wanted, each.units) for each in status.pools}
        self._apply_workers(status, elapsed_seconds)
        self._apply_processors(status.processors, status.unix_microseconds)
        self._apply_clients(status)
        self._apply_functions(status, elapsed_seconds)
        self._apply_graphs(status)
        self._apply_objects(status)
        self._apply_actors(status)

    def _keep_only(self, snapshot: m.SchedulerStatus) -> None:
        """Forget entities that a snapshot does not contain."""
        living: Tuple[Tuple[MutableMapping[int, Any], Sequence[int]], ...] = (
            (self.workers, snapshot.workers.sessions),
            (self.clients, snapshot.clients.sessions),
            (self.objects, snapshot.large_objects.ids),
            (self.actors, snapshot.actors.ids),
        )
        for known, named in living:
            for number in set(known).difference(named):
                del known[number]
                if known is self.workers:
                    self.slots.remove_worker(number)
        lasting: Tuple[Tuple[Mapping[int, Union[FunctionFigures, GraphRecord]], Sequence[int]], ...] = (
            (self.functions, snapshot.functions.numbers),
            (self.graphs, snapshot.graphs.numbers),
        )
        for kept, named in lasting:
            for number in set(kept).difference(named):
                kept[number].has_gone = True

    def _count(self, status: m.SchedulerStatus, elapsed_seconds: float) -> None:
        self.rates = {}
        for prefix, name, counts in (
            ("task", "tasks", status.tasks),
            ("sent", "sent", status.sent),
            ("received", "received", status.received),
        ):
            before: Dict[str, int] = getattr(self, name)
            after = {count.name: count.value for count in counts}
            setattr(self, name, after)
            if elapsed_seconds > 0:
                for each, value in after.items():
                    self.rates[f"{prefix}.{each}"] = (value - before.get(each, 0)) / elapsed_seconds

    def _apply_workers(self, status: m.SchedulerStatus, elapsed_seconds: float) -> None:
        for identity in status.new_workers:
            self.workers.setdefault(identity.session, WorkerRecord(identity))
            self.slots.add_worker(identity.session, identity.slots)
        busy: Dict[int, WorkerRecord] = {}
        c = status.workers
        for (
            session, tasks, queued, sent, finished, failed, cpu_permille, resident, free, latency, bits,
            processors,
        ) in zip(
            c.sessions, c.tasks, c.queued, c.sent, c.finished, c.failed, c.cpu_permille, c.resident_bytes,
            c.free_bytes, c.latency_microseconds, c.states, c.processors,
        ):  # fmt: skip
            worker = _known(self.workers, session, "worker")
            if elapsed_seconds > 0:
                worker.finished_per_second = (finished - worker.finished) / elapsed_seconds
                busy[session] = worker
            worker.tasks, worker.queued, worker.sent = tasks, queued, sent
            worker.finished, worker.failed = finished, failed
            worker.cpu_permille, worker.resident_bytes, worker.free_bytes = cpu_permille, resident, free
            worker.latency_microseconds = latency
            worker.is_congested, worker.is_leaving = bool(bits & 1), bool(bits & 2)
            worker.drain_cause = _DRAIN_CAUSES[bits >> 2 & 7]
            if not processors:
                worker.processors = []
        for session, worker in self._busy_workers.items():
            if session not in busy:
                worker.finished_per_second = 0.0
        self._busy_workers = busy
        for session in status.workers_gone:
            self.workers.pop(session, None)
            self.slots.remove_worker(session)

    def _apply_processors(self, c: m.ProcessorColumns, now: int) -> None:
        by_worker: Dict[int, List[ProcessorRecord]] = {}
        for worker_session, *figures, microseconds in zip(
            c.workers, c.process_ids, c.states, c.cpu_permille, c.resident_bytes, c.queued, c.task_clients,
            c.task_ids, c.task_functions, c.task_microseconds,
        ):  # fmt: skip
            by_worker.setdefault(worker_session, []).append(ProcessorRecord._make([*figures, now - microseconds]))
        for session, processors in by_worker.items():
            worker = _known(self.workers, session, "worker")
            worker.processors = _with_first_beginnings(processors, worker.processors)
            self.slots.set_present(session, [each.process_id for each in processors])

    def note_runs(self, runs: m.TaskRuns) -> None:
        """Record which processors ran tasks, and which ended together with theirs."""
        for session, process_id in sorted(set(zip(runs.workers, runs.processors))):
            self.slots.slot(session, process_id)
        if m.TaskStatus.LOST in runs.statuses:
            for session, process_id, status in zip(runs.workers, runs.processors, runs.statuses):
                if status == m.TaskStatus.LOST and process_id:
                    self.slots.end_processor(session, process_id)

    def _apply_clients(self, status: m.SchedulerStatus) -> None:
        for identity in status.new_clients:
            self.clients.setdefault(identity.session, ClientRecord(identity))
        c = status.clients
        for session, *figures in zip(
            c.sessions, c.tasks, c.finished, c.failed, c.canceled, c.bytes_in_flight, c.objects, c.object_bytes
        ):
            _known(self.clients, session, "client").take(*figures)
        for session in status.clients_gone:
            self.clients.pop(session, None)

    def _apply_functions(self, status: m.SchedulerStatus, elapsed_seconds: float) -> None:
        for identity in status.new_functions:
            self.functions.setdefault(identity.number, FunctionFigures(identity))
        busy: Dict[int, FunctionFigures] = {}
        c = status.functions
        histograms = _histograms(c)
        for number, finished, failed, busy_microseconds, running, waiting in zip(
            c.numbers, c.finished, c.failed, c.busy_microseconds, c.running, c.waiting
        ):
            function = _known(self.functions, number, "function")
            if elapsed_seconds > 0:
                function.finished_per_second = (finished - function.finished) / elapsed_seconds
                busy[number] = function
            function.finished, function.failed, function.busy_microseconds = finished, failed, busy_microseconds
            function.running, function.waiting = running, waiting
            function.durations = next(histograms)
        for number, function in self._busy_functions.items():
            if number not in busy:
                function.finished_per_second = 0.0
        self._busy_functions = busy
        for number in status.functions_gone:
            if number in self.functions:
                self.functions[number].has_gone = True
        _forget_oldest_gone(self.functions)

    def _apply_graphs(self, status: m.SchedulerStatus) -> None:
        c = status.graphs
        for number, *figures in zip(
            c.numbers, c.clients, c.first_tasks, c.nodes, c.waiting, c.queued, c.running, c.succeeded, c.failed,
            c.canceled, c.started_unix_microseconds,
        ):  # fmt: skip
            self.graphs.setdefault(number, GraphRecord(number)).take(*figures)
        for number in status.graphs_gone:
            if number in self.graphs:
                self.graphs[number].has_gone = True
        _forget_oldest_gone(self.graphs)

    def _apply_objects(self, status: m.SchedulerStatus) -> None:
        for identity in status.new_objects:
            self.objects.setdefault(identity.id, SharedObjectRecord(identity))
        c = status.large_objects
        for object_id, owner, size, bits in zip(c.ids, c.owners, c.sizes, c.states):
            _known(self.objects, object_id, "object").take(owner, size, bits)
        for object_id in status.objects_gone:
            self.objects.pop(object_id, None)

    def _apply_actors(self, status: m.SchedulerStatus) -> None:
        for identity in status.new_actors:
            self.actors.setdefault(identity.id, ActorFigures(identity))
        c = status.actors
        for actor_id, *figures in zip(c.ids, c.workers, c.waiting, c.running, c.finished, c.failed, c.states):
            _known(self.actors, actor_id, "actor").take(*figures)
        for lost in status.lost_actors:
            _known(self.actors, lost.id, "actor").why_lost = lost.reason
        for actor_id in status.actors_gone:
            self.actors.pop(actor_id, None)


def _histograms(c: m.FunctionColumns) -> Iterator[Dict[int, int]]:
    """For each function, the number of tasks by duration bucket."""
    start = 0
    for count in c.duration_counts:
        yield dict(zip(c.duration_buckets[start : start + count], c.duration_tasks[start : start + count]))
        start += count


def _with_first_beginnings(processors: List[ProcessorRecord], before: List[ProcessorRecord]) -> List[ProcessorRecord]:
    """The start of a task, which is not later than its previous estimate.

    Workers report at each heartbeat how long a task has been running, which is outdated when it is published.
    """
    tasks = {(each.process_id, each.task_client, each.task_id): each.task_began for each in before if each.task_client}
    return [
        each._replace(task_began=min(each.task_began, began))
        if (began := tasks.get((each.process_id, each.task_client, each.task_id))) is not None
        else each
        for each in processors
    ]


def _known(entities: Dict[int, _Entity], number: int, kind: str) -> _Entity:
    entity = entities.get(number)
    if entity is None:
        raise MalformedMessageError(f"SchedulerStatus: figures of {kind} {number}, which was never named")
    return entity


def _forget_oldest_gone(entities: Dict[int, _Ending]) -> None:
    if len(entities) <= KEPT_WHEN_GONE:
        return
    gone = [number for number, entity in entities.items() if entity.has_gone]
    for number in gone[: max(0, len(gone) - KEPT_WHEN_GONE)]:
        del entities[number]
