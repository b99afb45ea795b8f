"""The worker program as users start it, against a scheduler that does what the test tells it."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import pytest

from scaler import payload as payloads
from scaler.exceptions import MissingObjects, ProcessorDiedError, TaskTimeoutError
from scaler.worker import agent as agent_module
from scaler_protocol import messages as m
from scaler_protocol.segments import ObjectDirectory, object_name

CANCELLED, RUNNING, NOT_FOUND = m.CancelOutcome.CANCELLED, m.CancelOutcome.RUNNING, m.CancelOutcome.NOT_FOUND


@pytest.fixture
def gate(tmp_path):
    """A pipe with a name: tasks wait in `wait_at(path)` until the test opens it."""

    class Gate:
        def __init__(self) -> None:
            self.path = str(tmp_path / "gate")
            os.mkfifo(self.path)
            self._descriptor = os.open(self.path, os.O_RDWR)  # its own reader, so that nothing written is lost

        def open(self) -> None:
            """Let one waiting task go on, or the next that will wait."""
            os.write(self._descriptor, b"x")

    return Gate()


def wait_at(path: str) -> str:
    os.read(os.open(path, os.O_RDONLY), 1)
    return "went through"


def wait_for_heartbeat(scheduler, condition) -> m.Heartbeat:
    """A heartbeat that says so."""
    for _ in range(1000):
        for heartbeat in scheduler.heartbeats:
            if condition(heartbeat):
                return heartbeat
        scheduler.heartbeats.clear()
        message = scheduler.read()
        if not isinstance(message.message, m.Heartbeat):
            scheduler.kept.append(message)
    raise AssertionError("no such heartbeat came")


# Coming and going -----------------------------------------------------------------------------------------------------


def test_the_worker_introduces_itself(scheduler, start_worker):
    worker = start_worker("-n", "3", "-wn", "compute", "-qs", "17", "-hi", "0.5")

    hello = scheduler.welcome()

    assert hello.role == m.Role.WORKER
    assert (hello.slots, hello.queue_size, hello.name) == (3, 17, "compute")
    assert hello.codecs == ["cloudpickle"]
    assert hello.process_id == worker.process.pid
    assert hello.heartbeat_interval_milliseconds == 500
    assert hello.previous_session == 0


def test_heartbeats_tell_about_every_processor(scheduler, start_worker):
    start_worker("-n", "2")
    scheduler.welcome()

    heartbeat = wait_for_heartbeat(scheduler, lambda h: all(p.initialized for p in h.processors) and h.latency_microseconds)

    assert len(heartbeat.processors) == 2
    assert all(status.resident_bytes > 0 and not status.has_task for status in heartbeat.processors)
    assert heartbeat.resident_bytes > 0
    assert heartbeat.free_bytes > 0


def test_heartbeats_of_the_scheduler_are_answered(scheduler, start_worker):
    start_worker()
    scheduler.welcome()
    scheduler.send(m.Heartbeat(sequence=99))

    assert scheduler.receive(m.HeartbeatEcho).message.sequence == 99


def test_a_request_to_shut_down_is_answered_and_obeyed(scheduler, start_worker):
    worker = start_worker("-n", "2")
    scheduler.welcome()
    scheduler.send(m.DisconnectRequest(reason=m.DisconnectReason.SHUTDOWN, message="the show is over"))

    scheduler.receive(m.DisconnectResponse)

    assert worker.wait() == 0
    assert "the show is over" in worker.output
    assert worker.processes() == []


def test_sigterm_says_goodbye_and_leaves_nothing_behind(scheduler, start_worker):
    worker = start_worker("-n", "2")
    scheduler.welcome()
    worker.process.send_signal(signal.SIGTERM)

    assert scheduler.receive(m.DisconnectRequest).message.reason == m.DisconnectReason.LEAVING
    scheduler.send(m.DisconnectResponse())

    assert worker.wait() == 0
    assert worker.processes() == []


def test_sigterm_does_not_wait_for_a_scheduler_that_does_not_answer(scheduler, start_worker):
    worker = start_worker()
    scheduler.welcome()

    assert worker.terminate() == 0


def test_sigterm_ends_a_worker_that_was_never_welcomed(scheduler, start_worker):
    worker = start_worker()
    scheduler.receive(m.Hello)

    assert worker.terminate() == 0


def test_the_worker_ends_when_its_standard_input_closes(scheduler, start_worker):
    worker = start_worker("--exit-when-stdin-closes")
    scheduler.welcome()
    worker.close_stdin()

    assert scheduler.receive(m.DisconnectRequest).message.reason == m.DisconnectReason.LEAVING
    scheduler.send(m.DisconnectResponse())
    assert worker.wait() == 0


def test_a_closed_standard_input_means_nothing_unless_asked(scheduler, start_worker):
    worker = start_worker()
    worker.close_stdin()
    scheduler.welcome()
    scheduler.assert_nothing_more()


def test_killing_the_agent_leaves_no_process_and_no_file(scheduler, start_worker, gate):
    worker = start_worker("-n", "2")
    scheduler.welcome()
    directory = private_directory(scheduler)
    assert os.path.isdir(directory)

    worker.process.kill()

    worker.wait_until_nothing_is_left()
    assert not os.path.exists(directory)


def private_directory(scheduler) -> str:
    """The worker's own object directory, learnt from a task that looks where large results are written."""

    def find() -> str:
        from scaler.worker.processor import current

        return os.path.dirname(current().next_object_path())

    scheduler.send_calls(scheduler.create_function(find), {1: ()})
    return scheduler.result(1).value


def test_subprocesses_of_tasks_end_with_the_worker(scheduler, start_worker):
    def start_sleepers(seconds: str) -> None:
        import subprocess

        subprocess.Popen(["sleep", seconds])
        if os.fork() == 0:
            os.setsid()  # a daemon, as it should be
            os.execlp("sleep", "sleep", seconds)

    seconds = str(100_000 + os.getpid())
    worker = start_worker()
    scheduler.welcome()
    scheduler.send_calls(scheduler.create_function(start_sleepers), {1: (seconds,)})
    scheduler.result(1)
    while len(sleepers(seconds)) < 2:
        time.sleep(0.005)

    assert worker.terminate() == 0

    assert sleepers(seconds) == []


def sleepers(seconds: str) -> list:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline") as file:
                    if file.read() == f"sleep\0{seconds}\0":
                        found.append(int(name))
            except OSError:
                pass
    return found


def test_a_refused_version_ends_the_worker_with_the_reason(scheduler, start_worker):
    worker = start_worker()
    scheduler.receive(m.Hello)
    refusal = m.Refusal(reason=m.RefusalReason.VERSION_MISMATCH, message="this scheduler speaks version 9 only")
    scheduler.send(refusal)

    assert worker.wait() == agent_module.EXIT_REFUSED
    assert "VERSION_MISMATCH" in worker.output
    assert "version 9 only" in worker.output
    assert worker.processes() == []


def test_no_scheduler_for_the_death_timeout_ends_the_worker(start_worker):
    worker = start_worker("--death-timeout-seconds", "0.3", "-hi", "0.1", address="tcp://127.0.0.1:9")

    assert worker.wait() == agent_module.EXIT_NO_SCHEDULER
    assert "death_timeout_seconds" in worker.output


def test_an_unknown_worker_greets_again_and_forgets_what_it_had(scheduler, start_worker, gate):
    worker = start_worker("-n", "1")
    scheduler.welcome()
    scheduler.send_calls(scheduler.create_function(wait_at), {1: (gate.path,), 2: (gate.path,)})
    wait_for_heartbeat(scheduler, lambda h: h.processors and h.processors[0].has_task)
    before = worker.processes()

    scheduler.send(m.Refusal(reason=m.RefusalReason.NOT_GREETED))
    hello = scheduler.welcome()

    assert hello.previous_session == 1
    scheduler.send_calls(scheduler.create_function(os.getpid), {1: ()})
    assert scheduler.result(1).value not in before
    scheduler.assert_nothing_more()


def test_a_silent_scheduler_is_greeted_again(scheduler, start_worker):
    start_worker("-hi", "0.05")
    scheduler.welcome(timeout_milliseconds=200, heartbeat_interval_milliseconds=50)

    scheduler.heartbeats.clear()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:  # read without an answer to any heartbeat
        peer, header = scheduler._socket.recv_multipart()[:2]
        message = agent_module_decode(header)
        if isinstance(message, m.Hello):
            assert message.previous_session == 1
            return
    raise AssertionError("no new Hello came")


def agent_module_decode(header: bytes) -> Any:
    from scaler_protocol import decode

    return decode(header)


def test_a_draining_worker_finishes_what_it_has(scheduler, start_worker, gate):
    worker = start_worker()
    scheduler.welcome()
    scheduler.send_calls(scheduler.create_function(wait_at), {1: (gate.path,), 2: (gate.path,)})
    scheduler.send(m.DisconnectRequest(reason=m.DisconnectReason.DRAINING))
    gate.open()
    assert scheduler.result(1).value == "went through"
    gate.open()

    assert scheduler.result(2).value == "went through"
    scheduler.receive(m.DisconnectResponse)
    assert worker.wait() == 0


# Tasks ----------------------------------------------------------------------------------------------------------------


def test_many_tasks_come_back_with_their_results(scheduler, start_worker):
    start_worker("-n", "2")
    scheduler.welcome()
    function = scheduler.create_function(lambda x: x + 1)
    scheduler.send_calls(function, {1000 + i: (i,) for i in range(3000)})

    outcomes = scheduler.results(3000)

    assert {instance: outcome.value for instance, outcome in outcomes.items()} == {1000 + i: i + 1 for i in range(3000)}
    scheduler.assert_nothing_more()


def test_tasks_run_in_as_many_processes_as_there_are_slots(scheduler, start_worker, gate):
    def report(path: str) -> int:
        wait(path)
        return os.getpid()

    wait = wait_at

    start_worker("-n", "3")
    scheduler.welcome()
    scheduler.send_calls(scheduler.create_function(report), {i: (gate.path,) for i in range(3)})
    wait_for_heartbeat(scheduler, lambda h: sum(status.has_task for status in h.processors) == 3)
    for _ in range(3):
        gate.open()

    assert len({outcome.value for outcome in scheduler.results(3).values()}) == 3


def test_a_failure_names_its_exception(scheduler, start_worker):
    start_worker()
    scheduler.welcome()
    scheduler.send_calls(scheduler.create_function(lambda x: 1 // x), {1: (0,), 2: (1,)})

    outcomes = scheduler.results(2)

    assert isinstance(outcomes[1].exception, ZeroDivisionError)
    assert outcomes[2].value == 1


def test_higher_priority_runs_first(scheduler, start_worker, gate):
    start_worker()
    scheduler.welcome()
    blocker = scheduler.create_function(wait_at)
    function = scheduler.create_function(time.monotonic)
    scheduler.send_calls(blocker, {1: (gate.path,)})
    scheduler.send_calls(function, {2: ()})
    scheduler.send_calls(function, {3: ()}, m.TaskOptions(priority=5))
    gate.open()

    outcomes = scheduler.results(3)

    assert outcomes[3].value < outcomes[2].value


def test_short_tasks_behind_a_long_one_do_not_wait_for_it(scheduler, start_worker, gate):
    start_worker("-n", "2")
    scheduler.welcome()

    def step(path: str) -> str:
        return wait(path) if path else "short"

    wait = wait_at
    function = scheduler.create_function(step)
    scheduler.send_calls(function, {i: ("",) for i in range(100)})
    scheduler.results(100)  # now they are known to be short, and travel together
    scheduler.send_calls(function, {1000: (gate.path,), **{1001 + i: ("",) for i in range(200)}})

    others = scheduler.results(200)
    assert 1000 not in others
    gate.open()
    assert scheduler.result(1000).value == "went through"


def test_a_task_that_waits_for_others_gives_up_its_slot(scheduler, start_worker, gate):
    def parent(path: str) -> str:
        from scaler import blocking

        with blocking.announced():
            return wait(path)

    wait = wait_at
    start_worker("-n", "1")
    scheduler.welcome()
    scheduler.send_calls(scheduler.create_function(parent), {i: (gate.path,) for i in range(5)})
    scheduler.send_calls(scheduler.create_function(lambda: "child"), {100: ()})

    assert scheduler.result(100).value == "child"
    heartbeat = wait_for_heartbeat(scheduler, lambda h: sum(p.suspended for p in h.processors) == 5)
    assert len(heartbeat.processors) == 6
    for _ in range(5):
        gate.open()
    assert {outcome.value for outcome in scheduler.results(5).values()} == {"went through"}


def test_tasks_are_given_back_on_request_newest_first(scheduler, start_worker, gate):
    start_worker()
    scheduler.welcome()
    scheduler.send_calls(scheduler.create_function(wait_at), {i: (gate.path,) for i in range(1, 5)})
    wait_for_heartbeat(scheduler, lambda h: h.queued == 3)
    scheduler.send(m.BalanceRequest(request_id=5, count=2))

    response = scheduler.receive(m.BalanceResponse).message
    assert (response.request_id, list(response.ids)) == (5, [3, 4])
    for _ in range(2):
        gate.open()
    assert set(scheduler.results(2)) == {1, 2}
    scheduler.assert_nothing_more()


def test_what_a_task_prints_reaches_the_scheduler(scheduler, start_worker):
    start_worker()
    scheduler.welcome()
    scheduler.send_calls(scheduler.create_function(print), {7: ("hello",)}, m.TaskOptions(stream_output=True))

    log = scheduler.receive(m.TaskLog).message
    assert (log.id, log.stream, log.text) == (7, 1, "hello\n")
    scheduler.result(7)


def test_profiles_come_with_the_results(scheduler, start_worker):
    start_worker()
    scheduler.welcome()
    scheduler.send_calls(scheduler.create_function(time.sleep), {1: (0.01,)}, m.TaskOptions(profiling=True))

    result = scheduler.receive(m.TaskResult).message

    assert result.durations_microseconds[0] >= 10_000
    assert len(result.cpu_microseconds) == len(result.peak_memory_bytes) == 1


# Cancelling -----------------------------------------------------------------------------------------------------------


def test_a_queued_task_is_cancelled_and_a_running_one_is_not(scheduler, start_worker, gate):
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


def test_a_running_task_is_cancelled_by_force_and_its_neighbours_run(scheduler, start_worker, gate):
    start_worker()
    scheduler.welcome()
    scheduler.send_calls(scheduler.create_function(wait_at), {1: (gate.path,), 2: (gate.path,)})
    wait_for_heartbeat(scheduler, lambda h: h.processors and h.processors[0].has_task)
    scheduler.send(m.TaskCancel(ids=[1], force=True))

    assert scheduler.confirmations(1) == {1: CANCELLED}
    gate.open()
    assert scheduler.result(2).value == "went through"
    scheduler.assert_nothing_more()


def test_a_task_behind_a_long_one_in_the_same_chunk_is_cancelled(scheduler, start_worker, gate):
    start_worker()
    scheduler.welcome()

    def step(path: str) -> str:
        return wait(path) if path else "short"

    wait = wait_at
    function = scheduler.create_function(step)
    scheduler.send_calls(function, {i: ("",) for i in range(100)})
    scheduler.results(100)
    scheduler.send_calls(function, {1000: (gate.path,), **{1001 + i: ("",) for i in range(20)}})
    scheduler.send(m.TaskCancel(ids=list(range(1001, 1021))))

    assert set(scheduler.confirmations(20).values()) == {CANCELLED}
    gate.open()
    scheduler.result(1000)
    scheduler.assert_nothing_more()


# Deaths ---------------------------------------------------------------------------------------------------------------


def test_a_killed_processor_loses_its_task_and_no_other(scheduler, start_worker):
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


def test_a_task_with_retries_is_run_again_after_its_processor_died(scheduler, start_worker, tmp_path):
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


def test_a_task_that_oversteps_its_time_limit_is_stopped(scheduler, start_worker, gate):
    start_worker()
    scheduler.welcome()
    function = scheduler.create_function(wait_at)
    scheduler.send_calls(function, {1: (gate.path,)}, m.TaskOptions(time_limit_milliseconds=50, retries=3))
    scheduler.send_calls(scheduler.create_function(int), {2: ()})

    outcomes = scheduler.results(2)

    assert outcomes[1].status == m.TaskStatus.LOST
    assert isinstance(outcomes[1].exception, TaskTimeoutError)
    assert outcomes[2].value == 0


def test_the_workers_own_time_limit_stops_tasks_too(scheduler, start_worker, gate):
    start_worker("--task-timeout-seconds", "0.05")
    scheduler.welcome()
    scheduler.send_calls(scheduler.create_function(wait_at), {1: (gate.path,)})

    assert isinstance(scheduler.result(1).exception, TaskTimeoutError)


def test_a_task_that_oversteps_its_memory_limit_is_stopped(scheduler, start_worker):
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


def test_a_worker_without_its_nursery_leaves(scheduler, start_worker):
    worker = start_worker()
    scheduler.welcome()
    nursery = nursery_of(worker)
    os.kill(nursery, signal.SIGKILL)

    assert scheduler.receive(m.DisconnectRequest).message.reason == m.DisconnectReason.LEAVING
    scheduler.send(m.DisconnectResponse())
    assert worker.wait() == agent_module.EXIT_ERROR
    assert "nursery" in worker.output
    worker.wait_until_nothing_is_left()


def nursery_of(worker) -> int:
    for process_id in worker.processes():
        with open(f"/proc/{process_id}/stat") as file:
            if int(file.read().rpartition(")")[2].split()[1]) == worker.process.pid:
                return process_id
    raise AssertionError("no nursery")


# Objects --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def directory():
    made = ObjectDirectory()
    yield made
    made.remove()


def with_reference(*args: Any) -> bytes:
    return payloads.join(payloads.dump_arguments(args, {}, None, []))


REFERENCE = payloads.ObjectReference("", 0, 0)


def send_task_with_object(scheduler, instance: int, function: int, object_id: int) -> None:
    content = with_reference(REFERENCE)
    task = m.Task(
        ids=[instance],
        payload_sizes=[len(content)],
        function=function,
        codec="cloudpickle",
        dependency_counts=[1],
        dependencies=[object_id],
    )
    scheduler.send(task, content)


def test_on_one_host_objects_are_files_and_do_not_travel(scheduler, start_worker, directory):
    start_worker()
    scheduler.welcome(object_directory=directory.path, object_directory_token=directory.token)
    assert wait_for_heartbeat(scheduler, lambda h: True).shares_object_directory
    content = payloads.join(payloads.dump(bytes(300_000)))
    object_id = scheduler.new_object_id()
    with open(directory.object_path(object_id), "wb") as file:
        file.write(content)
    scheduler.announce(object_id, len(content), m.ObjectStorage.SHARED)

    send_task_with_object(scheduler, 1, scheduler.create_function(lambda x: x + b"!"), object_id)

    created = scheduler.receive(m.ObjectInstruction).message
    outcome = scheduler.result(1)
    result_id = outcome.position
    assert list(created.ids) == [result_id]
    assert created.storages == bytes([m.ObjectStorage.SHARED])
    assert result_id >> 40 == scheduler.session
    with open(directory.object_path(result_id), "rb") as file:
        stored = file.read()
    assert list(created.sizes) == [len(stored)]
    assert payloads.load_value(stored, None) == bytes(300_000) + b"!"
    assert sorted(os.listdir(directory.path)) == sorted(["token", object_name(object_id), object_name(result_id)])
    scheduler.assert_nothing_more()


def test_a_wrong_token_means_that_nothing_is_shared(scheduler, start_worker, directory):
    start_worker()
    scheduler.welcome(object_directory=directory.path, object_directory_token=b"another token...")

    assert not wait_for_heartbeat(scheduler, lambda h: True).shares_object_directory


def serve(scheduler, object_id: int, content: bytes, chunk_bytes: int) -> int:
    """Answer requests until the object is through; the largest number of requests open at a time."""
    most_open = sent = 0
    while sent < len(content):
        requests = [scheduler.receive(m.ObjectRequest).message]
        scheduler.send(m.Heartbeat(sequence=1))  # its echo comes behind all requests made so far
        scheduler.receive(m.HeartbeatEcho)
        while any(isinstance(kept.message, m.ObjectRequest) for kept in scheduler.kept):
            requests.append(scheduler.receive(m.ObjectRequest).message)
        most_open = max(most_open, len(requests))
        for request in requests:
            assert (request.id, request.offset) == (object_id, sent)
            chunk = content[sent : sent + request.length]
            assert len(chunk) <= chunk_bytes
            scheduler.send(m.ObjectResponse(id=object_id, offset=sent, size=len(content)), chunk)
            sent += len(chunk)
    return most_open


def test_an_object_elsewhere_is_fetched_in_chunks_and_other_tasks_do_not_wait(scheduler, start_worker):
    start_worker()
    chunk_bytes = 10_000
    scheduler.welcome(limits=m.Limits(chunk_bytes=chunk_bytes))
    content = payloads.join(payloads.dump(os.urandom(95_000)))
    object_id = scheduler.new_object_id()
    scheduler.announce(object_id, len(content), m.ObjectStorage.REMOTE)
    function = scheduler.create_function(len)
    send_task_with_object(scheduler, 1, function, object_id)
    scheduler.send_calls(function, {2: ("abc",)})

    assert scheduler.result(2).value == 3
    assert serve(scheduler, object_id, content, chunk_bytes) == 4
    assert scheduler.result(1).value == 95_000

    send_task_with_object(scheduler, 3, function, object_id)  # it is there now
    assert scheduler.result(3).value == 95_000
    scheduler.assert_nothing_more()


def test_an_object_that_nobody_has_loses_its_task(scheduler, start_worker):
    start_worker()
    scheduler.welcome()
    send_task_with_object(scheduler, 1, scheduler.create_function(len), 4711)
    request = scheduler.receive(m.ObjectRequest).message
    scheduler.send(m.ObjectResponse(id=request.id, offset=0, status=m.ObjectResponseStatus.MISSING))

    outcome = scheduler.result(1)
    assert outcome.status == m.TaskStatus.LOST
    assert isinstance(outcome.exception, MissingObjects)


def test_a_deleted_object_is_forgotten_everywhere(scheduler, start_worker):
    start_worker()
    scheduler.welcome()
    function = scheduler.create_function(len)
    object_id = scheduler.create_inline(payloads.join(payloads.dump("text")))
    send_task_with_object(scheduler, 1, function, object_id)
    assert scheduler.result(1).value == 4
    scheduler.send(m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=[object_id]))

    send_task_with_object(scheduler, 2, function, object_id)
    request = scheduler.receive(m.ObjectRequest).message
    assert request.id == object_id
    scheduler.send(m.ObjectResponse(id=request.id, status=m.ObjectResponseStatus.MISSING))
    assert isinstance(scheduler.result(2).exception, MissingObjects)


def test_a_large_result_is_announced_fetched_and_only_then_reported(scheduler, start_worker):
    start_worker()
    scheduler.welcome(limits=m.Limits(chunk_bytes=100_000))
    directory = private_directory(scheduler)
    scheduler.send_calls(scheduler.create_function(bytes), {1: (250_000,), 2: (3,)})
    created = scheduler.receive(m.ObjectInstruction).message
    assert created.storages == bytes([m.ObjectStorage.REMOTE])
    assert scheduler.result(2).value == bytes(3)

    content = b""
    while len(content) < created.sizes[0]:
        scheduler.assert_nothing_more()  # no outcome yet
        scheduler.send(m.ObjectRequest(id=created.ids[0], offset=len(content), length=100_000))
        content += scheduler.receive(m.ObjectResponse).payload

    outcome = scheduler.result(1)
    assert outcome.position == created.ids[0]
    assert payloads.load_value(content, None) == bytes(250_000)
    scheduler.assert_nothing_more()
    assert os.listdir(directory) == ["token"]


def test_a_request_for_an_object_that_is_not_here_is_answered(scheduler, start_worker):
    start_worker()
    scheduler.welcome()
    scheduler.send(m.ObjectRequest(id=12345, offset=0, length=10))

    assert scheduler.receive(m.ObjectResponse).message.status == m.ObjectResponseStatus.MISSING


# The command line -----------------------------------------------------------------------------------------------------


def test_the_log_has_the_lines_that_users_know(scheduler, start_worker):
    worker = start_worker("-n", "2", "-hi", "2")
    scheduler.welcome()
    wait_for_heartbeat(scheduler, lambda h: h.processors and all(p.initialized for p in h.processors))
    worker.terminate()

    lines = [line.split(": ", 1)[1] for line in worker.output.splitlines()]
    assert lines[0] == "logging to ('/dev/stdout',)"
    expected = "ClusterProcess: starting 2 workers, heartbeat_interval_seconds=2, object_retention_seconds=3600"
    assert lines[1] == expected
    assert {"Worker[0] started", "Worker[1] started"} <= set(lines)


def test_preloaded_modules_are_imported_before_any_processor_starts(scheduler, start_worker, tmp_path, monkeypatch):
    (tmp_path / "preloaded_module.py").write_text(
        "import os\nwhere = os.getpid()\nsaid = []\ndef say(word, times=1):\n    said.append(word * times)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    start_worker("--preload", "preloaded_module:say('hi', times=2)")
    scheduler.welcome()

    def look() -> Any:
        import preloaded_module

        return preloaded_module.where != os.getpid(), preloaded_module.said

    scheduler.send_calls(scheduler.create_function(look), {1: ()})

    assert scheduler.result(1).value == (True, ["hihi"])


def test_a_preload_that_fails_is_named(scheduler, start_worker):
    worker = start_worker("--preload", "no_such_module_anywhere")

    assert worker.wait() == agent_module.EXIT_ERROR
    assert "preload 'no_such_module_anywhere' failed: ModuleNotFoundError" in worker.output


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["-n", "0"], "out of range: give 1 or more"),
        (["-n", "many"], "invalid whole number value"),
        (["-n", "3", "-wn", "a,b"], "2 names for 3 workers"),
        (["--preload", "no module"], "cannot understand preload"),
        (["--heartbeat-interval", "0"], "out of range"),
        (["-lp", "/nowhere/at/all.log", "--"], "logging cannot be set up"),
    ],
)
def test_a_wrong_option_is_named(start_worker, options, complaint):
    worker = start_worker(*options, address="tcp://127.0.0.1:9")

    assert worker.wait() == 2
    assert complaint in worker.output


def test_an_address_that_is_none_is_named(start_worker):
    worker = start_worker(address="localhost")
    assert worker.wait() == 2
    assert "write tcp://HOST:PORT" in worker.output

    worker = start_worker(address="carrier-pigeon://roof")
    assert worker.wait() == 2
    assert "cannot connect to carrier-pigeon://roof" in worker.output


def test_nothing_that_processors_are_forked_from_imports_zmq_or_an_event_loop():
    import subprocess

    program = (
        "import sys, scaler.worker.program, scaler.worker.nursery, scaler.worker.processor\n"
        "print([name for name in ('zmq', 'asyncio', 'uvloop', 'psutil') if name in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert output == "[]\n"
