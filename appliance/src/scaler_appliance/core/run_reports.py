"""How long tasks took, and on which processor: from what workers report to tallies and TaskRuns.

Rules:
- While nobody watches, a message of results costs two additions for each of its runs in here.
- Where the worker tells of its processors' runs, these decide. Otherwise all tasks of a message took equally long, on a
  processor that is not known.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Iterator, List, NamedTuple

from scaler_appliance.core.batches import TaskBatch
from scaler_appliance.core.changes import bucket_of
from scaler_appliance.core.effects import PeerError
from scaler_appliance.core.results import ResultSpan
from scaler_appliance.core.sessions import WorkerSession
from scaler_appliance.core.state import State
from scaler_appliance.core.task_runs import Lane
from scaler_appliance.core.task_states import runs
from scaler_protocol import messages as m

_STATUSES = tuple(map(int, m.TaskStatus))


class Measured:
    """A message of results, and what it says of durations."""

    __slots__ = ("worker", "message", "mean_microseconds", "mean_bucket", "run_ends")

    def __init__(self, worker: WorkerSession, message: m.TaskResult, mean_microseconds: float) -> None:
        self.worker = worker
        self.message = message
        self.mean_microseconds = mean_microseconds
        self.mean_bucket = bucket_of(mean_microseconds)
        self.run_ends: List[int] = list(accumulate(message.run_counts)) if message.run_counts else []


class _Piece(NamedTuple):
    """Tasks [start, stop) of a message, all of one processor."""

    start: int
    stop: int
    processor: int
    microseconds: float  # one task, on average


class ReportsOfRuns:
    def __init__(self, state: State) -> None:
        self._state = state

    def note(self, measured: Measured, batch: TaskBatch, first: int, position: int, end: int, span: ResultSpan) -> None:
        """Entries [position, end) of a message are the outcomes of a batch's tasks from `first` on."""
        is_told = self._state.runs.is_watched
        if is_told and not span.statuses and not self._state.runs.wants(measured.worker.number):
            self._state.runs.omit(end - position)
            is_told = False
        if not measured.run_ends and not is_told:
            batch.tally.measure(end - position, measured.mean_microseconds, measured.mean_bucket)
            return
        for piece in _pieces(measured, position, end):
            bucket = bucket_of(piece.microseconds)
            batch.tally.measure(piece.stop - piece.start, piece.microseconds, bucket)
            if is_told:
                self._tell(measured, batch, first - position, position, piece, span)

    def _tell(
        self, measured: Measured, batch: TaskBatch, shift: int, position: int, piece: _Piece, span: ResultSpan
    ) -> None:
        """Tell monitors of a piece.

        Parameters:
            shift: from places in the message to places in the batch.
            position: where the span begins in the message.
        """
        now, noted = self._state.now, self._state.runs
        peaks = measured.message.peak_memory_bytes
        for status in _STATUSES if span.statuses else _STATUSES[:1]:
            lane = Lane(measured.worker.number, piece.processor, batch.client, batch.tally.number, status)
            low, high = piece.start - position, piece.stop - position
            for start, stop in runs(span.statuses, low, high, status) if span.statuses else ((low, high),):
                start, stop = start + position, stop + position
                entry = noted.note(
                    now,
                    lane,
                    batch.ids[start + shift],
                    stop - start,
                    piece.microseconds * (stop - start),
                    batch.losses_of(start + shift) + 1,
                    max(peaks[start:stop]) if peaks else 0,
                )
                if status != m.TaskStatus.SUCCESS and not entry.failure:
                    begin = sum(span.sizes[: start - position])
                    noted.note_failure(entry, bytes(span.payload[begin : begin + span.sizes[start - position]]))


def _pieces(measured: Measured, position: int, end: int) -> Iterator[_Piece]:
    """Entries [position, end) of a message by the runs of its processors."""
    message = measured.message
    if not measured.run_ends:
        yield _Piece(position, end, 0, measured.mean_microseconds)
        return
    for run, stop in enumerate(measured.run_ends):
        start = max(position, stop - message.run_counts[run])
        if start >= end:
            break
        if start < stop:
            mean = message.run_microseconds[run] / message.run_counts[run]
            yield _Piece(start, min(stop, end), message.run_processors[run], mean)


def check_runs(message: m.TaskResult) -> None:
    """Raise PeerError unless the columns of runs fit the others."""
    counts = message.run_counts
    fit = len(counts) == len(message.run_processors) == len(message.run_microseconds)
    if not fit or sum(counts) != len(message.ids):
        raise PeerError(m.RefusalReason.MALFORMED, "TaskResult: the columns of runs do not fit each other, or the ids")
