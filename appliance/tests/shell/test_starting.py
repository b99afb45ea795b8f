"""Ctrl-C while a program still begins, and a reader that has enough: it ends at once, and says nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Callable

import pytest

TIMEOUT_SECONDS = 60


@pytest.mark.parametrize(
    ("command", "module"),
    [
        (["-m", "scaler_appliance", "tcp://127.0.0.1:0"], "scaler_appliance.shell.scheduler_program"),
        (["-m", "scaler_appliance", "tcp://127.0.0.1:0"], "scaler_appliance.core.scheduler_core"),
        (["-m", "scaler_appliance.top", "ipc:///tmp/missing"], "scaler_appliance.top.top_program"),
        (["-m", "scaler_appliance.ui", "ipc:///tmp/missing", "--port", "0"], "scaler_appliance.ui.ui_program"),
        (["-m", "scaler_appliance.ui", "ipc:///tmp/missing", "--port", "0"], "scaler_appliance.ui.application"),
    ],
)
def test_a_program_that_is_interrupted_while_it_begins_ends_without_a_word(
    command: list[str], module: str, run_interrupted: Callable[[list[str], str], subprocess.CompletedProcess[str]]
) -> None:
    ended = run_interrupted(command, module)
    assert ended.returncode == 130, ended.stdout + ended.stderr
    assert ended.stderr == ""


@pytest.mark.parametrize("option", ["--print-config", "-h"])
@pytest.mark.parametrize("module", ["scaler_appliance", "scaler_appliance.top", "scaler_appliance.ui"])
def test_a_reader_that_has_gone_is_no_error(module: str, option: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", module, option], stdout=writer, stderr=subprocess.PIPE, timeout=TIMEOUT_SECONDS
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_scheduler_needs_no_libzmq() -> None:
    """It would load it, and run its threads."""
    program = "import sys, scaler_appliance.shell.scheduler_program; print('zmq' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    assert (ended.stdout, ended.stderr) == ("False\n", "")


def test_a_start_imports_nothing_that_few_starts_need() -> None:
    few = {"ctypes", "logging.config", "logging.handlers", "pathlib", "platform"}
    program = "import sys, scaler_appliance.shell.scheduler_program; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    assert "scaler_appliance.shell.server" in ended.stdout.split() and not few & {*ended.stdout.split()}
