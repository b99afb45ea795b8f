"""Batches keep their columns together, however they are cut and joined again."""

from __future__ import annotations

import random
from array import array
from typing import Dict, List, Sequence

import pytest

from scaler.worker.agent.core.task_queue import HeldTasks, TaskQueue, TaskTraits


def batch(ids: Sequence[int], priority: int = 0, dependencies: bool = False, client: int = 0) -> HeldTasks:
    """Tasks whose payload and dependencies follow from their ids."""
    payloads = [b"<%d>" % instance for instance in ids]
    traits = TaskTraits(function=7, codec="c", client=client, priority=priority)
    sizes = array("I", map(len, payloads))
    if not dependencies:
        return HeldTasks(traits, array("Q", ids), sizes, b"".join(payloads))
    needed = [needed_by(instance) for instance in ids]
    counts = array("H", map(len, needed))
    flat = array("Q", [i for some in needed for i in some])
    return HeldTasks(traits, array("Q", ids), sizes, b"".join(payloads), counts, flat)


def needed_by(instance: int) -> List[int]:
    return list(range(instance, instance + instance % 3))


def content(tasks: HeldTasks) -> Dict[int, List[int]]:
    """What is in a batch; its payloads are checked on the way."""
    found = {}
    for task in tasks.copy().singles():
        [instance] = task.ids
        assert bytes(task.payload) == b"<%d>" % instance
        assert task.sizes[0] == len(task.payload)
        found[instance] = list(task.dependencies or [])
    return found


def test_a_batch_cut_into_pieces_is_the_same_tasks() -> None:
    tasks = batch(range(20), dependencies=True)
    pieces = [tasks.take(5), tasks.take(0), tasks.take(14), tasks]

    assert [len(piece) for piece in pieces] == [5, 0, 14, 1]
    found = {instance: needed for piece in pieces for instance, needed in content(piece).items()}
    assert found == {instance: needed_by(instance) for instance in range(20)}


@pytest.mark.parametrize("dependencies", [False, True])
def test_tasks_taken_out_leave_the_others_whole(dependencies: bool) -> None:
    tasks = batch(range(30), dependencies=dependencies)
    tasks.take(10)

    assert sorted(tasks.remove({3, 10, 15, 16, 29, 99})) == [10, 15, 16, 29]
    expected = [i for i in range(10, 30) if i not in (10, 15, 16, 29)]
    assert content(tasks) == {i: needed_by(i) if dependencies else [] for i in expected}


@pytest.mark.parametrize("taken", [0, 1, 2, 3])
def test_tasks_of_one_id_are_taken_out_together_and_those_that_are_gone_stay_gone(taken: int) -> None:
    queue = TaskQueue()
    queue.append(batch([5, 6]))
    queue.append(batch([5, 5, 7]))  # a scheduler at fault sends ids twice
    begun = [queue.take(1).ids[0] for _ in range(taken)]

    removed = queue.remove({5})

    assert begun + removed == [5, 6, 5, 5][:taken] + [5, 5, 5][begun.count(5) :]
    rest = [queue.take(1).ids[0] for _ in range(queue.count)]
    assert (rest, queue.count) == ([6, 7] if taken < 2 else [7], 0)


def test_the_newest_are_cut_from_the_end() -> None:
    tasks = batch(range(10), dependencies=True)
    tasks.take(2)

    assert list(tasks.take_newest(3)) == [7, 8, 9]
    assert content(tasks) == {i: needed_by(i) for i in range(2, 7)}


def test_what_a_batch_needs_is_its_function_and_all_dependencies_left() -> None:
    tasks = batch([4, 5], dependencies=True)
    assert tasks.needed_objects() == {7, 4, 5, 6}
    tasks.take(1)
    assert tasks.needed_objects() == {7, 5, 6}


def test_higher_priorities_come_first_and_requeued_tasks_before_others_of_theirs() -> None:
    queue = TaskQueue()
    queue.append(batch([1, 2]))
    queue.append(batch([3], priority=-1))
    queue.append(batch([4], priority=5))
    queue.put_back(batch([5]))

    order = []
    while queue.count:
        order += list(queue.take(1).ids)
    assert order == [4, 5, 1, 2, 3]


def test_clients_take_turns_whatever_was_sent_ahead_of_one() -> None:
    queue = TaskQueue()
    queue.append(batch([1, 2, 3, 4], client=1))
    queue.append(batch([5], client=1, dependencies=True))
    assert list(queue.take(1).ids) == [1]
    queue.append(batch([6, 7], client=2))
    queue.append(batch([8], client=3))
    queue.append(batch([9], client=1, priority=1))
    assert [queue.take(1).ids[0] for _ in range(queue.count)] == [9, 2, 6, 8, 3, 7, 4, 5]


def test_what_comes_back_from_a_processor_goes_first_whose_turn_it_may_be() -> None:
    queue = TaskQueue()
    queue.append(batch([1, 2], client=1))
    queue.append(batch([3], client=2))
    queue.put_back(batch([4], client=2))
    assert [queue.take(1).ids[0] for _ in range(queue.count)] == [4, 1, 3, 2]


def test_small_batches_that_are_alike_are_joined() -> None:
    queue = TaskQueue()
    queue.append(batch(range(10)))
    queue.take(4)
    queue.append(batch(range(10, 15)))
    queue.append(batch([16], dependencies=True))
    queue.append(batch(range(17, 21)))

    assert [len(queue.take(len(queue.head()))) for _ in range(3)] == [11, 1, 4]
    assert queue.count == 0


def test_what_has_started_before_is_not_given_back() -> None:
    queue = TaskQueue()
    queue.append(batch([1, 2]))
    queue.append(batch([3, 4]))
    queue.put_back(batch([5, 6]).with_attempt(2))
    queue.put_back(batch([7], priority=-1).with_attempt(2))

    assert list(queue.take_newest(3)) == [2, 3, 4]
    assert list(queue.take_newest(9)) == [1]
    assert list(queue.take_newest(9)) == []
    assert [queue.take(1).ids[0] for _ in range(queue.count)] == [5, 6, 7]


@pytest.mark.parametrize("seed", range(30))
def test_no_task_gets_lost_or_doubled_in_the_queue(seed: int) -> None:
    rng = random.Random(seed)
    queue = TaskQueue()
    there, next_id = set(), 0
    for _ in range(300):
        action = rng.random()
        if action < 0.3:
            ids = range(next_id, next_id + rng.randint(1, 20))
            next_id = ids.stop
            put = queue.append if rng.random() < 0.7 else queue.put_back
            put(batch(ids, rng.randint(-1, 1), rng.random() < 0.5, rng.randint(0, 2)))
            there |= set(ids)
        elif action < 0.6 and queue.count:
            taken = set(content(queue.take(rng.randint(1, len(queue.head())))))
            assert taken <= there
            there -= taken
        elif action < 0.8:
            count = rng.randint(0, 10)
            newest = queue.take_newest(count)
            assert len(newest) == min(count, len(there))
            assert there.issuperset(newest)
            there -= set(newest)
        else:
            wanted = {rng.randrange(next_id + 1) for _ in range(10)}
            assert set(queue.remove(wanted)) == wanted & there
            there -= wanted
        assert queue.count == len(there)
