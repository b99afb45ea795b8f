"""Workers that leave, as their users make them: signals, notices, time limits, `scaler drain`. No task is lost."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Callable, Iterator, List

import psutil
import pytest
from sdk_tasks import identity, logged, wait_for, wait_for_file, wait_until

from scaler import Client, Scheduler
from scaler.exceptions import WorkerDiedError
from scaler.programs import drain as drain_program

TIMEOUT_SECONDS = 30.0
PROGRAM = "from scaler.programs.worker_host import main; import sys; sys.exit(main())"


class Program:
    """`scaler_cluster`, with the supervisor that it has."""

    def __init__(self, address: str, folder: Path, *options: str, **environment: str) -> None:
        self.log = folder / f"log-{len(list(folder.glob('log-*')))}"
        self.log.touch()
        command = [sys.executable, "-c", PROGRAM, address, "-n", "1", *options, "--logging-paths", str(self.log)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def send(self, number: signal.Signals, to_all: bool = False) -> None:
        first = psutil.Process(self.process.pid)
        for each in [first, *(first.children(recursive=True) if to_all else [])]:
            each.send_signal(number)

    def exit_code(self) -> int:
        return self.process.wait(TIMEOUT_SECONDS)

    def wait_for_line(self, text: str) -> None:
        wait_for(lambda: text in logged(self.log), f"{text!r} in the log")


@pytest.fixture
def address() -> Iterator[str]:
    with Scheduler(logging_level="WARNING") as scheduler:
        yield scheduler.get_address()


@pytest.fixture
def start(address: str, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Starts workers with one slot, and waits until they have joined."""
    started: List[Program] = []

    def start_one(*options: str, **environment: str) -> Program:
        started.append(Program(address, tmp_path, *options, **environment))
        started[-1].wait_for_line("connected as session")
        return started[-1]

    yield start_one
    for program in started:
        if program.process.poll() is None:
            for each in psutil.Process(program.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
            program.process.kill()
            program.process.wait()


def append(path: str, go: str) -> str:
    """Note that it runs, and wait for a file."""
    with open(path, "a") as file:
        file.write("run\n")
    return wait_for_file(go)


def runs(path: Path) -> int:
    return path.read_text().count("run") if path.exists() else 0


@pytest.mark.parametrize("to_all", [False, True], ids=["to its first process", "to all of its processes"])
def test_sigterm_lets_what_runs_end_and_nothing_runs_twice(
    address: str, start: Callable[..., Program], tmp_path: Path, to_all: bool
) -> None:
    ran, go = tmp_path / "ran", tmp_path / "go"
    leaver = start()
    with Client(address) as client:
        once = client.options(at_most_once=True)
        running = once.submit(append, str(ran), str(go))
        queued = [once.submit(identity, number) for number in range(20)]
        wait_until(ran)
        leaver.send(signal.SIGTERM, to_all)
        leaver.wait_for_line("finishing what runs within 25 s")
        start()
        assert [future.result(TIMEOUT_SECONDS) for future in queued] == list(range(20)), "given back at once"
        assert leaver.process.poll() is None and not running.done()
        go.touch()
        assert running.result(TIMEOUT_SECONDS) == str(go)
        assert leaver.exit_code() == 0 and runs(ran) == 1


def test_a_second_ctrl_c_stops_at_once(address: str, start: Callable[..., Program], tmp_path: Path) -> None:
    ran, go = tmp_path / "ran", tmp_path / "go"
    leaver = start()
    with Client(address) as client:
        future = client.submit(append, str(ran), str(go))
        wait_until(ran)
        leaver.send(signal.SIGINT)
        leaver.wait_for_line("a second SIGTERM or Ctrl-C stops it at once")
        leaver.send(signal.SIGINT)
        assert leaver.exit_code() == 0
        start()
        wait_for(lambda: runs(ran) == 2, "the task to run elsewhere")
        go.touch()
        assert future.result(TIMEOUT_SECONDS) == str(go)


def test_what_takes_longer_than_the_time_to_drain_runs_elsewhere_or_says_why_it_was_lost(
    address: str, start: Callable[..., Program], tmp_path: Path
) -> None:
    ran, go = tmp_path / "ran", tmp_path / "go"
    leaver = start("--drain-timeout-seconds", "0.3", "-n", "2")
    with Client(address) as client:
        future = client.submit(append, str(ran), str(go))
        once = client.options(at_most_once=True).submit(append, str(ran), str(go))
        wait_for(lambda: runs(ran) == 2, "both to run")
        leaver.send(signal.SIGTERM)
        assert leaver.exit_code() == 0
        with pytest.raises(WorkerDiedError, match=r"asked to stop by SIGTERM.*\(drain_timeout_seconds\)"):
            once.result(TIMEOUT_SECONDS)
        start()
        go.touch()
        assert future.result(TIMEOUT_SECONDS) == str(go)


def test_a_large_result_that_only_its_worker_has_outlives_it(address: str, start: Callable[..., Program]) -> None:
    leaver = start()
    with Client(address) as client:
        made = client.submit(bytes, 3_000_000)
        size = client.submit(len, made)
        assert size.result(TIMEOUT_SECONDS) == 3_000_000
        leaver.send(signal.SIGTERM)
        assert leaver.exit_code() == 0
        start()
        assert client.submit(len, made).result(TIMEOUT_SECONDS) == 3_000_000
        assert len(made.result(TIMEOUT_SECONDS)) == 3_000_000


def test_a_worker_without_tasks_leaves_by_itself(start: Callable[..., Program]) -> None:
    idle = start("--idle-timeout-seconds", "0.2")
    assert idle.exit_code() == 0
    assert "no tasks for 0.2 s (idle_timeout_seconds)" in logged(idle.log)


def test_a_file_gives_notice(start: Callable[..., Program], tmp_path: Path) -> None:
    notice = tmp_path / "notice"
    worker = start("--drain-file", str(notice))
    notice.touch()
    assert worker.exit_code() == 0
    assert f"the file {notice} is there (drain_file)" in logged(worker.log)


@pytest.mark.parametrize("to_all", [False, True], ids=["to its first process", "to all of its processes"])
def test_a_signal_of_its_options_gives_notice(
    address: str, start: Callable[..., Program], tmp_path: Path, to_all: bool
) -> None:
    ran, go = tmp_path / "ran", tmp_path / "go"
    leaver = start("--drain-signal", "SIGUSR1")
    with Client(address) as client:
        future = client.options(at_most_once=True).submit(append, str(ran), str(go))
        wait_until(ran)
        leaver.send(signal.SIGUSR1, to_all)
        leaver.wait_for_line("notice by SIGUSR1 (drain_signal): finishing what runs within 25 s")
        leaver.send(signal.SIGUSR1, to_all)
        go.touch()
        assert future.result(TIMEOUT_SECONDS) == str(go)
        assert leaver.exit_code() == 0 and runs(ran) == 1


def test_an_address_gives_notice(start: Callable[..., Program]) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if is_given.is_set() else 404)
            self.end_headers()
            is_asked.set()

        def log_message(self, *_: Any) -> None:
            pass

    is_asked, is_given = threading.Event(), threading.Event()
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/instance-action"
            worker = start("--drain-url", url)
            assert is_asked.wait(TIMEOUT_SECONDS) and worker.process.poll() is None
            is_given.set()
            assert worker.exit_code() == 0
            assert f"{url} gives notice (drain_url), leaving" in logged(worker.log)
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("source", ["option", "Slurm"])
def test_a_task_that_may_take_long_waits_for_a_worker_that_stays(
    address: str, start: Callable[..., Program], source: str
) -> None:
    if source == "option":
        start("--lifetime-seconds", "600")
    else:
        start(SLURM_JOB_END_TIME=str(int(time.time()) + 600))
    with Client(address) as client:
        future = client.options(time_request="1h").submit(identity, 1)
        assert client.submit(identity, 2).result(TIMEOUT_SECONDS) == 2
        assert client.options(time_request=60).submit(identity, 3).result(TIMEOUT_SECONDS) == 3
        assert "it may take 3600 s (time_request), and no worker that could run it stays so long" in client.explain(
            future
        )
        start()
        assert future.result(TIMEOUT_SECONDS) == 1


def test_a_worker_has_left_at_the_end_of_its_life(address: str, tmp_path: Path) -> None:
    worker = Program(address, tmp_path, "--lifetime-seconds", "3")  # which may be over before it has connected
    assert worker.exit_code() == 0
    assert "its end of life is near (lifetime_seconds)" in logged(worker.log)


# scaler drain ---------------------------------------------------------------------------------------------------------


def drain(address: str, *arguments: str) -> int:
    return drain_program.main([*arguments, "--address", address])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_another_user_gives_no_notice_by_a_file(start: Callable[..., Program], tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    notice = shared / "notice"
    worker = start("--drain-file", str(notice))
    os.close(os.open(tmp_path / "made", os.O_CREAT | os.O_WRONLY))
    os.chown(tmp_path / "made", 54_321, -1)
    os.rename(tmp_path / "made", notice)
    worker.wait_for_line(f"the file {notice} is no notice (drain_file): it belongs to the user with the id 54321")
    os.chown(notice, 0, -1)
    assert worker.exit_code() == 0


def test_what_a_worker_calls_itself_controls_no_operator_s_terminal(
    address: str, start: Callable[..., Program], capsys: pytest.CaptureFixture[str]
) -> None:
    worker = start("-wn", "\x1b[2Jone\nall workers have left\r\u202e" + "x" * 1000)
    with Client(address) as client:
        (session,) = [each.session for each in client.info().workers]
    assert drain(address, str(session)) == 0
    assert worker.exit_code() == 0
    shown = capsys.readouterr().out
    assert shown.startswith("\\u001b[2Jone\\u000aall workers have left\\u000d\\u202exxx")
    assert len(shown.splitlines()) == 2 and "\x1b" not in shown and "x" * 256 not in shown


def test_an_operator_drains_workers_by_name_and_by_session(
    address: str, start: Callable[..., Program], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran, go = tmp_path / "ran", tmp_path / "go"
    first, second, third = (start("-wn", name) for name in ("one", "two", "three"))
    with Client(address) as client:
        sessions = {each.name: each.session for each in client.info().workers}
        assert drain(address, "one", str(sessions["two"])) == 0
        assert (first.exit_code(), second.exit_code()) == (0, 0)
        shown = capsys.readouterr().out
        assert f"one (session {sessions['one']}, " in shown and "has left" in shown
        future = client.submit(append, str(ran), str(go))
        wait_until(ran)
        assert drain(address, "three", "--timeout-seconds", "0.3") == 1
        assert "three (session" in (error := capsys.readouterr().err) and "still has 1 task" in error
        go.touch()
        assert future.result(TIMEOUT_SECONDS) == str(go)
        assert third.exit_code() == 0


def test_all_workers_on_a_host_are_drained(address: str, start: Callable[..., Program]) -> None:
    programs = [start(), start()]
    with Client(address) as client:
        [host] = {each.host for each in client.info().workers}
    assert drain(address, "--all-on", host) == 0
    assert [program.exit_code() for program in programs] == [0, 0]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("known", "unknown"), "no worker with the name or session 'unknown'"),
        (("twin",), "2 workers have the name 'twin': choose by session"),
        (("--all-on", "nowhere"), "no worker on the host 'nowhere' is connected; hosts with workers: "),
        (("known", "--now"), "the scheduler is protected: stop the worker where it was started, or let it drain"),
    ],
)
def test_if_it_is_not_clear_which_workers_are_meant_none_is_asked(
    address: str, start: Callable[..., Program], capsys: pytest.CaptureFixture[str], arguments: Any, text: str
) -> None:
    programs = [start("-wn", name) for name in ("known", "twin", "twin")]
    assert drain(address, *arguments) == 1
    assert text in capsys.readouterr().err
    with Client(address) as client:
        assert len(client.info().workers) == 3
    assert all(program.process.poll() is None for program in programs)
