"""Reports of workers: results, and the output of tasks.

Rules:
- Columns are handled by runs: a run of tasks that share a dispatch costs a few slices, however long it is.
- A report of an instance that is not open is stale: counted, and otherwise ignored.
- A run is checked completely before anything changes.
- A large result that its worker keeps is fetched before its client learns of it (see `held_results`): from then on it
  survives the worker. A result that only nodes of a graph need stays where it is.
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from operator import attrgetter
from typing import Dict, List, Optional, Tuple

from scaler_appliance.core.effects import Buffer, PeerError
from scaler_appliance.core.graphs.graph_nodes import GraphBatch
from scaler_appliance.core.graphs.graph_reactions import GraphReactions
from scaler_appliance.core.monitoring.run_reports import NUMBERS_OF_A_RUN, RunReports, check_runs
from scaler_appliance.core.objects.object_records import ObjectRecord
from scaler_appliance.core.peers.flow_control import FlowControl
from scaler_appliance.core.peers.sessions import ClientSession
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.placement.task_placement import Placement
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.steps import COLUMN_ENTRIES_PER_UNIT, Steps
from scaler_appliance.core.tasks.batches import Dispatch, TaskBatch
from scaler_appliance.core.tasks.client_results import OPTIONAL_COLUMNS, ResultSpan
from scaler_appliance.core.tasks.held_results import HeldResult
from scaler_appliance.core.tasks.pace import LEAST_MICROSECONDS, Typical
from scaler_appliance.core.tasks.task_outcomes import TaskOutcomes
from scaler_appliance.core.tasks.task_states import TaskEvent, TaskState, apply, runs
from scaler_protocol import MalformedMessageError, decode_struct, encode_struct
from scaler_protocol import messages as m

_EVENT_OF_STATUS = {
    m.TaskStatus.SUCCESS: TaskEvent.SUCCEED,
    m.TaskStatus.FAILED: TaskEvent.FAIL,
    m.TaskStatus.LOST: TaskEvent.LOSE,
}
_KNOWN_STATUSES = bytes(_EVENT_OF_STATUS)
_optional_columns = attrgetter(*OPTIONAL_COLUMNS)
_DURATION_WEIGHT = 0.3  # of the newest measurement
_SHORTEST_MICROSECONDS = 0.5
UNITS_OF_A_RUN = 8  # of results
LARGEST_REASON_BYTES = 64 * 1024  # of a failure that is read to learn why an actor was lost
MAXIMUM_TEXT = 1000  # characters of that reason
_NOT_ITS_RESULT = "TaskResult: objects must be the worker's own, and each the result of one task"


class _Report:
    """How far a message has been taken.

    Parameters:
        optional: its optional columns.
    """

    __slots__ = ("message", "optional", "payload", "position", "offset")

    def __init__(self, message: m.TaskResult, optional: Dict[str, array[int]], payload: memoryview) -> None:
        self.message = message
        self.optional = optional
        self.payload = payload
        self.position = self.offset = 0  # in the columns and in the payload


class WorkerReports:
    def __init__(
        self,
        state: SchedulerState,
        placement: Placement,
        outcomes: TaskOutcomes,
        graphs: GraphReactions,
        flow: FlowControl,
    ) -> None:
        self._state = state
        self._flow = flow
        self._placement = placement
        self._outcomes = outcomes
        self._graphs = graphs
        self._runs = RunReports(state)

    def on_task_result(self, worker: WorkerSession, message: m.TaskResult, payload: bytes) -> Optional[Steps]:
        """A worker reports outcomes: what is left to do, of very many."""
        optional = _checked_columns(message, payload)
        if message.objects and self._state.objects.has_kept:
            message, payload = self._hold_back(worker, message, payload)
            optional = _present(message)
        report = _Report(message, optional, memoryview(payload))
        if not self._take(worker, report, self._state.part):
            return self._take_rest(worker, report)
        return None

    # Held outcomes --------------------------------------------------------------------------------------------------

    # SCL-OBJ-022
    def _hold_back(self, worker: WorkerSession, message: m.TaskResult, payload: bytes) -> Tuple[m.TaskResult, bytes]:
        """Hold the outcomes whose large results have to be fetched first; returns the others."""
        held = {place for place, each in enumerate(message.objects) if each and self._is_held(worker, message, place)}
        if not held:
            return message, payload
        others = [place for place in range(len(message.ids)) if place not in held]
        ends = list(accumulate(message.payload_sizes, initial=0))
        return _entries_of(message, others), b"".join([payload[ends[each] : ends[each + 1]] for each in others])

    def _is_held(self, worker: WorkerSession, message: m.TaskResult, place: int) -> bool:
        """Whether an outcome is held, from now on or already."""
        object_id, instance, state = message.objects[place], message.ids[place], self._state
        before = state.held_results.find(object_id)
        if before is not None:
            if before.instance != instance:
                raise PeerError(m.RefusalReason.PROTOCOL_VIOLATION, _NOT_ITS_RESULT)
            state.count_useless(worker, UNITS_OF_A_RUN)
            return True  # it is reported twice
        record = state.objects.find(object_id)
        if record is None or not record.is_elsewhere or object_id not in worker.objects:
            return False
        dispatch, index, _ = self._outcomes.find_run(worker, message.ids, place)
        if dispatch is None or not dispatch.is_open(index):
            return False
        batch = dispatch.batch
        is_kept = isinstance(batch, GraphBatch) and not batch.graph.is_target[batch.nodes[index]]
        if is_kept or state.clients[batch.client].is_gone:
            return False
        state.held_results.hold(object_id, HeldResult(worker.number, instance, _entries_of(message, [place])))
        state.objects.fetch(record)
        return True

    def on_result_fetched(self, record: ObjectRecord) -> None:
        """The bytes of a result are here, or will not be stored: its outcome may be reported."""
        held = self._state.held_results.take(record.object_id)
        if held is not None:
            self._report_held(held, held.message, b"")

    def on_result_missing(self, record: ObjectRecord) -> None:
        """The worker that kept a result does not have it any more: its task is lost."""
        held = self._state.held_results.take(record.object_id)
        if held is not None:
            text = f"the result (object {record.object_id:x}) disappeared at its worker before it was fetched"
            failure = encode_struct(m.Failure(kind=m.FailureKind.OBJECT_MISSING, message=text, attempts=1))
            message = m.TaskResult(ids=held.message.ids, payload_sizes=array("I", [len(failure)]))
            message.statuses = bytes([m.TaskStatus.LOST])
            message.busy_microseconds = held.message.busy_microseconds
            self._report_held(held, message, failure)

    def _report_held(self, held: HeldResult, message: m.TaskResult, payload: bytes) -> None:
        worker = self._state.workers.get(held.worker)
        if worker is not None and not worker.is_gone:
            self._take(worker, _Report(message, _present(message), memoryview(payload)), self._state.part)

    # --------------------------------------------------------------------------------------------------------------

    def _take_rest(self, worker: WorkerSession, report: _Report) -> Steps:
        yield self._state.part
        while not self._take(worker, report, self._state.part):
            yield self._state.part

    def _take(self, worker: WorkerSession, report: _Report, amount: int) -> bool:
        """Take outcomes of a message, as much as that amount of work; returns whether these were the last ones."""
        message, optional, payload = report.message, report.optional, report.payload
        ids = message.ids
        mean_microseconds = message.busy_microseconds / (len(ids) or 1)
        offset, position = report.offset, report.position
        done = 0
        batches: Dict[object, TaskBatch] = {}  # by function
        while position < len(ids) and done < amount:
            dispatch, start, stop = self._outcomes.find_run(worker, ids, position)
            end = position + stop - start
            done += UNITS_OF_A_RUN + (stop - start if dispatch is not None and dispatch.has_costly_ends else 0)
            size = len(payload) - offset if end == len(ids) else sum(message.payload_sizes[position:end])
            if dispatch is not None and dispatch.is_open(start):
                self._check_objects(worker, message.objects[position:end])
                batches[dispatch.batch.function_key] = dispatch.batch
                span = _slice(message, optional, position, end, payload[offset : offset + size])
                if self._state.runs.is_watched:
                    self._runs.record(worker, message, mean_microseconds, dispatch.batch, start, position, end, span)
                else:
                    dispatch.batch.counters.measure(end - position, mean_microseconds)
                self._report(worker, dispatch, start, stop, span)
            else:
                self._state.stale_results += end - position
                self._state.count_useless(worker, UNITS_OF_A_RUN + (end - position) // COLUMN_ENTRIES_PER_UNIT)
                self._drop_result_objects(worker, message.objects[position:end])
            offset += size
            position = end
            report.offset, report.position = offset, position
        self._measure(worker, batches, mean_microseconds, len(ids))
        self._placement.on_load_changed(worker)
        return position >= len(ids)

    def _report(self, worker: WorkerSession, dispatch: Dispatch, start: int, stop: int, span: ResultSpan) -> None:
        """Outcomes of open instances, in the order of their tasks: to the states and to the client."""
        batch = dispatch.batch
        client = self._state.clients[batch.client]
        worker.finished += stop - start
        if span.statuses:
            worker.failed += stop - start - span.statuses.count(m.TaskStatus.SUCCESS)
            if dispatch.is_of_actor:
                self._note_loss(batch, span)
        crossed = runs(batch.states, start, stop, TaskState.CANCELLING)
        self._outcomes.close(worker, dispatch, start, stop)
        if span.statuses:
            for status, event in _EVENT_OF_STATUS.items():
                for first, end in runs(span.statuses, 0, stop - start, status):
                    apply(batch.states, start + first, start + end, event)
        else:
            apply(batch.states, start, stop, TaskEvent.SUCCEED)
        objects = span.optional.get("objects") if span.optional else None
        if client.is_gone:
            self._drop_result_objects(worker, objects or array("Q"))
        elif isinstance(batch, GraphBatch):
            self._graphs.on_results(worker, client, batch, start, stop, span)
        else:
            if objects:
                self._transfer_objects(worker, client, objects)
            # SCL-SCH-015
            client.report(batch.ids[start:stop], span)
        if objects:
            self._flow.hold_or_resume(client)
        # SCL-SCH-020
        for first, end in crossed:  # the result wins; the cancel is answered as well
            for task_id in batch.ids[first:end]:
                client.confirm_cancel(task_id, m.CancelOutcome.NOT_FOUND)
        self._outcomes.finish(client, batch, start, stop)

    def _note_loss(self, batch: TaskBatch, span: ResultSpan) -> None:
        """An actor has ended at its worker, or could not be made, if one of its calls was lost, or its first failed."""
        actor = self._state.actors.find(batch.function)
        assert actor is not None, f"the actor {batch.function:x} is forgotten, and has calls"
        place = span.statuses.find(m.TaskStatus.LOST)
        if place < 0 and not actor.finished and span.statuses[0] == m.TaskStatus.FAILED:
            place = 0
        if place < 0 or actor.reported_loss:
            return
        begin = sum(span.sizes[:place])
        actor.reported_loss = f"{actor.label} has ended"
        if span.sizes[place] <= LARGEST_REASON_BYTES:
            try:
                failure = decode_struct(m.Failure, bytes(span.payload[begin : begin + span.sizes[place]]))
                actor.reported_loss = failure.message[:MAXIMUM_TEXT] or actor.reported_loss
            except MalformedMessageError:
                pass  # it is for the client to complain of the outcome
        self._state.touch_actor(actor)

    def _check_objects(self, worker: WorkerSession, object_ids: array[int]) -> None:
        """Raise PeerError unless each large result is an object of the worker, and named once."""
        if not object_ids:
            return
        named: List[int] = list(filter(None, object_ids))
        # SCL-OBJ-015
        if len(set(named)) != len(named) or not worker.objects.keys() >= set(named):
            raise PeerError(m.RefusalReason.PROTOCOL_VIOLATION, _NOT_ITS_RESULT)

    def _transfer_objects(self, worker: WorkerSession, client: ClientSession, object_ids: array[int]) -> None:
        """Large results become objects of the client that waits for them."""
        for object_id in filter(None, object_ids):
            record = self._state.objects.find(object_id)
            assert record is not None
            # SCL-OBJ-014
            worker.drop_object(record)
            record.owner = client.number
            self._state.objects.hand_over(record, client.tenant)
            client.hold_object(record)
            self._state.changes.objects.touch_large(record)
            client.large_results.add(object_id, record.size)

    def _drop_result_objects(self, worker: WorkerSession, object_ids: array[int]) -> None:
        for object_id in filter(worker.objects.__contains__, list(dict.fromkeys(object_ids))):
            record = self._state.objects.find(object_id)  # also if its bytes have been lost
            assert record is not None
            worker.drop_object(record)
            self._outcomes.forget_object(record, self._state.objects.let_go(record))

    def _measure(
        self, worker: WorkerSession, batches: Dict[object, TaskBatch], microseconds: float, count: int
    ) -> None:
        """Update how long a task takes on average, and the pace of the worker; with several functions at once this is
        only a first estimate.

        Parameters:
            batches: by function.
            microseconds: that each of the reported tasks took.
            count: of these.
        """
        durations = self._state.durations
        for function, batch in batches.items():
            factor = worker.pace.of(function)
            if self._state.memory_needs.on_ended(batch, count if len(batches) == 1 else 1):
                self._placement.memory.on_large_ended(worker)
            before = durations.get(function)
            if before is None:
                durations.set(function, max(_SHORTEST_MICROSECONDS, microseconds / factor))
            elif len(batches) == 1:
                after = before + _DURATION_WEIGHT * (microseconds / factor - before)
                durations.set(function, max(_SHORTEST_MICROSECONDS, after))
            if len(batch.ids) > 1 and len(batches) == 1 and microseconds * count >= LEAST_MICROSECONDS:
                batch.typical = batch.typical or Typical()
                ratio = batch.typical.compare(microseconds, factor)
                if ratio and worker.pace.measure(function, ratio):
                    self._placement.on_pace_changed(worker)

    def on_task_log(self, worker: WorkerSession, message: m.TaskLog) -> None:
        """A task printed something: forward it to its client, under the client's id of the task."""
        dispatch, index, _ = self._outcomes.find_run(worker, array("Q", [message.id]), 0)
        if dispatch is not None and dispatch.is_open(index) and not self._state.clients[dispatch.batch.client].is_gone:
            batch = dispatch.batch
            # SCL-SCH-015
            passed_on = m.TaskLog(id=batch.ids[index], stream=message.stream, text=message.text)
            self._state.send(self._state.clients[batch.client].peer, passed_on)


# SCL-SCH-002
def _checked_columns(message: m.TaskResult, payload: Buffer) -> Dict[str, array[int]]:
    """The optional columns that are present, by name.

    Raises PeerError or MalformedMessageError unless all columns agree.
    """
    message.check_columns(len(payload))
    if message.statuses.strip(_KNOWN_STATUSES):
        raise PeerError(m.RefusalReason.MALFORMED, "TaskResult: a status is unknown")
    reported = message.runs
    if reported and (
        len(reported) != NUMBERS_OF_A_RUN or reported[0] != len(message.ids)
    ):  # under load there is one run
        check_runs(message)
    return _present(message)


def _present(message: m.TaskResult) -> Dict[str, array[int]]:
    """The optional columns that are present, by name."""
    optional = _optional_columns(message)
    return {name: column for name, column in zip(OPTIONAL_COLUMNS, optional) if column} if any(optional) else {}


def _entries_of(message: m.TaskResult, places: List[int]) -> m.TaskResult:
    """Some outcomes of a message, without what it says of runs."""
    part = m.TaskResult(
        ids=array("Q", [message.ids[each] for each in places]),
        payload_sizes=array("I", [message.payload_sizes[each] for each in places]),
        codec=message.codec,
        busy_microseconds=message.busy_microseconds * len(places) // len(message.ids),
    )
    if message.statuses:
        part.statuses = bytes([message.statuses[each] for each in places])
    for name, column in _present(message).items():
        setattr(part, name, array("Q", [column[each] for each in places]))
    return part


def _slice(
    message: m.TaskResult, optional: Dict[str, array[int]], start: int, stop: int, payload: memoryview
) -> ResultSpan:
    """Entries [start, stop) of the columns of a result message."""
    statuses = message.statuses[start:stop]
    return ResultSpan(
        message.payload_sizes[start:stop],
        payload,
        message.codec,
        statuses if any(statuses) else b"",
        {name: column[start:stop] for name, column in optional.items()} if optional else None,
    )
