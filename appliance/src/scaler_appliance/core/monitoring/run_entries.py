"""The tasks that ended, where and when: the columns of TaskRuns, gathered while there are subscribers.

Rules:
- An entry is a run, not a task. Runs that follow each other closely in one lane (one processor, one function) become
  one entry, so that a lane has at most one entry per MERGED_SECONDS for each function.
- Under load only the runs of some workers are published, but all of theirs: a lane is complete or absent. Twice as many
  workers are omitted as soon as there are too many entries, half as many when there are few. If one worker alone has so
  many, its runs are merged over a longer time: an omitted run would make a busy processor look idle.
- Failures of all workers are published, up to a number and a size; omitted ones are counted.
- Nothing is kept without subscribers; with them, the last publication is, for the views of tenants.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from scaler_protocol import messages as m
from scaler_protocol.keys.allow_list import DEFAULT_TENANT

ENTRIES_AT_MOST = 2000  # a publication, of what did not fail
ENTRIES_ARE_FEW = ENTRIES_AT_MOST // 8
ENTRIES_OF_ONE_WORKER = 4 * ENTRIES_AT_MOST  # if merging more does not help
FAILURES_AT_MOST = 500
FAILURE_BYTES = 16 * 1024  # longer failures are omitted
FAILURES_BYTES = 256 * 1024  # of all in a publication
LARGEST = (1 << 64) - 1  # the limit of a column: workers may report nonsensical durations
MERGED_SECONDS = 0.02
MERGED_SECONDS_AT_MOST = 0.64

_SUCCESS = int(m.TaskStatus.SUCCESS)


_END, _WORKER, _PROCESSOR, _CLIENT, _FUNCTION, _STATUS, _FIRST_TASK, _COUNT, _BUSY, _PEAK, _ATTEMPTS = range(11)
_BEGIN, _FAILURE, _TENANT = 11, 12, 13
_COLUMNS = 14

Entry = List[Any]
"""One or several runs: a value for each of the columns above. The first is when the last of them ended, `_BEGIN` when
the first did, by the scheduler's clock; `_FAILURE` is bytes; `_TENANT` is whose tasks they are."""

_Taken = Tuple[List[Entry], List[int], Dict[str, List[int]], m.TaskRuns]
"""A publication: its entries, when they ended, what was omitted, and what does not depend on these."""

Lane = Tuple[int, int, int, int, int]
"""What runs of one entry have in common: worker, processor, client, function, status."""


def _add(entry: Entry, end: float, count: int, busy_microseconds: float, peak_memory_bytes: int) -> Entry:
    """Make an entry stand for more tasks."""
    entry[_END] = end
    entry[_COUNT] += count
    entry[_BUSY] += busy_microseconds
    if peak_memory_bytes > entry[_PEAK]:
        entry[_PEAK] = peak_memory_bytes
    return entry


class RunEntries:
    """The entries since the last publication."""

    def __init__(self) -> None:
        self.is_watched = False
        self.mask = 0  # of session numbers of workers: those of which it leaves 0 are published
        self.merged_seconds = MERGED_SECONDS
        self._is_full = False  # more entries than there may be, of workers that are all published
        self._sequence = 0
        self._taken: _Taken = ([], [], {}, m.TaskRuns())
        self.clear()

    def clear(self) -> None:
        self._entries: List[Entry] = []
        self._open: Dict[Lane, Entry] = {}  # to which the next run of the lane may be added
        self._failures = 0
        self._failure_bytes = 0
        self.omitted: Dict[str, List[int]] = {}  # runs and tasks, by tenant

    def watch(self, is_watched: bool) -> None:
        """Subscribers have come, or the last one has gone."""
        self.is_watched = is_watched
        self._taken = ([], [], {}, m.TaskRuns())
        self.clear()

    def omit(self, count: int, tenant: str = DEFAULT_TENANT) -> None:
        """Count a run that is not published."""
        omitted = self.omitted.get(tenant)
        if omitted is None:
            omitted = self.omitted[tenant] = [0, 0]
        omitted[0] += 1
        omitted[1] += count

    def record(
        self,
        now: float,
        lane: Lane,
        first_task: int,
        count: int,
        busy_microseconds: float,
        attempts: int = 1,
        peak_memory_bytes: int = 0,
        tenant: str = DEFAULT_TENANT,
    ) -> Entry:
        """A run ended now; returns the entry it is part of, which may be an omitted one.

        Parameters:
            busy_microseconds: of all tasks together.
        """
        last = self._open.get(lane)
        if last is not None and now - last[_BEGIN] <= self.merged_seconds and last[_ATTEMPTS] == attempts:
            return _add(last, now, count, busy_microseconds, peak_memory_bytes)
        entry = [now, *lane, first_task, count, busy_microseconds, peak_memory_bytes, attempts, now, b"", tenant]
        if len(self._entries) - self._failures >= ENTRIES_AT_MOST or lane[4] != _SUCCESS:
            if not self._has_room(lane):
                if last is not None and self._open.get(lane) is last:
                    return _add(last, now, count, busy_microseconds, peak_memory_bytes)
                self.omit(count, tenant)
                entry[_COUNT] = 0
                return entry
        self._entries.append(entry)
        self._open[lane] = entry
        return entry

    def record_failure(self, entry: Entry, failure: bytes) -> None:
        """Record why a task of an entry failed; only the first failure of an entry is published."""
        size = len(failure)
        has_room = size <= FAILURE_BYTES and self._failure_bytes + size <= FAILURES_BYTES
        if has_room and entry[_COUNT] and not entry[_FAILURE]:
            entry[_FAILURE] = failure
            self._failure_bytes += size

    def _has_room(self, lane: Lane) -> bool:
        """Whether there is room for one more entry; if not, fewer workers are published from now on."""
        if lane[4] != _SUCCESS:
            if self._failures >= FAILURES_AT_MOST:
                return False
            self._failures += 1
            return True
        self._thin_out()
        if lane[0] & self.mask:
            return False
        if len(self._entries) - self._failures >= ENTRIES_AT_MOST and self.merged_seconds < MERGED_SECONDS_AT_MOST:
            self._merge_more()
        return len(self._entries) - self._failures < ENTRIES_OF_ONE_WORKER

    def _merge_more(self) -> None:
        """Merge recorded and future runs over twice the time."""
        self.merged_seconds = min(2 * self.merged_seconds, MERGED_SECONDS_AT_MOST)
        kept: List[Entry] = []
        opened: Dict[Lane, Entry] = {}
        for entry in self._entries:
            lane = (entry[_WORKER], entry[_PROCESSOR], entry[_CLIENT], entry[_FUNCTION], entry[_STATUS])
            last = opened.get(lane)
            if (
                last is None
                or entry[_STATUS] != _SUCCESS
                or entry[_BEGIN] - last[_BEGIN] > self.merged_seconds
                or entry[_ATTEMPTS] != last[_ATTEMPTS]
            ):
                kept.append(entry)
                opened[lane] = entry
                continue
            _add(last, entry[_END], entry[_COUNT], entry[_BUSY], entry[_PEAK])
        self._entries, self._open = kept, opened

    def _thin_out(self) -> None:
        """Publish half as many workers, but at least one."""
        mask = 2 * self.mask + 1
        kept = [entry for entry in self._entries if entry[_STATUS] != _SUCCESS or not entry[_WORKER] & mask]
        if len(kept) == self._failures or len(kept) == len(self._entries):
            self._is_full = True
            return
        self.mask = mask
        for entry in self._entries:
            if entry[_STATUS] == _SUCCESS and entry[_WORKER] & mask:
                self.omit(entry[_COUNT], entry[_TENANT])
        self._open = {lane: entry for lane, entry in self._open.items() if lane[4] != _SUCCESS or not lane[0] & mask}
        self._entries = kept

    def _adapt(self) -> None:
        """Publish more, or less, from now on."""
        if self._is_full:
            self.merged_seconds = min(2 * self.merged_seconds, MERGED_SECONDS_AT_MOST)
        elif len(self._entries) < ENTRIES_ARE_FEW:
            if self.mask:
                self.mask >>= 1
            else:
                self.merged_seconds = max(self.merged_seconds / 2, MERGED_SECONDS)
        self._is_full = False

    def take(self, now: float, scheduler_id: bytes, unix_microseconds: int) -> m.TaskRuns:
        """Take the entries to publish."""
        self._sequence += 1
        # SCL-MON-004
        runs = m.TaskRuns(scheduler_id=scheduler_id, sequence=self._sequence, unix_microseconds=unix_microseconds)
        runs.one_worker_of = self.mask + 1
        ends = [min(int((now - entry[_END]) * 1e6), 0xFFFFFFFF) for entry in self._entries]
        self._taken = entries, _, omitted, _ = self._entries, ends, self.omitted, runs
        self._adapt()
        self.clear()
        return _with_columns(runs, entries, ends, list(omitted.values()))

    def view(self, tenant: str) -> m.TaskRuns:
        """What a tenant may see of the entries that were taken last."""
        entries, ends, omitted, runs = self._taken
        own = [place for place, entry in enumerate(entries) if entry[_TENANT] == tenant]
        own_ends = [ends[place] for place in own]
        return _with_columns(runs, [entries[place] for place in own], own_ends, [omitted.get(tenant, [0, 0])])

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._entries) or sum(runs for runs, _ in self.omitted.values())


def _with_columns(
    runs: m.TaskRuns, entries: List[Entry], end_microseconds: List[int], omitted: List[List[int]]
) -> m.TaskRuns:
    """A publication of entries.

    Parameters:
        runs: with what does not depend on them.
        end_microseconds: of each.
        omitted: numbers of runs and tasks.
    """
    columns = list(zip(*entries)) or [()] * _COLUMNS
    return m.TaskRuns(
        scheduler_id=runs.scheduler_id,
        sequence=runs.sequence,
        unix_microseconds=runs.unix_microseconds,
        end_microseconds=end_microseconds,
        workers=columns[_WORKER],
        processors=columns[_PROCESSOR],
        clients=columns[_CLIENT],
        functions=columns[_FUNCTION],
        first_tasks=columns[_FIRST_TASK],
        counts=columns[_COUNT],
        statuses=bytes(columns[_STATUS]),
        busy_microseconds=[min(int(busy), LARGEST) for busy in columns[_BUSY]],
        peak_memory_bytes=columns[_PEAK],
        attempts=columns[_ATTEMPTS],
        failures=[m.FailedRun(entry=i, failure=failure) for i, failure in enumerate(columns[_FAILURE]) if failure],
        omitted_runs=sum(number for number, _ in omitted),
        omitted_tasks=sum(tasks for _, tasks in omitted),
        one_worker_of=runs.one_worker_of,
    )
