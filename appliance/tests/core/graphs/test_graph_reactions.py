"""Graphs: who runs when, who gets which results, and what the end of a node means for others."""

from __future__ import annotations

import struct
from array import array
from typing import Any, Dict, List, Mapping, Sequence

import pytest
from scheduler_harness import Cancelled, Client, Harness, Status, Worker, options, split

from scaler_appliance.core.effects import RemoveObject
from scaler_appliance.core.graphs import node_release, shared_results
from scaler_appliance.core.tasks.task_states import TaskState
from scaler_protocol import decode_struct, encode_struct
from scaler_protocol import messages as m

Reason = m.RefusalReason
SHARED = m.ObjectStorage.SHARED


def graph(
    client: Client, nodes: Mapping[int, Sequence[int]], targets: Sequence[int], **fields: Any
) -> tuple[m.GraphTask, bytes]:
    """A graph of nodes by id, each with the ids of its predecessors; node 7 has the payload `7`."""
    ids = list(nodes)
    payloads = [b"%d" % task_id for task_id in ids]
    predecessors = [[ids.index(each) for each in before] for before in nodes.values()]
    ends = [sum(map(len, predecessors[:position])) for position in range(len(ids) + 1)]
    functions = fields.pop("functions", None) or [client.object_id(1)] * len(ids)
    message = m.GraphTask(
        ids=array("Q", ids),
        payload_sizes=array("I", map(len, payloads)),
        functions=array("Q", functions),
        predecessor_offsets=array("I", ends),
        predecessors=array("I", [each for before in predecessors for each in before]),
        targets=array("I", map(ids.index, targets)),
        **fields,
    )
    return message, b"".join(payloads)


def submit(client: Client, nodes: Mapping[int, Sequence[int]], targets: Sequence[int], **fields: Any) -> None:
    client.create(1, b"function")
    client.send(*graph(client, nodes, targets, **fields))


def taken(worker: Worker) -> Dict[bytes, int]:
    """The tasks that came, instance by payload; what comes before them is dropped."""
    found: Dict[bytes, int] = {}
    while worker.inbox:
        message, payload = worker.inbox.popleft()
        if isinstance(message, m.Task):
            worker.task = message
            found.update(zip(split(payload, message.payload_sizes), message.ids))
    return found


def own(payload: bytes) -> bytes:
    """The payload of a node without what its predecessors returned."""
    return inputs_and_own(payload)[1]


def inputs_and_own(payload: bytes) -> tuple[List[bytes], bytes]:
    mark, count = struct.unpack_from("<2I", payload)
    assert mark == 4
    sizes = struct.unpack_from(f"<{count}I", payload, 8)
    parts = split(payload[8 + 4 * count :], [*sizes, len(payload) - 8 - 4 * count - sum(sizes)])
    return parts[:-1], parts[-1]


def run(worker: Worker) -> List[bytes]:
    """Run all tasks that came, each of which returns its own payload; their own payloads."""
    tasks = taken(worker)
    names = [own(payload) if payload.startswith(b"\x04") else payload for payload in tasks]
    if tasks:
        worker.finish(list(tasks.values()), [b"<%s>" % name for name in names])
    return names


@pytest.fixture
def client(harness: Harness) -> Client:
    return harness.client()


@pytest.fixture
def worker(harness: Harness) -> Worker:
    return harness.worker(slots=10)


def nothing_is_kept(harness: Harness, *clients: Client) -> None:
    """Only the client's function is left."""
    state = harness.state
    assert not state.advancing and not len(state.ready) and not state.dispatches
    for client in clients:
        session = state.clients[client.session]
        assert not session.graphs and not list(session.batches()) and not session.unasked_cancels
    assert all(not record.references for record in state.objects.records())
    assert len(state.objects) == len(clients)


def test_a_node_runs_when_its_last_predecessor_has_succeeded(harness: Harness, client: Client, worker: Worker) -> None:
    submit(client, {1: [], 2: [], 3: [1, 2]}, [3])
    first = taken(worker)
    assert set(first) == {b"1", b"2"}
    worker.finish([first[b"2"]], [b"two"])
    harness.nothing_else_was_sent()
    worker.finish([first[b"1"]], [b"one"])
    ((payload, instance),) = taken(worker).items()
    assert inputs_and_own(payload) == ([b"one", b"two"], b"3"), "results stand in the order of the predecessors"
    worker.finish([instance], [b"three"])
    assert client.take_results() == {3: b"three"}
    nothing_is_kept(harness, client)
    harness.nothing_else_was_sent()


def test_a_large_result_stays_where_it_is_until_the_last_dependant_is_done(harness: Harness, client: Client) -> None:
    worker, other = harness.worker(queue_size=1), harness.worker(queue_size=1)
    submit(client, {1: [], 2: [1], 3: [1]}, [2, 3])
    (instance,) = taken(worker).values()
    large = worker.announce(1, 100_000, SHARED)
    worker.finish([instance], [b""], objects=[large])
    there, here = taken(other), taken(worker)
    (payload,) = here
    assert struct.unpack_from("<3I", payload) == (4, 1, 0xFFFFFFFF) and payload[12:] == b"3"
    assert list(worker.task.dependencies) == list(other.task.dependencies) == [large]
    worker.finish(here.values())
    assert client.take_results() == {3: b"done"} and not harness.effects
    other.finish(there.values())
    assert client.take_results() == {2: b"done"}
    assert harness.take_effect() == RemoveObject(large)
    for peer in (worker, other):
        assert list(peer.take(m.ObjectInstruction).ids) == [large]
    nothing_is_kept(harness, client)
    harness.nothing_else_was_sent()


def test_a_large_result_that_is_wanted_belongs_to_the_client_as_well(
    harness: Harness, client: Client, worker: Worker
) -> None:
    submit(client, {1: [], 2: [1]}, [1, 2])
    (instance,) = taken(worker).values()
    large = worker.announce(1, 100_000, SHARED)
    worker.finish([instance], [b""], objects=[large])
    assert list(client.take(m.TaskResult).objects) == [large]
    client.delete(large)
    assert not harness.effects, "a dependant needs it"
    run(worker)
    client.take_results()
    assert harness.take_effect() == RemoveObject(large)
    nothing_is_kept(harness, client)


def test_a_result_that_many_need_goes_to_each_worker_once(harness: Harness, client: Client, worker: Worker) -> None:
    content = bytes(shared_results.SHARED_RESULT_BYTES)
    count = shared_results.FAN_OUT_BYTES // len(content) + 1
    dependants = range(2, 2 + count)
    submit(client, {1: [], **{each: [1] for each in dependants}}, list(dependants))
    (instance,) = taken(worker).values()
    worker.finish([instance], [content])
    announced = worker.take(m.ObjectInstruction)
    assert worker.payload == content and len(announced.ids) == 1
    while run(worker):
        pass
    assert not any(isinstance(message, m.ObjectInstruction) for message, _ in worker.inbox)
    received: Dict[int, bytes] = {}
    while client.inbox:
        received.update(client.take_results())
    assert set(received) == set(dependants)
    nothing_is_kept(harness, client)


def test_nodes_that_become_ready_together_travel_together(harness: Harness, client: Client) -> None:
    worker = harness.worker(slots=100)
    leaves = range(0, 200, 2)
    nodes: Dict[int, List[int]] = {}
    for leaf in leaves:  # leaves and inner nodes take turns in the columns
        nodes[leaf] = []
        nodes[leaf + 1] = [leaf]
    submit(client, nodes, [leaf + 1 for leaf in leaves])
    assert len(run(worker)) == 100
    assert [type(message) for message, _ in worker.inbox] == [m.Task], "one message, as they share a function"
    assert len(run(worker)) == 100
    assert len(client.take_results()) == 100
    nothing_is_kept(harness, client)


def test_nodes_of_different_functions_are_different_messages(harness: Harness, client: Client, worker: Worker) -> None:
    other = client.create(2, b"other")
    submit(client, {1: [], 2: [], 3: []}, [1, 2, 3], functions=[client.object_id(1), other, client.object_id(1)])
    tasks = [message for message, _ in worker.inbox if isinstance(message, m.Task)]
    assert [(task.function, len(task.ids)) for task in tasks] == [(client.object_id(1), 2), (other, 1)]
    client.delete(other)
    run(worker)
    assert harness.state.objects.find(other) is None


def test_a_dependency_that_is_named_twice_is_there_twice(harness: Harness, client: Client, worker: Worker) -> None:
    submit(client, {1: [], 2: [1, 1]}, [2])
    run(worker)
    ((payload, instance),) = taken(worker).items()
    assert inputs_and_own(payload) == ([b"<1>", b"<1>"], b"2")
    worker.finish([instance])
    client.take_results()
    nothing_is_kept(harness, client)


@pytest.mark.parametrize("status", [Status.FAILED, Status.LOST])
def test_a_failure_ends_what_depends_on_it_and_only_that(
    harness: Harness, client: Client, worker: Worker, status: m.TaskStatus
) -> None:
    submit(client, {1: [], 2: [], 3: [1], 4: [3], 5: [2], 6: [3, 5]}, [4, 5, 6])
    tasks = taken(worker)
    failure = encode_struct(m.Failure(message="too bad"))
    worker.finish([tasks[b"1"]], [failure], statuses=[status])
    result = client.take(m.TaskResult)
    assert list(result.ids) == [4, 6] and set(result.statuses) == {status}
    assert list(result.causes) == [2, 2], "1 + the id of the node that failed"
    assert split(client.payload, result.payload_sizes) == [failure, failure]
    worker.finish([tasks[b"2"]])
    assert run(worker) == [b"5"]
    assert client.take_results() == {5: b"<5>"}
    nothing_is_kept(harness, client)
    harness.nothing_else_was_sent()


def test_what_only_failed_nodes_needed_is_not_run(harness: Harness, client: Client) -> None:
    worker = harness.worker(queue_size=2)
    submit(client, {1: [], 2: [], 3: [], 4: [3], 5: [1, 2, 4]}, [5])
    tasks = taken(worker)
    worker.finish([tasks[b"1"]], [b"x"], statuses=[Status.FAILED])
    assert list(client.take(m.TaskResult).causes) == [2]
    assert list(worker.take(m.TaskCancel).ids) == [tasks[b"2"]]
    worker.confirm(tasks[b"2"], Cancelled.CANCELLED)
    nothing_is_kept(harness, client)
    assert harness.state.finished[TaskState.CANCELLED] == 3
    harness.nothing_else_was_sent()


def test_a_node_that_runs_and_is_not_needed_any_more_ends_unheard(
    harness: Harness, client: Client, worker: Worker
) -> None:
    submit(client, {1: [], 2: [], 3: [1, 2]}, [3])
    tasks = taken(worker)
    worker.finish([tasks[b"1"]], [b"x"], statuses=[Status.FAILED])
    client.take(m.TaskResult)
    worker.take(m.TaskCancel)
    worker.confirm(tasks[b"2"], Cancelled.RUNNING)
    large = worker.announce(1, 100_000, SHARED)
    worker.finish([tasks[b"2"]], [b""], objects=[large])
    assert harness.take_effect() == RemoveObject(large)
    nothing_is_kept(harness, client)
    harness.nothing_else_was_sent()


def test_cancelling_a_node_cancels_what_depends_on_it(harness: Harness, client: Client, worker: Worker) -> None:
    submit(client, {1: [], 2: [], 3: [1], 4: [3], 5: [2]}, [4, 5])
    tasks = taken(worker)
    client.cancel(3)
    assert client.take_confirms() == {3: Cancelled.CANCELLED, 4: Cancelled.CANCELLED}
    assert list(worker.take(m.TaskCancel).ids) == [tasks[b"1"]], "it is no longer needed"
    worker.confirm(tasks[b"1"], Cancelled.CANCELLED)
    worker.finish([tasks[b"2"]])
    run(worker)
    assert client.take_results() == {5: b"<5>"}
    client.cancel(3, 4, 5)
    assert set(client.take_confirms().values()) == {Cancelled.NOT_FOUND}
    nothing_is_kept(harness, client)
    harness.nothing_else_was_sent()


def test_cancelling_all_targets_by_force_stops_the_whole_graph(
    harness: Harness, client: Client, worker: Worker
) -> None:
    chain = {node: [node - 1] if node else [] for node in range(2000)}
    submit(client, chain, [1999])
    tasks = taken(worker)
    client.cancel(1999, force=True)
    assert client.take_confirms() == {1999: Cancelled.CANCELLED}
    cancel = worker.take(m.TaskCancel)
    assert (list(cancel.ids), cancel.force) == (list(tasks.values()), True)
    worker.confirm(cancel.ids, Cancelled.CANCELLED)
    nothing_is_kept(harness, client)
    harness.nothing_else_was_sent()


def test_a_cancel_that_the_client_asks_for_after_all_is_answered(
    harness: Harness, client: Client, worker: Worker
) -> None:
    submit(client, {1: [], 2: [1]}, [2])
    (instance,) = taken(worker).values()
    client.cancel(2)
    client.take_confirms()
    worker.take(m.TaskCancel)
    client.cancel(1)
    worker.confirm(instance, Cancelled.CANCELLED)
    assert client.take_confirms() == {1: Cancelled.CANCELLED}
    nothing_is_kept(harness, client)


def test_a_cancel_and_a_failure_in_one_burst_leave_one_outcome(
    harness: Harness, client: Client, worker: Worker
) -> None:
    submit(client, {1: [], 2: [1]}, [2])
    (instance,) = taken(worker).values()
    worker.post(*worker.result([instance], [b"x"], [Status.FAILED]))
    client.post(m.TaskCancel(ids=array("Q", [2])))
    harness.tick()
    assert client.take_confirms() == {2: Cancelled.CANCELLED}
    nothing_is_kept(harness, client)
    harness.nothing_else_was_sent()


def test_a_client_that_leaves_takes_its_graphs_along(harness: Harness, client: Client, worker: Worker) -> None:
    submit(client, {1: [], 2: [], 3: [1, 2], 4: [3]}, [4])
    tasks = taken(worker)
    large = worker.announce(1, 100_000, SHARED)
    worker.finish([tasks[b"1"]], [b""], objects=[large])
    client.vanish()
    assert harness.take_effect() == RemoveObject(large)
    cancel = worker.take(m.TaskCancel)
    assert (list(cancel.ids), cancel.force) == ([tasks[b"2"]], True)
    nothing_is_kept(harness)


def test_a_client_that_leaves_in_the_burst_of_a_result_is_no_harm(
    harness: Harness, client: Client, worker: Worker
) -> None:
    submit(client, {1: [], 2: [1]}, [2])
    (instance,) = taken(worker).values()
    worker.post(*worker.result([instance]))
    harness.core.on_peer_gone(harness.now, client.name)
    harness.tick()
    nothing_is_kept(harness)


def test_a_worker_lost_in_the_middle_costs_its_nodes_an_attempt(harness: Harness, client: Client) -> None:
    worker = harness.worker()
    submit(client, {1: [], 2: [1], 3: [2]}, [3])
    run(worker)
    before = taken(worker)
    worker.vanish()
    other = harness.worker()
    after = taken(other)
    assert list(after) == list(before), "the results of predecessors come again"
    assert other.task.attempt == 2
    other.finish(after.values())
    run(other)
    assert client.take_results() == {3: b"<3>"}
    nothing_is_kept(harness, client)


def test_a_node_whose_attempts_are_used_up_is_lost_with_what_depends_on_it(client: Client, harness: Harness) -> None:
    submit(client, {1: [], 2: [1]}, [1, 2], options=options(at_most_once=True))
    worker = harness.worker()
    taken(worker)
    worker.vanish()
    result = client.take(m.TaskResult)
    assert (list(result.ids), list(result.causes)) == ([1, 2], [0, 2])
    payloads = split(client.payload, result.payload_sizes)
    assert {decode_struct(m.Failure, data).kind for data in payloads} == {m.FailureKind.WORKER_LOST}
    nothing_is_kept(harness, client)


def test_objects_that_nodes_need_are_held_until_those_are_done(
    harness: Harness, client: Client, worker: Worker
) -> None:
    needed = client.announce(5, 100_000, SHARED)
    submit(client, {1: [], 2: [1]}, [2], dependency_counts=array("H", [0, 1]), dependencies=array("Q", [needed]))
    client.delete(needed, client.object_id(1))
    run(worker)
    tasks = taken(worker)
    assert list(worker.task.dependencies) == [needed] and not harness.effects
    worker.finish(tasks.values())
    assert harness.take_effect() == RemoveObject(needed)
    assert len(harness.state.objects) == 0


@pytest.mark.parametrize("what", ["function", "dependency"])
def test_a_node_that_needs_what_does_not_exist_is_lost(
    harness: Harness, client: Client, worker: Worker, what: str
) -> None:
    fields: Dict[str, Any] = {}
    if what == "function":
        fields["functions"] = [client.object_id(1), client.object_id(9), client.object_id(1)]
    else:
        fields = {"dependency_counts": array("H", [0, 1, 0]), "dependencies": array("Q", [client.object_id(9)])}
    submit(client, {1: [], 2: [1], 3: [2]}, [1, 2, 3], **fields)
    result = client.take(m.TaskResult)
    assert (list(result.ids), list(result.causes)) == ([2, 3], [0, 3])
    run(worker)
    assert client.take_results() == {1: b"<1>"}
    nothing_is_kept(harness, client)


def test_a_graph_that_is_too_long_to_wait_is_rejected_as_a_whole() -> None:
    harness = Harness(max_number_of_tasks_waiting=2)
    client = harness.client()
    submit(client, {1: [], 2: [1], 3: [2]}, [2, 3])
    result = client.take(m.TaskResult)
    assert list(result.ids) == [2, 3]
    failure = decode_struct(m.Failure, split(client.payload, result.payload_sizes)[0])
    assert failure.kind == m.FailureKind.REJECTED and "--max-number-of-tasks-waiting" in failure.message
    nothing_is_kept(harness, client)


def test_nodes_that_wait_for_others_count_as_waiting_until_they_run() -> None:
    harness = Harness(max_number_of_tasks_waiting=3)
    client = harness.client()
    submit(client, {1: [], 2: [1], 3: [2]}, [3])
    client.submit([4])
    client.send(*graph(client, {5: []}, [5]))
    failures = client.take_losses()
    assert {task_id: failure.kind for task_id, failure in failures.items()} == {4: m.FailureKind.REJECTED}
    assert "--max-number-of-tasks-waiting" in client.take_losses()[5].message
    worker = harness.worker()
    assert run(worker) == [b"1"]
    client.submit([6, 7, 8])
    assert list(client.take_losses()) == [8], "one is done, one is at a worker, and one waits for it"
    finished = []
    for _ in range(4):
        finished += run(worker)
    assert sorted(finished) == [b"2", b"3", b"6", b"7"], "what was accepted is not rejected when its turn comes"
    client.inbox.clear()
    nothing_is_kept(harness, client)


def test_more_results_than_a_task_can_take_lose_it(
    harness: Harness, client: Client, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_release, "MAXIMUM_RESULTS_BYTES", 5)
    monkeypatch.setattr(node_release, "MAXIMUM_OBJECTS", 2)
    submit(client, {1: [], 2: [], 3: [1, 2]}, [3])
    run(worker)
    assert client.take_losses()[3].kind == m.FailureKind.REJECTED
    nothing_is_kept(harness, client)


def test_more_objects_than_a_task_can_name_lose_it(harness: Harness, client: Client, worker: Worker) -> None:
    most = shared_results.MAXIMUM_OBJECTS
    needed = client.create(2, b"needed")
    columns = {"dependency_counts": array("H", [0, most]), "dependencies": array("Q", [needed] * most)}
    submit(client, {1: [], 2: [1]}, [2], **columns)
    (instance,) = taken(worker).values()
    worker.finish([instance], [b""], objects=[worker.announce(1, 100_000, SHARED)])
    assert client.take_losses()[2].kind == m.FailureKind.REJECTED
    client.delete(needed)
    nothing_is_kept(harness, client)


def test_an_empty_graph_is_nothing_and_what_no_target_needs_is_not_run(
    harness: Harness, client: Client, worker: Worker
) -> None:
    client.send(m.GraphTask())
    submit(client, {1: [], 2: [1]}, [])
    client.send(*graph(client, {3: [], 4: [3], 5: [3], 6: [5], 7: []}, [4]))
    assert run(worker) == [b"3"] and run(worker) == [b"4"]
    assert client.take_results() == {4: b"<4>"}
    nothing_is_kept(harness, client)
    harness.nothing_else_was_sent()


@pytest.mark.parametrize(
    "fields",
    [
        {"payload_sizes": array("I", [1])},
        {"payload_sizes": array("I", [1, 2])},
        {"functions": array("Q", [1])},
        {"functions": array("Q", [1, 0])},
        {"predecessor_offsets": array("I", [0, 1])},
        {"predecessor_offsets": array("I", [1, 0, 1])},
        {"predecessor_offsets": array("I", [0, 1, 0])},
        {"predecessor_offsets": array("I")},
        {"predecessors": array("I", [1])},
        {"predecessors": array("I", [9])},
        {"targets": array("I", [2])},
        {"targets": array("I", [1, 1])},
        {"dependency_counts": array("H", [1])},
        {"dependencies": array("Q", [1])},
        {"options": options(gpu=-1.0)},
    ],
)
def test_a_malformed_graph_costs_the_client_its_session(
    harness: Harness, client: Client, fields: Dict[str, Any]
) -> None:
    client.create(1, b"function")
    message, payload = graph(client, {1: [], 2: [1]}, [2])
    for name, value in fields.items():
        setattr(message, name, value)
    client.send(message, payload)
    client.take_refusal(Reason.MALFORMED)
    nothing_is_kept(harness)


@pytest.mark.parametrize("ids", [[2, 1], [1, 1], [0, 5]])
def test_ids_of_a_graph_ascend_within_the_session(harness: Harness, client: Client, ids: List[int]) -> None:
    client.create(1, b"function")
    client.send(*graph(client, {0: []}, []))
    message, payload = graph(client, {1: [], 2: []}, [])
    message.ids = array("Q", ids)
    client.send(message, payload)
    client.take_refusal(Reason.PROTOCOL_VIOLATION)
