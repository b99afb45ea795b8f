"""`scaler dev`: everything on one machine, by one command."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Iterator, List

import psutil
import pytest

from scaler import Client
from scaler.programs.__main__ import main
from scaler_protocol.host.discovery import SCHEDULER, Announcement, entries
from scaler_protocol.recording.recording_file import Recording

TIMEOUT_SECONDS = 60

USER_INTERFACE = """
import sys
from pathlib import Path
link_file = sys.argv[sys.argv.index("--link-file") + 1]
Path(link_file).write_text(f"http://127.0.0.1:8081/?token=secret&watches={sys.argv[1]}\\n")
sys.stdin.read()
"""


class Dev:
    """A running `scaler dev`.

    Parameters:
        options: of its command line.
    """

    def __init__(self, *options: str) -> None:
        command = [sys.executable, "-m", "scaler.programs", "dev", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def lines(self) -> Iterator[str]:
        """What it prints, as it comes, until it ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield line.rstrip("\n")

    def greeting(self) -> List[str]:
        """All that it prints until it is ready."""
        read = []
        for line in self.lines():
            read.append(line)
            if line == "Ctrl-C stops everything.":
                return read
        raise AssertionError("\n".join(["it ended instead:", *read]))

    def parts(self) -> List[psutil.Process]:
        return list(psutil.Process(self.process.pid).children(recursive=True))

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(TIMEOUT_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where schedulers of this test can be found."""
    monkeypatch.setenv("SCALER_RUN_DIRECTORY", str(tmp_path / "run"))
    monkeypatch.delenv("SCALER_ADDRESS", raising=False)
    return tmp_path / "run"


@pytest.fixture
def started() -> Iterator[List[Dev]]:
    running: List[Dev] = []
    yield running
    for dev in running:
        dev.end()


def start(started: List[Dev], *options: str) -> Dev:
    dev = Dev("--port", "0", "--ui-port", "0", *options)
    started.append(dev)
    return dev


def test_three_pasted_lines_print_their_result(started: List[Dev], folder: Path, tmp_path: Path) -> None:
    dev = start(started, "-n", "2", "--no-ui")
    greeting = dev.greeting()
    assert "Ready: 2 slots on 1 worker, on this machine." in greeting
    begin = greeting.index("Start Python and paste:") + 2
    pasted = "\n".join(greeting[begin : begin + 3]) + "\n"
    ran = subprocess.run(
        [sys.executable, "-"], input=pasted, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, cwd=tmp_path
    )
    assert ran.stdout == "[0, 1, 4, 9, 16, 25, 36, 49, 64, 81]\n", ran.stderr
    parts = dev.parts()
    assert len(parts) >= 4  # a scheduler, an agent and two workers
    dev.process.send_signal(signal.SIGINT)
    assert "scaler dev: stopping" in list(dev.lines())
    assert dev.process.wait(TIMEOUT_SECONDS) == 0
    assert psutil.wait_procs(parts, TIMEOUT_SECONDS)[1] == []
    assert os.listdir(folder) == []


def test_scheduler_and_worker_are_recorded(started: List[Dev], tmp_path: Path) -> None:
    dev = start(started, "-n", "1", "--no-ui", "--record", str(tmp_path))
    dev.greeting()
    dev.process.send_signal(signal.SIGINT)
    assert dev.process.wait(TIMEOUT_SECONDS) == 0
    paths = [each for each in tmp_path.iterdir() if each.is_file()]
    assert sorted(path.name.partition("-")[0] for path in paths) == ["scheduler", "worker"]
    for path in paths:
        with open(path, "rb") as file:
            recording = Recording(file)
            assert recording.header.core == path.name.partition("-")[0] and list(recording.records())


def test_nothing_is_left_when_it_is_killed(started: List[Dev]) -> None:
    dev = start(started, "-n", "1", "--no-ui")
    dev.greeting()
    parts = dev.parts()
    dev.process.kill()
    assert psutil.wait_procs(parts, TIMEOUT_SECONDS)[1] == []
    assert entries(SCHEDULER) == []


def test_no_file_is_left_when_it_is_killed(started: List[Dev], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    dev = start(started, "-n", "1")
    assert any(line.startswith("    user interface  http://") for line in dev.greeting())
    parts = dev.parts()
    dev.process.kill()
    assert psutil.wait_procs(parts, TIMEOUT_SECONDS)[1] == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_what_is_to_be_pasted_reaches_this_scheduler_among_others(started: List[Dev]) -> None:
    with Announcement(SCHEDULER, "tcp://127.0.0.1:1"):
        greeting = start(started, "-n", "1", "--no-ui").greeting()
    (address,) = (line.split()[1] for line in greeting if line.startswith("    scheduler "))
    assert f'client = Client("{address}")' in greeting


def test_a_port_that_is_taken_is_said_and_another_one_is_used(started: List[Dev]) -> None:
    with socket.socket() as occupant:
        try:
            occupant.bind(("127.0.0.1", 2345))
            occupant.listen()
        except OSError:
            pass  # another process was first
        dev = Dev("-n", "1", "--no-ui")
        started.append(dev)
        greeting = dev.greeting()
    assert "scaler dev: port 2345 is in use: the scheduler listens at another one" in greeting


def test_a_port_of_the_users_choice_that_is_taken_is_an_error(started: List[Dev]) -> None:
    with socket.socket() as occupant:
        occupant.bind(("127.0.0.1", 0))
        occupant.listen()
        dev = Dev("--no-ui", "--port", str(occupant.getsockname()[1]))
        started.append(dev)
        output = list(dev.lines())
    assert dev.process.wait(TIMEOUT_SECONDS) == 1
    assert any("the scheduler did not start" in line for line in output)


def test_the_link_to_the_user_interface_is_told(
    started: List[Dev], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "interface.py"
    program.write_text(USER_INTERFACE)
    monkeypatch.setenv("SCALER_UI", f"{sys.executable} {program}")
    dev = start(started, "-n", "1")
    greeting = dev.greeting()
    (monitor_address,) = (line.split()[-1] for line in greeting if "scaler_top" in line)
    assert f"    user interface  http://127.0.0.1:8081/?token=secret&watches={monitor_address}" in greeting
    parts = dev.parts()
    assert any("interface.py" in " ".join(part.cmdline()) for part in parts)
    dev.process.send_signal(signal.SIGTERM)
    assert dev.process.wait(TIMEOUT_SECONDS) == 0
    assert psutil.wait_procs(parts, TIMEOUT_SECONDS)[1] == []


def test_the_user_interface_itself_answers_and_clients_show_its_link(started: List[Dev]) -> None:
    greeting = start(started, "-n", "1").greeting()
    (link,) = (line.split()[-1] for line in greeting if line.startswith("    user interface "))
    with urllib.request.urlopen(link, timeout=TIMEOUT_SECONDS) as answer:
        assert answer.status == 200
    with Client() as client:
        assert f'href="{link}"' in client._repr_html_()


def test_without_a_user_interface_the_rest_works(started: List[Dev], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALER_UI", f"{sys.executable} -c 'raise SystemExit(3)'")
    greeting = start(started, "-n", "1").greeting()
    assert "    user interface  none: it did not start: it ended with exit code 3" in greeting


def test_the_schedulers_end_is_the_end(started: List[Dev]) -> None:
    dev = start(started, "-n", "1", "--no-ui")
    dev.greeting()
    parts = dev.parts()
    os.kill(entries(SCHEDULER)[0].process_id, signal.SIGKILL)
    assert any("the scheduler has ended with exit code -9" in line for line in dev.lines())
    assert dev.process.wait(TIMEOUT_SECONDS) == 1
    assert psutil.wait_procs(parts, TIMEOUT_SECONDS)[1] == []


def test_the_help_of_scaler_mentions_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["-h"])
    assert raised.value.code == 0
    assert "  dev        start all of them on this machine, without a file\n" in capsys.readouterr().out


def test_wrong_command_lines_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (["dev", "-n", "0"], ["dev", "--port", "65536"]):
        with pytest.raises(SystemExit) as raised:
            main(wrong)
        assert raised.value.code == 2
        assert wrong[1].lstrip("-") in capsys.readouterr().err
