"""A task may need very many objects: they are announced and released in parts."""

from __future__ import annotations

from array import array
from typing import Any, Callable, Dict, List

import pytest
from scheduler_harness import SMALL_WORK as WORK
from scheduler_harness import Client, Harness, Worker, hello, options, task

from scaler_appliance.core.placement import announcing
from scaler_appliance.core.tasks.task_states import TaskState
from scaler_protocol import messages as m

SETTINGS = {"work_per_call": WORK}
SIZE = 10 * WORK


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcing, "LEAST_ANNOUNCED", 1)


@pytest.fixture
def client(harness: Harness) -> Client:
    client = harness.client()
    client.create(1, b"function")
    return client


@pytest.fixture
def objects(client: Client) -> List[int]:
    """Very many objects of the client."""
    ids = [client.object_id(number) for number in range(2, SIZE + 2)]
    client.send(
        m.ObjectInstruction(ids=array("Q", ids), sizes=array("Q", [1]) * SIZE, storages=bytes(SIZE)), b"o" * SIZE
    )
    return ids


def announced(worker: Worker) -> List[int]:
    """The objects that were announced to a worker by the messages at the front of its inbox."""
    found: List[int] = []
    while worker.inbox and isinstance(worker.inbox[0][0], m.ObjectInstruction):
        found += worker.take(m.ObjectInstruction).ids
    return found


def submit(client: Client, objects: List[int]) -> None:
    function = client.object_id(1)
    client.post(*task([1], function=function, dependency_counts=[len(objects)], dependencies=objects))


def submit_node(client: Client, objects: List[int]) -> None:
    """As the second node of a graph: it waits."""
    message = m.GraphTask(
        ids=array("Q", [1, 2]),
        payload_sizes=array("I", [1, 1]),
        functions=array("Q", [client.object_id(1)] * 2),
        predecessor_offsets=array("I", [0, 0, 1]),
        predecessors=array("I", [0]),
        targets=array("I", [1]),
        dependency_counts=array("H", [0, len(objects)]),
        dependencies=array("Q", objects),
    )
    client.post(message, b"pp")


def submit_dependant(client: Client, objects: List[int]) -> None:
    """A task that waits for another one."""
    client.submit([1], function=client.object_id(1))
    columns: Dict[str, Any] = {"dependency_counts": [len(objects)], "dependencies": objects, "predecessor_counts": [1]}
    client.post(*task([2], function=client.object_id(1), predecessors=[1], **columns))


SUBMISSIONS: Dict[str, Callable[[Client, List[int]], None]] = {
    "task": submit,
    "node": submit_node,
    "dependant": submit_dependant,
}


def test_objects_are_announced_some_at_a_time_and_before_the_task(
    harness: Harness, client: Client, objects: List[int]
) -> None:
    worker = harness.worker()
    known = harness.state.workers[worker.session].known_objects
    submit(client, objects)
    made = harness.steps(lambda: len(known))
    assert sum(made) == SIZE + 1 and max(made) <= WORK
    assert announced(worker) == [client.object_id(1), *objects], "each once"
    assert len(worker.take_tasks()) == 1
    harness.nothing_else_was_sent()


def test_a_worker_that_is_lost_meanwhile_is_replaced(harness: Harness, client: Client, objects: List[int]) -> None:
    first, second = harness.worker(), harness.worker()
    submit(client, objects)
    while not announced(first):
        harness.step()
    first.vanish()
    harness.steps(lambda: 0)
    assert announced(second) == [client.object_id(1), *objects]
    assert len(second.take_tasks()) == 1
    harness.nothing_else_was_sent()


def test_tasks_with_many_objects_each_are_sent_some_at_a_time(
    harness: Harness, client: Client, objects: List[int]
) -> None:
    nodes = SIZE // 10
    message = m.GraphTask(
        ids=array("Q", range(1, nodes + 1)),
        payload_sizes=array("I", [1]) * nodes,
        functions=array("Q", [client.object_id(1)]) * nodes,
        predecessor_offsets=array("I", [0]) * (nodes + 1),
        targets=array("I", range(nodes)),
        dependency_counts=array("H", [10]) * nodes,
        dependencies=array("Q", objects),
    )
    client.send(message, b"p" * nodes)
    worker = harness.unregistered_peer()
    worker.post(hello(m.Role.WORKER, slots=SIZE))
    known = next(iter(harness.state.workers.values())).known_objects
    made = harness.steps(lambda: len(known))
    assert sum(made) == SIZE + 1 and max(made) <= 2 * WORK
    assert sum(len(message.ids) for message, _ in worker.inbox if isinstance(message, m.Task)) == nodes
    worker.inbox.clear()


@pytest.mark.parametrize("end", ["cancelled", "vanished", "shared"])
@pytest.mark.parametrize("submission", SUBMISSIONS)
def test_objects_of_a_task_that_waits_are_released_some_at_a_time(
    harness: Harness, client: Client, objects: List[int], submission: str, end: str
) -> None:
    SUBMISSIONS[submission](client, objects)
    harness.steps(lambda: 0)
    if end != "shared":
        client.delete(*objects)
    assert len(harness.state.objects) == 1 + SIZE
    if end == "cancelled":
        client.post(m.TaskCancel(ids=array("Q", [1, 2])))
    else:
        harness.core.on_peer_gone(harness.now, client.name)
    assert len(harness.state.objects) >= 1 + SIZE - WORK
    assert min(harness.steps(lambda: len(harness.state.objects))) >= -WORK
    assert len(harness.state.objects) == (end == "cancelled")
    client.inbox.clear()


@pytest.mark.parametrize("end", ["finished", "lost", "vanished"])
def test_objects_of_a_task_at_a_worker_are_released_some_at_a_time(
    harness: Harness, client: Client, objects: List[int], end: str
) -> None:
    worker = harness.worker()
    columns: Dict[str, Any] = {"dependency_counts": [SIZE], "dependencies": objects}
    client.send(*task([1], function=client.object_id(1), options=options(at_most_once=True), **columns))
    client.delete(*objects)
    announced(worker)
    instances = worker.take_tasks()
    assert len(harness.state.objects) == 1 + SIZE
    if end == "finished":
        worker.post(*worker.result(instances))
    elif end == "lost":
        harness.core.on_peer_gone(harness.now, worker.name)
    else:
        harness.core.on_peer_gone(harness.now, client.name)
    assert len(harness.state.objects) >= 1 + SIZE - WORK
    assert min(harness.steps(lambda: len(harness.state.objects))) >= -WORK
    assert len(harness.state.objects) == (end != "vanished")
    if end != "lost":
        forgotten = [each for message, _ in worker.inbox for each in getattr(message, "ids", ())]
        assert set(forgotten) >= set(objects)
    client.inbox.clear()
    worker.inbox.clear()


@pytest.mark.parametrize("submission", SUBMISSIONS)
def test_an_object_that_was_missing_and_is_created_before_the_others_are_released_is_kept(
    harness: Harness, client: Client, objects: List[int], submission: str
) -> None:
    missing = client.object_id(SIZE + 2)
    SUBMISSIONS[submission](client, [*objects, missing])
    while not harness.state.finished[TaskState.LOST]:
        harness.step()
    storages = bytes([m.ObjectStorage.INLINE])
    client.post(m.ObjectInstruction(ids=array("Q", [missing]), sizes=array("Q", [1]), storages=storages), b"o")
    harness.steps(lambda: 0)
    assert harness.state.objects.find(missing).references == 0
    assert harness.state.objects.find(objects[0]).references == 0
    client.inbox.clear()
