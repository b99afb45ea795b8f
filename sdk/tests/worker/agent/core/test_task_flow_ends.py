"""The way of tasks that cannot run at once or end badly: objects, cancels, deaths, limits, new sessions."""

from __future__ import annotations

from task_flow_bench import (
    CANCELLED,
    FUNCTION,
    NOT_FOUND,
    RUNNING,
    SHORT_MICROSECONDS,
    Bench,
    short_tasks_on_one_processor,
)

from scaler.worker import frames
from scaler.worker.progress import FINISHED, LOADING
from scaler_protocol import decode_struct
from scaler_protocol import messages as m

# Objects on their way -------------------------------------------------------------------------------------------------


def test_tasks_wait_for_their_objects_without_blocking_others() -> None:
    bench = Bench(slots=4)
    bench.objects.available.add(30)
    bench.send_tasks([1, 2, 3], dependencies=[[31], [30], [31, 32]])

    assert bench.dealt_ids() == [[2]]
    assert sorted(bench.objects.fetched) == [31, 32]
    bench.objects.available |= {31, 32}
    bench.flow.on_object_available(31)
    bench.turn()
    assert bench.dealt_ids() == [[1]]
    bench.flow.on_object_available(32)
    bench.turn()
    assert bench.dealt_ids() == [[3]]


def test_a_batch_waits_for_its_function() -> None:
    bench = Bench(slots=1)
    bench.objects.available.discard(FUNCTION)
    bench.send_tasks([1, 2])
    assert bench.dealt() == []
    bench.objects.available.add(FUNCTION)
    bench.flow.on_object_available(FUNCTION)
    bench.turn()

    assert bench.dealt_ids() == [[1]]


def test_the_failure_of_tasks_whose_object_has_no_room_says_so() -> None:
    bench = Bench(slots=1)
    bench.send_tasks([1], dependencies=[[31]])
    bench.flow.on_no_room_for_object(31, "cannot be stored")
    bench.turn()
    failure = decode_struct(m.Failure, bench.outcomes()[1][1])
    assert (failure.kind, failure.missing_reason) == (m.FailureKind.OBJECT_MISSING, m.MissingReason.NO_ROOM)
    assert failure.message == "object 1f, which the task needs, cannot be stored"


def test_tasks_whose_object_is_missing_are_lost() -> None:
    bench = Bench(slots=1)
    bench.send_tasks([1, 2], dependencies=[[31, 32], [31]])
    bench.flow.on_object_missing(31)
    bench.turn()
    outcomes = bench.outcomes()

    assert set(outcomes) == {1, 2}
    failure = decode_struct(m.Failure, outcomes[1][1])
    assert (outcomes[1][0], failure.kind) == (m.TaskStatus.LOST, m.FailureKind.OBJECT_MISSING)
    bench.flow.on_object_available(32)
    bench.turn()
    assert bench.flow.is_empty


# Cancelling -----------------------------------------------------------------------------------------------------------


def test_queued_and_waiting_tasks_are_cancelled() -> None:
    bench = Bench(slots=1)
    bench.send_tasks(range(1, 11))
    bench.send_tasks([20, 21], dependencies=[[31], [31]])
    bench.cancel(3, 7, 10, 21)

    assert bench.confirmed() == {3: CANCELLED, 7: CANCELLED, 10: CANCELLED, 21: CANCELLED}
    assert (bench.flow.queue.count, bench.flow.waiting.count) == (6, 1)
    ran = []
    while True:
        dealt = bench.dealt()
        if not dealt:
            break
        ran.append(list(dealt[0][1].ids))
        bench.finish(*dealt[0])
    assert ran == [[1], [2], [4], [5], [6], [8], [9]]


def test_an_unknown_task_is_not_found() -> None:
    bench = Bench()
    bench.cancel(99)

    assert bench.confirmed() == {99: NOT_FOUND}


def test_that_a_task_is_not_found_is_said_after_its_outcome() -> None:
    bench, number, chunk = short_tasks_on_one_processor([10])
    bench.sent.clear()
    bench.page(number)[0] = chunk.first_position | FINISHED
    data = frames.join(frames.results_frame(first_position=chunk.first_position, busy_microseconds=1, payloads=[b"r"]))
    bench.flow.on_results(number, frames.parse_results(0, data[frames.HEADER.size :]))
    bench.cancel(10, force=True)  # in the same turn

    assert [type(message) for message, _ in bench.sent] == [m.TaskResult, m.TaskCancelConfirm]
    assert bench.confirmed() == {10: NOT_FOUND}


def test_a_running_task_is_left_alone_unless_forced() -> None:
    bench = Bench()
    bench.send_tasks([1])
    [(number, chunk)] = bench.dealt()
    bench.start(number, chunk.first_position)
    bench.cancel(1)
    assert bench.confirmed() == {1: RUNNING}
    assert bench.killed == []

    bench.cancel(1, force=True)
    assert bench.killed == [number]
    assert bench.confirmed() == {}
    bench.sent.clear()
    bench.die(number, stack="in the middle of something")
    assert [type(message) for message, _ in bench.sent] == [m.TaskLog, m.TaskCancelConfirm]
    assert bench.take(m.TaskLog) == [(m.TaskLog(id=1, stream=3, text="in the middle of something"), b"")]
    assert bench.confirmed() == {1: CANCELLED}
    assert bench.outcomes() == {}
    assert len(bench.spawned) == 2


def test_an_outcome_that_crosses_a_forced_cancel_wins() -> None:
    bench = Bench()
    bench.send_tasks([1])
    [(number, chunk)] = bench.dealt()
    bench.start(number, chunk.first_position)
    bench.cancel(1, force=True)
    bench.finish(number, chunk)

    assert [type(message) for message, _ in bench.sent] == [m.TaskCancelConfirm, m.TaskResult]
    assert bench.confirmed() == {1: RUNNING}
    bench.die(number)
    assert bench.confirmed() == {}


def test_the_neighbours_of_a_task_cancelled_by_force_run_again() -> None:
    bench, number, chunk = short_tasks_on_one_processor([10, 11, 12])
    bench.start(number, chunk.first_position + 1)
    bench.cancel(11, force=True)
    bench.die(number)

    assert bench.confirmed() == {11: CANCELLED}
    [(_, again)] = bench.dealt()
    assert list(again.ids) == [10]
    assert bench.flow.queue.count == 1
    assert bench.outcomes() == {}


def test_a_task_that_has_not_started_is_cancelled_when_it_comes_back() -> None:
    bench, number, chunk = short_tasks_on_one_processor([10, 11, 12])
    bench.start(number, chunk.first_position)
    bench.cancel(11)
    assert bench.confirmed() == {}
    assert bench.flow.needs_tick
    bench.flow.on_given_back(number, [(chunk.first_position + 1, 2)])
    bench.turn()

    assert bench.confirmed() == {11: CANCELLED}
    assert bench.flow.queue.count == 1


def test_a_task_that_starts_after_all_is_running() -> None:
    bench, number, chunk = short_tasks_on_one_processor([10, 11, 12])
    bench.start(number, chunk.first_position)
    bench.cancel(11)
    bench.start(number, chunk.first_position + 1)
    bench.tick(0.02)

    assert bench.confirmed() == {11: RUNNING}
    assert not bench.flow.needs_tick


# Deaths ---------------------------------------------------------------------------------------------------------------


def test_only_the_running_task_is_lost_with_its_processor() -> None:
    bench, number, chunk = short_tasks_on_one_processor([10, 11, 12, 13, 14])
    bench.finish(number, chunk, 0, 1)
    bench.start(number, chunk.first_position + 2)  # 11 is finished, but its outcome is gone with the processor
    bench.die(number)

    outcomes = bench.outcomes()
    assert outcomes.pop(10) == (0, b"r10")
    assert list(outcomes) == [12]
    failure = decode_struct(m.Failure, outcomes[12][1])
    assert failure.kind == m.FailureKind.PROCESSOR_DIED
    assert failure.worker == "worker under test"
    assert f"processor {1000 + number} was ended by signal 9 (SIGKILL)" in failure.message
    again = [list(part.ids) for _, part in bench.dealt()]
    assert again[0] == [11]
    assert bench.flow.queue.count + sum(map(len, again)) == 3


def test_a_processor_that_dies_between_two_tasks_loses_none() -> None:
    bench, number, chunk = short_tasks_on_one_processor([10, 11])
    bench.start(number, chunk.first_position | FINISHED)
    bench.die(number)

    assert bench.outcomes() == {}
    assert bench.flow.queue.count + sum(len(part.ids) for _, part in bench.dealt()) == 2


def test_a_task_that_must_not_run_twice_is_lost_when_it_may_have_run_and_takes_none_along() -> None:
    bench, number, chunk = short_tasks_on_one_processor([10, 11, 12], options={"at_most_once": True, "retries": 5})
    assert list(chunk.ids) == [10], "no two of them share a chunk"
    bench.start(number, chunk.first_position)
    bench.die(number)

    assert sorted(bench.outcomes()) == [10]
    assert bench.dealt_ids() == [[11]]


def test_a_task_is_retried_as_often_as_it_allows() -> None:
    bench = Bench()
    bench.send_tasks([1], options={"retries": 2})
    for attempt in (1, 2, 3):
        [(number, chunk)] = bench.dealt()
        assert chunk.attempt == attempt
        bench.start(number, chunk.first_position)
        assert bench.outcomes() == {}
        bench.die(number)

    assert bench.lost(1).attempts == 3


def test_attempts_on_other_workers_count() -> None:
    bench = Bench()
    bench.send_tasks([1], options={"retries": 2}, attempt=3)
    [(number, chunk)] = bench.dealt()
    bench.start(number, chunk.first_position)
    bench.die(number)

    assert bench.lost(1).attempts == 3


def test_chunks_that_waited_behind_are_run_elsewhere_in_order() -> None:
    bench, number, chunk = short_tasks_on_one_processor([10, 11])
    bench.send_tasks([20, 21])
    bench.dealt()
    bench.start(number, chunk.first_position)
    bench.die(number)

    assert sorted(bench.outcomes()) == [10]
    assert list(bench.dealt()[0][1].ids) == [11]


def test_a_task_whose_function_kills_its_processor_when_it_is_loaded_is_lost_and_takes_none_along() -> None:
    bench, number, chunk = short_tasks_on_one_processor([10, 11, 12])
    bench.start(number, chunk.first_position | LOADING)
    bench.die(number)

    failure = bench.lost(10)
    assert failure.kind == m.FailureKind.PROCESSOR_DIED
    assert "while it loaded the function of the task (attempt 1)" in failure.message
    [(number, chunk)] = bench.dealt()
    assert (chunk.ids[0], chunk.attempt) == (11, 1)


def test_a_task_whose_function_is_being_loaded_can_be_stopped() -> None:
    bench = Bench()
    bench.send_tasks([1])
    [(number, chunk)] = bench.dealt()
    bench.start(number, chunk.first_position | LOADING)
    bench.cancel(1, force=True)
    assert bench.killed == [number]
    bench.die(number)

    assert bench.confirmed() == {1: CANCELLED}


def test_no_task_that_takes_its_processor_along_goes_on_for_ever() -> None:
    """It ran to its end each time, and the outcome never came."""
    bench, number, chunk = short_tasks_on_one_processor([10, 11], options={"retries": 0})
    ids = []
    for attempt in (1, 2, 3, 4):
        ids.append(list(chunk.ids))
        assert chunk.attempt == attempt
        bench.start(number, chunk.first_position + chunk.task_count - 1 | FINISHED)
        bench.die(number)
        if attempt < 4:
            [(number, chunk)] = bench.dealt()

    assert ids == [[10, 11], [10], [10], [10]]
    failure = bench.lost(10)
    assert (failure.kind, failure.attempts) == (m.FailureKind.PROCESSOR_DIED, 4)
    assert "before it could send the outcome, in each of 4 attempts" in failure.message
    [(number, chunk)] = bench.dealt()
    assert list(chunk.ids) == [11]
    bench.finish(number, chunk)
    assert bench.outcomes() == {11: (0, b"r11")}


def test_what_kills_processors_at_their_start_is_not_fed_with_ever_more() -> None:
    bench = Bench(slots=1)
    for _ in range(4):
        bench.die(0)

    delays = [spawn.delay_seconds for spawn in bench.spawned]
    assert delays == [0.0, 0.5, 1.0, 2.0, 4.0]


# Limits ---------------------------------------------------------------------------------------------------------------


def test_a_task_over_its_time_limit_is_lost_and_not_retried() -> None:
    bench = Bench()
    bench.send_tasks([1], options={"time_limit_milliseconds": 1000, "retries": 9})
    [(number, chunk)] = bench.dealt()
    bench.tick(9)  # it is not running yet: its processor may have to be forked, or to load the function
    bench.start(number, chunk.first_position | LOADING)
    bench.tick(9)
    bench.start(number, chunk.first_position)
    bench.tick(0.02)
    bench.tick(0.9)
    assert bench.killed == []
    bench.tick(0.2)
    assert bench.killed == [number]
    bench.die(number, stack="in the middle of something")

    failure = bench.lost(1)
    assert (failure.kind, failure.traceback) == (m.FailureKind.TIME_LIMIT, "in the middle of something")
    bench.tick(0.02)
    assert not bench.flow.needs_tick


def test_time_in_which_the_agent_was_stopped_does_not_count() -> None:
    bench = Bench()
    bench.send_tasks([1], options={"time_limit_milliseconds": 10_000})
    [(number, chunk)] = bench.dealt()
    bench.stop(3600.0)
    bench.start(number, chunk.first_position)
    bench.tick(0.02)
    bench.tick(8.0)
    bench.stop(3600.0)
    bench.stop(3600.0)
    bench.tick(1.5)
    assert bench.killed == []
    bench.tick(1.0)
    assert bench.killed == [number]


def test_time_without_limits_to_watch_is_no_stop() -> None:
    bench = Bench()
    bench.send_tasks([1], options={"time_limit_milliseconds": 3000})
    [(number, chunk)] = bench.dealt()
    bench.start(number, chunk.first_position)
    bench.tick(0.5)
    bench.finish(number, chunk)
    bench.tick(0.02)
    assert not bench.flow.needs_tick
    bench.now += 3600.0
    bench.send_tasks([2], options={"time_limit_milliseconds": 3000})
    [(number, chunk)] = bench.dealt()
    bench.start(number, chunk.first_position)
    bench.tick(2.9)
    assert bench.killed == []
    bench.tick(1.2)
    assert bench.killed == [number]


def test_the_clock_restarts_with_each_task() -> None:
    bench, number, chunk = short_tasks_on_one_processor([10, 11, 12], options={"time_limit_milliseconds": 1000})
    for index in range(3):
        bench.start(number, chunk.first_position + index)
        bench.tick(0.6)
    assert bench.killed == []
    bench.start(number, chunk.first_position + 2 | FINISHED)
    bench.tick(5)
    assert bench.killed == []


def test_who_finished_before_the_kill_is_not_blamed_and_neither_is_the_next() -> None:
    bench, number, chunk = short_tasks_on_one_processor([10, 11], options={"time_limit_milliseconds": 1000})
    bench.start(number, chunk.first_position)
    bench.tick(0.5)
    bench.tick(1.1)
    assert bench.killed == [number]
    bench.finish(number, chunk, 0, 1)
    bench.start(number, chunk.first_position + 1)
    bench.die(number)

    assert bench.outcomes() == {10: (0, b"r10")}
    assert bench.dealt_ids() == [[11]]


def test_the_shorter_of_two_time_limits_counts() -> None:
    bench = Bench(timeout=1.0)
    bench.send_tasks([1], options={"time_limit_milliseconds": 5000})
    [(number, chunk)] = bench.dealt()
    bench.start(number, chunk.first_position)
    bench.tick(0.02)
    bench.tick(1.1)

    assert bench.killed == [number]


def test_a_task_over_its_memory_limit_is_lost() -> None:
    bench = Bench()
    bench.send_tasks([1], options={"memory_limit_bytes": 1 << 20})
    [(number, chunk)] = bench.dealt()
    bench.start(number, chunk.first_position)
    bench.resident[1000 + number] = 1 << 19
    bench.tick(0.1)
    bench.tick(0.1)
    assert bench.killed == []
    bench.resident[1000 + number] = 1 << 21
    bench.tick(0.1)
    bench.die(number)

    assert bench.lost(1).kind == m.FailureKind.MEMORY_LIMIT


# Balancing, sessions --------------------------------------------------------------------------------------------------


def test_the_newest_tasks_of_the_lowest_priority_are_given_back_first() -> None:
    bench = Bench()
    bench.send_tasks([1, 2, 3, 4])
    bench.send_tasks([5, 6], options={"priority": 1})
    bench.send_tasks([7])
    bench.flow.on_balance(m.BalanceRequest(request_id=8, count=3))
    bench.turn()

    [(message, _)] = bench.take(m.BalanceResponse)
    assert message.request_id == 8
    assert sorted(message.ids) == [3, 4, 7]
    assert bench.flow.queue.count == 3


def test_a_new_session_forgets_everything() -> None:
    bench = Bench(slots=2)
    bench.learn(SHORT_MICROSECONDS)
    bench.send_tasks([10, 11, 12])
    bench.send_tasks([20], dependencies=[[31]])
    [(number, chunk)] = bench.dealt()
    bench.flow.reset()
    bench.finish(number, chunk, 0, 1)  # was on its way
    bench.turn()

    assert bench.killed == [number]
    bench.die(number)
    assert bench.outcomes() == {}
    assert bench.dealt() == []
    assert bench.flow.is_empty
    bench.send_tasks([10])
    assert bench.dealt_ids() == [[10]]


def test_what_a_processor_gave_back_and_finished_before_a_new_session_is_ignored() -> None:
    bench, number, chunk = short_tasks_on_one_processor([10, 11, 12])
    bench.flow.reset()
    bench.flow.on_given_back(number, [(chunk.first_position + 1, 2)])  # these were on their way
    bench.finish(number, chunk, 0, 1)
    bench.turn()

    assert bench.killed == [number]
    bench.die(number)
    assert bench.outcomes() == {} and bench.flow.is_empty
    bench.send_tasks([10])
    assert bench.dealt_ids() == [[10]]


def test_printed_text_is_sent_with_the_id_of_its_task() -> None:
    bench, number, chunk = short_tasks_on_one_processor([10, 11], options={"stream_output": True})
    bench.flow.on_log(number, chunk.first_position + 1, 2, "oops\n")
    bench.turn()

    assert bench.take(m.TaskLog) == [(m.TaskLog(id=11, stream=2, text="oops\n"), b"")]


def test_no_message_carries_more_output_than_the_scheduler_takes() -> None:
    bench, number, chunk = short_tasks_on_one_processor([10], options={"stream_output": True})
    pieces = [letter * 65536 for letter in "abcdef"]
    for piece in pieces:
        bench.flow.on_log(number, chunk.first_position, 1, piece)
    bench.turn()

    texts = [message.text for message, _ in bench.take(m.TaskLog)]
    assert texts == ["".join(pieces[:4]), "".join(pieces[4:])]


def test_lines_that_follow_each_other_travel_together_and_before_the_outcome() -> None:
    bench, number, chunk = short_tasks_on_one_processor([10, 11], options={"stream_output": True})
    bench.sent.clear()
    for position, stream, text in ((0, 1, "a\n"), (0, 1, "b\n"), (0, 2, "c\n"), (1, 2, "d\n"), (1, 1, "e\n")):
        bench.flow.on_log(number, chunk.first_position + position, stream, text)
    bench.finish(number, chunk)

    assert [type(message) for message, _ in bench.sent] == [m.TaskLog] * 4 + [m.TaskResult]
    logs = [(message.id, message.stream, message.text) for message, _ in bench.take(m.TaskLog)]
    assert logs == [(10, 1, "a\nb\n"), (10, 2, "c\n"), (11, 2, "d\n"), (11, 1, "e\n")]
