"""A whole worker's tasks, against a scheduler that does what the test tells it: run, cancelled, lost."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from fake_scheduler import FakeScheduler, StartWorker, WorkerProgram
from sdk_tasks import wait_until
from worker_gates import CANCELLED, NOT_FOUND, RUNNING, Gate, wait_at, wait_for_heartbeat

from scaler.exceptions import ProcessorDiedError, TaskTimeoutError
from scaler.worker import exit_codes
from scaler_protocol import messages as m

# Tasks ----------------------------------------------------------------------------------------------------------------


def test_many_tasks_come_back_with_their_results(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    start_worker("-n", "2")
    scheduler.welcome()
    function = scheduler.create_function(lambda x: x + 1)
    scheduler.send_calls(function, {1000 + i: (i,) for i in range(3000)})

    outcomes = scheduler.results(3000)

    assert {instance: outcome.value for instance, outcome in outcomes.items()} == {1000 + i: i + 1 for i in range(3000)}
    scheduler.assert_nothing_more()


def test_tasks_run_in_as_many_processes_as_there_are_slots(
    scheduler: FakeScheduler, start_worker: StartWorker, gate: Gate
) -> None:
    def report(path: str) -> int:
        wait(path)
        return os.getpid()

    wait = wait_at

    start_worker("-n", "3")
    scheduler.welcome()
    scheduler.send_calls(scheduler.create_function(report), dict.fromkeys(range(3), (gate.path,)))
    wait_for_heartbeat(scheduler, lambda h: sum(status.has_task for status in h.processors) == 3)
    for _ in range(3):
        gate.open()

    assert len({outcome.value for outcome in scheduler.results(3).values()}) == 3


def test_a_failure_names_its_exception(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    start_worker()
    scheduler.welcome()
    scheduler.send_calls(scheduler.create_function(lambda x: 1 // x), {1: (0,), 2: (1,)})

    outcomes = scheduler.results(2)

    assert isinstance(outcomes[1].exception, ZeroDivisionError)
    assert outcomes[2].value == 1


def test_functions_can_be_addressed_by_name(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    start_worker()
    scheduler.welcome()
    scheduler.send_calls(0, {1: (4,)}, function_name="python:math:sqrt")
    scheduler.send_calls(0, {2: ("a/b",)}, function_name="python:pathlib:PurePosixPath.is_relative_to")
    scheduler.send_calls(0, {3: ()}, function_name="python:no.such.module:function")
    scheduler.send_calls(0, {4: ()}, function_name="nonsense")

    outcomes = scheduler.results(4)

    assert outcomes[1].value == 2.0
    assert outcomes[2].failure.kind == m.FailureKind.TASK_RAISED
    assert outcomes[3].failure.kind == outcomes[4].failure.kind == m.FailureKind.FUNCTION_NOT_LOADED


def test_a_codec_that_is_not_ours_is_refused_task_by_task(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    start_worker()
    scheduler.welcome()
    function = scheduler.create_function(int)
    scheduler.send(m.Task(ids=[1, 2], payload_sizes=[2, 2], function=function, codec="json"), b"[][]")

    outcomes = scheduler.results(2)

    assert {outcome.failure.kind for outcome in outcomes.values()} == {m.FailureKind.CODEC_UNKNOWN}


def test_a_message_that_contradicts_itself_starts_a_new_session(
    scheduler: FakeScheduler, start_worker: StartWorker
) -> None:
    start_worker()
    scheduler.welcome()
    scheduler.send(m.Task(ids=[1, 2], payload_sizes=[2], function=1, codec="cloudpickle"), b"ab")

    assert scheduler.welcome().previous_session == 1


def test_the_other_event_loop_serves_as_well(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    pytest.importorskip("uvloop")
    worker = start_worker("--event-loop", "uvloop", "--exit-when-stdin-closes")
    scheduler.welcome()
    scheduler.send_calls(scheduler.create_function(lambda x: x + 1), {i: (i,) for i in range(500)})
    assert {i: outcome.value for i, outcome in scheduler.results(500).items()} == {i: i + 1 for i in range(500)}

    worker.close_stdin()
    scheduler.receive(m.DisconnectRequest)
    scheduler.send(m.DisconnectResponse())
    assert worker.wait() == 0


def test_higher_priority_runs_first(scheduler: FakeScheduler, start_worker: StartWorker, gate: Gate) -> None:
    start_worker()
    scheduler.welcome()
    blocker = scheduler.create_function(wait_at)
    function = scheduler.create_function(time.monotonic)
    scheduler.send_calls(blocker, {1: (gate.path,)})
    scheduler.send_calls(function, {2: ()})
    scheduler.send_calls(function, {3: ()}, m.TaskOptions(priority=5))
    scheduler.wait_until_read()
    gate.open()

    outcomes = scheduler.results(3)

    assert outcomes[3].value < outcomes[2].value


def test_short_tasks_behind_a_long_one_do_not_wait_for_it(
    scheduler: FakeScheduler, start_worker: StartWorker, gate: Gate
) -> None:
    start_worker("-n", "2")
    scheduler.welcome()

    def step(path: str) -> str:
        return wait(path) if path else "short"

    wait = wait_at
    function = scheduler.create_function(step)
    scheduler.send_calls(function, dict.fromkeys(range(100), ("",)))
    scheduler.results(100)  # now they are known to be short, and travel together
    scheduler.send_calls(function, {1000: (gate.path,), **{1001 + i: ("",) for i in range(200)}})

    others = scheduler.results(200)
    assert 1000 not in others
    gate.open()
    assert scheduler.result(1000).value == "went through"


def test_a_task_that_waits_for_others_gives_up_its_slot(
    scheduler: FakeScheduler, start_worker: StartWorker, gate: Gate
) -> None:
    def parent(path: str) -> str:
        from scaler import blocking

        with blocking.announced():
            return wait(path)

    wait = wait_at
    start_worker("-n", "1")
    scheduler.welcome()
    scheduler.send_calls(scheduler.create_function(parent), dict.fromkeys(range(5), (gate.path,)))
    scheduler.send_calls(scheduler.create_function(lambda: "child"), {100: ()})

    assert scheduler.result(100).value == "child"
    heartbeat = wait_for_heartbeat(scheduler, lambda h: sum(p.suspended for p in h.processors) == 5)
    assert len(heartbeat.processors) == 6
    for _ in range(5):
        gate.open()
    assert {outcome.value for outcome in scheduler.results(5).values()} == {"went through"}


def test_tasks_are_given_back_on_request_newest_first(
    scheduler: FakeScheduler, start_worker: StartWorker, gate: Gate
) -> None:
    start_worker()
    scheduler.welcome()
    scheduler.send_calls(scheduler.create_function(wait_at), dict.fromkeys(range(1, 5), (gate.path,)))
    wait_for_heartbeat(scheduler, lambda h: h.queued == 3)
    scheduler.send(m.BalanceRequest(request_id=5, count=2))

    response = scheduler.receive(m.BalanceResponse).message
    assert (response.request_id, list(response.ids)) == (5, [3, 4])
    for _ in range(2):
        gate.open()
    assert set(scheduler.results(2)) == {1, 2}
    scheduler.assert_nothing_more()


def test_what_a_task_prints_reaches_the_scheduler(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    start_worker()
    scheduler.welcome()
    scheduler.send_calls(scheduler.create_function(print), {7: ("hello",)}, m.TaskOptions(stream_output=True))

    log = scheduler.receive(m.TaskLog).message
    assert (log.id, log.stream, log.text) == (7, 1, "hello\n")
    scheduler.result(7)


def test_profiles_come_with_the_results(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    start_worker()
    scheduler.welcome()
    scheduler.send_calls(scheduler.create_function(time.sleep), {1: (0.01,)}, m.TaskOptions(profiling=True))

    result = scheduler.receive(m.TaskResult).message

    assert result.durations_microseconds[0] >= 10_000
    assert len(result.cpu_microseconds) == len(result.peak_memory_bytes) == 1


# Cancelling -----------------------------------------------------------------------------------------------------------


def test_a_queued_task_is_cancelled_and_a_running_one_is_not(
    scheduler: FakeScheduler, start_worker: StartWorker, gate: Gate
) -> None:
    start_worker()
    scheduler.welcome()
    scheduler.send_calls(scheduler.create_function(wait_at), {1: (gate.path,), 2: (gate.path,), 3: (gate.path,)})
    wait_for_heartbeat(scheduler, lambda h: h.queued == 2)
    scheduler.send(m.TaskCancel(ids=[1, 2, 99]))

    assert scheduler.confirmations(3) == {1: RUNNING, 2: CANCELLED, 99: NOT_FOUND}
    for _ in range(2):
        gate.open()
    assert set(scheduler.results(2)) == {1, 3}
    scheduler.assert_nothing_more()


def test_a_running_task_is_cancelled_by_force_and_its_neighbours_run(
    scheduler: FakeScheduler, start_worker: StartWorker, gate: Gate, tmp_path: Path
) -> None:
    def say_and_wait(path: str, running: str) -> str:
        open(running, "w").close()
        return wait(path)

    wait = wait_at
    start_worker()
    scheduler.welcome()
    calls = {number: (gate.path, str(tmp_path / f"running{number}")) for number in (1, 2)}
    scheduler.send_calls(scheduler.create_function(say_and_wait), calls)
    wait_until(tmp_path / "running1")
    scheduler.send(m.TaskCancel(ids=[1], force=True))

    stack = scheduler.receive(m.TaskLog).message
    assert (stack.id, stack.stream) == (1, 3)
    assert "in say_and_wait" in stack.text
    assert scheduler.confirmations(1) == {1: CANCELLED}
    gate.open()
    assert scheduler.result(2).value == "went through"
    scheduler.assert_nothing_more()


def test_a_task_behind_a_long_one_in_the_same_chunk_is_cancelled(
    scheduler: FakeScheduler, start_worker: StartWorker, gate: Gate
) -> None:
    start_worker()
    scheduler.welcome()

    def step(path: str) -> str:
        return wait(path) if path else "short"

    wait = wait_at
    function = scheduler.create_function(step)
    scheduler.send_calls(function, dict.fromkeys(range(100), ("",)))
    scheduler.results(100)
    scheduler.send_calls(function, {1000: (gate.path,), **{1001 + i: ("",) for i in range(20)}})
    scheduler.send(m.TaskCancel(ids=list(range(1001, 1021))))

    assert set(scheduler.confirmations(20).values()) == {CANCELLED}
    gate.open()
    scheduler.result(1000)
    scheduler.assert_nothing_more()


# Deaths ---------------------------------------------------------------------------------------------------------------


def test_a_killed_processor_loses_its_task_and_no_other(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    worker = start_worker()
    scheduler.welcome()

    def step(dies: bool) -> int:
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()

    function = scheduler.create_function(step)
    scheduler.send_calls(function, {i: (i == 50,) for i in range(100)})

    outcomes = scheduler.results(100)

    assert outcomes[50].status == m.TaskStatus.LOST
    assert isinstance(outcomes[50].exception, ProcessorDiedError)
    assert "signal 9 (SIGKILL)" in str(outcomes[50].exception)
    assert len({outcome.value for i, outcome in outcomes.items() if i != 50}) == 2
    assert worker.terminate() == 0
    assert "was ended by signal 9 (SIGKILL)" in worker.output


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's way to choose what is killed when memory runs out")
def test_if_memory_runs_out_the_system_kills_a_processor_before_its_agent(
    scheduler: FakeScheduler, start_worker: StartWorker
) -> None:
    worker = start_worker()
    scheduler.welcome()

    def score() -> int:
        with open("/proc/self/oom_score_adj") as file:
            return int(file.read())

    scheduler.send_calls(scheduler.create_function(score), {0: ()})
    agents = int(Path(f"/proc/{worker.process.pid}/oom_score_adj").read_text())
    assert scheduler.results(1)[0].value == max(agents, 300)


def test_a_task_with_retries_is_run_again_after_its_processor_died(
    scheduler: FakeScheduler, start_worker: StartWorker, tmp_path: Path
) -> None:
    start_worker()
    scheduler.welcome()

    def dies_once(path: str) -> str:
        if not os.path.exists(path):
            open(path, "w").close()
            os._exit(1)
        return "second time"

    def dies() -> None:
        os._exit(3)

    options = m.TaskOptions(retries=1)
    scheduler.send_calls(scheduler.create_function(dies_once), {1: (str(tmp_path / "mark"),)}, options)
    scheduler.send_calls(scheduler.create_function(dies), {2: ()}, options)

    outcomes = scheduler.results(2)

    assert outcomes[1].value == "second time"
    assert outcomes[2].failure.kind == m.FailureKind.PROCESSOR_DIED
    assert outcomes[2].failure.attempts == 2
    assert "exited with code 3" in outcomes[2].failure.message


def test_a_task_that_oversteps_its_time_limit_is_stopped(
    scheduler: FakeScheduler, start_worker: StartWorker, gate: Gate
) -> None:
    start_worker()
    scheduler.welcome()
    function = scheduler.create_function(wait_at)
    scheduler.send_calls(function, {1: (gate.path,)}, m.TaskOptions(time_limit_milliseconds=50, retries=3))
    scheduler.send_calls(scheduler.create_function(int), {2: ()})

    outcomes = scheduler.results(2)

    assert outcomes[1].status == m.TaskStatus.LOST
    assert isinstance(outcomes[1].exception, TaskTimeoutError)
    assert outcomes[2].value == 0


def test_the_workers_own_time_limit_stops_tasks_too(
    scheduler: FakeScheduler, start_worker: StartWorker, gate: Gate
) -> None:
    start_worker("--task-timeout-seconds", "0.05")
    scheduler.welcome()
    scheduler.send_calls(scheduler.create_function(wait_at), {1: (gate.path,)})

    assert isinstance(scheduler.result(1).exception, TaskTimeoutError)


def test_a_task_that_oversteps_its_memory_limit_is_stopped(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    def hoard() -> None:
        hoarded = []
        while True:
            hoarded.append(bytearray(b"x") * (4 << 20))
            time.sleep(0.001)

    start_worker()
    scheduler.welcome()
    options = m.TaskOptions(memory_limit_bytes=256 << 20)
    scheduler.send_calls(scheduler.create_function(hoard), {1: ()}, options)

    assert scheduler.result(1).failure.kind == m.FailureKind.MEMORY_LIMIT


def test_a_processor_that_talks_nonsense_is_replaced_and_its_task_blamed(
    scheduler: FakeScheduler, start_worker: StartWorker
) -> None:
    def talk_nonsense() -> None:
        from scaler.worker.processor.processor import current

        processor = current()
        assert processor is not None
        os.write(processor._stream.fileno(), b"\xff" * 100)
        time.sleep(1000)

    worker = start_worker()
    scheduler.welcome()
    scheduler.send_calls(scheduler.create_function(talk_nonsense), {1: ()})
    scheduler.send_calls(scheduler.create_function(int), {2: ()})

    outcomes = scheduler.results(2)

    assert outcomes[1].failure.kind == m.FailureKind.PROCESSOR_DIED
    assert outcomes[2].value == 0
    worker.terminate()
    assert "replacing it" in worker.output


def test_a_worker_without_its_fork_server_leaves(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    worker = start_worker()
    scheduler.welcome()
    fork_server = fork_server_of(worker)
    os.kill(fork_server, signal.SIGKILL)

    assert scheduler.receive(m.DisconnectRequest).message.reason == m.DisconnectReason.LEAVING
    scheduler.send(m.DisconnectResponse())
    assert worker.wait() == exit_codes.EXIT_ERROR
    assert "fork server" in worker.output
    worker.wait_until_nothing_is_left()


def fork_server_of(worker: WorkerProgram) -> int:
    for process_id in worker.processes():
        with open(f"/proc/{process_id}/stat") as file:
            if int(file.read().rpartition(")")[2].split()[1]) == worker.process.pid:
                return process_id
    raise AssertionError("no fork server")
