"""The tasks of one class: which come before others, and whose turn it is."""

from __future__ import annotations

from typing import List

import pytest
from scheduler_harness import task

from scaler_appliance.core.placement.ready_class import MOST_PASSED, ReadyClass, ReadyTotals
from scaler_appliance.core.tasks.batches import Requirement, TaskBatch, TaskSpan
from scaler_appliance.core.tasks.task_states import TaskState
from scaler_protocol import messages as m

TURN_MICROSECONDS = 75.0


def empty_class() -> ReadyClass:
    return ReadyClass(Requirement.of(m.TaskOptions()), ReadyTotals())


def batch_of(client: int, count: int = 1) -> TaskBatch:
    return TaskBatch(client, *task(range(1, count + 1)))


def queued(ready_class: ReadyClass, client: int, count: int = 1) -> TaskBatch:
    """A batch that waits."""
    batch = batch_of(client, count)
    ready_class.add(TaskSpan(batch, 0, count))
    return batch


def taken(ready_class: ReadyClass, limit: int = 1) -> TaskSpan:
    span = ready_class.take(limit)
    assert span is not None
    for place in range(span.start, span.stop):
        span.batch.states[place] = TaskState.ASSIGNED
    return span


def test_as_many_tasks_come_forward_as_are_wanted() -> None:
    ready_class = empty_class()
    first, second = queued(ready_class, 1, 5), queued(ready_class, 1, 10)
    assert ready_class.bring_forward(3, [second].__contains__)
    ready_class.check_invariants(set())
    assert [taken(ready_class, 100) for _ in range(3)] == [(second, 0, 3), (first, 0, 5), (second, 3, 10)]


def test_the_next_batch_itself_does_not_come_forward() -> None:
    ready_class = empty_class()
    first = queued(ready_class, 1, 2)
    ready_class.add(TaskSpan(queued(ready_class, 1, 3), 0, 3))
    assert not ready_class.bring_forward(1, [first].__contains__)


def test_the_client_whose_turn_it_is_comes_before_others() -> None:
    ready_class = empty_class()
    queued(ready_class, 1)
    batches = [queued(ready_class, 1), queued(ready_class, 2)]
    assert ready_class.bring_forward(1, batches.__contains__)
    assert taken(ready_class).batch is batches[0]


def test_a_turn_that_was_interrupted_goes_on() -> None:
    ready_class = empty_class()
    queued(ready_class, 1, 10)
    other = queued(ready_class, 2, 10)
    while next(ready_class.turns()) != 1:
        ready_class.count_turn(TURN_MICROSECONDS, TURN_MICROSECONDS)
    clients: List[int] = [taken(ready_class).batch.client]
    ready_class.count_turn(50.0, TURN_MICROSECONDS)
    assert ready_class.bring_forward(1, [other].__contains__)
    clients.append(taken(ready_class).batch.client)
    ready_class.count_turn(10.0, TURN_MICROSECONDS)
    ready_class.resume_turn(1)
    for _ in range(2):
        clients.append(taken(ready_class).batch.client)
        ready_class.count_turn(50.0, TURN_MICROSECONDS)
    assert clients == [1, 2, 1, 2], "the second task of the first client ends its turn"
    ready_class.check_invariants(set())


@pytest.mark.parametrize("taken_count, order", [(1, [1, 2, 4, 3]), (0, [1, 2, 3, 4])])
def test_who_has_interrupted_a_turn_comes_last_if_it_got_something(taken_count: int, order: List[int]) -> None:
    ready_class = empty_class()
    batches = {client: queued(ready_class, client, 3) for client in (4, 3, 2, 1)}
    assert list(ready_class.turns()) != order
    for client in (4, 3, 2, 1):
        ready_class.give_turn(client)
    assert ready_class.bring_forward(1, [batches[3]].__contains__)
    for _ in range(taken_count):
        taken(ready_class)
        ready_class.count_turn(1.0, TURN_MICROSECONDS)
    ready_class.resume_turn(taken_count)
    assert list(ready_class.turns()) == order


def test_what_was_cancelled_does_not_come_forward() -> None:
    ready_class = empty_class()
    queued(ready_class, 1)
    cancelled, other = queued(ready_class, 1, 2), queued(ready_class, 1, 4)
    for batch, count in ((cancelled, 2), (other, 1)):
        for place in range(count):
            batch.states[place] = TaskState.CANCELLED
        ready_class.discount(1, count, False)
    assert not ready_class.bring_forward(1, [cancelled].__contains__)
    assert ready_class.bring_forward(2, [cancelled, other].__contains__)
    ready_class.check_invariants(set())
    assert taken(ready_class, 100) == (other, 1, 3)


def test_the_turn_of_who_is_gone_does_not_go_on() -> None:
    ready_class = empty_class()
    queued(ready_class, 1)
    other = queued(ready_class, 2)
    ready_class.give_turn(1)
    assert ready_class.bring_forward(1, [other].__contains__)
    ready_class.count -= 1
    ready_class.remove_client(1)
    ready_class.resume_turn(1)
    assert taken(ready_class).batch is other


def test_the_next_batch_is_one_with_tasks_that_wait() -> None:
    ready_class = empty_class()
    cancelled, second = queued(ready_class, 1, 2), queued(ready_class, 1, 2)
    third = queued(ready_class, 2)
    ready_class.give_turn(1)
    for batch in (cancelled, second):
        batch.states[0] = TaskState.CANCELLED
        ready_class.discount(1, 1, False)
    cancelled.states[1] = TaskState.CANCELLED
    ready_class.discount(1, 1, False)
    assert ready_class.batch_of_turn() is second
    assert ready_class.run_of_turn() == 1
    second.states[1] = TaskState.CANCELLED
    ready_class.count -= 1
    assert ready_class.batch_of_turn() is third
    assert list(ready_class.turns()) == [2]


def test_it_is_known_since_when_a_batch_is_passed() -> None:
    ready_class = empty_class()
    batch = queued(ready_class, 1, 2)
    for now in (10.0, 11.0):
        ready_class.note_passed(batch, now)
    assert ready_class.passed_since(batch) == 10.0
    ready_class.note_taken(batch)
    assert ready_class.passed_since(batch) is None


def test_few_batches_are_passed_at_a_time() -> None:
    ready_class = empty_class()
    batches = [queued(ready_class, client) for client in range(1, MOST_PASSED + 2)]
    for batch in batches[:-1]:
        assert ready_class.may_be_passed(batch)
        ready_class.note_passed(batch, 0.0)
    assert not ready_class.may_be_passed(batches[-1])
    assert ready_class.may_be_passed(batches[0]), "it is one of them"
    batches[3].unfinished = 0
    assert ready_class.may_be_passed(batches[-1]), "one has ended"
    ready_class.note_passed(batches[-1], 0.0)
    ready_class.hold(batches[0].client)
    assert ready_class.passed_since(batches[0]) is None, "it has no turn"
