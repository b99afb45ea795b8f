"""What the tests of built forms share: where the forms are, and a scheduler that is any command.

Rules:
- A form that is not there is a skip that names the command which builds it; `make test` builds all but nuitka's.
- Peers are those that pip installed from the wheels, in an environment of their own: nothing of this tree's is seen.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, List, Mapping, Optional, TypeVar

import pytest

TREE = Path(__file__).resolve().parents[2]
WHEELS = TREE / "dist/wheels"
PEX = TREE / "dist/pex/scaler_scheduler.pex"
NUITKA = TREE / "dist/nuitka/scaler_scheduler"
PYPY_FILE = TREE / "dist/pypy/scaler_scheduler"
PACKAGING_PYTHON = TREE / ".venv-packaging/bin/python"

STOP_SECONDS = 30.0
ALTERNATE_SCREEN_OFF = b"\x1b[?1049l"
LISTENING = re.compile(r"listening at (\S+)")
MONITOR = re.compile(r"monitor address is (\S+)")

EARLIER_NAMES = {"scaler_gui": "scaler_ui"}
"""Programs of earlier generations, and what they are called now."""

CLIENT_PROGRAM = """
import sys
from scaler import Client, Cluster


def doubled(values):
    return values * 2

with Cluster(address=sys.argv[1], n_workers=2, logging_level="WARNING"):
    with Client(address=sys.argv[1]) as client:
        print(client.submit(pow, 2, 10).result(), client.map(abs, range(-3, 0)))
        print(len(client.submit(doubled, bytes(10_000_000)).result()))
"""
CLIENT_OUTPUT = "1024 [3, 2, 1]\n20000000\n"

WITHOUT_LOCAL_SOCKET = "tcp://127.0.0.2:0"
"""An address of this host at which peers are asked for keys."""
KEYED_CLIENT_PROGRAM = """
import os, sys
from scaler import Client, Cluster
from scaler.exceptions import AuthenticationError

with Cluster(address=sys.argv[1], n_workers=1, logging_level="WARNING"):
    with Client(address=sys.argv[1]) as client:
        print(client.submit(pow, 2, 10).result(), len(client.submit(bytes, 1_000_000).result()))
del os.environ["SCALER_KEY_FILE"]
os.environ["SCALER_INSECURE"] = "1"
try:
    Client(address=sys.argv[1])
except AuthenticationError:
    print("refused")
"""
KEYED_CLIENT_OUTPUT = "1024 1000000\nrefused\n"


def built(path: Path, target: str) -> Path:
    """The path of something that was built, else a skip."""
    if not path.exists():
        pytest.skip(f"{path.relative_to(TREE)} was not built (make {target})")
    return path


Running = TypeVar("Running", bound="RunningScheduler")


class RunningScheduler:
    """A scheduler that any command starts, for a `with` block; its log is read until it listens, and at its end."""

    def __init__(
        self, command: List[str], env: Optional[Mapping[str, str]] = None, address: str = "tcp://127.0.0.1:0"
    ) -> None:
        self.process = subprocess.Popen(
            [*command, address, "--monitor-address", "tcp://127.0.0.1:0"],
            env=dict(os.environ if env is None else env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.output = ""
        self.address = ""

    def __enter__(self: Running) -> Running:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output += line
            found = LISTENING.search(line)
            if found:
                self.address = found[1]
                return self
        self.process.wait()
        raise AssertionError(f"it ended with code {self.process.returncode}:\n{self.output}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end; its exit code."""
        assert self.process.stdout is not None
        self.process.send_signal(number)
        self.output += self.process.stdout.read()
        return self.process.wait(STOP_SECONDS)

    def __exit__(self, *_: object) -> None:
        assert self.process.stdout is not None
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def run_client(python: Path, address: str, folder: Path, text: str = CLIENT_PROGRAM, **environment: str) -> str:
    """Let a client and workers work with the scheduler at an address; what they print."""
    program = folder / "client_program.py"
    program.write_text(text, encoding="utf-8")
    finished = subprocess.run(
        [str(python), str(program), address],
        cwd=folder,
        env=clean_environment(folder, **environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


CONFIGURATION = '[scheduler]\naddress = "tcp://127.0.0.1:0"\nobject_memory_limit = "2GiB"\n{more}'


def assert_reads_files(command: List[str], env: Mapping[str, str], file: Path, name: Optional[str] = None) -> None:
    """A scheduler reads TOML and makes completions: what is imported only then is in the form too.

    Parameters:
        file: which is written; name: what it is called where the scheduler runs.
    """

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *options],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )

    name = name or str(file)
    file.write_text(CONFIGURATION.format(more=""), encoding="utf-8")
    assert run("--config", name, "--check").stdout.endswith(f"scaler_scheduler: {name} is valid\n")
    file.write_text(CONFIGURATION.format(more="objekt_directory = 1\n"), encoding="utf-8")
    finished = run("--config", name)
    assert finished.returncode == 2 and "did you mean 'object_directory'?" in finished.stdout
    for shell in ("bash", "zsh", "fish"):
        assert "print-config" in run("--print-completion", shell).stdout


def clean_environment(home: Path, **others: str) -> dict[str, str]:
    """Variables of a user who knows nothing of this tree."""
    return {"HOME": str(home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **others}


def assert_serves(command: List[str], env: Optional[Mapping[str, str]], python: Path, folder: Path) -> RunningScheduler:
    """A scheduler starts, serves a client and workers of another environment, and stops when it is asked to."""
    with RunningScheduler(command, env) as scheduler:
        assert run_client(python, scheduler.address, folder) == CLIENT_OUTPUT, scheduler.output
        assert scheduler.stop() == 0, scheduler.output
        assert "Traceback" not in scheduler.output
    return scheduler


def assert_serves_with_keys(
    command: List[str],
    env: Mapping[str, str],
    python: Path,
    folder: Path,
    keys: str = "",
    outside: Optional[Path] = None,
) -> None:
    """A scheduler makes its keys by itself, serves peers that have one over CURVE, and turns away those without.

    Parameters:
        keys: where the scheduler makes them; outside: where that is for the peers, if it runs in a root of its own.
    """
    outside = outside or folder / "keys"
    with RunningScheduler(
        command, {**env, "SCALER_KEY_DIRECTORY": keys or str(outside)}, WITHOUT_LOCAL_SOCKET
    ) as scheduler:
        key_file = str(outside / "owner.key")
        output = run_client(python, scheduler.address, folder, KEYED_CLIENT_PROGRAM, SCALER_KEY_FILE=key_file)
        assert output == KEYED_CLIENT_OUTPUT, scheduler.output
        assert scheduler.stop() == 0, scheduler.output
        assert scheduler.output.count("with the key 'owner'") == 2, scheduler.output
    assert sorted(path.name for path in outside.iterdir()) == ["authorized_keys", "owner.key", "scheduler.key"]


def assert_finds_itself_sound(command: List[str], env: Optional[Mapping[str, str]] = None) -> str:
    """The self-test of a scheduler that any command starts runs its tasks; its output."""
    finished = subprocess.run(
        [*command, "--self-test"],
        env=None if env is None else dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert ", encrypted by CURVE: a task took " in finished.stdout and finished.stdout.endswith("\nok\n")
    return finished.stdout


def assert_watches(file: Path, folder: Path, env: Mapping[str, str]) -> None:
    """By links of their names, the file's scaler_top and scaler_ui watch its scheduler."""
    for name in ("scaler_top", "scaler_ui"):
        (folder / name).symlink_to(file)
    with RunningScheduler([str(file)], env) as scheduler:
        found = MONITOR.search(scheduler.output)
        assert found is not None, scheduler.output
        frame = subprocess.run(
            [str(folder / "scaler_top"), "--once", found[1]],
            env={**env, "PYTHONWARNINGS": "error"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (frame.returncode, frame.stderr) == (0, ""), frame.stderr
        assert f"Total 0 worker(s), at {scheduler.address}" in frame.stdout
        shown = shown_in_terminal([str(folder / "scaler_top"), found[1]], env, b"Total 0 worker(s)")
        assert b"Traceback" not in shown and shown.count(ALTERNATE_SCREEN_OFF) == 1, shown
        with RunningInterface([str(folder / "scaler_ui")], found[1], env) as interface:
            assert interface.asked("healthz")["status"] == "ok"
            assert interface.asked("api/workers")["body"]["rows"] == []
            assert "Traceback" not in interface.output and "Warning" not in interface.output
        assert scheduler.stop() == 0


def shown_in_terminal(command: List[str], env: Mapping[str, str], until: bytes) -> bytes:
    """All that a program writes to a terminal that answers no questions; `q` is pressed when it has written `until`."""
    process_id, terminal = pty.fork()
    if process_id == 0:
        os.execve(command[0], command, {**env, "TERM": "xterm-256color"})
    written = b""
    has_quit = False
    while select.select([terminal], [], [], STOP_SECONDS)[0]:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # the program has ended
            break
        written += part
        if until in written and not has_quit:
            has_quit = True
            os.write(terminal, b"q")
    os.close(terminal)
    assert has_quit, written
    assert os.waitpid(process_id, 0)[1] == 0, written
    return written


class RunningInterface(RunningScheduler):
    """A scaler_ui that any command starts, likewise."""

    def __init__(self, command: List[str], monitor_address: str, env: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [*command, monitor_address, "--port", "0"],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.output = ""
        self.address = ""

    def asked(self, path: str) -> Any:
        """What it answers, when it has heard of the scheduler."""
        deadline = time.monotonic() + STOP_SECONDS
        while True:
            try:
                with urllib.request.urlopen(f"{self.address.rstrip('/')}/{path}", timeout=STOP_SECONDS) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code != 503 or time.monotonic() > deadline:
                    raise
