"""How programs begin, however they are started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys
from scaler_protocol.programs.startup import run_program

def main():
    print("discarded")
    print("nor this", file=sys.stderr)
    opened = os.open(sys.argv[0], os.O_RDONLY)
    open(sys.argv[1], "w").write(f"{opened > 2} {[os.get_inheritable(each) for each in range(3)]}")
    return 3

sys.exit(run_program(lambda: main))
"""

COLLECTIONS = """
import atexit, gc, sys
from scaler_protocol.programs.startup import run_program

def load():
    print("imports:", gc.isenabled())
    return main

def main():
    print("runs:", gc.isenabled())
    return 0

atexit.register(lambda: print("ends:", gc.get_freeze_count() == 0))  # the last of all
sys.exit(run_program(load))
"""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_leads_nowhere(closed: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "program.py", "written"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    finished = subprocess.run(command, cwd=tmp_path, env=environment, timeout=30, stdout=subprocess.DEVNULL)
    assert finished.returncode == 3
    assert (tmp_path / "written").read_text() == "True [True, True, True]"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_to_a_full_disk_is_an_error_of_one_line(unbuffered: str) -> None:
    program = """
import sys
from scaler_protocol.programs.startup import run_program

def main():
    print("x" * 100_000)
    return 0

sys.exit(run_program(lambda: main))
"""
    with open("/dev/full", "w") as full:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": unbuffered}
        command = [sys.executable, "-c", program]
        finished = subprocess.run(command, env=environment, timeout=30, stdout=full, stderr=subprocess.PIPE, text=True)
    assert finished.stderr == "cannot write to the standard output: No space left on device\n"
    assert finished.returncode == 1


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="no other garbage collector can be told")
def test_the_garbage_collector_runs_while_the_program_does_and_neither_before_nor_after() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", COLLECTIONS]
    finished = subprocess.run(command, env=environment, timeout=30, stdout=subprocess.PIPE, text=True)
    assert finished.stdout.splitlines() == ["imports: False", "runs: True", "ends: False"]
