"""`scaler_top` as a program, without a terminal: what it prints, and how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import threading
from pathlib import Path
from typing import Any, Dict, Iterator, List, Set

import pytest
from feed.played_status import PlayedScheduler, Publisher
from quiet_addresses import quiet_address
from scheduler_process import SchedulerProcess
from top.sample import clients, cluster, functions, status

from scaler_appliance.top.json_lines import SCHEMA, describe
from scaler_appliance.top.top_options import TOP

DEADLINE_SECONDS = 30.0
DOCUMENT = Path(__file__).parents[3] / "docs/monitoring.md"


@pytest.fixture(autouse=True)
def nothing_else_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALER_RUN_DIRECTORY", str(tmp_path / "run"))
    monkeypatch.delenv("SCALER_ADDRESS", raising=False)


class Playing:
    """A scheduler that is played at an address, fast, for a `with` block."""

    def __init__(self, address: str, **options: Any) -> None:
        self._publisher = Publisher(address, PlayedScheduler(**options))
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._play)

    def _play(self) -> None:
        while not self._is_over.wait(0.05):
            self._publisher.publish()

    def __enter__(self) -> Playing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._publisher.close()


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Where a scheduler with twelve workers publishes."""
    address = f"ipc://{tmp_path}/monitor"
    with Playing(address, workers=12, slots=1):
        yield address


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "scaler_appliance.top", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "COLUMNS": "160", **environment},
    )


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    process = start(*arguments, **environment)
    output, error = process.communicate(timeout=DEADLINE_SECONDS)
    return subprocess.CompletedProcess(process.args, process.returncode, output, error)


def test_once_prints_all_rows_as_plain_text(address: str) -> None:
    finished = run("--once", address, "--sort", "worker")
    assert (finished.returncode, finished.stderr) == (0, "")
    assert re.findall(r"\|(worker-10\d\d)", finished.stdout) == sorted(f"worker-{1000 + each}" for each in range(12))
    assert "Shortcuts: worker[n] agt_cpu[C] agt_rss[M] cpu[c] rss[m] free[f] sent[w] queued[d] lag[l]" in (
        finished.stdout
    )
    assert re.search(r"success +[\d,]+ +[\d,]+/s", finished.stdout)
    assert "données.réduire" in finished.stdout
    assert "\x1b" not in finished.stdout


def test_once_prints_what_the_output_cannot_write_otherwise(address: str) -> None:
    finished = run("--once", address, PYTHONIOENCODING="ascii")
    assert finished.returncode == 0
    assert "donn?es.r?duire" in finished.stdout


@pytest.mark.exhaustive_on_pypy
@pytest.mark.parametrize("options", [[], ["--insecure"]])
def test_a_scheduler_is_announced_as_insecure_if_it_was_started_so(tmp_path: Path, options: List[str]) -> None:
    scheduler = SchedulerProcess(sys.executable, tmp_path / "address", quiet_address(), *options)
    try:
        scheduler.wait_until_ready()
        finished = run("--once", scheduler.monitor_address)
        described = json.loads(run("--once", "--json", scheduler.monitor_address).stdout)
    finally:
        scheduler.close()
    assert ("INSECURE" in finished.stdout) == bool(options)
    assert described["scheduler"]["is_insecure"] == bool(options)


def test_once_filters_and_reverses(address: str) -> None:
    finished = run("--once", address, "-s", "name", "-r", "-f", "WORKER-101")
    assert re.findall(r"\|(worker-10\d\d)", finished.stdout) == ["worker-1011", "worker-1010"]


def test_once_without_a_scheduler_says_what_to_look_for(tmp_path: Path) -> None:
    finished = run("--once", f"ipc://{tmp_path}/missing", "--timeout-seconds", "0.2")
    assert finished.returncode == 1
    assert finished.stdout == ""
    assert "nothing was published at ipc://" in finished.stderr
    assert "monitor address" in finished.stderr


def test_json_prints_an_object_for_each_publication_until_it_is_asked_to_stop(address: str) -> None:
    process = start("--json", "--interval-seconds", "0.01", address)
    assert process.stdout is not None
    objects: List[Dict[str, Any]] = [json.loads(process.stdout.readline()) for _ in range(4)]
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, error) == (0, "")
    assert [each["schema"] for each in objects] == [1] * 4
    assert [len(each["workers"]) for each in objects] == [12] * 4
    times = [each["unix_seconds"] for each in objects]
    assert times == sorted(set(times))


def test_json_once_is_one_object(address: str) -> None:
    finished = run("--json", "--once", address)
    assert json.loads(finished.stdout)["rates"]["task.success"] > 0
    assert finished.stdout.count("\n") == 1


def test_who_reads_may_have_enough(address: str) -> None:
    process = start("--json", "--interval-seconds", "0.01", address)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(DEADLINE_SECONDS) == 0
    assert process.stderr.read() == ""
    process.stderr.close()


def test_frames_need_a_terminal(address: str) -> None:
    finished = run(address)
    assert finished.returncode == 2
    assert finished.stderr == (
        "scaler_top: the output is not a terminal; --once prints one frame, --json figures for programs\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "'nonsense' is not a scheduler address"),
        ([], "no scheduler of this user was found on this host: give its monitor address"),
        (["--sort", "colour", "ipc:///x"], "invalid choice: 'colour' (choose from"),
        (
            ["--interval-seconds", "0", "ipc:///x"],
            "expected a duration such as 90, 30s, 250ms or 1h30min, above 0s, got '0'",
        ),
    ],
)
def test_a_wrong_command_line_is_named(arguments: List[str], message: str) -> None:
    finished = run(*arguments)
    assert finished.returncode == 2
    assert message in finished.stderr


def test_the_file_of_a_cluster_says_where_its_scheduler_publishes(tmp_path: Path, address: str) -> None:
    path = tmp_path / "scaler.toml"
    path.write_text(f'[scheduler]\naddress = "tcp://127.0.0.1:1"\nmonitor-address = "{address}"\n')
    assert run("--config", str(path), "--once").returncode == 0


def test_help_teaches_keys_and_columns() -> None:
    words = TOP.parser().format_help()
    for taught in ("agt_cpu", "page up/down", "space", "monitor", "--once", "quit (in earlier versions"):
        assert taught in words


def test_version() -> None:
    assert re.fullmatch(r"scaler_top \d+\.\d+\.\d+\S*\n", run("--version").stdout)


# The schema of --json -------------------------------------------------------------------------------------------------

PLACES = {
    "": ("", ()),
    "scheduler": ("scheduler", ()),
    "workers": ("workers", (0,)),
    "processors": ("workers", (0, "processors", 0)),
    "clients": ("clients", (0,)),
    "functions": ("functions", (0,)),
    "graphs": ("graphs", (0,)),
}


def keys_at(described: Dict[str, Any], place: str) -> Set[str]:
    name, path = PLACES[place]
    found: Any = described[name] if name else described
    for step in path:
        found = found[step]
    return set(found)


@pytest.fixture(scope="module")
def described() -> Dict[str, Any]:
    played = PlayedScheduler(workers=1)
    first, _ = played.step()
    second, _ = played.step()
    return describe(cluster(first, second), "ipc:///tmp/monitor")


@pytest.mark.parametrize("place", PLACES)
def test_the_document_tells_every_key_of_the_json(described: Dict[str, Any], place: str) -> None:
    heading = f"`{place}`" if place else "top level"
    text = DOCUMENT.read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| {re.escape(heading)} \| (.*) \|$", text, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) == keys_at(described, place)


def test_the_json_is_json_whatever_names_there_are() -> None:
    played = cluster(status(1, **clients("\x1b[2J\ud83d"[:4]), **functions('"\\\n')))
    assert json.loads(json.dumps(describe(played, "x")))["functions"][0]["name"] == '"\\\n'
    assert SCHEMA == 1


def test_the_scheduler_imports_nothing_of_its_monitors() -> None:
    imported = (
        "import sys, scaler_appliance.shell.scheduler_program; print(*{name.split('.')[0] for name in sys.modules})"
    )
    finished = subprocess.run([sys.executable, "-c", imported], capture_output=True, text=True, timeout=60, check=True)
    others = {"blessed", "jinxed", "wcwidth", "curses", "starlette", "uvicorn", "prometheus_client", "anyio"}
    assert others.isdisjoint(finished.stdout.split())


# The thread takes the signal, and so it does not end what the first thread waits for: as if it had come just before.
SIGNAL_BEFORE_A_WAIT = """
import select, signal, threading
from scaler_appliance.top.screen import interruptible

def take():
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    signal.raise_signal(signal.SIGTERM)

with interruptible():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Timer(0.3, take).start()
    try:
        select.select([], [], [], SECONDS)
    except KeyboardInterrupt:
        print("interrupted")
select.select([], [], [], 0.5)  # nothing comes any more: that would end the program
"""


def test_a_signal_that_comes_just_before_a_wait_is_noticed() -> None:
    program = SIGNAL_BEFORE_A_WAIT.replace("SECONDS", str(2 * DEADLINE_SECONDS))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_terminal_that_answers_no_question_can_be_left_before_anything_is_shown(address: str, number: int) -> None:
    here, there = pty.openpty()
    before = termios.tcgetattr(there)
    command = [sys.executable, "-m", "scaler_appliance.top", address]
    environment = {**os.environ, "TERM": "xterm", "BLESSED_QUERY_TIMEOUT_SECONDS": str(DEADLINE_SECONDS)}
    with subprocess.Popen(command, stdin=there, stdout=there, stderr=there, env=environment) as process:
        os.read(here, 4096)  # the first question
        process.send_signal(number)
        assert process.wait(DEADLINE_SECONDS / 2) == 0
    assert termios.tcgetattr(there) == before
    os.set_blocking(here, False)
    with contextlib.suppress(BlockingIOError):
        assert b"Traceback" not in os.read(here, 4096)
    os.close(here)
    os.close(there)
