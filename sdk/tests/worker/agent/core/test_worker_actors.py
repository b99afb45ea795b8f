"""Calls of actors in a worker: their processor, their order, and how they end."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

import pytest
from task_flow_bench import CANCELLED, FUNCTION, NOT_FOUND, RUNNING, SHORT_MICROSECONDS, Bench

from scaler.worker import frames
from scaler_protocol import decode_struct
from scaler_protocol import messages as m

OBJECT = 99


class ActorBench(Bench):
    """Plays the processors of a worker with one actor."""

    def call(self, ids: Sequence[int], dependencies: Any = None, **options: Any) -> None:
        self.send_tasks(ids, dependencies, options={"actor": True, **options})

    def run_all(self) -> List[Tuple[int, int]]:
        """Let everything run, one chunk after the other; returns processor and id of each, as they came."""
        order: List[Tuple[int, int]] = []
        dealt = self.dealt()
        while dealt:
            for number, chunk in dealt:
                order += [(number, each) for each in chunk.ids]
                self.start(number, chunk.first_position)
                self.finish(number, chunk, busy_microseconds=SHORT_MICROSECONDS)
            dealt = self.dealt()
        return order

    def begin(self) -> int:
        """The first call has run; returns the actor's processor."""
        self.call([1])
        ((number, _),) = self.run_all()
        self.outcomes()
        return number

    def losses(self) -> Dict[int, m.Failure]:
        found = {}
        for instance, (status, payload) in self.outcomes().items():
            assert status == m.TaskStatus.LOST
            found[instance] = decode_struct(m.Failure, payload)
        return found


def running_call(bench: ActorBench, instance: int = 2) -> Tuple[int, frames.TaskChunk]:
    """The actor runs a call, alone in its chunk."""
    bench.call([instance])
    ((number, chunk),) = bench.dealt()
    bench.start(number, chunk.first_position)
    return number, chunk


def test_all_calls_run_in_one_processor_in_their_order() -> None:
    bench = ActorBench(slots=3)
    home = bench.begin()
    for first in range(2, 500, 7):
        bench.call(range(first, first + 7))
    order = bench.run_all()
    assert [instance for _, instance in order] == list(range(2, 506))
    assert {number for number, _ in order} == {home}


def test_the_processor_of_an_actor_runs_nothing_else_and_another_takes_its_place() -> None:
    bench = ActorBench(slots=1)
    home = bench.begin()
    assert len(bench.spawned) == 2, "another one was forked"
    bench.send_tasks([10], function=FUNCTION, options={})
    assert bench.dealt()[0][0] != home


def test_an_idle_actor_takes_no_slot_and_a_running_call_takes_one() -> None:
    bench = ActorBench(slots=1)
    bench.begin()
    bench.send_tasks([10])
    ((number, chunk),) = bench.dealt()
    bench.call([11])
    assert not bench.dealt(), "the slot is taken"
    bench.finish(number, chunk)
    assert bench.dealt_ids() == [[11]]


def test_calls_and_other_tasks_take_turns_on_a_slot() -> None:
    bench = ActorBench(slots=1)
    bench.begin()
    bench.send_tasks([2])
    ((number, chunk),) = bench.dealt()
    bench.call(range(100, 110))
    bench.send_tasks(range(200, 210))
    order = []
    bench.finish(number, chunk, busy_microseconds=50_000)
    while dealt := bench.dealt():
        for number, chunk in dealt:
            order += list(chunk.ids)
            bench.finish(number, chunk, busy_microseconds=50_000)
    assert sorted(order) == [*range(100, 110), *range(200, 210)]
    assert max(order.index(200), order.index(100)) <= 2, order


def test_a_call_whose_object_is_missing_lets_the_next_ones_wait() -> None:
    bench = ActorBench()
    bench.begin()
    bench.call([2, 3, 4], [[], [OBJECT], []])
    assert bench.objects.fetched == [OBJECT]
    assert [instance for _, instance in bench.run_all()] == [2]
    bench.objects.available.add(OBJECT)
    bench.flow.on_object_available(OBJECT)
    bench.turn()
    assert [instance for _, instance in bench.run_all()] == [3, 4]


def test_a_call_whose_object_does_not_exist_is_lost_alone() -> None:
    bench = ActorBench()
    bench.begin()
    bench.call([2, 3], [[OBJECT], []])
    bench.flow.on_object_missing(OBJECT)
    bench.turn()
    assert {each: failure.kind for each, failure in bench.losses().items()} == {2: m.FailureKind.OBJECT_MISSING}
    assert [instance for _, instance in bench.run_all()] == [3]


def test_calls_that_a_processor_gives_back_keep_their_place() -> None:
    bench = ActorBench()
    bench.begin()
    bench.call(range(2, 12))
    ((number, chunk),) = bench.dealt()
    bench.call([12])
    bench.start(number, chunk.first_position)
    kept = 1
    bench.flow.on_given_back(number, [(chunk.first_position + kept, chunk.task_count - kept)])
    bench.turn()
    assert not bench.dealt(), "the actor is busy"
    bench.finish(number, chunk, stop=kept, busy_microseconds=SHORT_MICROSECONDS)
    order = bench.run_all()
    assert [instance for _, instance in order] == list(range(3, 13)) and {each for each, _ in order} == {number}


def test_the_scheduler_gets_no_calls_back() -> None:
    bench = ActorBench()
    bench.begin()
    running_call(bench)
    bench.call([3, 4])
    bench.flow.on_balance(m.BalanceRequest(request_id=1, count=10))
    bench.flow.drain()
    bench.turn()
    assert [list(message.ids) for message, _ in bench.take(m.BalanceResponse)] == [[]]


def test_all_calls_are_lost_with_the_processor_and_so_is_each_that_follows() -> None:
    bench = ActorBench()
    bench.begin()
    number, _ = running_call(bench)
    bench.call([3, 4, 5])
    bench.die(number)
    failures = bench.losses()
    assert sorted(failures) == [2, 3, 4, 5]
    assert {failure.kind for failure in failures.values()} == {m.FailureKind.ACTOR_LOST}
    assert all("SIGKILL" in failure.message for failure in failures.values())
    bench.call([6])
    assert "SIGKILL" in bench.losses()[6].message
    assert not bench.dealt(), "no other processor begins it again"


def test_an_idle_actor_is_lost_with_its_processor() -> None:
    bench = ActorBench()
    number = bench.begin()
    bench.die(number)
    bench.call([2])
    assert bench.losses()[2].kind == m.FailureKind.ACTOR_LOST
    assert bench.flow.is_empty, "a lost actor keeps no worker from leaving"


@pytest.mark.parametrize("force", [True, False])
def test_a_running_call_is_stopped_only_by_force_and_the_actor_with_it(force: bool) -> None:
    bench = ActorBench()
    bench.begin()
    number, chunk = running_call(bench)
    bench.call([3])
    bench.cancel(2, force=force)
    if not force:
        assert bench.confirmed() == {2: RUNNING}
        bench.finish(number, chunk)
        assert [instance for _, instance in bench.run_all()] == [3]
        return
    assert bench.killed == [number]
    bench.die(number)
    assert bench.confirmed() == {2: CANCELLED}
    assert "cancelled by force" in bench.losses()[3].message


def test_a_call_that_waits_is_cancelled_and_the_actor_lives() -> None:
    bench = ActorBench()
    bench.begin()
    number, chunk = running_call(bench)
    bench.call([3, 4])
    bench.cancel(3, 77, force=True)
    assert bench.confirmed() == {3: CANCELLED, 77: NOT_FOUND} and not bench.killed
    bench.finish(number, chunk)
    assert [instance for _, instance in bench.run_all()] == [4]


def test_a_call_that_takes_too_long_ends_with_that_reason_and_the_others_are_lost() -> None:
    bench = ActorBench()
    bench.begin()
    bench.call([2], time_limit_milliseconds=5000)
    ((number, chunk),) = bench.dealt()
    bench.call([3], time_limit_milliseconds=5000)
    bench.start(number, chunk.first_position)
    bench.tick(1.0)
    bench.tick(10.0)
    bench.die(number)
    failures = bench.losses()
    assert failures[2].kind == m.FailureKind.TIME_LIMIT
    assert failures[3].kind == m.FailureKind.ACTOR_LOST and "longer than its limit" in failures[3].message


def test_an_actor_ends_when_its_object_is_deleted() -> None:
    bench = ActorBench()
    number = bench.begin()
    bench.objects.available.discard(FUNCTION)
    bench.flow.on_object_deleted({FUNCTION})
    bench.turn()
    assert bench.stopped == [number] and bench.flow.is_empty
    bench.die(number)
    assert not bench.outcomes()


def test_a_running_actor_is_stopped_when_its_object_is_deleted() -> None:
    bench = ActorBench()
    bench.begin()
    number, _ = running_call(bench)
    bench.flow.on_object_deleted({FUNCTION})
    bench.turn()
    assert bench.killed == [number]
    bench.die(number)
    assert bench.losses()[2].kind == m.FailureKind.ACTOR_LOST and bench.flow.is_empty


@pytest.mark.parametrize("are_cancelled", [False, True])
def test_calls_that_come_back_from_an_actor_that_was_closed_do_not_begin_another_one(are_cancelled: bool) -> None:
    bench = ActorBench()
    bench.begin()
    bench.call([2, 3, 4])
    ((number, chunk),) = bench.dealt()
    bench.start(number, chunk.first_position)
    if are_cancelled:
        bench.cancel(3, 4)
    bench.flow.on_object_deleted({FUNCTION})
    bench.turn()
    bench.flow.on_given_back(number, [(chunk.first_position + 1, chunk.task_count - 1)])
    bench.turn()
    bench.die(number)
    assert bench.flow.is_empty
    assert {*bench.losses()} == ({2} if are_cancelled else {2, 3, 4})


def test_a_worker_with_an_actor_is_not_empty() -> None:
    bench = ActorBench()
    bench.begin()
    assert not bench.flow.is_empty
    bench.flow.drain()
    bench.call([2])
    assert [instance for _, instance in bench.run_all()] == [2], "it goes on until it is closed"


def test_the_function_of_an_actor_is_never_dropped_for_being_unused() -> None:
    bench = ActorBench()
    number = bench.begin()
    bench.kinds(number)
    bench.now += 1e6
    bench.flow.collect_garbage(bench.now, 1.0, 0)
    bench.turn()
    assert frames.FrameKind.DROP not in bench.kinds(number)
    assert FUNCTION in bench.objects.needed


def test_a_new_session_ends_the_actors_of_the_old_one() -> None:
    bench = ActorBench()
    number = bench.begin()
    bench.flow.reset()
    bench.turn()
    assert bench.killed == [number] and bench.flow.is_empty
    bench.die(number)
    bench.call([2])
    assert bench.dealt_ids() == [[2]], "the new session's scheduler gave the id to another actor"


def test_a_call_that_waits_for_other_tasks_gives_its_slot_to_them() -> None:
    bench = ActorBench(slots=1)
    bench.begin()
    number, chunk = running_call(bench)
    bench.flow.on_blocked(number)
    bench.turn()
    bench.send_tasks([50], options={"priority": 1})
    ((other, nested),) = bench.dealt()
    assert other != number
    bench.finish(other, nested)
    bench.flow.on_resumed(number)
    bench.finish(number, chunk)
    assert sorted(bench.outcomes()) == [2, 50]
