"""`scaler CONFIG.toml` as users start it: a scheduler, workers and a user interface of one file."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import pytest
from played_service_manager import PlayedServiceManager
from preloaded_programs import PreloadedPrograms
from sdk_tasks import wait_for

from scaler import Client
from scaler.cluster.appliance import INTERFACE_VARIABLE
from scaler.programs import other_programs, scaler_options
from scaler.programs.from_file import from_elsewhere, has_only_local_units

TIMEOUT_SECONDS = 60.0
TWO_CLUSTERS = """
[scheduler]
address = "tcp://127.0.0.1:0"
{scheduler}

[[cluster]]
num_of_workers = 1
worker_names = "left"
capabilities = {{ left = true }}

[[cluster]]
num_of_workers = 1
worker_names = ["right"]
{cluster}
"""
# Stands for scaler_ui, of which only is asked how it is started and ended.
INTERFACE = """
import sys
print("interface of", *sys.argv[1:], flush=True)
sys.stdin.read()
"""


class Running:
    """`scaler FILE`, or `scaler` with other words, with its output in another file."""

    def __init__(self, path: Path, environment: Dict[str, str], *words: str) -> None:
        self._output = path.with_suffix(".output")
        with open(self._output, "wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "scaler.programs", *(words or [str(path)])],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **environment},
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    @property
    def output(self) -> str:
        return self._output.read_text()

    def wait_for(self, text: str) -> None:
        wait_for(lambda: text in self.output or self.process.poll() is not None, f"{text!r} in the log")
        assert text in self.output, self.output

    def address(self) -> str:
        self.wait_for("Scaler: the scheduler listens at")
        found = re.search(r"Scaler: the scheduler listens at (\S+)\n", self.output)
        assert found is not None
        return found[1]

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_SECONDS)


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: List[Running] = []

    def start_one(text: str, *words: str, **environment: str) -> Running:
        path = tmp_path / f"scaler{len(started)}.toml"
        path.write_text(text)
        started.append(Running(path, environment, *words))
        return started[-1]

    yield start_one
    for running in started:
        running.process.kill()
        running.process.wait(TIMEOUT_SECONDS)


@pytest.fixture
def interface(tmp_path: Path) -> Dict[str, str]:
    """The environment in which a stand-in is the user interface."""
    program = tmp_path / "interface.py"
    program.write_text(INTERFACE)
    return {INTERFACE_VARIABLE: shlex.join([sys.executable, str(program)])}


Scaler = Callable[..., Tuple[int, str, str]]


@pytest.fixture(scope="module")
def scaler() -> Iterator[Scaler]:
    """Runs it to its end; what it always imports is there already."""

    def run(*arguments: str) -> Tuple[int, str, str]:
        done = programs.run([sys.executable, "-m", "scaler.programs", *arguments])
        return done.returncode, done.stdout, done.stderr

    with PreloadedPrograms(["scaler.programs.scaler_options", "scaler.programs.from_file"]) as programs:
        yield run


def in_order(output: str, *texts: str) -> bool:
    places = [output.find(text) for text in texts]
    return -1 not in places and places == sorted(places)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_all_of_a_file_works_together_and_ends_together(
    start: Start, interface: Dict[str, str], number: signal.Signals
) -> None:
    running = start(TWO_CLUSTERS.format(scheduler="", cluster="") + "[ui]\nport = 1\n", **interface)
    with Client(address=running.address()) as client:
        assert client.map(abs, range(20)) == list(range(20))
        assert client.options(capabilities={"left": 1}).submit(abs, -1).result() == 1
    running.wait_for("interface of")
    assert running.end(number) == 0
    assert in_order(
        running.output, "asked to stop by SIGTERM, leaving", "Scheduler: shutting down", "Scheduler: stopped"
    )
    assert "[ERROR]" not in running.output and "Traceback" not in running.output


def test_the_user_interface_shows_the_scheduler_of_the_file(start: Start) -> None:
    running = start(TWO_CLUSTERS.format(scheduler="", cluster="") + "[ui]\nport = 0\n")
    port = running.address().rpartition(":")[2]
    running.wait_for("scaler_ui: listening at http://127.0.0.1:")
    running.wait_for("worker left ")  # one that is asked to stop before it has begun says nothing
    assert f"scaler_ui: watching ipc:///tmp/127.0.0.1_{port}_monitor" in running.output
    assert running.end() == 0
    assert in_order(running.output, "scaler_ui: stopped", "asked to stop by SIGTERM", "Scheduler: shutting down")


def test_workers_and_interface_are_told_where_the_scheduler_of_the_file_is(
    start: Start, interface: Dict[str, str]
) -> None:
    running = start(TWO_CLUSTERS.format(scheduler="", cluster="") + "[ui]\n", SCALER_ADDRESS="ipc:///none", **interface)
    running.wait_for("interface of")
    port = running.address().rpartition(":")[2]
    assert re.search(rf"interface of --config \S+\.toml ipc:///tmp/127\.0\.0\.1_{port}_monitor ", running.output)
    for name in ("left", "right"):
        running.wait_for(f"worker {name} ")
    assert running.end() == 0


def test_what_has_an_address_of_its_own_keeps_it(start: Start, interface: Dict[str, str]) -> None:
    first = start('[scheduler]\naddress = "tcp://127.0.0.1:0"\n')
    second = start(
        '[scheduler]\naddress = "tcp://127.0.0.1:0"\n[cluster]\nnum_of_workers = 1\nworker_names = "guest"\n'
        f'address = "{first.address()}"\n[ui]\nmonitor_address = "ipc:///elsewhere"\n',
        **interface,
    )
    first.wait_for("worker guest ")
    second.wait_for("interface of")
    assert "_monitor" not in second.output.partition("interface of")[2].partition("\n")[0]
    assert (second.end(), first.end()) == (0, 0)


def test_a_program_that_does_not_start_ends_all_with_its_exit_code(start: Start) -> None:
    running = start(TWO_CLUSTERS.format(scheduler="", cluster="num_of_worker = 2"))
    assert running.process.wait(TIMEOUT_SECONDS) == 2
    assert "[cluster] has no key 'num_of_worker'; did you mean 'num_of_workers'?" in running.output
    sentence = "Scaler: the workers of [[cluster]] number 2 ended with exit code 2, stopping everything"
    assert in_order(running.output, sentence, "Scheduler: stopped")


def test_a_scheduler_that_does_not_start_ends_all_with_its_exit_code(start: Start) -> None:
    with socket.socket() as occupant:
        occupant.bind(("127.0.0.1", 0))
        occupant.listen()
        running = start(f'[scheduler]\naddress = "tcp://127.0.0.1:{occupant.getsockname()[1]}"\n[cluster]\n')
        assert running.process.wait(TIMEOUT_SECONDS) == 1
    assert "Address already in use" in running.output
    assert re.search(r"Scaler: the scheduler did not start: .* ended with exit code 1\n", running.output)
    assert "ClusterProcess" not in running.output


def test_a_scheduler_that_is_killed_ends_all(start: Start) -> None:
    running = start(TWO_CLUSTERS.format(scheduler="", cluster=""))
    running.wait_for("worker left ")
    children = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    assert running.process.wait(TIMEOUT_SECONDS) == 128 + signal.SIGKILL
    assert "Scaler: the scheduler ended with exit code 137, stopping everything" in running.output


def test_nothing_stays_when_it_is_killed_itself(start: Start) -> None:
    running = start(TWO_CLUSTERS.format(scheduler="", cluster=""))
    host, port = running.address()[len("tcp://") :].split(":")
    running.wait_for("worker left ")

    def is_gone() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) != 0

    running.process.kill()
    wait_for(is_gone, "the end of the scheduler")
    wait_for(lambda: "Scheduler: stopped" in running.output, "the scheduler's last word")


def test_all_of_it_can_be_read_as_json(start: Start) -> None:
    text = TWO_CLUSTERS.format(scheduler="logging_format = 'json'", cluster="logging_format = 'json'")
    text = text.replace('worker_names = "left"', 'worker_names = "left"\nlogging_format = "json"')
    running = start(f"[scaler]\nlogging_format = 'json'\n{text}")
    running.wait_for("worker right ")
    assert running.end() == 0
    lines = [json.loads(line) for line in running.output.splitlines()]
    assert {"Scheduler: stopped: all peers have left", "Worker: asked to stop by SIGTERM, leaving"} <= {
        line["message"] for line in lines
    }


# Pools of workers.

POOLS = """
[[provision]]
name = "small"
sustain_seconds = 0

[[provision]]
name = "large"
slots = 2
minimum = 1
"""


def test_pools_of_a_file_start_workers_of_its_scheduler(start: Start) -> None:
    running = start('[scheduler]\naddress = "tcp://127.0.0.1:0"\n' + POOLS)
    with Client(address=running.address()) as client:
        assert client.submit(abs, -1).result(TIMEOUT_SECONDS) == 1
    running.wait_for("starts unit large-")
    wait_for(lambda: re.search(r"worker .* connected, session", running.output) is not None, "a worker")
    provisioner = int(Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children").read_text().split()[1])
    os.kill(provisioner, signal.SIGKILL)
    wait_for(lambda: running.output.count("starts unit large-") == 2, "the unit of a provisioner that replaces it")
    wait_for(lambda: re.search(r"worker .* is gone", running.output) is not None, "workers of the first to end")
    assert running.end() == 0
    assert in_order(running.output, "is gone: it was stopped", "Scheduler: shutting down", "Scheduler: stopped")


def test_up_needs_no_file_and_no_section(start: Start) -> None:
    running = start("", "up", "--no-ui", "--port", "0")
    with Client(address=running.address()) as client:
        assert client.submit(abs, -1).result(TIMEOUT_SECONDS) == 1
    assert running.end(signal.SIGINT) == 0
    assert in_order(running.output, "starts unit workers-", "is gone: it was stopped", "Scheduler: stopped")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            '[provision]\nadapter = "exec"\n',
            'workers on other hosts must reach the scheduler: add [scheduler] with address = "tcp://0.0.0.0:2345"',
        ),
        (
            '[scheduler]\naddress = "tcp://127.0.0.1:0"\n',
            "--port 2346: the address of [scheduler] says where it listens",
        ),
        ("[provison]\n", "there is no section [provison]; did you mean 'provision'?"),
    ],
)
def test_what_up_cannot_start_is_said(text: str, fault: str, tmp_path: Path, scaler: Scaler) -> None:
    path = tmp_path / "pools.toml"
    path.write_text(text)
    code, out, errors = scaler("up", str(path), *(["--port", "2346"] if "--port" in fault else []))
    assert (code, out) == (2, "") and fault in errors


def test_units_elsewhere_are_told_the_name_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    assert from_elsewhere("tcp://0.0.0.0:2345") == f"tcp://{socket.gethostname()}:2345"
    assert from_elsewhere("tcp://head:2345,tcp://[::]:1") == f"tcp://head:2345,tcp://{socket.gethostname()}:1"
    assert has_only_local_units(None, {})
    monkeypatch.setenv("SCALER_PROVISION_ADAPTER", "exec")
    assert not has_only_local_units(None, {}), "wherever it is said"


# Without starting anything.


def test_check_asks_every_program(tmp_path: Path, scaler: Scaler) -> None:
    path = tmp_path / "scaler.toml"
    path.write_text(TWO_CLUSTERS.format(scheduler="", cluster="") + "[ui]\n")
    assert scaler("--check", str(path)) == (0, f"scaler: {path} is valid\n", "")
    path.write_text(TWO_CLUSTERS.format(scheduler='object_directory = "/none"', cluster='preload = "no module"'))
    code, out, errors = scaler(str(path), "--check")
    assert (code, errors) == (1, "")
    assert out.splitlines()[0] == f"scaler_scheduler: {path}: [scheduler] object_directory: there is no directory /none"
    assert f"scaler_cluster: {path}: [cluster] preload: cannot understand preload 'no module'" in out


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[schedular]\n", "there is no section [schedular]; did you mean 'scheduler'?"),
        ("[top]\n", "there is nothing to start: it has no section [scheduler], [cluster], [provision] or [ui]"),
        (
            "[scaler]\nloging_level = 'INFO'\n[scheduler]\n",
            "[scaler] has no key 'loging_level'; did you mean 'logging_level'?",
        ),
        ("[scheduler", "invalid TOML"),
        (None, "No such file or directory"),
    ],
)
@pytest.mark.parametrize("option", [None, "--check", "--print-config"])
def test_a_file_that_no_program_can_use_is_named(
    text: Optional[str], fault: str, option: Optional[str], tmp_path: Path, scaler: Scaler
) -> None:
    path = tmp_path / "scaler.toml"
    if text is not None:
        path.write_text(text)
    code, _, errors = scaler(str(path), *([option] if option else []))
    assert code == (1 if option == "--check" else 2)
    assert errors.startswith(f"scaler: error: {path}: ") and fault in errors


def test_what_print_config_prints_is_such_a_file(tmp_path: Path, scaler: Scaler) -> None:
    path = tmp_path / "scaler.toml"
    path.write_text(TWO_CLUSTERS.format(scheduler="client_timeout_seconds = '2m'", cluster=""))
    code, printed, errors = scaler("--print-config", str(path))
    assert (code, errors) == (0, "")
    assert re.findall(r"^\[.*\]$", printed, re.MULTILINE) == ["[scaler]", "[scheduler]", "[[cluster]]", "[[cluster]]"]
    assert f"client_timeout_seconds = 120.0  # {path}\n" in printed
    path.write_text(printed)
    assert scaler("--check", str(path))[0] == 0
    again = scaler("--print-config", str(path))[1]
    assert re.sub("  # .*", "", again) == re.sub("  # .*", "", printed)


def test_without_a_file_it_says_how_it_is_used(scaler: Scaler) -> None:
    code, out, errors = scaler()
    assert code == 2 and out == "" and "CONFIG.toml" in errors
    assert scaler("--version")[0] == 0 and "usage: scaler " in scaler("-h")[1]


@pytest.mark.parametrize("more", [(), ("some-worker",), ("--now", "some-worker")])
def test_a_mistyped_command_is_told_with_the_one_that_was_meant(more: Sequence[str], scaler: Scaler) -> None:
    code, _, errors = scaler("drian", *more)
    assert code == 2
    assert errors.splitlines() == [
        "scaler: error: there is no command drian, and no file of this name; did you mean `scaler drain`?",
        "see docs/configuration.md#scaler",
    ]


def test_what_is_like_no_command_is_told_with_all_of_them(scaler: Scaler) -> None:
    errors = scaler("status")[2]
    assert errors.splitlines()[0] == (
        "scaler: error: there is no command status, and no file of this name; commands are dev, drain, keys, provision,"
        " replay, scheduler, top, ui, up, worker"
    )


def test_a_file_that_is_not_there_is_a_file(scaler: Scaler) -> None:
    assert scaler("drain.toml")[2].splitlines()[0] == "scaler: error: drain.toml: No such file or directory"


def test_each_program_that_is_a_command_is_completed_by_shells() -> None:
    assert set(other_programs.PROGRAMS) == set(scaler_options.PROGRAMS)


@pytest.mark.parametrize("word", ["scheduler", "worker", "provision", "top", "ui"])
def test_programs_with_names_of_their_own_are_commands_too(word: str, scaler: Scaler) -> None:
    program = "cluster" if word == "worker" else word
    code, out, _ = scaler(word, "-h")
    assert code == 0 and out.startswith(f"usage: scaler_{program} ")
    code, _, errors = scaler(word, "--bogus")
    assert code == 2 and f"scaler_{program}: error: unknown option --bogus" in errors


def test_a_program_that_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch, scaler: Scaler) -> None:
    monkeypatch.setenv("SCALER_TOP", "/nowhere/scaler_top")
    code, _, errors = scaler("top")
    assert code == 127 and errors.startswith("scaler top: error: ") and "No such file" in errors


def test_a_file_s_programs_are_one_service_which_notifies_when_all_of_them_have_started(
    start: Start, tmp_path: Path
) -> None:
    manager = PlayedServiceManager(str(tmp_path / "notify"))
    try:
        running = start(TWO_CLUSTERS.format(scheduler="", cluster=""), **manager.environment(0.3))
        parts = "the scheduler, the workers of [[cluster]] number 1, the workers of [[cluster]] number 2"
        assert manager.take_with_sender() == (["READY=1", f"STATUS=running {parts}"], running.process.pid)
        with Client(running.address()) as client:
            assert client.submit(os.environ.get, "NOTIFY_SOCKET").result(TIMEOUT_SECONDS) is None
        assert running.end() == 0
        lines, sender = manager.take_with_sender()
        assert lines[0] == "STOPPING=1" and sender == running.process.pid
        assert manager.has_nothing(), "one of the programs has notified, too"
    finally:
        manager.close()
