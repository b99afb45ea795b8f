"""Whether a task waits for the worker that keeps what it needs, or its bytes are moved to another one."""

from __future__ import annotations

from typing import List, Tuple

import pytest
from keeper import SIZE, Keeper, submit
from scheduler_harness import Harness

from scaler_protocol import messages as m

TASK_SECONDS = 0.1
USERS = [2, 3, 4, 5]


def one_keeps(move_seconds: float, is_measured: bool = True) -> Tuple[Harness, Keeper, Keeper]:
    """A worker that has made what four nodes need, and one that has a free slot as well.

    Parameters:
        move_seconds: how long it takes to get it from there.
        is_measured: whether it is known how long the nodes take.
    """
    harness = Harness(transfer_bytes_per_second=SIZE / move_seconds)
    first, second = Keeper(harness, slots=1), Keeper(harness, slots=1)
    submit(harness.client(), {1: [], **{user: [1] for user in USERS}}, USERS)
    made = {number: worker for worker in (first, second) for number in worker.read()}
    maker = made[1]
    if not is_measured:
        harness.state.durations.set = lambda function, microseconds: None
    maker.keep(1, int(TASK_SECONDS * 1e6))
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


def test_tasks_that_were_never_measured_do_not_wait() -> None:
    _, maker, other = one_keeps(move_seconds=1.0, is_measured=False)
    kept, moved = placed(maker, other)
    assert kept[:1] == USERS[:1]
    assert moved


def test_tasks_that_wait_there_are_asked_for_after_a_while_only() -> None:
    harness, maker, _ = one_keeps(move_seconds=1.0)
    harness.tick()
    assert not [each for each, _ in maker.peer.inbox if isinstance(each, m.BalanceRequest)]
    harness.wait(2)
    assert [each for each, _ in maker.peer.inbox if isinstance(each, m.BalanceRequest)]


def test_what_was_given_back_does_not_come_to_wait_there_again_before_another_task_has_ended() -> None:
    harness, maker, other = one_keeps(move_seconds=1.0)
    maker.read()
    harness.wait(2)
    request = maker.peer.take(m.BalanceRequest)
    given = [maker.tasks[user][0] for user in USERS[1:]]
    maker.peer.give_back(given, request.request_id)
    assert placed(maker, other) == [[], USERS[1:2]], "the others wait at the scheduler"
