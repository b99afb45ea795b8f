"""What has changed since the last publication: workers, clients, functions, graphs and large objects.

    reactions ──touch, add, remove──▶ Changes, one of each kind ──once a second──▶ StatusColumns ──▶ SchedulerStatus

Rule: figures that only monitors need are totals, kept with their object (session, graph) or in `counters`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Dict, List, Tuple, Union

from scaler_appliance.core.monitoring.changes import Changes
from scaler_appliance.core.monitoring.counters import FunctionCounters, GraphCounters
from scaler_appliance.core.objects.object_records import ObjectChanges
from scaler_appliance.core.peers.sessions import ClientSession, WorkerSession
from scaler_appliance.core.tasks.batches import TaskBatch

MAXIMUM_IDLE_FUNCTIONS = 256
"""How many functions without unfinished tasks are published: those that were used last."""


class StatusChanges:
    """Everything that has changed, and the counters.

    Parameters:
        large_bytes: objects of at least this size are published one by one.
    """

    def __init__(self, large_bytes: int) -> None:
        self.workers: Changes[WorkerSession] = Changes()
        self.clients: Changes[ClientSession] = Changes()
        self.functions: Changes[FunctionCounters] = Changes()
        self.graphs: Changes[GraphCounters] = Changes()
        self.objects = ObjectChanges(large_bytes)
        self.is_watched = False
        self.reasons: List[Tuple[str, str]] = []  # why tasks cannot run: tenants and texts
        # By session and name; those of functions that are addressed by name, by tenant and name.
        self._function_counters: Dict[Tuple[Union[int, str], str], FunctionCounters] = {}
        self._listed: OrderedDict[int, FunctionCounters] = OrderedDict()  # that were idle, longest ago first
        self._last_function = self._last_graph = 0

    # Functions ------------------------------------------------------------------------------------------------------

    def function_counters(self) -> List[FunctionCounters]:
        """The counters of all published functions."""
        return list(self._function_counters.values())

    def begin(self, batch: TaskBatch, name: str) -> None:
        """A batch of unfinished tasks was created.

        Parameters:
            name: of the function's object.
        """
        if batch.function:
            key: Tuple[Union[int, str], str] = batch.client, name or batch.function_name or f"{batch.function:016x}"
        else:
            key = batch.requirement.needs.tenant, batch.function_name
        counters = self._function_counters.get(key)
        if counters is None:
            self._last_function += 1
            client = batch.client if batch.function else 0
            counters = FunctionCounters(self._last_function, key[1], client, batch.tenant)
            self._function_counters[key] = counters
            self.functions.add(counters.number, counters)
        elif not counters.is_dirty:
            self.functions.touch(counters.number, counters)
        counters.was_used = True
        counters.unfinished += batch.unfinished
        batch.counters = counters

    def list_idle(self, counters: FunctionCounters) -> None:
        """List a function whose last unfinished task has ended; the one idle longest may be removed."""
        self._list(counters)
        while len(self._listed) > MAXIMUM_IDLE_FUNCTIONS:
            number, oldest = self._listed.popitem(last=False)
            oldest.is_listed = False
            if oldest.unfinished:
                continue
            if oldest.was_used:
                self._list(oldest)
                continue
            del self._function_counters[oldest.client or oldest.tenant, oldest.name]
            self.functions.remove(number, oldest)

    def _list(self, counters: FunctionCounters) -> None:
        self._listed[counters.number] = counters
        counters.is_listed, counters.was_used = True, False

    # Graphs -----------------------------------------------------------------------------------------------------------

    def begin_graph(self, client: ClientSession, first_task: int, nodes: int, now: float) -> GraphCounters:
        """A client submitted a graph."""
        self._last_graph += 1
        counters = GraphCounters(self._last_graph, client.number, first_task, nodes, now, client.tenant)
        self.graphs.add(counters.number, counters)
        return counters

    # Watching -------------------------------------------------------------------------------------------------------

    def watch(self, is_watched: bool) -> None:
        """Begin or stop recording what ends, because there are subscribers or no longer any."""
        self.is_watched = is_watched
        for changes in (self.workers, self.clients, self.functions, self.graphs, self.objects):
            changes.is_watched = is_watched
            if not is_watched:  # figures of what ended meanwhile
                changes.clear()

    def check_invariants(self) -> None:
        """Check that each counter is in its place; State checks the counts."""
        for key, counters in self._function_counters.items():
            assert key == (counters.client or counters.tenant, counters.name)
            assert counters.is_listed == (counters.number in self._listed)
            assert counters.is_listed or counters.unfinished, f"{counters.name} is idle and not listed"
            assert 0 <= counters.running <= counters.unfinished, (
                f"{counters.name}: {counters.running} of {counters.unfinished} run"
            )
        assert len(self._listed) <= MAXIMUM_IDLE_FUNCTIONS
        for changes in (self.workers, self.clients, self.functions, self.graphs, self.objects):
            assert all(entry.is_dirty for entry in changes.dirty.values())
