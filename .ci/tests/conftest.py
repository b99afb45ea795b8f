"""Shared by the tree-wide tests: a local cluster, started on demand, and the summary of the PyPy suites."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Callable, Iterator, List

import pytest
from preloaded_programs import PreloadedPrograms

LOG_LINE = re.compile(r"\[[A-Z]+\]\d{4}-\d\d-\d\d ")


@pytest.fixture(scope="session")
def cluster_address() -> Iterator[str]:
    """The address of a scheduler with two workers."""
    from scaler import SchedulerClusterCombo

    cluster = SchedulerClusterCombo(n_workers=2, logging_level="WARNING")
    yield cluster.get_address()
    cluster.shutdown()


_CLUSTER_UNTIL_INPUT_ENDS = """
import sys
from scaler import SchedulerClusterCombo
cluster = SchedulerClusterCombo(n_workers=2, logging_level="WARNING")
print(cluster.get_address(), flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@pytest.fixture(scope="session")
def cluster_in(cluster_address: str) -> Iterator[Callable[[Path], str]]:
    """The address of a cluster whose workers have the packages of a Python."""
    addresses = {Path(sys.executable): cluster_address}
    with contextlib.ExitStack() as programs:

        def start(python: Path) -> str:
            if python not in addresses:
                command = [str(python), "-c", _CLUSTER_UNTIL_INPUT_ENDS]
                program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                programs.callback(program.communicate)
                assert program.stdout is not None
                addresses[python] = program.stdout.readline().strip()
            return addresses[python]

        yield start


@pytest.fixture(scope="session")
def programs_with_scaler() -> Iterator[PreloadedPrograms]:
    """Starts programs that need not import what `from scaler import Client` imports."""
    with PreloadedPrograms(["scaler.client.client"]) as programs:
        yield programs


@pytest.fixture(scope="session")
def preloaded_commands() -> Iterator[PreloadedPrograms]:
    """Starts the commands of the packages, which need not import their options."""
    options = ["scaler.programs.scaler_options", "scaler.worker.worker_options", "scaler.provision.provision_options"]
    options += [f"scaler_appliance.{name}" for name in ("shell.scheduler_options", "ui.ui_options", "top.top_options")]
    with PreloadedPrograms([*options, "scaler_protocol.programs.startup"]) as programs:
        yield programs


@pytest.fixture
def lines_but_log_lines(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], List[str]]:
    """The lines that a program printed itself; a cluster that it started logs to the same stream.

    A line is written at once: a log line comes before or after it, and not before its end.
    """
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)

    def filtered(output: str) -> List[str]:
        return [line for line in output.splitlines() if not LOG_LINE.match(line)]

    return filtered


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the counts of the PyPy suites: here each of them is a single test."""
    for report in terminalreporter.getreports("passed"):
        for name, text in report.user_properties:
            if name == "on PyPy":
                terminalreporter.write_line(f"on PyPy, {text}")
