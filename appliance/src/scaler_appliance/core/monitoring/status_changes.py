"""What has changed since the last publication: workers, clients, functions, graphs, large objects and actors.

    reactions ──touch, add, remove──▶ Changes, one of each kind ──once a second──▶ StatusColumns ──▶ SchedulerStatus

Rules:
- Figures that only monitors need are totals, kept with their object (session, graph) or in `counters`.
- Hundreds of thousands of functions may have unfinished tasks, and no call takes long for it: functions are looked up
  by name in several dicts, since a dict is moved as a whole when it grows, and listed in the order of their numbers.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Dict, List, Tuple, Union

from scaler_appliance.core.actor_calls.actor_table import ActorRecord
from scaler_appliance.core.large_tables import LARGE, Table, in_chunks
from scaler_appliance.core.monitoring.changes import Changes
from scaler_appliance.core.monitoring.counters import FunctionCounters, GraphCounters
from scaler_appliance.core.objects.object_records import ObjectChanges
from scaler_appliance.core.peers.sessions import ClientSession
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.tasks.batches import TaskBatch

MAXIMUM_IDLE_FUNCTIONS = 256
"""How many functions without unfinished tasks are published: those that were used last."""

DICTS_OF_FUNCTIONS = 64

Key = Tuple[Union[int, str], str]  # session and name; of functions that are addressed by name, tenant and name


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
        self.actors: Changes[ActorRecord] = Changes()
        self.is_watched = False
        self.reasons: List[Tuple[str, str]] = []  # why tasks cannot run: tenants and texts
        self._functions_by_key: List[Dict[Key, FunctionCounters]] = [{} for _ in range(DICTS_OF_FUNCTIONS)]
        self._functions_by_number: Table[FunctionCounters] = {}
        self._listed: OrderedDict[int, FunctionCounters] = OrderedDict()  # that were idle, longest ago first
        self._last_function = self._last_graph = 0

    # Functions ------------------------------------------------------------------------------------------------------

    def function_counters(self) -> List[FunctionCounters]:
        """The counters of all published functions."""
        return list(self._functions_by_number.values())

    def begin(self, batch: TaskBatch, name: str) -> None:
        """A batch of unfinished tasks was created.

        Parameters:
            name: of the function's object.
        """
        if batch.function:
            key: Key = batch.client, name or batch.function_name or f"{batch.function:016x}"
        else:
            key = batch.requirement.needs.tenant, batch.function_name
        functions = self._functions_of(key)
        counters = functions.get(key)
        if counters is None:
            self._last_function += 1
            client = batch.client if batch.function else 0
            counters = FunctionCounters(self._last_function, key[1], client, batch.tenant)
            functions[key] = self._functions_by_number[counters.number] = counters
            if len(self._functions_by_number) == LARGE:
                self._functions_by_number = in_chunks(self._functions_by_number)
            self.functions.add(counters.number, counters)
        elif not counters.is_dirty:
            self.functions.touch(counters.number, counters)
        counters.was_used = True
        counters.unfinished += batch.unfinished
        batch.counters = counters

    def _functions_of(self, key: Key) -> Dict[Key, FunctionCounters]:
        return self._functions_by_key[hash(key[1]) % DICTS_OF_FUNCTIONS]

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
            key = oldest.client or oldest.tenant, oldest.name
            del self._functions_of(key)[key], self._functions_by_number[number]
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
        for changes in (self.workers, self.clients, self.functions, self.graphs, self.objects, self.actors):
            changes.is_watched = is_watched
            if not is_watched:  # figures of what ended meanwhile
                changes.clear()

    def check_invariants(self) -> None:
        """Check that each counter is in its place; State checks the counts."""
        assert sum(map(len, self._functions_by_key)) == len(self._functions_by_number)
        for number, counters in self._functions_by_number.items():
            key = counters.client or counters.tenant, counters.name
            assert number == counters.number and self._functions_of(key)[key] is counters
            assert counters.is_listed == (counters.number in self._listed)
            assert counters.is_listed or counters.unfinished, f"{counters.name} is idle and not listed"
            assert 0 <= counters.running <= counters.unfinished, (
                f"{counters.name}: {counters.running} of {counters.unfinished} run"
            )
        assert len(self._listed) <= MAXIMUM_IDLE_FUNCTIONS
        for changes in (self.workers, self.clients, self.functions, self.graphs, self.objects, self.actors):
            assert all(entry.is_dirty for entry in changes.dirty.values())
