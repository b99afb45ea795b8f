"""What monitors are to be told: noted when it happens, so that telling it costs what changed and not what exists.

    reactions ──touch, add, remove──▶ Changes, one of each kind ──once a second──▶ Status.take() ──▶ SchedulerStatus

Rules:
- Noting is a look at a flag, and a dictionary operation once a publication; nothing is copied, and figures are read
  when they are told.
- Figures that only monitors want are totals, kept where the thing itself is kept (sessions, graphs) or in a tally here.
- While nobody watches, what has ended leaves no trace: memory follows what exists.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from math import log2
from typing import TYPE_CHECKING, Dict, Generic, List, Protocol, Tuple, TypeVar

from scaler_appliance.core.task_states import TaskState

if TYPE_CHECKING:
    from scaler_appliance.core.batches import TaskBatch
    from scaler_appliance.core.objects import ObjectRecord
    from scaler_appliance.core.sessions import ClientSession, WorkerSession

MAXIMUM_IDLE_FUNCTIONS = 256
"""Functions that no unfinished task needs are told of until so many others have had their last task after them."""

LAST_BUCKET = 255


class Noted(Protocol):
    """What can be told of."""

    is_noted: bool  # it is among those touched


Entry = TypeVar("Entry", bound=Noted)


class Changes(Generic[Entry]):
    """Entries of one kind, by number, since they were told last.

    Who touches an entry often looks first whether it `is_noted`.
    """

    __slots__ = ("new", "touched", "gone", "is_watched")

    def __init__(self) -> None:
        self.new: Dict[int, Entry] = {}
        self.touched: Dict[int, Entry] = {}
        self.gone: Dict[int, None] = {}
        self.is_watched = False

    def add(self, number: int, entry: Entry) -> None:
        """There is one more."""
        self.new[number] = entry
        self.touch(number, entry)

    def touch(self, number: int, entry: Entry) -> None:
        """Figures of it changed."""
        self.touched[number] = entry
        entry.is_noted = True

    def remove(self, number: int, entry: Entry) -> None:
        """It has ended. Its last figures are told, if anybody watches."""
        if self.is_watched:
            self.touch(number, entry)
            self.gone[number] = None
        else:
            self.forget(number)

    def forget(self, number: int) -> None:
        """It has ended, and its last figures are of no interest."""
        is_unknown = self.new.pop(number, None) is not None
        self.touched.pop(number, None)
        if self.is_watched and not is_unknown:
            self.gone[number] = None

    def first(self, limit: int) -> List[Entry]:
        """Those whose figures have waited longest to be told."""
        return list(islice(self.touched.values(), limit))

    def clear(self, limit: int = 0) -> None:
        """All has been told.

        Parameters:
            limit: of figures only those of the first so many; 0: of all. Figures of what is gone wait no longer.
        """
        told = [*islice(self.touched, limit), *filter(self.touched.__contains__, self.gone)] if limit else self.touched
        for number in list(told):
            entry = self.touched.pop(number, None)
            if entry is not None:
                entry.is_noted = False
        self.new.clear()
        self.gone.clear()


class FunctionTally:
    """What became of the tasks of one function.

    Parameters:
        client: session; 0: a function addressed by name.
    """

    __slots__ = (
        "number", "name", "client", "unfinished", "running", "ended", "busy_microseconds", "durations", "is_noted",
        "is_listed", "was_used",
    )  # fmt: skip

    def __init__(self, number: int, name: str, client: int) -> None:
        self.number = number
        self.name = name
        self.client = client
        self.unfinished = 0  # tasks in batches: those that wait for others in their graph are none yet
        self.running = 0  # of these, at workers
        self.ended = [0] * len(TaskState)  # by state
        self.busy_microseconds = 0.0
        self.durations: Dict[int, int] = {}  # how many tasks took how long, by bucket
        self.is_noted = False
        self.is_listed = False  # among those that were idle, and may have been used again
        self.was_used = False  # since then

    def measure(self, count: int, microseconds: float) -> None:
        """So many tasks took so long on average."""
        self.busy_microseconds += microseconds * count
        bucket = bucket_of(microseconds)
        durations = self.durations
        durations[bucket] = durations.get(bucket, 0) + count


def bucket_of(microseconds: float) -> int:
    """The quarter octave of a duration."""
    return min(LAST_BUCKET, int(4 * log2(microseconds))) if microseconds > 1.0 else 0


class GraphTally:
    """The nodes of one graph by state; those that have neither ended nor wait for others are in batches."""

    __slots__ = ("number", "client", "first_task", "nodes", "waiting", "running", "ended", "started", "is_noted")

    def __init__(self, number: int, client: int, first_task: int, nodes: int, started: float) -> None:
        self.number = number
        self.client = client
        self.first_task = first_task
        self.nodes = nodes
        self.waiting = nodes  # for predecessors
        self.running = 0  # at workers
        self.ended = [0] * len(TaskState)  # by state
        self.started = started  # by the scheduler's clock
        self.is_noted = False

    @property
    def queued(self) -> int:
        return self.nodes - self.waiting - self.running - sum(self.ended)


class StatusChanges:
    """All that has changed, and the tallies.

    Parameters:
        large_bytes: objects of so many bytes and more are told of one by one.
    """

    def __init__(self, large_bytes: int) -> None:
        self.workers: Changes[WorkerSession] = Changes()
        self.clients: Changes[ClientSession] = Changes()
        self.functions: Changes[FunctionTally] = Changes()
        self.graphs: Changes[GraphTally] = Changes()
        self.objects: Changes[ObjectRecord] = Changes()
        self.is_watched = False
        self.reasons: List[str] = []  # why tasks wait that cannot run
        self._large_bytes = large_bytes
        self._tallies: Dict[Tuple[int, str], FunctionTally] = {}
        self._listed: OrderedDict[int, FunctionTally] = OrderedDict()  # that were idle, longest ago first
        self._last_function = self._last_graph = 0

    # Functions ------------------------------------------------------------------------------------------------------

    def tallies(self) -> List[FunctionTally]:
        """Of all functions that are told of."""
        return list(self._tallies.values())

    def begin(self, batch: TaskBatch, name: str) -> None:
        """A batch of unfinished tasks came to be.

        Parameters:
            name: that its function's object has.
        """
        if batch.function:
            key = batch.client, name or batch.function_name or f"{batch.function:016x}"
        else:
            key = 0, batch.function_name
        tally = self._tallies.get(key)
        if tally is None:
            self._last_function += 1
            tally = self._tallies[key] = FunctionTally(self._last_function, key[1], key[0])
            self.functions.add(tally.number, tally)
        elif not tally.is_noted:
            self.functions.touch(tally.number, tally)
        tally.was_used = True
        tally.unfinished += batch.unfinished
        batch.tally = tally

    def list_idle(self, tally: FunctionTally) -> None:
        """No task of a function is unfinished, and it is not listed yet; the one idle for longest may have to go."""
        self._list(tally)
        while len(self._listed) > MAXIMUM_IDLE_FUNCTIONS:
            number, oldest = self._listed.popitem(last=False)
            oldest.is_listed = False
            if oldest.unfinished:
                continue
            if oldest.was_used:
                self._list(oldest)
                continue
            del self._tallies[oldest.client, oldest.name]
            self.functions.remove(number, oldest)

    def _list(self, tally: FunctionTally) -> None:
        self._listed[tally.number] = tally
        tally.is_listed, tally.was_used = True, False

    # Graphs and objects ---------------------------------------------------------------------------------------------

    def begin_graph(self, client: int, first_task: int, nodes: int, now: float) -> GraphTally:
        """A client submitted a graph."""
        self._last_graph += 1
        tally = GraphTally(self._last_graph, client, first_task, nodes, now)
        self.graphs.add(tally.number, tally)
        return tally

    def is_large(self, record: ObjectRecord) -> bool:
        return record.size >= self._large_bytes

    def touch_object(self, record: ObjectRecord) -> None:
        """Something about an object changed."""
        if record.size >= self._large_bytes:
            self.objects.touch(record.object_id, record)

    # Watching -------------------------------------------------------------------------------------------------------

    def watch(self, is_watched: bool) -> None:
        """Begin to note what ends, or stop it: somebody watches, or nobody does any more."""
        self.is_watched = is_watched
        for changes in (self.workers, self.clients, self.functions, self.graphs, self.objects):
            changes.is_watched = is_watched
        if not is_watched:  # figures of what ended meanwhile
            self.clear()

    def clear(self, limit: int = 0) -> None:
        """All has been told.

        Parameters:
            limit: of workers only the figures of so many; 0: of all.
        """
        self.workers.clear(limit)
        for changes in (self.clients, self.functions, self.graphs, self.objects):
            changes.clear()

    def check_invariants(self) -> None:
        """Tallies are where they belong; State checks what they count."""
        for key, tally in self._tallies.items():
            assert key == (tally.client, tally.name)
            assert tally.is_listed == (tally.number in self._listed)
            assert tally.is_listed or tally.unfinished, f"{tally.name} is idle and not listed"
            assert 0 <= tally.running <= tally.unfinished, f"{tally.name}: {tally.running} of {tally.unfinished} run"
        assert len(self._listed) <= MAXIMUM_IDLE_FUNCTIONS
        for changes in (self.workers, self.clients, self.functions, self.graphs, self.objects):
            assert all(entry.is_noted for entry in changes.touched.values())


UNTALLIED = FunctionTally(0, "", 0)
"""Of batches that are not the scheduler's yet."""
