"""The way of tasks through an agent: dealing them, and their outcomes."""

from __future__ import annotations

from array import array
from typing import Any, Dict

import pytest
from task_flow_bench import (
    CANCELLED,
    FUNCTION,
    LONG_MICROSECONDS,
    RUNNING,
    SHORT_MICROSECONDS,
    Bench,
    short_tasks_on_one_processor,
)

from scaler.worker import frames
from scaler.worker.agent.core.effects import Deliver
from scaler.worker.agent.core.processor_pool import BLOCKED_SLOT_SECONDS, MAXIMUM_SPARES, ProcessorChunk, ProcessorPool
from scaler.worker.agent.core.task_queue import HeldTasks, TaskTraits
from scaler.worker.frames import FrameError, FrameKind
from scaler.worker.progress import FINISHED
from scaler_protocol import MalformedMessageError, decode_struct
from scaler_protocol import messages as m

# Dealing --------------------------------------------------------------------------------------------------------------


def test_all_slots_are_forked_at_the_start() -> None:
    assert [spawn.number for spawn in Bench(slots=3).spawned] == [0, 1, 2]


def test_tasks_of_unknown_duration_go_one_by_one() -> None:
    bench = Bench(slots=3)
    bench.send_tasks(range(10))

    assert bench.dealt_ids() == [[0], [1], [2]]
    assert bench.flow.queue.count == 7


def test_long_tasks_go_one_by_one() -> None:
    bench = Bench(slots=2)
    bench.learn(LONG_MICROSECONDS)
    bench.send_tasks(range(10, 20))

    assert bench.dealt_ids() == [[10], [11]]


def test_short_tasks_travel_together_and_spread() -> None:
    bench = Bench(slots=4)
    bench.learn(SHORT_MICROSECONDS)
    bench.send_tasks(range(4000))

    sizes = [chunk.task_count for _, chunk in bench.dealt()]
    assert len(sizes) == 8  # one to run and one behind it for each
    assert max(sizes) <= 1000
    assert sum(sizes) <= 4000


def test_a_chunk_is_about_three_milliseconds_of_work() -> None:
    bench = Bench(slots=1)
    bench.learn(100)
    bench.send_tasks(range(1000))

    assert [chunk.task_count for _, chunk in bench.dealt()] == [30, 30]


def test_little_work_is_not_spread() -> None:
    bench = Bench(slots=4)
    bench.learn(SHORT_MICROSECONDS)
    bench.send_tasks(range(10, 20))

    assert bench.dealt_ids() == [list(range(10, 20))]


def test_a_lone_task_goes_to_the_processor_that_worked_last() -> None:
    bench = Bench(slots=3)
    bench.send_tasks([1, 2, 3])
    dealt = {chunk.ids[0]: (number, chunk) for number, chunk in bench.dealt()}
    for instance in (1, 3, 2):
        bench.finish(*dealt[instance])
    bench.send_tasks([4])

    assert [number for number, _ in bench.dealt()] == [dealt[2][0]]


def test_nothing_waits_behind_a_chunk_of_one_task() -> None:
    bench = Bench(slots=1)
    bench.learn(SHORT_MICROSECONDS)
    bench.send_tasks([2])
    bench.send_tasks([3, 4])

    assert bench.dealt_ids() == [[2]]


def test_one_chunk_waits_behind_a_chunk_of_several_tasks_and_no_more() -> None:
    bench = Bench(slots=1)
    bench.learn(SHORT_MICROSECONDS)
    for first in (10, 20, 30):
        bench.send_tasks(range(first, first + 5))

    assert bench.dealt_ids() == [list(range(10, 15)), list(range(20, 25))]


def test_tasks_with_large_arguments_make_small_chunks() -> None:
    bench = Bench(slots=1)
    bench.learn(SHORT_MICROSECONDS)
    payload = bytes(60_000)
    message = m.Task(ids=range(100), payload_sizes=[60_000] * 100, function=FUNCTION, codec="cloudpickle")
    bench.flow.on_tasks(message, payload * 100)
    bench.flow.finish_turn(0)

    deliveries = [effect for effect in bench.effects if isinstance(effect, Deliver)]
    assert max(len(frames.join(effect.buffers)) for effect in deliveries) < 1_200_000


def test_functions_and_values_are_given_once_to_each_processor() -> None:
    bench = Bench(slots=1)
    bench.objects.available |= {21, 22}
    bench.send_tasks([1], dependencies=[[21, 22]])
    number, chunk = bench.dealt()[0]
    assert bench.kinds(number) == [FrameKind.DEFINE] * 3
    bench.finish(number, chunk)
    bench.send_tasks([2], dependencies=[[22, 21]])

    number, chunk = bench.dealt()[0]
    assert list(chunk.dependencies) == [22, 21]
    assert bench.kinds(number) == []


def test_objects_unused_for_long_are_dropped_and_defined_again() -> None:
    bench = Bench(slots=1)
    bench.send_tasks([1])
    bench.finish(*bench.dealt()[0])
    bench.kinds(0)
    bench.flow.collect_garbage(bench.now + 10, 3600, 1 << 30)
    bench.turn()
    assert bench.kinds(0) == [FrameKind.COLLECT_GARBAGE]
    bench.flow.collect_garbage(bench.now + 3601, 3600, 1 << 30)
    bench.turn()
    assert bench.kinds(0) == [FrameKind.DROP, FrameKind.COLLECT_GARBAGE]
    bench.send_tasks([2])

    bench.dealt()
    assert bench.kinds(0) == [FrameKind.DEFINE]


def test_deleted_objects_are_dropped_by_those_who_have_them() -> None:
    bench = Bench(slots=2)
    bench.send_tasks([1])
    (number, _) = bench.dealt()[0]
    bench.kinds(number)
    bench.flow.on_object_deleted({FUNCTION, 99})
    bench.turn()

    assert bench.kinds(number) == [FrameKind.DROP]
    assert bench.kinds(1 - number) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"payload_sizes": [4, 4]},
        {"payload_sizes": [5]},
        {"dependency_counts": [1]},
        {"dependencies": [3]},
        {"dependency_counts": [1, 1], "dependencies": [3, 4]},
    ],
)
def test_a_message_that_contradicts_itself_is_named(fields: Dict[str, Any]) -> None:
    message = m.Task(**{"ids": [1], "payload_sizes": [4], "function": FUNCTION, "codec": "c", **fields})
    with pytest.raises(MalformedMessageError, match=r"^Task: "):
        Bench().flow.on_tasks(message, b"1234")


# Outcomes ------------------------------------------------------------------------------------------------------------


def test_one_message_carries_what_several_processors_delivered() -> None:
    bench = Bench(slots=2)
    bench.send_tasks([1, 2])
    for number, chunk in bench.dealt():
        data = frames.join(
            frames.results_frame(first_position=chunk.first_position, busy_microseconds=5, payloads=[b"x"])
        )
        bench.flow.on_results(number, frames.parse_results(0, data[frames.HEADER.size :]))
    bench.turn()

    [(message, payload)] = bench.take(m.TaskResult)
    assert sorted(message.ids) == [1, 2]
    assert (message.codec, message.busy_microseconds, payload) == ("cloudpickle", 10, b"xx")
    assert not message.statuses
    assert not message.objects


def test_long_and_short_tasks_do_not_share_a_message() -> None:
    bench = Bench(slots=2)
    bench.send_tasks([1, 2])
    for (number, chunk), busy in zip(bench.dealt(), (3, 80_000)):
        data = frames.join(
            frames.results_frame(first_position=chunk.first_position, busy_microseconds=busy, payloads=[b"x"])
        )
        bench.flow.on_results(number, frames.parse_results(0, data[frames.HEADER.size :]))
    bench.turn()

    assert sorted(message.busy_microseconds for message, _ in bench.take(m.TaskResult)) == [3, 80_000]


def test_statuses_appear_when_a_task_failed() -> None:
    bench = Bench(slots=1)
    bench.learn(SHORT_MICROSECONDS)
    bench.send_tasks([10, 11, 12])
    number, chunk = bench.dealt()[0]
    bench.finish(number, chunk, 0, 1)
    bench.finish(number, chunk, 1, 3, statuses=bytes([m.TaskStatus.FAILED, 0]), payloads=[b"why", b"r12"])

    assert bench.outcomes() == {10: (0, b"r10"), 11: (m.TaskStatus.FAILED, b"why"), 12: (0, b"r12")}


def test_unexpected_outcomes_are_an_error_of_the_processor() -> None:
    bench = Bench(slots=1)
    bench.learn(SHORT_MICROSECONDS)
    with pytest.raises(FrameError):
        bench.flow.on_results(0, frames.Results(2, 0, array("I", [0]), b"", b"", None, memoryview(b"")))
    bench.send_tasks([10, 11])
    [(number, chunk)] = bench.dealt()
    for first, count in [(chunk.first_position + 1, 1), (chunk.first_position, 3)]:
        with pytest.raises(FrameError):
            sizes = array("I", [0] * count)
            bench.flow.on_results(number, frames.Results(first, 0, sizes, b"", b"", None, memoryview(b"")))


def test_a_large_result_is_reported_with_its_neighbours_when_the_scheduler_has_it() -> None:
    bench = Bench(slots=1)
    bench.learn(SHORT_MICROSECONDS)
    bench.send_tasks([10, 11, 12])
    number, chunk = bench.dealt()[0]
    payloads = [b"small", frames.large_result(1 << 20, "/dev/shm/new-1"), b"also small"]
    bench.page(number)[0] = chunk.first_position + 2 | FINISHED
    results = frames.Results(
        chunk.first_position,
        0,
        array("I", map(len, payloads)),
        b"",
        bytes([0, 1, 0]),
        None,
        memoryview(b"".join(payloads)),
    )
    bench.flow.on_results(number, results)
    assert bench.objects.adopted == [("/dev/shm/new-1", 1 << 20)]
    bench.flow.on_object_served(5001)
    bench.turn()

    [(message, payload)] = bench.take(m.TaskResult)
    assert list(message.ids) == [10, 12, 11]
    assert list(message.objects) == [0, 0, 5001]
    assert list(message.payload_sizes) == [5, 10, 0]
    assert payload == b"smallalso small"


def test_a_result_that_the_scheduler_does_not_take_fails_its_task() -> None:
    bench = Bench(slots=1)
    bench.objects.maximum_object_bytes = 100
    bench.send_tasks([1])
    number, chunk = bench.dealt()[0]
    bench.finish(number, chunk, payloads=[frames.large_result(101, "/dev/shm/new-1")], large=b"\x01")

    assert bench.outcomes() == {1: (m.TaskStatus.FAILED, b"101 of 100 bytes, attempt 1")}
    assert bench.flow.is_empty


def test_a_processor_that_waits_twice_in_a_moment_keeps_one_slot() -> None:
    pool = ProcessorPool(2, lambda number: memoryview(array("Q", [0])), [])
    pool.fill()
    state = pool.take_idle(0)
    assert state is not None
    traits = TaskTraits(FUNCTION, "c")
    state.chunks.append(ProcessorChunk(HeldTasks(traits, array("Q", [1]), array("I", [0]), b""), 1))
    for now in (1.0, 1.01):
        pool.suspend(state)
        pool.begin_turn(now)
        pool.resume(state)
    pool.suspend(state)
    assert pool.take_idle(0) is not None  # the other slot
    assert pool.take_idle(0) is None


def test_a_large_result_elsewhere_is_reported_when_it_was_fetched() -> None:
    bench = Bench(slots=1)
    bench.send_tasks([1])
    number, chunk = bench.dealt()[0]
    bench.finish(number, chunk, payloads=[frames.large_result(1 << 20, "/dev/shm/new-1")], large=b"\x01")
    assert bench.outcomes() == {}
    assert not bench.flow.is_empty
    bench.cancel(1)
    assert bench.confirmed() == {1: RUNNING}

    bench.flow.on_object_served(5001)
    bench.turn()

    [(message, _)] = bench.take(m.TaskResult)
    assert (list(message.ids), list(message.objects)) == ([1], [5001])
    assert bench.flow.is_empty


def test_a_large_result_that_is_gone_before_it_was_fetched_loses_its_task() -> None:
    bench = Bench(slots=1)
    bench.send_tasks([1])
    number, chunk = bench.dealt()[0]
    bench.finish(number, chunk, payloads=[frames.large_result(1 << 20, "/dev/shm/new-1")], large=b"\x01")
    assert bench.outcomes() == {}

    bench.flow.on_object_unserved(5001)
    bench.turn()

    [(message, payload)] = bench.take(m.TaskResult)
    assert (list(message.ids), list(message.statuses)) == ([1], [m.TaskStatus.LOST])
    assert decode_struct(m.Failure, payload).kind == m.FailureKind.OBJECT_MISSING
    assert bench.flow.is_empty


def test_profiles_stay_with_their_tasks() -> None:
    bench = Bench(slots=1)
    bench.learn(SHORT_MICROSECONDS)
    bench.send_tasks([10, 11], options={"profiling": True})
    number, chunk = bench.dealt()[0]
    profiles = tuple(array("Q", column) for column in ([1, 2], [3, 4], [5, 6]))
    bench.finish(number, chunk, profiles=profiles)

    [(message, _)] = bench.take(m.TaskResult)
    assert list(message.durations_microseconds) == [1, 2]
    assert list(message.cpu_microseconds) == [3, 4]
    assert list(message.peak_memory_bytes) == [5, 6]


# Given back -----------------------------------------------------------------------------------------------------------


def test_tasks_given_back_run_elsewhere_before_all_others() -> None:
    bench, number, chunk = short_tasks_on_one_processor([10, 11, 12, 13], slots=2)
    bench.start(number, chunk.first_position + 1)
    bench.finish(number, chunk, 0, 1)
    bench.start(number, chunk.first_position + 1)
    bench.flow.on_given_back(number, [(chunk.first_position + 2, 2)])
    bench.turn()

    [(other, rest)] = bench.dealt()
    assert other != number
    assert list(rest.ids) == [12, 13]
    assert FrameKind.SETTLED in bench.kinds(number)
    bench.finish(number, chunk, 1, 2)
    assert bench.outcomes() == {10: (0, b"r10"), 11: (0, b"r11")}


def test_nothing_is_dealt_to_a_processor_that_has_handed_over() -> None:
    bench, number, chunk = short_tasks_on_one_processor([10, 11, 12])
    bench.flow.on_given_back(number, [(chunk.first_position + 1, 2)])
    bench.send_tasks([20, 21])
    assert bench.dealt() == []

    bench.finish(number, chunk, 0, 1)
    assert bench.dealt_ids() == [[11, 12, 20, 21]]


def test_a_whole_chunk_that_waited_behind_is_given_back() -> None:
    bench, number, chunk = short_tasks_on_one_processor([10, 11])
    bench.send_tasks([20, 21])
    [(_, second)] = bench.dealt()
    bench.flow.on_given_back(number, [(chunk.first_position + 1, 1)])
    bench.flow.on_given_back(number, [(second.first_position, 2)])
    bench.finish(number, chunk, 0, 1)

    assert bench.dealt_ids() == [[11], [20, 21]]
    assert bench.outcomes() == {10: (0, b"r10")}


# Waiting for other tasks ----------------------------------------------------------------------------------------------


def test_a_suspended_processor_makes_room_for_a_spare() -> None:
    bench = Bench(slots=1)
    bench.send_tasks([1, 2])
    [(number, _)] = bench.dealt()
    bench.block(number)

    assert [spawn.number for spawn in bench.spawned] == [0, 1]
    assert bench.flow.pool.suspended == 1
    [(spare, chunk)] = bench.dealt()
    assert (spare, list(chunk.ids)) == (1, [2])


def test_the_slot_of_a_blocked_task_is_reserved_for_a_while_for_the_tasks_that_it_waits_for() -> None:
    bench = Bench(slots=1)
    bench.send_tasks([1, 2], options={"priority": 3})
    [(parent, _)] = bench.dealt()
    bench.flow.on_blocked(parent)
    bench.turn()
    assert bench.dealt() == [] and bench.flow.needs_tick, "2 is not more urgent than the task that waits"

    bench.send_tasks([10], options={"priority": 4})
    [(number, child)] = bench.dealt()
    assert list(child.ids) == [10]
    bench.finish(number, child)
    assert bench.dealt() == []
    bench.tick(2 * BLOCKED_SLOT_SECONDS)
    [(number, other)] = bench.dealt()
    assert list(other.ids) == [2] and not bench.flow.needs_tick


def test_a_resumed_processor_takes_its_slot_back() -> None:
    bench = Bench(slots=1)
    bench.send_tasks([1, 2])
    [(number, chunk)] = bench.dealt()
    bench.block(number)
    [(spare, second)] = bench.dealt()
    bench.flow.on_resumed(number)
    bench.finish(spare, second)
    bench.send_tasks([3])
    assert bench.dealt() == []  # the spare is idle, but its slot is not its own any more

    bench.finish(number, chunk)
    assert len(bench.dealt()) == 1
    assert len(bench.spawned) == 2


def test_a_task_that_ends_while_suspended_frees_its_processor() -> None:
    bench = Bench(slots=1)
    bench.send_tasks([1])
    [(number, chunk)] = bench.dealt()
    bench.flow.on_blocked(number)
    bench.finish(number, chunk)
    bench.flow.on_resumed(number)

    assert bench.flow.pool.suspended == 0
    assert bench.flow.pool.busy == 0


def test_a_suspended_task_that_is_cancelled_is_not_run_again() -> None:
    bench = Bench(slots=1)
    bench.send_tasks([1])
    [(number, chunk)] = bench.dealt()
    bench.start(number, chunk.first_position)
    bench.block(number)
    bench.cancel(1, force=True)
    bench.die(number)

    assert bench.confirmed() == {1: CANCELLED}
    bench.tick(1.0)
    assert bench.dealt() == [] and bench.flow.is_empty and bench.flow.pool.suspended == 0


def test_a_suspended_processor_that_dies_is_not_replaced_twice() -> None:
    bench = Bench(slots=1)
    bench.send_tasks([1])
    [(number, chunk)] = bench.dealt()
    bench.start(number, chunk.first_position)
    bench.flow.on_blocked(number)
    bench.turn()
    bench.die(number)

    assert len(bench.spawned) == 2
    assert bench.flow.pool.suspended == 0
    assert bench.lost(1).kind == m.FailureKind.PROCESSOR_DIED


def test_spares_beyond_a_few_are_let_go() -> None:
    bench = Bench(slots=1)
    count = MAXIMUM_SPARES + 5
    chunks = []
    for instance in range(count):
        bench.send_tasks([instance])
        [(number, chunk)] = bench.dealt()
        bench.block(number)
        chunks.append((number, chunk))
    for number, chunk in chunks:
        bench.finish(number, chunk)
    bench.flow.collect_garbage(bench.now, 3600, 0)
    bench.turn()

    assert len(bench.stopped) == 5
    for number in bench.stopped:
        bench.die(number, "exited with code 0")
    assert len(bench.flow.pool) == 1 + MAXIMUM_SPARES
