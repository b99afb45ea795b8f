"""What a worker reports while there are monitors: which processor ran which task, and what runs now. And how it
drains."""

from __future__ import annotations

from array import array
from typing import List, Tuple

from fake_scheduler import FakeScheduler, StartWorker
from task_flow_bench import SHORT_MICROSECONDS, Bench
from worker_gates import Gate, wait_at, wait_for_heartbeat

from scaler.worker.agent.core.result_messages import ResultMessages
from scaler_protocol import messages as m


def results(bench: Bench) -> list[m.TaskResult]:
    messages = [message for message, _ in bench.sent if isinstance(message, m.TaskResult)]
    bench.sent.clear()
    return messages


def runs(message: m.TaskResult) -> list[tuple[int, int, int]]:
    return list(zip(message.runs[::3], message.runs[1::3], message.runs[2::3]))


# Runs -----------------------------------------------------------------------------------------------------------------


def test_runs_are_reported_only_while_there_are_monitors() -> None:
    bench = Bench()
    for is_watched in (False, True, False):
        bench.flow.watch(is_watched)
        bench.send_tasks([10])
        ((number, chunk),) = bench.dealt()
        bench.finish(number, chunk, busy_microseconds=50)
        (message,) = results(bench)
        assert runs(message) == ([(1, 1000, 50)] if is_watched else [])


def test_each_chunk_of_a_processor_is_a_run() -> None:
    bench = Bench(slots=2)
    bench.learn(SHORT_MICROSECONDS)
    results(bench)
    bench.flow.watch(True)
    bench.send_tasks(range(2000))
    expected: List[Tuple[int, int, int]] = []
    ids: List[int] = []
    for number, chunk in bench.dealt():
        bench.finish(number, chunk, busy_microseconds=2)
        expected.append((chunk.task_count, 1000 + number, 2 * chunk.task_count))
        ids += chunk.ids
    told = results(bench)
    assert [each for message in told for each in runs(message)] == expected
    assert [task_id for message in told for task_id in message.ids] == ids
    assert all(sum(message.runs[::3]) == len(message.ids) for message in told)


def test_a_task_that_its_processor_died_of_took_the_time_until_then() -> None:
    bench = Bench()
    bench.flow.watch(True)
    bench.send_tasks([10], options={"at_most_once": True})
    ((number, chunk),) = bench.dealt()
    bench.start(number, chunk.first_position)
    bench.now += 2.5
    bench.die(number)
    (message,) = results(bench)
    assert list(message.statuses) == [m.TaskStatus.LOST]
    assert runs(message) == [(1, 1000 + number, 2_500_000)]
    assert message.busy_microseconds == 2_500_000


def test_a_task_of_a_chunk_took_no_longer_than_since_the_outcome_before_it() -> None:
    bench = Bench(slots=1)
    bench.learn(SHORT_MICROSECONDS)
    results(bench)
    bench.flow.watch(True)
    bench.send_tasks(range(50), options={"at_most_once": False, "retries": 0})
    number, chunk = bench.dealt()[0]
    assert chunk.task_count > 2
    bench.now += 10.0
    bench.finish(number, chunk, 0, 1)
    bench.start(number, chunk.first_position + 1)
    results(bench)
    bench.now += 0.5
    bench.die(number)
    lost = [each for message in results(bench) for each in runs(message) if m.TaskStatus.LOST in message.statuses]
    assert lost == [(1, 1000 + number, 500_000)]


def test_tasks_that_never_ran_took_no_time() -> None:
    bench = Bench()
    bench.flow.watch(True)
    bench.send_tasks([10], codec="unknown")
    bench.turn()
    (message,) = results(bench)
    assert runs(message) == [(1, 0, 0)]


def test_a_new_session_is_not_watched_until_it_says_so() -> None:
    bench = Bench()
    bench.flow.watch(True)
    bench.flow.reset()
    bench.send_tasks([10])
    ((number, chunk),) = bench.dealt()
    bench.finish(number, chunk)
    assert runs(*results(bench)) == []


def test_runs_are_cut_with_their_messages() -> None:
    outbox = ResultMessages()
    outbox.is_watched = True
    outbox.keep_to(100_000)
    ids, sizes = array("Q", range(50)), array("I", [4000]) * 50
    outbox.add("json", ids, sizes, bytes(4000 * 50), busy_microseconds=5000, processor=7)
    messages = [message for message, _ in outbox.drain()]
    assert len(messages) > 1
    assert all(sum(message.runs[::3]) == len(message.ids) for message in messages)
    assert sum(sum(message.runs[2::3]) for message in messages) == 5000
    assert {processor for message in messages for processor in message.runs[1::3]} == {7}


def test_a_message_that_was_begun_before_has_no_runs() -> None:
    outbox = ResultMessages()
    for is_watched in (False, True):
        outbox.is_watched = is_watched
        outbox.add("json", array("Q", [is_watched]), array("I", [0]), b"", processor=7)
    ((message, _),) = outbox.drain()
    assert len(message.ids) == 2 and not message.runs


# Whole workers --------------------------------------------------------------------------------------------------------


def test_heartbeats_tell_which_task_has_run_for_long(
    scheduler: FakeScheduler, start_worker: StartWorker, gate: Gate
) -> None:
    start_worker()
    scheduler.welcome(heartbeat_interval_milliseconds=50)
    scheduler.send_calls(scheduler.create_function(wait_at), {9: (gate.path,)})
    wait_for_heartbeat(scheduler, lambda h: h.processors[0].has_task)
    assert not scheduler.heartbeats[-1].processors[0].instance, "there are no monitors"
    scheduler.is_watched = True
    scheduler.heartbeats.clear()
    heartbeat = wait_for_heartbeat(scheduler, lambda h: h.processors[0].instance)
    assert heartbeat.processors[0].instance == 9
    first = heartbeat.processors[0].task_microseconds
    scheduler.heartbeats.clear()
    wait_for_heartbeat(scheduler, lambda h: h.processors[0].task_microseconds > first)
    gate.open()
    message = scheduler.receive(m.TaskResult).message
    assert list(message.runs[:2]) == [1, heartbeat.processors[0].process_id]
    scheduler.is_watched = False
    scheduler.heartbeats.clear()
    wait_for_heartbeat(scheduler, lambda h: not h.processors[0].instance)


# Draining -------------------------------------------------------------------------------------------------------------


def test_a_core_that_drains_starts_nothing_and_gives_back_what_has_not_begun() -> None:
    bench = Bench()
    bench.objects.available.discard(77)
    bench.send_tasks([1, 2, 3])
    bench.send_tasks([4], dependencies=[[77]])
    ((number, chunk),) = bench.dealt()
    bench.flow.drain()
    bench.turn()
    (given_back,) = [message for message, _ in bench.sent if isinstance(message, m.BalanceResponse)]
    assert sorted(given_back.ids) == [2, 3, 4] and given_back.request_id == 0
    assert not bench.flow.is_empty, "one runs"
    bench.send_tasks([5])
    assert not bench.dealt(), "and nothing that comes late is begun"
    bench.finish(number, chunk)
    assert bench.flow.is_empty


def test_a_worker_that_drains_is_not_started_again(
    scheduler: FakeScheduler, start_worker: StartWorker, gate: Gate
) -> None:
    worker = start_worker()
    scheduler.welcome()
    scheduler.send_calls(scheduler.create_function(wait_at), {1: (gate.path,), 2: (gate.path,)})
    wait_for_heartbeat(scheduler, lambda h: h.processors[0].has_task)
    scheduler.send(m.DisconnectRequest(reason=m.DisconnectReason.DRAINING, message="the operator asked"))
    assert list(scheduler.receive(m.BalanceResponse).message.ids) == [2]
    gate.open()
    assert scheduler.result(1).value == "went through"
    scheduler.receive(m.DisconnectResponse)
    assert worker.wait() == 0
    assert "finishing what runs, then leaving: the operator asked" in worker.output
