"""A monitor's picture of a scheduler: snapshots and increments, applied.

Rules:
- It depends only on the protocol, not on the core: authors of monitors may use it as an example.
- Whatever is told is applied in this order: names, entries, then what has gone.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from scaler_protocol import decode, encode
from scaler_protocol import messages as m

Row = Tuple[Any, ...]

_TABLES = (
    "workers", "clients", "functions", "graphs", "large_objects", "worker_names", "client_names", "function_names",
    "object_names", "processors", "durations", "actors", "actor_names", "actor_losses",
)  # fmt: skip


def columns_of(columns: Any) -> List[Row]:
    """A struct of columns as rows."""
    return list(zip(*(list(getattr(columns, name)) for name in columns.__slots__)))


class StatusModel:
    """What is known of the scheduler."""

    def __init__(self) -> None:
        self.is_known = False  # a snapshot has come
        self.sequence = 0
        self.forget()

    def forget(self) -> None:
        self.figures: Dict[str, Any] = {}
        self.tables: Dict[str, Dict[int, Any]] = {name: {} for name in _TABLES}

    def apply(self, status: m.SchedulerStatus) -> None:
        """The next publication."""
        if status.is_snapshot:
            self.forget()
            self.is_known = True
        elif not self.is_known:
            return
        else:
            assert status.sequence == self.sequence + 1, "a publication was missed"
        self.sequence = status.sequence
        self._apply_figures(status)
        self._apply_names(status)
        for name in ("workers", "clients", "graphs", "large_objects", "actors"):
            rows = columns_of(getattr(status, name))
            self.tables[name].update({row[0]: row for row in rows})
        self.tables["actor_losses"].update({each.id: each.reason for each in status.lost_actors})
        self._apply_functions(status.functions)
        self._apply_processors(status)
        self._apply_gone(status)

    def _apply_figures(self, status: m.SchedulerStatus) -> None:
        for name in ("objects", "object_bytes", "object_bytes_on_disk", "slots", "is_protected", "scheduler_id"):
            self.figures[name] = getattr(status, name)
        self.figures["tasks"] = {count.name: count.value for count in status.tasks}
        self.figures["waiting_reasons"] = list(status.waiting_reasons)

    def _apply_names(self, status: m.SchedulerStatus) -> None:
        self.tables["worker_names"].update({each.session: each for each in status.new_workers})
        self.tables["client_names"].update({each.session: each for each in status.new_clients})
        self.tables["function_names"].update({each.number: each for each in status.new_functions})
        self.tables["object_names"].update({each.id: each for each in status.new_objects})
        self.tables["actor_names"].update({each.id: each for each in status.new_actors})

    def _apply_functions(self, functions: m.FunctionColumns) -> None:
        first = 0
        for place, number in enumerate(functions.numbers):
            columns = (functions.finished, functions.failed, functions.busy_microseconds, functions.running)
            self.tables["functions"][number] = (*[each[place] for each in columns], functions.waiting[place])
            stop = first + functions.duration_counts[place]
            self.tables["durations"][number] = dict(
                zip(functions.duration_buckets[first:stop], functions.duration_tasks[first:stop])
            )
            first = stop

    def _apply_processors(self, status: m.SchedulerStatus) -> None:
        processors = self.tables["processors"]
        for session, count in zip(status.workers.sessions, status.workers.processors):
            if not count:
                processors.pop(session, None)
        for session in set(status.processors.workers):
            processors[session] = []
        for row in columns_of(status.processors):
            processors[row[0]].append(row)

    def _apply_gone(self, status: m.SchedulerStatus) -> None:
        for names, gone in (
            (("workers", "worker_names", "processors"), status.workers_gone),
            (("clients", "client_names"), status.clients_gone),
            (("functions", "function_names", "durations"), status.functions_gone),
            (("graphs",), status.graphs_gone),
            (("large_objects", "object_names"), status.objects_gone),
            (("actors", "actor_names", "actor_losses"), status.actors_gone),
        ):
            for name in names:
                for number in gone:
                    self.tables[name].pop(number, None)

    def assert_equals(self, other: StatusModel) -> None:
        """Both know the same."""
        assert self.figures == other.figures
        for name, table in self.tables.items():
            assert table == other.tables[name], f"{name}: {table} instead of {other.tables[name]}"

    def assert_is_true(self, core: Any, tenant: str = "*") -> None:
        """What the increments came to is what a fresh snapshot, or a tenant's view of one, says."""
        fresh = StatusModel()
        fresh.apply(core.status.snapshot(tenant))
        self.assert_equals(fresh)


def through_codec(status: m.SchedulerStatus) -> m.SchedulerStatus:
    decoded = decode(encode(status))
    assert isinstance(decoded, m.SchedulerStatus)
    return decoded


def publication(core: Any, is_snapshot: bool) -> m.SchedulerStatus:
    """The next publication, made without an event between its parts."""
    status = None
    while status is None:
        status = core.take_status(core.state.now, is_snapshot)
    return through_codec(status)


def view_of_publication(core: Any, tenant: str) -> m.SchedulerStatus:
    """What a tenant may see of the publication that was made last."""
    status = None
    while status is None:
        status = core.take_view(core.state.now, tenant)
    return through_codec(status)


class StatusMonitor:
    """Watches the scheduler of a harness from now on, and finds after each publication that it knows the truth."""

    def __init__(self, harness: Any) -> None:
        self.harness = harness
        self.model = StatusModel()
        harness.core.watch(True, True)
        self.look(is_snapshot=True)

    def look(self, is_snapshot: bool = False) -> m.SchedulerStatus:
        """The next publication."""
        status = publication(self.harness.core, is_snapshot)
        self.model.apply(status)
        self.model.assert_is_true(self.harness.core)
        return status
