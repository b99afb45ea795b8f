"""Which tasks ended, where and when: the columns of TaskRuns, gathered while somebody watches.

Rules:
- An entry is a run, never a task. Runs that follow closely on each other in one lane (one processor, one function)
  become one entry, so that a lane has at most one entry in MERGED_MICROSECONDS for each function.
- Under load the runs of some workers only are told, and all of theirs: a lane is whole or not there. Which ones adapts:
  twice as many workers are left out as soon as there are too many entries, half as many when there are few.
- Failures are told of all workers, up to a number and a size; what is left out is counted.
- Nothing is kept while nobody watches.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple

from scaler_protocol import messages as m

ENTRIES_WANTED = 2000  # a publication
ENTRIES_AT_MOST = 2 * ENTRIES_WANTED
FAILURES_AT_MOST = 1000  # of them
FAILURE_BYTES = 16 * 1024  # a failure that is longer is not told
FAILURES_BYTES = 256 * 1024  # of all in a publication
LARGEST = (1 << 64) - 1  # that a column takes: durations are what workers say, and may be nonsense
MERGED_MICROSECONDS = 20_000
MERGED_MICROSECONDS_AT_MOST = 640_000

_SUCCESS = int(m.TaskStatus.SUCCESS)


class Lane(NamedTuple):
    """Runs that may become one entry."""

    worker: int
    processor: int
    client: int
    function: int
    status: int


class Entry:
    """One or several runs."""

    __slots__ = (
        "lane", "begin", "end", "first_task", "count", "busy_microseconds", "peak_memory_bytes", "attempts", "failure",
    )  # fmt: skip

    def __init__(self, lane: Lane, end: float, first_task: int, attempts: int) -> None:
        self.lane = lane
        self.begin = self.end = end  # of the first run and of the last one, by the scheduler's clock
        self.first_task = first_task
        self.count = 0
        self.busy_microseconds = 0.0
        self.peak_memory_bytes = 0
        self.attempts = attempts
        self.failure: bytes = b""


class TaskRuns:
    """The entries since the last publication."""

    def __init__(self) -> None:
        self.is_watched = False
        self.one_worker_of = 1
        self.merged_microseconds = MERGED_MICROSECONDS
        self._is_crowded = False  # more entries than there may be, of workers that all are told of
        self._sequence = 0
        self.clear()

    def clear(self) -> None:
        self._entries: List[Entry] = []
        self._open: Dict[Lane, Entry] = {}  # to which the next run of the lane may be added
        self._failures = 0
        self._failure_bytes = 0
        self.omitted_runs = 0
        self.omitted_tasks = 0

    def watch(self, is_watched: bool) -> None:
        """Somebody watches, or nobody does any more."""
        self.is_watched = is_watched
        self.clear()

    def wants(self, worker: int) -> bool:
        """Whether runs of this worker that did not fail are told."""
        return not worker & (self.one_worker_of - 1)

    def omit(self, count: int) -> None:
        """A run of so many tasks is not told."""
        self.omitted_runs += 1
        self.omitted_tasks += count

    def note(
        self,
        now: float,
        lane: Lane,
        first_task: int,
        count: int,
        busy_microseconds: float,
        attempts: int = 1,
        peak_memory_bytes: int = 0,
    ) -> Entry:
        """A run ended now; returns the entry it is part of, which may be one that is not told.

        Parameters:
            busy_microseconds: of all tasks together.
        """
        entry = self._open.get(lane)
        if entry is None or entry.attempts != attempts or (now - entry.begin) * 1e6 > self.merged_microseconds:
            entry = Entry(lane, now, first_task, attempts)
            if not self._has_room(lane):
                self.omit(count)
                return entry
            self._entries.append(entry)
            self._open[lane] = entry
            self._failures += lane.status != _SUCCESS
        entry.end = now
        entry.count += count
        entry.busy_microseconds += busy_microseconds
        if peak_memory_bytes > entry.peak_memory_bytes:
            entry.peak_memory_bytes = peak_memory_bytes
        return entry

    def note_failure(self, entry: Entry, failure: bytes) -> None:
        """Why one task of an entry failed; of several, the first is told."""
        size = len(failure)
        if not entry.failure and entry.count and size <= FAILURE_BYTES and self._failure_bytes + size <= FAILURES_BYTES:
            entry.failure = failure
            self._failure_bytes += size

    def _has_room(self, lane: Lane) -> bool:
        """Whether there may be one more entry; if there are too many, fewer workers are told of from now on."""
        if lane.status != _SUCCESS:
            return self._failures < FAILURES_AT_MOST
        if len(self._entries) - self._failures >= ENTRIES_AT_MOST:
            self._thin_out()
        return self.wants(lane.worker) and len(self._entries) - self._failures < ENTRIES_AT_MOST

    def _thin_out(self) -> None:
        """Tell of half as many workers, unless that would be none."""
        mask = 2 * self.one_worker_of - 1
        kept = [each for each in self._entries if each.lane.status != _SUCCESS or not each.lane.worker & mask]
        if len(kept) == self._failures or len(kept) == len(self._entries):
            self._is_crowded = True
            return
        self.one_worker_of *= 2
        for entry in self._entries:
            if entry.lane.status == _SUCCESS and entry.lane.worker & mask:
                self.omit(entry.count)
                self._open.pop(entry.lane, None)
        self._entries = kept

    def _adapt(self) -> None:
        """Tell more, or less, from now on."""
        if self._is_crowded:
            self.merged_microseconds = min(2 * self.merged_microseconds, MERGED_MICROSECONDS_AT_MOST)
        elif len(self._entries) * 4 < ENTRIES_WANTED:
            if self.one_worker_of > 1:
                self.one_worker_of //= 2
            else:
                self.merged_microseconds = max(self.merged_microseconds // 2, MERGED_MICROSECONDS)
        self._is_crowded = False

    def take(self, now: float, scheduler_id: bytes, unix_microseconds: int) -> m.TaskRuns:
        """What there is to be told, which is forgotten here."""
        self._sequence += 1
        entries = self._entries
        lanes = [entry.lane for entry in entries]
        runs = m.TaskRuns(
            scheduler_id=scheduler_id,
            sequence=self._sequence,
            unix_microseconds=unix_microseconds,
            end_microseconds=[min(int((now - entry.end) * 1e6), 0xFFFFFFFF) for entry in entries],
            workers=[lane.worker for lane in lanes],
            processors=[lane.processor for lane in lanes],
            clients=[lane.client for lane in lanes],
            functions=[lane.function for lane in lanes],
            first_tasks=[entry.first_task for entry in entries],
            counts=[entry.count for entry in entries],
            statuses=bytes([lane.status for lane in lanes]),
            busy_microseconds=[min(int(entry.busy_microseconds), LARGEST) for entry in entries],
            peak_memory_bytes=[entry.peak_memory_bytes for entry in entries],
            attempts=[entry.attempts for entry in entries],
            failures=[
                m.FailedRun(entry=place, failure=entry.failure) for place, entry in enumerate(entries) if entry.failure
            ],
            omitted_runs=self.omitted_runs,
            omitted_tasks=self.omitted_tasks,
            one_worker_of=self.one_worker_of,
        )
        self._adapt()
        self.clear()
        return runs

    def __len__(self) -> int:
        """Of entries; 0: nothing has ended."""
        return len(self._entries) or self.omitted_runs
