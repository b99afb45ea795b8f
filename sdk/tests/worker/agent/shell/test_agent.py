"""The worker program as users start it, against a scheduler that does what the test tells it."""

from __future__ import annotations

import importlib
import itertools
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, List

import pytest
from fake_scheduler import FakeScheduler, StartWorker
from forked_processor import TIMEOUT_SECONDS
from handshake_ends import ENDS, end_connection
from worker_gates import Gate, private_directory, wait_at, wait_for_heartbeat

from scaler.worker import exit_codes
from scaler_protocol import decode
from scaler_protocol import messages as m

# Coming and going -----------------------------------------------------------------------------------------------------


def test_the_worker_introduces_itself(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    worker = start_worker("-n", "3", "-wn", "compute", "-qs", "17", "-hi", "0.5")

    hello = scheduler.welcome()

    assert hello.role == m.Role.WORKER
    assert (hello.slots, hello.queue_size, hello.name) == (3, 17, "compute")
    assert hello.codecs == ["cloudpickle", "json", "raw"]
    assert hello.functions == ["python:*"]
    assert hello.process_id == worker.process.pid
    assert hello.heartbeat_interval_milliseconds == 500
    assert hello.previous_session == 0


def test_heartbeats_tell_about_every_processor(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    start_worker("-n", "2")
    scheduler.welcome()

    heartbeat = wait_for_heartbeat(
        scheduler, lambda h: all(p.initialized for p in h.processors) and h.latency_microseconds
    )

    assert len(heartbeat.processors) == 2
    assert all(status.resident_bytes > 0 and not status.has_task for status in heartbeat.processors)
    assert heartbeat.resident_bytes > 0
    assert heartbeat.free_bytes > 0


def test_heartbeats_of_the_scheduler_are_answered(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    start_worker()
    scheduler.welcome()
    scheduler.send(m.Heartbeat(sequence=99))

    assert scheduler.receive(m.HeartbeatEcho).message.sequence == 99


def test_a_request_to_shut_down_is_answered_and_obeyed(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    worker = start_worker("-n", "2")
    scheduler.welcome()
    scheduler.send(m.DisconnectRequest(reason=m.DisconnectReason.SHUTDOWN, message="the show is over"))

    scheduler.receive(m.DisconnectResponse)

    assert worker.wait() == 0
    assert "the show is over" in worker.output
    assert worker.processes() == []


def test_an_agent_that_stood_still_keeps_its_session(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    """Its scheduler had nothing to answer meanwhile, and gets a new term."""
    worker = start_worker()
    scheduler.welcome(timeout_milliseconds=4000)
    function = scheduler.create_function(abs)
    scheduler.send_calls(function, {1: (-1,)})
    assert pickle.loads(scheduler.result(1).payload) == 1
    worker.process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(5.0)  # longer than the time-out: there is no event to wait for, that is the point
        scheduler.drop_waiting()
    finally:
        worker.process.send_signal(signal.SIGCONT)
    assert isinstance(scheduler.receive(m.Heartbeat, m.Hello).message, m.Heartbeat)
    scheduler.send_calls(function, {2: (-2,)})
    first = scheduler.receive(m.TaskResult, m.Hello)
    assert isinstance(first.message, m.TaskResult) and list(first.message.ids) == [2]


def test_a_worker_whose_connections_end_in_the_handshake_connects_again(start_worker: StartWorker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(TIMEOUT_SECONDS)
        worker = start_worker(address=f"tcp://127.0.0.1:{listener.getsockname()[1]}")
        for where, is_reset in itertools.product(ENDS, (True, False)):
            stream, _ = listener.accept()
            stream.settimeout(TIMEOUT_SECONDS)
            with stream:
                end_connection(stream, where, is_reset)
        listener.accept()[0].close()
        assert worker.process.poll() is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_says_goodbye_and_leaves_nothing_behind(
    scheduler: FakeScheduler, start_worker: StartWorker, number: signal.Signals
) -> None:
    worker = start_worker("-n", "2")
    scheduler.welcome()
    worker.process.send_signal(number)

    assert scheduler.receive(m.DisconnectRequest).message.reason == m.DisconnectReason.LEAVING
    scheduler.send(m.DisconnectResponse())

    assert worker.wait() == 0
    assert worker.processes() == []


def test_sigterm_does_not_wait_for_a_scheduler_that_does_not_answer(
    scheduler: FakeScheduler, start_worker: StartWorker
) -> None:
    worker = start_worker()
    scheduler.welcome()

    assert worker.terminate() == 0


def test_sigterm_ends_a_worker_that_was_never_welcomed(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    worker = start_worker()
    scheduler.receive(m.Hello)

    assert worker.terminate() == 0


def test_the_worker_ends_when_its_standard_input_closes(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    worker = start_worker("--exit-when-stdin-closes")
    scheduler.welcome()
    worker.close_stdin()

    assert scheduler.receive(m.DisconnectRequest).message.reason == m.DisconnectReason.LEAVING
    scheduler.send(m.DisconnectResponse())
    assert worker.wait() == 0


def test_a_closed_standard_input_means_nothing_unless_asked(
    scheduler: FakeScheduler, start_worker: StartWorker
) -> None:
    worker = start_worker()
    worker.close_stdin()
    scheduler.welcome()
    scheduler.assert_nothing_more()


def test_killing_the_agent_leaves_no_process_and_no_file(
    scheduler: FakeScheduler, start_worker: StartWorker, gate: Gate
) -> None:
    worker = start_worker("-n", "2")
    scheduler.welcome()
    directory = private_directory(scheduler)
    assert os.path.isdir(directory)

    worker.process.kill()

    worker.wait_until_nothing_is_left()
    assert not os.path.exists(directory)


def test_subprocesses_of_tasks_end_with_the_worker(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
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


def sleepers(seconds: str) -> List[int]:
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


def test_a_refused_version_ends_the_worker_with_the_reason(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    worker = start_worker()
    scheduler.receive(m.Hello)
    refusal = m.Refusal(reason=m.RefusalReason.VERSION_MISMATCH, message="this scheduler speaks version 9 only")
    scheduler.send(refusal)

    assert worker.wait() == exit_codes.EXIT_REFUSED
    assert "VERSION_MISMATCH" in worker.output
    assert "version 9 only" in worker.output
    assert worker.processes() == []


@pytest.mark.parametrize("session", [0, 1 << 24])
def test_a_session_that_no_scheduler_grants_ends_the_worker_with_the_reason(
    scheduler: FakeScheduler, start_worker: StartWorker, session: int
) -> None:
    worker = start_worker()
    scheduler.receive(m.Hello)
    scheduler.send(scheduler.welcome_message(session=session))

    assert worker.wait() == exit_codes.EXIT_REFUSED
    assert f"grants session {session}, but sessions must be from 1 to 16777215" in worker.output
    assert worker.processes() == []


def test_no_scheduler_for_the_death_timeout_ends_the_worker(start_worker: StartWorker) -> None:
    worker = start_worker("--death-timeout-seconds", "0.3", "-hi", "0.1", address="tcp://127.0.0.1:9")

    assert worker.wait() == exit_codes.EXIT_NO_SCHEDULER
    assert "death_timeout_seconds" in worker.output


def test_an_unknown_worker_greets_again_and_forgets_what_it_had(
    scheduler: FakeScheduler, start_worker: StartWorker, gate: Gate
) -> None:
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


def test_a_silent_scheduler_is_greeted_again(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    start_worker("-hi", "0.05")
    scheduler.welcome(timeout_milliseconds=200, heartbeat_interval_milliseconds=50)

    scheduler.heartbeats.clear()
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:  # read without an answer to any heartbeat
        message = decode(scheduler.receive_raw()[1])
        if isinstance(message, m.Hello):
            assert message.previous_session == 1
            return
    raise AssertionError("no new Hello came")


# The command line -----------------------------------------------------------------------------------------------------


def test_the_log_has_the_lines_that_users_know(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    worker = start_worker("-n", "2", "-hi", "2")
    scheduler.welcome()
    wait_for_heartbeat(scheduler, lambda h: h.processors and all(p.initialized for p in h.processors))
    worker.terminate()

    lines = [line.split(": ", 1)[1] for line in worker.output.splitlines()]
    assert lines[0] == "logging to ('/dev/stdout',)"
    expected = (
        "ClusterProcess: starting 1 worker with 2 slots, heartbeat_interval_seconds=2, object_retention_seconds=3600"
    )
    assert lines[1] == expected
    assert {"Processor[0] started", "Processor[1] started"} <= set(lines)


def test_preloaded_modules_are_imported_before_any_processor_starts(
    scheduler: FakeScheduler, start_worker: StartWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "preloaded_module.py").write_text(
        "import os\nwhere = os.getpid()\nsaid = []\ndef say(word, times=1):\n    said.append(word * times)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    start_worker("--preload", "preloaded_module:say('hi', times=2)")
    scheduler.welcome()

    def look() -> Any:
        preloaded_module = importlib.import_module("preloaded_module")
        return preloaded_module.where != os.getpid(), preloaded_module.said

    scheduler.send_calls(scheduler.create_function(look), {1: ()})

    assert scheduler.result(1).value == (True, ["hihi"])


def test_a_preload_that_fails_is_named(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    worker = start_worker("--preload", "no_such_module_anywhere")

    assert worker.wait() == exit_codes.EXIT_ERROR
    assert "preload 'no_such_module_anywhere' failed: ModuleNotFoundError" in worker.output


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["-n", "0"], "expected a whole number, 1 or more, got '0'"),
        (["-n", "many"], "expected a whole number, 1 or more, got 'many'"),
        (["-n", "3", "-wn", "a,b"], "2 names for 3 slots"),
        (["--preload", "no module"], "cannot understand preload"),
        (["--heartbeat-interval", "0"], "0.01s or more, got '0'"),
        (["-lp", "/nowhere/at/all.log", "--"], "logging cannot be set up"),
    ],
)
def test_a_wrong_option_is_named(start_worker: StartWorker, options: List[str], complaint: str) -> None:
    worker = start_worker(*options, address="tcp://127.0.0.1:9")

    assert worker.wait() == 2
    assert complaint in worker.output


def test_an_address_that_is_none_is_named(start_worker: StartWorker) -> None:
    worker = start_worker(address="localhost")
    assert worker.wait() == 2
    assert "use one such as tcp://127.0.0.1:2345" in worker.output

    worker = start_worker(address="carrier-pigeon://roof")
    assert worker.wait() == 2
    assert "'carrier-pigeon://roof' is not a scheduler address" in worker.output


def test_a_standard_input_that_cannot_close_is_named(scheduler: FakeScheduler) -> None:
    arguments = [sys.executable, "-m", "scaler.worker", "--exit-when-stdin-closes", scheduler.address]
    ended = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == 2
    assert "needs a pipe" in ended.stdout


def test_nothing_that_processors_are_forked_from_imports_zmq_or_an_event_loop() -> None:
    program = (
        "import sys, scaler.worker.worker_program, scaler.worker.fork_server.fork_server\n"
        "import scaler.worker.processor.processor\n"
        "print([name for name in ('zmq', 'asyncio', 'uvloop', 'psutil') if name in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert output == "[]\n"
