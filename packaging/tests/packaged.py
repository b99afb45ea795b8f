"""What the tests of built forms share: where the forms are, and a scheduler that is any command.

Rules:
- A form that is not there is a skip that names the command which builds it; `make test` builds all but nuitka's.
- Peers are those that pip installed from the wheels, in an environment of their own: nothing of this tree's is seen.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import List, Mapping, Optional

import pytest

TREE = Path(__file__).resolve().parents[2]
WHEELS = TREE / "dist/wheels"
PEX = TREE / "dist/pex/scaler_scheduler.pex"
NUITKA = TREE / "dist/nuitka/scaler_scheduler"
PYPY_FILE = TREE / "dist/pypy/scaler_scheduler"
PACKAGING_PYTHON = TREE / ".venv-packaging/bin/python"

STOP_SECONDS = 30.0
LISTENING = re.compile(r"listening at (\S+)")

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


def built(path: Path, target: str) -> Path:
    """The path of something that was built, else a skip."""
    if not path.exists():
        pytest.skip(f"{path.relative_to(TREE)} was not built (make {target})")
    return path


class RunningScheduler:
    """A scheduler that any command starts, for a `with` block; its log is read until it listens, and at its end."""

    def __init__(self, command: List[str], env: Optional[Mapping[str, str]] = None) -> None:
        self.process = subprocess.Popen(
            [*command, "tcp://127.0.0.1:0", "--monitor-address", "tcp://127.0.0.1:0"],
            env=dict(os.environ if env is None else env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.output = ""
        self.address = ""

    def __enter__(self) -> RunningScheduler:
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


def run_client(python: Path, address: str, folder: Path) -> str:
    """Let a client and two workers work with the scheduler at an address; what they print."""
    program = folder / "client_program.py"
    program.write_text(CLIENT_PROGRAM, encoding="utf-8")
    finished = subprocess.run(
        [str(python), str(program), address],
        cwd=folder,
        env=clean_environment(folder),
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
