"""Tasks that wait for bytes which others keep leave their slots to others until these are there."""

from __future__ import annotations

from typing import Callable, Dict, List, Sequence, Tuple

import pytest
from keeper import SIZE, Keeper, submit
from scheduler_harness import Client, Harness

from scaler_protocol import messages as m
from scaler_protocol.session.features import KEPT_ARGUMENTS

TASK_MICROSECONDS = 1e6


def peer(harness: Harness, number: int, slots: int = 1) -> Keeper:
    return Keeper(harness, slots, data_address=f"tcp://host{number}:1", data_key=b"key")


def one_fetches(slots: int = 1, others: Sequence[int] = ()) -> Tuple[Harness, Client, Keeper, int]:
    """A worker that fetches what node 3 needs from another one, which runs node 2; and the object. All tasks are known
    to take a second, and the client has a function of its own for further ones.

    Parameters:
        others: nodes that need the object as well.
    """
    harness = Harness(chunk_bytes=SIZE)
    maker = peer(harness, 1)
    graphs, client = harness.client(), harness.client()
    function = submit(graphs, {1: [], **{each: [1] for each in (2, 3, *others)}}, [2, 3, *others])
    for each in (function, client.create(1, b"g")):
        harness.state.durations.set(each, TASK_MICROSECONDS)
    assert maker.read() == [1]
    kept = maker.keep(1, int(TASK_MICROSECONDS))
    assert maker.read() == [2]
    fetcher = peer(harness, 2, slots)
    assert fetcher.read() == [3, *others][: 2 * slots]
    return harness, client, fetcher, kept


def run(client: Client, *numbers: int) -> None:
    client.submit(numbers, [b"%d" % number for number in numbers], function=client.object_id(1))


def asked_back(harness: Harness, worker: Keeper) -> List[int]:
    """How many tasks a worker is asked to give back, once a while has passed."""
    worker.read()
    harness.wait(1.1)
    return [message.count for message, _ in worker.peer.inbox if isinstance(message, m.BalanceRequest)]


def test_another_task_runs_while_bytes_come() -> None:
    _, client, fetcher, _ = one_fetches()
    run(client, 4, 5)
    assert fetcher.read() == [4], "one for each slot"


def test_each_task_that_waits_for_bytes_leaves_one_slot() -> None:
    _, client, fetcher, _ = one_fetches(slots=3)
    run(client, 4, 5, 6, 7)
    assert fetcher.read() == [4, 5, 6]


def test_a_worker_fetches_for_as_many_tasks_more_as_it_has_slots() -> None:
    one_fetches(slots=1, others=[4, 5])
    one_fetches(slots=2, others=[4, 5, 6, 7])


def test_a_slot_that_is_free_elsewhere_comes_first() -> None:
    harness, client, fetcher, _ = one_fetches()
    idle = peer(harness, 3)
    run(client, 4, 5)
    assert (fetcher.read(), idle.read()) == ([5], [4])


@pytest.mark.parametrize("end", [Keeper.hold, Keeper.drop], ids=["there", "not fetched"])
def test_the_slot_is_taken_once_the_bytes_are_there_or_do_not_come(end: Callable[[Keeper, int], None]) -> None:
    _, client, fetcher, kept = one_fetches()
    end(fetcher, kept)
    run(client, 4)
    assert fetcher.read() == []
    fetcher.finish(3)
    assert fetcher.read() == [4]


def test_a_task_that_ends_while_its_bytes_come_leaves_one_slot_and_not_two() -> None:
    _, client, fetcher, _ = one_fetches()
    fetcher.finish(3)
    run(client, 4, 5)
    assert fetcher.read() == [4]


def test_tasks_whose_bytes_are_on_their_way_stay_though_a_slot_is_free_elsewhere() -> None:
    harness, client, fetcher, kept = one_fetches()
    run(client, 4)
    assert fetcher.read() == [4]
    peer(harness, 3)
    assert asked_back(harness, fetcher) == []
    fetcher.hold(kept)
    assert asked_back(harness, fetcher) == [1]


def one_has_arguments(slots: int, numbers: Sequence[int]) -> Tuple[Harness, Keeper, Dict[int, int]]:
    """A worker that has to fetch an argument for each of a client's tasks; and the objects, by task."""
    harness = Harness(chunk_bytes=SIZE)
    client = harness.client(features=[KEPT_ARGUMENTS], places={"data_address": "tcp://client:1", "data_key": b"key"})
    arguments = {number: client.announce(number, SIZE, m.ObjectStorage.KEPT) for number in numbers}
    function = client.create(1000, b"f")
    harness.state.durations.set(function, TASK_MICROSECONDS)
    fetcher = peer(harness, 1, slots)
    client.submit(
        numbers,
        [b"%d" % number for number in numbers],
        function=function,
        dependency_counts=[1] * len(numbers),
        dependencies=list(arguments.values()),
    )
    return harness, fetcher, arguments


def test_the_next_bytes_come_while_a_task_runs() -> None:
    _, fetcher, arguments = one_has_arguments(1, [1, 2, 3, 4])
    assert fetcher.read() == [1, 2]
    fetcher.hold(arguments[1])
    fetcher.hold(arguments[2])
    assert fetcher.read() == [], "one runs, and one is ready"
    fetcher.finish(1)
    assert fetcher.read() == [3], "it comes while the other one runs"
    fetcher.finish(2)
    assert fetcher.read() == [4]


def test_bytes_come_for_as_many_tasks_as_there_are_slots() -> None:
    _, fetcher, arguments = one_has_arguments(2, [1, 2, 3, 4, 5, 6])
    assert fetcher.read() == [1, 2, 3, 4]
    for number in (1, 2, 3, 4):
        fetcher.hold(arguments[number])
    fetcher.finish(1)
    fetcher.finish(2)
    assert fetcher.read() == [5, 6]


def test_a_task_for_which_nothing_has_to_come_waits_for_a_free_slot() -> None:
    harness, fetcher, arguments = one_has_arguments(1, [1, 2])
    assert fetcher.read() == [1, 2]
    fetcher.hold(arguments[1])
    fetcher.hold(arguments[2])
    fetcher.finish(1)
    client = harness.client()
    harness.state.durations.set(client.create(1, b"g"), TASK_MICROSECONDS)
    run(client, 5)
    assert fetcher.read() == []
    fetcher.finish(2)
    assert fetcher.read() == [5]


def test_a_worker_that_fetches_through_the_scheduler_has_no_more_tasks_than_slots() -> None:
    harness = Harness(chunk_bytes=SIZE)
    maker, other = Keeper(harness, slots=1), Keeper(harness, slots=1)
    client = harness.client()
    harness.state.durations.set(submit(harness.client(), {1: [], 2: [1], 3: [1]}, [2, 3]), TASK_MICROSECONDS)
    harness.state.durations.set(client.create(1, b"g"), TASK_MICROSECONDS)
    makers = {number: worker for worker in (maker, other) for number in worker.read()}
    makers[1].keep(1, int(TASK_MICROSECONDS))
    run(client, 4)
    assert sorted([*maker.read(), *other.read()]) == [2, 3]


def test_a_task_of_another_client_waits_for_one_task_and_not_for_those_in_line() -> None:
    harness, client, fetcher, kept = one_fetches()
    run(client, 4)
    assert fetcher.read() == [4]
    fetcher.hold(kept)
    run(client, 5)
    newcomer = harness.client()
    newcomer.submit([6], [b"6"], function=newcomer.create(1, b"h"))
    assert fetcher.read() == [6], "it takes its turn there; the first client has a task there, and waits"
