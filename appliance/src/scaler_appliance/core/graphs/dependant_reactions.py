"""How tasks that need results of others are accepted, released and ended.

Rules:
- A predecessor's outcome is recorded when it is reported to the client (`ClientSession.report`, `confirm_cancel`). Its
  consequences are processed after the burst, in `advance`: before anything of that burst is sent to the client, unless
  there are so many that this takes several calls.
- A task whose predecessor has no record here any more is lost with `predecessorGone`: its client already has that
  outcome, and submits the task again with the result.
- Failures and cancels are passed on unchanged.
"""

from __future__ import annotations

import struct
from array import array
from itertools import islice
from typing import Dict, Generator, List, Optional, Sequence, Set, Tuple, Union

from scaler_appliance.core.effects import Buffer
from scaler_appliance.core.graphs.dependants import Dependant, Ending, Passing
from scaler_appliance.core.graphs.graph_nodes import IS_OBJECT, RESULTS_MARK
from scaler_appliance.core.graphs.shared_results import MAXIMUM_OBJECTS, MAXIMUM_RESULTS_BYTES, keep_result
from scaler_appliance.core.large_tables import drained
from scaler_appliance.core.objects.object_records import failure_of_missing
from scaler_appliance.core.peers.sessions import ClientSession
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.steps import COLUMN_ENTRIES_PER_UNIT, Steps
from scaler_appliance.core.tasks.batches import TaskBatch, TaskSpan
from scaler_appliance.core.tasks.client_results import ResultSpan
from scaler_appliance.core.tasks.task_outcomes import TaskOutcomes
from scaler_appliance.core.tasks.task_states import FINAL_STATES, TaskEvent, TaskState, after
from scaler_protocol import encode_struct
from scaler_protocol import messages as m

UNITS_OF_AN_END = 6  # of a task that has waited, or is released


class DependantReactions:
    def __init__(self, state: SchedulerState, outcomes: TaskOutcomes) -> None:
        self._state = state
        self._outcomes = outcomes

    # Acceptance -----------------------------------------------------------------------------------------------------

    def accept(
        self, client: ClientSession, dependant: Dependant, is_allowed: bool, text_of_full: str, awaited: Set[int]
    ) -> None:
        """A client submits a task that needs others.

        Parameters:
            awaited: tasks whose outcomes the client is known to get; others are added.
            is_allowed: whether one more task may wait; otherwise it is rejected for the reason of `text_of_full`.
        """
        state, message = self._state, dependant.message
        client.unfinished += 1
        state.nodes_waiting += 1
        client.flow.submit(1, len(dependant.payload))
        if not client.is_dirty:
            state.touch_session(client)
        # As with other tasks, all objects that exist are referenced.
        refer, tenant, number = state.objects.refer, client.tenant, client.number
        missing = [message.function] if message.function and not refer(message.function, tenant, number) else []
        if dependant.dependencies:
            missing += [each for each in dependant.dependencies if not refer(each, tenant, number)]
        client.dependants.add(dependant)
        gone: Optional[int] = None
        for each in dependant.predecessors:
            if each not in awaited:
                if not _is_awaited(client, each):
                    gone = each
                    break
                awaited.add(each)
        if missing:
            failure = failure_of_missing(missing[0], state.objects.find_of(missing[0], tenant))
            self._lose_with(client, dependant, failure)
        elif not message.function and not message.function_name:
            text = "a task must name its function or the object that holds it"
            self._lose(client, dependant, m.FailureKind.REJECTED, text)
        # SCL-SCH-041
        elif gone is not None:
            text = f"the outcome of task {gone}, which it needs, has left the scheduler: submit it with the result"
            self._lose(client, dependant, m.FailureKind.PREDECESSOR_GONE, text)
        elif not is_allowed:
            self._lose(client, dependant, m.FailureKind.REJECTED, text_of_full)

    # Consequences ---------------------------------------------------------------------------------------------------

    def advance(self, client: ClientSession) -> Steps:
        """Process the consequences of all outcomes that the client gets."""
        dependants = client.dependants
        while dependants.has_consequences:
            if dependants.current is not None:
                yield self._pass_some_on(client, dependants.current)
            elif dependants.endings:
                yield self._begin(client)
            else:
                yield self._release_some(client)

    def hold_objects(self, client: ClientSession) -> None:
        """The client gets outcomes before all their consequences are processed: keep their results until then."""
        dependants = client.dependants
        for ending in islice(dependants.endings, dependants.held_endings, None):
            if ending.object_id:
                self._state.objects.refer(ending.object_id, client.tenant)
        dependants.held_endings = len(dependants.endings)

    def _begin(self, client: ClientSession) -> int:
        """Begin to pass the next outcome on."""
        dependants = client.dependants
        ending = dependants.endings.popleft()
        is_held = dependants.held_endings > 0
        if is_held:
            dependants.held_endings -= 1
        followers = list(dependants.followers.get(ending.task_id, {}).values())
        followers.reverse()
        result: Union[bytes, int, None] = None
        # SCL-SCH-039
        if ending.status == m.TaskStatus.SUCCESS:
            if not ending.object_id:
                result = keep_result(self._state, client, ending.content, ending.codec, len(followers), references=1)
            else:
                result = ending.object_id
                if not is_held:
                    self._state.objects.refer(result, client.tenant)
        dependants.current = Passing(ending, result, followers)
        return 1 + len(followers) // COLUMN_ENTRIES_PER_UNIT

    def _pass_some_on(self, client: ClientSession, current: Passing) -> int:
        """Give an outcome to tasks that wait for it."""
        done = 0
        while current.followers and done < self._state.part:
            follower = current.followers.pop()
            if follower.task_id not in client.dependants.waiting:
                continue  # cancelled in the meantime
            if current.result is None:
                self._pass_failure_on(client, current.ending, follower)
                done += UNITS_OF_AN_END
            else:
                self._pass_result_on(client, current.ending, current.result, follower)
                done += 1
        if not current.followers:
            client.dependants.current = None
            if isinstance(current.result, int):
                self._outcomes.release(current.result)
        return done

    def _pass_result_on(
        self, client: ClientSession, ending: Ending, result: Union[bytes, int], follower: Dependant
    ) -> None:
        follower.results[ending.task_id] = result  # from now on it is released with the others
        client.dependants.unfollow(ending.task_id, follower)
        follower.missing -= 1
        if isinstance(result, int):
            self._state.objects.refer(result, client.tenant)
            record = self._state.objects.find(result)
            if record is None or record.is_broken:  # cleared before this burst, or its bytes are lost
                self._lose_with(client, follower, failure_of_missing(result, record))
                return
        if not follower.missing:
            client.dependants.ready.append(follower)

    # SCL-SCH-040
    def _pass_failure_on(self, client: ClientSession, ending: Ending, follower: Dependant) -> None:
        if ending.status is None:
            self._end(client, follower, TaskEvent.CANCEL)
            client.confirm_cancel(follower.task_id, m.CancelOutcome.CANCELLED)
            return
        self._end(client, follower, TaskEvent.INHERIT_FAILURE)
        sizes, statuses = array("I", [len(ending.content)]), bytes([ending.status])
        causes = {"causes": array("Q", [ending.origin + 1])}
        span = ResultSpan(sizes, ending.content, ending.codec, statuses, causes)
        client.report(array("Q", [follower.task_id]), span)

    def _lose(self, client: ClientSession, dependant: Dependant, kind: m.FailureKind, text: str) -> None:
        """A waiting task gets the outcome `lost`."""
        self._lose_with(client, dependant, m.Failure(kind=kind, message=text, attempts=1))

    def _lose_with(self, client: ClientSession, dependant: Dependant, failure: m.Failure) -> None:
        payload = encode_struct(failure)
        self._end(client, dependant, TaskEvent.LOSE)
        span = ResultSpan(array("I", [len(payload)]), payload, statuses=bytes([m.TaskStatus.LOST]))
        client.report(array("Q", [dependant.task_id]), span)

    def cancel(self, client: ClientSession, dependant: Dependant) -> None:
        """A client asks to cancel a task that waits for others."""
        self._end(client, dependant, TaskEvent.CANCEL)
        client.confirm_cancel(dependant.task_id, m.CancelOutcome.CANCELLED)

    def _end(self, client: ClientSession, dependant: Dependant, event: TaskEvent) -> None:
        """A task ends that has never been ready."""
        state = after(TaskState.WAITING, event)
        client.dependants.remove(dependant)
        self._state.nodes_waiting -= 1
        self._state.finished[state] += 1
        client.ended[state] += 1
        client.unfinished -= 1
        client.flow.release(1, len(dependant.payload))
        client.touch()
        self._state.touch_session(client)
        results = array("Q", [result for result in dependant.results.values() if isinstance(result, int)])
        for object_ids in (dependant.dependencies, results):
            self._outcomes.release_all(client, object_ids, 1, is_lost=event == TaskEvent.LOSE)
        if dependant.message.function:
            self._outcomes.release(dependant.message.function)

    def drop_all(self, client: ClientSession) -> Steps:
        """The client is gone."""
        dependants = client.dependants
        current, dependants.current = dependants.current, None
        if current is not None and isinstance(current.result, int):
            self._outcomes.release(current.result)
        while dependants.held_endings:
            dependants.held_endings -= 1
            object_id = dependants.endings.popleft().object_id
            if object_id:
                self._outcomes.release(object_id)
                yield 1
        dependants.endings.clear()
        for dependant in drained(dependants.waiting):
            self._end(client, dependant, TaskEvent.CANCEL)
            yield UNITS_OF_AN_END

    # Releasing ------------------------------------------------------------------------------------------------------

    def _release_some(self, client: ClientSession) -> int:
        """Queue released tasks before other tasks of the client: depth first."""
        most = max(1, self._state.part // UNITS_OF_AN_END)
        dependants = client.dependants
        ready = [dependants.ready.popleft() for _ in range(min(most, len(dependants.ready)))]
        by_message: Dict[int, List[Dependant]] = {}
        for dependant in sorted(ready, key=lambda each: each.task_id):
            if dependant.task_id not in dependants.waiting:
                continue  # it was cancelled
            results = dependant.results_in_order()
            total_bytes = sum(len(result) for result in results if not isinstance(result, int))
            objects = sum(isinstance(result, int) for result in results) + len(dependant.dependencies)
            if total_bytes > MAXIMUM_RESULTS_BYTES or objects > MAXIMUM_OBJECTS:
                text = f"the results of its {len(results)} predecessors are too much for one task"
                self._lose(client, dependant, m.FailureKind.REJECTED, text)
            else:
                by_message.setdefault(id(dependant.message), []).append(dependant)
        for members in reversed(by_message.values()):  # each goes before the others
            batch = self._make_batch(client, members)
            self._state.ready.add(TaskSpan(batch, 0, len(batch)), in_front=True)
        return len(ready) * UNITS_OF_AN_END

    def _make_batch(self, client: ClientSession, members: List[Dependant]) -> TaskBatch:
        """The tasks of one message that are ready now; the objects that they refer to stay referred to."""
        payloads: List[Buffer] = []
        sizes, counts, dependencies = array("I"), array("H"), array("Q")
        for dependant in members:
            objects_before = len(dependencies)
            dependencies.extend(dependant.dependencies)
            front, objects = _results_in_front(dependant)
            dependencies.extend(objects)
            payloads += (front, dependant.payload)
            sizes.append(len(front) + len(dependant.payload))
            counts.append(len(dependencies) - objects_before)
            client.dependants.remove(dependant)
            client.flow.release(0, len(dependant.payload))  # from now on the task is charged instead
        message = members[0].message
        released = m.Task(
            ids=array("Q", [dependant.task_id for dependant in members]),
            payload_sizes=sizes,
            function=message.function,
            function_name=message.function_name,
            codec=message.codec,
            options=message.options,
        )
        if dependencies:
            released.dependency_counts, released.dependencies = counts, dependencies
        batch = TaskBatch(client.number, released, b"".join(payloads), client.tenant)
        batch.is_charged, batch.has_results = True, True
        client.add_released_batch(batch)
        client.touch()
        self._state.touch_session(client)
        self._state.nodes_waiting -= len(members)
        function = self._state.objects.find(batch.function)
        self._state.changes.begin(batch, function.name if function is not None else "")
        for _ in members[1:]:  # a batch has one reference to its function
            self._outcomes.release(batch.function)
        return batch


def _results_in_front(dependant: Dependant) -> Tuple[bytes, Sequence[int]]:
    """The beginning of its payload, and the results that are objects."""
    results = dependant.results_in_order()
    first = results[0]
    # SCL-SCH-039
    if len(results) == 1 and not isinstance(first, int):
        return _ONE_RESULT.pack(RESULTS_MARK, 1, len(first)) + first, ()
    sizes = [IS_OBJECT if isinstance(result, int) else len(result) for result in results]
    header = struct.pack(f"<{len(sizes) + 2}I", RESULTS_MARK, len(sizes), *sizes)
    contents = [result for result in results if not isinstance(result, int)]
    return b"".join([header, *contents]), [result for result in results if isinstance(result, int)]


_ONE_RESULT = struct.Struct("<3I")


def _is_awaited(client: ClientSession, task_id: int) -> bool:
    """Whether the client will get the outcome of a task."""
    if task_id in client.dependants.waiting:
        return True
    found = client.find_task(task_id)
    if found is not None:
        return found[0].states[found[1]] not in FINAL_STATES
    node = client.find_node(task_id) if client.graphs else None
    return node is not None and bool(node[0].is_target[node[1]]) and node[0].states[node[1]] not in FINAL_STATES


def split_batch(
    message: m.Task, payload: bytes, part: int
) -> Generator[int, None, Tuple[List[Dependant], m.Task, bytes]]:
    """Divides a batch into the tasks that need others, and the rest with its payload."""
    view = memoryview(payload)
    dependants: List[Dependant] = []
    contents: List[memoryview] = []  # of the others
    shared, rest = (
        m.Task(
            ids=array("Q"),
            payload_sizes=array("I"),
            function=message.function,
            function_name=message.function_name,
            codec=message.codec,
            options=message.options,
            dependency_counts=array("H"),
            dependencies=array("Q"),
        )
        for _ in range(2)
    )
    offset = first_object = first_predecessor = done = 0
    for position, task_id in enumerate(message.ids):
        size, count = message.payload_sizes[position], message.predecessor_counts[position]
        object_count = message.dependency_counts[position] if message.dependency_counts else 0
        objects = message.dependencies[first_object : first_object + object_count]
        content = view[offset : offset + size]
        if count:
            predecessors = message.predecessors[first_predecessor : first_predecessor + count]
            dependants.append(Dependant(task_id, shared, bytes(content), objects, predecessors))
        else:
            rest.ids.append(task_id)
            rest.payload_sizes.append(size)
            contents.append(content)
            if message.dependency_counts:
                rest.dependency_counts.append(object_count)
                rest.dependencies += objects
        offset, first_object = offset + size, first_object + object_count
        first_predecessor += count
        done += 2 + (object_count + count) // 4
        if done >= part:
            yield done
            done = 0
    return dependants, rest, b"".join(contents)
