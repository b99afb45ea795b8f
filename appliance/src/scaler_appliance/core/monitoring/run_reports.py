"""How long tasks took, and on which processor: from the reports of workers to counters and TaskRuns.

Rules:
- Runs are recorded while there are subscribers; a message of an omitted worker costs almost nothing.
- If the worker reports its processors' runs, these are used. Otherwise all tasks of a message are taken to have run
  equally long, on an unknown processor.
"""

from __future__ import annotations

from typing import Iterable, Iterator, Tuple

from scaler_appliance.core.effects import PeerError
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.tasks.batches import TaskBatch
from scaler_appliance.core.tasks.client_results import ResultSpan
from scaler_appliance.core.tasks.task_states import runs
from scaler_protocol import messages as m

NUMBERS_OF_A_RUN = 3  # in TaskResult.runs: tasks, process id, microseconds

_SUCCESS = int(m.TaskStatus.SUCCESS)
_STATUSES = tuple(map(int, m.TaskStatus))

_Piece = Tuple[int, int, int, float]
"""Entries [start, stop) of a message, all of one processor, and microseconds of one of them on average."""


class RunReports:
    def __init__(self, state: SchedulerState) -> None:
        self._state = state
        self._runs = state.runs

    def record(
        self,
        worker: WorkerSession,
        message: m.TaskResult,
        mean_microseconds: float,
        batch: TaskBatch,
        first: int,
        position: int,
        end: int,
        span: ResultSpan,
    ) -> None:
        """Entries [position, end) of a message, `span`, are the outcomes of a batch's tasks from `first` on.

        Parameters:
            mean_microseconds: the mean duration of the message's tasks.
        """
        if worker.number & self._runs.mask and not span.statuses:
            self._runs.omit(end - position, batch.tenant)
            batch.counters.measure(end - position, mean_microseconds)
            return
        reported = message.runs
        if len(reported) == NUMBERS_OF_A_RUN:  # as most messages under load
            whole = (position, end, reported[1] & 0xFFFFFFFF, reported[2] / reported[0])
            pieces: Iterable[_Piece] = (whole,)
        else:
            pieces = _pieces(message, mean_microseconds, position, end)
        for piece in pieces:
            start, stop, processor, microseconds = piece
            batch.counters.measure(stop - start, microseconds)
            if span.statuses or message.peak_memory_bytes:
                self._tell_by_status(worker, message, batch, first - position, position, piece, span)
            else:
                index = first - position + start
                lane = (worker.number, processor, batch.client, batch.counters.number, _SUCCESS)
                attempt = 1 if batch.attempts is None else batch.attempts[index] + 1
                count = stop - start
                busy = microseconds * count
                self._runs.record(self._state.now, lane, batch.ids[index], count, busy, attempt, 0, batch.tenant)

    def _tell_by_status(
        self,
        worker: WorkerSession,
        message: m.TaskResult,
        batch: TaskBatch,
        shift: int,
        position: int,
        piece: _Piece,
        span: ResultSpan,
    ) -> None:
        """Record a piece in which some tasks failed.

        Parameters:
            shift: from places in the message to places in the batch.
            position: where the span begins in the message.
        """
        first, end, processor, microseconds = piece
        peaks = message.peak_memory_bytes
        statuses = span.statuses or bytes(len(span.sizes))
        for status in _STATUSES:
            lane = (worker.number, processor, batch.client, batch.counters.number, status)
            for low, high in runs(statuses, first - position, end - position, status):
                start, stop = low + position, high + position
                index = start + shift
                peak = max(peaks[start:stop]) if peaks else 0
                busy = microseconds * (stop - start)
                attempt = batch.losses_of(index) + 1
                entry = self._runs.record(
                    self._state.now, lane, batch.ids[index], stop - start, busy, attempt, peak, batch.tenant
                )
                if status != _SUCCESS:
                    begin = sum(span.sizes[:low])
                    self._runs.record_failure(entry, bytes(span.payload[begin : begin + span.sizes[low]]))


def _pieces(message: m.TaskResult, mean_microseconds: float, position: int, end: int) -> Iterator[_Piece]:
    """Entries [position, end) of a message by the runs of its processors."""
    reported = message.runs
    if not reported:
        yield position, end, 0, mean_microseconds
        return
    stop = 0
    for place in range(0, len(reported), NUMBERS_OF_A_RUN):
        count, processor, microseconds = reported[place : place + NUMBERS_OF_A_RUN]
        start, stop = stop, stop + count
        if start >= end:
            break
        if stop > position and count:
            yield max(start, position), min(stop, end), processor & 0xFFFFFFFF, microseconds / count


def check_runs(message: m.TaskResult) -> None:
    """Raise PeerError unless the runs are those of all entries."""
    if len(message.runs) % NUMBERS_OF_A_RUN or sum(message.runs[::NUMBERS_OF_A_RUN]) != len(message.ids):
        raise PeerError(m.RefusalReason.MALFORMED, "TaskResult: runs do not fit the ids")
