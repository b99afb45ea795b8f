"""The tasks that ended recently: a ring of runs, bounded in bytes, that can be searched.

    blocks, oldest first:  [columns of one TaskRuns] [ … ] [ … ]        failures: those that failed, for longer

Rules:
- A block consists of the message's own columns; a row becomes an object only on request.
- Failures are few and matter most: they have a ring of their own, and are found there after their block was dropped.
"""

from __future__ import annotations

from array import array
from collections import deque
from itertools import islice
from typing import Callable, Deque, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from scaler_protocol import messages as m

BLOCK_BYTES = 1500  # of a block without rows
ROW_BYTES = 61
FAILURE_BYTES = 400  # of a kept failure without its payload
_FAILED = (m.TaskStatus.FAILED, m.TaskStatus.LOST)
FAILURES_SHARE = 4  # a quarter of the limit is for failures


class RecordedRun(NamedTuple):
    """Tasks of one function and client that a processor ran one after the other, and that ended alike.

    Times in seconds since 1970, durations in microseconds; `processor` is a process id, 0: not known; `failure` is the
    payload as the client got it, empty where there is none or it was too long.
    """

    end: float
    busy_microseconds: int
    worker: int
    processor: int
    client: int
    function: int
    first_task: int
    tasks: int
    status: int
    peak_memory_bytes: int
    attempt: int
    failure: bytes

    @property
    def start(self) -> float:
        return self.end - self.busy_microseconds / 1e6


class RunQuery(NamedTuple):
    """Criteria of a search; None: any.

    Parameters:
        tasks: ids at the client; the run has one of them.
        first_tasks: the least id of the run's first task, and one that it is below: the tasks of a graph, say.
        failure: decides from a failure's payload whether it matches.
        any_of: whether one of `tasks`, `functions` and `failure` is enough, for a text that may be any of them.
    """

    statuses: Optional[Set[int]] = None
    functions: Optional[Set[int]] = None
    workers: Optional[Set[int]] = None
    clients: Optional[Set[int]] = None
    tasks: Optional[Set[int]] = None
    failure: Optional[Callable[[bytes], bool]] = None
    any_of: bool = False
    first_tasks: Optional[Tuple[int, int]] = None


class Found(NamedTuple):
    runs: List[RecordedRun]
    matching: int  # with those before and after


class _Block:
    def __init__(self, message: m.TaskRuns) -> None:
        count = len(message.end_microseconds)
        message.check_columns()
        self.message = message
        self.failures = {each.entry: each.failure for each in message.failures}
        self.end = message.unix_microseconds / 1e6
        longest = max(map(sum, zip(message.end_microseconds, message.busy_microseconds)), default=0)
        self.start = self.end - longest / 1e6
        self.bytes = BLOCK_BYTES + ROW_BYTES * count + sum(map(len, self.failures.values()))
        self.functions = set(message.functions)
        self.statuses = set(message.statuses)
        self.failed = sum(map(message.statuses.count, _FAILED))
        self._first_task = min(message.first_tasks, default=0)
        self._tasks_end = max(message.first_tasks, default=0) + max(message.counts, default=0)

    def _may_have(self, tasks: Set[int]) -> bool:
        return any(self._first_task <= task < self._tasks_end for task in tasks)

    def __len__(self) -> int:
        return len(self.message.counts)

    def run(self, row: int) -> RecordedRun:
        c = self.message
        return RecordedRun(
            self.end - c.end_microseconds[row] / 1e6,
            c.busy_microseconds[row],
            c.workers[row],
            c.processors[row],
            c.clients[row],
            c.functions[row],
            c.first_tasks[row],
            c.counts[row],
            c.statuses[row],
            c.peak_memory_bytes[row],
            c.attempts[row],
            self.failures.get(row, b""),
        )

    def matching(self, query: RunQuery) -> Iterable[int]:
        """Matching rows, in order, tested column by column, which is fast."""
        c = self.message
        if query.statuses is not None and query.statuses.isdisjoint(self.statuses):
            return ()
        rows: Iterable[int] = range(len(self))
        for wanted, column in (
            (query.statuses, c.statuses),
            (query.workers, c.workers),
            (query.clients, c.clients),
        ):
            if wanted is not None:
                rows = _among(rows, column, wanted)
        if query.first_tasks is not None:
            low, high = query.first_tasks
            rows = [row for row in rows if low <= c.first_tasks[row] < high]
        return self._matching_text(rows, query)

    def _matching_text(self, rows: Iterable[int], query: RunQuery) -> Iterable[int]:
        """Those of the rows with the wanted function, task or failure: any of the three, or all."""
        c = self.message
        tests: List[Callable[[Iterable[int]], Iterable[int]]] = []
        if query.functions is not None:
            functions = query.functions
            tests.append(
                lambda rows: () if functions.isdisjoint(self.functions) else _among(rows, c.functions, functions)
            )
        if query.tasks is not None:
            tasks = query.tasks
            tests.append(lambda rows: _with_task(rows, c.first_tasks, c.counts, tasks) if self._may_have(tasks) else ())
        if query.failure is not None:
            is_wanted = query.failure
            failed = {row for row, failure in self.failures.items() if is_wanted(failure)}
            tests.append(lambda rows: [row for row in rows if row in failed] if failed else ())
        if not tests:
            return rows
        if not query.any_of:
            for test in tests:
                rows = test(rows)
            return rows
        rows = rows if isinstance(rows, range) else list(rows)
        return sorted(set().union(*(test(rows) for test in tests)))


def _among(rows: Iterable[int], column: Sequence[int], wanted: Set[int]) -> List[int]:
    if isinstance(rows, range):
        if len(wanted) == 1:
            (only,) = wanted
            return [row for row, value in enumerate(column) if value == only]
        return [row for row, value in enumerate(column) if value in wanted]
    return [row for row in rows if column[row] in wanted]


def _with_task(rows: Iterable[int], firsts: array[int], counts: array[int], wanted: Set[int]) -> List[int]:
    if isinstance(rows, range) and len(wanted) == 1:
        (task,) = wanted
        return [row for row, (first, count) in enumerate(zip(firsts, counts)) if first <= task < first + count]
    return [row for row in rows if any(firsts[row] <= task < firsts[row] + counts[row] for task in wanted)]


class TaskHistory:
    """The ring.

    Parameters:
        limit_bytes: of everything in it.

    Attributes:
        appended: how many publications were ever added, including those that were dropped or cleared.
        kept: how many runs are in it.
        omitted_runs, omitted_tasks: how many the scheduler did not publish.
        one_worker_of: of how many workers one is published, by the newest message.
    """

    def __init__(self, limit_bytes: int = 64 * 1024 * 1024) -> None:
        self._limit_bytes = limit_bytes
        self.appended = 0
        self.clear()

    def clear(self) -> None:
        """Forget everything, because the numbers of another scheduler are unrelated."""
        self._blocks: Deque[_Block] = deque()
        self._bytes = 0
        self._failures: Deque[RecordedRun] = deque()  # oldest first
        self._failure_bytes = 0
        self.kept = self.omitted_runs = self.omitted_tasks = 0
        self.one_worker_of = 1

    @property
    def bytes(self) -> int:
        """The approximate size in bytes."""
        return self._bytes + self._failure_bytes

    def append(self, message: m.TaskRuns) -> None:
        """Add one publication. Raises MalformedMessageError when its columns are inconsistent."""
        block = _Block(message)
        self.omitted_runs += message.omitted_runs
        self.omitted_tasks += message.omitted_tasks
        self.one_worker_of = max(1, message.one_worker_of)
        if not len(block):
            return
        self._blocks.append(block)
        self.appended += 1
        self._bytes += block.bytes
        self.kept += len(block)
        if block.failed:
            self._keep_failures(block)
        while self._bytes > self._limit_bytes - self._limit_bytes // FAILURES_SHARE and len(self._blocks) > 1:
            oldest = self._blocks.popleft()
            self._bytes -= oldest.bytes
            self.kept -= len(oldest)

    def _keep_failures(self, block: _Block) -> None:
        for row, status in enumerate(block.message.statuses):
            if status in _FAILED:
                run = block.run(row)
                self._failures.append(run)
                self._failure_bytes += FAILURE_BYTES + len(run.failure)
        while self._failure_bytes > self._limit_bytes // FAILURES_SHARE:
            self._failure_bytes -= FAILURE_BYTES + len(self._failures.popleft().failure)

    def between(self, start: float, end: float) -> Iterator[RecordedRun]:
        """Runs that were going on within [start, end], by their ends, the oldest first."""
        for block in self._blocks:
            if block.end >= start and block.start <= end:
                for row in range(len(block)):
                    run = block.run(row)
                    if run.end >= start and run.start <= end:
                        yield run

    def publications(self, start: float, end: float, after: int = 0) -> Iterator[m.TaskRuns]:
        """Publications with runs that may have been going on within [start, end], the oldest first.

        Parameters:
            after: only those added after `appended` had this value.
        """
        older = max(0, after - (self.appended - len(self._blocks)))
        for block in islice(self._blocks, older, None):
            if block.end >= start and block.start <= end:
                yield block.message

    def search(self, query: RunQuery, offset: int = 0, limit: int = 100) -> Found:
        """Runs, the newest first, from the `offset`-th that matches."""
        found: List[RecordedRun] = []
        matching = 0
        for block in reversed(self._blocks):
            rows = list(block.matching(query))
            if matching + len(rows) > offset and len(found) < limit:
                first = max(0, offset - matching)
                found += [block.run(row) for row in rows[::-1][first : first + limit - len(found)]]
            matching += len(rows)
        for run in self._older_failures():
            if _matches(run, query):
                if matching >= offset and len(found) < limit:
                    found.append(run)
                matching += 1
        return Found(found, matching)

    def _older_failures(self) -> Iterator[RecordedRun]:
        """Failures whose block was dropped, the newest first."""
        older = len(self._failures) - sum(block.failed for block in self._blocks)
        for index in range(older - 1, -1, -1):
            yield self._failures[index]

    def find(self, client: int, task_id: int) -> Optional[RecordedRun]:
        """The newest run that begins with this task, or else the newest that may contain it.

        Runs are merged, so the ids of one that stands for several tasks may have gaps: a task that failed among others
        that did not has a run of its own.
        """
        begins = self.search(RunQuery(clients={client}, first_tasks=(task_id, task_id + 1)), limit=1)
        found = begins.runs or self.search(RunQuery(clients={client}, tasks={task_id}), limit=1).runs
        return found[0] if found else None


def _matches(run: RecordedRun, query: RunQuery) -> bool:
    for wanted, value in ((query.statuses, run.status), (query.workers, run.worker), (query.clients, run.client)):
        if wanted is not None and value not in wanted:
            return False
    if query.first_tasks is not None and not query.first_tasks[0] <= run.first_task < query.first_tasks[1]:
        return False
    tests: List[bool] = []
    if query.functions is not None:
        tests.append(run.function in query.functions)
    if query.tasks is not None:
        tests.append(any(run.first_task <= task < run.first_task + run.tasks for task in query.tasks))
    if query.failure is not None:
        tests.append(bool(run.failure) and query.failure(run.failure))
    return not tests or (any(tests) if query.any_of else all(tests))
