"""Whether a task waits for the worker that keeps what it needs, or its bytes are moved to another one."""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

import pytest
from keeper import SIZE, Keeper, submit
from scheduler_harness import Harness, options, task

from scaler_protocol import messages as m
from scaler_protocol.session.features import KEPT_ARGUMENTS

TASK_SECONDS = 0.1
USERS = [2, 3, 4, 5]


def one_keeps(
    move_seconds: float,
    is_measured: bool = True,
    measured_seconds: float = 0.0,
    task_seconds: float = TASK_SECONDS,
    users: Sequence[int] = USERS,
) -> Tuple[Harness, Keeper, Keeper]:
    """A worker that has made what four nodes need, and one that has a free slot as well.

    Parameters:
        move_seconds: how long it takes to get it from there, as is assumed.
        is_measured: whether it is known how long the nodes take.
        measured_seconds: how long it took before to get as much from there, if that was measured.
        task_seconds: how long a node takes.
    """
    harness = Harness(transfer_bytes_per_second=SIZE / move_seconds, chunk_bytes=SIZE)
    first, second = Keeper(harness, slots=1), Keeper(harness, slots=1)
    submit(harness.client(), {1: [], **{user: [1] for user in users}}, users)
    made = {number: worker for worker in (first, second) for number in worker.read()}
    maker = made[1]
    if not is_measured:
        harness.state.durations.set = lambda function, microseconds: None
    rates = harness.state.transfers.rates
    rates.begin(maker.peer.session, 0.0)
    rates.complete(maker.peer.session, SIZE, measured_seconds)
    maker.keep(1, int(task_seconds * 1e6))
    return harness, maker, second if maker is first else first


def placed(*workers: Keeper) -> List[List[int]]:
    return [worker.read() for worker in workers]


def test_tasks_wait_where_their_bytes_are_if_moving_them_takes_longer() -> None:
    _, maker, other = one_keeps(move_seconds=1.0)
    assert placed(maker, other) == [USERS, []]


def test_so_many_wait_as_are_done_before_the_bytes_could_be_moved() -> None:
    _, maker, other = one_keeps(move_seconds=1.5 * TASK_SECONDS)
    kept, moved = placed(maker, other)
    assert kept[:2] == USERS[:2]
    assert moved


@pytest.mark.parametrize("move_seconds", [TASK_SECONDS / 2, 0.99 * TASK_SECONDS])
def test_no_task_waits_if_moving_its_bytes_is_as_quick(move_seconds: float) -> None:
    _, maker, other = one_keeps(move_seconds)
    kept, moved = placed(maker, other)
    assert kept[:1] == USERS[:1]
    assert moved[:1] == USERS[1:2]


def test_what_transfers_from_that_worker_have_taken_counts_and_not_what_was_assumed() -> None:
    _, maker, other = one_keeps(move_seconds=0.001, measured_seconds=1.0)
    assert placed(maker, other) == [USERS, []]
    _, maker, other = one_keeps(move_seconds=1.0, measured_seconds=0.001)
    kept, moved = placed(maker, other)
    assert kept[:1] == USERS[:1]
    assert moved[:1] == USERS[1:2]


def test_a_task_whose_other_bytes_would_have_to_come_there_waits_as_is_assumed() -> None:
    harness = Harness(transfer_bytes_per_second=SIZE / 0.001, chunk_bytes=SIZE)
    first, second = (Keeper(harness, slots=1) for _ in range(2))
    submit(harness.client(), {1: [], 2: [], 3: [1], 4: [2], 5: [1, 2], 6: [1]}, [3, 4, 5, 6])
    makers = {number: worker for worker in (first, second) for number in worker.read()}
    for worker in (first, second):
        harness.state.transfers.rates.begin(worker.peer.session, 0.0)
        harness.state.transfers.rates.complete(worker.peer.session, SIZE, 100.0)
    for number in (1, 2):
        makers[number].keep(number, 1_000_000)
    placed(first, second)
    assert set(makers[1].tasks) == {3, 6}, "all that it needs is there, and would take long to move"
    assert set(makers[2].tasks) == {4}, "the other one goes to the slot that is free first"


def test_tasks_that_were_never_measured_do_not_wait() -> None:
    _, maker, other = one_keeps(move_seconds=1.0, is_measured=False)
    kept, moved = placed(maker, other)
    assert kept[:1] == USERS[:1]
    assert moved


# Beside tasks of others ---------------------------------------------------------------------------------------------


def one_is_behind_that_of_another(harness: Harness, is_free: bool) -> Tuple[Keeper, Keeper]:
    """A worker that keeps what node 3 needs and runs task 7 for a second, and another one, which has made the rest in
    the moment in which another client has submitted task 8.

    Parameters:
        is_free: task 7 has ended in the same moment.
    """
    first, second = Keeper(harness, slots=1), Keeper(harness, slots=1)
    function = submit(harness.client(), {1: [], 2: [], 3: [1, 2]}, [3])
    maker = next(worker for worker in (first, second) if 1 in worker.read())
    other = second if maker is first else first
    other.read()
    plain, newcomer = harness.client(), harness.client()
    for each in (function, plain.create(1, b"g"), newcomer.create(1, b"h")):
        harness.state.durations.set(each, 1e6)
    maker.keep(1)
    plain.submit([7], [b"7"], function=plain.object_id(1))
    assert placed(maker, other) == [[7], []]
    newcomer.post(*task([8], [b"8"], function=newcomer.object_id(1)))
    for worker, number in ((maker, 7), (other, 2))[0 if is_free else 1 :]:
        worker.peer.post(*worker.peer.result([worker.tasks[number][0]]))
    harness.tick()
    return maker, other


def test_tasks_of_others_leave_a_slot_to_those_whose_bytes_are_there_while_enough_are_free() -> None:
    harness = Harness(chunk_bytes=SIZE)
    maker, other = one_is_behind_that_of_another(harness, is_free=True)
    assert placed(maker, other) == [[3], [8]]


def test_tasks_wait_where_their_bytes_are_also_if_it_was_the_turn_of_others_before() -> None:
    harness = Harness(transfer_bytes_per_second=SIZE / 10, chunk_bytes=SIZE)
    maker, other = one_is_behind_that_of_another(harness, is_free=False)
    assert placed(maker, other) == [[3], [8]], "it would take longer to move its bytes there"


def test_a_task_of_another_client_waits_for_one_task_and_not_for_those_that_wait_where_their_bytes_are() -> None:
    harness, maker, other = one_keeps(move_seconds=100.0, task_seconds=1.0)
    plain, newcomer = harness.client(), harness.client()
    for client in (plain, newcomer):
        harness.state.durations.set(client.create(1, b"g"), 1e6)
    plain.submit([8], [b"8"], function=plain.object_id(1))
    assert placed(maker, other) == [USERS, [8]]
    newcomer.submit([9], [b"9"], function=newcomer.object_id(1))
    assert placed(maker, other) == [[9], []]


def test_nested_tasks_with_bytes_elsewhere_all_go_where_tasks_wait_for_them() -> None:
    harness = Harness(chunk_bytes=SIZE, protected=False)
    worker = Keeper(harness, slots=2, data_address="tcp://a:1", data_key=b"key")
    plain = harness.client()
    harness.state.durations.set(plain.create(1, b"g"), 1e6)
    plain.submit([1, 2, 3, 4, 5, 6], [b"%d" % number for number in range(1, 7)], function=plain.object_id(1))
    assert worker.read() == [1, 2]
    worker.peer.suspend(2)
    assert worker.read() == [3, 4], "in the slots of those that wait"
    nested = harness.client(features=[KEPT_ARGUMENTS], places={"data_address": "tcp://b:9", "data_key": b"key"})
    argument = nested.announce(1, SIZE, m.ObjectStorage.KEPT)
    for number in (7, 8):
        needs = {"dependency_counts": [1], "dependencies": [argument]}
        nested.post(*task([number], [b"%d" % number], options=options(priority=1), **needs))
    harness.tick()
    assert worker.read() == [7, 8]


# Hosts --------------------------------------------------------------------------------------------------------------


def on_host(harness: Harness, host: str, port: int, **fields: Any) -> Keeper:
    return Keeper(harness, 1, data_address=f"tcp://{host}:{port}", data_key=b"key", **fields)


def one_keeps_beside(*hosts: str) -> Tuple[Keeper, List[Keeper]]:
    """A worker on the host "a" that has made what three nodes need, and idle workers on some hosts."""
    harness = Harness(chunk_bytes=SIZE, protected=False)
    maker = on_host(harness, "a", 1)
    submit(harness.client(), {1: [], 2: [1], 3: [1], 4: [1]}, [2, 3, 4])
    maker.read()
    others = [on_host(harness, host, port) for port, host in enumerate(hosts, 2)]
    maker.keep(1)
    return maker, others


def test_a_task_goes_to_the_host_where_its_bytes_are_if_their_keeper_is_busy() -> None:
    maker, others = one_keeps_beside("b", "c", "a")
    assert placed(maker, *others) == [[2], [4], [], [3]]


def test_on_that_host_it_leaves_to_others_what_it_does_not_need() -> None:
    harness = Harness(chunk_bytes=SIZE, protected=False)
    maker = on_host(harness, "a", 1)
    submit(harness.client(), {1: [], 2: [1], 3: [1]}, [2, 3])
    maker.read()
    gpu, plain = on_host(harness, "a", 2, gpu=1.0), on_host(harness, "a", 3)
    maker.keep(1)
    assert placed(maker, gpu, plain) == [[2], [], [3]]


def test_a_task_goes_elsewhere_if_no_slot_is_free_on_that_host() -> None:
    maker, others = one_keeps_beside("b", "c")
    assert placed(maker, *others) == [[2], [3], [4]]


def test_a_task_goes_to_the_host_of_the_client_that_keeps_its_argument() -> None:
    harness = Harness(chunk_bytes=SIZE, protected=False)
    places = {"data_address": "tcp://b:9", "data_key": b"key"}
    client = harness.client(features=[KEPT_ARGUMENTS], places=places)
    argument = client.announce(1, SIZE, m.ObjectStorage.KEPT)
    others = [on_host(harness, host, port) for port, host in enumerate("acb", 2)]
    client.submit([7], [b"7"], dependency_counts=[1], dependencies=[argument])
    assert placed(*others) == [[], [], [7]]


def test_who_has_left_its_host_is_no_neighbour() -> None:
    maker, others = one_keeps_beside("b", "a", "a")
    harness = maker.peer.harness
    assert placed(maker, *others) == [[2], [], [3], [4]]
    others[1].peer.vanish()
    others[2].peer.vanish()
    harness.state.check_invariants()
    assert placed(maker, others[0]) == [[], [3, 4]], "one to who was idle, and one while that fetches"


# Waiting ------------------------------------------------------------------------------------------------------------


def is_asked(worker: Keeper) -> bool:
    return any(isinstance(each, m.BalanceRequest) for each, _ in worker.peer.inbox)


@pytest.mark.parametrize(
    ("move_seconds", "task_seconds", "asked_after_seconds"),
    [(100.0, 1.0, 2.0), (1.6, 1.0, 1.6), (100.0, 0.01, 1.0)],
    ids=["twice as long as was estimated", "as long as moving their bytes would take", "until the next look"],
)
def test_tasks_that_wait_there_are_asked_for_when_they_have_waited_for_too_long(
    move_seconds: float, task_seconds: float, asked_after_seconds: float
) -> None:
    harness, maker, _ = one_keeps(move_seconds, task_seconds=task_seconds, users=USERS[:2])
    harness.tick()
    assert not is_asked(maker)
    harness.wait(asked_after_seconds - 0.1)
    assert not is_asked(maker)
    harness.wait(1.1)
    assert is_asked(maker)


def test_tasks_beside_them_are_asked_for_as_always() -> None:
    harness, maker, _ = one_keeps(move_seconds=5.0, task_seconds=1.0)
    maker.read()
    *_, last = harness.state.workers[maker.peer.session].dispatches.values()
    last.waits_until = 0.0  # as of one that was sent there ahead of time
    harness.wait(1.1)
    assert maker.peer.take(m.BalanceRequest).count == 1


def test_what_was_given_back_does_not_come_to_wait_there_again_before_another_task_has_ended() -> None:
    harness, maker, other = one_keeps(move_seconds=1.0)
    maker.read()
    harness.wait(2)
    request = maker.peer.take(m.BalanceRequest)
    given = [maker.tasks[user][0] for user in USERS[1:]]
    maker.peer.give_back(given, request.request_id)
    assert placed(maker, other) == [[], USERS[1:2]], "the others wait at the scheduler"
