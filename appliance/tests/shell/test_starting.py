"""Ctrl-C while a program still begins, and a reader that has enough: it ends at once, and says nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TIMEOUT_SECONDS = 60

INTERRUPTER = """
import os, signal, sys

class Interrupter:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == os.environ["INTERRUPT_AT_IMPORT_OF"]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupter)
"""


@pytest.mark.parametrize(
    ("command", "module"),
    [
        (["-m", "scaler_appliance", "tcp://127.0.0.1:0"], "scaler_appliance.shell.program"),
        (["-m", "scaler_appliance", "tcp://127.0.0.1:0"], "scaler_appliance.core.scheduler"),
        (["-m", "scaler_appliance.top", "ipc:///tmp/nobody"], "scaler_appliance.top.program"),
        (["-m", "scaler_appliance.ui", "ipc:///tmp/nobody", "--port", "0"], "scaler_appliance.ui.program"),
        (["-m", "scaler_appliance.ui", "ipc:///tmp/nobody", "--port", "0"], "scaler_appliance.ui.application"),
    ],
)
def test_a_program_that_is_interrupted_while_it_begins_ends_without_a_word(
    command: list[str], module: str, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTER)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "INTERRUPT_AT_IMPORT_OF": module}
    ended = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, env=environment
    )
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
