"""Nodes that run again, because their results were lost with the workers that kept them."""

from __future__ import annotations

from array import array
from typing import Any, Dict, List

import pytest
from keeper import SIZE, Keeper, nothing_is_kept, submit
from scheduler_harness import Client, Harness, options

from scaler_protocol import decode_struct
from scaler_protocol import messages as m


@pytest.fixture
def harness() -> Harness:
    return Harness(chunk_bytes=10)


@pytest.fixture
def client(harness: Harness) -> Client:
    return harness.client()


def test_a_node_runs_again_whose_result_was_lost_with_its_worker(harness: Harness, client: Client) -> None:
    maker = Keeper(harness, slots=1)
    submit(client, {1: [], 2: [1], 3: [2]}, [3])
    maker.read()
    first = maker.keep(1)
    assert maker.read() == [2]
    other = Keeper(harness, slots=1)
    maker.peer.vanish()

    assert other.read() == [1], "node 2 waits for it again"
    again = other.keep(1)
    assert other.read() == [2]
    assert other.tasks[2][1] == [again] != [first]
    other.finish(2)
    assert other.read() == [3]
    other.finish(3)
    assert client.take_results() == {3: b"small"}
    nothing_is_kept(harness)


def test_a_chain_of_results_that_were_lost_is_made_again_from_its_beginning(harness: Harness, client: Client) -> None:
    maker = Keeper(harness, slots=1)
    submit(client, {1: [], 2: [1], 3: [2], 4: [3]}, [4])
    for number in (1, 2, 3):
        assert maker.read() == [number]
        maker.keep(number)
    other = Keeper(harness, slots=1)
    maker.peer.vanish()

    for number in (1, 2, 3):
        assert other.read() == [number]
        other.keep(number)
    assert other.read() == [4]
    other.finish(4)
    assert client.take_results() == {4: b"small"}
    nothing_is_kept(harness)


def test_results_that_are_still_there_are_not_made_again(harness: Harness, client: Client) -> None:
    lost, other = Keeper(harness, slots=1), Keeper(harness, slots=1)
    submit(client, {1: [], 2: [], 3: [1, 2]}, [3])
    numbers = {number: worker for worker in (lost, other) for number in worker.read()}
    lost_number = next(number for number, worker in numbers.items() if worker is lost)
    kept_number = 3 - lost_number
    lost.keep(lost_number)
    kept = other.keep(kept_number)
    lost.read()
    other.read()
    lost.peer.vanish()

    assert [number for number in other.read() if number != 3] == [lost_number]
    again = other.keep(lost_number)
    other.read()
    assert set(other.tasks[3][1]) == {kept, again}
    other.finish(3)
    assert client.take_results() == {3: b"small"}
    nothing_is_kept(harness)


def test_a_worker_that_waits_for_a_lost_result_is_freed_for_the_node_that_makes_it_again(
    harness: Harness, client: Client
) -> None:
    """Its one place is taken by a task that waits for the result: without taking that back, both would wait forever."""
    maker = Keeper(harness, slots=1, queue_size=1)
    submit(client, {1: [], 2: [1], 3: [1]}, [2, 3])
    maker.read()
    first = maker.keep(1)
    (number,) = maker.read()
    other = Keeper(harness, slots=1, queue_size=1)
    (waiting,) = other.read()
    other.ask(first)
    fenced = other.tasks[waiting][0]
    maker.peer.vanish()

    assert other.read() == [1]
    assert other.missing == [first] and other.deleted == {first}
    failure = m.Failure(kind=m.FailureKind.OBJECT_MISSING, message="deleted", attempts=1)
    other.peer.finish([fenced], [b"stale"], [m.TaskStatus.LOST])
    assert not client.inbox, failure
    other.keep(1)
    for _ in range(2):
        (each,) = other.read()
        other.finish(each)
    assert {**client.take_results(), **client.take_results()} == {2: b"small", 3: b"small"}
    assert {number, waiting} == {2, 3}
    nothing_is_kept(harness)


def test_small_results_that_were_dropped_are_made_again_with_what_needs_them(harness: Harness, client: Client) -> None:
    maker = Keeper(harness, slots=1)
    submit(client, {1: [], 2: [1], 3: [2]}, [3])
    maker.read()
    maker.finish(1, b"a small result")
    assert maker.read() == [2]
    maker.keep(2)
    maker.read()
    other = Keeper(harness, slots=1)
    maker.peer.vanish()

    for number in (1, 2, 3):
        assert other.read() == [number]
        other.finish(number)
    assert client.take_results() == {3: b"small"}
    nothing_is_kept(harness)


def test_a_target_that_its_client_knows_is_made_again_for_others_and_not_told_again(
    harness: Harness, client: Client
) -> None:
    maker = Keeper(harness, slots=1)
    submit(client, {1: [], 2: [1], 3: [2]}, [1, 3])
    maker.read()
    maker.finish(1, b"told")
    assert client.take_results() == {1: b"told"}
    assert maker.read() == [2]
    maker.keep(2)
    maker.read()
    other = Keeper(harness, slots=1)
    maker.peer.vanish()
    client.cancel(1)
    assert client.take_confirms() == {1: m.CancelOutcome.NOT_FOUND}

    for number in (1, 2, 3):
        assert other.read() == [number]
        other.finish(number)
    assert client.take_results() == {3: b"small"}
    assert not client.inbox
    nothing_is_kept(harness)


def test_a_node_runs_again_while_others_of_its_batch_are_unfinished(harness: Harness, client: Client) -> None:
    maker, other = Keeper(harness, slots=1), Keeper(harness, slots=2)
    submit(client, {1: [], 2: [1], 3: [1], 4: [1]}, [2, 3, 4])
    source = maker if maker.read() else other
    rest = other if source is maker else maker
    source.read()
    lost = source.keep(1)
    given = {number: worker for worker in (source, rest) for number in worker.read()}
    assert len(given) >= 2, "one batch is at two workers"
    assert lost not in rest.deleted
    source.peer.vanish()

    assert 1 in rest.read() + list(rest.tasks)
    rest.keep(1)
    for _ in range(3):
        for number in rest.read():
            rest.finish(number)
    outcomes: Dict[int, bytes] = {}
    while client.inbox:
        outcomes.update(client.take_results())
    assert outcomes == dict.fromkeys((2, 3, 4), b"small")
    nothing_is_kept(harness)


def losses(client: Client) -> Dict[int, m.Failure]:
    found: Dict[int, m.Failure] = {}
    while client.inbox:
        result = client.take(m.TaskResult)
        assert len(result.ids) == 1 and set(result.statuses) == {m.TaskStatus.LOST}
        found[result.ids[0]] = decode_struct(m.Failure, client.payload)
    return found


def test_a_node_that_may_run_at_most_once_is_lost_with_its_result(harness: Harness, client: Client) -> None:
    maker = Keeper(harness, slots=1)
    other = Keeper(harness, slots=1)
    submit(client, {1: [], 2: [1]}, [2], options=options(at_most_once=True))
    worker = maker if maker.read() else other
    worker.read()
    worker.keep(1)
    for each in (maker, other):
        each.read()
    client.inbox.clear()
    worker.peer.vanish()

    (failure,) = losses(client).values()
    assert failure.kind == m.FailureKind.WORKER_LOST
    assert "may run at most once" in failure.message or "lost with its worker" in failure.message
    nothing_is_kept(harness)


def submit_with_data(client: Client, predecessors: Dict[int, List[int]], **fields: Any) -> int:
    """Submit a graph whose first node needs an object, which its client deletes at once; returns the object."""
    data = client.announce(7, 4, m.ObjectStorage.REMOTE)
    client.take(m.ObjectRequest)
    client.send(m.ObjectResponse(id=data, size=4), b"data")
    counts = array("H", [1] + [0] * (len(predecessors) - 1))
    submit(
        client, predecessors, [max(predecessors)], dependency_counts=counts, dependencies=array("Q", [data]), **fields
    )
    client.delete(data)
    return data


def test_a_node_runs_again_with_an_object_that_its_client_has_deleted(harness: Harness, client: Client) -> None:
    maker = Keeper(harness, slots=1)
    data = submit_with_data(client, {1: [], 2: [1]})
    maker.read()
    maker.keep(1)
    maker.read()
    assert data not in maker.deleted
    other = Keeper(harness, slots=1)
    maker.peer.vanish()

    assert other.read() == [1] and other.tasks[1][1] == [data]
    other.keep(1)
    assert other.read() == [2] and data not in other.deleted
    other.finish(2)
    other.read()
    assert client.take_results() == {2: b"small"} and data in other.deleted
    nothing_is_kept(harness)


def test_what_a_node_needs_goes_with_its_result(harness: Harness, client: Client) -> None:
    maker = Keeper(harness, slots=1)
    data = submit_with_data(client, {1: [], 2: [1], 3: [2]})
    maker.read()
    maker.keep(1)
    maker.read()
    maker.finish(2)
    assert maker.read() == [3] and data in maker.deleted, "node 1 cannot have to run again"
    maker.finish(3)
    nothing_is_kept(harness)


def test_nodes_before_a_lost_one_run_again_with_objects_that_their_client_has_deleted(
    harness: Harness, client: Client
) -> None:
    maker = Keeper(harness, slots=1)
    data = submit_with_data(client, {1: [], 2: [1], 3: [2], 4: [3]})
    maker.read()
    for number in (1, 2, 3):
        result = maker.keep(number)
        maker.read()
    assert data not in maker.deleted, f"the results of nodes 1 and 2 have ended, and that of 3 is {result:x}"
    other = Keeper(harness, slots=1)
    maker.peer.vanish()

    for number in (1, 2, 3):
        assert other.read() == [number]
        assert other.tasks[number][1][:1] == [data] or number > 1
        other.keep(number)
    assert other.read() == [4]
    other.finish(4)
    other.read()
    assert client.take_results() == {4: b"small"} and data in other.deleted
    nothing_is_kept(harness)


def test_nodes_before_a_lost_one_that_need_nothing_run_again_as_well(harness: Harness, client: Client) -> None:
    maker = Keeper(harness, slots=2)
    submit_with_data(client, {1: [], 2: [], 3: [1, 2], 4: [3]})
    maker.read()
    results = [maker.keep(number) for number in (1, 2)]
    assert maker.read() == [3]
    maker.keep(3)
    assert maker.read() == [4] and maker.deleted.issuperset(results), "no one else keeps what can be made again"
    other = Keeper(harness, slots=2)
    maker.peer.vanish()
    assert other.read() == [1, 2]
    for number in (1, 2):
        other.keep(number)
    assert other.read() == [3]
    other.finish(3)
    assert other.read() == [4]
    other.finish(4)
    assert client.take_results() == {4: b"small"}
    nothing_is_kept(harness)


def test_small_results_of_nodes_before_a_lost_one_are_kept(harness: Harness, client: Client) -> None:
    maker = Keeper(harness, slots=1)
    data = submit_with_data(client, {1: [], 2: [1], 3: [2]})
    maker.read()
    maker.finish(1)
    assert maker.read() == [2]
    maker.keep(2)
    assert maker.read() == [3] and data in maker.deleted, "node 1 cannot have to run again"
    other = Keeper(harness, slots=1)
    maker.peer.vanish()
    assert other.read() == [2]
    other.finish(2)
    assert other.read() == [3]
    other.finish(3)
    assert client.take_results() == {3: b"small"}
    nothing_is_kept(harness)


def test_large_results_that_the_scheduler_has_are_kept_for_those_that_were_made_from_them(
    harness: Harness, client: Client
) -> None:
    maker = Keeper(harness, slots=1)
    data = submit_with_data(client, {1: [], 2: [1], 3: [2]})
    maker.read()
    first = maker.peer.announce(50, SIZE, m.ObjectStorage.REMOTE)
    maker.serve()
    maker.peer.finish([maker.tasks.pop(1)[0]], [b""], objects=[first])
    assert maker.read() == [2]
    maker.keep(2)
    assert maker.read() == [3] and data in maker.deleted and first not in maker.deleted
    other = Keeper(harness, slots=1)
    maker.peer.vanish()
    assert other.read() == [2] and other.tasks[2][1] == [first]
    other.finish(2)
    assert other.read() == [3] and first in other.deleted
    other.finish(3)
    assert client.take_results() == {3: b"small"}
    nothing_is_kept(harness)


def test_what_nodes_before_another_need_goes_with_its_result(harness: Harness, client: Client) -> None:
    maker = Keeper(harness, slots=1)
    data = submit_with_data(client, {1: [], 2: [1], 3: [2], 4: [3]})
    maker.read()
    for number in (1, 2):
        maker.keep(number)
        maker.read()
    assert data not in maker.deleted
    maker.finish(3)
    assert maker.read() == [4] and data in maker.deleted, "neither node 1 nor node 2 can have to run again"
    maker.finish(4)
    nothing_is_kept(harness)


def test_what_a_node_needs_goes_at_once_if_it_may_run_at_most_once(harness: Harness, client: Client) -> None:
    maker = Keeper(harness, slots=1)
    data = submit_with_data(client, {1: [], 2: [1]}, options=options(at_most_once=True))
    maker.read()
    maker.keep(1)
    assert maker.read() == [2] and data in maker.deleted
    maker.finish(2)
    nothing_is_kept(harness)


def test_what_nodes_need_goes_with_their_client(harness: Harness, client: Client) -> None:
    maker = Keeper(harness, slots=1)
    data = submit_with_data(client, {1: [], 2: [1]})
    maker.read()
    maker.keep(1)
    client.vanish()
    maker.read()
    assert data in maker.deleted and not len(harness.state.objects)


def test_a_node_whose_objects_are_gone_does_not_run_again_and_says_why(harness: Harness, client: Client) -> None:
    maker = Keeper(harness, slots=1)
    data = submit_with_data(client, {1: [], 2: [1]})
    maker.read()
    maker.keep(1)
    maker.read()
    harness.core.on_object_unreadable(harness.now, data)
    Keeper(harness, slots=1)
    maker.peer.vanish()

    (failure,) = losses(client).values()
    assert failure.kind == m.FailureKind.OBJECT_MISSING
    assert "its result was lost with the worker" in failure.message and f"{data:016x}" in failure.message
    nothing_is_kept(harness)


def test_a_node_whose_result_is_lost_too_often_is_lost(client: Client, harness: Harness) -> None:
    submit(client, {1: [], 2: [1]}, [2])
    for _ in range(harness.state.settings.maximum_attempts):
        maker = Keeper(harness, slots=1)
        assert maker.read() == [1]
        maker.keep(1)
        maker.peer.send(m.DisconnectRequest())  # which is no fault, and no attempt of node 2

    (failure,) = losses(client).values()
    assert failure.kind == m.FailureKind.WORKER_LOST and "is not run again" in failure.message
    nothing_is_kept(harness)


def test_a_cancelled_node_stays_cancelled_when_what_it_needs_is_lost(harness: Harness, client: Client) -> None:
    maker = Keeper(harness, slots=1)
    submit(client, {1: [], 2: [1]}, [2])
    maker.read()
    maker.keep(1)
    maker.read()
    client.cancel(2)
    other = Keeper(harness, slots=1)
    maker.peer.vanish()

    assert client.take_confirms() == {2: m.CancelOutcome.CANCELLED}
    assert other.read() == []
    nothing_is_kept(harness)


def test_a_client_that_leaves_takes_lost_results_along(harness: Harness, client: Client) -> None:
    maker = Keeper(harness, slots=1)
    submit(client, {1: [], 2: [1]}, [2])
    maker.read()
    maker.keep(1)
    maker.read()
    maker.peer.vanish()
    client.vanish()

    assert not len(harness.state.objects)
