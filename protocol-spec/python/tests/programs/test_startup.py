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


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_leads_nowhere(closed: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "program.py", "written"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    finished = subprocess.run(command, cwd=tmp_path, env=environment, timeout=30, stdout=subprocess.DEVNULL)
    assert finished.returncode == 3
    assert (tmp_path / "written").read_text() == "True [True, True, True]"
