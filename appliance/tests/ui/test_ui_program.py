"""scaler_ui as a real process, on both interpreters."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Callable, Iterator, List
from urllib.parse import urlsplit

import pytest
from feed.played_status import PlayedScheduler
from scheduler_process import INTERPRETERS, unavailable
from ui.running import DEADLINE_SECONDS, MODULE, Program, Publishing, event

from scaler_appliance.ui.ui_options import given_token
from scaler_protocol.host.discovery import SCHEDULER, Announcement, link_to


@pytest.fixture(params=INTERPRETERS)
def interpreter(request: pytest.FixtureRequest) -> str:
    reason = unavailable(request.param)
    if reason:
        pytest.skip(reason)
    return INTERPRETERS[request.param]


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/monitor"


@pytest.fixture
def start(interpreter: str, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    started: List[Program] = []

    def start_one(*arguments: str, **environment: str) -> Program:
        program = Program(interpreter, tmp_path, *arguments, **environment)
        started.append(program)
        return program

    yield start_one
    for program in started:
        program.close()


def test_it_shows_a_cluster_that_comes_goes_and_comes_again(start: Callable[..., Program], address: str) -> None:
    program = start(address, "--port", "0")
    assert program.get("/healthz")[0] == 503
    first = Publishing(address, PlayedScheduler(workers=3))
    program.wait_for("/api/workers", lambda found: found["body"]["total"] == 3)
    stream = program.open_events("/events?page=workers")
    assert event(stream)["head"]["generation"] == 1
    first.close()
    second = Publishing(address, PlayedScheduler(workers=5, seed=1))
    try:
        while True:
            told = event(stream)
            if told["head"]["generation"] == 2:
                break
        assert told["body"]["total"] == 5
        assert program.get("/healthz")[0] == 200
        assert b"scaler_workers 5.0" in program.get("/metrics")[1]
    finally:
        second.close()


def test_browsers_and_schedulers_that_come_and_go_leave_nothing_open(
    start: Callable[..., Program], address: str
) -> None:
    """Browsers that close a page, break off within a request, say nothing, or speak no HTTP."""
    program = start(address, "--port", "0")

    def one_round(number: int) -> None:
        publishing = Publishing(address, PlayedScheduler(workers=3, seed=number))
        try:
            program.wait_for("/api/workers", lambda found: found["head"]["generation"] == number)
            connections = [program.connect() for _ in range(6)]
            for connection in connections[:3]:
                connection.request("GET", "/events?page=workers")
                event(connection.getresponse())
            for connection, data in zip(connections[3:], (b"GET /events HTTP", b"", b"\xff\0 no HTTP \r\n\r\n")):
                connection.connect()
                connection.sock.sendall(data)
            for connection in connections:
                connection.sock.close()
        finally:
            publishing.close()

    def opened() -> List[int]:
        """How many descriptors and threads it has."""
        return [len(os.listdir(f"/proc/{program.process.pid}/{kind}")) for kind in ("fd", "task")]

    for number in (1, 2):
        one_round(number)
    most = opened()
    for number in range(3, 9):
        one_round(number)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while any(now > before for now, before in zip(opened(), most)):
        assert time.monotonic() < deadline, (most, opened())
        time.sleep(0.05)


@pytest.mark.exhaustive_on_pypy
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_although_browsers_are_connected(start: Callable[..., Program], address: str, number: int) -> None:
    program = start(address, "--port", "0")
    streams = [program.open_events("/events?page=overview") for _ in range(3)]
    for stream in streams:
        event(stream)

    program.process.send_signal(number)

    assert "scaler_ui: stopped" in program.output()
    assert program.process.returncode == 0
    for stream in streams:
        while stream.readline():
            pass


def test_it_ends_although_a_browser_does_not_read(start: Callable[..., Program], address: str) -> None:
    publishing = Publishing(address, PlayedScheduler(workers=300))
    try:
        program = start(address, "--port", "0")
        program.wait_for("/api/workers", lambda found: found["body"]["total"] == 300)
        with socket.create_connection(("127.0.0.1", urlsplit(program.link).port or 0)) as lazy:
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            lazy.sendall(b"GET /events?page=workers&limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            lazy.recv(1000)
            for _ in range(3):
                event(program.open_events("/events?page=clients"))
            program.process.send_signal(signal.SIGINT)
            assert "stopped" in program.output()
            assert program.process.returncode == 0
    finally:
        publishing.close()


def test_it_ends_with_the_program_that_started_it(start: Callable[..., Program], address: str) -> None:
    program = start(address, "--port", "0", "--exit-when-stdin-closes")
    assert program.link

    assert program.process.stdin is not None
    program.process.stdin.close()
    program.process.stdin = None

    assert "stopped" in program.output()
    assert program.process.returncode == 0


@pytest.mark.exhaustive_on_pypy
def test_a_port_that_is_taken_is_told(start: Callable[..., Program], address: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        program = start(address, "--port", str(port))
        output = program.output()
    assert program.process.returncode == 1
    assert f"cannot listen at 127.0.0.1:{port}: Address already in use; use another --port" in output
    assert "Traceback" not in output


def test_it_ends_as_it_should_as_soon_as_it_says_where_it_listens(
    interpreter: str, address: str, tmp_path: Path
) -> None:
    link_file = tmp_path / "link"
    os.mkfifo(link_file)  # it blocks until this is read
    command = [interpreter, *MODULE, address, "--port", "0", "--link-file", str(link_file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "scaler_ui: listening at" in line:
                break
        process.send_signal(signal.SIGTERM)
        descriptor = os.open(link_file, os.O_RDONLY | os.O_NONBLOCK)
        assert "scaler_ui: stopped" in process.stdout.read()
    assert os.read(descriptor, 100).startswith(b"http://127.0.0.1:")
    os.close(descriptor)
    assert process.returncode == 0


@pytest.mark.exhaustive_on_pypy
@pytest.mark.parametrize("option", ["--token-file", "--link-file"])
def test_a_file_that_cannot_be_opened_is_told_with_its_option(option: str, interpreter: str, tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "file"
    command = [interpreter, *MODULE, f"ipc://{tmp_path}/m", "--port", "0", option, str(missing)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    assert f"{option} {missing}: No such file or directory" in ended.stderr
    assert ended.returncode in (1, 2) and "Traceback" not in ended.stderr


@pytest.mark.exhaustive_on_pypy
def test_a_host_that_there_is_not_is_told(start: Callable[..., Program], address: str) -> None:
    program = start(address, "--port", "0", "--host", "no-such-host.invalid", SCALER_UI_TOKEN="a" * 32)
    assert "--host no-such-host.invalid" in program.output()
    assert program.process.returncode == 1


@pytest.mark.exhaustive_on_pypy
def test_bound_elsewhere_it_prints_a_link_with_a_token_and_wants_it(
    start: Callable[..., Program], address: str
) -> None:
    program = start(address, "--port", "0", "--host", "0.0.0.0")

    _, _, token = program.link.partition("?token=")
    assert len(token) >= 32
    assert program.get("/api/workers")[0] == 401
    assert program.get(f"/api/workers?token={token}")[0] == 200
    assert program.get("/healthz")[0] == 503
    assert program._link_file.stat().st_mode & 0o777 == 0o600
    program.process.send_signal(signal.SIGTERM)
    output = program.output()
    assert f"scaler_ui: open {program._link_file.read_text().strip()}" in output
    assert sum(token in line for line in output.splitlines()) == 1


@pytest.mark.exhaustive_on_pypy
def test_a_token_comes_from_a_file_or_the_environment_and_is_printed_nowhere(
    start: Callable[..., Program], address: str, tmp_path: Path
) -> None:
    token = "a-token-of-mine-that-is-long"
    token_file = tmp_path / "token"
    token_file.write_text(f"{token}\n")
    token_file.chmod(0o600)
    for program in (
        start(address, "--port", "0", "--token-file", str(token_file)),
        start(address, "--port", "0", SCALER_UI_TOKEN=token),
    ):
        assert program.link.endswith(f"?token={token}")
        assert program.get("/metrics")[0] == 401
        assert program.get("/metrics", {"Authorization": f"Bearer {token}"})[0] == 200
        program.process.send_signal(signal.SIGTERM)
        assert token not in program.output()


@pytest.mark.parametrize(("mode", "text"), [(0o600, "at least 16"), (0o644, "other users can access it (mode 0644)")])
def test_a_token_that_others_can_read_is_refused(mode: int, text: str, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("short" if mode == 0o600 else "a-token-of-mine-that-is-long\n")
    token_file.chmod(mode)
    with pytest.raises(ValueError, match=re.escape(text)):
        given_token(str(token_file))


@pytest.mark.exhaustive_on_pypy
def test_a_proxy_logs_users_in_and_others_need_the_token(start: Callable[..., Program], address: str) -> None:
    options = ("--trusted-user-header", "X-Forwarded-User", "--trusted-proxy", "127.0.0.1")
    program = start(address, "--port", "0", *options)

    assert "?token=" in program.link
    assert program.get("/api/workers")[0] == 401
    assert program.get("/api/workers", {"X-Forwarded-User": "ada"})[0] == 200
    elsewhere = start(address, "--port", "0", *options[:-1], "10.0.0.1")
    assert elsewhere.get("/api/workers", {"X-Forwarded-User": "ada"})[0] == 401


@pytest.mark.exhaustive_on_pypy
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "no scheduler of this user was found on this host"),
        (["nowhere"], "is not a scheduler address"),
        (["ipc:///tmp/x", "--port", "70000"], "a whole number, 0 to 65535"),
        (["ipc:///tmp/x", "--token-file", "/nonexistent/token"], "/nonexistent/token"),
        (["ipc:///tmp/x", "--token-file", "/dev/null"], "it is not a regular file"),
        (["ipc:///tmp/x", "--trusted-proxy", "10.0.0.1"], "need each other"),
        (["ipc:///tmp/x", "--trusted-user-header", "X-Forwarded-User"], "need each other"),
        (
            ["ipc:///tmp/x", "--trusted-user-header", "X: Y", "--trusted-proxy", "10.0.0.1"],
            "the name of an HTTP header",
        ),
        (["ipc:///tmp/x", "--trusted-user-header", "X-User", "--trusted-proxy", "proxy"], "an IP address"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(
    start: Callable[..., Program], arguments: List[str], text: str
) -> None:
    program = start(*arguments, SCALER_RUN_DIRECTORY="/nonexistent/folder", SCALER_ADDRESS="")
    assert text in program.output()
    assert program.process.returncode == 2


@pytest.mark.exhaustive_on_pypy
def test_help_names_every_option_with_its_default(interpreter: str) -> None:
    shown = subprocess.run([interpreter, *MODULE, "-h"], capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    text = " ".join(shown.stdout.split())
    for part in (
        "where the scheduler publishes its status",
        "--port PORT",
        "default: 8081",
        "default: 127.0.0.1",
        "SCALER_UI_TOKEN",
        "--allow-actions",
        "/metrics",
    ):
        assert part in text


def test_the_scheduler_of_the_same_file_is_watched(interpreter: str, tmp_path: Path) -> None:
    path = tmp_path / "scaler.toml"
    for scheduler, watched in (
        ('address = "tcp://127.0.0.1:7001"', "ipc:///tmp/127.0.0.1_7001_monitor"),
        ('address = "tcp://127.0.0.1:7001"\nmonitor-address = "tcp://127.0.0.1:7002"', "tcp://127.0.0.1:7002"),
    ):
        path.write_text(f"[scheduler]\n{scheduler}\n[ui]\nport = 7003\n")
        command = [interpreter, *MODULE, "--config", str(path), "--print-config"]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
        assert f'monitor_address = "{watched}"' in shown.stdout
        assert "port = 7003" in shown.stdout


def test_it_finds_the_scheduler_of_this_host_and_is_found_in_turn(
    start: Callable[..., Program], address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALER_RUN_DIRECTORY", str(tmp_path / "run"))
    monkeypatch.delenv("SCALER_ADDRESS", raising=False)
    publishing = Publishing(address, PlayedScheduler(workers=3))
    try:
        with Announcement(SCHEDULER, "tcp://127.0.0.1:7001", monitor_address=address):
            program = start("--port", "0", SCALER_UI_TOKEN="t" * 20)
            assert program.link == link_to(address)
        headers = {"Authorization": f"Bearer {'t' * 20}"}
        deadline = time.monotonic() + DEADLINE_SECONDS
        while json.loads(program.get("/api/workers", headers)[1])["body"]["total"] != 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        program.process.send_signal(signal.SIGTERM)
        program.output()
        assert link_to(address) == ""
    finally:
        publishing.close()


@pytest.mark.exhaustive_on_pypy
def test_a_folder_that_others_can_read_is_not_used_and_the_page_is_there(
    start: Callable[..., Program], address: str, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir(mode=0o755)
    program = start(address, "--port", "0")
    assert program.get("/livez")[0] == 200
    program.process.send_signal(signal.SIGTERM)
    assert "it is not announced" in program.output()
