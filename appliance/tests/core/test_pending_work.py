"""Large messages are worked on in parts: other peers do not wait for them, and each client's take effect in order."""

from __future__ import annotations

import sys
from array import array
from typing import Any, Callable, Dict, List, Tuple

import pytest
from scheduler_harness import SMALL_WORK as WORK
from scheduler_harness import Cancelled, Client, Harness, Peer, Status, hello, task
from status_model import StatusModel, publication

from scaler_appliance.core.effects import Stop
from scaler_appliance.core.graphs.dependants import Dependant
from scaler_appliance.core.graphs.graph_nodes import Graph
from scaler_appliance.core.pending_work import NO_LATE_WORK
from scaler_appliance.core.tasks import figures_by_function
from scaler_appliance.core.tasks.batches import Dispatch, TaskBatch
from scaler_appliance.core.tasks.task_states import TaskState
from scaler_protocol import messages as m

SETTINGS = {"work_per_call": WORK}
SIZE = 400


@pytest.fixture
def client(harness: Harness) -> Client:
    client = harness.client()
    client.create(1, b"function")
    return client


def graph(client: Client, predecessors: List[List[int]], **fields: Any) -> Tuple[m.GraphTask, bytes]:
    """A graph whose nodes are all targets, with ids from 1 on."""
    size = len(predecessors)
    ends = [0]
    for before in predecessors:
        ends.append(ends[-1] + len(before))
    message = m.GraphTask(
        ids=array("Q", range(1, size + 1)),
        payload_sizes=array("I", [1]) * size,
        functions=array("Q", [fields.pop("function", client.object_id(1))]) * size,
        predecessor_offsets=array("I", ends),
        predecessors=array("I", [each for before in predecessors for each in before]),
        targets=array("I", range(size)),
        **fields,
    )
    return message, b"p" * size


SHAPES: Dict[str, List[List[int]]] = {
    "independent": [[] for _ in range(SIZE)],
    "tree": [[(node - 1) // 10] if node else [] for node in range(SIZE)],
    "fan": [[0] if node else [] for node in range(SIZE)],
    "reduction": [[] for _ in range(SIZE - 1)] + [list(range(SIZE - 1))],
    "chain": [[node - 1] if node else [] for node in range(SIZE)],
}


def ended(harness: Harness) -> int:
    return sum(harness.state.finished)


def drain(peer: Peer) -> List[Tuple[Any, bytes]]:
    found = list(peer.inbox)
    peer.inbox.clear()
    return found


# Bounded -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_nodes_of_a_missing_function_are_lost_some_at_a_time(harness: Harness, client: Client, shape: str) -> None:
    client.post(*graph(client, SHAPES[shape], function=client.object_id(2)))
    made = harness.steps(lambda: ended(harness))
    assert sum(made) == SIZE and max(made) <= 4 * WORK
    lost = [task_id for result, _ in drain(client) for task_id in result.ids]
    assert sorted(lost) == list(range(1, SIZE + 1))
    assert not harness.state.clients[client.session].graphs
    harness.nothing_else_was_sent()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_graph_is_accepted_runs_and_ends_some_nodes_at_a_time(harness: Harness, client: Client, shape: str) -> None:
    worker = harness.worker(slots=SIZE)
    client.post(*graph(client, SHAPES[shape]))
    made = harness.steps(lambda: harness.state.last_dispatch)
    while harness.state.clients[client.session].graphs:
        for message, _ in drain(worker):
            if isinstance(message, m.Task):
                worker.post(*worker.result(message.ids))
        harness.step()
        made += harness.steps(lambda: harness.state.last_dispatch)
    results = [task_id for result, _ in drain(client) for task_id in result.ids]
    assert sorted(results) == list(range(1, SIZE + 1)) and max(made) <= 4 * WORK
    assert not harness.state.clients[client.session].graphs


@pytest.mark.parametrize("shape", SHAPES)
def test_a_failed_root_ends_its_dependants_some_at_a_time(harness: Harness, client: Client, shape: str) -> None:
    worker = harness.worker(slots=SIZE)
    client.send(*graph(client, SHAPES[shape]))
    instances = [instance for message, _ in drain(worker) if isinstance(message, m.Task) for instance in message.ids]
    before = ended(harness)
    worker.post(*worker.result(instances, [b"bad"] * len(instances), statuses=[Status.FAILED] * len(instances)))
    made = [ended(harness) - before, *harness.steps(lambda: ended(harness))]
    assert sum(made) == SIZE and max(made) <= 4 * WORK


def cancelled(client: Client) -> None:
    client.post(m.TaskCancel(ids=array("Q", range(1, SIZE + 1))))


def vanished(client: Client) -> None:
    client.harness.core.on_peer_gone(client.harness.now, client.name)


@pytest.mark.parametrize("end", [cancelled, vanished])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_graph_is_cancelled_or_dropped_some_nodes_at_a_time(
    harness: Harness, client: Client, shape: str, end: Callable[[Client], None]
) -> None:
    client.send(*graph(client, SHAPES[shape]))
    before = ended(harness)
    end(client)
    made = [ended(harness) - before, *harness.steps(lambda: ended(harness))]
    assert sum(made) == SIZE and len(made) > 2 and max(made) <= 4 * WORK
    assert end is cancelled or not harness.state.clients


@pytest.mark.parametrize("end", [cancelled, vanished])
def test_tasks_are_cancelled_some_at_a_time(harness: Harness, client: Client, end: Callable[[Client], None]) -> None:
    for number in range(1, SIZE + 1):
        client.post(*task([number], function=client.object_id(1)))
    end(client)
    made = [ended(harness), *harness.steps(lambda: ended(harness))]
    assert sum(made) == SIZE and max(made) <= WORK
    assert end is cancelled or not harness.state.clients


def test_the_tasks_of_a_lost_worker_go_back_some_at_a_time(harness: Harness, client: Client) -> None:
    worker = harness.worker(slots=SIZE)
    for number in range(1, SIZE + 1):
        client.send(*task([number], function=client.object_id(1)))
    assert harness.state.running == SIZE
    harness.core.on_peer_gone(harness.now, worker.name)
    made = [SIZE - harness.state.running, *(-each for each in harness.steps(lambda: harness.state.running))]
    assert sum(made) == SIZE and max(made) <= WORK
    assert not harness.state.workers and len(harness.state.ready) == SIZE


def test_a_worker_that_says_goodbye_and_closes_while_its_results_are_worked_on_leaves_once() -> None:
    harness = Harness(work_per_call=10 * WORK)  # one turn takes several messages
    client, worker = harness.client(), harness.worker(slots=SIZE)
    client.create(1, b"function")
    for number in range(1, SIZE + 1):
        client.send(*task([number], function=client.object_id(1)))
    worker.take(m.ObjectInstruction)
    worker.post(*worker.result(worker.take_all_tasks()))
    worker.post(m.DisconnectRequest())
    harness.core.on_peer_gone(harness.now, worker.name)
    harness.steps(lambda: 0)
    assert not harness.state.workers and ended(harness) == SIZE
    assert sum(len(results.ids) for results, _ in drain(client)) == SIZE
    drain(worker)
    harness.nothing_else_was_sent()


@pytest.mark.parametrize("end", ["deleted", "cleared", "vanished"])
def test_objects_come_and_go_some_at_a_time(harness: Harness, client: Client, end: str) -> None:
    ids = array("Q", [client.object_id(number) for number in range(2, SIZE + 2)])
    instruction = m.ObjectInstruction(ids=ids, sizes=array("Q", [1]) * SIZE, storages=bytes(SIZE))
    client.post(instruction, b"o" * SIZE)
    made = [len(harness.state.objects) - 1, *harness.steps(lambda: len(harness.state.objects))]
    assert sum(made) == SIZE and max(made) <= WORK
    if end == "vanished":
        vanished(client)
    elif end == "deleted":
        client.post(m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=ids))
    else:
        client.post(m.ObjectInstruction(action=m.ObjectAction.CLEAR))
    left = len(harness.state.objects)
    assert left > SIZE - WORK and min(harness.steps(lambda: len(harness.state.objects))) >= -WORK
    assert len(harness.state.objects) == (end == "deleted")


def test_tasks_that_wait_for_one_are_accepted_and_released_some_at_a_time(harness: Harness, client: Client) -> None:
    worker = harness.worker(slots=2 * SIZE)
    client.send(*task([0], function=client.object_id(1)))
    worker.take(m.ObjectInstruction)
    instance = worker.take_tasks()
    columns: Dict[str, Any] = {"predecessor_counts": [1] * SIZE, "predecessors": [0] * SIZE}
    client.post(*task(range(1, SIZE + 1), function=client.object_id(1), **columns))
    made = harness.steps(lambda: harness.state.nodes_waiting)
    assert max(made) <= WORK and harness.state.nodes_waiting == SIZE
    worker.post(*worker.result(instance))
    made = harness.steps(lambda: -harness.state.nodes_waiting)
    assert sum(made) == SIZE and max(made) <= WORK and len(worker.take_all_tasks()) == SIZE


def test_the_largest_batches_become_several(client: Client) -> None:
    count = 40_000
    harness = client.harness
    client.send(*task(range(count), [b""] * count, function=client.object_id(1)))
    batches = list(harness.state.clients[client.session].batches())
    assert sum(map(len, batches)) == count and max(map(len, batches)) <= 1 << 14


HELD = 120


def small_graphs(client: Client) -> None:
    for number in range(HELD):
        message, payload = graph(client, [[]])
        message.ids = array("Q", [number])
        client.send(message, payload)


def tasks_in_batches(client: Client) -> None:
    for number in range(HELD):
        client.send(*task([number], function=client.object_id(1)))


def tasks_that_wait(client: Client) -> None:
    client.send(*task([0], function=client.object_id(1)))
    columns: Dict[str, Any] = {"predecessor_counts": [1] * HELD, "predecessors": [0] * HELD}
    client.send(*task(range(1, 1 + HELD), function=client.object_id(1), **columns))


@pytest.mark.skipif(sys.implementation.name == "pypy", reason="it does not count references")
@pytest.mark.parametrize(
    "kind, submit, end",
    [
        (Graph, small_graphs, "client"),
        (TaskBatch, tasks_in_batches, "client"),
        (Dependant, tasks_that_wait, "client"),
        (Dispatch, tasks_in_batches, "worker"),
    ],
)
def test_what_a_peer_held_is_freed_some_at_a_time(
    harness: Harness,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    kind: type,
    submit: Callable[[Client], None],
    end: str,
) -> None:
    freed: List[None] = []
    worker = harness.worker(slots=HELD)
    submit(client)
    monkeypatch.setattr(kind, "__del__", lambda self: freed.append(None), raising=False)
    harness.core.on_peer_gone(harness.now, client.name if end == "client" else worker.name)
    made = [len(freed), *harness.steps(lambda: len(freed))]
    assert sum(made) >= HELD and max(made) <= WORK


# In order ------------------------------------------------------------------------------------------------------------


def begin_large_graph(harness: Harness, client: Client, **fields: Any) -> None:
    """The scheduler has begun with a graph, and is far from done."""
    client.post(*graph(client, SHAPES["independent"], **fields))
    harness.step()
    assert harness.core.is_working_for(client.name)


def test_others_are_served_while_a_graph_is_being_accepted(harness: Harness, client: Client) -> None:
    worker, other = harness.worker(), harness.client()
    begin_large_graph(harness, client)
    other.post(*task([7]))
    client.post(m.Heartbeat(sequence=3))
    harness.step()
    assert len(worker.take_tasks()) == 1
    assert client.take(m.HeartbeatEcho).sequence == 3
    assert harness.core.is_working_for(client.name) and not harness.core.is_working_for(other.name)


def test_two_clients_with_large_graphs_take_turns(harness: Harness, client: Client) -> None:
    missing = client.object_id(2)
    other = harness.client()
    for each in (client, other):
        each.post(*graph(each, SHAPES["independent"], function=missing))
    while harness.core.has_work:
        harness.step()
        counts = [harness.state.clients[each.session].ended[TaskState.LOST] for each in (client, other)]
        assert abs(counts[0] - counts[1]) <= 3 * WORK
    assert counts == [SIZE, SIZE]


def test_a_cancel_waits_for_the_graph_before_it(harness: Harness, client: Client) -> None:
    begin_large_graph(harness, client)
    client.cancel(5, 6)
    assert client.take_confirms() == {5: Cancelled.CANCELLED, 6: Cancelled.CANCELLED}
    assert harness.state.clients[client.session].unfinished == SIZE - 2
    harness.nothing_else_was_sent()


def test_an_object_is_deleted_after_the_graph_before_has_it(harness: Harness, client: Client) -> None:
    needed = client.create(2, b"needed")
    counts = array("H", [0] * (SIZE - 1) + [1])
    begin_large_graph(harness, client, dependency_counts=counts, dependencies=array("Q", [needed]))
    client.delete(needed)
    assert harness.state.clients[client.session].unfinished == SIZE, "the last node has its object"
    assert harness.state.objects.find(needed).references == 1
    harness.nothing_else_was_sent()


def test_a_client_that_leaves_is_answered_after_its_graph(harness: Harness, client: Client) -> None:
    begin_large_graph(harness, client)
    client.send(m.DisconnectRequest())
    client.take(m.DisconnectResponse)
    assert not harness.state.clients and not len(harness.state.objects)
    harness.nothing_else_was_sent()


def test_a_client_that_is_lost_while_its_graph_is_accepted_leaves_nothing(harness: Harness, client: Client) -> None:
    worker = harness.worker()
    begin_large_graph(harness, client)
    client.post(*task([SIZE + 1]))
    client.vanish()
    assert not harness.state.clients and not len(harness.state.objects) and not len(harness.state.ready)
    assert not worker.inbox


def test_a_client_that_connects_again_need_not_wait_for_the_end_of_its_former_session(
    harness: Harness, client: Client
) -> None:
    former = client.session
    client.send(*graph(client, SHAPES["independent"]))
    client.post(hello(m.Role.CLIENT))
    harness.step()
    assert client.take(m.Welcome).session > former
    assert former in harness.state.departing
    client.send(*task([1]))
    assert list(harness.state.clients) == [client.session if client.session != former else former + 1]
    harness.nothing_else_was_sent()


def test_a_former_session_of_which_something_is_left_counts_as_no_client(harness: Harness, client: Client) -> None:
    other = harness.client()
    client.send(*graph(client, SHAPES["independent"]))
    client.post(hello(m.Role.CLIENT))
    harness.step()
    assert harness.state.departing
    other.post(m.InfoRequest())
    harness.step()
    assert harness.state.departing and other.take(m.Info).clients == 2


def test_orders_of_a_client_that_is_lost_behind_its_graph_still_hold(client: Client) -> None:
    harness = Harness(work_per_call=WORK, protected=False)
    client = harness.client()
    client.create(1, b"function")
    begin_large_graph(harness, client)
    client.post(m.ClientShutdown())
    client.vanish()
    assert harness.take_effect() == Stop("all peers have left")


def test_an_order_to_shut_down_that_waits_behind_a_graph_meets_another_shutdown() -> None:
    harness = Harness(work_per_call=WORK, protected=False)
    client, other = harness.client(), harness.client()
    client.create(1, b"function")
    begin_large_graph(harness, client)
    client.post(m.ClientShutdown())
    harness.core.shut_down(harness.now, "the operator asks for it")
    harness.tick()
    other.take(m.DisconnectRequest)
    assert not harness.state.sessions and harness.take_effect() == Stop("all peers have left")


def test_monitors_see_at_once_that_a_worker_leaves(harness: Harness, client: Client) -> None:
    worker, model = harness.worker(), StatusModel()
    harness.core.watch(has_status=True, has_runs=False)
    model.apply(publication(harness.core, is_snapshot=True))
    client.post(*graph(client, SHAPES["independent"]))
    harness.core.on_peer_gone(harness.now, worker.name)
    assert harness.state.departing, "the graph takes the time of this call"
    model.apply(publication(harness.core, is_snapshot=False))
    model.assert_is_true(harness.core)


def test_what_a_worker_reported_before_its_connection_ended_counts(harness: Harness, client: Client) -> None:
    worker = harness.worker(slots=SIZE)
    for number in range(1, SIZE + 1):
        client.send(*task([number], function=client.object_id(1)))
    worker.take(m.ObjectInstruction)
    worker.post(*worker.result(worker.take_all_tasks()))
    assert harness.core.is_working_for(worker.name)
    worker.vanish()
    results = [task_id for result, _ in drain(client) for task_id in result.ids]
    assert sorted(results) == list(range(1, SIZE + 1)) and not harness.state.workers


def test_a_malformed_graph_is_found_late_and_changes_nothing(harness: Harness, client: Client) -> None:
    message, payload = graph(client, SHAPES["chain"])
    message.predecessors[-1] = SIZE - 1  # itself
    client.post(message, payload)
    client.post(*task([SIZE + 1]))
    harness.tick()
    client.take_refusal(m.RefusalReason.MALFORMED)
    assert not harness.state.clients and not len(harness.state.objects)


def test_later_work_is_reported_with_the_peer_that_it_was_for(harness: Harness, client: Client) -> None:
    other = harness.client()
    begin_large_graph(harness, client)
    done = 0
    while harness.core.has_work:
        harness.core.tick(harness.now)
        late_work = harness.core.late_work
        assert set(late_work) <= {client.name} and late_work.get(client.name, 0) <= 3 * WORK
        done += late_work.get(client.name, 0)
    assert not harness.state.useless
    assert SIZE / 4 < done < 10 * SIZE
    other.send(m.InfoRequest(request_id=1))
    harness.core.tick(harness.now)
    assert harness.core.late_work == NO_LATE_WORK


def test_work_for_a_message_that_is_refused_late_is_reported_as_such(harness: Harness, client: Client) -> None:
    message, payload = graph(client, SHAPES["chain"])
    message.predecessors[-1] = SIZE - 1  # itself
    client.post(message, payload)
    done = 0
    useless = harness.state.useless
    while not useless:
        harness.core.tick(harness.now)
        done += harness.core.late_work.get(client.name, 0)
    assert list(useless) == [client.name] and done <= useless[client.name] <= done + 3 * WORK


def test_work_for_what_does_not_exist_is_reported_as_useless(harness: Harness, client: Client) -> None:
    worker = harness.worker()
    known = client.create(2, b"known")
    harness.state.useless.clear()
    client.cancel(5)
    client.take(m.TaskCancelConfirm)
    client.delete(known)
    assert harness.state.useless.pop(client.name) == 2
    client.delete(known)
    assert harness.state.useless.pop(client.name) == 1
    client.send(m.ObjectRequest(id=known, length=1))
    client.take(m.ObjectResponse)
    assert harness.state.useless.pop(client.name) == 60
    client.send(*task([6, 7]))
    instances = worker.take_all_tasks()
    worker.finish(instances)
    assert not harness.state.useless
    worker.finish(instances)
    assert harness.state.useless.pop(worker.name) >= 8
    worker.confirm(instances, Cancelled.CANCELLED)
    assert harness.state.useless == {worker.name: 4 * len(instances)}


def test_tasks_that_are_rejected_are_reported_as_useless(harness: Harness, client: Client) -> None:
    harness.state.useless.clear()
    missing = client.object_id(9)
    client.post(*graph(client, SHAPES["independent"], function=missing))
    harness.steps(lambda: 0)
    assert SIZE <= harness.state.useless.pop(client.name) <= 2 * SIZE
    client.submit(range(1000, 1000 + SIZE), function=missing)
    assert harness.state.useless.pop(client.name) == 30 + SIZE // 16
    client.submit(range(2000, 2000 + SIZE))
    assert not harness.state.useless


def test_cancels_of_tasks_that_have_ended_are_reported_as_useless(harness: Harness, client: Client) -> None:
    known, missing = client.object_id(1), client.object_id(9)
    client.submit([1, 2, 3], dependency_counts=[1, 1, 1], dependencies=[missing, known, missing])
    harness.state.useless.clear()
    client.cancel(1)
    assert harness.state.useless.pop(client.name) == 2
    client.cancel(2, 3)  # the first of them waits
    assert harness.state.useless.pop(client.name) == 4


def test_a_session_whose_message_is_worked_on_is_not_silent(client: Client) -> None:
    harness = client.harness
    begin_large_graph(harness, client)
    harness.now += 1000
    harness.step()
    assert client.session in harness.state.clients and not harness.state.departing


# Leaks ---------------------------------------------------------------------------------------------------------------


def test_durations_of_named_functions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures_by_function, "MAXIMUM_FUNCTIONS", 10)
    harness = Harness()
    client, worker = harness.client(), harness.worker()
    for number in range(30):
        client.send(*task([number], function_name=f"function {number}"))
        worker.finish(worker.take_tasks(), busy_microseconds=5)
        client.take_results()
    assert len(harness.state.durations) == 10 and harness.state.durations.get(("function 29", "default")) == 5
