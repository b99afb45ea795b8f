"""Tests can run in the background of a shell, where SIGINT is ignored: programs that they start still get it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]

INTERRUPTING_TEST = """
import signal, subprocess, sys

PROGRAM = '''
import time
try:
    print("here", flush=True)
    time.sleep(60)
    print("slept")
except KeyboardInterrupt:
    print("interrupted")
'''

def test_a_program_is_interrupted():
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout.readline() == "here\\n"
        program.send_signal(signal.SIGINT)
        assert program.communicate()[0] == "interrupted\\n"
"""


def test_a_program_of_a_test_is_interrupted_although_the_tests_ignore_it(tmp_path: Path) -> None:
    (tmp_path / "test_interrupting.py").write_text(INTERRUPTING_TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-p", "no:cacheprovider", str(tmp_path)]

    finished = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TREE)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        capture_output=True,
        text=True,
        timeout=110,
    )

    assert finished.returncode == 0, finished.stdout
