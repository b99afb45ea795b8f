"""The waiting tasks of one requirement class, in the turns of their clients: see `ready_queues`."""

from __future__ import annotations

from collections import deque
from itertools import islice, takewhile
from typing import Callable, Deque, Dict, Iterable, Iterator, List, Optional, Set, Tuple

from scaler_appliance.core.tasks.batches import Requirement, TaskBatch, TaskSpan
from scaler_appliance.core.tasks.task_states import TaskState, first_run

SPANS_AHEAD = 32  # of the client whose turn it is: those that are looked at for tasks that may come first
CLIENTS_AHEAD, SPANS_OF_OTHERS = 32, 4  # the same of others, of each
MOST_PASSED = 16  # batches


class ReadyTotals:
    """Waiting tasks of all classes of a tenant."""

    __slots__ = ("placeable", "held", "later")

    def __init__(self) -> None:
        self.placeable = 0  # wait only for a worker
        self.held = 0  # their client is throttled
        self.later = 0  # outside of the classes


class ReadyClass:
    """The waiting tasks of one requirement class.

    Parameters:
        totals: of all classes of its tenant.
    """

    __slots__ = (
        "requirement",
        "count",
        "held_count",
        "last_served",
        "offered",
        "is_parked",
        "waits_since",
        "without_memory",
        "_passed",
        "_interrupted",
        "_spans",
        "_turns",
        "_turn_microseconds",
        "_came",
        "_preferred",
        "_held",
        "_counts",
        "_totals",
    )

    def __init__(self, requirement: Requirement, totals: ReadyTotals) -> None:
        self.requirement = requirement
        self._totals = totals
        self.count = 0  # tasks in state QUEUED whose client is not throttled
        self.held_count = 0  # those whose client is throttled
        self.last_served = 0
        self.offered = -1  # at which change of the workers one was known to offer to run its tasks
        self.is_parked = False
        self.waits_since: Optional[float] = None  # for quicker workers, or memory, though a slot is free
        self.without_memory = (0.0, 0)  # until when no host is looked at, unless another large task has ended
        self._passed: Dict[TaskBatch, float] = {}  # by tasks behind them, and since when
        self._interrupted: Optional[Tuple[int, float, int]] = None  # a turn: whose, how much is over, the other's place
        self._spans: Dict[int, Deque[TaskSpan]] = {}
        self._turns: Deque[int] = deque()
        self._turn_microseconds = 0.0  # of work that was handed out in the turn of the first of them
        # Clients that have had what they may until another one that had to wait has had its turn: they came and got the
        # next turn, or the last turn of one that had to wait was theirs.
        self._came: Set[int] = set()
        self._preferred: Set[int] = set()  # those of them that came, and whose turn is not over
        self._held: Dict[int, Deque[TaskSpan]] = {}
        self._counts: Dict[int, int] = {}  # of each client's tasks; also those that had some

    def add(self, span: TaskSpan, *, in_front: bool = False, cancelled: int = 0) -> None:
        """Queue the tasks of a span, all of them QUEUED but for those that were cancelled."""
        client = span.batch.client
        spans = self._spans.get(client)
        if spans is None:
            spans = self._spans[client] = deque()
            self._join_turns(client)
        if in_front:
            spans.appendleft(span)
        else:
            spans.append(span)
        count = span.stop - span.start - cancelled
        self.count += count
        self._totals.placeable += count
        self._counts[client] = self._counts.get(client, 0) + count

    def add_held(self, span: TaskSpan, *, in_front: bool, cancelled: int = 0) -> None:
        """Queue tasks of a throttled client."""
        client = span.batch.client
        spans = self._held.setdefault(client, deque())
        if in_front:
            spans.appendleft(span)
        else:
            spans.append(span)
        count = span.stop - span.start - cancelled
        self.held_count += count
        self._totals.held += count
        self._counts[client] = self._counts.get(client, 0) + count

    def take_over(self, client: int, spans: Deque[TaskSpan], count: int, is_held: bool) -> None:
        """Queue tasks of a client that has had none here."""
        self._counts[client] = count
        if is_held:
            self._held[client] = spans
            self.held_count += count
            self._totals.held += count
        else:
            self._spans[client] = spans
            self._turns.append(client)
            self.count += count
            self._totals.placeable += count

    def hold(self, client: int) -> None:
        """Keep the client's tasks apart."""
        if client in self._spans:
            self._held[client] = self._spans.pop(client)
            self._leave_turns(client)
            count = self._counts.get(client, 0)
            self.count -= count
            self.held_count += count
            self._totals.placeable -= count
            self._totals.held += count

    def resume(self, client: int) -> None:
        """Give the client turns again, after the others."""
        spans = self._held.pop(client, None)
        if spans is not None:
            self._spans[client] = spans
            self._turns.append(client)
            count = self._counts.get(client, 0)
            self.held_count -= count
            self.count += count
            self._totals.held -= count
            self._totals.placeable += count

    def discount(self, client: int, count: int, is_held: bool) -> Optional[Deque[TaskSpan]]:
        """Waiting tasks were cancelled in their spans; if none is left, returns the spans, which are dropped."""
        if is_held:
            self.held_count -= count
            self._totals.held -= count
        else:
            self.count -= count
            self._totals.placeable -= count
        left = self._counts[client] - count
        self._counts[client] = left
        return None if left else self._remove_spans(client)

    def take(self, limit: int) -> Optional[TaskSpan]:
        """Remove and return up to `limit` waiting tasks of the client whose turn it is.

        It stays this client's turn: tasks that are not dispatched are put back with `add` before others are taken, and
        the others are reported with `count_turn`.
        """
        while self._turns:
            span = self.take_of_turn(limit)
            if span is not None:
                return span
            self._drop_turn()
        assert self.count == 0, f"{self.count} tasks are counted but in no span"
        return None

    def _drop_turn(self) -> None:
        """The client whose turn it is has no more tasks."""
        client = self._turns[0]
        del self._spans[client]
        self._leave_turns(client)

    def take_of_turn(self, limit: int) -> Optional[TaskSpan]:
        """The same, but None if the client whose turn it is has no more tasks: it keeps its turn, for it may get some
        back. Some client has a turn."""
        client = self._turns[0]
        span = _take_from(self._spans[client], limit)
        if span is not None:
            count = span.stop - span.start
            self.count -= count
            self._totals.placeable -= count
            self._counts[client] -= count
        return span

    def next_batch(self) -> Optional[TaskBatch]:
        """The batch at the front of the current client's tasks, some of which may have been cancelled."""
        spans = self._spans[self._turns[0]] if self._turns else None
        return spans[0].batch if spans else None

    def batch_of_turn(self) -> Optional[TaskBatch]:
        """The batch of the next task; those who have no more tasks have no turn: none of them is to get any back."""
        while self._turns:
            spans = self._spans[self._turns[0]]
            while spans:
                batch, start, stop = spans[0]
                if batch.states[start] == TaskState.QUEUED:
                    return batch
                run = first_run(batch.states, start, stop, TaskState.QUEUED)
                if run is None:
                    spans.popleft()
                else:
                    spans[0] = TaskSpan(batch, run[0], stop)
            self._drop_turn()
        return None

    def run_of_turn(self) -> int:
        """How many tasks of one batch are next, at most."""
        spans = self._spans[self._turns[0]] if self._turns else None
        return spans[0].stop - spans[0].start if spans else 0

    def turns(self) -> Iterator[int]:
        """The clients, the one whose turn it is first."""
        return iter(self._turns)

    def next_turns(self) -> List[int]:
        """The client whose turn it is, and those that came and have the next turns."""
        after = takewhile(self._preferred.__contains__, islice(self._turns, 1, None))
        return [*islice(self._turns, 1), *after]

    def give_turn(self, client: int) -> None:
        """It is the turn of a client now that had another one."""
        if self._turns[0] != client:
            self._turn_microseconds = 0.0
            self._turns.remove(client)
            self._turns.appendleft(client)

    def passed_since(self, batch: TaskBatch) -> Optional[float]:
        """When others first came before a batch since one of its tasks was taken."""
        return self._passed.get(batch)

    def may_be_passed(self, batch: TaskBatch) -> bool:
        """Whether others may come before a batch: few are passed at a time, so that it is known for how long."""
        if batch in self._passed:
            return True
        if self._passed:
            self._passed = {each: since for each, since in self._passed.items() if each.unfinished}
        return len(self._passed) < MOST_PASSED

    def note_passed(self, batch: TaskBatch, now: float) -> None:
        """Others come before a batch."""
        self._passed.setdefault(batch, now)

    def bring_forward(self, count: int, is_wanted: Callable[[TaskBatch], bool]) -> bool:
        """Let some tasks of another batch be the next ones, of another client if the current one has none; returns
        whether there are any. What was next comes after them, and its client has its turn once they are taken.

        Parameters:
            count: of the tasks, at most.
            is_wanted: whether a batch is.
        """
        batch, current = self.batch_of_turn(), self._turns[0]
        for turn, client in enumerate(islice(self._turns, CLIENTS_AHEAD)):
            spans = self._spans[client]
            for place, span in enumerate(islice(spans, SPANS_AHEAD if client == current else SPANS_OF_OTHERS)):
                if span.batch is batch or not is_wanted(span.batch):
                    continue
                run = first_run(span.batch.states, span.start, span.stop, TaskState.QUEUED)
                if run is None:
                    continue
                start, stop = run[0], min(run[1], run[0] + count)
                del spans[place]
                if stop < span.stop:
                    spans.insert(place, TaskSpan(span.batch, stop, span.stop))
                spans.appendleft(TaskSpan(span.batch, start, stop))
                if client != current:
                    self._interrupted = current, self._turn_microseconds, turn
                    self.give_turn(client)
                return True
        return False

    def note_taken(self, batch: TaskBatch) -> None:
        """Tasks of a batch have got a worker."""
        self.waits_since = None
        if self._passed:
            self._passed.pop(batch, None)

    def resume_turn(self, taken: int) -> None:
        """The turn goes on that another client has interrupted, for so many tasks: if it got any, it comes last."""
        if self._interrupted is None:
            return
        client, microseconds, turn = self._interrupted
        self._interrupted = None
        if client not in self._spans:
            return
        other = self._turns[0]
        if other != client:  # its turn is not over
            self._turns.remove(client)
            self._turns[0] = client
            self._turns.insert(len(self._turns) if taken else turn, other)
        self._turn_microseconds = microseconds

    def samples(self, clients: int, spans: int) -> Iterator[Tuple[TaskBatch, float]]:
        """Batches of the next tasks of some clients, each with a weight: for how many waiting tasks it may stand."""
        for client in islice(self._turns, clients):
            looked = list(islice(self._spans[client], spans))
            tasks = sum([stop - start for _, start, stop in looked])
            for batch, start, stop in looked:
                yield batch, self._counts.get(client, 0) * (stop - start) / tasks

    def count_turn(self, microseconds: float, limit_microseconds: float) -> None:
        """Count tasks of the current client that were dispatched; with enough work its turn is over."""
        self._turn_microseconds += microseconds
        if self._turn_microseconds >= limit_microseconds:
            self._turn_microseconds = 0.0
            client = self._turns[0]
            if client in self._preferred:
                self._preferred.discard(client)  # from now on it is one of those that wait
            else:
                self._came = {client, *self._preferred}
            self._turns.rotate(-1)

    def left_of_turn(self, each_microseconds: float, limit_microseconds: float) -> Optional[int]:
        """How many more tasks of the current client belong to its turn; None: no other waits, or this one just came."""
        if len(self._turns) < 2 or self._turns[0] in self._preferred:
            return None
        left = int((limit_microseconds - self._turn_microseconds) / each_microseconds)
        return left if left > 0 else 1

    def _join_turns(self, client: int) -> None:
        if client in self._came:
            self._turns.append(client)
            return
        place = 1 if self._turn_microseconds else 0  # not within the turn of another one
        while place < len(self._turns) and self._turns[place] in self._preferred:
            place += 1
        self._came.add(client)
        self._preferred.add(client)
        self._turns.insert(place, client)

    def _leave_turns(self, client: int) -> None:
        if self._passed:
            self._passed = {each: since for each, since in self._passed.items() if each.client != client}
        if self._turns[0] == client:
            self._turn_microseconds = 0.0
        self._preferred.discard(client)
        self._turns.remove(client)

    def remove_client(self, client: int) -> Optional[Deque[TaskSpan]]:
        """Drop and return the spans of a client whose tasks are all cancelled and no longer counted."""
        self._counts.pop(client, None)
        return self._remove_spans(client)

    def _remove_spans(self, client: int) -> Optional[Deque[TaskSpan]]:
        if client in self._spans:
            self._leave_turns(client)
            return self._spans.pop(client)
        return self._held.pop(client, None)

    def remove_batch(self, batch: TaskBatch) -> Tuple[List[TaskSpan], int]:
        """Remove and return the spans of the batch that is next; and how many others were looked at."""
        client, spans = batch.client, self._spans[batch.client]
        own: List[TaskSpan] = []
        others: List[TaskSpan] = []
        left = batch.states.count(TaskState.QUEUED)
        while spans and (left > 0 or spans[0].batch is batch):
            span = spans.popleft()
            if span.batch is batch:
                own.append(span)
                left -= count_waiting([span])
            else:
                others.append(span)
        spans.extendleft(reversed(others))
        count = count_waiting(own)
        self.count -= count
        self._totals.placeable -= count
        self._counts[client] -= count
        if not spans:
            self._remove_spans(client)
        return own, len(others)

    def known_clients(self) -> Iterable[int]:
        """Clients that have, or had, tasks here."""
        return self._counts

    def clients(self) -> List[int]:
        """Clients that may have waiting tasks, throttled or not."""
        return [*self._turns, *self._held]

    def count_of(self, client: int) -> int:
        """The client's waiting tasks."""
        return self._counts.get(client, 0)

    def check_invariants(self, held: Set[int]) -> None:
        """Check that throttled clients have no turn and others do, and that the counts are right."""
        assert set(self._turns) == set(self._spans) and held.isdisjoint(self._spans) and held.issuperset(self._held)
        assert self.count == sum(map(count_waiting, self._spans.values())), f"{self.count} are counted"
        assert self.held_count == sum(map(count_waiting, self._held.values())), (
            f"{self.held_count} are counted as held up"
        )
        for client, spans in (*self._spans.items(), *self._held.items()):
            assert self._counts[client] == count_waiting(spans), (
                f"{self._counts[client]} are counted of client {client}"
            )
        assert all(client in self._spans or client in self._held for client, count in self._counts.items() if count)


def count_waiting(spans: Iterable[TaskSpan]) -> int:
    """The waiting tasks of spans."""
    return sum([batch.states.count(TaskState.QUEUED, start, stop) for batch, start, stop in spans])


def _take_from(spans: Deque[TaskSpan], limit: int) -> Optional[TaskSpan]:
    while spans:
        span = spans[0]
        batch, start, stop = span
        run = first_run(batch.states, start, stop, TaskState.QUEUED)
        if run is None:
            spans.popleft()
            continue
        first, end = run
        if end - first > limit:
            end = first + limit
        if end < stop:
            spans[0] = TaskSpan(batch, end, stop)
        else:
            spans.popleft()
        return span if first == start and end == stop else TaskSpan(batch, first, end)
    return None
